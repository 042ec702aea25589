"""How ranks lie in the cluster's parts, and the order of ranks that follows the parts.

Theory of operation. The parts are sets of ranks of which any two are nested or disjoint: the NUMA nodes and
nodes that were found on the machines, and sets of nodes: those that limits of the network stand around, as
the bound reads them off too (`limits`), and those that were found to be near to each other (racks, rows of
racks). Parts that contradict the nodes, which are verified, are left out.

One order serves all algorithms: the ranks of every part stand together, parts that belong together too. Then

- a ring enters and leaves each part once, the least there can be, so a link of a part carries one flow each
  way however the launcher numbered the ranks;
- groups of hierarchical algorithms are runs of neighbours, and neighbours at distance 1, 2, 4, … of doubling
  algorithms lie within the smallest parts for the large exchanges;
- a tree over the positions in order has few edges between parts: a run of neighbours is cut from the rest at
  its two ends and below its ancestors.

Nothing is gained from where a slow node stands in it. In a ring and in groups every rank sends and receives
the same, whatever its place; in a double binary tree every rank but two or so is an inner vertex of one tree
and a leaf of the other.

The order is the numbering itself, as far as that is free: parts come in the order of their lowest ranks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topotune.links.limits import Members, laminar, limits_by_set
from topotune.links.model import LinkModel

Partition = tuple[tuple[int, ...], ...]
"""Groups of ranks that hold every rank once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """How the ranks lie in the cluster: all that grouping them needs to know.

    Attributes:
        node_of_rank: node number of each rank, by verified handshake.
        numa_of_rank: NUMA node of each rank on its node; None where it is not known of every rank.
        racks: groups of nodes that share an uplink, finest first: every partition is coarser than the one
            before, and has groups of several nodes. () where none is known.
    """

    node_of_rank: tuple[int, ...]
    numa_of_rank: tuple[int, ...] | None = None
    racks: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        if self.numa_of_rank is not None and len(self.numa_of_rank) != self.num_ranks:
            raise ValueError(f"numa_of_rank names {len(self.numa_of_rank)} ranks, not {self.num_ranks}")

    @property
    def num_ranks(self) -> int:
        """N."""
        return len(self.node_of_rank)

    @property
    def nodes(self) -> Partition:
        """The ranks of each node."""
        return partition_by(self.node_of_rank)


def placement_of(model: LinkModel, numa_of_rank: Sequence[int | None] | None = None) -> Placement:
    """How the ranks of a link model lie.

    Args:
        model: fitted links, with what limits them.
        numa_of_rank: NUMA node of each rank on its node; None for a rank that may run on several.
    """
    racks = _racks(model)
    known = tuple(numa for numa in numa_of_rank or () if numa is not None)
    return Placement(
        node_of_rank=model.node_of_rank,
        numa_of_rank=known if len(known) == model.num_ranks else None,
        racks=racks,
    )


def rank_order(model: LinkModel, numa_of_rank: Sequence[int | None] | None = None) -> tuple[int, ...] | None:
    """The rank that should stand at each position; None where ranks as numbered serve as well.

    Time O(n log n) times the depth of the parts, beside reading the limits.

    Args:
        model: fitted links, with what limits them.
        numa_of_rank: NUMA node of each rank on its node; None for a rank that may run on several.
    """
    parts = _parts(model)
    if numa_of_rank is not None:
        parts += [
            frozenset(group)
            for group in partition_by(tuple(zip(model.node_of_rank, numa_of_rank, strict=True)))
            if numa_of_rank[group[0]] is not None
        ]
    # From the outermost part to the innermost, the lowest rank of each: no two parts side by side share one.
    path: list[list[int]] = [[] for _ in range(model.num_ranks)]
    for part in reversed(laminar(parts)):
        lowest = min(part)
        for rank in part:
            path[rank].append(lowest)
    order = sorted(range(model.num_ranks), key=lambda rank: (*path[rank], rank))
    return None if order == list(range(model.num_ranks)) else tuple(order)


def reordered_numa(
    numa_of_rank: Sequence[int | None] | None, order: Sequence[int] | None
) -> Sequence[int | None] | None:
    """NUMA node of the rank at each position."""
    if numa_of_rank is None or order is None:
        return numa_of_rank
    return tuple(numa_of_rank[rank] for rank in order)


def partition_by(key_of_rank: Iterable[object]) -> Partition:
    """The ranks with one key together, in the order of their lowest ranks."""
    groups: dict[object, list[int]] = {}
    for rank, key in enumerate(key_of_rank):
        groups.setdefault(key, []).append(rank)
    return tuple(tuple(group) for group in groups.values())


def _parts(model: LinkModel) -> list[Members]:
    """Nodes, and what is near to each other or has a limit around it, where that cuts no node."""
    nodes = [frozenset(group) for group in partition_by(model.node_of_rank)]
    node_of_rank = {rank: node for node in nodes for rank in node}
    found = limits_by_set(model)
    around = {
        members
        for members in found.sending.keys() | found.receiving.keys() | set(model.near)
        if members <= node_of_rank[min(members)] or all(node_of_rank[rank] <= members for rank in members)
    }
    return [*nodes, *(around - set(nodes))]


def _racks(model: LinkModel) -> tuple[Partition, ...]:
    """The finest and the coarsest partition in groups of several nodes; one if they agree.

    What is in no such group is one of its own: the rest of the cluster, or of the group around it.
    """
    num_nodes = {
        members: len({model.node_of_rank[rank] for rank in members}) for members in laminar(_parts(model))
    }
    several = [members for members, count in num_nodes.items() if 1 < count < len(set(model.node_of_rank))]
    innermost: dict[int, int] = {}
    outermost: dict[int, int] = {}
    for number, members in enumerate(several):  # ascending by size
        for rank in members:
            innermost.setdefault(rank, number)
            outermost[rank] = number
    ranks = range(model.num_ranks)
    fine = partition_by((outermost.get(rank), innermost.get(rank)) for rank in ranks)
    coarse = partition_by(outermost.get(rank) for rank in ranks)
    if not several:
        return ()
    return (coarse,) if fine == coarse else (fine, coarse)


def nest(fine: Partition, coarse: Partition) -> tuple[Partition, ...]:
    """The groups of the finer partition, in those of the coarser one."""
    outer_of_rank = {rank: number for number, group in enumerate(coarse) for rank in group}
    outer: list[list[tuple[int, ...]]] = [[] for _ in coarse]
    for group in fine:
        outer[outer_of_rank[group[0]]].append(group)
    return tuple(map(tuple, outer))

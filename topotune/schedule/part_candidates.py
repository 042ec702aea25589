"""What is worth considering as a reduce-scatter or all-gather for given ranks; numbered by position."""

from topotune.links.placement import Partition, Placement
from topotune.plan.algorithms import MAX_SCHEDULE_RANKS, MAX_TRANSFERS, check_params
from topotune.schedule.candidates import (
    HIERARCHICAL_PIECES,
    MOST_TRANSFERS,
    RING_CHANNELS,
    RING_PIECES,
    Named,
)
from topotune.schedule.model import PartCollective


def part_candidates(placement: Placement, collective: PartCollective) -> tuple[Named, ...]:
    """All of them, without the default; none for a single rank.

    Args:
        placement: how the ranks lie.
        collective: which of the two.
    """
    num_ranks, nodes = placement.num_ranks, placement.nodes
    if num_ranks == 1:
        return ()
    found: list[Named] = []
    if num_ranks <= MAX_SCHEDULE_RANKS:
        found += [
            ("ring", {"channels": channels, "pieces": pieces})
            for channels in RING_CHANNELS
            for pieces in RING_PIECES
        ]
        found.append(("halving_doubling", {}))
        found += [
            ("hierarchical", {"groups": [list(group) for group in level], "pieces": pieces})
            for level in _levels(placement)
            for pieces in HIERARCHICAL_PIECES
        ]
    if len(nodes) == 1:
        found.append(("shm", {}))
    elif len(nodes) < num_ranks:
        found.append(("shm_hierarchical", {"groups": [list(node) for node in nodes]}))
    return tuple(one for one in found if _is_affordable(one, num_ranks, collective))


def _levels(placement: Placement) -> list[Partition]:
    """Nodes, and groups of nodes: what is no single group and no single ranks."""
    return [level for level in (placement.nodes, *placement.racks) if 1 < len(level) < placement.num_ranks]


def _is_affordable(one: Named, num_ranks: int, collective: PartCollective) -> bool:
    algorithm, params = one
    is_plain = all(params.get(name, 1) == 1 for name in ("channels", "pieces"))
    most = MAX_TRANSFERS if is_plain else MOST_TRANSFERS
    return check_params(algorithm, params, num_ranks, collective=collective, most_transfers=most) is None

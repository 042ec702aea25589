"""Forests of an allreduce: shares of the message and trees to add and to copy them along, for any network.

Theory of operation. A packing of pairs of trees (`topotune.bounds.tree_pairs`) says what share of the message
each pair takes, whatever the hosts' links: shares become whole units, and the fullest link says how long they
take. Each host then owns as many units as it roots trees: a unit goes up one tree and down another.

Between hosts that are linked directly, not by switches, trees of such a packing are higher than they need to
be, and messages wait. Where equal shares reach the optimum there, as on most machines, the forest of the
all-gather serves, once upwards (that of the reversed links) and once downwards (`topotune.bounds.forest`).
"""

from collections import Counter, deque
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import gcd
from typing import Final

from topotune.bounds.bound import is_open
from topotune.bounds.cut import allgather_bound, reduce_scatter_bound, tightest_split
from topotune.bounds.cut_planes import CutPlanes, allreduce_by_cuts
from topotune.bounds.forest import Forest, Path, Tree, over_ranks, spanning_forest
from topotune.bounds.graph import Arc, CapacityGraph, is_balanced
from topotune.bounds.symmetry import likeness
from topotune.bounds.tree_pairs import TreePairs, pack_pairs
from topotune.errors import UsageError
from topotune.plan.algorithms import MAX_TREES

MAX_HOSTS: Final = 96
"""As many of different links took 10 s on a core, 2026-11; the time grows with their third power."""

MAX_LINKS: Final = 10_000
"""More than as many hosts have that are all linked with each other. Every pair of trees counts them all."""

_TREES_PER_RANK: Final = (1, 2, 3, 4, 6, 8)
_MOST_EQUAL: Final = 16
"""Hosts whose all-gather is packed: takes seconds."""

_QUICK_HOSTS: Final = 16
_QUICK_MESHED_HOSTS: Final = 8
_QUICK_LINKS: Final = 200
"""Twice those of any known machine, or two of them, with as few hosts."""

_CLOSE: Final = 0.99  # of the optimum: nothing finer is tried with equal shares
_CLOSE_PAIRS: Final = 0.998
_MAX_ROUNDS: Final = 20
_UNITS: Final = (720, 10_080, 1_000_000)
"""That the message is cut in, the first that costs little: many small shares are a whole number of 720."""

_ROUNDING: Final = 1e-3
"""Share of the rate that whole units may cost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AllreduceForest:
    """Trees to add along and trees to copy along, as many of both for every host that owns a share.

    Attributes:
        copying: of each host whom it hears the sum from.
        adding: of each host whom it sends its part to; routes are those of the reversed arcs.
        optimum_algbw_bytes_per_s: what no allreduce exceeds.
    """

    copying: Forest
    adding: Forest
    optimum_algbw_bytes_per_s: float

    @property
    def algbw_bytes_per_s(self) -> float:
        """Message size over time, for large messages."""
        return self.copying.algbw_bytes_per_s

    def over_ranks(self) -> list[tuple[Tree, Tree]]:
        """(up, down) trees over ranks, of one root and multiplicity: what each part of a message takes."""
        pairs: list[tuple[Tree, ...]] = []
        for host in range(len(self.copying.hosts)):
            ahead = deque(tree for tree in self.adding.trees if tree.root == host)
            for down in (tree for tree in self.copying.trees if tree.root == host):
                left = down.multiplicity
                while left > 0:
                    up = ahead.popleft()
                    used = min(left, up.multiplicity)
                    if used < up.multiplicity:
                        ahead.appendleft(Tree(parents=up.parents, multiplicity=up.multiplicity - used))
                    pairs.append(
                        (
                            Tree(parents=up.parents, multiplicity=used),
                            Tree(parents=down.parents, multiplicity=used),
                        )
                    )
                    left -= used
        return [(up, down) for up, down in over_ranks(pairs, self.copying.members, most=MAX_TREES)]


def forest_params(found: AllreduceForest) -> dict[str, list[int] | list[list[int]]]:
    """Params of the schedule ``forest``: weights, and each rank's parent in every tree down and up."""
    pairs = found.over_ranks()
    divisor = gcd(*(up.multiplicity for up, _ in pairs))
    params: dict[str, list[int] | list[list[int]]] = {
        "weights": [up.multiplicity // divisor for up, _ in pairs],
        "down": [list(down.parents) for _, down in pairs],
    }
    if any(up.parents != down.parents for up, down in pairs):
        params["up"] = [list(up.parents) for up, _ in pairs]
    return params


def is_quick(graph: CapacityGraph) -> bool:
    """Whether `allreduce_forest`, and its schedule's prediction, take about a second at most."""
    most_hosts = _QUICK_MESHED_HOSTS if _is_meshed(graph) else _QUICK_HOSTS
    return len(graph.hosts) <= most_hosts and len(graph.capacities) <= _QUICK_LINKS


def is_limited(graph: CapacityGraph) -> bool:
    """Whether there is a forest to be found: ranks that reach each other, by links of a known limit."""
    return _limit(graph)[1] is None


def allreduce_forest(graph: CapacityGraph) -> AllreduceForest:
    """Trees and shares that come close to the optimum of an allreduce, whatever the hosts' links.

    Args:
        graph: ranks on at least two vertices. A switch may be entered by more than leaves it.

    Raises:
        ValueError: the ranks cannot all reach each other, or nothing limits what they exchange.
        UsageError: more than ``MAX_HOSTS`` hosts, or ``MAX_LINKS`` links.

    Complexity: as of `allreduce_by_cuts` and `pack_pairs`; with hosts that are linked directly, seconds from
    about 12 of them.
    """
    for what, number, most in (
        (graph.host_word, len(graph.hosts), MAX_HOSTS),
        ("links", len(graph.capacities), MAX_LINKS),
    ):
        if number > most:
            hint = "topotune optimum bounds larger networks; hierarchical and blueconnect schedules fit them"
            raise UsageError(f"a forest for {number} {what}: there can be {most} of them", hint=hint)
    split, problem = _limit(graph)
    if problem is not None:
        raise ValueError(problem)
    # Too many links for the programme by cuts: no prices to begin with, and the split as its bound.
    optimum = allreduce_by_cuts(graph, likeness(graph), split_bytes_per_s=split) or CutPlanes(
        algbw_bytes_per_s=float(split), is_optimum=False, prices=dict.fromkeys(graph.capacities, 0.0)
    )
    equal: AllreduceForest | None = None
    if _is_meshed(graph) and len(graph.hosts) <= _MOST_EQUAL and is_balanced(graph):
        both = [find(graph).algbw_bytes_per_s for find in (allgather_bound, reduce_scatter_bound)]
        if 1.0 / sum(1.0 / algbw for algbw in both) >= _CLOSE * optimum.algbw_bytes_per_s:
            equal = _equal_shares(graph, optimum.algbw_bytes_per_s)
            # Links that are far from alike can take more trees than there may be.
            if equal.algbw_bytes_per_s >= _CLOSE * optimum.algbw_bytes_per_s:
                return equal
    pairs = pack_pairs(graph, optimum, close=_CLOSE_PAIRS, max_rounds=_MAX_ROUNDS)
    found = _of_pairs(graph, pairs, optimum.algbw_bytes_per_s)
    return found if equal is None or found.algbw_bytes_per_s > equal.algbw_bytes_per_s else equal


def _limit(graph: CapacityGraph) -> tuple[int, str | None]:
    """What the tightest split of the ranks carries, bytes/s; and why that is no limit, in words."""
    if len(graph.hosts) == 1:
        return 0, "all ranks sit on one vertex, where no link bounds them"
    split, side = tightest_split(graph)
    if split == 0:
        return 0, "the ranks cannot all reach each other"
    if is_open(graph, [arc for arc in graph.capacities if arc[0] in side and arc[1] not in side]):
        return split, "no links with a known limit separate the ranks"
    return split, None


def _is_meshed(graph: CapacityGraph) -> bool:
    return any(tail in graph.hosts and head in graph.hosts for tail, head in graph.capacities)


def _equal_shares(graph: CapacityGraph, optimum_algbw_bytes_per_s: float) -> AllreduceForest:
    """The forests of reduce-scatter and all-gather, one after the other: of few trees if they come close."""
    best: AllreduceForest | None = None
    for trees_per_rank in _TREES_PER_RANK:
        copying = spanning_forest(graph, trees_per_rank=trees_per_rank)
        adding = spanning_forest(_reversed(graph), trees_per_rank=trees_per_rank)
        units = copying.units_per_byte_per_s + adding.units_per_byte_per_s
        found = AllreduceForest(
            copying=replace(copying, units_per_byte_per_s=units),
            adding=replace(adding, units_per_byte_per_s=units),
            optimum_algbw_bytes_per_s=optimum_algbw_bytes_per_s,
        )
        if best is None or found.algbw_bytes_per_s > best.algbw_bytes_per_s:
            best = found
        if best.algbw_bytes_per_s >= _CLOSE * optimum_algbw_bytes_per_s:
            break
    assert best is not None
    return best


def _of_pairs(graph: CapacityGraph, found: TreePairs, optimum_algbw_bytes_per_s: float) -> AllreduceForest:
    """Pairs in whole units, in the least time that the links allow for these."""
    best: AllreduceForest | None = None
    for resolution in (units for units in _UNITS if units >= 4 * len(found.pairs)):
        one = _in_units(graph, found, resolution, optimum_algbw_bytes_per_s)
        if best is None or one.algbw_bytes_per_s > best.algbw_bytes_per_s:
            best = one
        if best.algbw_bytes_per_s >= (1 - _ROUNDING) * found.algbw_bytes_per_s:
            break
    assert best is not None
    return best


def _in_units(
    graph: CapacityGraph, found: TreePairs, resolution: int, optimum_algbw_bytes_per_s: float
) -> AllreduceForest:
    units = [round(pair.share * resolution) for pair in found.pairs]
    up, down = list[Tree](), list[Tree]()
    ways_up, ways_down = dict[tuple[int, int], Counter[Path]](), dict[tuple[int, int], Counter[Path]]()
    load = Counter[Arc]()
    for pair, amount in zip(found.pairs, units, strict=True):
        if amount == 0:
            continue
        for parents, ways, trees, known in (
            (pair.up, pair.ways_up, up, ways_up),
            (pair.down, pair.ways_down, down, ways_down),
        ):
            trees.append(Tree(parents=parents, multiplicity=amount))
            for host, way in ways.items():
                known.setdefault((parents[host], host), Counter())[
                    way[::-1] if ways is pair.ways_up else way
                ] += amount
                for arc in pairwise(way):
                    load[arc] += amount
    fullest = max(Fraction(amount, graph.capacities[arc]) for arc, amount in load.items())
    members = tuple(
        tuple(rank for rank, vertex in enumerate(graph.compute) if vertex == host) for host in found.hosts
    )
    adding, copying = (
        Forest(
            hosts=found.hosts,
            members=members,
            units_per_byte_per_s=fullest,
            trees=tuple(trees),
            routes={ends: tuple(ways.items()) for ends, ways in sorted(known.items())},
        )
        for trees, known in ((up, ways_up), (down, ways_down))
    )
    return AllreduceForest(
        copying=copying, adding=adding, optimum_algbw_bytes_per_s=optimum_algbw_bytes_per_s
    )


def _reversed(graph: CapacityGraph) -> CapacityGraph:
    return CapacityGraph(
        capacities={(b, a): capacity for (a, b), capacity in graph.capacities.items()}, compute=graph.compute
    )

"""Forests of an allreduce: equal shares where hosts are alike, larger ones for those who can carry more.

Theory of operation. Where twice the all-gather is the optimum of an allreduce, its forest serves, once
upwards (that of the reversed links) and once downwards. Elsewhere the linear programme (`topotune.bounds.lp`)
says which share of the message each host should own, and how much of each link should serve adding and how
much copying. Both are rounded to whole units of one tree, at a few resolutions, with a little more time until
the trees of both parts fit; what the rounding leaves unequal at a switch is cut off, since a forest needs as
much in as out. Each host then owns as many units of the message as it roots trees: a unit goes up one tree
and down another.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd

from topotune.bounds.bound import NoBound, graph_allreduce_bound
from topotune.bounds.forest import Forest, Network, Tree, carries, over_ranks, spanning_forest
from topotune.bounds.graph import CapacityGraph
from topotune.bounds.lp import AllreduceOptimum, allreduce_lp

_TREES_PER_RANK = (1, 2, 3, 4, 6, 8)
_RESOLUTIONS = (12, 24, 60, 120, 240)  # trees: more of them fit the shares better, and cost more messages
_MAX_LP_HOSTS = 24  # beyond, the linear programme that gives shares takes longer than a second
_CLOSE = 0.99  # of the optimum: nothing finer is tried
_MORE_TIME = (0, 1, 2, 4, 6, 9, 12, 16, 20, 25, 33, 50)  # per cent


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
        return [(up, down) for up, down in over_ranks(pairs, self.copying.members)]


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


def allreduce_forest(graph: CapacityGraph) -> AllreduceForest:
    """Trees and shares that come close to the optimum of an allreduce, whatever the hosts' links.

    Args:
        graph: ranks on at least two vertices; as much enters every switch as leaves it.

    Raises:
        ValueError: the ranks cannot all reach each other, or a switch is out of balance.

    Complexity: the linear programme's, seconds from about 30 hosts; with more, shares are equal.
    """
    bound = graph_allreduce_bound(graph)
    if isinstance(bound, NoBound):
        raise ValueError(bound.reason)
    best = _equal_shares(graph, 1.0 / bound.s_per_byte)
    if len(graph.hosts) > _MAX_LP_HOSTS or best.algbw_bytes_per_s >= _CLOSE * best.optimum_algbw_bytes_per_s:
        return best
    optimum = allreduce_lp(graph, spread=True)
    for resolution in _RESOLUTIONS:
        found = _at_resolution(graph, optimum, resolution)
        if found and found.algbw_bytes_per_s > best.algbw_bytes_per_s:
            best = found
        if best.algbw_bytes_per_s >= _CLOSE * optimum.algbw_bytes_per_s:
            break
    return best


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


def _at_resolution(
    graph: CapacityGraph, optimum: AllreduceOptimum, resolution: int
) -> AllreduceForest | None:
    """So many trees in the least time that is tried; None where they fit in none."""
    for percent in _MORE_TIME:
        units = Fraction(resolution) / Fraction(optimum.algbw_bytes_per_s) * Fraction(100 + percent, 100)
        copying, adding = Network.of(graph), Network.of(_reversed(graph))
        wanted = _whole_shares([optimum.shares[name] for name in copying.hosts], resolution)
        copies, adds = _whole_parts(graph, optimum, units)
        copying.take_units(_balanced(copies, graph))
        adding.take_units(_balanced({(b, a): amount for (a, b), amount in adds.items()}, graph))
        if all(carries(network.capacities, network, wanted) for network in (copying, adding)):
            return AllreduceForest(
                copying=copying.forest(units, wanted),
                adding=adding.forest(units, wanted),
                optimum_algbw_bytes_per_s=optimum.algbw_bytes_per_s,
            )
    return None


def _reversed(graph: CapacityGraph) -> CapacityGraph:
    return CapacityGraph(
        capacities={(b, a): capacity for (a, b), capacity in graph.capacities.items()}, compute=graph.compute
    )


def _whole_shares(shares: Sequence[float], resolution: int) -> list[int]:
    """Whole numbers in proportion to the shares, with the resolution as sum: largest remainders go up."""
    exact = [share * resolution for share in shares]
    whole = [int(amount) for amount in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (whole[i] - exact[i], i))
    for index in by_remainder[: resolution - sum(whole)]:
        whole[index] += 1
    return whole


NamedArc = tuple[str, str]


def _whole_parts(
    graph: CapacityGraph, optimum: AllreduceOptimum, units: Fraction
) -> tuple[dict[NamedArc, int], dict[NamedArc, int]]:
    """Whole units of each link for copying and for adding, rounded to the nearest that fit the link."""
    copies: dict[NamedArc, int] = {}
    adds: dict[NamedArc, int] = {}
    for arc, capacity in graph.capacities.items():
        most = int(units * capacity)
        copies[arc] = min(most, round(float(units) * optimum.copying_bytes_per_s[arc]))
        adds[arc] = min(most - copies[arc], round(float(units) * optimum.adding_bytes_per_s[arc]))
    return copies, adds


def _balanced(amounts: Mapping[NamedArc, int], graph: CapacityGraph) -> dict[NamedArc, int]:
    """The same, with as much entering each switch as leaves it: units are taken from the fullest links."""
    left = dict(amounts)
    switches = [vertex for vertex in graph.vertices if vertex not in graph.hosts]
    changed = True
    while changed:
        changed = False
        for switch in switches:
            entering = [arc for arc in left if arc[1] == switch]
            leaving = [arc for arc in left if arc[0] == switch]
            surplus = sum(left[arc] for arc in entering) - sum(left[arc] for arc in leaving)
            for _ in range(abs(surplus)):
                fullest = max(entering if surplus > 0 else leaving, key=lambda arc: (left[arc], arc))
                left[fullest] -= 1
                changed = True
    return left

"""What the first measurements suggest: groups of nodes that share a link, slow nodes, slow paths.

Theory of operation. A flow between two nodes gets what the slower of its ends carries, unless something else
limits it, alone or together with other flows. What each end carries is the best that was seen of it. A pair
that falls short of that speaks for being in two groups; one that keeps its rate in a round in which others do
not speaks for being in one, and hardly does if nobody fell short there. A partition is made of that
(``partition``). Then the found groups are taken for nodes, with uplinks of the best rates seen through them,
and what max-min fair shares of those do not explain is put to the same question again: groups of groups.

All this only raises suspicion, cheaply and without much scruple; belief takes fresh runs (``verdict``).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from topotune.links.inference.ends import suspects
from topotune.links.inference.observations import (
    Ends,
    FloatArray,
    NodeFlows,
    node_flows,
    reached,
)
from topotune.links.inference.partition import Parts, is_told_apart, labels, partition
from topotune.links.inference.placing import place
from topotune.links.inference.round_trips import LatencyLevel, latency_levels
from topotune.links.inference.structure import Hypothesis, Reason, SuspectedGroup
from topotune.links.inference.uplink_model import predicted_rates
from topotune.links.measurement import Measurement

_SLOWED = 0.8  # of the expected rate: more than noise takes from the median of a few runs
_KEPT = 0.9
_ALONE = 0.5  # what falling short alone says: mostly it is one sample, and of ends and paths besides groups
_UNTESTED = 0.4  # what keeping one's rate says where nobody in the round fell short, or only slow ones did
_SPARED = 1.15  # times the rate of those who fell short: beyond it a flow is not spared but free
_MAX_LEVELS = 3


def suspected_groups(measurement: Measurement) -> Hypothesis:
    """Groups, nodes and paths that stand out in flows alone, in rounds, and in round trips. Pure.

    Flows that were run to confirm or refute are not looked at, so that the answer stays what it was before.
    """
    tests = node_flows(measurement, ("alone", "round"))
    num_nodes = len(measurement.node_names)
    levels = latency_levels(measurement)
    by_rates = _levels_by_rates(tests, num_nodes)
    groups = _laminar(by_rates.levels, levels, num_nodes)
    return Hypothesis(
        groups=groups,
        suspects=suspects(tests, num_nodes, [group.nodes for group in groups], by_rates.unplaced),
        no_groups="" if groups else by_rates.no_levels,
        unplaced=by_rates.unplaced,
    )


class _ByRates(NamedTuple):
    """Partitions that rates suggest, coarsest first, each with what suggests it; or why there are none."""

    levels: Sequence[tuple[Parts, Reason]] = ()
    no_levels: str = ""
    unplaced: tuple[int, ...] = ()


def _levels_by_rates(tests: Sequence[NodeFlows], num_nodes: int) -> _ByRates:
    if num_nodes < 4:
        return _ByRates(no_levels=f"{num_nodes} nodes are too few to tell a shared link from a slow node")
    if not any(test.purpose == "round" for test in tests):
        return _ByRates(no_levels="no rounds of concurrent flows were measured")
    ends = {duplex: reached(tests, num_nodes, duplex=duplex) for duplex in (False, True)}
    shares = [test.medians / ends[test.duplex].expected(test.sources, test.sinks) for test in tests]
    weights, reason = _weights(tests, shares)
    if not any(weight < 0 for weight in weights.values()):
        return _ByRates(no_levels=_nobody_fell_short(tests, shares))
    rounds = [test for test in tests if test.purpose == "round"]
    parts: Parts
    parts, unplaced = place(partition(num_nodes, weights), weights, rounds, ends, num_nodes)
    if not is_told_apart(parts, weights):
        return _ByRates(no_levels=_not_told_apart(parts, weights, num_nodes))
    levels: list[tuple[Parts, Reason]] = [(parts, reason)]
    while len(parts) > 2 and len(levels) < _MAX_LEVELS:
        coarser = _coarser(tests, ends, parts, num_nodes, [level for level, _ in levels])
        if coarser is None:
            break
        parts = coarser
        levels.append((parts, "concurrent flows"))
    return _ByRates(levels=levels[::-1], unplaced=unplaced)


def _weights(
    tests: Sequence[NodeFlows], shares: Sequence[FloatArray]
) -> tuple[dict[tuple[int, int], float], Reason]:
    """What each pair of nodes says for being in one group; and whether single flows suffice to see it."""
    weights: dict[tuple[int, int], float] = defaultdict(float)
    slowed_alone: set[tuple[int, int]] = set()
    slowed: set[tuple[int, int]] = set()
    for test, share in zip(tests, shares, strict=True):
        is_alone = len(share) == 1
        # Whoever has no more than those who fell short may well share their link: fair shares spare the slow.
        short = test.medians[share < _SLOWED]
        tells = test.medians > _SPARED * np.quantile(short, 0.75) if len(short) else share < 0
        for source, sink, part, is_telling in zip(
            test.sources.tolist(), test.sinks.tolist(), share.tolist(), tells.tolist(), strict=True
        ):
            pair = (min(source, sink), max(source, sink))
            evidence = min(max((part - (_SLOWED + _KEPT) / 2) / ((_KEPT - _SLOWED) / 2), -1.0), 1.0)
            if is_alone:
                weights[pair] += _ALONE * min(evidence, 0.0)  # keeping its rate alone it says nothing
            elif evidence < 0 or is_telling:
                weights[pair] += evidence
            else:
                weights[pair] += _UNTESTED * evidence
            if evidence < 0:
                slowed.add(pair)
                if is_alone:
                    slowed_alone.add(pair)
    return weights, "rates alone" if 2 * len(slowed_alone) > len(slowed) else "concurrent flows"


def _coarser(
    tests: Sequence[NodeFlows],
    ends: dict[bool, Ends],
    parts: Parts,
    num_nodes: int,
    known_levels: Sequence[Parts],
) -> Parts | None:
    """Groups of the groups, by what their uplinks do not explain."""
    label = labels(parts, num_nodes)
    seen: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for test, fair in zip(tests, predicted_rates(tests, ends, known_levels, num_nodes), strict=True):
        sources, sinks = label[test.sources].tolist(), label[test.sinks].tolist()
        for source, sink, rate, due in zip(sources, sinks, test.medians.tolist(), fair.tolist(), strict=True):
            if source != sink:
                sums = seen[min(source, sink), max(source, sink)]
                sums[0] += rate
                sums[1] += due
    weights = {}
    for pair, (got, predicted) in seen.items():
        share = got / predicted
        weights[pair] = -1.0 if share < _SLOWED else 1.0 if share >= _KEPT else 0.0
    above = partition(len(parts), weights)
    if len(above) < 2 or all(len(groups) < 2 for groups in above):
        return None
    return [sorted(node for group in groups for node in parts[group]) for groups in above]


def _laminar(
    by_rates: Sequence[tuple[Parts, Reason]], by_latency: Sequence[LatencyLevel], num_nodes: int
) -> tuple[SuspectedGroup, ...]:
    """Groups with two nodes or more inside and outside; what contradicts a group taken before is left out.

    What round trips show has been tested already and goes first.
    """
    reasons: dict[tuple[int, ...], set[Reason]] = {}
    p_values: dict[tuple[int, ...], float] = {}
    candidates: list[tuple[tuple[int, ...], Reason]] = []
    for level in by_latency:
        for nodes in level.groups:
            candidates.append((nodes, "round trips"))
            p_values[nodes] = min(level.p_value, p_values.get(nodes, 1.0))
    candidates += [(tuple(nodes), reason) for parts, reason in by_rates for nodes in parts]
    for nodes, reason in candidates:
        inside = frozenset(nodes)
        if 2 <= len(nodes) <= num_nodes - 2 and all(
            inside <= set(other) or inside >= set(other) or inside.isdisjoint(other) for other in reasons
        ):
            reasons.setdefault(nodes, set()).add(reason)
    ordered = sorted(reasons, key=lambda nodes: (-len(nodes), nodes))
    return tuple(
        SuspectedGroup(
            nodes=nodes,
            parent=parent_of(nodes, ordered),
            reasons=frozenset(reasons[nodes]),
            latency_p_value=p_values.get(nodes),
        )
        for nodes in ordered
    )


def parent_of(nodes: Iterable[int], larger_first: Sequence[Sequence[int]]) -> int | None:
    """Index of the smallest set that contains these nodes and more."""
    inside = frozenset(nodes)
    around = [index for index, other in enumerate(larger_first) if inside < frozenset(other)]
    return around[-1] if around else None


def _nobody_fell_short(tests: Sequence[NodeFlows], shares: Sequence[FloatArray]) -> str:
    rounds = [share for test, share in zip(tests, shares, strict=True) if test.purpose == "round"]
    least = min(float(share.min()) for share in rounds)
    largest = max(len(share) for share in rounds)
    return (
        f"in {len(rounds)} rounds of up to {largest} flows at once each flow kept at least "
        f"{100 * least:.0f} % of what its nodes reach"
    )


def _not_told_apart(parts: Parts, weights: dict[tuple[int, int], float], num_nodes: int) -> str:
    num_slowed = sum(weight < 0 for weight in weights.values())
    all_pairs = num_nodes * (num_nodes - 1) // 2
    real = [nodes for nodes in parts if len(nodes) > 1]
    if len(weights) < all_pairs and len(real) > 1:
        return (
            f"{num_slowed} of {len(weights)} measured pairs of nodes fall short when others send, but with "
            f"{len(weights)} of {all_pairs} pairs measured no groups can be told apart"
        )
    return f"{num_slowed} of {len(weights)} measured pairs of nodes fall short, which makes no groups"

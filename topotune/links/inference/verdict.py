"""The verdict on a suspicion, by fresh runs: groups with their uplinks, and what is slow (``blame``).

Theory of operation. A group stands if flows across its boundary get less together than their paths carry one
by one, in every way of pairing that was run, by more than a margin, while as many flows inside groups do not;
a rank test over the samples says how likely chance is. The samples are fresh and the hypothesis was there
before them, so nothing has to be paid for having searched for it; several groups and directions are paid for
by Bonferroni. In a flat network an error needs both the margin and the test to fail: its rate is at most
``FALSE_GROUP_RATE``, and in practice far lower. Groups may stand by their round trips alone, too, which carry
a test of their own (``round_trips``).

While an uplink is full, flows through it share it unevenly, but their sum is its capacity. It counts as the
group's own only if nothing else explains it: neither the uplinks that the flows arrive through, nor those of
smaller groups that they come from.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from topotune.links.inference.blame import confirmed_faults
from topotune.links.inference.confirm import surroundings
from topotune.links.inference.ends import class_rate, crossing_paths, fit_ends
from topotune.links.inference.observations import (
    Ends,
    FloatArray,
    NodeFlows,
    best_of_paths,
    node_flows,
    reached,
)
from topotune.links.inference.round_trips import LATENCY_ALPHA
from topotune.links.inference.structure import (
    Direction,
    Group,
    Hypothesis,
    Reason,
    Structure,
    SuspectedGroup,
    Uplink,
)
from topotune.links.inference.suspicion import parent_of, suspected_groups
from topotune.links.measurement import Measurement, median_ci

_ALPHA = 0.01  # of what flows together show, and as much again of what they show alone
FALSE_GROUP_RATE = 2 * _ALPHA + LATENCY_ALPHA
"""Rate at which a flat network is given groups, at most."""
_FULL = 0.85  # of what the flows' paths carry one by one: below it something is shared
_OTHERS_FULL = 0.9  # of another uplink's capacity: above it that one may be what is full

DIRECTIONS: tuple[Direction, ...] = ("sending", "receiving")


@dataclass(frozen=True, slots=True)
class _Across:
    """What fresh runs say of one direction across a group's boundary.

    Attributes:
        is_full: flows together got less than one by one.
        p_value: chance of that if they were as fast as flows inside.
        is_slow_alone: already single flows are slower than those inside.
        alone_p_value: chance of that.
        full: the tests in which it was full.
        at_most: the largest median of what all flows across the boundary got together.
    """

    is_full: bool
    p_value: float
    is_slow_alone: bool
    alone_p_value: float
    full: tuple[NodeFlows, ...]
    at_most: float

    @property
    def sums(self) -> list[float]:
        """Bytes/s through it in each run."""
        return [float(total) for test in self.full for total in test.rates.sum(axis=0)]


def infer_structure(measurement: Measurement) -> Structure:
    """What the flows and round trips of a measurement say of the network between its nodes. Pure.

    Without fresh runs of a suspicion nothing is believed but what round trips show by themselves.
    """
    hypothesis = suspected_groups(measurement)
    tests = node_flows(measurement)
    num_nodes = len(measurement.node_names)
    suspected = [group.nodes for group in hypothesis.groups]
    rates = best_of_paths([test for test in tests if not test.duplex], num_nodes)
    ends = {duplex: reached(tests, num_nodes, duplex=duplex) for duplex in (False, True)}
    across = {
        (index, direction): _across(tests, ends, group, direction, suspected, num_nodes)
        for index, group in enumerate(hypothesis.groups)
        for direction in DIRECTIONS
    }
    alpha = _ALPHA / max(1, _num_cuts(hypothesis, num_nodes))
    capacity = {
        key: statistics.median(found.sums)
        for key, found in across.items()
        if found is not None and found.is_full and found.p_value <= alpha
    }
    fitted = fit_ends(rates, crossing_paths(suspected, num_nodes))
    groups = []
    for index, group in enumerate(hypothesis.groups):
        uplinks = {
            direction: _uplink(found, direction, group.nodes, hypothesis.unplaced, fitted)
            for direction in DIRECTIONS
            if (index, direction) in capacity
            and (found := across[index, direction]) is not None
            and _is_own(hypothesis, index, direction, found, capacity, ends)
        }
        reasons = _reasons(
            group, [across[index, direction] for direction in DIRECTIONS], alpha, bool(uplinks)
        )
        if reasons:
            groups.append((group, uplinks, reasons))
    confirmed = _named(groups)
    fitted = fit_ends(rates, crossing_paths([group.nodes for group in confirmed], num_nodes))
    felt_alone = crossing_paths(
        [group.nodes for group in confirmed if "rates alone" in group.reasons], num_nodes
    )
    lone = fit_ends(best_of_paths([test for test in tests if len(test.sources) == 1], num_nodes), felt_alone)
    return Structure(
        num_nodes=num_nodes,
        groups=confirmed,
        faults=confirmed_faults(hypothesis.suspects, tests, fitted.completed(lone), felt_alone),
        sending_bytes_per_s=_known(fitted.sending),
        receiving_bytes_per_s=_known(fitted.receiving),
        no_groups="" if confirmed else _no_groups(hypothesis, across, alpha, num_nodes),
        unplaced=hypothesis.unplaced if confirmed else (),
        false_group_rate=FALSE_GROUP_RATE,
    )


def _num_cuts(hypothesis: Hypothesis, num_nodes: int) -> int:
    """How many boundaries are judged, each in two directions; two halves have one between them."""
    everything = frozenset(range(num_nodes))
    insides = (frozenset(group.nodes) for group in hypothesis.groups)
    return 2 * len({frozenset({inside, everything - inside}) for inside in insides})


def _across(
    tests: Sequence[NodeFlows],
    ends: dict[bool, Ends],
    group: SuspectedGroup,
    direction: Direction,
    suspected: Sequence[Sequence[int]],
    num_nodes: int,
) -> _Across | None:
    """Judge the fresh runs of one direction; None where there are none, or no control runs beside them."""
    inside = np.zeros(num_nodes, dtype=np.bool_)
    inside[list(group.nodes)] = True
    around = np.zeros(num_nodes, dtype=np.bool_)
    around[surroundings(suspected, group.parent, group.nodes, num_nodes)] = True
    if direction == "receiving":
        inside, around = around, inside
    mine = [
        test
        for test in tests
        if test.purpose == "boundary" and inside[test.sources].all() and around[test.sinks].all()
    ]
    alone = [test for test in mine if len(test.sources) == 1]
    most = max((len(test.sources) for test in mine), default=0)
    control = [_shares(test, ends) for test in tests if test.purpose == "control"]
    if most < 2 or not alone or not control:
        return None
    controls = np.concatenate(control)
    typical = float(np.median(controls))
    alone_shares = [float(np.median(_shares(test, ends))) for test in alone]
    one_by_one = min(1.0, statistics.median(alone_shares))
    shares = {id(test): _shares(test, ends) / one_by_one for test in mine}
    fullest = [test for test in mine if len(test.sources) == most]
    full = tuple(
        test for test in mine if len(test.sources) > 1 and np.median(shares[id(test)]) <= _FULL * typical
    )
    samples = np.concatenate([shares[id(test)] for test in fullest])
    return _Across(
        is_full=all(any(test is other for other in full) for test in fullest),
        p_value=_p_value(samples, controls),
        is_slow_alone=len(alone) > 1 and max(alone_shares) <= _FULL * typical,
        alone_p_value=_p_value(np.concatenate([_shares(test, ends) for test in alone]), controls),
        full=full,
        at_most=max(float(np.median(test.rates.sum(axis=0))) for test in mine),
    )


def _p_value(samples: FloatArray, controls: FloatArray) -> float:
    """One-sided Mann-Whitney test of the samples being lower."""
    return float(scipy.stats.mannwhitneyu(samples, controls, alternative="less", method="exact").pvalue)


def _shares(test: NodeFlows, ends: dict[bool, Ends]) -> FloatArray:
    """What the flows of a test got together, over what their ends carry; shape (num_repetitions,)."""
    expected = float(ends[test.duplex].expected(test.sources, test.sinks).sum())
    shares: FloatArray = test.rates.sum(axis=0) / expected
    return shares


def _is_own(
    hypothesis: Hypothesis,
    index: int,
    direction: Direction,
    found: _Across,
    capacity: dict[tuple[int, Direction], float],
    ends: dict[bool, Ends],
) -> bool:
    """Whether the group's own uplink must be what was full, and nothing that the flows pass besides.

    Some flows must have been slowed that come from smaller groups inside with room left, end (begin, where
    the group receives) where there was room left, and leave no larger group around whose uplink was full.
    """
    group = hypothesis.groups[index]
    inside = set(group.nodes)
    siblings = [
        other for other, it in enumerate(hypothesis.groups) if other != index and it.parent == group.parent
    ]
    children = [
        other
        for other, it in enumerate(hypothesis.groups)
        if set(it.nodes) < inside and (other, direction) in capacity
    ]
    around = [
        other
        for other, it in enumerate(hypothesis.groups)
        if set(it.nodes) > inside and (other, direction) in capacity
    ]
    opposite: Direction = "receiving" if direction == "sending" else "sending"
    test = max(found.full, key=lambda test: len(test.sources))
    far, near = (test.sinks, test.sources) if direction == "sending" else (test.sources, test.sinks)
    medians, expected = test.medians, ends[test.duplex].expected(test.sources, test.sinks)
    unexplained = np.ones(len(medians), dtype=np.bool_)
    for child in children:
        there = np.isin(near, hypothesis.groups[child].nodes)
        if medians[there].sum() >= _OTHERS_FULL * capacity[child, direction]:
            unexplained &= ~there
    for larger in around:
        leaves = ~np.isin(far, hypothesis.groups[larger].nodes)
        if medians[leaves].sum() >= _OTHERS_FULL * capacity[larger, direction]:
            unexplained &= ~leaves
    everything_outside = {node for sibling in siblings for node in hypothesis.groups[sibling].nodes}
    for sibling in siblings:
        nodes = hypothesis.groups[sibling].nodes
        if len(siblings) == 1 and everything_outside >= set(far.tolist()) - set(hypothesis.unplaced):
            break  # two halves: one and the same boundary
        there = np.isin(far, nodes)
        full_there = capacity.get((sibling, opposite), np.inf)
        if medians[there].sum() >= _OTHERS_FULL * full_there:
            unexplained &= ~there
    return bool(unexplained.any() and medians[unexplained].sum() <= _FULL * expected[unexplained].sum())


def _uplink(
    found: _Across, direction: Direction, nodes: Sequence[int], unplaced: Sequence[int], ends: Ends
) -> Uplink:
    sums = found.sums
    low, high = median_ci(sums)
    of_all = ends.sending if direction == "sending" else ends.receiving
    of_all = np.where(np.isnan(of_all), class_rate(of_all), of_all)
    return Uplink(
        direction=direction,
        capacity_bytes_per_s=statistics.median(sums),
        capacity_ci_bytes_per_s=(low, high),
        most_bytes_per_s=max(high, found.at_most) + float(of_all[list(unplaced)].sum()),
        members_bytes_per_s=float(of_all[list(nodes)].sum()),
        num_samples=len(sums),
        p_value=found.p_value,
    )


def _reasons(
    group: SuspectedGroup, across: Sequence[_Across | None], alpha: float, has_uplink: bool
) -> frozenset[Reason]:
    reasons: set[Reason] = set()
    if has_uplink:
        reasons.add("concurrent flows")
    if any(found is not None and found.is_slow_alone and found.alone_p_value <= alpha for found in across):
        reasons.add("rates alone")
    if group.latency_p_value is not None:
        reasons.add("round trips")
    return frozenset(reasons)


def _named(
    groups: Sequence[tuple[SuspectedGroup, dict[Direction, Uplink], frozenset[Reason]]],
) -> tuple[Group, ...]:
    """Racks are numbered by their lowest nodes, groups of racks by themselves."""
    sets = [group.nodes for group, _, _ in groups]
    innermost = [nodes for nodes in sets if not any(set(other) < set(nodes) for other in sets)]
    numbers: dict[tuple[int, ...], str] = {}
    for word, kind in (
        ("rack", sorted(innermost)),
        ("group of racks", sorted(nodes for nodes in sets if nodes not in innermost)),
    ):
        numbers |= {nodes: f"{word} {number}" for number, nodes in enumerate(kind, start=1)}
    return tuple(
        Group(
            name=numbers[group.nodes],
            nodes=group.nodes,
            parent=parent_of(group.nodes, sets),
            sending=uplinks.get("sending"),
            receiving=uplinks.get("receiving"),
            reasons=reasons,
            latency_p_value=group.latency_p_value,
        )
        for group, uplinks, reasons in groups
    )


def _no_groups(
    hypothesis: Hypothesis, across: dict[tuple[int, Direction], _Across | None], alpha: float, num_nodes: int
) -> str:
    if num_nodes == 1:
        return "there is one node"
    if not hypothesis.groups:
        return f"flat, or hidden: {hypothesis.no_groups}"
    if all(found is None for found in across.values()):
        return "flat, or hidden: a suspicion was not put to the test by fresh runs"
    if any(found is not None and found.is_full and found.p_value > alpha for found in across.values()):
        return "flat, or hidden: fresh runs bore out what first ones suggested, but were too few to be sure"
    return "flat, or hidden: fresh runs did not bear out what first ones suggested"


def _known(each: FloatArray) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(rate) else float(rate) for rate in each)

"""Which pairs are alike: one class within nodes and one between, more where intervals separate."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from topotune.links.measurement import Measurement, PairTiming, median_ci

Pair = tuple[int, int]
ByPair = Mapping[Pair, Mapping[int, PairTiming]]

# Classes are for what differs lastingly. Intervals of medians say nothing about drift between two
# measurements, so besides separate intervals a gap is asked for, and a wider one where processes share
# cores. Latencies within a node are mostly the scheduler's, and tell no pairs apart (by trial, 8 processes
# on 2 busy cores, 2026).
_MIN_BANDWIDTH_GAP = 1.25
_MIN_GAP_WITHIN = 1.6
_MIN_LATENCY_GAP = 2.0
_MIN_ROUND_TRIP_GAP = 1.5
_MOSTLY_BANDWIDTH = 4.0  # where the largest message takes so many times as long as the smallest


@dataclass(frozen=True, kw_only=True, slots=True)
class PairClass:
    """Directed pairs that one cost describes.

    Attributes:
        name: in words, unique (``within a node``, ``between nodes``).
        members: all its pairs, timed or not.
        timed: those with timings; never empty.
    """

    name: str
    members: tuple[Pair, ...]
    timed: tuple[Pair, ...]


def classify(measurement: Measurement, by_pair: ByPair) -> list[PairClass]:
    """The classes of a measurement, within nodes first, faster ones first.

    Raises:
        ValueError: pairs of a kind exist and none was timed, or not at a common size.
    """
    ranks = range(measurement.num_ranks)
    all_pairs = [(src, dst) for src in ranks for dst in ranks if src != dst]
    classes: list[PairClass] = []
    for kind, within in (("within a node", True), ("between nodes", False)):
        members = [pair for pair in all_pairs if measurement.is_within_node(*pair) == within]
        if not members:
            continue
        if not any(pair in by_pair for pair in members):
            raise ValueError(f"no pair of ranks {kind} was timed")
        groups = _separate(_like_by_nature(members, measurement), by_pair, measurement, within)
        for index, group in enumerate(groups):
            classes.append(
                PairClass(
                    name=_name(kind, index, groups, measurement),
                    members=tuple(group),
                    timed=tuple(pair for pair in group if pair in by_pair),
                )
            )
    return classes


def crossing_pairs(measurement: Measurement, node: int) -> tuple[frozenset[Pair], frozenset[Pair]]:
    """All directed pairs out of a node, and all into it."""
    inside = [rank for rank, its_node in enumerate(measurement.node_of_rank) if its_node == node]
    outside = [rank for rank, its_node in enumerate(measurement.node_of_rank) if its_node != node]
    return (
        frozenset((src, dst) for src in inside for dst in outside),
        frozenset((src, dst) for src in outside for dst in inside),
    )


def _like_by_nature(members: Sequence[Pair], measurement: Measurement) -> list[list[Pair]]:
    """Pairs that can only be alike: those from one node to another; within nodes each pair by itself."""
    units: dict[tuple[int, ...], list[Pair]] = {}
    for pair in members:
        nodes = measurement.node_of_rank[pair[0]], measurement.node_of_rank[pair[1]]
        units.setdefault(nodes if nodes[0] != nodes[1] else pair, []).append(pair)
    return list(units.values())


def _separate(
    units: Sequence[list[Pair]], by_pair: ByPair, measurement: Measurement, within: bool
) -> list[list[Pair]]:
    """Join units to classes: split by the largest message, each part by the smallest; fastest first.

    Splits by the smallest message need the fastest round trips to differ as well, where those were taken.

    Units without timings, or without sizes that the others have, go with the fastest.
    """
    timed = [unit for unit in units if any(pair in by_pair for pair in unit)]
    sizes = [{size for pair in unit for size in by_pair.get(pair, ())} for unit in timed]
    common = set[int]().union(*sizes).intersection(*sizes)
    parts = [timed]
    if common:
        smallest, largest = min(common), max(common)
        by_largest = {id(unit): _span(unit, largest, by_pair) for unit in timed}
        by_smallest = {id(unit): _span(unit, smallest, by_pair) for unit in timed}
        if _is_bandwidth(by_largest.values(), by_smallest.values()):
            parts = _split(timed, by_largest, _MIN_GAP_WITHIN if within else _MIN_BANDWIDTH_GAP)
        if not within:
            fastest = _fastest_round_trips(measurement)
            parts = [
                finer
                for part in parts
                for finer in _borne_out(_split(part, by_smallest, _MIN_LATENCY_GAP), fastest, measurement)
            ]
    is_timed = {id(unit) for unit in timed}
    parts[0] = parts[0] + [unit for unit in units if id(unit) not in is_timed]
    return [sorted(pair for unit in part for pair in unit) for part in parts]


@dataclass(frozen=True, slots=True)
class _Span:
    """The time of a unit at one size, with its 95 % interval."""

    median_s: float
    low_s: float
    high_s: float


def _is_bandwidth(largest: Iterable[_Span], smallest: Iterable[_Span]) -> bool:
    """Whether the time of the largest message is mostly its bytes'."""
    return statistics.median(span.median_s for span in largest) >= _MOSTLY_BANDWIDTH * statistics.median(
        span.median_s for span in smallest
    )


def _span(unit: Sequence[Pair], size: int, by_pair: ByPair) -> _Span:
    samples_s = [
        sample for pair in unit if size in by_pair.get(pair, ()) for sample in by_pair[pair][size].samples_s
    ]
    low_s, high_s = median_ci(samples_s)
    return _Span(statistics.median(samples_s), low_s, high_s)


def _split(units: Sequence[list[Pair]], spans: Mapping[int, _Span], min_gap: float) -> list[list[list[Pair]]]:
    """Cut where all units below are faster than all above: intervals apart, and medians by ``min_gap``."""
    ordered = sorted(units, key=lambda unit: spans[id(unit)].median_s)
    lowest_from_s = [*accumulate((spans[id(unit)].low_s for unit in reversed(ordered)), min)][::-1]
    groups = [[ordered[0]]]
    highest_below_s = spans[id(ordered[0])].high_s
    for unit, lowest_above_s in zip(ordered[1:], lowest_from_s[1:], strict=True):
        gap = spans[id(unit)].median_s / spans[id(groups[-1][-1])].median_s
        if lowest_above_s > highest_below_s and gap >= min_gap:
            groups.append([unit])
            highest_below_s = spans[id(unit)].high_s
        else:
            groups[-1].append(unit)
            highest_below_s = max(highest_below_s, spans[id(unit)].high_s)
    return groups


def _fastest_round_trips(measurement: Measurement) -> dict[frozenset[int], float]:
    """The fastest of each two nodes, in seconds."""
    nodes = measurement.node_of_rank
    return {frozenset((nodes[trips.a], nodes[trips.b])): trips.min_s for trips in measurement.round_trips}


def _borne_out(
    groups: list[list[list[Pair]]], fastest: Mapping[frozenset[int], float], measurement: Measurement
) -> list[list[list[Pair]]]:
    """Join neighbouring groups again whose fastest round trips do not differ.

    Medians of a few messages also say which ranks had to wait for a core; the fastest of hundreds says what
    is between the nodes.
    """

    def typical_s(group: list[list[Pair]]) -> float:
        ends = ({measurement.node_of_rank[rank] for rank in unit[0]} for unit in group)
        known = [fastest[nodes] for nodes in map(frozenset, ends) if nodes in fastest]
        return statistics.median(known) if known else math.nan

    joined = groups[:1]
    for group in groups[1:]:
        if typical_s(group) < _MIN_ROUND_TRIP_GAP * typical_s(joined[-1]):
            joined[-1] = joined[-1] + group
        else:
            joined.append(group)
    return joined


def _name(kind: str, index: int, groups: list[list[Pair]], measurement: Measurement) -> str:
    """Name a class by the node that its pairs have in common and no other pair of the kind has."""
    if len(groups) == 1:
        return kind
    nodes = {
        pair: (measurement.node_of_rank[pair[0]], measurement.node_of_rank[pair[1]])
        for group in groups
        for pair in group
    }
    for node, node_name in enumerate(measurement.node_names):
        for words, fits in (
            ("on", {pair for pair, ends in nodes.items() if ends == (node, node)}),
            ("from", {pair for pair, ends in nodes.items() if ends[0] == node}),
            ("to", {pair for pair, ends in nodes.items() if ends[1] == node}),
            ("to or from", {pair for pair, ends in nodes.items() if node in ends}),
        ):
            if fits == set(groups[index]):
                return f"{kind}, {words} node {node_name}"
    return f"{kind}, {index + 1} of {len(groups)} by speed"

"""Groups of nodes from how long small messages take to return and come: near ones are quick.

Theory of operation. A round trip is never faster than wires and switches allow, so the fastest of many is
what counts. Where all pairs of nodes were timed, average linkage builds a tree of groups; a level of it is a
gap, between the slowest pair of groups that were joined below and the fastest that are joined above. Any
noise makes some gap, and searching for the largest makes it larger. So the search is repeated on the same
times dealt out to the pairs at random, which leaves noise and slow pairs what they are and destroys groups:
the share of such deals with as large a gap is the p-value of the level, the search included. Few nodes have
so few pairs that chance often looks like groups; then nothing is claimed.

Where most pairs were not timed, times are cut in two where that explains their variance best, near and far
pairs speak for and against groups (``partition``), and the same deals say what agreement chance reaches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

from topotune.links.flows import RoundTripTimes
from topotune.links.inference.observations import IntArray
from topotune.links.inference.partition import is_told_apart, labels, partition
from topotune.links.measurement import Measurement

FloatArray = npt.NDArray[np.float64]
Groups = tuple[tuple[int, ...], ...]

LATENCY_ALPHA = 0.01
"""Rate at which a flat network shows groups by its round trips, at most."""
_MIN_GAP = 1.2  # in time: what switches add is more, what kernels and cables differ in less
_FEWEST = 4  # nodes: two groups of two
_NUM_DEALS = 199
_NUM_SPARSE_DEALS = (
    119  # each takes a clustering of its own; the least that reaches LATENCY_ALPHA with reserve
)
_MIN_AGREEMENT = 0.9  # of the pairs that were timed, by their weights


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyLevel:
    """A partition of the nodes by round trips.

    Attributes:
        groups: of at least 2 nodes each, at least two of them; other nodes are by themselves.
        p_value: of the permutation test.
    """

    groups: tuple[tuple[int, ...], ...]
    p_value: float


def latency_levels(measurement: Measurement) -> tuple[LatencyLevel, ...]:
    """Levels of groups that round trips show, outer ones first; none where chance would explain them."""
    return _latency_levels(measurement.round_trips, measurement.node_of_rank)


@lru_cache(maxsize=4)  # a measurement is looked at several times on its way into a report
def _latency_levels(
    round_trips: tuple[RoundTripTimes, ...], node_of_rank: tuple[int, ...]
) -> tuple[LatencyLevel, ...]:
    num_nodes = max(node_of_rank) + 1
    fastest: dict[tuple[int, int], float] = {}
    for trips in round_trips:
        a, b = sorted((node_of_rank[trips.a], node_of_rank[trips.b]))
        fastest[a, b] = min(trips.min_s, fastest.get((a, b), np.inf))
    if num_nodes < _FEWEST or not fastest:
        return ()
    pairs = sorted(fastest)
    logs = np.log([fastest[pair] for pair in pairs])
    if len(pairs) == num_nodes * (num_nodes - 1) // 2:
        return tuple(
            _nested(scipy.spatial.distance.squareform(logs), tuple((node,) for node in range(num_nodes)))
        )
    return tuple(_sparse_level(pairs, logs, num_nodes))


def _nested(logs: FloatArray, members: Groups) -> list[LatencyLevel]:
    """The levels between some things, with those inside their groups and those of groups of their groups.

    The widest gap hides the others: chance makes gaps of the same times, and where a wide one is among them,
    a narrower one cannot pass. Inside of what the wide one parts, and between, it is no more.

    Args:
        logs: log seconds between any two, shape (len(members), len(members)), 0 on the diagonal.
        members: the nodes of each; those of several come ascending.
    """
    if len(members) < _FEWEST:
        return []
    levels = _levels(scipy.spatial.distance.squareform(logs, checks=False))
    if not levels:
        return []
    inside = [
        level
        for group in levels[-1].groups
        for level in _nested(logs[np.ix_(group, group)], tuple(members[thing] for thing in group))
    ]
    coarsest = levels[0].groups
    between = np.array([[logs[np.ix_(a, b)].mean() for b in coarsest] for a in coarsest])
    np.fill_diagonal(between, 0.0)
    named = [
        LatencyLevel(groups=tuple(_joined(group, members) for group in level.groups), p_value=level.p_value)
        for level in levels
    ]
    return [*_nested(between, named[0].groups), *named, *inside]


def _joined(things: Sequence[int], members: Groups) -> tuple[int, ...]:
    return tuple(sorted(node for thing in things for node in members[thing]))


def _levels(distances: FloatArray) -> list[LatencyLevel]:
    """Levels of groups of things whose distances are given condensed, as SciPy wants; coarsest first."""
    rng = np.random.default_rng(0)
    distances = distances - distances.min() + 1.0  # linkage wants none below 0; differences are what counts
    tree = scipy.cluster.hierarchy.linkage(distances, method="average")
    by_chance = np.array(
        [
            _gaps(scipy.cluster.hierarchy.linkage(rng.permutation(distances), method="average")).max()
            for _ in range(_NUM_DEALS)
        ]
    )
    gaps = _gaps(tree)
    levels = []
    for position in np.flatnonzero(gaps >= np.log(_MIN_GAP)):
        p_value = float((1 + np.sum(by_chance >= gaps[position])) / (1 + _NUM_DEALS))
        if p_value > LATENCY_ALPHA:
            continue
        height = (tree[position, 2] + tree[position + 1, 2]) / 2
        labels = scipy.cluster.hierarchy.fcluster(tree, height, criterion="distance")
        levels.append(LatencyLevel(groups=_as_groups(labels), p_value=p_value))
    return levels[::-1]


def _gaps(tree: FloatArray) -> FloatArray:
    """Gap above each merge but the last, in log time; 0 where a cut there leaves fewer than two real groups.

    A real group has two nodes or more: what is left of outliers by themselves is no level.
    """
    num_nodes = len(tree) + 1
    gaps = np.diff(tree[:, 2])
    num_real = np.zeros(num_nodes - 1, dtype=np.int64)
    current = 0
    for merge in range(num_nodes - 1):
        parts_that_are_real = int((tree[merge, :2] >= num_nodes).sum())
        current += 1 - parts_that_are_real
        num_real[merge] = current
    return np.where(num_real[:-1] >= 2, gaps, 0.0)


def _sparse_level(pairs: Sequence[tuple[int, int]], logs: FloatArray, num_nodes: int) -> list[LatencyLevel]:
    """The one level of near and far, if there is one."""
    cut = _best_cut(logs)
    near = logs <= cut
    if near.all() or logs[~near].mean() - logs[near].mean() < np.log(_MIN_GAP):
        return []
    signs = np.where(near, 1.0, -1.0)
    parts, agreement = _agreeing(pairs, signs, num_nodes)
    if agreement < _MIN_AGREEMENT or not is_told_apart(parts, _weights(pairs, signs)):
        return []
    groups = [nodes for nodes in parts if len(nodes) > 1]
    rng = np.random.default_rng(0)
    by_chance = [_agreeing(pairs, rng.permutation(signs), num_nodes)[1] for _ in range(_NUM_SPARSE_DEALS)]
    p_value = float((1 + np.sum(np.asarray(by_chance) >= agreement)) / (1 + _NUM_SPARSE_DEALS))
    return (
        [LatencyLevel(groups=tuple(map(tuple, groups)), p_value=p_value)] if p_value <= LATENCY_ALPHA else []
    )


def _agreeing(
    pairs: Sequence[tuple[int, int]], signs: FloatArray, num_nodes: int
) -> tuple[list[list[int]], float]:
    """The partition, and the share of pairs that it agrees with."""
    parts = partition(num_nodes, _weights(pairs, signs))
    label = labels(parts, num_nodes)
    ends = np.asarray(pairs)
    agreement = float(np.mean((label[ends[:, 0]] == label[ends[:, 1]]) == (signs > 0)))
    return parts, agreement


def _weights(pairs: Sequence[tuple[int, int]], signs: FloatArray) -> dict[tuple[int, int], float]:
    return dict(zip(pairs, signs.tolist(), strict=True))


def _best_cut(values: FloatArray) -> float:
    """The largest value of the lower class when two classes explain most variance.

    Source: Otsu, "A threshold selection method from gray-level histograms", 1979.
    """
    ordered = np.sort(values)
    below = np.arange(1, len(ordered))
    sums = np.cumsum(ordered)[:-1]
    mean_below, mean_above = sums / below, (ordered.sum() - sums) / (len(ordered) - below)
    between = below * (len(ordered) - below) * (mean_above - mean_below) ** 2
    return float(ordered[int(np.argmax(between))]) if len(ordered) > 1 else float(ordered[0])


def _as_groups(labels: IntArray) -> tuple[tuple[int, ...], ...]:
    groups = [tuple(np.flatnonzero(labels == label).tolist()) for label in dict.fromkeys(labels.tolist())]
    return tuple(group for group in groups if len(group) > 1)

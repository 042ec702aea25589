"""Two-way fit of path rates: what each node sends and receives, and which node or path stands out.

Theory of operation. A path between two nodes carries what the slower of its ends does: rate[i, j] =
min(sending[i], receiving[j]), unless the path itself is slow. (Rates multiply in no network, so a fit of row
plus column in logarithms would charge the path between two slow nodes for both.) Each end's rate is the
median over the paths on which it is the slower end, so that a slow path in the minority moves nothing; which
paths these are follows from the rates, and is settled in a few turns. An end that is slow against the median
of all is the node's own (adapter, cable, port); a path that is slow against both its ends is the path's.

A class with much scatter, or of two kinds of nodes, has no outliers: deviations are counted in robust
standard deviations as well as in shares.
"""

from collections.abc import Sequence

import numpy as np

from topotune.links.inference.observations import BoolArray, Ends, FloatArray, IntArray, NodeFlows, path_rates
from topotune.links.inference.structure import Suspect

SLOW = 0.9
"""Share of its class below which a node or path counts as slow."""
_MIN_Z = 3.5  # Iglewicz and Hoaglin, "How to Detect and Handle Outliers", 1993
_MIN_SCATTER = 0.02  # relative; repeated runs of one path differ by as much (emulated links, 2026)
_MAX_SUSPECTS = 4  # of paths, and of nodes in each direction: each costs fresh runs
_MAX_SHARE = 0.25  # what is slower than its like, if that many are, is no outlier
_MAX_TURNS = 20


def fit_ends(rates: FloatArray, behind_uplinks: BoolArray) -> Ends:
    """What each node sends and receives.

    Args:
        rates: bytes/s, ``[source, sink]``, NaN where unknown.
        behind_uplinks: paths that something between the nodes may limit; they say nothing of their ends.
    """
    sources, sinks = np.nonzero(~np.isnan(rates) & ~behind_uplinks)
    free = rates[sources, sinks]
    sending = np.full(len(rates), np.nan)
    receiving = sending.copy()
    np.fmax.at(sending, sources, free)
    np.fmax.at(receiving, sinks, free)
    for _ in range(_MAX_TURNS):
        # Which ends are the slower: those of nearly equal ends both, or noise would decide.
        by_sender = sending[sources] <= receiving[sinks] / SLOW
        by_receiver = receiving[sinks] <= sending[sources] / SLOW
        new_sending = _middle(sources[by_sender], free[by_sender], sending)
        new_receiving = _middle(sinks[by_receiver], free[by_receiver], receiving)
        settled = np.array_equal(new_sending, sending, equal_nan=True) and np.array_equal(
            new_receiving, receiving, equal_nan=True
        )
        sending, receiving = new_sending, new_receiving
        if settled:
            break
    return Ends(sending=sending, receiving=receiving)


def suspects(
    tests: Sequence[NodeFlows],
    num_nodes: int,
    groups: Sequence[Sequence[int]],
    unplaced: Sequence[int] = (),
) -> tuple[Suspect, ...]:
    """Nodes and paths that are slow against their like, by a few measurements, the slowest of each first.

    Args:
        tests: flows alone and in rounds.
        num_nodes: N; below 3 there is nothing to compare with.
        groups: suspected ones; paths that leave them may be slow for that reason and are passed over.
        unplaced: nodes that may be in any of the groups: their paths are looked at all the same.
    """
    if num_nodes < 3:
        return ()
    rates = path_rates(tests, num_nodes)
    behind = crossing_paths(groups, num_nodes)
    behind[list(unplaced), :] = behind[:, list(unplaced)] = False
    ends = fit_ends(rates, behind)
    nodes: list[Suspect] = []
    for is_sending, each in ((True, ends.sending), (False, ends.receiving)):
        typical = class_rate(each)
        for node in _low(each, np.full(num_nodes, typical))[:_MAX_SUSPECTS]:
            rate = float(each[node])
            source, sink = (int(node), None) if is_sending else (None, int(node))
            nodes.append(Suspect(source=source, sink=sink, rate_bytes_per_s=rate, class_bytes_per_s=typical))
    nodes.sort(key=lambda one: one.rate_bytes_per_s / one.class_bytes_per_s)
    expected = np.fmin(ends.sending[:, None], ends.receiving[None, :])
    free = np.where(behind, np.nan, rates)
    paths = [
        Suspect(
            source=int(place // num_nodes),
            sink=int(place % num_nodes),
            rate_bytes_per_s=float(free.flat[place]),
            class_bytes_per_s=float(expected.flat[place]),
        )
        for place in _low(free.ravel(), expected.ravel())[:_MAX_SUSPECTS]
    ]
    return (*nodes, *paths)


def crossing_paths(groups: Sequence[Sequence[int]], num_nodes: int) -> BoolArray:
    """Which paths leave or enter some group, shape (num_nodes, num_nodes)."""
    crossing = np.zeros((num_nodes, num_nodes), dtype=np.bool_)
    for nodes in groups:
        inside = np.zeros(num_nodes, dtype=np.bool_)
        inside[list(nodes)] = True
        crossing |= inside[:, None] != inside[None, :]
    return crossing


def class_rate(each: FloatArray) -> float:
    """The median of what is known, the higher of two middle ones; NaN where nothing is."""
    known = each[~np.isnan(each)]
    return float(np.quantile(known, 0.5, method="higher")) if len(known) else float("nan")


def _low(rates: FloatArray, expected: FloatArray) -> list[int]:
    """Indices of outliers below, the lowest first: by share and by robust standard deviations."""
    logs = np.log(rates / expected)
    known = logs[~np.isnan(logs)]
    if len(known) == 0:
        return []
    scatter = max(1.4826 * float(np.median(np.abs(known - np.median(known)))), _MIN_SCATTER)
    low = np.flatnonzero((logs < np.log(SLOW)) & (logs < -_MIN_Z * scatter))
    if len(low) > max(1, _MAX_SHARE * len(known)):
        return []
    return [int(place) for place in low[np.argsort(logs[low], kind="stable")]]


def _middle(nodes: IntArray, rates: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Median rate of each node, the higher of two middle values; ``otherwise`` where it has none."""
    order = np.lexsort((rates, nodes))
    nodes, rates = nodes[order], rates[order]
    found, starts, counts = np.unique(nodes, return_index=True, return_counts=True)
    middle = otherwise.copy()
    middle[found] = rates[starts + counts // 2]
    return middle

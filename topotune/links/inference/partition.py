"""Groups of nodes from what pairs say of being near or apart, also where most pairs were never measured.

Theory of operation. A pair with a positive weight wants to be in one group, one with a negative weight in
two; pairs that were not measured say nothing. The partition that does best by all of them is a correlation
clustering; it needs neither the number of groups nor distances for all pairs. Exact solutions are NP-hard.
Greedy contraction joins, from single nodes on, always the two groups with the largest positive sum between
them; then single nodes move to where they fit better until none does.

Sources: Bansal, Blum, Chawla, "Correlation clustering", 2004; Keuper et al., "Efficient decomposition of
image and mesh graphs by lifted multicuts", ICCV 2015, algorithm 1 (greedy additive edge contraction).
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from topotune.links.inference.observations import IntArray

Weights = Mapping[tuple[int, int], float]
"""``[a, b]``, ``a < b`` → how much speaks for one group (positive) or two (negative)."""

Parts = Sequence[Sequence[int]]
"""Nodes in groups, each node in one."""

_MAX_SWEEPS = 20
_GAIN = 1e-9  # sums of weights that differ by less are equal
_MIN_TOLD_APART = 2  # pairs between any two groups that speak for parting them
FRAGMENT = 0.125
"""Share of the largest group: what is smaller may be a part of another that too few pairs tell of."""
PARTED = 0.5
"""Share of the weights between two groups that must speak for parting them, net."""


def partition(num_nodes: int, weights: Weights) -> list[list[int]]:
    """Groups of nodes, each ascending, in the order of their lowest nodes. O(pairs log pairs).

    Args:
        num_nodes: N; nodes without pairs stay by themselves.
        weights: of measured pairs.
    """
    neighbours: list[dict[int, float]] = [{} for _ in range(num_nodes)]
    for (a, b), weight in weights.items():
        neighbours[a][b] = neighbours[b][a] = weight
    label = _moved(_contracted(neighbours), neighbours)
    label = _moved(_gathered(label, neighbours), neighbours)
    groups: dict[int, list[int]] = {}
    for node, its_label in enumerate(label):
        groups.setdefault(its_label, []).append(node)
    return list(groups.values())


def labels(parts: Parts, num_nodes: int) -> IntArray:
    """The number of the part that each node is in."""
    label = np.zeros(num_nodes, dtype=np.int64)
    for group, nodes in enumerate(parts):
        label[list(nodes)] = group
    return label


def is_told_apart(parts: Parts, weights: Weights) -> bool:
    """Whether there are groups, with few nodes in none, and measured pairs part any two of them."""
    real = [group for group, nodes in enumerate(parts) if len(nodes) > 1]
    num_alone = len(parts) - len(real)
    if not real or num_alone > max(1, sum(map(len, parts)) // 8) or len(real) + min(num_alone, 1) < 2:
        return False
    apart = _apart(parts, weights)
    return all(apart[g, h] >= _MIN_TOLD_APART for i, g in enumerate(real) for h in real[i + 1 :])


def _apart(parts: Parts, weights: Weights) -> dict[tuple[int, int], int]:
    """How many pairs speak for parting two groups."""
    label = {node: group for group, nodes in enumerate(parts) for node in nodes}
    apart: dict[tuple[int, int], int] = defaultdict(int)
    for (a, b), weight in weights.items():
        if weight < 0 and label[a] != label[b]:
            apart[min(label[a], label[b]), max(label[a], label[b])] += 1
    return apart


def _contracted(neighbours: list[dict[int, float]]) -> list[int]:
    """Group label of each node after greedy contraction."""
    around = [dict(found) for found in neighbours]
    members = [[node] for node in range(len(around))]
    queue = [
        (-weight, a, b)
        for a, found in enumerate(around)
        for b, weight in found.items()
        if a < b and weight > 0
    ]
    heapq.heapify(queue)
    while queue:
        negative, a, b = heapq.heappop(queue)
        if around[a].get(b) != -negative:
            continue  # one of the two was joined to another since, or the sum has changed
        if len(around[a]) < len(around[b]):
            a, b = b, a
        del around[a][b]
        for other, weight in around[b].items():
            if other != a:
                del around[other][b]
                total = around[a].get(other, 0.0) + weight
                around[a][other] = around[other][a] = total
                if total > 0:
                    heapq.heappush(queue, (-total, min(a, other), max(a, other)))
        around[b].clear()
        members[a] += members[b]
        members[b] = []
    label = [0] * len(around)
    for group, nodes in enumerate(members):
        for node in nodes:
            label[node] = group
    return label


def _moved(label: list[int], neighbours: list[dict[int, float]]) -> list[int]:
    """The same after single nodes have moved to the group, or to one of their own, that they fit best."""
    unused = len(label)
    for _ in range(_MAX_SWEEPS):
        has_moved = False
        for node, found in enumerate(neighbours):
            sums = {label[node]: 0.0}
            for other, weight in found.items():
                sums[label[other]] = sums.get(label[other], 0.0) + weight
            best = max(sums, key=lambda group: (sums[group], -group))
            if max(sums[best], 0.0) > sums[label[node]] + _GAIN:
                if sums[best] <= 0:
                    best, unused = unused, unused + 1
                label[node] = best
                has_moved = True
        if not has_moved:
            break
    return label


def _gathered(label: list[int], neighbours: list[dict[int, float]]) -> list[int]:
    """The same after small groups have joined the one larger group that little parts them from."""
    members: dict[int, list[int]] = {}
    for node, group in enumerate(label):
        members.setdefault(group, []).append(node)
    least = FRAGMENT * max(map(len, members.values()))
    for group in sorted(members, key=lambda group: len(members[group])):
        nodes = members[group]
        if not any(neighbours[node] for node in nodes):
            continue
        sums: dict[int, float] = {}
        sizes: dict[int, float] = {}
        for node in nodes:
            for other, weight in neighbours[node].items():
                sums[label[other]] = sums.get(label[other], 0.0) + weight
                sizes[label[other]] = sizes.get(label[other], 0.0) + abs(weight)
        near = [
            other
            for other, its_nodes in members.items()
            if len(its_nodes) > max(len(nodes), least)
            and sums.get(other, 0.0) >= -PARTED * sizes.get(other, 0.0)
        ]
        if len(near) == 1:
            for node in nodes:
                label[node] = near[0]
            members[near[0]] += members.pop(group)
    return label

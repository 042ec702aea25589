"""Nodes that pairs of nodes do not place: which group do their flows load?

Theory of operation. A node that is slow itself never falls short for others' sake: fair shares give it all
it can take. So its pairs do not say which group it is in, but the sums do: where its flows load an uplink,
others get less there. A doubtful node goes to the group with which fair shares explain the sums through all
uplinks best. Where that does not decide, it is left out of all groups, and what is known of the groups'
uplinks is no longer known to count all flows.
"""

from collections.abc import Sequence

import numpy as np

from topotune.links.inference.observations import Ends, FloatArray, IntArray, NodeFlows
from topotune.links.inference.partition import FRAGMENT, PARTED, Parts, Weights, labels
from topotune.links.inference.uplink_model import misfit

_MAX_DOUBTFUL_SHARE = 0.125  # of all nodes
_MAX_JUDGED = 64  # nodes: what a single one among more adds is lost in the sums
_SURE = 1.0  # weight of each pair with a group, on average, that places a node there
_DECISIVE = 0.5  # share of the second best's misfit that the best may have


def place(
    parts: Parts, weights: Weights, rounds: Sequence[NodeFlows], ends: dict[bool, Ends], num_nodes: int
) -> tuple[list[list[int]], tuple[int, ...]]:
    """The parts with doubtful nodes where they belong, and the nodes that are left over.

    Args:
        parts: of all nodes.
        weights: of pairs, as the parts were made from.
        rounds: what the nodes' places must explain.
        ends: by whether tests are duplex: what the nodes reach by themselves.
        num_nodes: N.
    """
    label = labels(parts, num_nodes)
    sums, sizes, counts = (np.zeros((num_nodes, len(parts))) for _ in range(3))
    for (a, b), weight in weights.items():
        for node, group in ((a, label[b]), (b, label[a])):
            sums[node, group] += weight
            sizes[node, group] += abs(weight)
            counts[node, group] += 1
    real = [group for group in range(len(parts)) if _is_real(group, parts, sums, sizes)]
    near = sums[:, real] >= -PARTED * sizes[:, real]
    is_sure = (sums[:, real] >= _SURE * np.maximum(counts[:, real], 1)).any(axis=1)
    is_measured = counts.sum(axis=1) > 0
    in_fragment = np.isin(
        label, [group for group, nodes in enumerate(parts) if len(nodes) > 1 and group not in real]
    )
    doubtful = np.flatnonzero(((near.sum(axis=1) > 1) & ~is_sure & is_measured) | in_fragment)
    if len(doubtful) > max(1, _MAX_DOUBTFUL_SHARE * num_nodes):
        return [list(nodes) for nodes in parts], ()
    left_over = []
    fresh = len(parts)
    for node in doubtful.tolist():
        choices = [real[place] for place in np.flatnonzero(near[node])]
        if len(choices) > 1 and num_nodes <= _MAX_JUDGED:
            misfits = [misfit(rounds, ends, _with(label, node, group), num_nodes) for group in choices]
            order = np.argsort(misfits, kind="stable")
            choices = [choices[order[0]]] if misfits[order[0]] <= _DECISIVE * misfits[order[1]] else []
        if len(choices) == 1:
            label[node] = choices[0]
        else:
            label[node], fresh = fresh, fresh + 1
            left_over.append(node)
    return _groups(label), tuple(left_over)


def _is_real(group: int, parts: Parts, sums: FloatArray, sizes: FloatArray) -> bool:
    """Whether a part is a group: of several nodes, and if it is small, then parted from all larger ones."""
    nodes = list(parts[group])
    largest = max(map(len, parts))
    larger = [other for other, its_nodes in enumerate(parts) if len(its_nodes) > len(nodes)]
    if len(nodes) > FRAGMENT * largest or len(nodes) == 1:
        return len(nodes) > 1
    return bool(np.all(sums[nodes][:, larger].sum(axis=0) < -PARTED * sizes[nodes][:, larger].sum(axis=0)))


def _with(label: IntArray, node: int, group: int) -> Parts:
    changed = label.copy()
    changed[node] = group
    return _groups(changed)


def _groups(label: IntArray) -> list[list[int]]:
    return [np.flatnonzero(label == group).tolist() for group in dict.fromkeys(label.tolist())]

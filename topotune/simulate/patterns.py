"""Algorithms as steps, without their transfers: for clusters whose schedules have billions of them.

Theory of operation. What a rank sends in one step of these algorithms depends on its place alone, and a step
is followed by others like it. So each kind of step is written down once, with how often it comes, as
`topotune.simulate.steps` would find it in the schedule: a ring of 65,536 ranks has 8.6 billion transfers and
four kinds of steps. A message waits for what its sender received in the step before to be combined, since in
all of them it carries just that.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from topotune.errors import UsageError
from topotune.plan.grouping import num_folded
from topotune.schedule.assemble import Transfers, assemble
from topotune.schedule.model import COPY, REDUCE
from topotune.schedule.phases import core
from topotune.schedule.tree import complementary_parents, in_order_parents, receive_steps, send_steps
from topotune.simulate.network import FloatArray, IntArray
from topotune.simulate.steps import Step, steps_of


class _Timeline:
    """Steps one after the other, and what each rank has yet to combine."""

    def __init__(self, num_ranks: int) -> None:
        self.steps: list[Step] = []
        self._combining: FloatArray = np.zeros(num_ranks)

    def add(self, src: IntArray, dst: IntArray, fraction: float, op: int, *, repeats: int = 1) -> None:
        """The same messages ``repeats`` times; each carries ``fraction`` of the whole."""
        order = np.lexsort((dst.reshape(-1), src.reshape(-1)))
        src, dst = src.reshape(-1)[order], dst.reshape(-1)[order]
        # The first may wait for what came before; from the second on all are alike.
        for times in (min(1, repeats), max(0, repeats - 1)):
            if times:
                self.steps.append(
                    Step(
                        src=src,
                        dst=dst,
                        fraction=np.full(len(src), fraction),
                        op=np.full(len(src), op),
                        streams=np.ones(len(src), dtype=np.int64),
                        waits=self._combining[src],
                        combines=float(self._combining.max()),
                        repeats=times,
                    )
                )
                received: FloatArray = np.bincount(dst, minlength=len(self._combining)) * np.float64(fraction)
                self._combining = received if op == REDUCE else np.zeros_like(self._combining)

    def finish(self) -> list[Step]:
        """All steps; what is left to combine is done at the end."""
        none, nothing = np.empty(0, dtype=np.int64), np.empty(0)
        if self._combining.max() > 0:
            last = Step(
                src=none,
                dst=none,
                fraction=nothing,
                op=none,
                streams=none,
                waits=nothing,
                combines=float(self._combining.max()),
            )
            return [*self.steps, last]
        return self.steps


def ring_steps(num_ranks: int) -> list[Step]:
    """As `topotune.schedule.ring.ring`."""
    timeline = _Timeline(num_ranks)
    ranks = np.arange(num_ranks)[None, :]
    _around(timeline, ranks, 1 / num_ranks, REDUCE)
    _around(timeline, ranks, 1 / num_ranks, COPY)
    return timeline.finish()


def recursive_doubling_steps(num_ranks: int) -> list[Step]:
    """As `topotune.schedule.doubling.recursive_doubling`."""
    timeline = _Timeline(num_ranks)
    _across_groups(timeline, np.arange(num_ranks)[:, None], 1.0, "recursive_doubling")
    return timeline.finish()


def halving_doubling_steps(num_ranks: int) -> list[Step]:
    """As `topotune.schedule.doubling.halving_doubling`."""
    timeline = _Timeline(num_ranks)
    _across_groups(timeline, np.arange(num_ranks)[:, None], 1.0, "halving_doubling")
    return timeline.finish()


def hierarchical_steps(num_ranks: int, ranks_per_node: int, across: str = "ring") -> list[Step]:
    """As `topotune.schedule.hierarchical.hierarchical` over equal runs of neighbours, in one piece.

    Raises:
        UsageError: nodes of so many ranks do not make up all.
    """
    if num_ranks % ranks_per_node:
        raise UsageError(f"hierarchical: {num_ranks} ranks are no whole number of nodes of {ranks_per_node}")
    timeline = _Timeline(num_ranks)
    nodes = np.arange(num_ranks).reshape(-1, ranks_per_node)
    _around(timeline, nodes, 1 / ranks_per_node, REDUCE)
    _across_groups(timeline, nodes, 1 / ranks_per_node, across)
    _around(timeline, nodes, 1 / ranks_per_node, COPY)
    return timeline.finish()


def double_binary_tree_steps(num_ranks: int) -> list[Step]:
    """As `topotune.schedule.tree.double_binary_tree`, in one piece."""
    parts = []
    for channel, parent in enumerate((in_order_parents(num_ranks), complementary_parents(num_ranks))):
        up = send_steps(parent)
        down = receive_steps(parent, int(up[np.flatnonzero(parent < 0)[0]]))
        child = np.flatnonzero(parent >= 0)
        parts += [
            Transfers(up[child], child, parent[child], channel, REDUCE, channel),
            Transfers(down[child], parent[child], child, channel, COPY, channel),
        ]
    return steps_of(assemble("double_binary_tree", {}, num_ranks, range(3), parts))


def patterns(ranks_per_node: int) -> Mapping[str, Callable[[int], list[Step]]]:
    """Algorithms by name → their steps for a number of ranks, on nodes of so many neighbours each."""
    return {
        "ring": ring_steps,
        "double_binary_tree": double_binary_tree_steps,
        "recursive_doubling": recursive_doubling_steps,
        "halving_doubling": halving_doubling_steps,
        "hierarchical": partial(hierarchical_steps, ranks_per_node=ranks_per_node),
    }


def _around(timeline: _Timeline, groups: IntArray, fraction: float, op: int) -> None:
    """Once around the ring of each row."""
    timeline.add(groups, np.roll(groups, -1, axis=1), fraction, op, repeats=groups.shape[1] - 1)


def _across_groups(timeline: _Timeline, groups: IntArray, fraction: float, across: str) -> None:
    """An allreduce down each column, of a share of the message each."""
    size = len(groups)
    if across == "ring":
        _around(timeline, groups.T, fraction / size, REDUCE)
        _around(timeline, groups.T, fraction / size, COPY)
        return
    folded = num_folded(size)
    members = core(groups)
    even, odd = groups[: 2 * folded : 2], groups[1 : 2 * folded : 2]
    if folded:
        timeline.add(odd, even, fraction, REDUCE)
    index = np.arange(len(members))
    exchanges = [
        (members, members[index ^ (1 << level)], fraction / (2 << level))
        for level in range(len(members).bit_length() - 1)
    ]
    if across == "recursive_doubling":
        for src, dst, _ in exchanges:
            timeline.add(src, dst, fraction, REDUCE)
    else:
        for src, dst, part in exchanges:
            timeline.add(src, dst, part, REDUCE)
        for src, dst, part in reversed(exchanges):
            timeline.add(src, dst, part, COPY)
    if folded:
        timeline.add(even, odd, fraction, COPY)

"""Predicted time of a schedule on fitted links: a clock per rank and lane, and contention within a step.

Theory of operation. Transfers of one step between the same two ranks in one channel are one message. A
message costs latency and wire time:

    duration = α(bytes) + max(β(bytes)·bytes,          its own
                              Σ β·bytes at its sender,  what its sender sends in this step,
                              Σ β·bytes at its receiver,
                              Σ bytes / capacity        over every shared capacity that it loads)

that is: every rank has one port out and one port in (full duplex), which messages share; latencies of
messages sent together overlap; a capacity that several pairs share (a NIC, a memory) is filled by all that
use it. Steps of the same number run at the same time in all channels. A message leaves when both its ends
have ended their previous step of that channel (gloo and NCCL both send only into a posted buffer) and its
sender has the chunks. So no barrier is assumed between steps: a slow pair delays only those who depend on it.
What arrives to be reduced is combined at ``reduce_s_per_byte``, one reduction at a time on a rank, beside the
next transfers of the lane, which wait only if they need that chunk. This is what pipelining in pieces gains;
what it costs is a latency for every further step.

On uniform links α + β·bytes this gives the textbook formulae exactly (ring 2(n-1)(α + βm/n), and so on).
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from topotune.errors import UsageError
from topotune.links.model import LinkModel, Pair, PairsAcross
from topotune.schedule.model import REDUCE, Schedule

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Message sizes are taken in blocks, so that no table has more cells than this (128 MiB of float64).
_MAX_CELLS = 2**24


def predict(schedule: Schedule, model: LinkModel, message_bytes: Sequence[int]) -> FloatArray:
    """Seconds from common start to last end, for each message size.

    Args:
        schedule: for as many ranks as ``model`` has; need not be an allreduce.
        model: fitted links.
        message_bytes: sizes, each >= 0. Chunks are taken as exact fractions of them.

    Returns:
        Seconds, shape (len(message_bytes),). Time O(num_transfers · sizes), with Python work only per step.

    Raises:
        UsageError: the schedule and the model are for different numbers of ranks.
    """
    if schedule.num_ranks != model.num_ranks:
        raise UsageError(
            f"the schedule is for {schedule.num_ranks} ranks, the links are of {model.num_ranks}"
        )
    sizes = np.asarray(message_bytes, dtype=np.float64)
    if schedule.num_transfers == 0:
        return np.full(len(sizes), model.call_overhead_s)
    messages = _Messages(schedule, model)
    widest = max(schedule.num_transfers, schedule.num_ranks * schedule.num_chunks)
    block = max(1, _MAX_CELLS // widest)
    times = [messages.run(sizes[begin : begin + block]) for begin in range(0, len(sizes), block)]
    return np.concatenate(times) + model.call_overhead_s if times else np.empty(0)


@dataclass(frozen=True, slots=True)
class _Grouping:
    """Rows gathered by a key: ``order`` sorts them, ``starts`` begins groups, ``group_of_row`` undoes it."""

    order: IntArray
    starts: IntArray
    keys: IntArray
    group_of_row: IntArray

    @classmethod
    def by(cls, key: IntArray) -> "_Grouping":
        order = np.argsort(key, kind="stable")
        first = np.diff(key[order], prepend=-1) != 0
        group_of_row = np.empty(len(key), dtype=np.int64)
        group_of_row[order] = np.cumsum(first) - 1
        starts = np.flatnonzero(first)
        return cls(order, starts, key[order][starts], group_of_row)

    def total(self, values: FloatArray) -> FloatArray:
        """Sum over each row's group, for every row; along axis 0."""
        sums: FloatArray = np.add.reduceat(values[self.order], self.starts, axis=0)[self.group_of_row]
        return sums


@dataclass(frozen=True, slots=True)
class _StepEnds:
    """How the messages of one step scatter to the lanes at one of their ends."""

    order: IntArray
    starts: IntArray
    lanes: IntArray

    @classmethod
    def of_steps(cls, lane: IntArray, bounds: IntArray) -> "list[_StepEnds]":
        steps = []
        for begin, end in pairwise(bounds):
            grouping = _Grouping.by(lane[begin:end])
            steps.append(cls(grouping.order, grouping.starts, grouping.keys))
        return steps

    def latest(self, ends: FloatArray) -> FloatArray:
        """Latest of the ends of each lane's messages; rows as ``lanes``."""
        latest: FloatArray = np.maximum.reduceat(ends[self.order], self.starts, axis=0)
        return latest


class _Messages:
    """The schedule as messages, and all about them that does not depend on the message size."""

    def __init__(self, schedule: Schedule, model: LinkModel) -> None:
        num_ranks = schedule.num_ranks
        self.num_cells = num_ranks * schedule.num_chunks
        self.num_ranks = num_ranks
        self.model = model
        order = np.lexsort((schedule.chunk, schedule.dst, schedule.src, schedule.channel, schedule.step))
        step, channel, src, dst, chunk, op = (
            column[order].astype(np.int64)
            for column in (
                schedule.step,
                schedule.channel,
                schedule.src,
                schedule.dst,
                schedule.chunk,
                schedule.op,
            )
        )
        step = np.cumsum(np.diff(step, prepend=step[0]) != 0)
        row_fraction = schedule.chunk_fractions()[chunk]
        self.row_source = src * schedule.num_chunks + chunk
        self.row_target = dst * schedule.num_chunks + chunk
        self.row_dst = dst
        self.row_reduces = op == REDUCE
        at_receiver = _Grouping.by(step * num_ranks + dst)
        self.row_reduce_s_per_byte = model.reduce_s_per_byte * at_receiver.total(
            np.where(self.row_reduces, row_fraction, 0.0)
        )

        new_message = np.zeros(len(step), dtype=np.bool_)
        new_message[0] = True
        for column in (step, channel, src, dst):
            new_message[1:] |= np.diff(column) != 0
        self.first_row = np.flatnonzero(new_message)
        self.message_of_row = np.cumsum(new_message) - 1
        self.fraction = np.add.reduceat(row_fraction, self.first_row)
        step, channel, src, dst = (column[self.first_row] for column in (step, channel, src, dst))
        self.link_class = _classes(model, src, dst)
        self.sending = _Grouping.by(step * num_ranks + src)
        self.receiving = _Grouping.by(step * num_ranks + dst)
        self.shared_s_per_byte = _shared_load(model, step, src, dst, self.fraction)

        self.num_lanes = num_ranks * (int(channel.max()) + 1)
        self.src_lane, self.dst_lane = channel * num_ranks + src, channel * num_ranks + dst
        num_steps = int(step[-1]) + 1
        self.message_bounds = np.searchsorted(step, np.arange(num_steps + 1))
        self.row_bounds = np.append(self.first_row, len(self.row_source))[self.message_bounds]
        self.src_ends = _StepEnds.of_steps(self.src_lane, self.message_bounds)
        self.dst_ends = _StepEnds.of_steps(self.dst_lane, self.message_bounds)

    def durations(self, sizes: FloatArray) -> FloatArray:
        """Seconds of each message at each size, shape (num_messages, num_sizes)."""
        message_bytes = self.fraction[:, None] * sizes
        latency = np.empty_like(message_bytes)
        wire = np.empty_like(message_bytes)
        for number in np.unique(self.link_class):
            mine = self.link_class == number
            cost = self.model.classes[number]
            segment = np.searchsorted(cost.from_bytes, message_bytes[mine], side="right") - 1
            latency[mine] = np.asarray(cost.alpha_s)[segment]
            wire[mine] = np.asarray(cost.beta_s_per_byte)[segment] * message_bytes[mine]
        busiest = np.maximum(self.sending.total(wire), self.receiving.total(wire))
        np.maximum(busiest, self.shared_s_per_byte[:, None] * sizes, out=busiest)
        return latency + busiest

    def run(self, sizes: FloatArray) -> FloatArray:
        """Last end of anything, for each size."""
        durations = self.durations(sizes)
        reductions = self.row_reduce_s_per_byte[:, None] * sizes
        ready = np.zeros((self.num_cells, len(sizes)))
        lanes = np.zeros((self.num_lanes, len(sizes)))
        reducer = np.zeros((self.num_ranks, len(sizes)))
        for index, (messages, rows) in enumerate(self._steps()):
            has_chunks = np.maximum.reduceat(
                ready[self.row_source[rows]], self.first_row[messages] - rows.start, axis=0
            )
            starts = np.maximum(lanes[self.src_lane[messages]], lanes[self.dst_lane[messages]])
            ends = np.maximum(starts, has_chunks) + durations[messages]
            for step_ends in (self.src_ends[index], self.dst_ends[index]):
                lanes[step_ends.lanes] = np.maximum(lanes[step_ends.lanes], step_ends.latest(ends))
            arrivals = ends[self.message_of_row[rows] - messages.start]
            reduces, target = self.row_reduces[rows], self.row_target[rows]
            ready[target[~reduces]] = arrivals[~reduces]
            if reduces.any():
                rank, mine = self.row_dst[rows][reduces], target[reduces]
                begins = np.maximum(np.maximum(arrivals[reduces], ready[mine]), reducer[rank])
                ready[mine] = begins + reductions[rows][reduces]
                np.maximum.at(reducer, rank, ready[mine])
        last: FloatArray = np.maximum(ready.max(axis=0), lanes.max(axis=0))
        return last

    def _steps(self) -> Iterator[tuple[slice, slice]]:
        for index in range(len(self.message_bounds) - 1):
            yield (
                slice(int(self.message_bounds[index]), int(self.message_bounds[index + 1])),
                slice(int(self.row_bounds[index]), int(self.row_bounds[index + 1])),
            )


def _classes(model: LinkModel, src: IntArray, dst: IntArray) -> IntArray:
    """The class of each pair. Of many ranks a few are looked up, rather than all made an array."""
    if 8 * len(src) > model.num_ranks**2:
        found: IntArray = np.asarray(model.pair_class, dtype=np.int64)[src, dst]
        return found
    pairs = zip(src.tolist(), dst.tolist(), strict=True)
    return np.fromiter((model.pair_class[a][b] for a, b in pairs), dtype=np.int64, count=len(src))


def _shared_load(
    model: LinkModel, step: IntArray, src: IntArray, dst: IntArray, fraction: FloatArray
) -> FloatArray:
    """Seconds per byte of the whole message that each transfer's busiest capacity takes in its step."""
    load = np.zeros(len(step))
    for capacity in model.shared:
        mine = np.flatnonzero(_loads(capacity.pairs, src, dst, model.num_ranks))
        in_step = np.bincount(step[mine], weights=fraction[mine], minlength=int(step[-1]) + 1)
        load[mine] = np.maximum(load[mine], in_step[step[mine]] / capacity.capacity_bytes_per_s)
    return load


def _loads(pairs: Set[Pair], src: IntArray, dst: IntArray, num_ranks: int) -> npt.NDArray[np.bool_]:
    """Which of the transfers are between one of the pairs."""
    if isinstance(pairs, PairsAcross):
        is_member = np.zeros(num_ranks, dtype=np.bool_)
        is_member[list(pairs.members)] = True
        inside, outside = (src, dst) if pairs.leaving else (dst, src)
        return is_member[inside] & ~is_member[outside]
    loading = np.fromiter((a * num_ranks + b for a, b in pairs), dtype=np.int64, count=len(pairs))
    return np.isin(src * num_ranks + dst, loading)

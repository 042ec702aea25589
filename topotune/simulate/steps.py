"""A schedule as steps on a network: which messages run together, and how often the same step comes again.

Theory of operation. Steps of one number run together in all channels, and the next begins when all of them
have ended. What a rank received to be reduced in one step is combined in the next, beside its transfers;
a message of that next step which carries what is being combined waits for it. Most schedules repeat few
different steps very often (of a ring's 2(n-1) two are different), so each different one is looked at once.
A tree of a forest that has a weight stands for so many trees alike, whose messages are flows of their own.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from topotune.schedule.model import REDUCE, Schedule
from topotune.simulate.network import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """Messages that run together, as columns of shape (num_messages,).

    Attributes:
        src, dst: ranks.
        fraction: of the whole message, what each carries.
        op: what its receiver does with it, as in schedules.
        streams: equal flows that each is made of.
        waits: of the whole message, what its sender combines before it sends.
        combines: the most that any rank combines beside this step, as a fraction of the message.
        repeats: how often such a step comes.
    """

    src: IntArray
    dst: IntArray
    fraction: FloatArray
    op: IntArray
    streams: IntArray
    waits: FloatArray
    combines: float
    repeats: int = 1


def steps_of(schedule: Schedule) -> list[Step]:
    """The different steps of a schedule, with how often each comes; O(num_transfers log num_transfers)."""
    if schedule.num_transfers == 0:
        return []
    messages = _Messages(schedule)
    found: dict[bytes, Step] = {}
    for number in range(messages.num_steps + 1):
        key = messages.identity(number)
        again = found.get(key)
        found[key] = messages.step(number) if again is None else replace(again, repeats=again.repeats + 1)
    return [step for step in found.values() if len(step.src) or step.combines > 0]


class _Messages:
    """All messages of a schedule, by step: the transfers of a channel between the same two ranks."""

    def __init__(self, schedule: Schedule) -> None:
        num_ranks, num_channels = schedule.num_ranks, int(schedule.channel.max()) + 1
        order: IntArray | slice = slice(None)
        step, src, dst, channel = (
            column.astype(np.int64)
            for column in (schedule.step, schedule.src, schedule.dst, schedule.channel)
        )
        key = (((step * num_channels + channel) * 2 + schedule.op) * num_ranks + src) * num_ranks + dst
        if (key[1:] < key[:-1]).any():
            order = np.argsort(key, kind="stable")
            key = key[order]
        chunk, op = schedule.chunk[order], schedule.op[order]
        step, src, dst = step[order], src[order], dst[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        fraction = schedule.chunk_fractions()[chunk]
        self.num_steps = int(step[-1]) + 1
        waits, self._combines = _combining(
            (self.num_steps, num_ranks, schedule.num_chunks), step, src, dst, chunk, op == REDUCE, fraction
        )
        if len(first) < len(key):
            fraction, waits = np.add.reduceat(fraction, first), np.maximum.reduceat(waits, first)
            step, src, dst, op = step[first], src[first], dst[first], op[first]
        self._bounds = np.searchsorted(step, np.arange(self.num_steps + 2)).tolist()
        streams = _streams(schedule, num_channels)[schedule.channel[order][first]]
        self._columns = (src, dst, fraction, op.astype(np.int64), streams, waits)

    def identity(self, number: int) -> bytes:
        """Equal of steps that are."""
        mine = slice(self._bounds[number], self._bounds[number + 1])
        digest = blake2b(self._combines[number].tobytes())
        for column in self._columns:
            digest.update(np.ascontiguousarray(column[mine]).data)
        return digest.digest()

    def step(self, number: int) -> Step:
        """One of them; behind the last comes what is combined after it."""
        mine = slice(self._bounds[number], self._bounds[number + 1])
        src, dst, fraction, op, streams, waits = self._columns
        return Step(
            src=src[mine],
            dst=dst[mine],
            fraction=fraction[mine],
            op=op[mine],
            streams=streams[mine],
            waits=waits[mine],
            combines=float(self._combines[number]),
        )


def _streams(schedule: Schedule, num_channels: int) -> IntArray:
    """Flows that a message of each channel is made of."""
    weights = schedule.params.get("weights") if schedule.algorithm == "forest" else None
    if (
        isinstance(weights, list)
        and len(weights) == num_channels
        and all(isinstance(weight, int) and weight > 0 for weight in weights)
    ):
        return np.asarray(weights, dtype=np.int64)
    return np.ones(num_channels, dtype=np.int64)


def _combining(
    shape: tuple[int, int, int],
    step: IntArray,
    src: IntArray,
    dst: IntArray,
    chunk: npt.NDArray[np.int32],
    reduces: npt.NDArray[np.bool_],
    fraction: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """What each transfer waits for, and the most that any rank combines beside each step and after the last.

    ``shape``: steps, ranks, chunks. Rows are sorted by step.
    """
    num_steps, num_ranks, num_chunks = shape
    total = np.bincount((step * num_ranks + dst)[reduces], fraction[reduces], minlength=num_steps * num_ranks)
    before = np.concatenate((np.zeros(num_ranks), total))
    most: FloatArray = before.reshape(num_steps + 1, num_ranks).max(axis=1)
    waits = np.zeros(len(step))
    arrived_at = np.full(num_ranks * num_chunks, -1, dtype=np.int32)
    bounds = np.searchsorted(step, np.arange(num_steps + 1)).tolist()
    sent, received = src * num_chunks + chunk, dst * num_chunks + chunk
    for number in range(num_steps):
        mine = slice(bounds[number], bounds[number + 1])
        depends = arrived_at[sent[mine]] == number - 1
        if number and depends.any():
            waits[mine] = np.where(depends, before[number * num_ranks + src[mine]], 0.0)
        arrived_at[received[mine][reduces[mine]]] = number
    return waits, most

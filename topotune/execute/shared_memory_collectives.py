"""Collectives inside a node, through its segment: few native calls, and meetings between them."""

import ctypes
import os
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import torch

from topotune.execute.shared_memory_segment import NUM_BUFFERS, Segment
from topotune.execute.shared_memory_stages import (
    ALLGATHER,
    ALLREDUCE,
    ALLREDUCE_EVERYWHERE,
    BROADCAST_FROM_FIRST,
    REDUCE_SCATTER,
    REDUCE_TO_FIRST,
    Plan,
    Slice,
    native_combine_all,
    native_work,
    slices,
    stages,
)
from topotune.units import format_seconds

EVERYWHERE_BYTES: Final = 256 << 10
"""All messages together, up to which every rank reduces all itself: one meeting less costs less."""

HOLD_BYTES: Final = 256 << 10
"""Up to here a copy (30 µs at most) keeps the interpreter lock, which may take 5 ms to come back."""

SPIN_S: Final = 20e-6
"""How long a rank that has a core of its own polls before it sleeps: to wake it takes about as long."""

_LOOK_S: Final = 0.1
"""How often a rank that waits looks whether the others live."""

_BINDINGS: Final = 256  # a training job has few bucket sizes, each in three buffers


class SharedCollectives:
    """Blocking collectives of the ranks that share a segment; all ranks call the same ones in the same order.

    Tensors are contiguous, on the CPU, of one dimension; ``reduction`` is one of the interpreter's codes.

    Args:
        segment: of all ranks.
        slot_bytes: how much of a slot to use: messages are cut by it, and so are shards.
    """

    def __init__(self, segment: Segment, slot_bytes: int) -> None:
        communicator = segment.communicator
        self._segment = segment
        self._communicator = communicator
        self._rank = communicator.rank
        self._slot_bytes = slot_bytes
        self._peers = [(communicator.rank + away) % communicator.size for away in range(1, communicator.size)]
        self._work = native_work()
        self._combine_all = native_combine_all()
        self._spin_s = SPIN_S if communicator.size <= len(os.sched_getaffinity(0)) else 0.0
        self._cut = lru_cache(maxsize=_BINDINGS)(self._cut_anew)
        self._stages = lru_cache(maxsize=_BINDINGS)(self._stages_anew)

    def allreduce(self, flat: torch.Tensor, reduction: int) -> None:
        """Reduce in place."""
        size = self._communicator.size
        if size > 2 and size * flat.nbytes > EVERYWHERE_BYTES:
            self._run(ALLREDUCE, flat, flat, reduction)
        elif flat.nbytes > self._slot_bytes:
            self._run(ALLREDUCE_EVERYWHERE, flat, flat, reduction)
        else:
            self._run_small(flat, reduction)

    def reduce_scatter(self, flat: torch.Tensor, shard: torch.Tensor, reduction: int) -> None:
        """Reduce into shards; ``shard`` has ``shard_elements``, ``flat`` stays as it is."""
        self._run(REDUCE_SCATTER, flat, shard, reduction)

    def allgather(self, shard: torch.Tensor, flat: torch.Tensor) -> None:
        """Put shards together again, as ``reduce_scatter`` cut them."""
        self._run(ALLGATHER, flat, shard, 0)

    def reduce_to_first(self, flat: torch.Tensor, reduction: int) -> None:
        """Reduce in place on the first rank; the others' stay as they are."""
        self._run(REDUCE_TO_FIRST[self._rank != 0], flat, flat, reduction)

    def broadcast_from_first(self, flat: torch.Tensor) -> None:
        """Copy the first rank's to all."""
        self._run(BROADCAST_FROM_FIRST[self._rank != 0], flat, flat, 0)

    def give_up(self) -> None:
        """After an error: end the waits of all ranks. The segment is of no use afterwards."""
        self._segment.give_up()

    def shard_elements(self, num_elements: int, itemsize: int) -> int:
        """Elements of this rank's shard; the same for the same rank of other nodes, with the same slots."""
        return sum(slice_.piece_length(self._rank) for slice_ in self._cut(num_elements, itemsize))

    def _run(self, plan: Plan, flat: torch.Tensor, shard: torch.Tensor, reduction: int) -> None:
        num_elements, itemsize = flat.numel(), flat.itemsize
        segment = self._segment
        slots = segment.slots(flat.dtype)
        planned = self._stages(plan, num_elements, itemsize, segment.next_buffer)
        for number, steps in enumerate(planned):
            if number:
                self._meet()
            if steps:
                self._work(flat, shard, slots, self._rank, steps, reduction)
        num_slices = len(self._cut(num_elements, itemsize))
        segment.next_buffer = (segment.next_buffer + num_slices) % NUM_BUFFERS

    def _run_small(self, flat: torch.Tensor, reduction: int) -> None:
        """``ALLREDUCE_EVERYWHERE`` of one slice, with less overhead."""
        segment, num_bytes = self._segment, flat.nbytes
        given = segment.beginnings(flat.numel(), flat.dtype, segment.next_buffer)
        if num_bytes <= HOLD_BYTES:
            ctypes.memmove(given[self._rank].data_ptr(), flat.data_ptr(), num_bytes)
        else:
            given[self._rank].copy_(flat)
        self._meet()
        self._combine_all(flat, given, self._rank, reduction)
        segment.next_buffer = (segment.next_buffer + 1) % NUM_BUFFERS

    def _cut_anew(self, num_elements: int, itemsize: int) -> list[Slice]:
        return slices(num_elements, itemsize, self._slot_bytes, self._communicator.size)

    def _stages_anew(
        self, plan: Plan, num_elements: int, itemsize: int, first_buffer: int
    ) -> list[list[int]]:
        return stages(plan, self._cut(num_elements, itemsize), self._rank, first_buffer)

    def _meet(self) -> None:
        """Return when all ranks are here; what they wrote before is seen after.

        Raises:
            RuntimeError: a rank did not come in time, died, or gave up.
        """
        segment, rank = self._segment, self._rank
        for peer in self._peers:
            segment.semaphore(peer, rank).post()
        for peer in self._peers:
            self._wait_for(peer)
        if segment.gave_up:
            raise RuntimeError("a rank failed, or was aborted")

    def _wait_for(self, peer: int) -> None:
        semaphore = self._segment.semaphore(self._rank, peer)
        timeout_s = self._communicator.timeout.total_seconds()
        for look_s in _looks(timeout_s):
            if semaphore.wait(look_s, spin_s=self._spin_s):
                return
            if not self._segment.is_alive(peer) and not semaphore.wait(0.0):
                raise RuntimeError(f"the process of rank {peer} has ended")
        raise RuntimeError(f"rank {peer} did not come within {format_seconds(timeout_s)}")


def _looks(timeout_s: float) -> Iterator[float]:
    """Seconds to wait each time, until ``timeout_s`` have passed."""
    deadline_s = time.monotonic() + timeout_s
    left_s = timeout_s
    while left_s > 0:
        yield min(_LOOK_S, left_s)
        left_s = deadline_s - time.monotonic()

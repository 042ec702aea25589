"""Collectives inside a node, through its segment: few native calls, and waits for the others between them."""

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, cast

import torch

from topotune.execute.shared_memory.segment import Segment
from topotune.execute.shared_memory.stages import (
    ALLGATHER,
    ALLREDUCE,
    ALLREDUCE_EVERYWHERE,
    BROADCAST_FROM_FIRST,
    REDUCE_SCATTER,
    REDUCE_TO_FIRST,
    Plan,
    Slice,
    Stage,
    native_combine_all,
    native_work_in_slots,
    native_work_in_turns,
    peers,
    slices,
    stages,
    turns,
)
from topotune.units import format_seconds

EVERYWHERE_BYTES: Final = 256 << 10
"""All messages together, up to which every rank reduces all itself: one meeting less costs less."""

TURN_BYTES: Final = 64 << 10
"""Messages in two pieces go in turns from this size on: below, one wait less counts for more."""

WAIT_BYTES: Final = 256 << 10
"""What moves while a rank waits (25 µs): by so much larger is a message that goes in turns, for each piece
beyond two."""

HOLD_BYTES: Final = 256 << 10
"""Up to here a copy (30 µs at most) keeps the interpreter lock, which may take 5 ms to come back."""

SPIN_S: Final = 100e-6
"""How long a rank polls, with the core offered to others each time, before it sleeps.

To sleep and be woken takes 20 to 100 µs. 4 ranks on 2 cores took 1.26 ms for 1 MiB with 100 µs, 1.66 ms
without and 1.24 ms with 300 µs; 2 ranks the same within the noise (Xeon, 2026).
"""

_LOOK_S: Final = 0.1
"""How often a rank that waits looks whether the others live."""

_BINDINGS: Final = 256  # a training job has few bucket sizes, each in three buffers


def _copy_that_holds() -> Callable[[int, int, int], object]:
    """C's memmove (to, from, bytes) with the interpreter lock; `ctypes.memmove` lets go of it."""
    function = ctypes.PyDLL(None)["memmove"]
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    function.restype = ctypes.c_void_p
    return cast(Callable[[int, int, int], object], function)


copy_holding_lock: Final = _copy_that_holds()


class SharedCollectives:
    """Blocking collectives of the ranks that share a segment; all ranks call the same ones in the same order.

    Tensors are contiguous, on the CPU, of one dimension; ``reduction`` is one of the interpreter's codes.

    Args:
        segment: of all ranks.
        slot_bytes: how much of a slot to use: messages are cut by it, and so are shards.

    Attributes:
        segment, slot_bytes: as given.
        rank: this rank's number in the segment.
    """

    def __init__(self, segment: Segment, slot_bytes: int) -> None:
        communicator = segment.communicator
        self.segment = segment
        self._communicator = communicator
        self.rank = communicator.rank
        self.slot_bytes = slot_bytes
        self._room_bytes = slot_bytes * communicator.size
        self._num_pieces = min(communicator.size, segment.num_cpus)
        self._turns_from_bytes = max(TURN_BYTES, (self._num_pieces - 2) * WAIT_BYTES)
        self._peers = peers(communicator.rank, communicator.size)
        self._work_in_slots = native_work_in_slots()
        self._work_in_turns = native_work_in_turns()
        self._combine_all = native_combine_all()
        self._cut = lru_cache(maxsize=_BINDINGS)(self._cut_anew)
        self._stages = lru_cache(maxsize=_BINDINGS)(self._stages_anew)
        self._turns = lru_cache(maxsize=_BINDINGS)(self._turns_anew)

    def allreduce(self, flat: torch.Tensor, reduction: int) -> None:
        """Reduce in place."""
        size = self._communicator.size
        if flat.nbytes >= self._turns_from_bytes:
            self._run_in_turns(flat, reduction)
        elif size > 2 and size * flat.nbytes > EVERYWHERE_BYTES:
            self._run(ALLREDUCE, flat, flat, reduction)
        elif flat.nbytes > self.slot_bytes:
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
        self._run(REDUCE_TO_FIRST[self.rank != 0], flat, flat, reduction)

    def broadcast_from_first(self, flat: torch.Tensor) -> None:
        """Copy the first rank's to all."""
        self._run(BROADCAST_FROM_FIRST[self.rank != 0], flat, flat, 0)

    def give_up(self) -> None:
        """After an error: end the waits of all ranks. The segment is of no use afterwards."""
        self.segment.give_up()

    def shard_elements(self, num_elements: int, itemsize: int) -> int:
        """Elements of this rank's shard; the same for the same rank of other nodes, with the same slots."""
        return sum(slice_.piece_length(self.rank) for slice_ in self._cut(num_elements, itemsize))

    def _run(self, plan: Plan, flat: torch.Tensor, shard: torch.Tensor, reduction: int) -> None:
        num_elements, itemsize = flat.numel(), flat.itemsize
        slots, rank = self.segment.slots(flat.dtype), self.rank
        planned = self._stages(plan, num_elements, itemsize, self.segment.next_buffer)
        for stage in planned:
            self.wait_for(stage.awaits)
            if stage.steps:
                self._work_in_slots(flat, shard, slots, rank, stage.steps, reduction)
            self.tell(stage.tells)
        self.segment.use_buffers(len(self._cut(num_elements, itemsize)))

    def _run_in_turns(self, flat: torch.Tensor, reduction: int) -> None:
        rooms = self.segment.rooms(flat.dtype)
        planned, num_slices = self._turns(flat.numel(), flat.itemsize, self.segment.next_buffer)
        for stage in planned:
            self.wait_for(stage.awaits)
            self._work_in_turns(flat, rooms, stage.steps, reduction)
            self.tell(stage.tells)
        self.segment.use_buffers(num_slices)

    def _run_small(self, flat: torch.Tensor, reduction: int) -> None:
        """``ALLREDUCE_EVERYWHERE`` of one slice, with less overhead."""
        segment, num_bytes = self.segment, flat.nbytes
        given = segment.beginnings(flat.numel(), flat.dtype, segment.next_buffer)
        if num_bytes <= HOLD_BYTES:
            copy_holding_lock(given[self.rank].data_ptr(), flat.data_ptr(), num_bytes)
        else:
            given[self.rank].copy_(flat)
        self.tell(self._peers)
        self.wait_for(self._peers)
        self._combine_all(flat, given, self.rank, reduction)
        segment.use_buffers(1)

    def _cut_anew(self, num_elements: int, itemsize: int) -> list[Slice]:
        return slices(num_elements, itemsize, self.slot_bytes, self._communicator.size)

    def _stages_anew(self, plan: Plan, num_elements: int, itemsize: int, first_buffer: int) -> list[Stage]:
        cut = self._cut(num_elements, itemsize)
        return stages(plan, cut, self.rank, self._communicator.size, first_buffer)

    def _turns_anew(self, num_elements: int, itemsize: int, first_buffer: int) -> tuple[list[Stage], int]:
        cut = slices(num_elements, itemsize, self._room_bytes, self._num_pieces)
        planned = turns(cut, self.rank, self._communicator.size, self._num_pieces, first_buffer)
        return planned, len(cut)

    def tell(self, ranks: Sequence[int]) -> None:
        """What was written before is seen by these ranks when they have waited for this one."""
        for peer in ranks:
            self.segment.semaphore(peer, self.rank).post()

    def wait_for(self, ranks: Sequence[int]) -> None:
        """Return when each of these ranks has told this one, as often as it was waited for.

        Raises:
            RuntimeError: a rank did not come in time, died, or gave up.
        """
        for peer in ranks:
            self._wait_for_one(peer)
        if ranks and self.segment.gave_up:
            raise RuntimeError("a rank failed, or was aborted")

    def _wait_for_one(self, peer: int) -> None:
        semaphore = self.segment.semaphore(self.rank, peer)
        timeout_s = self._communicator.timeout.total_seconds()
        for look_s in _looks(timeout_s):
            if semaphore.wait(look_s, spin_s=SPIN_S):
                return
            if not self.segment.is_alive(peer) and not semaphore.wait(0.0):
                raise RuntimeError(f"the process of rank {peer} has ended")
        raise RuntimeError(f"rank {peer} did not come within {format_seconds(timeout_s)}")


def _looks(timeout_s: float) -> Iterator[float]:
    """Seconds to wait each time, until ``timeout_s`` have passed."""
    deadline_s = time.monotonic() + timeout_s
    left_s = timeout_s
    while left_s > 0:
        yield min(_LOOK_S, left_s)
        left_s = deadline_s - time.monotonic()

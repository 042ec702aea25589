"""Reduce-scatter and all-gather through the memory of a node, where every rank owns given parts of a message.

Theory of operation. The message is n parts of m elements; of the ranks that share the memory, each owns k of
them, one after the other in a tensor of its own (k = 1 where all n ranks are on one node; elsewhere k is the
number of nodes, and what a rank gets or gives are the parts of the ranks at its place on all nodes). Parts
are cut in *slices*: the same stretch of every part at once. A slice goes through

    give     copy the others' parts from the message to the own slot      reduce-scatter
    reduce   add up the own parts of all ranks' slots, in the order of ranks
    publish  copy the own parts to the own slot                           all-gather
    take     copy the others' parts from their slots to the message

with one meeting between the two steps, and while a slice is in its second step the next is in its first.
Slices use the segment's buffers in turn, by the rule of ``stages``: a buffer is written again when there was
a meeting after everybody had read it.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, List, cast  # noqa: UP035 (TorchScript reads typing.List)

import torch
from torch import Tensor

from topotune.execute.reduction import combine
from topotune.execute.shared_memory.collectives import SharedCollectives
from topotune.execute.shared_memory.segment import CACHE_LINE_BYTES
from topotune.execute.shared_memory.stages import Plan, Slice, stages
from topotune.execute.torchscript import compiled

GIVE_PARTS: Final = 0
REDUCE_PARTS: Final = 1
PUBLISH_PARTS: Final = 2
TAKE_PARTS: Final = 3

_REDUCE_SCATTER: Final[Plan] = ((GIVE_PARTS,), (REDUCE_PARTS,))
_ALLGATHER: Final[Plan] = ((PUBLISH_PARTS,), (TAKE_PARTS,))

Parts = Sequence[Sequence[int]]
"""Member of the memory → numbers of the parts it owns; as many for each."""


def _work_on_parts(
    whole: Tensor,
    own: Tensor,
    slots: List[List[Tensor]],  # noqa: UP006
    rank: int,
    parts: List[List[int]],  # noqa: UP006
    steps: List[int],  # noqa: UP006
    reduction: int,
) -> None:
    # TorchScript reads no constants of modules: the codes are written out, and asserted below.
    num_owned = len(parts[rank])
    part_length = own.numel() // num_owned
    for index in range(len(steps) // 6):
        code = steps[6 * index]
        buffer = slots[steps[6 * index + 1]]
        start = steps[6 * index + 2]
        length = steps[6 * index + 3]
        stride = steps[6 * index + 4]
        size = len(buffer)
        mine = buffer[rank]
        if code == 0:
            for other in range(size):
                if other != rank:
                    for block in range(num_owned):
                        given = whole.narrow(0, parts[other][block] * part_length + start, length)
                        mine.narrow(0, (other * num_owned + block) * stride, length).copy_(given)
        elif code == 1:
            for block in range(num_owned):
                at = (rank * num_owned + block) * stride
                out = mine.narrow(0, at, length)
                own_part = whole.narrow(0, parts[rank][block] * part_length + start, length)
                first = own_part
                if rank != 0:
                    first = buffer[0].narrow(0, at, length)
                for other in range(1, size):
                    second = own_part
                    if other != rank:
                        second = buffer[other].narrow(0, at, length)
                    combine(first, second, out, reduction)
                    first = out
                own.narrow(0, block * part_length + start, length).copy_(out)
        elif code == 2:
            for block in range(num_owned):
                published = own.narrow(0, block * part_length + start, length)
                mine.narrow(0, block * stride, length).copy_(published)
        else:
            for other in range(size):
                if other != rank:
                    for block in range(num_owned):
                        taken = buffer[other].narrow(0, block * stride, length)
                        whole.narrow(0, parts[other][block] * part_length + start, length).copy_(taken)


assert (GIVE_PARTS, REDUCE_PARTS, PUBLISH_PARTS, TAKE_PARTS) == (0, 1, 2, 3)


@cache
def native_work_on_parts() -> Callable[..., None]:
    """What does the steps of one stage: ``work(whole, own, slots, rank, parts, steps, reduction)``.

    whole: the message, shape (n * m,). own: this rank's parts, shape (k * m,). slots: by buffer and rank.
    parts: by rank. steps: rows of (code, buffer, start in a part, length, stride, unused), flattened; stride
    is how far parts lie from each other in a slot.
    """
    return cast(Callable[..., None], compiled(_work_on_parts))


class SharedParts:
    """Blocking collectives of the ranks that share a segment; all ranks call the same ones in the same order.

    Tensors are contiguous, on the CPU, of one dimension.

    Args:
        shared: of all ranks.
        parts: of each rank, in the order of ranks.
    """

    def __init__(self, shared: SharedCollectives, parts: Parts) -> None:
        self._shared = shared
        self._parts = [list(owned) for owned in parts]
        self._work = native_work_on_parts()

    def reduce_scatter(self, whole: torch.Tensor, own: torch.Tensor, reduction: int) -> None:
        """Add up; ``own`` gets this rank's parts, ``whole`` stays as it is (they may be the same memory)."""
        self._run(_REDUCE_SCATTER, whole, own, reduction, self.num_parts)

    def allgather(self, own: torch.Tensor, whole: torch.Tensor) -> None:
        """Fill ``whole`` with all ranks' parts, but for the own, which stay as they are."""
        self._run(_ALLGATHER, whole, own, 0, len(self._parts[0]))

    @property
    def num_parts(self) -> int:
        """Of the message."""
        return sum(map(len, self._parts))

    def takes(self, itemsize: int) -> bool:
        """Whether a slot holds an element of every part."""
        return self._shared.slot_bytes >= self.num_parts * itemsize

    def _run(
        self, plan: Plan, whole: torch.Tensor, own: torch.Tensor, reduction: int, num_in_slot: int
    ) -> None:
        shared = self._shared
        length = own.numel() // len(self._parts[0])
        cut = _cut(length, own.itemsize, shared.slot_bytes // num_in_slot)
        slots = shared.segment.slots(own.dtype)
        for stage in stages(plan, cut, shared.rank, len(self._parts), shared.segment.next_buffer):
            shared.wait_for(stage.awaits)
            self._work(whole, own, slots, shared.rank, self._parts, stage.steps, reduction)
            shared.tell(stage.tells)
        shared.segment.use_buffers(len(cut))


def _cut(num_elements: int, itemsize: int, room_bytes: int) -> list[Slice]:
    """A part in slices of about one size, whole cache lines where there is room for any."""
    line = max(1, CACHE_LINE_BYTES // itemsize)
    most = room_bytes // itemsize
    unit = line if most >= line else 1
    most = most // unit * unit
    num_slices = -(-num_elements // most)
    length = -(-num_elements // (num_slices * unit)) * unit
    return [
        Slice(start, min(length, num_elements - start), length) for start in range(0, num_elements, length)
    ]

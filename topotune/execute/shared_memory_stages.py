"""What a rank does in shared memory between two meetings with the others, in one native call.

Theory of operation. A message is cut in *slices* that fit a slot, and a slice in one *piece* a rank. A slice
goes through the steps

    give     copy what others will reduce, from the message to the own slot
    reduce   combine the own piece of all ranks' slots, into the own slot
    take     copy everyone's reduced piece, from their slots to the message

with a meeting of all ranks between each two. Slices follow each other through the steps, each in the next of
three buffers: one call does ``take`` of a slice, ``reduce`` of the next and ``give`` of the one after, so the
number of meetings is the number of slices and one or two more.

Which slot is written when. Slice s is given in buffer s mod 3, where slice s - 3 was taken at least one
meeting ago, in this collective or in an earlier one: buffers go on in turn from call to call. In a slot, the
own piece is written in ``reduce`` by its owner and the rest in ``give``; others read the former in ``take``
and the latter in ``reduce``. So nothing is written while another rank may read it, and nobody but its owner
writes to a slot: the meetings order all accesses to memory.

Results are bitwise equal on all ranks: an element is combined in one place, in the order of ranks. Where the
message is small, or of two ranks, every rank combines all itself (``reduce_all``), in the order of ranks too:
one meeting less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Final, List, cast  # noqa: UP035 (TorchScript reads typing.List)

import torch
from torch import Tensor

from topotune.execute.interpreter import MAXIMUM, MINIMUM, PRODUCT, SUM
from topotune.execute.shared_memory_segment import CACHE_LINE_BYTES, NUM_BUFFERS
from topotune.execute.torchscript import compiled

GIVE: Final = 0
REDUCE: Final = 1
REDUCE_ALL: Final = 2
TAKE: Final = 3
TAKE_FIRST: Final = 4
KEEP: Final = 5
PUBLISH: Final = 6
GIVE_ALL: Final = 7


def _combine(first: Tensor, second: Tensor, out: Tensor, reduction: int) -> None:
    if reduction == 0:
        torch.add(first, second, out=out)
    elif reduction == 1:
        torch.mul(first, second, out=out)
    elif reduction == 2:
        torch.minimum(first, second, out=out)
    else:
        torch.maximum(first, second, out=out)


def _combine_all(flat: Tensor, given: List[Tensor], rank: int, reduction: int) -> None:  # noqa: UP006
    # The own part is at hand in the message, but is written over by the first result.
    first = given[0]
    if rank == 0:
        first = flat
    second = given[1]
    if rank == 1:
        second = flat
    _combine(first, second, flat, reduction)
    for other in range(2, len(given)):
        _combine(flat, given[other], flat, reduction)


def _work(
    flat: Tensor,
    shard: Tensor,
    slots: List[List[Tensor]],  # noqa: UP006
    rank: int,
    steps: List[int],  # noqa: UP006
    reduction: int,
) -> None:
    # TorchScript reads no constants of modules: the codes are written out, and asserted below.
    for index in range(len(steps) // 6):
        code = steps[6 * index]
        buffer = slots[steps[6 * index + 1]]
        start = steps[6 * index + 2]
        length = steps[6 * index + 3]
        piece = steps[6 * index + 4]
        kept_at = steps[6 * index + 5]
        size = len(buffer)
        own_at = min(rank * piece, length)
        own_end = min(own_at + piece, length)
        mine = buffer[rank]
        if code == 0:
            mine.narrow(0, 0, own_at).copy_(flat.narrow(0, start, own_at))
            rest = length - own_end
            mine.narrow(0, own_end, rest).copy_(flat.narrow(0, start + own_end, rest))
        elif code == 1:
            length = own_end - own_at
            own = flat.narrow(0, start + own_at, length)
            out = mine.narrow(0, own_at, length)
            first = own
            if rank != 0:
                first = buffer[0].narrow(0, own_at, length)
            for other in range(1, size):
                second = own
                if other != rank:
                    second = buffer[other].narrow(0, own_at, length)
                _combine(first, second, out, reduction)
                first = out
        elif code == 2:
            given = [slot.narrow(0, 0, length) for slot in buffer]
            _combine_all(flat.narrow(0, start, length), given, rank, reduction)
        elif code == 3:
            for other in range(size):
                begin = min(other * piece, length)
                end = min(begin + piece, length)
                flat.narrow(0, start + begin, end - begin).copy_(buffer[other].narrow(0, begin, end - begin))
        elif code == 4:
            flat.narrow(0, start, length).copy_(buffer[0].narrow(0, 0, length))
        elif code == 5:
            shard.narrow(0, kept_at, own_end - own_at).copy_(mine.narrow(0, own_at, own_end - own_at))
        elif code == 6:
            mine.narrow(0, own_at, own_end - own_at).copy_(shard.narrow(0, kept_at, own_end - own_at))
        else:
            mine.narrow(0, 0, length).copy_(flat.narrow(0, start, length))


_CODES = (GIVE, REDUCE, REDUCE_ALL, TAKE, TAKE_FIRST, KEEP, PUBLISH, GIVE_ALL)
assert list(_CODES) == [0, 1, 2, 3, 4, 5, 6, 7]
assert [SUM, PRODUCT, MINIMUM, MAXIMUM] == [0, 1, 2, 3]


@cache
def native_work() -> Callable[..., None]:
    """What does the steps of one stage: ``work(flat, shard, slots, rank, steps, reduction)``.

    flat: the message, shape (num_elements,). shard: this rank's share of it, where steps keep or publish it.
    slots: by buffer and rank. steps: rows of (code, buffer, start, length, piece, kept_at), flattened.
    """
    return cast(Callable[..., None], compiled(_work))


@cache
def native_combine_all() -> Callable[..., None]:
    """``REDUCE_ALL`` of one slice, with less overhead: ``combine_all(flat, given, rank, reduction)``.

    flat: the message, shape (num_elements,); it gets the result. given: all ranks', of the same shape.
    """
    return cast(Callable[..., None], compiled(_combine_all))


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements ``start`` to ``start + length`` of a message, in pieces of ``piece``; the last may be less."""

    start: int
    length: int
    piece: int

    def piece_length(self, rank: int) -> int:
        """Elements of one rank's piece."""
        return max(0, min(self.length - rank * self.piece, self.piece))


def slices(num_elements: int, itemsize: int, slot_bytes: int, size: int) -> list[Slice]:
    """Cut a message into slices of about one size, and these into pieces of whole cache lines."""
    line = max(1, CACHE_LINE_BYTES // itemsize)
    num_slices = -(-num_elements * itemsize // slot_bytes)
    length = _round_up(-(-num_elements // num_slices), line)
    cut = []
    for start in range(0, num_elements, length):
        in_slice = min(length, num_elements - start)
        cut.append(Slice(start, in_slice, _round_up(-(-in_slice // size), line)))
    return cut


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


Plan = tuple[tuple[int, ...], ...]
"""Codes by how many meetings after a slice's first they come."""

ALLREDUCE: Final[Plan] = ((GIVE,), (REDUCE,), (TAKE,))
ALLREDUCE_EVERYWHERE: Final[Plan] = ((GIVE_ALL,), (REDUCE_ALL,))
REDUCE_SCATTER: Final[Plan] = ((GIVE,), (REDUCE, KEEP))
ALLGATHER: Final[Plan] = ((PUBLISH,), (TAKE,))
REDUCE_TO_FIRST: Final[tuple[Plan, Plan]] = (ALLREDUCE, ((GIVE,), (REDUCE,), ()))
BROADCAST_FROM_FIRST: Final[tuple[Plan, Plan]] = (((GIVE_ALL,), ()), ((), (TAKE_FIRST,)))
"""For the first rank, and for the others."""


def stages(plan: Plan, cut: Sequence[Slice], rank: int, first_buffer: int) -> list[list[int]]:
    """What one rank does before, between and after its meetings: steps as ``native_work`` takes them.

    Args:
        plan: as many steps on all ranks.
        cut: the slices; the same on all ranks.
        rank: own number.
        first_buffer: of the first slice; the others follow in turn.
    """
    kept_at = [0, *accumulate(slice_.piece_length(rank) for slice_ in cut)]
    done = []
    for stage in range(len(cut) + len(plan) - 1):
        steps: list[int] = []
        for behind, codes in enumerate(plan):
            index = stage - behind
            if 0 <= index < len(cut):
                slice_, buffer = cut[index], (first_buffer + index) % NUM_BUFFERS
                for code in codes:
                    steps += (code, buffer, slice_.start, slice_.length, slice_.piece, kept_at[index])
        done.append(steps)
    return done

"""What a rank does in shared memory between two waits for the others, in one native call.

Theory of operation. A message is cut in *slices* that fit a buffer, and a slice in *pieces*. Slices use three
buffers in turn, from call to call. There are two ways through them.

In **slots** every rank has a part of the buffer to itself, and owns a piece. A slice goes through

    give     copy what others will reduce, from the message to the own slot
    reduce   combine the own piece of all ranks' slots, into the own slot
    take     copy everyone's reduced piece, from their slots to the message

with a meeting of all ranks between each two. Slices follow each other through the steps: one call does
``take`` of a slice, ``reduce`` of the next and ``give`` of the one after, so the number of meetings is the
number of slices and one or two more. Where the message is small every rank combines all itself
(``reduce_all``): one meeting less.

**In turns** all ranks share one room of the size of a slice. Each piece is handed round: one rank puts its
part there (``begin``), the next ones add theirs (``add``), the last one has the result (``finish``), and then
everyone takes the pieces that others finished (``collect``). Every rank moves the message twice, where slots
take 3 - 2/n of n ranks, and all ranks together need the room of one. There are as many pieces as ranks can
run at once: each piece begins with another rank, so that they are handed round side by side, and a rank waits
once for each.

Which part is written when. With slots, slice s is given in buffer s mod 3, where slice s - 3 was taken at
least one meeting ago, in this call or an earlier one. In a slot, the own piece is written in ``reduce`` by
its owner and the rest in ``give``; others read the former in ``take`` and the latter in ``reduce``. In turns,
a piece is written by one rank after the other, each told so by the one before, and collected when the last
one has told everybody. Whoever hears of a piece of slice s that is finished knows that every rank has been
there, after it collected slice s - 1: what it writes next is in another buffer than slice s. So nothing is
written while another rank may use it: the waits order all accesses to memory.

Results are bitwise equal on all ranks: an element is combined in one place, in slots in the order of ranks,
in turns in that order from another rank on for each piece; or (``reduce_all``) in many places in the same
order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Final, List, cast  # noqa: UP035 (TorchScript reads typing.List)

from torch import Tensor

from topotune.execute.interpreter import MAXIMUM, MINIMUM, PRODUCT, SUM
from topotune.execute.reduction import combine
from topotune.execute.shared_memory.segment import CACHE_LINE_BYTES, NUM_BUFFERS
from topotune.execute.torchscript import compiled

GIVE: Final = 0
REDUCE: Final = 1
REDUCE_ALL: Final = 2
TAKE: Final = 3
TAKE_FIRST: Final = 4
KEEP: Final = 5
PUBLISH: Final = 6
GIVE_ALL: Final = 7
BEGIN: Final = 8
ADD: Final = 9
FINISH: Final = 10
COLLECT: Final = 11

BLOCK_BYTES: Final = 128 << 10
"""``finish`` writes a result twice; of this size the second time finds it in any processor's cache."""


def _combine_all(flat: Tensor, given: List[Tensor], rank: int, reduction: int) -> None:  # noqa: UP006
    # The own part is at hand in the message, but is written over by the first result.
    first = given[0]
    if rank == 0:
        first = flat
    second = given[1]
    if rank == 1:
        second = flat
    combine(first, second, flat, reduction)
    for other in range(2, len(given)):
        combine(flat, given[other], flat, reduction)


def _work_in_slots(
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
                combine(first, second, out, reduction)
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


def _work_in_turns(
    flat: Tensor,
    rooms: List[Tensor],  # noqa: UP006
    steps: List[int],  # noqa: UP006
    reduction: int,
) -> None:
    for index in range(len(steps) // 6):
        code = steps[6 * index]
        room = rooms[steps[6 * index + 1]]
        start = steps[6 * index + 2]
        length = steps[6 * index + 3]
        piece = steps[6 * index + 4]
        begin = min(steps[6 * index + 5] * piece, length)
        end = min(begin + piece, length)
        own = flat.narrow(0, start + begin, end - begin)
        shared = room.narrow(0, begin, end - begin)
        if code == 8:
            shared.copy_(own)
        elif code == 9:
            combine(shared, own, shared, reduction)
        elif code == 10:
            block = 131072 // flat.element_size()
            done = 0
            while done < end - begin:
                part = min(block, end - begin - done)
                result = shared.narrow(0, done, part)
                combine(result, own.narrow(0, done, part), result, reduction)
                own.narrow(0, done, part).copy_(result)
                done += part
        else:
            flat.narrow(0, start, begin).copy_(room.narrow(0, 0, begin))
            flat.narrow(0, start + end, length - end).copy_(room.narrow(0, end, length - end))


_CODES = (GIVE, REDUCE, REDUCE_ALL, TAKE, TAKE_FIRST, KEEP, PUBLISH, GIVE_ALL, BEGIN, ADD, FINISH, COLLECT)
assert list(_CODES) == list(range(12))
assert BLOCK_BYTES == 131072
assert [SUM, PRODUCT, MINIMUM, MAXIMUM] == [0, 1, 2, 3]


@cache
def native_work_in_slots() -> Callable[..., None]:
    """What does the steps of one stage: ``work(flat, shard, slots, rank, steps, reduction)``.

    flat: the message, shape (num_elements,). shard: this rank's share of it, where steps keep or publish it.
    slots: by buffer and rank. steps: rows of (code, buffer, start, length, piece, kept_at), flattened.
    """
    return cast(Callable[..., None], compiled(_work_in_slots))


@cache
def native_work_in_turns() -> Callable[..., None]:
    """What does the steps of one stage: ``work(flat, rooms, steps, reduction)``.

    flat: the message, shape (num_elements,). rooms: by buffer. steps: rows of (code, buffer, start, length,
    piece, index), flattened; index is the number of the piece, of the one that is left out where they are
    collected.
    """
    return cast(Callable[..., None], compiled(_work_in_turns))


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

    def piece_length(self, index: int) -> int:
        """Elements of one piece."""
        return max(0, min(self.length - index * self.piece, self.piece))


def slices(num_elements: int, itemsize: int, room_bytes: int, num_pieces: int) -> list[Slice]:
    """Cut a message into slices of about one size, and these into pieces of whole cache lines.

    Args:
        num_elements: >= 0.
        itemsize: bytes of an element.
        room_bytes: what a slice may have at most; whole cache lines.
        num_pieces: of a slice; those at its end may be empty.
    """
    line = max(1, CACHE_LINE_BYTES // itemsize)
    num_slices = -(-num_elements * itemsize // room_bytes)
    length = _round_up(-(-num_elements // num_slices), line)
    cut = []
    for start in range(0, num_elements, length):
        in_slice = min(length, num_elements - start)
        cut.append(Slice(start, in_slice, _round_up(-(-in_slice // num_pieces), line)))
    return cut


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Stage:
    """What a rank does at a stretch.

    Attributes:
        awaits: the ranks that must have told this one first.
        steps: rows as ``native_work_in_slots`` or ``native_work_in_turns`` takes them, flattened.
        tells: the ranks that are told afterwards.
    """

    awaits: tuple[int, ...]
    steps: list[int]
    tells: tuple[int, ...]


Plan = tuple[tuple[int, ...], ...]
"""Codes by how many meetings after a slice's first they come."""

ALLREDUCE: Final[Plan] = ((GIVE,), (REDUCE,), (TAKE,))
ALLREDUCE_EVERYWHERE: Final[Plan] = ((GIVE_ALL,), (REDUCE_ALL,))
REDUCE_SCATTER: Final[Plan] = ((GIVE,), (REDUCE, KEEP))
ALLGATHER: Final[Plan] = ((PUBLISH,), (TAKE,))
REDUCE_TO_FIRST: Final[tuple[Plan, Plan]] = (ALLREDUCE, ((GIVE,), (REDUCE,), ()))
BROADCAST_FROM_FIRST: Final[tuple[Plan, Plan]] = (((GIVE_ALL,), ()), ((), (TAKE_FIRST,)))
"""For the first rank, and for the others."""


def stages(plan: Plan, cut: Sequence[Slice], rank: int, size: int, first_buffer: int) -> list[Stage]:
    """One rank's stages through slots, with a meeting of all ranks between each two.

    Args:
        plan: as many steps on all ranks.
        cut: the slices; the same on all ranks.
        rank: own number.
        size: number of ranks.
        first_buffer: of the first slice; the others follow in turn.
    """
    kept_at = [0, *accumulate(slice_.piece_length(rank) for slice_ in cut)]
    num_stages = len(cut) + len(plan) - 1
    others = peers(rank, size)
    done = []
    for number in range(num_stages):
        steps: list[int] = []
        for behind, codes in enumerate(plan):
            index = number - behind
            if 0 <= index < len(cut):
                for code in codes:
                    steps += _row(code, cut, index, first_buffer, kept_at[index])
        done.append(Stage(others if number else (), steps, others if number < num_stages - 1 else ()))
    return done


def turns(cut: Sequence[Slice], rank: int, size: int, num_pieces: int, first_buffer: int) -> list[Stage]:
    """One rank's stages of an allreduce in turns.

    Args:
        cut: the slices; the same on all ranks.
        rank: own number.
        size: number of ranks, >= 2.
        num_pieces: of a slice, at most one a rank.
        first_buffer: of the first slice; the others follow in turn.
    """
    before, after = ((rank - 1) % size,), ((rank + 1) % size,)
    others = peers(rank, size)
    first_rank = [piece * size // num_pieces for piece in range(num_pieces)]
    turn_and_piece = sorted(((rank - first) % size, piece) for piece, first in enumerate(first_rank))
    finishers = {(first - 1) % size: piece for piece, first in enumerate(first_rank)}
    made = []
    for index in range(len(cut)):
        for turn, piece in turn_and_piece:
            code = BEGIN if turn == 0 else ADD if turn < size - 1 else FINISH
            steps = _row(code, cut, index, first_buffer, piece)
            made.append(Stage(before if turn else (), steps, others if code == FINISH else after))
        left_out = finishers.get(rank, num_pieces)
        steps = _row(COLLECT, cut, index, first_buffer, left_out)
        made.append(Stage(tuple(sorted(finishers.keys() - {rank})), steps, ()))
    return _joined(made)


def _joined(made: Sequence[Stage]) -> list[Stage]:
    """The same with stages made one where no rank is told or waited for between them."""
    joined = list(made[:1])
    for stage in made[1:]:
        last = joined[-1]
        if last.tells or stage.awaits:
            joined.append(stage)
        else:
            joined[-1] = Stage(last.awaits, last.steps + stage.steps, stage.tells)
    return joined


def peers(rank: int, size: int) -> tuple[int, ...]:
    """All other ranks, the next first."""
    return tuple((rank + away) % size for away in range(1, size))


def _row(code: int, cut: Sequence[Slice], index: int, first_buffer: int, last: int) -> list[int]:
    slice_ = cut[index]
    buffer = (first_buffer + index) % NUM_BUFFERS
    return [code, buffer, slice_.start, slice_.length, slice_.piece, last]

"""Proof that a schedule does its collective: the one place with all that makes a schedule legal.

Theory of operation. Every value that a rank can hold of a chunk is a reduction tree over the ranks' own
parts. Trees are interned: a tree is a number, the pair (smaller, larger) of its two subtrees' numbers, so two
trees that differ only by the order of operands are the same number, and comparing them costs one comparison.
IEEE addition, minimum, maximum and product commute but do not associate: equal numbers are exactly what makes
results bitwise equal. With each tree comes the bitset of ranks whose part is in it, and whether any part is
in it twice. The schedule is run on these numbers, step by step, all transfers of a step at once. At the end
every rank must hold, of every chunk, one and the same tree with every rank's part exactly once. Of a
reduce-scatter that is asked of the one rank that each chunk belongs to; after an all-gather every rank must
hold the tree that is the owner's number.

Deadlock needs no search. Within a channel a transfer reads and overwrites only what transfers of lower steps
wrote, and no chunk is in two channels; so "waits for" only ever points to a lower step of the same channel,
and such a relation has no cycle. An executor keeps this as long as a rank posts all sends and receives of a
step before it waits for one of them, and does not make one channel wait for another against the order of
steps. What remains to check is that the columns do say so: steps not negative, rows sorted, no transfer from
a rank to itself.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from topotune.plan.grouping import MAX_CHUNK_DENOMINATOR
from topotune.schedule.assemble import MAX_TRANSFERS, IntArray
from topotune.schedule.model import COPY, REDUCE, IntColumn, Schedule

# Cells of the (rank, chunk) table: 2**25 take 128 MiB.
MAX_CELLS = 2**25


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One way in which a schedule does not do its collective.

    Attributes:
        code: ``columns``, ``size``, ``chunk-bounds``, ``part-bounds``, ``range``, ``order``, ``self-send``,
            ``chunk-channel``, ``received-twice``, ``reduces``, ``missing``, ``repeated``, ``wrong-part`` or
            ``order-of-reduction``.
        message: what, where, the first case, and how many more there are.
    """

    code: str
    message: str


def verify(schedule: Schedule) -> tuple[Violation, ...]:
    """All kinds of violations found; empty where the schedule is proven.

    Time O(num_transfers · log), memory O(num_ranks · num_chunks + trees · num_ranks / 8) bytes. Trees are
    only followed where the columns are well-formed.
    """
    return (
        _check_columns(schedule) or _check_parts(schedule) or _check_rows(schedule) or _check_result(schedule)
    )


def _check_columns(schedule: Schedule) -> tuple[Violation, ...]:
    found = []
    names = ("step", "channel", "src", "dst", "chunk", "op")
    for name in names:
        column = getattr(schedule, name)
        if column.dtype != np.int32 or column.shape != (len(schedule.step),):
            wanted = f"int32 of shape ({len(schedule.step)},)"
            found.append(
                Violation(
                    code="columns", message=f"{name} is {column.dtype} of shape {column.shape}, not {wanted}"
                )
            )
    bounds = schedule.chunk_bounds
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] < 1 or any(a > b for a, b in pairwise(bounds)):
        shown = ", ".join(map(str, bounds[:8])) + (", …" if len(bounds) > 8 else "")
        text = f"chunk bounds {shown} do not rise from 0 to a positive end"
        found.append(Violation(code="chunk-bounds", message=text))
    elif bounds[-1] > MAX_CHUNK_DENOMINATOR:
        text = f"chunk bounds end at {bounds[-1]}, more than {MAX_CHUNK_DENOMINATOR}"
        found.append(Violation(code="chunk-bounds", message=text))
    if schedule.num_ranks < 1:
        found.append(Violation(code="size", message=f"{schedule.num_ranks} ranks"))
    for what, count, most in (
        ("transfers", schedule.num_transfers, MAX_TRANSFERS),
        ("ranks times chunks", schedule.num_ranks * schedule.num_chunks, MAX_CELLS),
    ):
        if count > most:
            found.append(Violation(code="size", message=f"{count} {what}, more than {most}"))
    return tuple(found)


def _check_parts(schedule: Schedule) -> tuple[Violation, ...]:
    """Every part must be a whole number of chunks."""
    if schedule.collective == "allreduce":
        return ()
    num_ranks, bounds = schedule.num_ranks, schedule.chunk_bounds
    known = set(bounds)
    for rank in range(1, num_ranks):
        cut, rest = divmod(bounds[-1] * rank, num_ranks)
        if rest or cut not in known:
            text = f"no chunk ends where the part of rank {rank - 1} does, at {rank}/{num_ranks}"
            return (Violation(code="part-bounds", message=text),)
    return ()


def _owners(schedule: Schedule) -> IntArray:
    """The rank whose part each chunk lies in; shape (num_chunks,)."""
    begins, end = schedule.chunk_bounds[:-1], schedule.chunk_bounds[-1]
    owners = [min(begin * schedule.num_ranks // end, schedule.num_ranks - 1) for begin in begins]
    return np.asarray(owners, dtype=np.int64)


def _check_rows(schedule: Schedule) -> tuple[Violation, ...]:
    found: list[Violation] = []

    def report(code: str, bad: npt.NDArray[np.bool_], problem: str) -> None:
        rows = np.flatnonzero(bad)
        if len(rows):
            more = f" ({len(rows) - 1} more)" if len(rows) > 1 else ""
            found.append(
                Violation(code=code, message=f"{describe_row(schedule, int(rows[0]))} {problem}{more}")
            )

    num_ranks, num_chunks = schedule.num_ranks, schedule.num_chunks
    limits: tuple[tuple[str, IntColumn, int], ...] = (
        ("step", schedule.step, MAX_TRANSFERS),
        ("channel", schedule.channel, MAX_TRANSFERS),
        ("src", schedule.src, num_ranks),
        ("dst", schedule.dst, num_ranks),
        ("chunk", schedule.chunk, num_chunks),
        ("op", schedule.op, REDUCE + 1),
    )
    for name, column, end in limits:
        report("range", (column < 0) | (column >= end), f"has its {name} outside 0 … {end - 1}")
    if found:
        return tuple(found)
    if schedule.collective == "allgather":
        report("reduces", schedule.op == REDUCE, "adds up, where an all-gather copies")
    report("self-send", schedule.src == schedule.dst, "sends to itself")
    place = schedule.channel.astype(np.int64) << 32 | schedule.step
    report("order", np.diff(place, prepend=0) < 0, "comes after a row of a later (channel, step)")
    first_channel = np.full(num_chunks, -1, dtype=np.int64)
    first_channel[schedule.chunk[::-1]] = schedule.channel[::-1]
    report(
        "chunk-channel",
        first_channel[schedule.chunk] != schedule.channel,
        "is in a second channel of its chunk",
    )
    cell = schedule.dst.astype(np.int64) * num_chunks + schedule.chunk
    order = np.lexsort((cell, schedule.step))
    again = np.zeros(schedule.num_transfers, dtype=np.bool_)
    again[order[1:]] = (np.diff(cell[order]) == 0) & (np.diff(schedule.step[order]) == 0)
    report("received-twice", again, "is the second with this chunk to its rank in this step")
    return tuple(found)


def describe_row(schedule: Schedule, row: int) -> str:
    """One transfer in words: ``row 7 (channel 0, step 3: rank 1 -> 2, chunk 5, reduce)``."""
    op = {COPY: "copy", REDUCE: "reduce"}.get(int(schedule.op[row]), f"op {schedule.op[row]}")
    return (
        f"row {row} (channel {schedule.channel[row]}, step {schedule.step[row]}: rank {schedule.src[row]} -> "
        f"{schedule.dst[row]}, chunk {schedule.chunk[row]}, {op})"
    )


class _Trees:
    """Interned commutative reduction trees over the parts of ``num_ranks`` ranks.

    Tree r < num_ranks is the part of rank r itself. ``contributors`` are bitsets of shape (num_trees, words)
    in uint64; ``repeats`` says whether a part is in the tree more than once.
    """

    def __init__(self, num_ranks: int) -> None:
        self._number_of: dict[int, int] = {}
        self._num_trees = num_ranks
        rank = np.arange(num_ranks)
        self.contributors = np.zeros((num_ranks, (num_ranks + 63) // 64), dtype=np.uint64)
        self.contributors[rank, rank // 64] = np.uint64(1) << (rank % 64).astype(np.uint64)
        self.repeats = np.zeros(num_ranks, dtype=np.bool_)

    def join(self, left: IntArray, right: IntArray) -> IntArray:
        """Numbers of the trees (left, right), elementwise; new ones are interned."""
        keys, where = np.unique(np.minimum(left, right) << 32 | np.maximum(left, right), return_inverse=True)
        numbers = np.empty(len(keys), dtype=np.int64)
        new = []
        for place, key in enumerate(keys.tolist()):
            number = self._number_of.get(key)
            if number is None:
                number = self._number_of[key] = self._num_trees
                self._num_trees += 1
                new.append(place)
            numbers[place] = number
        if new:
            self._describe(numbers[new], keys[new] >> 32, keys[new] & 0xFFFFFFFF)
        joined: IntArray = numbers[where]
        return joined

    def _describe(self, numbers: IntArray, left: IntArray, right: IntArray) -> None:
        if self._num_trees > len(self.repeats):
            capacity = max(self._num_trees, 2 * len(self.repeats))
            grown = np.zeros((capacity, self.contributors.shape[1]), dtype=np.uint64)
            grown[: len(self.contributors)] = self.contributors
            self.contributors = grown
            self.repeats = np.concatenate(
                (self.repeats, np.zeros(capacity - len(self.repeats), dtype=np.bool_))
            )
        mine, other = self.contributors[left], self.contributors[right]
        self.contributors[numbers] = mine | other
        self.repeats[numbers] = self.repeats[left] | self.repeats[right] | (mine & other).any(axis=1)


def _check_result(schedule: Schedule) -> tuple[Violation, ...]:
    num_ranks = schedule.num_ranks
    trees = _Trees(num_ranks)
    held = np.repeat(np.arange(num_ranks, dtype=np.int32)[:, None], schedule.num_chunks, axis=1)
    order = np.argsort(schedule.step, kind="stable")
    ends = np.cumsum(np.bincount(schedule.step)).tolist()
    begin = 0
    for end in ends:
        rows = order[begin:end]
        begin = end
        dst, chunk = schedule.dst[rows], schedule.chunk[rows]
        arriving = held[schedule.src[rows], chunk].astype(np.int64)
        reduces = schedule.op[rows] == REDUCE
        if reduces.any():
            arriving[reduces] = trees.join(
                arriving[reduces], held[dst[reduces], chunk[reduces]].astype(np.int64)
            )
        held[dst, chunk] = arriving
    if schedule.collective == "reduce_scatter":
        chunks = np.arange(schedule.num_chunks)
        owners = _owners(schedule)
        return _check_final(held[owners, chunks][None, :], trees, num_ranks, owners)
    if schedule.collective == "allgather":
        return _check_gathered(held, _owners(schedule))
    return _check_final(held, trees, num_ranks)


def _check_gathered(held: IntColumn, owners: IntArray) -> tuple[Violation, ...]:
    wrong = held != owners[None, :]
    if not wrong.any():
        return ()
    rank, chunk, count = _first_cell(wrong)
    message = (
        f"rank {rank} ends with chunk {chunk} of rank {held[rank, chunk]} in place of rank {owners[chunk]}'s"
        f" (cases in all: {count})"
    )
    return (Violation(code="wrong-part", message=message),)


def _check_final(
    held: IntColumn, trees: _Trees, num_ranks: int, owners: IntArray | None = None
) -> tuple[Violation, ...]:
    """What is wrong with the trees that ranks end with.

    Args:
        held: of each rank and chunk; where there are owners, of each chunk at its own, shape (1, num_chunks).
        trees: that ``held`` names.
        num_ranks: whose parts must be there.
        owners: the rank that each chunk counts on alone; None for all.
    """

    def first(cells: npt.NDArray[np.bool_]) -> tuple[int, int, int]:
        rank, chunk, count = _first_cell(cells)
        return rank if owners is None else int(owners[chunk]), chunk, count

    found = []
    finals = np.unique(held)
    everyone = np.bitwise_or.reduce(trees.contributors[:num_ranks], axis=0)
    incomplete = finals[(trees.contributors[finals] != everyone).any(axis=1)]
    if len(incomplete):
        cells = np.isin(held, incomplete)
        bits = trees.contributors[held[cells][0]]
        rank, chunk, count = first(cells)
        absent = [r for r in range(num_ranks) if not int(bits[r // 64]) >> (r % 64) & 1]
        found.append(
            Violation(
                code="missing",
                message=f"rank {rank} ends with chunk {chunk} without the part of rank {absent[0]}"
                f" ({len(absent)} of {num_ranks} parts are missing; cases in all: {count})",
            )
        )
    repeated = finals[trees.repeats[finals]]
    if len(repeated):
        rank, chunk, count = first(np.isin(held, repeated))
        message = (
            f"rank {rank} ends with chunk {chunk} that has some rank's part twice (cases in all: {count})"
        )
        found.append(Violation(code="repeated", message=message))
    if not found:
        differs = held != held[0]
        if differs.any():
            rank, chunk, count = _first_cell(differs)
            message = (
                f"ranks 0 and {rank} reduce chunk {chunk} in different orders: results may differ in the"
                f" last bits (cases in all: {count})"
            )
            found.append(Violation(code="order-of-reduction", message=message))
    return tuple(found)


def _first_cell(cells: npt.NDArray[np.bool_]) -> tuple[int, int, int]:
    rank, chunk = np.unravel_index(int(np.argmax(cells)), cells.shape)
    return int(rank), int(chunk), int(np.count_nonzero(cells))

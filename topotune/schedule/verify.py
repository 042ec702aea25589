"""Proof that a schedule does its collective: the one place with all that makes a schedule legal.

Theory of operation. Every value that a rank can hold of a chunk is a reduction tree over the ranks' own
parts. Trees are interned: a tree is a number, the pair (smaller, larger) of its two subtrees' numbers, so two
trees that differ only by the order of operands are the same number, and comparing them costs one comparison.
IEEE addition, minimum, maximum and product commute but do not associate: equal numbers are exactly what makes
results bitwise equal. With each tree comes the bitset of ranks whose part is in it, and whether any part is
in it twice. The schedule is run on these numbers, step by step, all transfers of a step at once. At the end
every rank must hold, of every chunk, one and the same tree with every rank's part exactly once. What
servers end with does not count, and what they began with must be in no tree. Of a
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
MAX_STEPS = 2**21
MAX_TREE_BYTES = 2**30
# Bitsets of the trees of chunks that are looked at together.
_BLOCK_BYTES = 2**28


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One way in which a schedule does not do its collective.

    Attributes:
        code: ``columns``, ``size``, ``chunk-bounds``, ``part-bounds``, ``range``, ``order``, ``self-send``,
            ``chunk-channel``, ``received-twice``, ``reduces``, ``servers``, ``missing``, ``scratch``,
            ``repeated``, ``wrong-part`` or ``order-of-reduction``.
        message: what, where, the first case, and how many more there are.
    """

    code: str
    message: str


def verify(schedule: Schedule) -> tuple[Violation, ...]:
    """All kinds of violations found; empty where the schedule is proven.

    Time O(num_transfers · log), memory some copies of the columns, O(num_ranks · num_chunks), and bitsets of
    trees of num_ranks / 8 bytes each, for a quarter of a gigabyte of them at a time. Trees are only followed
    where the columns are well-formed.
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
    servers = schedule.servers
    if servers and (
        schedule.collective != "allreduce"
        or any(a >= b for a, b in pairwise(servers))
        or not 0 <= servers[0] <= servers[-1] < schedule.num_ranks
        or len(servers) == schedule.num_ranks
    ):
        shown = ", ".join(map(str, servers[:8])) + (", …" if len(servers) > 8 else "")
        text = f"servers {shown} are not some of the ranks of an allreduce, ascending"
        found.append(Violation(code="servers", message=text))
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
        ("step", schedule.step, MAX_STEPS),
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

    Equal trees made in one call of `join` have one number; those made in several have one only behind
    `one_number_each`, which takes longer and is rarely needed: partners combine in the same step.

    Args:
        num_ranks: n.
        most_joins: how many pairs `join` will be given in all.
    """

    def __init__(self, num_ranks: int, most_joins: int) -> None:
        self._num_ranks = num_ranks
        self._num_trees = num_ranks
        self._keys: list[IntArray] = []
        rank = np.arange(num_ranks)
        self.contributors = np.zeros((num_ranks + most_joins, (num_ranks + 63) // 64), dtype=np.uint64)
        self.contributors[rank, rank // 64] = np.uint64(1) << (rank % 64).astype(np.uint64)
        self.repeats = np.zeros(num_ranks + most_joins, dtype=np.bool_)

    def join(self, left: IntArray, right: IntArray) -> IntArray:
        """Numbers of the trees (left, right), elementwise."""
        keys, where = np.unique(np.minimum(left, right) << 32 | np.maximum(left, right), return_inverse=True)
        left, right = keys >> 32, keys & 0xFFFFFFFF
        first = self._num_trees
        self._num_trees += len(keys)
        self._keys.append(keys)
        mine, other = self.contributors[left], self.contributors[right]
        self.contributors[first : self._num_trees] = mine | other
        self.repeats[first : self._num_trees] = (
            self.repeats[left] | self.repeats[right] | (mine & other).any(axis=1)
        )
        joined: IntArray = first + where
        return joined

    def one_number_each(self) -> IntArray:
        """For each tree the first number that an equal one has; shape (num_trees,)."""
        one = np.arange(self._num_trees)
        number_of: dict[int, int] = {}
        first = self._num_ranks
        for keys in self._keys:
            left, right = one[keys >> 32], one[keys & 0xFFFFFFFF]
            now = np.minimum(left, right) << 32 | np.maximum(left, right)
            for number, key in enumerate(now.tolist(), first):
                one[number] = number_of.setdefault(key, number)
            first += len(keys)
        return one


def _check_result(schedule: Schedule) -> tuple[Violation, ...]:
    """Run the schedule on trees, some chunks at a time: chunks have nothing to do with each other."""
    num_ranks, num_chunks = schedule.num_ranks, schedule.num_chunks
    tree_bytes = (num_ranks + 63) // 64 * 8
    joins = np.bincount(schedule.chunk[schedule.op == REDUCE], minlength=num_chunks)
    most = int(joins.argmax())
    if joins[most] > MAX_TREE_BYTES // tree_bytes:
        message = (
            f"chunk {most} is combined {joins[most]} times, more than the {MAX_TREE_BYTES // tree_bytes}"
            f" that are followed on {num_ranks} ranks"
        )
        return (Violation(code="size", message=message),)
    block_of_chunk = np.cumsum(joins) * tree_bytes // _BLOCK_BYTES
    order = np.argsort(block_of_chunk[schedule.chunk] << 32 | schedule.step, kind="stable")
    place = block_of_chunk[schedule.chunk[order]] << 32 | schedule.step[order]
    cases = _Cases(schedule)
    blocks, first_chunks = np.unique(block_of_chunk, return_index=True)
    row_bounds = np.searchsorted(place, [block << 32 for block in blocks.tolist()]).tolist()
    ends = [*first_chunks.tolist()[1:], num_chunks]
    for first, end, begin_row, end_row in zip(
        first_chunks.tolist(), ends, row_bounds, [*row_bounds[1:], len(order)], strict=True
    ):
        trees = _Trees(num_ranks, int(joins[first:end].sum()))
        mine = slice(begin_row, end_row)
        held = _run(schedule, trees, order[mine], place[mine], range(first, end))
        cases.add(held, trees, first)
    return cases.violations()


def _run(
    schedule: Schedule, trees: _Trees, rows: IntArray, place: IntArray, chunks: range
) -> npt.NDArray[np.int32]:
    """The tree that each rank ends with of each of these chunks; ``rows`` are theirs, by step."""
    num_ranks = schedule.num_ranks
    held = np.repeat(np.arange(num_ranks, dtype=np.int32)[:, None], len(chunks), axis=1)
    bounds = [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), len(rows)]
    for begin, end in pairwise(bounds):
        now = rows[begin:end]
        dst, chunk = schedule.dst[now], schedule.chunk[now] - chunks.start
        arriving = held[schedule.src[now], chunk].astype(np.int64)
        reduces = schedule.op[now] == REDUCE
        if reduces.any():
            arriving[reduces] = trees.join(
                arriving[reduces], held[dst[reduces], chunk[reduces]].astype(np.int64)
            )
        held[dst, chunk] = arriving
    return held


class _Cases:
    """What is wrong with the trees that ranks end with: the first case of each kind, and their number."""

    def __init__(self, schedule: Schedule) -> None:
        self._num_ranks = schedule.num_ranks
        self._servers = schedule.servers
        self._parts = np.setdiff1d(np.arange(schedule.num_ranks), schedule.servers)
        self._gathers = schedule.collective == "allgather"
        self._owners = None if schedule.collective == "allreduce" else _owners(schedule)
        self._first: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def add(self, held: IntColumn, trees: _Trees, first_chunk: int) -> None:
        """Look at some chunks; shape (num_ranks, num_chunks), numbered from ``first_chunk``."""
        num_chunks = held.shape[1]
        owners = None if self._owners is None else self._owners[first_chunk : first_chunk + num_chunks]
        if owners is not None and self._gathers:
            self._add_gathered(held, owners, first_chunk)
            return
        if owners is not None:
            # Each chunk counts on its owner alone.
            held = held[owners, np.arange(num_chunks)][None, :]
        elif self._servers:
            held = held[self._parts]
        finals = np.unique(held)
        everyone = np.bitwise_or.reduce(trees.contributors[self._parts], axis=0)
        incomplete = finals[(trees.contributors[finals] & everyone != everyone).any(axis=1)]
        if len(incomplete):
            row, chunk = self._note("missing", np.isin(held, incomplete))
            bits = trees.contributors[held[row, chunk]]
            absent = [r for r in self._parts.tolist() if not int(bits[r // 64]) >> (r % 64) & 1]
            rank = int(self._parts[row] if owners is None else owners[chunk])
            self._first.setdefault(
                "missing",
                f"rank {rank} ends with chunk {first_chunk + chunk} without the part of rank {absent[0]}"
                f" ({len(absent)} of {len(self._parts)} parts are missing; cases in all: {{count}})",
            )
        scratch = finals[(trees.contributors[finals] & ~everyone).any(axis=1)]
        if len(scratch):
            row, chunk = self._note("scratch", np.isin(held, scratch))
            bits = trees.contributors[held[row, chunk]]
            server = next(r for r in self._servers if int(bits[r // 64]) >> (r % 64) & 1)
            self._first.setdefault(
                "scratch",
                f"rank {self._parts[row]} ends with chunk {first_chunk + chunk} that has in it what server"
                f" {server} held before (cases in all: {{count}})",
            )
        repeated = finals[trees.repeats[finals]]
        if len(repeated):
            row, chunk = self._note("repeated", np.isin(held, repeated))
            rank = int(self._parts[row] if owners is None else owners[chunk])
            self._first.setdefault(
                "repeated",
                f"rank {rank} ends with chunk {first_chunk + chunk} that has some rank's part twice"
                " (cases in all: {count})",
            )
        differs = held != held[0]
        if differs.any():
            numbers = trees.one_number_each()[held]
            differs = numbers != numbers[0]
        if differs.any():
            row, chunk = self._note("order-of-reduction", differs)
            self._first.setdefault(
                "order-of-reduction",
                f"ranks {self._parts[0]} and {self._parts[row]} reduce chunk {first_chunk + chunk} in"
                " different orders: results may differ in the last bits (cases in all: {count})",
            )

    def _add_gathered(self, held: IntColumn, owners: IntArray, first_chunk: int) -> None:
        wrong = held != owners[None, :]
        if wrong.any():
            rank, chunk = self._note("wrong-part", wrong)
            self._first.setdefault(
                "wrong-part",
                f"rank {rank} ends with chunk {first_chunk + chunk} of rank {held[rank, chunk]} in place of"
                f" rank {owners[chunk]}'s (cases in all: {{count}})",
            )

    def _note(self, code: str, cells: npt.NDArray[np.bool_]) -> tuple[int, int]:
        self._count[code] = self._count.get(code, 0) + int(np.count_nonzero(cells))
        rank, chunk = np.unravel_index(int(np.argmax(cells)), cells.shape)
        return int(rank), int(chunk)

    def violations(self) -> tuple[Violation, ...]:
        """In the order of their weight; different orders count only where every part is there once."""
        parts = ("missing", "scratch", "repeated", "wrong-part")
        wrong: list[str] = [code for code in parts if code in self._first]
        if not wrong and "order-of-reduction" in self._first:
            wrong = ["order-of-reduction"]
        return tuple(
            Violation(code=code, message=self._first[code].format(count=self._count[code])) for code in wrong
        )

"""Schedule ↔ JSON (``"schema": "topotune/schedule"``): columns stay columns. Reading verifies.

A ring of 2,048 ranks has 50 million numbers, which as values of Python take gigabytes. So a file is
written and read in blocks: columns that are long are cut out of its text first and read by themselves; what
is left is read as any document is.

| schema_version | change |
| --- | --- |
| 1 | first |
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from topotune.documents import MAX_MEASUREMENT_BYTES, Migrations, Value, document_of, parse_json, read_bytes
from topotune.errors import InputFileError
from topotune.plan.algorithms import MAX_WEIGHT
from topotune.plan.grouping import MAX_CHUNK_DENOMINATOR
from topotune.schedule.assemble import MAX_RANKS, MAX_TRANSFERS
from topotune.schedule.model import SCHEMA, SCHEMA_VERSION, IntColumn, ParamValue, Schedule
from topotune.schedule.verify import MAX_CELLS, verify

MAX_SCHEDULE_BYTES: Final = 512 * 2**20
MAX_PARAMS: Final = 16

MIGRATIONS: Final[Migrations] = {}
"""Older schema_version → what makes a document of the next version out of it; version 1 is the first."""

_COLUMNS: Final = ("step", "channel", "src", "dst", "chunk", "op")
_LONG_COLUMN: Final = re.compile(rb'"(step|channel|src|dst|chunk|op)"\s*:\s*\[([0-9,\s]{65536,})\]')
"""A key outside of any text: inside one its quotes would have backslashes before them."""
_NUMBERS_A_BLOCK: Final = 2**16
_NUMBERS_A_LINE: Final = 32


def to_document(schedule: Schedule) -> dict[str, Any]:
    """The schedule as JSON knows it: numbers, lists, texts."""
    assert schedule.collective == "allreduce", f"the format has no word for {schedule.collective}"
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "algorithm": schedule.algorithm,
        "params": dict(schedule.params),
        "num_ranks": schedule.num_ranks,
        **({"servers": list(schedule.servers)} if schedule.servers else {}),
        "chunk_bounds": list(schedule.chunk_bounds),
        **{name: getattr(schedule, name).tolist() for name in _COLUMNS},
    }


def document_blocks(schedule: Schedule) -> Iterator[bytes]:
    """The text of `to_document`, in blocks of at most a megabyte or so; columns come last."""
    heads = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "algorithm": schedule.algorithm,
        "num_ranks": schedule.num_ranks,
        **({"servers": list(schedule.servers)} if schedule.servers else {}),
        "params": dict(schedule.params),
    }
    mark = "{"
    for name, value in heads.items():
        yield f'{mark}\n "{name}": {json.dumps(value, ensure_ascii=False, allow_nan=False)}'.encode()
        mark = ","
    bounds = np.asarray(schedule.chunk_bounds, dtype=np.int64)
    for name, column in (("chunk_bounds", bounds), *((name, getattr(schedule, name)) for name in _COLUMNS)):
        yield f',\n "{name}": ['.encode()
        for begin in range(0, len(column), _NUMBERS_A_BLOCK):
            numbers = list(map(str, column[begin : begin + _NUMBERS_A_BLOCK].tolist()))
            lines = [
                ", ".join(numbers[first : first + _NUMBERS_A_LINE])
                for first in range(0, len(numbers), _NUMBERS_A_LINE)
            ]
            yield (("," if begin else "") + "\n  " + ",\n  ".join(lines)).encode()
        yield b"\n ]"
    yield b"\n}\n"


def read_schedule(path: str | os.PathLike[str]) -> Schedule:
    """Read and verify a schedule from a JSON file.

    Raises:
        InputFileError: as `from_document`, or the file cannot be read or is no JSON.
    """
    source = os.fspath(path)
    rest, columns = cut_long_columns(read_bytes(path, max_bytes=MAX_SCHEDULE_BYTES), source)
    if len(rest) > MAX_MEASUREMENT_BYTES:
        raise InputFileError(
            source,
            f"has {len(rest)} bytes beside long columns of whole numbers, more than the"
            f" {MAX_MEASUREMENT_BYTES} that a schedule may have",
        )
    return from_document(parse_json(rest, source, max_bytes=MAX_MEASUREMENT_BYTES), columns)


def cut_long_columns(data: bytes, source: str) -> tuple[bytes, dict[str, IntColumn]]:
    """The text with long columns emptied (its lines stay where they are), and what stood in them.

    Args:
        data: of a file that may hold a schedule.
        source: the file, for errors.

    Raises:
        InputFileError: a long column that is no list of whole numbers below 2^31.
    """
    found = list(_LONG_COLUMN.finditer(data))
    if len({match[1] for match in found}) < len(found):
        return data, {}  # the same key twice: the reader of documents says where
    kept: list[bytes] = []
    columns: dict[str, IntColumn] = {}
    at = 0
    for match in found:
        begin, end = match.span(2)
        name = match[1].decode()
        columns[name] = _column(data, begin, end, name, source)
        kept += [data[at:begin], b"\n" * data.count(b"\n", begin, end)]
        at = end
    return b"".join((*kept, data[at:])), columns


def _column(data: bytes, begin: int, end: int, name: str, source: str) -> IntColumn:
    """The numbers between two places of a text of digits, commas and space."""
    count = data.count(b",", begin, end) + 1
    if count > MAX_TRANSFERS:
        raise InputFileError(source, f"has {count} transfers, more than {MAX_TRANSFERS}", place=name)
    column: IntColumn = np.empty(count, dtype=np.int32)
    done = 0
    while done < count:
        cut = data.find(b",", min(begin + 2**20, end), end)
        cut = end if cut < 0 else cut
        try:
            numbers = np.asarray(json.loads(b"[" + data[begin:cut] + b"]"), dtype=np.int64)
        except (ValueError, OverflowError) as problem:
            raise InputFileError(
                source, f"is no list of whole numbers behind item {max(0, done - 1)}: {problem}", place=name
            ) from problem
        if len(numbers) == 0 or numbers.max() > np.iinfo(np.int32).max:
            raise InputFileError(
                source, f"holds more than {np.iinfo(np.int32).max} behind item {max(0, done - 1)}", place=name
            )
        column[done : done + len(numbers)] = numbers
        done += len(numbers)
        begin = cut + 1
    return column


def from_document(value: Value, columns: Mapping[str, IntColumn] | None = None) -> Schedule:
    """Take a schedule from a JSON document, and verify it.

    Args:
        value: the whole document, as `topotune.documents.parse_json` gives it.
        columns: those that were read before, of whole numbers from 0, and stand empty in the document.

    Raises:
        InputFileError: no schedule, a newer version, a value out of bounds, or a schedule that is no
            allreduce.
    """
    document = document_of(value, SCHEMA, SCHEMA_VERSION, MIGRATIONS)
    members = document.members(
        ("schema", "schema_version", "algorithm", "num_ranks", "chunk_bounds", *_COLUMNS),
        ("params", "servers"),
    )
    num_ranks = members["num_ranks"].integer(1, MAX_RANKS)
    bounds = _integers(members["chunk_bounds"], MAX_CELLS // num_ranks + 1, MAX_CHUNK_DENOMINATOR, "bounds")
    taken: dict[str, Any] = dict(columns or {})
    for name in _COLUMNS:
        if name not in taken:
            numbers = _integers(members[name], MAX_TRANSFERS, 2**31 - 1, "transfers")
            taken[name] = np.asarray(numbers, dtype=np.int32)
        taken[name].setflags(write=False)
    params = members["params"].mapping(MAX_PARAMS) if "params" in members else {}
    for name in set(params) & set(columns or {}):
        params[name].fail("stands for a column, and is no param")
    schedule = Schedule(
        algorithm=members["algorithm"].text(max_length=100),
        num_ranks=num_ranks,
        chunk_bounds=tuple(bounds),
        params={name: _param(param) for name, param in params.items()},
        servers=tuple(_ranks(members["servers"])) if "servers" in members else (),
        **taken,
    )
    for violation in verify(schedule):
        document.fail(
            f"is no allreduce: {violation.message}",
            hint="a schedule must leave every rank with each rank's part exactly once, reduced in one order",
        )
    return schedule


def _integers(value: Value, max_items: int, maximum: int, what: str, *, minimum: int = 0) -> list[int]:
    """A list of bounded whole numbers; one pass in C where nothing is wrong, item by item to say what is."""
    if not isinstance(value.raw, list) or len(value.raw) > max_items or set(map(type, value.raw)) - {int}:
        return [item.integer(minimum, maximum) for item in value.items(max_items, what=what)]
    if value.raw and not minimum <= min(value.raw) <= max(value.raw) <= maximum:
        return [item.integer(minimum, maximum) for item in value.items(max_items, what=what)]
    return value.raw


def _param(value: Value) -> ParamValue:
    """A number, text or truth value, or ranks in lists, in lists of lists, or one level deeper."""
    if isinstance(value.raw, bool):
        return value.raw
    if isinstance(value.raw, str):
        return value.text()
    if isinstance(value.raw, list):
        if not _holds_lists(value):
            return _ranks(value)
        items = value.items(MAX_RANKS)
        if not _holds_lists(items[0]):
            return [_ranks(item) for item in items]
        return [[_ranks(inner) for inner in item.items(MAX_RANKS)] for item in items]
    return value.number(-(2**53), 2**53)


def _holds_lists(value: Value) -> bool:
    return isinstance(value.raw, list) and bool(value.raw) and isinstance(value.raw[0], list)


def _ranks(value: Value) -> list[int]:
    """Ranks; or of a forest parents, -1 for the root, and weights."""
    return _integers(value, MAX_RANKS, MAX_WEIGHT, "numbers", minimum=-1)

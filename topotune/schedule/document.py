"""Schedule ↔ JSON (``"schema": "topotune/schedule"``): columns stay columns. Reading verifies.

| schema_version | change |
| --- | --- |
| 1 | first |
"""

import os
from typing import Any, Final

import numpy as np

from topotune.documents import Migrations, Value, document_of, parse_json, read_bytes
from topotune.plan.algorithms import MAX_WEIGHT
from topotune.plan.grouping import MAX_CHUNK_DENOMINATOR
from topotune.schedule.assemble import MAX_RANKS, MAX_TRANSFERS
from topotune.schedule.model import SCHEMA, SCHEMA_VERSION, IntColumn, ParamValue, Schedule
from topotune.schedule.verify import MAX_CELLS, verify

MAX_SCHEDULE_BYTES: Final = 256 * 2**20
MAX_PARAMS: Final = 16

MIGRATIONS: Final[Migrations] = {}
"""Older schema_version → what makes a document of the next version out of it; version 1 is the first."""

_COLUMNS: Final = ("step", "channel", "src", "dst", "chunk", "op")


def to_document(schedule: Schedule) -> dict[str, Any]:
    """The schedule as JSON knows it: numbers, lists, texts."""
    assert schedule.collective == "allreduce", f"the format has no word for {schedule.collective}"
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "algorithm": schedule.algorithm,
        "params": dict(schedule.params),
        "num_ranks": schedule.num_ranks,
        "chunk_bounds": list(schedule.chunk_bounds),
        **{name: getattr(schedule, name).tolist() for name in _COLUMNS},
    }


def read_schedule(path: str | os.PathLike[str]) -> Schedule:
    """Read and verify a schedule from a JSON file.

    Raises:
        InputFileError: as `from_document`, or the file cannot be read or is no JSON.
    """
    data = read_bytes(path, max_bytes=MAX_SCHEDULE_BYTES)
    return from_document(parse_json(data, os.fspath(path), max_bytes=MAX_SCHEDULE_BYTES))


def from_document(value: Value) -> Schedule:
    """Take a schedule from a JSON document, and verify it.

    Args:
        value: the whole document, as `topotune.documents.parse_json` gives it.

    Raises:
        InputFileError: no schedule, a newer version, a value out of bounds, or a schedule that is no
            allreduce.
    """
    document = document_of(value, SCHEMA, SCHEMA_VERSION, MIGRATIONS)
    members = document.members(
        ("schema", "schema_version", "algorithm", "num_ranks", "chunk_bounds", *_COLUMNS), ("params",)
    )
    num_ranks = members["num_ranks"].integer(1, MAX_RANKS)
    bounds = _integers(members["chunk_bounds"], MAX_CELLS // num_ranks + 1, MAX_CHUNK_DENOMINATOR, "bounds")
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        numbers = _integers(members[name], MAX_TRANSFERS, 2**31 - 1, "transfers")
        column: IntColumn = np.asarray(numbers, dtype=np.int32)
        column.setflags(write=False)
        columns[name] = column
    params = members["params"].mapping(MAX_PARAMS) if "params" in members else {}
    schedule = Schedule(
        algorithm=members["algorithm"].text(max_length=100),
        num_ranks=num_ranks,
        chunk_bounds=tuple(bounds),
        params={name: _param(param) for name, param in params.items()},
        **columns,
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

"""From transfers as broadcastable arrays to the sorted, read-only columns of a Schedule."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topotune.errors import UsageError
from topotune.plan.model import Collective
from topotune.schedule.model import IntColumn, Params, Schedule

MAX_RANKS = 4096
MAX_WRITTEN_RANKS = 2048
"""Most that every algorithm is written out for: beyond, most of them have too many transfers."""
MAX_PIECES = 1024
MAX_TRANSFERS = 2**24
"""Of one schedule: its columns take 400 MB. Two rings of 2,048 ranks, one each way, come to that."""

IntArray = npt.NDArray[np.int64]


class Transfers(NamedTuple):
    """Some transfers: integers or arrays that broadcast against each other."""

    step: IntArray | int
    src: IntArray | int
    dst: IntArray | int
    chunk: IntArray | int
    op: int
    channel: IntArray | int = 0


def assemble(
    algorithm: str,
    params: Params,
    num_ranks: int,
    chunk_bounds: Sequence[int],
    parts: Sequence[Transfers],
    *,
    collective: Collective = "allreduce",
    servers: Sequence[int] = (),
) -> Schedule:
    """Join ``parts`` to one Schedule, its rows sorted by (channel, step, src, dst, chunk).

    Raises:
        UsageError: more than ``MAX_TRANSFERS`` transfers.
    """
    total = sum(np.broadcast(*part).size for part in parts)
    check_num_transfers(total, algorithm, num_ranks)
    columns = np.empty((6, total), dtype=np.int32)
    at = 0
    for part in parts:
        step, src, dst, chunk, op, channel = np.broadcast_arrays(*part)
        end = at + step.size
        for row, values in enumerate((step, channel, src, dst, chunk, op)):
            columns[row, at:end] = values.reshape(-1)
        at = end
    order = _order(columns)
    for column in columns:  # one at a time: a second copy of all would double what this takes
        column[:] = column[order]
    columns.setflags(write=False)
    return Schedule(
        algorithm=algorithm,
        params=params,
        num_ranks=num_ranks,
        chunk_bounds=tuple(chunk_bounds),
        step=_column(columns, 0),
        channel=_column(columns, 1),
        src=_column(columns, 2),
        dst=_column(columns, 3),
        chunk=_column(columns, 4),
        op=_column(columns, 5),
        collective=collective,
        servers=tuple(servers),
    )


def _order(columns: IntColumn) -> IntArray:
    """Of the rows, by (channel, step, src, dst, chunk); by one number each where that holds them all."""
    step, channel, src, dst, chunk, _ = columns
    ranges = [int(column.max(initial=0)) + 1 for column in (channel, step, src, dst, chunk)]
    if math.prod(ranges) > 2**63 - 1:
        return np.lexsort((chunk, dst, src, step, channel))
    key: IntArray = np.zeros(columns.shape[1], dtype=np.int64)
    for column, span in zip((channel, step, src, dst, chunk), ranges, strict=True):
        key *= span
        key += column
    return np.argsort(key, kind="stable")


def _column(columns: IntColumn, row: int) -> IntColumn:
    column: IntColumn = columns[row]
    return column


def check_num_transfers(num_transfers: int, algorithm: str, num_ranks: int) -> None:
    """Refuse a schedule before its arrays are made.

    Raises:
        UsageError: more than ``MAX_TRANSFERS`` transfers.
    """
    if num_transfers > MAX_TRANSFERS:
        raise UsageError(
            f"{algorithm} for {num_ranks} ranks would have {num_transfers} transfers,"
            f" more than {MAX_TRANSFERS}",
            hint="use fewer pieces or channels",
        )


def check_count(name: str, value: object, most: int) -> int:
    """``value`` as a count in ``[1, most]``.

    Raises:
        UsageError: not a whole number, or out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise UsageError(f"{name} is {value!r}, not a whole number from 1 to {most}")
    return value

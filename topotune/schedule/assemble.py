"""From transfers as broadcastable arrays to the sorted, read-only columns of a Schedule."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topotune.errors import UsageError
from topotune.plan.model import Collective
from topotune.schedule.model import IntColumn, Params, Schedule

MAX_RANKS = 4096
MAX_PIECES = 1024
MAX_TRANSFERS = 2**22

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
    step, channel, src, dst, chunk, _ = columns
    columns = columns[:, np.lexsort((chunk, dst, src, step, channel))]
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
    )


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

"""Is what an executable computes an allreduce? Checked before anything is timed."""

import math
import zlib
from collections.abc import Callable
from typing import Final

import torch
import torch.distributed as dist

from topotune.errors import UsageError, WrongResultError
from topotune.execute.communicator import Communicator
from topotune.execute.executable import FLOAT_DTYPES, Executable
from topotune.units import format_bytes

_PATTERN_ELEMENTS: Final = 65521
"""A prime: no chunk is a whole number of patterns long, so a chunk in the wrong place does not match."""


def check_exact(executable: Executable, message_bytes: int, *, dtype: torch.dtype = torch.float32) -> None:
    """Run an allreduce of known integers, and one of fractions; collective over its communicator.

    The integers differ on every rank and their sum is exact in ``dtype`` in whatever order: every rank must
    have exactly this sum. The fractions (floats only) are rounded on the way: all ranks must have the same
    bits.

    Args:
        executable: what to check.
        message_bytes: size of the messages, rounded down to whole elements.
        dtype: of the elements.

    Raises:
        WrongResultError: on all ranks, if the result is wrong on any: names algorithm, size, rank, first
            wrong index and both values, or the ranks whose bits differ.
        UsageError: ``dtype`` is too narrow for exact sums over so many ranks, or not served.
        RunError: a rank did not come in time, or a connection broke.
    """
    communicator = executable.communicator
    if not executable.supports(dtype, dist.ReduceOp.SUM):
        raise UsageError(f"{executable.algorithm} does not serve sums of {dtype}")
    num_elements = message_bytes // dtype.itemsize
    pattern = _pattern(dtype, communicator.size)
    weight_sum = communicator.size * (communicator.size + 1) // 2
    result = _repeat(pattern * (communicator.rank + 1), num_elements, dtype)
    executable.allreduce_(result, dist.ReduceOp.SUM)
    expected = _repeat(pattern * weight_sum, num_elements, dtype)
    wrong_index, value, wanted = -1, 0.0, 0.0
    if not torch.equal(result, expected):
        wrong_index = int((result != expected).nonzero()[0])
        value, wanted = result[wrong_index].item(), expected[wrong_index].item()
    digest = 0
    if dtype in FLOAT_DTYPES:
        fractions = _repeat((pattern + 1) / (3.0 + communicator.rank), num_elements, dtype)
        executable.allreduce_(fractions, dist.ReduceOp.SUM)
        digest = zlib.crc32(fractions.view(torch.uint8).numpy().data)
    verdicts = _gather(communicator, [float(wrong_index), float(value), float(wanted), float(digest)])
    what = (
        f"{executable.algorithm} {dict(executable.params)} of {format_bytes(message_bytes)} {str(dtype)[6:]}"
    )
    for rank, (index, got, want, _) in enumerate(verdicts):
        if index >= 0:
            raise WrongResultError(
                f"{what}: rank {rank} of {communicator.size} has {got:g} at index {index:.0f}, not {want:g}"
            )
    differing = [rank for rank, verdict in enumerate(verdicts) if verdict[3] != verdicts[0][3]]
    if differing:
        raise WrongResultError(f"{what}: ranks {differing} have other bits than rank 0")


def _pattern(dtype: torch.dtype, num_ranks: int) -> torch.Tensor:
    """Integers whose products with 1 … n sum up exactly; float64, shape (65521,)."""
    limit = round(2 / torch.finfo(dtype).eps) if dtype.is_floating_point else torch.iinfo(dtype).max
    values = min(limit // (num_ranks * (num_ranks + 1) // 2), 1000) + 1
    if values < 2:
        raise UsageError(
            f"no exact check of {dtype} over {num_ranks} ranks: it holds integers up to {limit} only"
        )
    index = torch.arange(_PATTERN_ELEMENTS, dtype=torch.int64)
    return ((index * 2654435761 >> 11) % values).to(torch.float64)  # Knuth's multiplicative hash


def _repeat(pattern: torch.Tensor, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
    times = max(1, -(-num_elements // _PATTERN_ELEMENTS))
    return pattern.to(dtype).repeat(times)[:num_elements].contiguous()


def _gather(communicator: Communicator, verdict: list[float]) -> list[list[float]]:
    own = torch.tensor(verdict, dtype=torch.float64)
    everyone = torch.empty(communicator.size * len(verdict), dtype=torch.float64)
    communicator.group.all_gather_single(everyone, own).wait()
    rows: list[list[float]] = everyone.view(communicator.size, len(verdict)).tolist()
    return rows


def check_parts_exact(
    exchange: Callable[[torch.Tensor, torch.Tensor], None],
    collective: str,
    communicator: Communicator,
    part_elements: int,
    name: str,
) -> None:
    """Have known integers scattered or gathered; collective over the communicator.

    Args:
        exchange: does it: gets all parts, float32, shape (n * part_elements,), and this rank's.
        collective: ``reduce_scatter`` or ``allgather``.
        communicator: of the ranks that take part.
        part_elements: m.
        name: of what does it, for messages.

    Raises:
        WrongResultError: on all ranks, if the result is wrong on any: names rank, first wrong index and both
            values.
        RunError: a rank did not come in time, or a connection broke.
    """
    rank, size = communicator.rank, communicator.size
    numbers = _repeat(_pattern(torch.float32, size), size * part_elements, torch.float32)
    own = slice(rank * part_elements, (rank + 1) * part_elements)
    if collective == "reduce_scatter":
        result, expected = torch.full((part_elements,), math.nan), numbers[own] * (size * (size + 1) // 2)
        exchange(numbers * (rank + 1), result)
    else:
        result, expected = torch.full_like(numbers, math.nan), numbers
        exchange(result, numbers[own].clone())
    wrong_index, value, wanted = -1, 0.0, 0.0
    if not torch.equal(result, expected):
        wrong_index = int((result != expected).nonzero()[0])
        value, wanted = result[wrong_index].item(), expected[wrong_index].item()
    for other, (index, got, want) in enumerate(
        _gather(communicator, [float(wrong_index), float(value), float(wanted)])
    ):
        if index >= 0:
            raise WrongResultError(
                f"{collective} by {name} of {part_elements} elements a rank: rank {other} of {size} has "
                f"{got:g} at index {index:.0f}, not {want:g}"
            )

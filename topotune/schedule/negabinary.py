"""Swing and Bine: butterflies whose partners stay near, for networks where distance costs.

Theory of operation. At level t of a butterfly over 2^k ranks, rank r meets r + d_t if r is even, r - d_t if
it is odd, with d_t = (1 - (-2)^(t+1)) / 3 = 1, -1, 3, -5, 11, … modulo 2^k. Levels go once this way and once
that, so distances grow by a factor of 2 and not by jumps of 2^t from one's own place as in recursive
doubling: fewer bytes cross the boundaries of racks, whatever their size, and on a torus less traffic meets on
one link. After t levels 2^t ranks around r have each other's parts.

``swing`` is the reduce-scatter and all-gather by it: a half of the message to the nearest partner, a quarter
to the next. ``bine`` swaps whole messages, farthest first: fewest steps. Numbers of ranks that are no power
of two fold neighbours in first and out last.

Source: De Sensi et al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024; De Sensi et
al., "Bine trees: enhancing collective operations by optimizing communication locality", SC 2025.
"""

import numpy as np
import numpy.typing as npt

from topotune.schedule.assemble import (
    MAX_RANKS,
    IntArray,
    Transfers,
    assemble,
    check_count,
    check_num_transfers,
)
from topotune.schedule.model import COPY, REDUCE, Schedule
from topotune.schedule.phases import core, fold_in, fold_out


def swing(num_ranks: int) -> Schedule:
    """Reduce-scatter, then all-gather, over partners that swing around each rank.

    Args:
        num_ranks: 1 to 4096.

    Raises:
        UsageError: a count out of range, or too many transfers.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    members, inner = _members(num_ranks)
    size = len(inner)
    check_num_transfers(2 * (num_ranks - 1) * size, "swing", num_ranks)
    partners = negabinary_partners(size)
    start = int(size < num_ranks)
    chunks = np.arange(size)
    scatter: list[Transfers] = []
    gather: list[Transfers] = []
    # What a rank still owns after each level: first all, at the end its own chunk.
    owned = np.ones((size, size), dtype=np.bool_)
    reaches = _reaches(partners)
    for level, partner in enumerate(partners):
        giver, chunk = np.nonzero(owned & reaches[level + 1][partner])
        gives, takes = inner[giver, 0], inner[partner[giver], 0]
        scatter.append(Transfers(start + level, gives, takes, chunk, REDUCE))
        back = start + 2 * len(partners) - 1 - level
        gather.append(Transfers(back, takes, gives, chunk, COPY))
        owned &= reaches[level + 1]
    end = start + 2 * len(partners)
    parts = [fold_in(members, chunks), *scatter, *gather, fold_out(members, chunks, first_step=end)]
    return assemble("swing", {}, num_ranks, range(size + 1), parts)


def bine(num_ranks: int) -> Schedule:
    """Whole messages swapped with partners at shrinking distances.

    Args:
        num_ranks: 1 to 4096.

    Raises:
        UsageError: a count out of range.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    members, inner = _members(num_ranks)
    chunks = np.zeros(1, dtype=np.int64)
    partners = negabinary_partners(len(inner))[::-1]
    start = int(len(inner) < num_ranks)
    swaps = [
        Transfers(start + step, inner[:, 0], inner[partner, 0], chunks, REDUCE)
        for step, partner in enumerate(partners)
    ]
    end = start + len(partners)
    parts = [fold_in(members, chunks), *swaps, fold_out(members, chunks, first_step=end)]
    return assemble("bine", {}, num_ranks, (0, 1), parts)


def negabinary_partners(num_ranks: int) -> list[IntArray]:
    """Whom each of 2^k ranks meets at each level; nearest level first. Each array has the shape (2^k,)."""
    rank = np.arange(num_ranks)
    levels = num_ranks.bit_length() - 1
    distances = [(1 - (-2) ** (level + 1)) // 3 for level in range(levels)]
    return [np.where(rank % 2 == 0, rank + far, rank - far) % num_ranks for far in distances]


def _members(num_ranks: int) -> tuple[IntArray, IntArray]:
    """All ranks, and those that stay when the others are folded in; shape (n, 1)."""
    members = np.arange(num_ranks)[:, None]
    return members, core(members)


def _reaches(partners: list[IntArray]) -> list[npt.NDArray[np.bool_]]:
    """``[level][rank, other]``: whether a rank meets another, itself or through others, from a level on."""
    reaches: list[npt.NDArray[np.bool_]] = [np.eye(1 << len(partners), dtype=np.bool_)]
    for partner in reversed(partners):
        reaches.append(reaches[-1] | reaches[-1][partner])
    return reaches[::-1]

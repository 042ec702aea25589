"""Recursive doubling and recursive halving-doubling: log2(n) steps, for any n by folding ranks in and out.

With n no power of two, n - 2^floor(log2 n) ranks hand their part to a neighbour first and get the result
last.

Source: Rabenseifner, "Optimization of collective reduction operations", 2004; Thakur, Rabenseifner, Gropp,
"Optimization of collective communication operations in MPICH", 2005, 4.5.
"""

import numpy as np

from topotune.plan.grouping import num_folded
from topotune.schedule.assemble import MAX_RANKS, assemble, check_count, check_num_transfers
from topotune.schedule.model import Schedule
from topotune.schedule.phases import (
    allgather_doubling,
    core,
    exchange_doubling,
    fold_in,
    fold_out,
    reduce_scatter_halving,
)


def recursive_doubling(num_ranks: int) -> Schedule:
    """Whole messages swapped at distances 1, 2, 4, …: fewest steps, log2(n) times the bytes.

    Args:
        num_ranks: 1 to 4096.

    Raises:
        UsageError: a count out of range.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    members, chunks = np.arange(num_ranks)[:, None], np.zeros(1, dtype=np.int64)
    start = 1 if num_folded(num_ranks) else 0
    middle = exchange_doubling(core(members), chunks, first_step=start)
    parts = [fold_in(members, chunks), *middle, fold_out(members, chunks, first_step=start + len(middle))]
    return assemble("recursive_doubling", {}, num_ranks, (0, 1), parts)


def halving_doubling(num_ranks: int) -> Schedule:
    """Reduce-scatter by halving, all-gather by doubling: the ring's bytes in 2 log2(n) steps.

    The message is cut in 2^floor(log2 n) chunks. The largest exchange is with the nearest rank.

    Args:
        num_ranks: 1 to 4096.

    Raises:
        UsageError: a count out of range, or too many transfers.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    members = np.arange(num_ranks)[:, None]
    folded = num_folded(num_ranks)
    inner = core(members)
    chunks = np.arange(len(inner))
    check_num_transfers(2 * (num_ranks - 1) * len(inner), "halving_doubling", num_ranks)
    start = 1 if folded else 0
    halving = reduce_scatter_halving(inner, chunks, chunks, first_step=start)
    doubling = allgather_doubling(inner, chunks, chunks, first_step=start + len(halving))
    end = start + len(halving) + len(doubling)
    parts = [fold_in(members, chunks), *halving, *doubling, fold_out(members, chunks, first_step=end)]
    return assemble("halving_doubling", {}, num_ranks, range(len(inner) + 1), parts)

"""Two-level allreduce for any grouping: reduce-scatter inside groups, allreduce across, all-gather inside.

Theory of operation. Let the groups have sizes g_1 … g_k. Cutting the message at all multiples of 1/g_1, …,
1/g_k gives shards such that every shard has exactly one owner in every group, and every rank of group j owns
exactly 1/g_j of the message, whether or not groups are of one size. With equal sizes these are the usual g
shards; with sizes 2 and 3 the cuts are 0, 1/3, 1/2, 2/3, 1, and the four shards belong to ranks 0 0 1 1 of
the first and 0 1 1 2 of the second group. So

1. inside every group the shards go around a ring, and each ends reduced at its owner;
2. for every shard, its k owners (one a group) allreduce it by ``across``;
3. inside every group the shards go around the ring again.

A shard has one reduction tree on all ranks: each group's ring builds one partial result, ``across`` joins
these in one order for all, and the rest are copies. Shards are cut finer where ``across`` itself scatters
(ring, halving_doubling).

``pieces`` cuts the message first and sends the pieces through the three stages one behind the other, as far
apart as the longer of the first two stages: while one piece crosses, the next is reduced inside the groups.

Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network
hierarchy", 2019.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from topotune.errors import UsageError
from topotune.schedule.assemble import (
    MAX_CHUNK_DENOMINATOR,
    MAX_PIECES,
    MAX_RANKS,
    IntArray,
    Transfers,
    assemble,
    check_count,
    check_num_transfers,
)
from topotune.schedule.model import Params, Schedule
from topotune.schedule.phases import (
    allgather_doubling,
    allgather_ring,
    common_cuts,
    core,
    exchange_doubling,
    fold_in,
    fold_out,
    num_folded,
    reduce_scatter_halving,
    reduce_scatter_ring,
)

ACROSS: Final = ("ring", "recursive_doubling", "halving_doubling")


def hierarchical(groups: Sequence[Sequence[int]], *, across: str = "ring", pieces: int = 1) -> Schedule:
    """Two-level allreduce over ``groups``.

    Args:
        groups: a partition of the ranks 0 … n-1; sizes may differ.
        across: ``ring``, ``recursive_doubling`` or ``halving_doubling``, among the owners of a shard.
        pieces: that the message is cut in, 1 to 1024.

    Raises:
        UsageError: no partition of 0 … n-1, another ``across``, a count out of range, too many transfers, or
            sizes with no usable common multiple.
    """
    members = check_groups(groups)
    if across not in ACROSS:
        raise UsageError(f"across is {across!r}, not one of {', '.join(ACROSS)}")
    check_count("pieces", pieces, MAX_PIECES)
    num_ranks = sum(map(len, members))
    num_parts = _num_parts(across, len(members))
    shard_bounds, shard_owners = common_cuts([len(group) for group in members])
    denominator = shard_bounds[-1] * num_parts * pieces
    if denominator > MAX_CHUNK_DENOMINATOR:
        raise UsageError(
            f"groups of sizes {sorted({len(group) for group in members})} share no common cut of the message",
            hint="use groups of fewer different sizes",
        )
    num_chunks = pieces * (len(shard_bounds) - 1) * num_parts
    transfers_per_chunk = 2 * (num_ranks - len(members)) + _across_transfers(across, len(members))
    check_num_transfers(num_chunks * transfers_per_chunk, "hierarchical", num_ranks)
    bounds = [
        (piece * shard_bounds[-1] + begin) * num_parts + part * (end - begin)
        for piece in range(pieces)
        for begin, end in pairwise(shard_bounds)
        for part in range(num_parts)
    ]
    owners = np.tile(np.repeat(shard_owners, num_parts, axis=1), pieces)
    part = np.tile(np.arange(num_parts), num_chunks // num_parts)
    chunks = np.arange(num_chunks)
    piece_of_chunk = chunks // (num_chunks // pieces)

    inside_steps = max(len(group) for group in members) - 1
    across_steps = _across_steps(across, len(members))
    first_step = piece_of_chunk * max(inside_steps, across_steps, 1)
    parts: list[Transfers] = []
    for group, owner in zip(members, owners, strict=True):
        inside = np.asarray(group)[:, None]
        parts.append(reduce_scatter_ring(inside, owner, chunks, first_step=first_step))
        parts.append(
            allgather_ring(inside, owner, chunks, first_step=first_step + inside_steps + across_steps)
        )
    owner_ranks = np.stack([np.asarray(group)[owner] for group, owner in zip(members, owners, strict=True)])
    parts += _allreduce_across(across, owner_ranks, part, chunks, first_step + inside_steps)
    params: Params = {"groups": [list(group) for group in members], "across": across, "pieces": pieces}
    return assemble("hierarchical", params, num_ranks, [*bounds, denominator], parts)


def check_groups(groups: object) -> tuple[tuple[int, ...], ...]:
    """``groups`` as a partition of 0 … n-1.

    Raises:
        UsageError: no list of lists of whole numbers, an empty group, a rank twice, or a gap.
    """
    if not isinstance(groups, Sequence) or isinstance(groups, str) or not groups:
        raise UsageError(f"groups is {groups!r:.100}, not a list of lists of ranks")
    seen: set[int] = set()
    for group in groups:
        if not isinstance(group, Sequence) or isinstance(group, str) or not group:
            raise UsageError(f"a group is {group!r:.100}, not a list of ranks")
        for rank in group:
            if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < MAX_RANKS:
                raise UsageError(f"groups names {rank!r:.100}, which is no rank from 0 to {MAX_RANKS - 1}")
            if rank in seen:
                raise UsageError(f"rank {rank} is in groups twice")
            seen.add(rank)
    if max(seen) != len(seen) - 1:
        missing = min(set(range(max(seen))) - seen)
        raise UsageError(f"groups names {len(seen)} ranks up to {max(seen)}, but not rank {missing}")
    return tuple(tuple(group) for group in groups)


def _num_parts(across: str, num_groups: int) -> int:
    if across == "ring":
        return num_groups
    return 1 if across == "recursive_doubling" else num_groups - num_folded(num_groups)


def _across_steps(across: str, num_groups: int) -> int:
    if across == "ring":
        return 2 * (num_groups - 1)
    exchanges = num_groups.bit_length() - 1
    folds = 2 if num_folded(num_groups) else 0
    return folds + (exchanges if across == "recursive_doubling" else 2 * exchanges)


def _across_transfers(across: str, num_groups: int) -> int:
    """Transfers of one chunk among its owners."""
    if across != "recursive_doubling":
        return 2 * (num_groups - 1)
    folded = num_folded(num_groups)
    inner = num_groups - folded
    return 2 * folded + inner * (inner.bit_length() - 1)


def _allreduce_across(
    across: str, members: IntArray, part: IntArray, chunks: IntArray, first_step: IntArray
) -> list[Transfers]:
    if across == "ring":
        return [
            reduce_scatter_ring(members, part, chunks, first_step=first_step),
            allgather_ring(members, part, chunks, first_step=first_step + len(members) - 1),
        ]
    inner = core(members)
    start = first_step + (1 if num_folded(len(members)) else 0)
    if across == "recursive_doubling":
        middle = exchange_doubling(inner, chunks, first_step=start)
    else:
        halving = reduce_scatter_halving(inner, part, chunks, first_step=start)
        middle = halving + allgather_doubling(inner, part, chunks, first_step=start + len(halving))
    last = fold_out(members, chunks, first_step=start + len(middle))
    return [fold_in(members, chunks, first_step=first_step), *middle, last]

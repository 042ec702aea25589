"""Allreduce for any grouping, in two or three levels: reduce-scatter, allreduce across, all-gather back.

Theory of operation. Let the groups have sizes g_1 … g_k. Cutting the message at all multiples of 1/g_1, …,
1/g_k gives shards such that every shard has exactly one owner in every group, and every rank of group j owns
exactly 1/g_j of the message, whether or not groups are of one size. With equal sizes these are the usual g
shards; with sizes 2 and 3 the cuts are 0, 1/3, 1/2, 2/3, 1, and the four shards belong to ranks 0 0 1 1 of
the first and 0 1 1 2 of the second group. So

1. inside every group the shards go around a ring, and each ends reduced at its owner;
2. for every shard, its k owners (one a group) allreduce it by ``across``;
3. inside every group the shards go around the ring again.

With three levels (racks of nodes of ranks) the same is done twice. Every shard is cut into slices, at all
multiples of 1/h_1, …, 1/h_l for outer groups of h_j inner groups; between 1 and 2 the slices of a shard go
around a ring of its owners in one outer group, and each ends at one of them; these, one an outer group,
allreduce it in 2; and before 3 the slices go around the ring again. A link out of an outer group then carries
least bytes, as does one out of an inner group. Two levels are the case in which every outer group has a
single inner group, and nothing to do of its own.

A shard has one reduction tree on all ranks: each group's ring builds one partial result, ``across`` joins
these in one order for all, and the rest are copies. Shards are cut finer where ``across`` itself scatters
(ring, halving_doubling).

``pieces`` cuts the message first and sends the pieces through the stages one behind the other, as far apart
as the longest of them: while one piece crosses, the next is reduced inside the groups.

Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network
hierarchy", 2019, which has any number of levels.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from topotune.errors import UsageError
from topotune.plan.grouping import (
    ACROSS,
    MAX_CHUNK_DENOMINATOR,
    Nested,
    chunk_denominator,
    groups_problem,
    nested,
    num_folded,
    num_transfers,
    outer_groups,
    parts_across,
)
from topotune.schedule.assemble import (
    MAX_PIECES,
    MAX_RANKS,
    IntArray,
    Transfers,
    assemble,
    check_count,
    check_num_transfers,
)
from topotune.schedule.model import Params, ParamValue, Schedule
from topotune.schedule.phases import (
    allgather_doubling,
    allgather_ring,
    common_cuts,
    core,
    exchange_doubling,
    fold_in,
    fold_out,
    reduce_scatter_halving,
    reduce_scatter_ring,
)


def hierarchical(
    groups: Sequence[Sequence[int]] | Sequence[Sequence[Sequence[int]]],
    *,
    across: str = "ring",
    pieces: int = 1,
) -> Schedule:
    """Two- or three-level allreduce over ``groups``.

    Args:
        groups: a partition of the ranks 0 … n-1; sizes may differ. Three levels: a list of outer groups, each
            a list of inner groups.
        across: ``ring``, ``recursive_doubling`` or ``halving_doubling``, among the owners of a shard, one of
            each (outer) group.
        pieces: that the message is cut in, 1 to 1024.

    Raises:
        UsageError: no partition of 0 … n-1, another ``across``, a count out of range, too many transfers, or
            sizes with no usable common multiple.
    """
    outer = check_groups(groups)
    if across not in ACROSS:
        raise UsageError(f"across is {across!r}, not one of {', '.join(ACROSS)}")
    check_count("pieces", pieces, MAX_PIECES)
    inner = [group for part in outer for group in part]
    num_ranks = sum(map(len, inner))
    if chunk_denominator(outer, across, pieces) > MAX_CHUNK_DENOMINATOR:
        raise UsageError(
            f"groups of sizes {sorted({len(group) for group in inner})} share no common cut of the message",
            hint="use groups of fewer different sizes",
        )
    check_num_transfers(num_transfers(outer, across, pieces), "hierarchical", num_ranks)
    num_parts = parts_across(across, len(outer))
    shard_bounds, shard_owners = common_cuts([len(group) for group in inner])
    slice_bounds, slice_owners = common_cuts([len(part) for part in outer])
    # A chunk is one part of one slice of one shard of one piece.
    shape = (pieces, len(shard_bounds) - 1, len(slice_bounds) - 1, num_parts)
    bounds = [
        ((piece * shard_bounds[-1] + begin) * slice_bounds[-1] + (end - begin) * low) * num_parts
        + part * (end - begin) * (high - low)
        for piece in range(pieces)
        for begin, end in pairwise(shard_bounds)
        for low, high in pairwise(slice_bounds)
        for part in range(num_parts)
    ]
    denominator = pieces * shard_bounds[-1] * slice_bounds[-1] * num_parts
    chunks = np.arange(len(bounds))
    piece, shard, slice_, part_of_chunk = np.unravel_index(chunks, shape)

    inner_steps = max(len(group) for group in inner) - 1
    outer_steps = max(len(part) for part in outer) - 1
    across_steps = _across_steps(across, len(outer))
    at_inner = piece * max(inner_steps, outer_steps, across_steps, 1)
    at_outer = at_inner + inner_steps
    at_across = at_outer + outer_steps
    back_outer = at_across + across_steps
    parts: list[Transfers] = []
    holders: list[IntArray] = []
    for group, owner in zip(inner, shard_owners[:, shard], strict=True):
        members = np.asarray(group)[:, None]
        parts.append(reduce_scatter_ring(members, owner, chunks, first_step=at_inner))
        parts.append(allgather_ring(members, owner, chunks, first_step=back_outer + outer_steps))
        holders.append(np.asarray(group)[owner])
    outer_holders: list[IntArray] = []
    for part, owner in zip(outer, slice_owners[:, slice_], strict=True):
        members, holders = np.stack(holders[: len(part)]), holders[len(part) :]
        parts.append(reduce_scatter_ring(members, owner, chunks, first_step=at_outer))
        parts.append(allgather_ring(members, owner, chunks, first_step=back_outer))
        outer_holders.append(members[owner, chunks])
    parts += _allreduce_across(across, np.stack(outer_holders), part_of_chunk, chunks, at_across)
    params: Params = {"groups": as_lists(outer), "across": across, "pieces": pieces}
    return assemble("hierarchical", params, num_ranks, [*bounds, denominator], parts)


PART_BYTES: Final = 1 << 20
"""The smallest part of a message that goes across beside the stages inside of other parts."""

MOST_PARTS: Final = 8
"""Found by trial: 12 MiB over two nodes of four ranks at 200 Mbit/s gain most up to 4, a little up to 8."""


def num_parts(message_bytes: int) -> int:
    """In how many parts a message takes two levels whose inner one is the memory of nodes of equal sizes.

    While the network carries one part, ranks of a node work on others.
    """
    return min(max(1, message_bytes // PART_BYTES), MOST_PARTS)


def check_groups(groups: object, num_ranks: int | None = None, *, most_levels: int = 3) -> Nested:
    """``groups`` as a partition of 0 … n-1, in the form of three levels.

    Args:
        groups: anything.
        num_ranks: n; None takes as many as ``groups`` names.
        most_levels: 2 or 3.

    Raises:
        UsageError: no list of lists of whole numbers, an empty group, a rank twice, or a gap.
    """
    problem = groups_problem(
        groups, _num_named(groups) if num_ranks is None else num_ranks, most_levels=most_levels
    )
    if problem:
        raise UsageError(f"groups{problem}")
    assert isinstance(groups, Sequence)
    return nested(groups)


def as_lists(groups: Nested) -> list[list[int]] | list[list[list[int]]]:
    """Groups as they stand in plans: with two levels where every outer group has one inner group."""
    if all(len(outer) == 1 for outer in groups):
        return [list(group) for (group,) in groups]
    return [[list(group) for group in outer] for outer in groups]


def between_groups(groups: Nested, pieces: ParamValue) -> Params:
    """Params of the schedule ``hierarchical`` that inner groups do among each other, numbered in their order.

    Args:
        groups: of three levels; its outer groups are the groups of that schedule.
        pieces: that what a group has to exchange is cut in.
    """
    return {"groups": as_lists(outer_groups(groups)), "across": "ring", "pieces": pieces}


def _num_named(groups: object) -> int:
    if not isinstance(groups, Sequence) or isinstance(groups, str):
        return 1
    return min(sum(_num_named(part) for part in groups), MAX_RANKS)


def _across_steps(across: str, num_groups: int) -> int:
    if across == "ring":
        return 2 * (num_groups - 1)
    exchanges = num_groups.bit_length() - 1
    folds = 2 if num_folded(num_groups) else 0
    return folds + (exchanges if across == "recursive_doubling" else 2 * exchanges)


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

"""The moves that algorithms are made of, over any members and chunks: rings, exchanges, folds.

Every function works on several chunks at once and lets each chunk have its own members: ``members`` has the
shape (m, num_chunks), or (m, 1) where all chunks have the same; ``members[i, c]`` is the rank that plays part
i for chunk c. ``chunks`` (num_chunks,) are the chunk numbers, ``first_step`` the step at which the move
begins, an integer or one a chunk. Each returns the transfers; how many steps a move takes is said in its
docstring.
"""

import math
from collections.abc import Sequence

import numpy as np

from topotune.plan.grouping import num_folded
from topotune.schedule.assemble import IntArray, Transfers
from topotune.schedule.model import COPY, REDUCE

Steps = IntArray | int


def common_cuts(counts: Sequence[int]) -> tuple[list[int], IntArray]:
    """Cut a message so that it falls into ``counts[i]`` equal parts for every i at once.

    Returns:
        Bounds of the chunks over the last bound, and to which part each chunk belongs for each i, shape
        (len(counts), num_chunks).
    """
    common = math.lcm(*counts)
    bounds = sorted({common // count * index for count in set(counts) for index in range(count + 1)})
    parts = [[begin * count // common for begin in bounds[:-1]] for count in counts]
    return bounds, np.asarray(parts, dtype=np.int64)


def reduce_scatter_ring(
    members: IntArray, owners: IntArray, chunks: IntArray, *, first_step: Steps = 0, stride: int = 1
) -> Transfers:
    """Each chunk goes once around the ring and ends, reduced, at member ``owners[c]``.

    Takes m - 1 hops, ``stride`` steps apart.
    """
    num_members, hop, column = _hops(members, chunks)
    return Transfers(
        step=first_step + hop * stride,
        src=members[(owners + 1 + hop) % num_members, column],
        dst=members[(owners + 2 + hop) % num_members, column],
        chunk=chunks,
        op=REDUCE,
    )


def allgather_ring(
    members: IntArray, owners: IntArray, chunks: IntArray, *, first_step: Steps = 0, stride: int = 1
) -> Transfers:
    """Each chunk goes from member ``owners[c]`` around the ring to all others.

    Takes m - 1 hops, ``stride`` steps apart.
    """
    num_members, hop, column = _hops(members, chunks)
    return Transfers(
        step=first_step + hop * stride,
        src=members[(owners + hop) % num_members, column],
        dst=members[(owners + 1 + hop) % num_members, column],
        chunk=chunks,
        op=COPY,
    )


def _hops(members: IntArray, chunks: IntArray) -> tuple[int, IntArray, IntArray]:
    num_members, num_columns = members.shape
    hop = np.arange(num_members - 1)[:, None]
    column = np.zeros(1, dtype=np.int64) if num_columns == 1 else np.arange(len(chunks))
    return num_members, hop, column


def core(members: IntArray) -> IntArray:
    """The members that stay when the odd ones of the first pairs are folded; a power of two.

    Neighbours fold into each other, so that a fold stays within a node wherever ranks are placed in blocks.
    """
    folded = num_folded(len(members))
    return np.concatenate((members[: 2 * folded : 2], members[2 * folded :]))


def fold_in(members: IntArray, chunks: IntArray, *, first_step: Steps = 0) -> Transfers:
    """Members 1, 3, 5, … of the first pairs hand all they have to members 0, 2, 4, …, in one step."""
    pairs = 2 * num_folded(len(members))
    return Transfers(step=first_step, src=members[1:pairs:2], dst=members[:pairs:2], chunk=chunks, op=REDUCE)


def fold_out(members: IntArray, chunks: IntArray, *, first_step: Steps = 0) -> Transfers:
    """The result goes back to the folded members, in one step."""
    pairs = 2 * num_folded(len(members))
    return Transfers(step=first_step, src=members[:pairs:2], dst=members[1:pairs:2], chunk=chunks, op=COPY)


def exchange_doubling(members: IntArray, chunks: IntArray, *, first_step: Steps = 0) -> list[Transfers]:
    """Recursive doubling: at step t, members at distance 2^t swap and combine all chunks.

    ``len(members)`` is a power of two; takes log2 of it steps. Both partners combine the same two partial
    results, so after step t all members of an aligned block of 2^(t+1) hold one tree, up to commutation.
    """
    index = np.arange(len(members))
    return [
        Transfers(
            step=first_step + level, src=members, dst=members[index ^ (1 << level)], chunk=chunks, op=REDUCE
        )
        for level in range(len(members).bit_length() - 1)
    ]


def reduce_scatter_halving(
    members: IntArray, blocks: IntArray, chunks: IntArray, *, first_step: Steps = 0
) -> list[Transfers]:
    """Recursive vector halving with distance doubling: half to the neighbour, a quarter to the next but one.

    ``len(members)`` is a power of two, m; ``blocks[c]`` in [0, m) says in which m-th of the message chunk c
    lies. At every step a member keeps one half of a contiguous range, so block b ends at the member whose
    number is b with its bits reversed. Takes log2(m) steps.

    Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005,
        4.5.
    """
    return [
        Transfers(first_step + level, src, dst, chunk, REDUCE)
        for level, (src, dst, chunk) in enumerate(_halving_levels(members, blocks, chunks))
    ]


def allgather_doubling(
    members: IntArray, blocks: IntArray, chunks: IntArray, *, first_step: Steps = 0
) -> list[Transfers]:
    """The way back of ``reduce_scatter_halving``: the same pairs in reverse order, copying."""
    levels = _halving_levels(members, blocks, chunks)
    return [
        Transfers(first_step + step, dst, src, chunk, COPY)
        for step, (src, dst, chunk) in enumerate(reversed(levels))
    ]


def _halving_levels(
    members: IntArray, blocks: IntArray, chunks: IntArray
) -> list[tuple[IntArray, IntArray, IntArray]]:
    num_members, num_columns = members.shape
    num_levels = num_members.bit_length() - 1
    column = np.zeros(1, dtype=np.int64) if num_columns == 1 else np.arange(len(chunks))
    owner = np.zeros_like(blocks)
    for level in range(num_levels):
        owner |= ((blocks >> level) & 1) << (num_levels - 1 - level)
    levels = []
    for level in range(num_levels):
        bit = 1 << level
        # Those who still hold the chunk agree with its owner below ``bit``; of them, those on the other side
        # give it up.
        upper = np.arange(num_members // (2 * bit))[:, None] * (2 * bit)
        giver = upper + ((owner & (2 * bit - 1)) ^ bit)
        levels.append((members[giver, column], members[giver ^ bit, column], chunks))
    return levels

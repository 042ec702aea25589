"""Reduce-scatter and all-gather, where rank r has, or gets, the r-th of n equal parts of the message.

Both are halves of an allreduce, but for one thing: it is not free which rank ends with which chunk. So every
generator here cuts the message first in n parts and then each of them as the algorithm wants, and says for
each chunk which rank it belongs to. The two collectives of an algorithm are each other's reverse: an
all-gather copies along the same ways, last step first, on which the reduce-scatter adds up.

Sources: ring: Patarasuk and Yuan, 2009. Halving and doubling: Thakur, Rabenseifner, Gropp, "Optimization of
collective communication operations in MPICH", 2005, 4.1 and 4.5. Hierarchical: the stages of Cho et al.,
"BlueConnect", 2019.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from topotune.errors import UsageError
from topotune.plan.grouping import num_folded
from topotune.schedule.assemble import (
    MAX_PIECES,
    MAX_RANKS,
    IntArray,
    Transfers,
    assemble,
    check_count,
    check_num_transfers,
)
from topotune.schedule.hierarchical import as_lists, check_groups
from topotune.schedule.model import COPY, Params, PartCollective, Schedule
from topotune.schedule.phases import (
    allgather_doubling,
    allgather_ring,
    core,
    fold_in,
    reduce_scatter_halving,
    reduce_scatter_ring,
)
from topotune.schedule.ring import MAX_CHANNELS

_RING_OF: Final = {"reduce_scatter": reduce_scatter_ring, "allgather": allgather_ring}


def ring_of_parts(
    num_ranks: int, collective: PartCollective, *, channels: int = 1, pieces: int = 1
) -> Schedule:
    """Once around: a rank sends (n-1)/n of the message, the least there is, in n - 1 hops.

    Args:
        num_ranks: n >= 1.
        collective: which of the two.
        channels: independent rings over a share of every part, neighbouring ones in opposite directions, 1 to
            64.
        pieces: that follow each other, of each share, 1 to 1024.

    Raises:
        UsageError: a count out of range, or too many transfers.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    check_count("channels", channels, MAX_CHANNELS)
    check_count("pieces", pieces, MAX_PIECES)
    num_chunks = num_ranks * channels * pieces
    check_num_transfers((num_ranks - 1) * num_chunks, "ring", num_ranks)
    around = _RING_OF[collective]
    part, piece = np.divmod(np.arange(num_ranks * pieces), pieces)
    parts = []
    for channel in range(channels):
        forward = channel % 2 == 0
        members = np.arange(num_ranks)[:: 1 if forward else -1, None]
        owners = part if forward else num_ranks - 1 - part
        chunks = (part * channels + channel) * pieces + piece
        hops = around(members, owners, chunks, first_step=piece, stride=pieces)
        parts.append(hops._replace(channel=channel))
    params: Params = {"channels": channels, "pieces": pieces}
    return assemble("ring", params, num_ranks, range(num_chunks + 1), parts, collective=collective)


def halving_doubling_of_parts(num_ranks: int, collective: PartCollective) -> Schedule:
    """Reduce-scatter by recursive halving, all-gather by recursive doubling: log2(n) steps.

    The largest exchange, of half the message, is with the farthest rank: only so are all that a rank sends in
    a step neighbours in the message. Where n is no power of two, the odd ranks of the first pairs leave their
    work to the even ones.

    Args:
        num_ranks: 1 to 4096.
        collective: which of the two.

    Raises:
        UsageError: a count out of range, or too many transfers.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    check_num_transfers(num_ranks * num_ranks, "halving_doubling", num_ranks)
    members = np.arange(num_ranks)[:, None]
    folded = num_folded(num_ranks)
    num_pairs = 2 * folded
    inner = core(members)
    chunks = np.arange(num_ranks)
    blocks = np.where(chunks < num_pairs, chunks // 2, chunks - folded)
    # ``reduce_scatter_halving`` ends block b at the member whose number is b with its bits reversed.
    inner = inner[_reversed_bits(len(inner))]
    even, odd = np.arange(0, num_pairs, 2), np.arange(1, num_pairs, 2)
    start = 1 if folded else 0
    parts: list[Transfers]
    if collective == "reduce_scatter":
        halving = reduce_scatter_halving(inner, blocks, chunks, first_step=start)
        end = start + len(halving)
        parts = [fold_in(members, chunks), *halving, Transfers(end, even, odd, odd, COPY)]
    else:
        doubling = allgather_doubling(inner, blocks, chunks, first_step=start)
        end = start + len(doubling)
        pair, chunk = np.nonzero(chunks[None, :] != odd[:, None])
        parts = [
            Transfers(0, odd, even, odd, COPY),
            *doubling,
            Transfers(end, even[pair], odd[pair], chunk, COPY),
        ]
    return assemble("halving_doubling", {}, num_ranks, range(num_ranks + 1), parts, collective=collective)


def hierarchical_of_parts(
    groups: Sequence[Sequence[int]], collective: PartCollective, *, pieces: int = 1
) -> Schedule:
    """Rings inside groups, and rings between the ranks that stand at the same place of their groups.

    A part is added up inside every group, at the rank that stands where its owner stands in its own (in a
    smaller group: counted around), and these add up what they have on the way to the owner. So a link between
    groups carries a part once. The all-gather is the way back.

    Args:
        groups: a partition of the ranks 0 … n-1; sizes may differ.
        collective: which of the two.
        pieces: of each part, which go through the stages one behind the other, 1 to 1024.

    Raises:
        UsageError: no partition of 0 … n-1, a count out of range, or too many transfers.
    """
    nested = check_groups(groups, most_levels=2)
    check_count("pieces", pieces, MAX_PIECES)
    flat = [list(group) for (group,) in nested]
    num_ranks = sum(map(len, flat))
    check_num_transfers((num_ranks - 1) * num_ranks * pieces, "hierarchical", num_ranks)
    home, place = np.empty((2, num_ranks), dtype=np.int64)
    for number, group in enumerate(flat):
        home[group], place[group] = number, np.arange(len(group))
    chunks = np.arange(num_ranks * pieces)
    part, piece = np.divmod(chunks, pieces)
    places = [place[part] % len(group) for group in flat]
    holders = np.stack([np.asarray(group)[at] for group, at in zip(flat, places, strict=True)])

    inner_steps, across_steps = max(map(len, flat)) - 1, len(flat) - 1
    first = piece * max(inner_steps, across_steps, 1)
    scatters = collective == "reduce_scatter"
    at_inner, at_across = (first, first + inner_steps) if scatters else (first + across_steps, first)
    around = _RING_OF[collective]
    parts = [
        around(np.asarray(group)[:, None], at, chunks, first_step=at_inner)
        for group, at in zip(flat, places, strict=True)
    ]
    parts.append(around(holders, home[part], chunks, first_step=at_across))
    params: Params = {"groups": as_lists(nested), "pieces": pieces}
    return assemble("hierarchical", params, num_ranks, range(len(chunks) + 1), parts, collective=collective)


def moved_parts(schedule: Schedule, part_of_rank: Sequence[int] | None) -> Schedule:
    """The same between ranks that are numbered otherwise than the parts.

    Args:
        schedule: a verified reduce-scatter or all-gather.
        part_of_rank: the number of the part that belongs to each of the schedule's ranks; None for its own.

    Raises:
        UsageError: not every part belongs to a rank.
    """
    if part_of_rank is None:
        return schedule
    if sorted(part_of_rank) != list(range(schedule.num_ranks)):
        raise UsageError(f"parts {list(part_of_rank)!r:.100} are not those of {schedule.num_ranks} ranks")
    per_part = schedule.num_chunks // schedule.num_ranks
    rank, within = np.divmod(schedule.chunk, np.int32(per_part))
    moved = np.asarray(part_of_rank, dtype=np.int32)[rank] * np.int32(per_part) + within
    moved.setflags(write=False)
    return replace(schedule, chunk=moved)


def _reversed_bits(count: int) -> IntArray:
    """The numbers below a power of two, each with its bits reversed."""
    numbers = np.arange(count)
    reverse = np.zeros_like(numbers)
    for bit in range(count.bit_length() - 1):
        reverse = (reverse << 1) | ((numbers >> bit) & 1)
    return reverse

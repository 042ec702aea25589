"""Groups of ranks as plans hold them: a partition, or a partition of a partition. Standard library only.

Two levels are a list of groups of ranks, ``[[0, 1], [2, 3]]``; three are a list of groups of groups, say
racks of nodes of ranks, ``[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]``. Groups need not be alike in size. How large
a hierarchical schedule over them is can be said before anything is built.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

ACROSS: Final = ("ring", "recursive_doubling", "halving_doubling")
"""What can run between the (outermost) groups."""

MAX_CHUNK_DENOMINATOR: Final = 2**62

_SHOWN_RANKS: Final = 32

Nested = tuple[tuple[tuple[int, ...], ...], ...]
"""Outer groups of inner groups of ranks; with two levels every outer group has one inner group."""


def has_three_levels(groups: Any) -> bool:
    """Whether a list that should hold groups is meant to hold groups of groups; its first item decides."""
    return _is_filled_list(groups) and _is_filled_list(groups[0]) and is_list(groups[0][0])


def groups_problem(groups: Any, num_ranks: int, *, most_levels: int) -> str | None:
    """Why ``groups`` does not hold every rank from 0 to ``num_ranks`` - 1 exactly once; None if it does.

    What is said follows the name of the parameter in a sentence: `` is 3, not …`` or ``[1] names …``.

    Args:
        groups: anything.
        num_ranks: n.
        most_levels: 2, or 3 where groups of groups are taken too.
    """
    is_deep = most_levels == 3 and has_three_levels(groups)
    wanted = "a list of lists of lists of ranks" if is_deep else "a list of lists of ranks"
    if not _is_filled_list(groups):
        return f" is {shown(groups)}, not {wanted}"
    group_of_rank: dict[int, str] = {}
    for place, members in _inner_groups(groups, is_deep):
        if not is_list(members) or not members:
            return f"{place} is {shown(members)}, not a list of ranks"
        for rank in members:
            if type(rank) is not int or not 0 <= rank < num_ranks:
                return f"{place} names {shown(rank)}, which is no rank from 0 to {num_ranks - 1}"
            if rank in group_of_rank:
                return f"{place} names rank {rank}, which groups{group_of_rank[rank]} has already"
            group_of_rank[rank] = place
    if len(group_of_rank) != num_ranks:
        missing = next(rank for rank in range(num_ranks) if rank not in group_of_rank)
        return f" names {len(group_of_rank)} of {num_ranks} ranks; rank {missing} is in none"
    return None


def nested(groups: Sequence[Sequence[Any]]) -> Nested:
    """Groups that are known to be well-formed, with two levels or three, in the form with three."""
    if has_three_levels(groups):
        return tuple(tuple(tuple(inner) for inner in outer) for outer in groups)
    return tuple((tuple(group),) for group in groups)


def outer_groups(groups: Nested) -> Nested:
    """The outer groups with their inner groups, numbered in order, in place of ranks; with two levels."""
    numbers = iter(range(sum(map(len, groups))))
    return tuple((tuple(next(numbers) for _ in outer),) for outer in groups)


def chunk_denominator(groups: Nested, across: str, pieces: int) -> int:
    """What the ends of the chunks of ``hierarchical`` over these groups are fractions of.

    Args:
        groups: outer groups of inner groups of ranks.
        across: one of `ACROSS`.
        pieces: that the message is cut in.
    """
    sizes, counts = sizes_and_counts(groups)
    return math.lcm(*sizes) * math.lcm(*counts) * parts_across(across, len(groups)) * pieces


def num_transfers(groups: Nested, across: str, pieces: int) -> int:
    """How many transfers ``hierarchical`` over these groups has; arguments as of `chunk_denominator`.

    Worth asking only where that is at most `MAX_CHUNK_DENOMINATOR`: else there are too many cuts to count.
    """
    sizes, counts = sizes_and_counts(groups)
    num_ranks = sum(len(group) for outer in groups for group in outer)
    num_chunks = pieces * _num_cuts(sizes) * _num_cuts(counts) * parts_across(across, len(groups))
    return num_chunks * (2 * (num_ranks - len(groups)) + _transfers_across(across, len(groups)))


def sizes_and_counts(groups: Nested) -> tuple[set[int], set[int]]:
    """The sizes of inner groups in ranks, and of outer groups in inner groups."""
    return {len(group) for outer in groups for group in outer}, {len(outer) for outer in groups}


def num_folded(num_members: int) -> int:
    """How many members must be folded into others to leave a power of two."""
    return num_members - (1 << (num_members.bit_length() - 1))


def parts_across(across: str, num_groups: int) -> int:
    """How many parts each shard is cut in among its owners, one of each group."""
    if across == "ring":
        return num_groups
    return 1 if across == "recursive_doubling" else num_groups - num_folded(num_groups)


def _transfers_across(across: str, num_groups: int) -> int:
    """Transfers of one chunk among its owners."""
    if across != "recursive_doubling":
        return 2 * (num_groups - 1)
    folded = num_folded(num_groups)
    inner = num_groups - folded
    return 2 * folded + inner * (inner.bit_length() - 1)


def _num_cuts(counts: set[int]) -> int:
    """Into how many pieces the multiples of 1/c, for all c, cut a whole."""
    common = math.lcm(*counts)
    return len({common // count * index for count in counts for index in range(count)})


def _inner_groups(groups: Sequence[Any], is_deep: bool) -> Iterator[tuple[str, Any]]:
    """Where each innermost group stands, and what stands there."""
    for index, group in enumerate(groups):
        if is_deep and is_list(group) and group:
            yield from ((f"[{index}][{place}]", inner) for place, inner in enumerate(group))
        else:
            yield f"[{index}]", group


def groups_in_words(groups: Sequence[Any]) -> str:
    """``0 1 | 2 3 || 4 5 | 6 7``; many groups are counted: ``32 groups of 8``, ``4 groups of 8 of 16``.

    Args:
        groups: well-formed, of two levels or three.
    """
    parts = nested(groups)
    inner = [group for outer in parts for group in outer]
    if sum(map(len, inner)) <= _SHOWN_RANKS:
        outer_words = [" | ".join(" ".join(map(str, group)) for group in outer) for outer in parts]
        return (" || " if has_three_levels(groups) else " | ").join(outer_words)
    sizes, counts = sizes_and_counts(parts)
    words = f"{len(parts)} groups of {_span(counts)}" if has_three_levels(groups) else f"{len(parts)} groups"
    return f"{words} of {_span(sizes)}"


def _span(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def is_list(value: Any) -> bool:
    """Whether a value stands for a JSON list."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_filled_list(value: Any) -> bool:
    return is_list(value) and len(value) > 0


def shown(value: Any) -> str:
    """A value in a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""Which sizes a self-test runs: both ends of every range, as far as memory and patience go."""

import math
from collections.abc import Sequence
from typing import Final

from topotune.errors import UsageError
from topotune.plan.exports.counterparts import Choice

MAX_RANKS: Final = 64
"""Ranks that a self-test starts, all on this machine unless the launcher knows better."""

MAX_BYTES: Final = 16 * 2**20
"""The largest message that is run."""

MAX_SIZES: Final = 64
_MIB: Final = 2**20
_BUFFERS_BYTES: Final = 2**30
"""Of all ranks together, two for each."""


def check_num_ranks(num_ranks: int) -> None:
    """Refuse what a self-test cannot start.

    Raises:
        UsageError: more than 64 ranks.
    """
    if num_ranks > MAX_RANKS:
        raise UsageError(
            f"--verify: the plan is for {num_ranks} ranks, and a self-test starts at most {MAX_RANKS}",
            hint="leave --verify out, and look at the job itself",
        )


def probed_sizes(choices: Sequence[Choice], num_ranks: int) -> list[tuple[int, str | None]]:
    """Sizes with the word that holds there: both ends of every range and one between, ascending.

    An unbounded range is run to twice its start, or to 1 MiB. Of more than 64 sizes an even choice is taken,
    the first and the last included. What is larger than 16 MiB, or than the ranks' share of 1 GiB, is left
    out.
    """
    largest = min(MAX_BYTES, _BUFFERS_BYTES // (2 * num_ranks))
    sizes: dict[int, str | None] = {}
    for choice in choices:
        first, end = choice.min_bytes, choice.max_bytes
        last = max(2 * first + 1, _MIB + 1) if end is None else end - 1
        between = math.isqrt(max(first, 1) * last)  # halfway on a scale of logarithms
        sizes |= {size: choice.word for size in (first, between, last) if first <= size <= min(last, largest)}
    listed = sorted(sizes.items())
    if len(listed) <= MAX_SIZES:
        return listed
    return [listed[index * (len(listed) - 1) // (MAX_SIZES - 1)] for index in range(MAX_SIZES)]

"""Which sizes a self-test runs: both ends of every range, as far as memory and patience go."""

from collections.abc import Sequence
from typing import Final

from topotune.errors import UsageError
from topotune.plan.exports.counterparts import Choice

MAX_RANKS: Final = 64
"""Ranks that a self-test starts, all on this machine unless the launcher knows better."""

MAX_BYTES: Final = 16 * 2**20
"""The largest message that is run."""

MAX_SIZES: Final = 64
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
    """Sizes with the word that holds there: both ends of every range, ascending.

    Of more than 64 sizes an even choice is taken, the first and the last included. What is larger than
    16 MiB, or than the ranks' share of 1 GiB, is left out.
    """
    largest = min(MAX_BYTES, _BUFFERS_BYTES // (2 * num_ranks))
    sizes: dict[int, str | None] = {}
    for choice in choices:
        last = choice.max_bytes - 1 if choice.max_bytes is not None else 2 * choice.min_bytes + 1
        for size in (choice.min_bytes, last):
            if size <= largest:
                sizes[size] = choice.word
    listed = sorted(sizes.items())
    if len(listed) <= MAX_SIZES:
        return listed
    return [listed[index * (len(listed) - 1) // (MAX_SIZES - 1)] for index in range(MAX_SIZES)]

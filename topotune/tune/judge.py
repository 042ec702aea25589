"""Judging candidates at points: which clear the margin on fresh samples, over all comparisons together.

What passes is found in Holm's steps: whatever clears the margin with intervals corrected for all comparisons
does; then whatever clears it with intervals corrected for those that are left; and so on until none does. So
the chance that any row passes which should not stays below 5 %. Where the intervals themselves have to hold
all at once, Bonferroni corrects them for their number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from topotune.tune.blocks import (
    Block,
    Luck,
    compare_blocks,
    compare_launches,
    luck_of_connections,
    scatter_of_launches,
)
from topotune.tune.sampling import num_warmups
from topotune.tune.statistics import Comparison, corrected
from topotune.tune.trial import DEFAULT, Candidate

Correction = Literal["holm", "bonferroni"]
"""How intervals pay for their number: with Holm decisions hold all at once, with Bonferroni intervals do."""

CONFIDENCE: Final = 0.95
"""Of all intervals together."""

PASSES: Final = 6
"""Points are visited this often before the first look at them, in an order drawn anew, so that a slow minute
falls on all of them, and on new connections each time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One size at which candidates are confirmed.

    Attributes:
        message_bytes: the size.
        candidates: what is compared with the default there.
        searched: True for a size of the search, False for an odd one between.
        num_rounds: how many rounds.
        round_s: what a round is expected to cost, wall time.
        call_s: what a call of the slowest arm is expected to take.
        weight: what the size matters to the job, against others; rounds are shared out by it.
        baseline: what they are compared with: the default, on whichever connections.
        aim: low end of an interval that more samples are worth, although it clears the margin: what larger
            sizes need that inherit from this one.
    """

    message_bytes: int
    candidates: tuple[Candidate, ...]
    searched: bool
    num_rounds: int = 0
    round_s: float = 0.0
    call_s: float = 0.0
    weight: float = 1.0
    baseline: Candidate = DEFAULT
    aim: float = 0.0

    @property
    def warmup_s(self) -> float:
        """Wall time of warming up on new connections, in all of the first passes but one."""
        return (PASSES - 1) * self._warmup_s

    def passes_s(self, num_passes: int) -> float:
        """Expected wall time of further passes, each on new connections."""
        return num_passes * (self.num_rounds / PASSES * self.round_s + self._warmup_s)

    @property
    def _warmup_s(self) -> float:
        return num_warmups(self.call_s, again=True) * self.round_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """A candidate against the default on fresh samples, at one size.

    Attributes:
        passed: the interval clears the margin, and was not withdrawn since (`topotune.tune.smoothing`).
        searched: the size was one of the search.
        blocks: the samples, by pass.
    """

    message_bytes: int
    candidate: Candidate
    comparison: Comparison
    passed: bool
    searched: bool
    blocks: tuple[Block, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class PointSamples:
    """What was timed of a candidate at a point, by pass (or by launch).

    Attributes:
        error_share: of the error rate, what this look may spend (`topotune.tune.looks`).
    """

    point: Point
    candidate: Candidate
    blocks: tuple[Block, ...]
    error_share: float = 1.0


def judge(
    samples: Sequence[PointSamples],
    *,
    num_comparisons: int,
    min_gain: float,
    seed: int,
    correction: Correction = "holm",
    luck: Luck | None = None,
    of_launches: bool = False,
) -> list[Confirmation]:
    """Which of the candidates clear the margin at their points; in the order given.

    Args:
        samples: of each comparison that was made.
        num_comparisons: that were to be made.
        min_gain: the margin.
        seed: of the bootstrap.
        correction: with ``holm`` the interval of what passed in a later step is corrected for the comparisons
            that were then left.
        luck: of connections; None for that of these samples.
        of_launches: whether each block is a launch of its own, not only connections of its own.
    """
    rows = [one.blocks for one in samples]
    compare = (
        partial(compare_launches, scatter=scatter_of_launches(rows))
        if of_launches
        else partial(compare_blocks, luck=luck_of_connections(rows) if luck is None else luck)
    )

    def compared(one: PointSamples, left: int) -> Comparison:
        confidence = corrected(confidence_of(one.error_share), left)
        return compare(one.blocks, confidence=confidence, seed=seed)

    left = num_comparisons
    comparisons = [compared(one, left) for one in samples]
    passed = [clears(comparison, min_gain) for comparison in comparisons]
    while correction == "holm" and 0 < num_comparisons - sum(passed) < left:
        left = num_comparisons - sum(passed)
        for index, one in enumerate(samples):
            if not passed[index] and clears(again := compared(one, left), min_gain):
                passed[index], comparisons[index] = True, again
    return [
        Confirmation(
            message_bytes=one.point.message_bytes,
            candidate=one.candidate,
            comparison=comparison,
            passed=has_passed,
            searched=one.point.searched,
            blocks=one.blocks,
        )
        for one, comparison, has_passed in zip(samples, comparisons, passed, strict=True)
    ]


def confidence_of(error_share: float) -> float:
    """Of all intervals together, in a look that may spend this share of the error rate."""
    return 1.0 - (1.0 - CONFIDENCE) * error_share


def clears(comparison: Comparison, min_gain: float) -> bool:
    """The rule: only an interval that lies wholly above the margin departs from the default."""
    return comparison.low > 1 + min_gain and math.isfinite(comparison.high)


def margin_twice_over(min_gain: float) -> float:
    """Default / candidate that the low end of an interval must reach to clear the margin twice over.

    Gains are ratios, and so the margin is taken off twice as a ratio: (1 + margin)². What is left of such a
    gain after paying the margin once still clears it. (1 + 2 × margin is less by the margin's square.)
    """
    return (1 + min_gain) ** 2

"""Null trials: the default against itself, through the rule of confirmation; how often it "wins".

Theory of operation. What makes a default look faster than itself is the noise of its rounds, and the luck of
the connections that the two arms send over. So the other arm runs on connections of its own, as every
candidate does, and null trials are taken in the passes of confirmation, between its points and on the same
sets of connections: at the same time, on a machine that is as busy, and without sets of connections of their
own, which are dear where ranks outnumber cores.

The rounds of a size are timed together and then dealt out: a trial gets as many of each pass as every other,
next to each other in time. So no trial shares a round with another. They do share the pass's connections,
and if the arms kept their names, a pair of which one is slower would be the same luck in all trials: one win
would come with many. Both arms are the default, so which of the two is called "the other" in a trial is drawn
for each trial and pass anew. That changes nothing in how likely a trial is to win (each pass's luck falls to
either side as readily, as it does for a candidate), and it makes the luck of any two trials uncorrelated:
given how far apart the pairs of connections were, wins are independent, and the interval of their rate holds.
What it cannot show is a group that is faster *because* it was made later, in every pass; for that
benchmarks/false_wins.py keeps the names, and makes connections anew for each run.

How many trials there are is settled by time alone, before the samples are looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from topotune.tune.blocks import Block
from topotune.tune.confirm import Taken
from topotune.tune.judge import PASSES, Point, PointSamples, judge
from topotune.tune.plan_rounds import RENEWAL_S, Stretch, fewest_rounds
from topotune.tune.statistics import Samples, clopper_pearson
from topotune.tune.trial import TWIN

_FEWEST_TRIALS, _WANTED_TRIALS, _MOST_TRIALS = 4, 40, 60
"""With fewer the rate says nothing; with the second, no win bounds it by 9 %, and by 17 % where calls take so
much longer than planned that half of them are left; more than the third are not worth their time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NullTrials:
    """Default against default by the rule of confirmation."""

    num_trials: int
    num_wins: int

    @property
    def rate(self) -> float | None:
        """Share of wins; None without trials."""
        return self.num_wins / self.num_trials if self.num_trials else None

    @property
    def rate_ci(self) -> tuple[float, float] | None:
        """Its 95 % interval (Clopper-Pearson); None without trials."""
        return clopper_pearson(self.num_wins, self.num_trials) if self.num_trials else None


@dataclass(frozen=True, kw_only=True, slots=True)
class NullPlan:
    """What is to be timed for null trials.

    Attributes:
        points: a size each, with the rounds of all its trials.
        pass_rounds: rounds of a trial in each pass.
        comparisons: that confirmation corrects for.
    """

    points: tuple[Point, ...]
    pass_rounds: int
    comparisons: int

    @classmethod
    def within(
        cls, time_s: float, default_s: Mapping[int, float], *, comparisons: int, stretch: Stretch
    ) -> Self:
        """As many trials as fit in time, at most 60, the same number at each size.

        The largest sizes are left out until 40 trials fit: many say more than large ones.

        Args:
            time_s: wall time that the trials may take, beside what confirmation takes.
            default_s: of each size, what the default takes.
            comparisons: that confirmation corrects for; here the same correction is used.
            stretch: of calls.
        """
        pass_rounds = -(-fewest_rounds(comparisons) // PASSES)
        points = [
            Point(
                message_bytes=size,
                candidates=(TWIN,),
                searched=True,
                num_rounds=PASSES * pass_rounds,
                round_s=stretch(own_s) * 2 * own_s,
                call_s=own_s,
            )
            for size, own_s in sorted(default_s.items(), key=lambda item: item[1])
        ]
        choices = [(_num_trials(points[:count], time_s), count) for count in range(1, len(points) + 1)]
        enough = [choice for choice in choices if choice[0] * choice[1] >= _WANTED_TRIALS]
        # The most sizes of those with enough trials, else the most trials.
        each, count = max(
            enough or choices,
            key=lambda choice: choice[1] if enough else choice[0] * choice[1],
            default=(0, 0),
        )
        if each * count < _FEWEST_TRIALS:
            each, count = 0, 0
        return cls(
            points=tuple(replace(point, num_rounds=each * point.num_rounds) for point in points[:count]),
            pass_rounds=pass_rounds,
            comparisons=comparisons,
        )

    @property
    def fewest(self) -> list[int]:
        """Of each point, the rounds of half its trials: these it keeps where calls take too long."""
        trial_rounds = PASSES * self.pass_rounds
        return [-(-point.num_rounds // (2 * trial_rounds)) * trial_rounds for point in self.points]

    def judged(self, taken: Sequence[Taken], *, min_gain: float, seed: int) -> NullTrials:
        """Trials dealt out of what was timed, and judged as confirmation judges.

        Args:
            taken: of each point.
            min_gain: the margin.
            seed: of the deal, and of the bootstrap.
        """
        rng = np.random.default_rng(seed)
        needed = fewest_rounds(self.comparisons)
        dealt = [
            [
                PointSamples(point=point, candidate=TWIN, blocks=blocks)
                for blocks in deal(by_candidate.get(TWIN, ()), needed, rng)
            ]
            for point, by_candidate in zip(self.points, taken, strict=True)
        ]
        # As many at a time as confirmation judges, of several sizes: each as one of so many comparisons, by
        # the first of Holm's steps.
        in_turn = [
            trials[number]
            for number in range(max(map(len, dealt), default=0))
            for trials in dealt
            if number < len(trials)
        ]
        together = max(1, self.comparisons)
        judged = [
            one
            for first in range(0, len(in_turn), together)
            for one in judge(
                in_turn[first : first + together],
                num_comparisons=self.comparisons,
                min_gain=min_gain,
                seed=seed,
                correction="bonferroni",
            )
        ]
        return NullTrials(num_trials=len(judged), num_wins=sum(one.passed for one in judged))


def deal(passes: Sequence[Block], num_rounds: int, rng: np.random.Generator) -> list[tuple[Block, ...]]:
    """Trials out of what was timed of one size, each of so many rounds or a few more, in the order of time.

    They come from every pass alike: from fewer passes the more of each, where time ended before the last one.
    In each pass of each trial, which of the two arms is called the default is drawn.
    """
    if not passes:
        return []
    pass_rounds = -(-num_rounds // len(passes))
    num_trials = min(len(default_s) // pass_rounds for default_s, _ in passes)

    def part(arm_s: Samples, number: int) -> Samples:
        return arm_s[number * pass_rounds : (number + 1) * pass_rounds]

    return [
        tuple(
            (part(arms[swapped], number), part(arms[1 - swapped], number))
            for arms, swapped in zip(passes, rng.integers(0, 2, len(passes)).tolist(), strict=True)
        )
        for number in range(num_trials)
    ]


def _num_trials(points: Sequence[Point], time_s: float) -> int:
    """Of each of these sizes, the trials that fit in time."""
    left_s = time_s - PASSES * RENEWAL_S - sum(point.warmup_s for point in points)
    trial_s = sum(point.num_rounds * point.round_s for point in points)
    return max(0, min(_MOST_TRIALS // len(points), int(left_s / trial_s)))

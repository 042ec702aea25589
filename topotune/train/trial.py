"""Plan against default inside a running job: who takes which call, and what all ranks' times say. No torch.

Calls of one kind run by the plan and by the default in turn, in pairs of random order that is the same on all
ranks. No message is sent that the job would not send. The time of a call is the smallest over the ranks: that
of the rank that came last, which waited for nobody.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

Finding = Literal["worse", "slower", "waiting", "undecided"]

PAIRS: Final = 16
_LEAST_PAIRS: Final = 8
_SHARE_OF_PAIRS: Final = 0.8
"""13 of 16 pairs are lost by an equal plan once in 94 trials, by the sign test."""

_WORSE: Final = 1.05
_SLOWER: Final = 1.15


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTimes:
    """What one rank measured in a trial.

    Attributes:
        usual_s: what such a call took at first; None where that was never learnt.
        plan_s: of each pair, by the plan.
        default_s: of each pair, by the default.
    """

    usual_s: float | None
    plan_s: tuple[float, ...]
    default_s: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a trial found; equal on all ranks.

    Attributes:
        finding: ``worse``: the default is faster than the plan now; ``slower``: calls are slower than they
            were, but the plan is no worse than the default; ``waiting``: the exchange is as it was, ranks
            wait longer for each other; ``undecided``: too few pairs.
        usual_s: what a call of the plan took at first; None where no rank knows.
        low_s: what it takes now by the same measure, the order statistic that a `Detector` compares.
        plan_s: what it takes now, median.
        default_s: what the default takes now, median.
        num_pairs: of calls.
        num_lost: pairs in which the default was faster.
    """

    finding: Finding
    usual_s: float | None
    low_s: float
    plan_s: float
    default_s: float
    num_pairs: int
    num_lost: int


def order_of_trial(number: int) -> tuple[bool, ...]:
    """Whether the plan takes each call of a trial; one call of either kind first, which does not count.

    Args:
        number: of the trial in its group.
    """
    draw = random.Random(number)
    calls = [False, True]
    for _ in range(PAIRS):
        plan_first = draw.random() < 0.5
        calls += [plan_first, not plan_first]
    return tuple(calls)


def judge(ranks: Sequence[RankTimes], *, order: int) -> Verdict:
    """What the times of all ranks say.

    Args:
        ranks: each with the same number of pairs.
        order: which of a number of calls, from the fastest, was compared with what is usual.
    """
    plan_s = [min(times) for times in zip(*(rank.plan_s for rank in ranks), strict=True)]
    default_s = [min(times) for times in zip(*(rank.default_s for rank in ranks), strict=True)]
    usual_s = min((rank.usual_s for rank in ranks if rank.usual_s is not None), default=None)
    num_pairs = len(plan_s)
    num_lost = sum(default < plan for plan, default in zip(plan_s, default_s, strict=True))
    low_s = sorted(plan_s)[order] if order < num_pairs else 0.0
    finding: Finding
    if num_pairs < _LEAST_PAIRS:
        finding = "undecided"
    elif median(plan_s) > _WORSE * median(default_s) and num_lost >= _SHARE_OF_PAIRS * num_pairs:
        finding = "worse"
    elif usual_s is not None and low_s > _SLOWER * usual_s:
        finding = "slower"
    else:
        finding = "waiting"
    return Verdict(
        finding=finding,
        usual_s=usual_s,
        low_s=low_s,
        plan_s=median(plan_s) if plan_s else 0.0,
        default_s=median(default_s) if default_s else 0.0,
        num_pairs=num_pairs,
        num_lost=num_lost,
    )

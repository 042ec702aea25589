"""What measuring on could still gain, in log-time: expected regret of the choice as it stands.

Theory of operation. A choice that is made now loses, in expectation, what better candidates would have gained
if they were known. For a candidate that was timed, the difference to the best so far is known up to its
standard error; for one that was not, the prediction stands in, shifted and blurred by how wrong predictions
of tried candidates have been. Of each, the expected improvement is
E max(0, N(mean, sd^2)) = mean Phi(z) + sd phi(z) with z = mean / sd (Mockus 1975; Jones, Schonlau and Welch
1998), and their sum is no less than the expected improvement of the best of them.

Where to measure next that sum tells well enough; what a run says of its end must be nearer. However the
errors of candidates hang together, P(best improvement > x) is at most the sum of P(each > x) (Boole), and at
most 1. The x at which that sum is 5 % over all sizes together bounds what is left with 95 % confidence, and
its integral over x > 0 bounds the expectation, closely: ten candidates that nothing is known of are not worth
ten times one. Both hold as far as errors of predictions are like those seen so far.

Weighted with the share of a job's communication that a size has, and divided by what the next measurement
costs, it says where to measure next; and when all of it is less than measuring costs, the search ends. For
that a second of tuning must be comparable with a share of a job: a plan is taken to serve communication that
lasts `SERVED` times the budget.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from topotune.tune.trial import Candidate

SERVED: Final = 100.0
"""Communication that a plan serves, in budgets: a minute of tuning for more than an hour and a half of it."""

LEFT_CONFIDENCE: Final = 0.95
"""With which no more is left to gain than a run says."""

_STEP: Final = 1e-5
"""In log-time, and in probability: how nearly that is found."""

_FARTHEST: Final = 16.0
"""No gain in log-time is larger: what nothing at all is known of may save any share of the time."""

_PRIOR_SPREAD: Final = 0.5
"""Standard deviation of log(measured / predicted), while fewer than three tried candidates tell it."""

_LEAST_SPREAD: Final = 0.1
_FEWEST_TRIED: Final = 3
_LEAST_WEIGHT: Final = 0.05
"""Of an average size: one that the recorded job does not use still stands in the plan."""


_CURVE_ERROR: Final = 0.05
"""How much further a prediction may be wrong at twice or half the size, in log-time: a candidate's error goes
with its algorithm, and changes slowly."""

_BYTES_WRONG: Final = 0.3
"""How far a prediction may be wrong in what it says of bytes, in log-time; the rest comes with messages."""

_ENOUGH_SEEN: Final = 8
"""Predictions of other candidates from which the error of one is told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A candidate that was timed: log(candidate / default) and its standard error."""

    log_ratio: float
    error: float


_DEFAULT: Final = Known(log_ratio=0.0, error=0.0)
"""The default, against itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a search came to its end.

    Attributes:
        left: share of the job's communication that going on gains in expectation, at most.
        most: what it gains at most, with 95 % confidence.
        by_time: whether time ran out; else going on was worth less than it costs, or nothing was left.
    """

    left: float
    most: float
    by_time: bool

    @classmethod
    def of(cls, gains: Sequence[tuple[float, Sequence[Known]]], *, by_time: bool) -> "Ending":
        """From what is open at each size.

        Args:
            gains: of each size its share of the job's communication, and by how much, in log-time, each
                candidate is thought to improve the choice there (`open_gains`).
            by_time: whether time ran out.
        """
        error_share = (1 - LEFT_CONFIDENCE) / max(1, len(gains))
        left = sum(weight * _expected_best(own) for weight, own in gains)
        most = sum(weight * _most_of_best(own, error_share) for weight, own in gains)
        return cls(left=-math.expm1(-left), most=-math.expm1(-max(left, most)), by_time=by_time)

    def in_words(self) -> str:
        """One line for the plan."""
        subject = (
            "the search ended with its time: a larger --budget"
            if self.by_time
            else "the search ended early: further tuning"
        )
        return (
            f"{subject} is worth at most {_percent(self.most)} ({100 * LEFT_CONFIDENCE:g} % confidence), "
            f"{_percent(self.left)} in expectation"
        )


def _percent(share: float) -> str:
    percent = max(0.01, 100 * share)
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def expected_improvement(mean: float, sd: float) -> float:
    """E max(0, X) of a normal X with this mean and standard deviation >= 0."""
    if sd <= 0:
        return max(0.0, mean)
    z = mean / sd
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return max(0.0, mean * (1 + math.erf(z / math.sqrt(2))) / 2 + sd * density)


def expected_regret(known: Sequence[Known], expected: Iterable[Known]) -> float:
    """What the best candidate so far is expected to lose against all that could be better; log-time, >= 0.

    Args:
        known: candidates that are still in play; the default, at 0 exactly, always is.
        expected: of those that were not tried, what is expected of them.
    """
    best = _best(known)
    in_play = (_DEFAULT, *known)
    regret = sum(_improvement(best, one) for one in in_play if one is not best)
    return regret + sum(_improvement(best, one) for one in expected)


def improvement(known: Sequence[Known], expected: Known) -> float:
    """What one that was not tried is expected to improve on the best of the default and those known."""
    return _improvement(_best(known), expected)


def open_gains(known: Sequence[Known], expected: Iterable[Known]) -> list[Known]:
    """By how much, in log-time, each other candidate is thought to improve on the best so far, and its error.

    Args:
        known: as for `expected_regret`.
        expected: as for `expected_regret`.
    """
    best = _best(known)
    others = [*(one for one in (_DEFAULT, *known) if one is not best), *expected]
    return [
        Known(log_ratio=best.log_ratio - one.log_ratio, error=math.hypot(best.error, one.error))
        for one in others
        if math.isfinite(one.log_ratio)
    ]


def _exceeding(gains: Sequence[Known], least: float) -> float:
    """At most how probable it is that any of these normal gains exceeds this one, within [0, 1]."""
    total = 0.0
    for one in gains:
        if one.error > 0:
            total += math.erfc((least - one.log_ratio) / one.error / math.sqrt(2)) / 2
        else:
            total += one.log_ratio > least
    return min(1.0, total)


def _most_of_best(gains: Sequence[Known], error_share: float) -> float:
    """What the best of these gains exceeds with at most this probability; log-time, >= 0."""
    if _exceeding(gains, 0.0) <= error_share:
        return 0.0
    low, high = 0.0, 1.0
    while _exceeding(gains, high) > error_share and high < _FARTHEST:
        low, high = high, 2 * high
    while high - low > _STEP:
        middle = (low + high) / 2
        low, high = (middle, high) if _exceeding(gains, middle) > error_share else (low, middle)
    return high


def _expected_best(gains: Sequence[Known]) -> float:
    """What the best of these gains, or 0, is in expectation, at most; log-time."""
    if not gains:
        return 0.0
    # Where the sum of probabilities is still 1 nothing is saved; beyond, each counts by its own tail.
    certain = _most_of_best(gains, 1.0 - _STEP)
    beyond = sum(expected_improvement(one.log_ratio - certain, one.error) for one in gains)
    return certain + beyond


def _best(known: Sequence[Known]) -> Known:
    return min((_DEFAULT, *known), key=lambda one: one.log_ratio)


def _improvement(best: Known, other: Known) -> float:
    if not math.isfinite(other.log_ratio):
        return 0.0
    return expected_improvement(best.log_ratio - other.log_ratio, math.hypot(best.error, other.error))


def prediction_error(residuals: Sequence[float]) -> Known:
    """Bias and spread of predictions, in log-time.

    Args:
        residuals: log(measured / predicted) of the ratio to the default, of tried candidates.
    """
    if len(residuals) < _FEWEST_TRIED:
        return Known(log_ratio=float(np.median(residuals)) if residuals else 0.0, error=_PRIOR_SPREAD)
    bias = float(np.median(residuals))
    spread = 1.4826 * float(np.median(np.abs(np.array(residuals) - bias)))
    return Known(log_ratio=bias, error=max(_LEAST_SPREAD, spread))


def put_right(
    candidates: Iterable[Candidate], near: Iterable[tuple[float, Mapping[Candidate, Known]]]
) -> list[Known]:
    """How wrong the predictions of these candidates at a size are thought to be, in their order.

    As wrong as at the nearest size where the candidate was tried, or else as the others' were.

    Args:
        candidates: none of them tried at the size.
        near: of this and other sizes, how many doublings off they are, and how wrong predictions were there.
    """
    by_distance = sorted(near, key=lambda one: one[0])
    # Of the nearest sizes, until some are there to learn from.
    seen: list[float] = []
    for _, residuals in by_distance:
        if len(seen) >= _ENOUGH_SEEN:
            break
        seen += [one.log_ratio for one in residuals.values()]
    others = prediction_error(seen)
    return [
        next(
            (
                replace(
                    residuals[candidate],
                    error=math.hypot(residuals[candidate].error, _CURVE_ERROR * doublings),
                )
                for doublings, residuals in by_distance
                if candidate in residuals
            ),
            others,
        )
        for candidate in candidates
    ]


def grown(wrong: Known, small_s: float, large_s: float) -> Known:
    """How wrong a prediction is thought to be at a larger size than that where it was found to be wrong.

    What was left out may come with every message: then it adds the same seconds to a larger size, where they
    are soon nothing. Or it comes with every byte, as far as that may be wrong: then it stretches all times
    alike. Halfway between, each as likely as the other.

    Args:
        wrong: log(measured / predicted) at the smaller size, and its error.
        small_s: what was predicted there, seconds.
        large_s: what is predicted at the larger size.
    """
    if large_s <= small_s:
        return wrong
    stretch = max(-_BYTES_WRONG, min(_BYTES_WRONG, wrong.log_ratio))
    added = math.log1p(math.expm1(wrong.log_ratio) * small_s / large_s)
    both = math.log(math.exp(stretch) + (math.exp(wrong.log_ratio) - math.exp(stretch)) * small_s / large_s)
    return Known(log_ratio=(added + both) / 2, error=math.hypot(wrong.error, (both - added) / 2))


def size_weights(
    default_s: Mapping[int, float], message_bytes: Iterable[int], *, asked_bytes: Sequence[int] = ()
) -> dict[int, float]:
    """Share of a job's communication that each searched size stands for; they add up to 1.

    Args:
        default_s: what the default takes, by searched size.
        message_bytes: sizes of the job's messages in a step; each counts for the nearest searched size. None
            at all: all sizes weigh the same.
        asked_bytes: sizes that the run was asked for: the largest searched one stands for larger ones, too.
    """
    if not default_s:
        return {}
    spent_s = dict.fromkeys(default_s, 0.0)
    for num_bytes in message_bytes:
        near = min(default_s, key=lambda size: abs(math.log(size / max(1, num_bytes))))
        spent_s[near] += default_s[near] * num_bytes / near
    mean_s = sum(spent_s.values()) / len(spent_s)
    if mean_s == 0:
        last = max(default_s)
        beyond = sum(size > last for size in asked_bytes)
        return {size: (1 + beyond * (size == last)) / (len(default_s) + beyond) for size in default_s}
    weights = {size: max(own_s, _LEAST_WEIGHT * mean_s) for size, own_s in spent_s.items()}
    total = sum(weights.values())
    return {size: weight / total for size, weight in weights.items()}

"""How many rounds each point of confirmation gets: what it needs, what it costs, what it matters.

The number of comparisons is known before the first sample, and so is the number of rounds of each up to the
first look at them, from the spread seen in the search. Where part of the time holds what is to be confirmed,
the rest is left for points that the first look leaves open (`topotune.tune.looks`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

import numpy as np

from topotune.tune.judge import PASSES, Point, confidence_of, margin_twice_over
from topotune.tune.looks import NEAR, error_share
from topotune.tune.points import alone, before_default, confirmation_points
from topotune.tune.search import Standing, ratio_of
from topotune.tune.statistics import corrected, minimum_rounds, rounds_needed
from topotune.tune.trial import DEFAULT, Candidate

Stretch = Callable[[float], float]
"""Wall time of rounds over that of their calls, by how long a call takes (`Sampling.stretch`)."""

_MOST_ROUNDS: Final = 100
"""Of one point: beyond, an interval shrinks too little to matter."""

_LEAST_NEED: Final = 24
"""Rounds that a point is thought to need at least: gain and spread were seen in a few rounds only."""

_LARGEST_SHARE: Final = 2 / 3
"""Of the time for confirmation: what one size among several may take at the cost of the others' rounds."""

RENEWAL_S: Final = 0.05
"""What new connections are thought to take; more where there are many ranks, which is then seen."""


_OF_SEVERAL_LOOKS: Final = (0.5, 0.65, 0.8)
"""Share of the time that goes to the first of several looks: the least that holds what one look would."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfirmationPlan:
    """What is to be confirmed.

    Attributes:
        points: with their numbers of rounds up to the first look.
        kept: the finalists that are left, by searched size.
        several_looks: whether there is time to look more than once.
    """

    points: tuple[Point, ...]
    kept: Mapping[int, Candidate]
    several_looks: bool

    @property
    def num_comparisons(self) -> int:
        """That are corrected for: those of the points, and with several looks what may be added."""
        return _num_comparisons(self.points, several_looks=self.several_looks)

    @property
    def fewest_rounds(self) -> int:
        """Of each point, with which the first look can bound an interval."""
        return _fewest(self.points, several_looks=self.several_looks)

    @property
    def first_look_s(self) -> float:
        """Wall time up to the first look, as it is planned; 0 where nothing is."""
        return PASSES * RENEWAL_S + _needed_s(self.points) if self.points else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What the search has seen, and what the margin and a call's surroundings cost."""

    standings: Mapping[int, Sequence[Standing]]
    default_s: Mapping[int, float]
    min_gain: float
    stretch: Stretch


def plan_confirmation(
    finalists: Mapping[int, Candidate],
    standings: Mapping[int, Sequence[Standing]],
    default_s: Mapping[int, float],
    *,
    min_gain: float,
    budget_s: float,
    stretch: Stretch,
    weights: Mapping[int, float] | None = None,
    aim: float = 0.0,
) -> ConfirmationPlan:
    """Points with their numbers of rounds, so that all fit the budget.

    Each point needs the more rounds the smaller its gain is against its spread, and costs the more the longer
    its calls are. Time is shared so that the sum of needs per round is least, weighted with what sizes
    matter: rounds in proportion to the root of weight and need over cost, between the fewest with which an
    interval can be bounded and 100. If not all get what they need, single sizes reach less far towards the
    default; but a largest size that weighs more than others keeps points for a row of its own. If the fewest
    do not fit, or one size would take more than two thirds of the time that others need, rows are ended at
    the largest sizes that the default follows, and then sizes are given up (they keep the default), the one
    with the most time per gain first.

    Args:
        finalists: of each searched size.
        standings: of each searched size.
        default_s: what the default takes there, seconds.
        min_gain: the margin.
        budget_s: for all of it.
        stretch: of calls.
        weights: of each searched size, its share of the job's communication; None: all weigh the same.
        aim: of the largest searched size (see `Point`). Where a finalist stands alone it is at least what
            lets it do so (`topotune.tune.smoothing`).
    """
    seen = _Seen(standings=standings, default_s=default_s, min_gain=min_gain, stretch=stretch)
    aims = {max(finalists, default=0): aim}
    if len(finalists) > 1:
        for size in alone(finalists):
            aims[size] = max(aims.get(size, 0.0), margin_twice_over(min_gain))

    def planned(time_s: float, *, several_looks: bool) -> ConfirmationPlan:
        points, kept = _planned(
            finalists,
            seen,
            budget_s=time_s,
            weights=weights or dict.fromkeys(finalists, 1.0),
            several_looks=several_looks,
        )
        return ConfirmationPlan(
            points=tuple(replace(point, aim=aims.get(point.message_bytes, 0.0)) for point in points),
            kept=kept,
            several_looks=several_looks and bool(points),
        )

    at_once = planned(budget_s, several_looks=False)
    for share in _OF_SEVERAL_LOOKS:
        plan = planned(share * budget_s, several_looks=True)
        if plan.kept == at_once.kept:
            return plan
    return at_once


def _planned(
    finalists: Mapping[int, Candidate],
    seen: _Seen,
    *,
    budget_s: float,
    weights: Mapping[int, float],
    several_looks: bool,
) -> tuple[list[Point], dict[int, Candidate]]:
    kept, short, close = dict(finalists), frozenset[int](), False
    last_apart = bool(weights) and weights[max(weights)] > fmean(weights.values())

    budget_s -= PASSES * RENEWAL_S

    def planned(finalists: Mapping[int, Candidate]) -> list[Point]:
        points = confirmation_points(finalists, short=short, close=close, last_apart=last_apart)
        points = _with_rounds(points, finalists, seen, several_looks=several_looks)
        return [_weighted(point, finalists, weights) for point in points]

    while departing := [size for size, one in kept.items() if one != DEFAULT]:
        points = planned(kept)
        if not close and _needed_s(points) > budget_s:
            close = True
            points = planned(kept)
        fewest = _fewest(points, several_looks=several_looks)
        costliest = max(
            departing,
            key=lambda size: (
                seen.default_s[size]
                / math.log(ratio_of(seen.standings[size], finalists[size]))
                / weights[size]
            ),
        )
        without = {**kept, costliest: DEFAULT}
        others = planned(without)
        least_s = _least_s(points, fewest)
        own_s = least_s - _least_s(others, fewest)
        most_s = max(_LARGEST_SHARE * budget_s, budget_s - _needed_s(others))
        if least_s <= budget_s and own_s <= most_s:
            return _shared_out(points, fewest, budget_s - sum(point.warmup_s for point in points)), kept
        last = max((size for size in before_default(kept) if size not in short), default=None)
        if last is None:
            kept = without
        else:
            short |= {last}
    return [], kept


def least_confirmation_s(
    finalists: Mapping[int, Candidate],
    standings: Mapping[int, Sequence[Standing]],
    default_s: Mapping[int, float],
    *,
    min_gain: float,
    stretch: Stretch,
) -> float:
    """Wall time of confirming all finalists with the fewest rounds that can bound an interval."""
    points = confirmation_points(finalists, short=frozenset(finalists), close=True)
    seen = _Seen(standings=standings, default_s=default_s, min_gain=min_gain, stretch=stretch)
    points = _with_rounds(points, finalists, seen, several_looks=False)
    return PASSES * RENEWAL_S + _least_s(points, fewest_rounds(count_comparisons(points)))


def _needed_s(points: Sequence[Point]) -> float:
    return sum(point.num_rounds * point.round_s + point.warmup_s for point in points)


def _least_s(points: Sequence[Point], fewest: int) -> float:
    return sum(fewest * point.round_s + point.warmup_s for point in points)


def fewest_rounds(num_comparisons: int, share: float = 1.0) -> int:
    """Rounds with which an interval can be bounded where it is corrected for so many comparisons.

    Args:
        num_comparisons: to correct for.
        share: of the error rate, what the look may spend.
    """
    return minimum_rounds(corrected(confidence_of(share), num_comparisons)) + 2


def _first_share(several_looks: bool) -> float:
    """Of the error rate, what the first look may spend."""
    return error_share(0) if several_looks else 1.0


def _num_comparisons(points: Sequence[Point], *, several_looks: bool) -> int:
    return count_comparisons(points) + (NEAR if several_looks else 0)


def _fewest(points: Sequence[Point], *, several_looks: bool) -> int:
    return fewest_rounds(_num_comparisons(points, several_looks=several_looks), _first_share(several_looks))


def count_comparisons(points: Sequence[Point]) -> int:
    """Comparisons that these points make."""
    return sum(len(point.candidates) for point in points)


def _shared_out(points: Sequence[Point], fewest: int, budget_s: float) -> list[Point]:
    """Points with as many rounds as the budget holds; ``num_rounds`` of those given is what each needs."""

    def scaled(factor: float) -> list[Point]:
        return [
            replace(
                point,
                num_rounds=max(
                    fewest,
                    min(
                        _MOST_ROUNDS, int(factor * math.sqrt(point.weight * point.num_rounds / point.round_s))
                    ),
                ),
            )
            for point in points
        ]

    low = 0.0
    high = _MOST_ROUNDS * max((math.sqrt(point.round_s / point.weight) for point in points), default=0.0)
    for _ in range(40):
        middle = (low + high) / 2
        fits = sum(point.num_rounds * point.round_s for point in scaled(middle)) <= budget_s
        low, high = (middle, high) if fits else (low, middle)
    return scaled(low)


def _weighted(point: Point, finalists: Mapping[int, Candidate], weights: Mapping[int, float]) -> Point:
    """The point with the weight of the most important row that hangs on it."""
    nearest = [_nearest_with(candidate, finalists, point.message_bytes) for candidate in point.candidates]
    return replace(point, weight=max(weights[size] for size in nearest))


def _nearest_with(candidate: Candidate, finalists: Mapping[int, Candidate], message_bytes: int) -> int:
    """The searched size nearest to this one of those whose finalist the candidate is."""
    return min(
        (size for size in finalists if finalists[size] == candidate),
        key=lambda size: abs(math.log(size / message_bytes)),
    )


def _with_rounds(
    points: Sequence[Point],
    finalists: Mapping[int, Candidate],
    seen: _Seen,
    *,
    several_looks: bool,
) -> list[Point]:
    """Points with the rounds that each needs to clear the margin."""
    num_comparisons = _num_comparisons(points, several_looks=several_looks)
    level = corrected(confidence_of(_first_share(several_looks)), num_comparisons)
    least = dict.fromkeys(finalists, 1 + seen.min_gain)
    if len(finalists) > 1:
        least.update(dict.fromkeys(alone(finalists), margin_twice_over(seen.min_gain)))
    planned = []
    for point in points:
        rounds = 0
        call_s = calls_s = interpolated(seen.default_s, point.message_bytes)
        for candidate in point.candidates:
            # An odd size between two searched ones is expected to be no easier than the nearest of its
            # candidate's.
            near = _nearest_with(candidate, finalists, point.message_bytes)
            standing = next(one for one in seen.standings[near] if one.candidate == candidate)
            # Half of the way to the interval's low end: the best of many looks better than it is.
            expected = math.sqrt(standing.comparison.ratio * max(standing.comparison.low, 1.0))
            log_gain = math.log(expected / least[near])
            needed = rounds_needed(log_gain, standing.log_spread, confidence=level, most=_MOST_ROUNDS)
            rounds = max(rounds, needed, _LEAST_NEED)
            calls_s += call_s / standing.comparison.ratio
        round_s = calls_s * seen.stretch(calls_s / (1 + len(point.candidates)))
        planned.append(replace(point, num_rounds=rounds, round_s=round_s, call_s=call_s))
    return planned


def interpolated(default_s: Mapping[int, float], message_bytes: int) -> float:
    """The default's time at any size, from the measured sizes, linear in log-log.

    Beyond the largest it is flat; below the smallest it falls with the root of the size, halfway between what
    only bandwidth bounds and what only latency does.
    """
    sizes = sorted(default_s)
    times = [math.log(default_s[size]) for size in sizes]
    below = min(0.0, math.log(message_bytes / sizes[0]) / 2)
    return math.exp(
        below + float(np.interp(math.log(message_bytes), [math.log(size) for size in sizes], times))
    )

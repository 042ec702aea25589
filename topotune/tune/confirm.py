"""Confirmation: fresh samples at the ends and inside of every range that may depart from the default.

Theory of operation. A finalist holds for the sizes between its first and its last confirmed size, so its
range is tested where it ends, at every searched size in it, and at a size of an odd number of elements
between each two. At a switch, both neighbours are tested at the odd size between their sizes, which becomes
the boundary if both hold there. The number of comparisons is known before the first sample, and so is the
number of rounds of each, from the spread seen in the search; Bonferroni corrects the intervals for the
number, and nothing is looked at before its end.

Null trials put the default against itself through the same rule, and count how often it "wins".
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from topotune.tune.sampling import Sampling
from topotune.tune.search import Standing, ratio_of
from topotune.tune.statistics import (
    Comparison,
    Samples,
    clopper_pearson,
    compare_arms,
    corrected,
    minimum_rounds,
    rounds_needed,
)
from topotune.tune.trial import DEFAULT, Candidate, CandidateFailedError

CONFIDENCE: Final = 0.95
"""Of all intervals together."""

ELEMENT_BYTES: Final = 4
"""Messages are timed as float32."""

_OVERHEAD: Final = 1.45
"""Wall time of a round over the sum of its calls: spacing of the starts, agreement of the ranks."""

_MOST_ROUNDS: Final = 100
"""Of one point: beyond, an interval shrinks too little to matter."""

_LEAST_NEED: Final = 40
"""Rounds that a point is thought to need at least: gain and spread were seen in a few rounds only."""

_LARGEST_SHARE: Final = 0.5
"""Of the time for confirmation: what one size among several may take at the cost of the others' rounds."""

_PASSES: Final = 2
"""Points are visited this often, in an order drawn anew, so that a slow minute falls on all of them."""

_KNOWN_SHARE: Final = 0.05
"""Of the time that confirmation is planned to take: what is known of calls before the first one."""

_INSTANT_S: Final = 1e-9
_FEWEST_NULL_TRIALS, _MOST_NULL_TRIALS = 4, 60


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
    """

    message_bytes: int
    candidates: tuple[Candidate, ...]
    searched: bool
    num_rounds: int = 0
    round_s: float = 0.0
    call_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """A candidate against the default on fresh samples, at one size.

    Attributes:
        passed: the interval, corrected for all comparisons, clears the margin.
        searched: the size was one of the search.
    """

    message_bytes: int
    candidate: Candidate
    comparison: Comparison
    passed: bool
    searched: bool


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


def odd_between(low_bytes: int, high_bytes: int) -> int | None:
    """A size of an odd number of elements strictly between, near the geometric mean; None if none is."""
    elements = int(math.sqrt(low_bytes * high_bytes)) // ELEMENT_BYTES | 1
    for wanted in (elements, elements - 2, elements + 2):
        if low_bytes < wanted * ELEMENT_BYTES < high_bytes:
            return wanted * ELEMENT_BYTES
    return None


def confirmation_points(
    finalists: Mapping[int, Candidate], *, short: frozenset[int] = frozenset()
) -> list[Point]:
    """Where the finalists must hold, ascending.

    A single searched size reaches up to the boundary towards its neighbour and gets an odd size on the way;
    if it is the only size at all, it reaches down halfway to a quarter of it. Nothing larger than the largest
    size asked for is sent: it may take longer than all the rest.

    Args:
        finalists: of each searched size.
        short: sizes that reach down instead of up where the default follows them: that takes less time.
    """
    sizes = sorted(finalists)
    wanted: dict[int, dict[Candidate, None]] = {}

    def want(message_bytes: int | None, *candidates: Candidate) -> None:
        if message_bytes is not None and (able := [one for one in candidates if one != DEFAULT]):
            wanted.setdefault(message_bytes, {}).update(dict.fromkeys(able))

    for size in sizes:
        want(size, finalists[size])
    between = dict(
        zip(pairwise(sizes), (odd_between(low, high) for low, high in pairwise(sizes)), strict=True)
    )
    ends_here = {size for size in _before_default(finalists) if size in short and size > sizes[0]}
    for (low, high), odd in between.items():
        want(odd, DEFAULT if low in ends_here else finalists[low], finalists[high])
    for index, size in enumerate(sizes):
        neighbours = [sizes[i] for i in (index - 1, index + 1) if 0 <= i < len(sizes)]
        if any(finalists[neighbour] == finalists[size] for neighbour in neighbours):
            continue
        if not neighbours:
            end = odd_between(size // 4, size)
            want(end, finalists[size])
        elif size in ends_here:
            end = between[neighbours[0], size]
        else:
            end = between.get((size, neighbours[-1])) or between.get((neighbours[0], size))
        if end is not None:
            want(odd_between(*sorted((size, end))), finalists[size])
    return [
        Point(message_bytes=size, candidates=tuple(candidates), searched=size in finalists)
        for size, candidates in sorted(wanted.items())
    ]


def plan_confirmation(
    finalists: Mapping[int, Candidate],
    standings: Mapping[int, Sequence[Standing]],
    default_s: Mapping[int, float],
    *,
    min_gain: float,
    budget_s: float,
) -> tuple[list[Point], dict[int, Candidate]]:
    """Points with their numbers of rounds, so that all fit the budget.

    Each point needs the more rounds the smaller its gain is against its spread, and costs the more the longer
    its calls are. Time is shared so that the sum of needs per round is least: rounds in proportion to the
    root of need over cost, between the fewest with which an interval can be bounded and 100. If the fewest do
    not fit, or one size would take more than half of the time that others need, rows are ended at the largest
    sizes that the default follows, and then sizes are given up (they keep the default), the one with the most
    time per gain first.

    Returns:
        the points, and the finalists that are left.
    """
    kept, short = dict(finalists), frozenset[int]()

    def planned(finalists: Mapping[int, Candidate]) -> list[Point]:
        points = confirmation_points(finalists, short=short)
        return _with_rounds(points, finalists, standings, default_s, min_gain)

    while departing := [size for size, one in kept.items() if one != DEFAULT]:
        points = planned(kept)
        fewest = _fewest_rounds(points)
        costliest = max(
            departing, key=lambda size: default_s[size] / math.log(ratio_of(standings[size], finalists[size]))
        )
        without = {**kept, costliest: DEFAULT}
        others = planned(without)
        least_s = fewest * sum(point.round_s for point in points)
        own_s = least_s - fewest * sum(point.round_s for point in others)
        needed_s = sum(point.num_rounds * point.round_s for point in others)
        most_s = max(_LARGEST_SHARE * budget_s, budget_s - needed_s)
        if least_s <= budget_s and own_s <= most_s:
            return _shared_out(points, fewest, budget_s), kept
        last = max((size for size in _before_default(kept) if size not in short), default=None)
        if last is None:
            kept = without
        else:
            short |= {last}
    return [], kept


def _before_default(finalists: Mapping[int, Candidate]) -> list[int]:
    """Sizes with a finalist that the default follows."""
    return [
        low
        for low, high in pairwise(sorted(finalists))
        if finalists[low] != DEFAULT and finalists[high] == DEFAULT
    ]


def least_confirmation_s(
    finalists: Mapping[int, Candidate],
    standings: Mapping[int, Sequence[Standing]],
    default_s: Mapping[int, float],
    *,
    min_gain: float,
) -> float:
    """Wall time of confirming all finalists with the fewest rounds that can bound an interval."""
    points = confirmation_points(finalists, short=frozenset(finalists))
    points = _with_rounds(points, finalists, standings, default_s, min_gain)
    return _fewest_rounds(points) * sum(point.round_s for point in points)


def _fewest_rounds(points: Sequence[Point]) -> int:
    return minimum_rounds(corrected(CONFIDENCE, num_comparisons(points))) + 2


def num_comparisons(points: Sequence[Point]) -> int:
    """Comparisons that these points make."""
    return sum(len(point.candidates) for point in points)


def confirm(
    points: Sequence[Point],
    sampling: Sampling,
    *,
    min_gain: float,
    seed: int,
    deadline_s: float,
    after_point: Callable[[], None] = lambda: None,
) -> list[Confirmation]:
    """Run all points on fresh samples and judge them together, ascending.

    Where calls take longer than planned, all that is still to be run is cut in proportion, whatever was seen,
    but not below the fewest rounds that bound an interval: those are run as long as there is time.
    A candidate with a wrong result at a point, or whose call was cut off there, and a point that time ran out
    for, did not pass.
    """
    collected: dict[Point, list[Samples]] = {point: [] for point in points}
    arms_of: dict[Point, tuple[Candidate, ...]] = {}
    fewest = _fewest_rounds(points)
    visits = [
        (points[int(index)], _share(points[int(index)].num_rounds, turn), _share(fewest, turn))
        for turn in range(_PASSES)
        for index in sampling.rng.permutation(len(points))
    ]
    left_s = sum(rounds * point.round_s for point, rounds, _ in visits)
    # What was planned counts as kept to, until some of it was run: checks and first calls take longer.
    known_s = _KNOWN_SHARE * left_s
    started_s, planned_s = sampling.now_s() - known_s, known_s
    for point, rounds, least in visits:
        now_s = sampling.now_s()
        slowness = (now_s - started_s) / max(_INSTANT_S, planned_s)
        affordable = int(rounds * min(1.0, (deadline_s - now_s) / max(_INSTANT_S, slowness * left_s)))
        left_s -= rounds * point.round_s
        if now_s < deadline_s:
            affordable = max(affordable, least)
        if affordable < 1:
            continue
        planned_s += affordable * point.round_s
        if point not in arms_of:
            exact = [one for one in point.candidates if sampling.check(one, point.message_bytes) is None]
            arms_of[point] = (DEFAULT, *exact)
        while len(arms := arms_of[point]) > 1:
            try:
                times_s = sampling.rounds(
                    "confirm",
                    point.message_bytes,
                    arms,
                    affordable,
                    first_guess_s=point.call_s,
                    until_s=deadline_s,
                )
            except CandidateFailedError as failure:
                column = arms.index(failure.candidate)
                arms_of[point] = tuple(arm for arm in arms if arm != failure.candidate)
                collected[point] = [np.delete(one, column, axis=1) for one in collected[point]]
                continue
            collected[point].append(times_s)
            break
        after_point()
    level = corrected(CONFIDENCE, num_comparisons(points))
    confirmations = []
    for point, passes in collected.items():
        if not passes:
            continue
        times_s = np.concatenate(passes)
        for column, candidate in enumerate(arms_of[point][1:], start=1):
            comparison = compare_arms(times_s[:, 0], times_s[:, column], confidence=level, seed=seed)
            confirmations.append(
                Confirmation(
                    message_bytes=point.message_bytes,
                    candidate=candidate,
                    comparison=comparison,
                    passed=clears(comparison, min_gain),
                    searched=point.searched,
                )
            )
    return confirmations


def _share(num_rounds: int, turn: int) -> int:
    """Rounds of one pass: whole numbers that add up."""
    return num_rounds * (turn + 1) // _PASSES - num_rounds * turn // _PASSES


def clears(comparison: Comparison, min_gain: float) -> bool:
    """The rule: only an interval that lies wholly above the margin departs from the default."""
    return comparison.low > 1 + min_gain and math.isfinite(comparison.high)


def run_null_trials(
    sampling: Sampling,
    default_s: Mapping[int, float],
    *,
    comparisons: int,
    min_gain: float,
    seed: int,
    deadline_s: float,
    after_trial: Callable[[], None] = lambda: None,
) -> NullTrials:
    """Default against default, sizes in turn, as many as fit before the deadline (at most 60).

    Sizes of which less than four trials would fit are left out: many trials say more than large ones.

    Args:
        sampling: where samples come from.
        default_s: of each size, what the default takes.
        comparisons: number of comparisons that confirmation corrected for; the same correction is used here.
        min_gain: the same margin.
        seed: of the bootstrap.
        deadline_s: on the clock of ``now_s``.
        after_trial: called after each.
    """
    level = corrected(CONFIDENCE, comparisons)
    num_rounds = minimum_rounds(level) + 4
    costs_s = {size: _OVERHEAD * 2 * num_rounds * time_s for size, time_s in sorted(default_s.items())}
    left_s = deadline_s - sampling.now_s()
    costs_s = {size: cost_s for size, cost_s in costs_s.items() if _FEWEST_NULL_TRIALS * cost_s <= left_s}
    trials = wins = 0
    tried = True
    while tried and trials < _MOST_NULL_TRIALS:
        tried = False
        for size, cost_s in costs_s.items():
            if trials >= _MOST_NULL_TRIALS or sampling.now_s() + cost_s > deadline_s:
                continue
            times_s = sampling.rounds(
                "null",
                size,
                (DEFAULT, DEFAULT),
                num_rounds,
                first_guess_s=default_s[size],
                until_s=deadline_s,
            )
            if len(times_s) < num_rounds:
                continue
            comparison = compare_arms(times_s[:, 0], times_s[:, 1], confidence=level, seed=seed + trials)
            trials, wins, tried = trials + 1, wins + clears(comparison, min_gain), True
            after_trial()
    return NullTrials(num_trials=trials, num_wins=wins)


def _shared_out(points: Sequence[Point], fewest: int, budget_s: float) -> list[Point]:
    """Points with as many rounds as the budget holds; ``num_rounds`` of those given is what each needs."""

    def scaled(factor: float) -> list[Point]:
        return [
            replace(
                point,
                num_rounds=max(
                    fewest, min(_MOST_ROUNDS, int(factor * math.sqrt(point.num_rounds / point.round_s)))
                ),
            )
            for point in points
        ]

    low, high = 0.0, _MOST_ROUNDS * max((math.sqrt(point.round_s) for point in points), default=0.0)
    for _ in range(40):
        middle = (low + high) / 2
        fits = sum(point.num_rounds * point.round_s for point in scaled(middle)) <= budget_s
        low, high = (middle, high) if fits else (low, middle)
    return scaled(low)


def _with_rounds(
    points: Sequence[Point],
    finalists: Mapping[int, Candidate],
    standings: Mapping[int, Sequence[Standing]],
    default_s: Mapping[int, float],
    min_gain: float,
) -> list[Point]:
    """Points with the rounds that each needs to clear the margin."""
    level = corrected(CONFIDENCE, num_comparisons(points))
    planned = []
    for point in points:
        rounds, call_s = 0, 0.0
        calls_s = interpolated(default_s, point.message_bytes)
        for candidate in point.candidates:
            # An odd size between two searched ones is expected to be no easier than the nearest of its
            # candidate's.
            near = min(
                (size for size in finalists if finalists[size] == candidate),
                key=lambda size: abs(math.log(size / point.message_bytes)),
            )
            standing = next(one for one in standings[near] if one.candidate == candidate)
            # Half of the way to the interval's low end: the best of many looks better than it is.
            expected = math.sqrt(standing.comparison.ratio * max(standing.comparison.low, 1.0))
            log_gain = math.log(expected / (1 + min_gain))
            needed = rounds_needed(log_gain, standing.log_spread, confidence=level, most=_MOST_ROUNDS)
            rounds = max(rounds, needed, _LEAST_NEED)
            calls_s += interpolated(default_s, point.message_bytes) / standing.comparison.ratio
            call_s = max(call_s, interpolated(default_s, point.message_bytes))
        planned.append(replace(point, num_rounds=rounds, round_s=_OVERHEAD * calls_s, call_s=call_s))
    return planned


def interpolated(default_s: Mapping[int, float], message_bytes: int) -> float:
    """The default's time at any size, from the measured sizes, linear in log-log and flat beyond the ends."""
    sizes = sorted(default_s)
    times = [math.log(default_s[size]) for size in sizes]
    return math.exp(float(np.interp(math.log(message_bytes), [math.log(size) for size in sizes], times)))

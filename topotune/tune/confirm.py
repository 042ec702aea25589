"""Confirmation: fresh samples at the ends and inside of every range that may depart from the default.

Theory of operation. A finalist holds for the sizes between its first and its last confirmed size, so its
range is tested where it ends, at every searched size in it, and at a size of an odd number of elements
between each two. At a switch, both neighbours are tested at the odd size between their sizes, which becomes
the boundary if both hold there. The number of comparisons is known before the first sample, and so is the
number of rounds of each, from the spread seen in the search; nothing is looked at before its end.

All points are visited in several passes, each on new connections, whose luck is so drawn several times
(`topotune.tune.statistics`); what passes is judged over all of them together (`topotune.tune.judge`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Final

import numpy as np

from topotune.tune.judge import (
    CONFIDENCE,
    PASSES,
    Confirmation,
    Correction,
    Point,
    PointSamples,
    judge,
)
from topotune.tune.sampling import Sampling
from topotune.tune.search import Standing, ratio_of
from topotune.tune.statistics import (
    Block,
    Samples,
    corrected,
    minimum_rounds,
    rounds_needed,
)
from topotune.tune.trial import DEFAULT, DEFAULTS, TWIN, Candidate, CandidateFailedError, MissedStartsError

ELEMENT_BYTES: Final = 4
"""Messages are timed as float32."""

OVERHEAD: Final = 1.45
"""Wall time of a round over the sum of its calls: spacing of the starts, agreement of the ranks."""

_MOST_ROUNDS: Final = 100
"""Of one point: beyond, an interval shrinks too little to matter."""

_LEAST_NEED: Final = 24
"""Rounds that a point is thought to need at least: gain and spread were seen in a few rounds only."""

_LARGEST_SHARE: Final = 2 / 3
"""Of the time for confirmation: what one size among several may take at the cost of the others' rounds."""

RENEWAL_S: Final = 0.05
"""What new connections are thought to take; more where there are many ranks, which is then seen."""

_KNOWN_SHARE: Final = 0.05
"""Of the time that confirmation is planned to take: what is known of calls before the first one."""

_INSTANT_S: Final = 1e-9

Taken = Mapping[Candidate, tuple[Block, ...]]
"""What was timed at a point, by candidate."""


def odd_between(low_bytes: int, high_bytes: int) -> int | None:
    """A size of an odd number of elements strictly between, near the geometric mean; None if none is."""
    elements = int(math.sqrt(low_bytes * high_bytes)) // ELEMENT_BYTES | 1
    for wanted in (elements, elements - 2, elements + 2):
        if low_bytes < wanted * ELEMENT_BYTES < high_bytes:
            return wanted * ELEMENT_BYTES
    return None


def confirmation_points(
    finalists: Mapping[int, Candidate],
    *,
    short: frozenset[int] = frozenset(),
    close: bool = False,
    last_apart: bool = False,
) -> list[Point]:
    """Where the finalists must hold, ascending.

    A single searched size reaches up to the boundary towards its neighbour and gets odd sizes halfway there,
    and halfway again: where its gain ends before the boundary, the row that is left has an odd size inside.
    If it is the only size at all, it reaches down halfway to a quarter of it. Nothing larger than the largest
    size asked for is sent: it may take longer than all the rest.

    Args:
        finalists: of each searched size.
        short: sizes that reach down instead of up where the default follows them: that takes less time.
        close: single sizes reach only halfway to a boundary behind which the default stands.
        last_apart: the largest size, which larger ones inherit from, has a row even if its candidate fails at
            all smaller ones.
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
    alone = {size for size in sizes if _is_alone(size, finalists)}

    def reaches(size: int, other: int) -> bool:
        """Whether the row of a size goes up to its boundary towards this neighbour."""
        if size < other and size in ends_here:
            return False
        return not (close and size in alone and finalists[other] == DEFAULT)

    for (low, high), odd in between.items():
        for size, other in ((low, high), (high, low)):
            if reaches(size, other):
                want(odd, finalists[size])
    if last_apart and len(sizes) > 1 and sizes[-1] not in alone:
        boundary = between[sizes[-2], sizes[-1]]
        want(None if boundary is None else odd_between(boundary, sizes[-1]), finalists[sizes[-1]])
    for size in alone:
        index = sizes.index(size)
        if len(sizes) == 1:
            end = odd_between(size // 4, size)
            want(end, finalists[size])
            again = False
        elif index + 1 < len(sizes) and size not in ends_here:
            end = between[size, sizes[index + 1]]
            again = not close or not reaches(size, sizes[index + 1])
        else:
            end = between[sizes[index - 1], size]
            again = not close or not reaches(size, sizes[index - 1])
        halfway = None if end is None else odd_between(*sorted((size, end)))
        want(halfway, finalists[size])
        if halfway is not None and again:
            want(odd_between(*sorted((size, halfway))), finalists[size])
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
    weights: Mapping[int, float] | None = None,
) -> tuple[list[Point], dict[int, Candidate]]:
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
        weights: of each searched size, its share of the job's communication; None: all weigh the same.

    Returns:
        the points, and the finalists that are left.
    """
    kept, short, close = dict(finalists), frozenset[int](), False
    weights = weights or dict.fromkeys(finalists, 1.0)
    last_apart = bool(weights) and weights[max(weights)] > fmean(weights.values())

    budget_s -= PASSES * RENEWAL_S

    def planned(finalists: Mapping[int, Candidate]) -> list[Point]:
        points = confirmation_points(finalists, short=short, close=close, last_apart=last_apart)
        points = _with_rounds(points, finalists, standings, default_s, min_gain)
        return [_weighted(point, finalists, weights) for point in points]

    while departing := [size for size, one in kept.items() if one != DEFAULT]:
        points = planned(kept)
        if not close and _needed_s(points) > budget_s:
            close = True
            points = planned(kept)
        fewest = fewest_rounds(count_comparisons(points))
        costliest = max(
            departing,
            key=lambda size: (
                default_s[size] / math.log(ratio_of(standings[size], finalists[size])) / weights[size]
            ),
        )
        without = {**kept, costliest: DEFAULT}
        others = planned(without)
        least_s = _least_s(points, fewest)
        own_s = least_s - _least_s(others, fewest)
        most_s = max(_LARGEST_SHARE * budget_s, budget_s - _needed_s(others))
        if least_s <= budget_s and own_s <= most_s:
            return _shared_out(points, fewest, budget_s - sum(point.warmup_s for point in points)), kept
        last = max((size for size in _before_default(kept) if size not in short), default=None)
        if last is None:
            kept = without
        else:
            short |= {last}
    return [], kept


def _is_alone(size: int, finalists: Mapping[int, Candidate]) -> bool:
    """Whether no neighbouring size has the same finalist."""
    sizes = sorted(finalists)
    index = sizes.index(size)
    neighbours = [*sizes[max(0, index - 1) : index], *sizes[index + 1 : index + 2]]
    return all(finalists[other] != finalists[size] for other in neighbours)


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
    points = confirmation_points(finalists, short=frozenset(finalists), close=True)
    points = _with_rounds(points, finalists, standings, default_s, min_gain)
    return PASSES * RENEWAL_S + _least_s(points, fewest_rounds(count_comparisons(points)))


def planned_s(points: Sequence[Point]) -> float:
    """Wall time of confirmation as it is planned; 0 where nothing is."""
    if not points:
        return 0.0
    return PASSES * RENEWAL_S + _needed_s(points)


def _needed_s(points: Sequence[Point]) -> float:
    return sum(point.num_rounds * point.round_s + point.warmup_s for point in points)


def _least_s(points: Sequence[Point], fewest: int) -> float:
    return sum(fewest * point.round_s + point.warmup_s for point in points)


def fewest_rounds(num_comparisons: int) -> int:
    """Rounds with which an interval can be bounded where it is corrected for so many comparisons."""
    return minimum_rounds(corrected(CONFIDENCE, num_comparisons)) + 2


def count_comparisons(points: Sequence[Point]) -> int:
    """Comparisons that these points make."""
    return sum(len(point.candidates) for point in points)


def confirm(
    points: Sequence[Point],
    sampling: Sampling,
    *,
    min_gain: float,
    seed: int,
    deadline_s: float,
    correction: Correction = "holm",
    num_comparisons: int | None = None,
    after_point: Callable[[], None] = lambda: None,
) -> list[Confirmation]:
    """Run all points on fresh samples and judge them together, ascending.

    Where calls take longer than planned, all that is still to be run is cut in proportion, whatever was seen,
    but not below the fewest rounds that bound an interval: those are run as long as there is time.
    A candidate with a wrong result at a point, or whose call was cut off there, and a point that time ran out
    for, did not pass.

    Args:
        points: with their numbers of rounds.
        sampling: where samples come from.
        min_gain: the margin.
        seed: of the bootstrap.
        deadline_s: on the clock of ``now_s``.
        correction: see `judge`.
        num_comparisons: to correct for; None for those of these points.
        after_point: called after each visit.
    """
    fewest = [fewest_rounds(count_comparisons(points))] * len(points)
    taken = take_samples(points, sampling, fewest=fewest, deadline_s=deadline_s, after_point=after_point)
    return judge(
        samples_of(points, taken),
        num_comparisons=count_comparisons(points) if num_comparisons is None else num_comparisons,
        min_gain=min_gain,
        seed=seed,
        correction=correction,
    )


def samples_of(points: Sequence[Point], taken: Sequence[Taken]) -> list[PointSamples]:
    """What was timed at these points, a value each comparison."""
    return [
        PointSamples(point=point, candidate=candidate, blocks=blocks)
        for point, by_candidate in zip(points, taken, strict=True)
        for candidate, blocks in by_candidate.items()
    ]


def _raised(_point: Point, error: MissedStartsError) -> None:
    raise error


def take_samples(
    points: Sequence[Point],
    sampling: Sampling,
    *,
    fewest: Sequence[int],
    deadline_s: float,
    after_point: Callable[[], None] = lambda: None,
    on_missed: Callable[[Point, MissedStartsError], None] = _raised,
) -> list[Taken]:
    """Samples of all points, by candidate; without candidates that are wrong or whose call was cut off.

    Args:
        points: with their numbers of rounds.
        sampling: where samples come from.
        fewest: of each point, the rounds that are run at least as long as there is time.
        deadline_s: on the clock of ``now_s``.
        after_point: called after each visit.
        on_missed: called where ranks keep missing the starts of a point; if it returns, the point is not
            visited again, and keeps what was timed of it before. As given it raises.

    Raises:
        MissedStartsError: from ``on_missed``.
    """
    collected: list[list[Samples]] = [[] for _ in points]
    arms_of: dict[int, tuple[Candidate, ...]] = {}
    given_up: set[int] = set()
    visits = [
        (turn, int(index), _share(points[int(index)].num_rounds, turn), _share(fewest[int(index)], turn))
        for turn in range(PASSES)
        for index in sampling.rng.permutation(len(points))
    ]
    left_s = sum(rounds * points[index].round_s for _, index, rounds, _ in visits)
    # What was planned counts as kept to, until some of it was run: checks and first calls take longer.
    known_s = _KNOWN_SHARE * left_s
    started_s, planned_s = sampling.now_s() - known_s, known_s
    last_turn = 0
    for turn, index, rounds, least in visits:
        point = points[index]
        now_s = sampling.now_s()
        slowness = (now_s - started_s) / max(_INSTANT_S, planned_s)
        affordable = int(rounds * min(1.0, (deadline_s - now_s) / max(_INSTANT_S, slowness * left_s)))
        left_s -= rounds * point.round_s
        if now_s < deadline_s:
            affordable = max(affordable, least)
        if affordable < 1 or index in given_up:
            continue
        if turn != last_turn:
            sampling.renew()
            last_turn = turn
        planned_s += affordable * point.round_s
        if index not in arms_of:
            exact = [
                one
                for one in point.candidates
                if one in DEFAULTS or sampling.check(one, point.message_bytes) is None
            ]
            arms_of[index] = (point.baseline, *exact)
        while len(arms := arms_of[index]) > 1:
            try:
                times_s = sampling.rounds(
                    "null" if point.candidates == (TWIN,) else "confirm",
                    point.message_bytes,
                    arms,
                    affordable,
                    first_guess_s=point.call_s,
                    until_s=deadline_s,
                )
            except CandidateFailedError as failure:
                column = arms.index(failure.candidate)
                arms_of[index] = tuple(arm for arm in arms if arm != failure.candidate)
                collected[index] = [np.delete(one, column, axis=1) for one in collected[index]]
                continue
            except MissedStartsError as error:
                on_missed(point, error)
                given_up.add(index)
                break
            if len(times_s):
                collected[index].append(times_s)
            break
        after_point()
    return [
        {
            candidate: tuple((times_s[:, 0], times_s[:, column]) for times_s in passes)
            for column, candidate in enumerate(arms_of[index][1:], start=1)
            if passes
        }
        if index in arms_of
        else {}
        for index, passes in enumerate(collected)
    ]


def _share(num_rounds: int, turn: int) -> int:
    """Rounds of one pass: whole numbers that add up."""
    return num_rounds * (turn + 1) // PASSES - num_rounds * turn // PASSES


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
    standings: Mapping[int, Sequence[Standing]],
    default_s: Mapping[int, float],
    min_gain: float,
) -> list[Point]:
    """Points with the rounds that each needs to clear the margin."""
    level = corrected(CONFIDENCE, count_comparisons(points))
    planned = []
    for point in points:
        rounds, call_s = 0, 0.0
        calls_s = interpolated(default_s, point.message_bytes)
        for candidate in point.candidates:
            # An odd size between two searched ones is expected to be no easier than the nearest of its
            # candidate's.
            near = _nearest_with(candidate, finalists, point.message_bytes)
            standing = next(one for one in standings[near] if one.candidate == candidate)
            # Half of the way to the interval's low end: the best of many looks better than it is.
            expected = math.sqrt(standing.comparison.ratio * max(standing.comparison.low, 1.0))
            log_gain = math.log(expected / (1 + min_gain))
            needed = rounds_needed(log_gain, standing.log_spread, confidence=level, most=_MOST_ROUNDS)
            rounds = max(rounds, needed, _LEAST_NEED)
            calls_s += interpolated(default_s, point.message_bytes) / standing.comparison.ratio
            call_s = max(call_s, interpolated(default_s, point.message_bytes))
        planned.append(replace(point, num_rounds=rounds, round_s=OVERHEAD * calls_s, call_s=call_s))
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

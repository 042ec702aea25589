"""Confirmation: fresh samples at the ends and inside of every range that may depart from the default.

Where the finalists must hold stands in `topotune.tune.points`, how many rounds each point gets in
`topotune.tune.plan_rounds`. All points are visited in several passes, each on new connections, whose luck is
so drawn several times (`topotune.tune.statistics`); what passes is judged over all of them together
(`topotune.tune.judge`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from topotune.tune.judge import PASSES, Confirmation, Correction, Point, PointSamples, judge
from topotune.tune.plan_rounds import count_comparisons, fewest_rounds
from topotune.tune.sampling import Sampling
from topotune.tune.statistics import Block, Samples
from topotune.tune.trial import DEFAULTS, TWIN, Candidate, CandidateFailedError

_KNOWN_SHARE: Final = 0.05
"""Of the time that confirmation is planned to take: what is known of calls before the first one."""

_INSTANT_S: Final = 1e-9

Taken = Mapping[Candidate, tuple[Block, ...]]
"""What was timed at a point, by candidate."""


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


def take_samples(
    points: Sequence[Point],
    sampling: Sampling,
    *,
    fewest: Sequence[int],
    deadline_s: float,
    after_point: Callable[[], None] = lambda: None,
) -> list[Taken]:
    """Samples of all points, by candidate; without candidates that are wrong or whose call was cut off.

    Args:
        points: with their numbers of rounds.
        sampling: where samples come from.
        fewest: of each point, the rounds that are run at least as long as there is time.
        deadline_s: on the clock of ``now_s``.
        after_point: called after each visit.
    """
    collected: list[list[Samples]] = [[] for _ in points]
    arms_of: dict[int, tuple[Candidate, ...]] = {}
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
        if affordable < 1:
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

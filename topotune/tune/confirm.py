"""Confirmation: fresh samples at the ends and inside of every range that may depart from the default.

Where the finalists must hold stands in `topotune.tune.points`, how many rounds each point gets in
`topotune.tune.plan_rounds`. All points are visited in several passes, each on new connections, whose luck is
so drawn several times (`topotune.tune.blocks`); what passes is judged over all of them together
(`topotune.tune.judge`). Where time is left, points that are still open get more passes and another look
(`topotune.tune.looks`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from topotune.tune.blocks import Block, luck_of_connections
from topotune.tune.judge import PASSES, Confirmation, Correction, Point, PointSamples, judge
from topotune.tune.looks import NEAR, Key, error_share, next_visits, passes_of
from topotune.tune.plan_rounds import RENEWAL_S, count_comparisons, fewest_rounds
from topotune.tune.sampling import Sampling
from topotune.tune.statistics import Samples
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
    """Run all points on fresh samples and judge them together in one look, ascending.

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
    passes = Passes(sampling, deadline_s=deadline_s, after_point=after_point)
    indices = passes.add(points, fewest=fewest_rounds(count_comparisons(points)))
    passes.run(dict.fromkeys(indices, PASSES))
    return judge_once(
        passes,
        indices,
        num_comparisons=count_comparisons(points) if num_comparisons is None else num_comparisons,
        min_gain=min_gain,
        seed=seed,
        correction=correction,
    )


class Passes:
    """Visits to points, pass by pass, and what was timed there.

    Args:
        sampling: where samples come from.
        deadline_s: on the clock of ``now_s``.
        after_point: called after each visit.

    Attributes:
        points: with their numbers of rounds in the first passes; each has an index here.
    """

    def __init__(
        self, sampling: Sampling, *, deadline_s: float, after_point: Callable[[], None] = lambda: None
    ) -> None:
        self.sampling = sampling
        self.points: list[Point] = []
        self._fewest: list[int] = []
        self._deadline_s = deadline_s
        self._after_point = after_point
        self._collected: list[list[Samples]] = []
        self._arms_of: dict[int, tuple[Candidate, ...]] = {}
        self._took_s = self._planned_s = self._renewals_s = 0.0
        self._num_renewals = 0

    def add(self, points: Iterable[Point], *, fewest: int | Sequence[int]) -> list[int]:
        """More points.

        Args:
            points: which.
            fewest: rounds of all, or of each, that its first passes have at least as long as there is time.

        Returns:
            their indices.
        """
        added = list(points)
        first = len(self.points)
        self.points += added
        self._fewest += [fewest] * len(added) if isinstance(fewest, int) else list(fewest)
        self._collected += [[] for _ in added]
        return list(range(first, len(self.points)))

    @property
    def slowness(self) -> float:
        """Wall time of rounds over what they were planned to take; 1 before that is known."""
        return max(_INSTANT_S, self._took_s) / self._planned_s if self._planned_s > 0 else 1.0

    @property
    def renewal_s(self) -> float:
        """What new connections take."""
        return self._renewals_s / self._num_renewals if self._num_renewals else RENEWAL_S

    def run(self, num_passes: Mapping[int, int]) -> None:
        """Visit points, each in so many passes, all in turns.

        Each pass but the very first is on new connections. A candidate that is wrong at a point or whose call
        was cut off there is not called there again.

        Args:
            num_passes: by index.
        """
        sampling = self.sampling
        visits = []
        for turn in range(max(num_passes.values(), default=0)):
            due = [index for index, count in num_passes.items() if turn < count]
            visits += [(turn, due[int(place)]) for place in sampling.rng.permutation(len(due))]
        left_s = sum(
            _share(self.points[index].num_rounds, turn) * self.points[index].round_s for turn, index in visits
        )
        # What was planned counts as kept to, until some of it was run: checks and first calls take longer.
        known_s = _KNOWN_SHARE * left_s
        took_s, planned_s = known_s * self.slowness, known_s
        began_s = sampling.now_s()
        renewals_s = 0.0
        last_turn = 0 if not any(self._collected) else -1
        for turn, index in visits:
            point = self.points[index]
            rounds = _share(point.num_rounds, turn)
            now_s = sampling.now_s()
            slowness = (took_s + now_s - began_s - renewals_s) / max(_INSTANT_S, planned_s)
            time_s = self._deadline_s - now_s - (visits[-1][0] - last_turn) * self.renewal_s
            affordable = int(rounds * min(1.0, time_s / max(_INSTANT_S, slowness * left_s)))
            left_s -= rounds * point.round_s
            if now_s < self._deadline_s and len(self._collected[index]) < PASSES:
                affordable = max(affordable, _share(self._fewest[index], turn))
            if affordable < 1:
                continue
            if turn != last_turn:
                renewals_s += self._renew()
                last_turn = turn
            planned_s += affordable * point.round_s
            self._visit(index, affordable)
            self._after_point()
        self._took_s += sampling.now_s() - began_s - renewals_s
        self._planned_s += planned_s - known_s

    def taken(self) -> list[Taken]:
        """Samples of all points, by candidate; without those that are wrong there, or cut off."""
        return [
            {
                candidate: tuple((times_s[:, 0], times_s[:, column]) for times_s in passes)
                for column, candidate in enumerate(self._arms_of[index][1:], start=1)
                if passes and not self.sampling.is_left_out(candidate)
            }
            if index in self._arms_of
            else {}
            for index, passes in enumerate(self._collected)
        ]

    def _renew(self) -> float:
        """New connections for all arms; what that took, in seconds."""
        began_s = self.sampling.now_s()
        self.sampling.renew()
        took_s = self.sampling.now_s() - began_s
        self._renewals_s += took_s
        self._num_renewals += 1
        return took_s

    def _visit(self, index: int, num_rounds: int) -> None:
        point = self.points[index]
        if index not in self._arms_of:
            exact = [
                one
                for one in point.candidates
                if one in DEFAULTS or self.sampling.check(one, point.message_bytes) is None
            ]
            self._arms_of[index] = (point.baseline, *exact)
        for candidate in self._arms_of[index]:
            if self.sampling.is_left_out(candidate):
                self._leave_out(index, candidate)
        while len(arms := self._arms_of[index]) > 1:
            try:
                times_s = self.sampling.rounds(
                    "null" if point.candidates == (TWIN,) else "confirm",
                    point.message_bytes,
                    arms,
                    num_rounds,
                    first_guess_s=point.call_s,
                    until_s=self._deadline_s,
                )
            except CandidateFailedError as failure:
                self._leave_out(index, failure.candidate)
                continue
            if len(times_s):
                self._collected[index].append(times_s)
            break

    def _leave_out(self, index: int, candidate: Candidate) -> None:
        """A point goes on without a candidate, and without its samples."""
        arms = self._arms_of[index]
        self._arms_of[index] = tuple(arm for arm in arms if arm != candidate)
        self._collected[index] = [
            np.delete(one, arms.index(candidate), axis=1) for one in self._collected[index]
        ]


def judge_once(
    passes: Passes,
    indices: Sequence[int],
    *,
    num_comparisons: int,
    min_gain: float,
    seed: int,
    correction: Correction = "holm",
) -> list[Confirmation]:
    """Judge points in one look, in their order (see `judge`)."""
    taken = passes.taken()
    return judge(
        [one for index in indices for one in samples_of(passes.points[index], taken[index])],
        num_comparisons=num_comparisons,
        min_gain=min_gain,
        seed=seed,
        correction=correction,
    )


def judge_in_looks(
    passes: Passes,
    indices: Sequence[int],
    *,
    num_comparisons: int,
    fewest: int,
    min_gain: float,
    seed: int,
    until_s: float,
) -> list[Confirmation]:
    """Judge points, run more passes where that is worth it, and judge again, as long as there is time.

    Args:
        passes: which has run the first ones of these points.
        indices: of the points that are judged.
        num_comparisons: to correct for: those of these points, and `NEAR` more.
        fewest: rounds with which a first look can bound an interval.
        min_gain: the margin.
        seed: of the bootstrap.
        until_s: more is run where it is expected to end before this time of ``now_s``.

    Returns:
        of each comparison, what the last look at it found, in the order of the points; the low end of what
        has passed is the highest of all looks since.
    """
    looks = dict.fromkeys(indices, 0)
    found: dict[Key, Confirmation] = {}
    num_near = NEAR
    visited = list(indices)
    while True:
        taken = passes.taken()
        samples = {
            (index, one.candidate): replace(one, error_share=error_share(looks[index]))
            for index in visited
            for one in samples_of(passes.points[index], taken[index])
        }
        luck = luck_of_connections(blocks for index in looks for blocks in taken[index].values())
        judged = partial(judge, min_gain=min_gain, seed=seed, luck=luck)
        passed = {key for key, one in found.items() if one.passed}
        still_open = [key for key in samples if key not in passed]
        # What had passed stays so; its interval is one of all, whatever else passes.
        again = [key for key in samples if key in passed]
        of_open = judged([samples[key] for key in still_open], num_comparisons=num_comparisons - len(passed))
        of_again = judged(
            [samples[key] for key in again], num_comparisons=num_comparisons, correction="bonferroni"
        )
        found |= dict(zip(still_open, of_open, strict=True))
        for key, one in zip(again, of_again, strict=True):
            compared, before = one.comparison, found[key].comparison
            low = min(compared.ratio, max(compared.low, before.low))
            found[key] = replace(one, passed=True, comparison=replace(compared, low=low))
        # A candidate that was cut off in later passes has no samples left: it does not pass.
        found = {key: one for key, one in found.items() if key[1] in taken[key[0]]}
        for index in visited:
            looks[index] += 1
        visits = next_visits(
            {index: passes.points[index] for index in looks},
            looks,
            found,
            min_gain=min_gain,
            num_near=num_near,
            slowness=passes.slowness,
            renewal_s=passes.renewal_s,
            time_s=until_s - passes.sampling.now_s(),
        )
        if not visits:
            break
        new = passes.add([point for visit in visits for point in visit.new], fewest=fewest)
        num_near -= len(new)
        looks.update(dict.fromkeys(new, 0))
        visited = [index for visit in visits for index in visit.indices] + new
        passes.run({index: passes_of(looks[index]) for index in visited})
    return [one for _, one in sorted(found.items(), key=lambda item: (item[1].message_bytes, item[0][0]))]


def samples_of(point: Point, taken: Taken) -> list[PointSamples]:
    """What was timed at a point, a value each comparison."""
    return [
        PointSamples(point=point, candidate=candidate, blocks=blocks) for candidate, blocks in taken.items()
    ]


def _share(num_rounds: int, turn: int) -> int:
    """Rounds of one pass: whole numbers that add up over as many passes as come before the first look."""
    turn %= PASSES
    return num_rounds * (turn + 1) // PASSES - num_rounds * turn // PASSES

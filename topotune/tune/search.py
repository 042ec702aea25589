"""Searching, one size at a time: which candidates are worth confirming.

Theory of operation. Where nothing is known yet, the best-predicted variant of every algorithm is tried first,
in predicted order. From then on those are that are expected to improve the choice most: a candidate's
prediction, put right by how wrong it was for the same candidate at the nearest size where that was tried, or
else for others; what is wrong in a prediction goes with the algorithm and changes slowly with the size, but
seconds that were left out of a small message's time may be all that is left out of a large one's. So what one
size has found out spares the others most of it. New candidates run in heats of a few, interleaved
with the default, in rungs: two rounds, then more for those that are not hopeless (behind the best so far even
by their fastest call, as far as the default's own calls scatter), then more for those that are not clearly
slower by their intervals. Those still in contention play off until they separate, as soon as that is worth
more than another heat. The next step is taken at the size where it is worth most per second: where the choice
could still change, as far as predictions and intervals tell, and where the job spends its time
(`topotune.tune.regret`). The search ends when no step is worth what it costs.

Each size has an Optuna study over (algorithm, variant), which is asked for the candidates that are tried and
told what came of them: the record of the search in the form that other tools read.

A candidate whose check showed it to be hopeless is not timed at all, so that a very slow one costs the search
two calls. One whose call had to be cut off is done with at that size. One that was cut off before, or was
running when the run died, runs in rounds of its own.

A search that is resumed takes up its samples and its study as the journal has them.

What comes out is a ranking, biased as any best-of-many is (about sigma * sqrt(2 ln K)); nothing here is
evidence. Confirmation takes fresh samples.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import optuna
from optuna.trial import TrialState

from topotune.tune.regret import (
    SERVED,
    Ending,
    Known,
    expected_regret,
    grown,
    improvement,
    open_gains,
    put_right,
)
from topotune.tune.resume import Past
from topotune.tune.sampling import Sampling
from topotune.tune.statistics import Comparison, Samples, log_spread, screen_arms
from topotune.tune.study import new_study, open_trial, rebuild_study, search_space
from topotune.tune.trial import DEFAULT, Candidate, CandidateFailedError

_RUNGS, _SHORT_RUNGS = (2, 4, 4), (2, 2, 2)
"""Rounds added at each rung of a heat; the second where the default's calls are long."""

_LONG_S: Final = 0.03
"""They are from here on: a round is dear there, and two arms that stay close have a play-off."""

_HOPELESS: Final = (4.0, 1.5, 1.5)
"""A candidate this many times slower than the best so far goes no further; two rounds of calls that take less
than `_CHEAP_S` prove little."""

_HOPELESS_CHECK: Final = 8.0
"""The same of the faster of its first two calls, cold and unpaired as they are …"""

_CHEAP_S: Final = 0.02
"""… and what a call may take all the same: below, to measure it costs too little to matter."""

_BEHIND: Final = 1.5
"""A candidate whose fastest call is slower than the best so far by so many standard deviations of the
default's calls goes no further either …"""

_LEAST_BEHIND: Final = 0.05
"""… if that is no less in log-time: what is close is for the play-off."""

_HEAT: Final = 4
"""New candidates that share one default in their rounds."""

_LONGEST_STEP_S: Final = 0.8
_FIRST_CALLS: Final = 5
"""Of a candidate until its first rung is through: two of its check, a warm-up, two rounds."""

_PLAYOFF_ROUNDS, _PLAYOFF_SIZE = 6, 4

_FEWEST_ENOUGH, _ENOUGH_ROUNDS, _ENOUGH_S = 12, 30, 3.0
"""A play-off ends after so many rounds, of which the default's calls take so long in all."""

_CONFIDENCE: Final = 0.75
"""Of the intervals that drop a candidate: with three rounds, "slower in all three"."""

_LEAST_SPREAD: Final = 0.01
"""Of a round's log-ratio, when its error is told: a few rounds may agree by chance."""

_FEW_ROUNDS: Final = 6
"""With fewer, a round's log-ratio is thought to scatter no less than the pilot's calls of the default did."""

_INSTANT_S: Final = 1e-9

_COMPANY: Final = 0.1
"""What a candidate is expected to improve, over the most that one is, to be tried with it."""

_OVERHEAD: Final = 1.5
"""Wall time of a heat over the sum of its calls: spacing, warm-up, agreement."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """How a candidate stands at one size after the search.

    Attributes:
        candidate: which.
        comparison: against the default, over the rounds they shared (intervals of 75 %).
        log_spread: robust standard deviation of a round's log-ratio.
        dropped: left behind as slower; it may be far from as well measured as the rest.
    """

    candidate: Candidate
    comparison: Comparison
    log_spread: float
    dropped: bool


def ratio_of(standings: Sequence[Standing], candidate: Candidate) -> float:
    """Default / candidate as the search saw it; the candidate is one of those that stand there."""
    return next(one.comparison.ratio for one in standings if one.candidate == candidate)


@dataclass(kw_only=True)
class SizeSearch:
    """The search at one size; holds the study and the samples.

    Attributes:
        message_bytes: the size.
        candidates: in predicted order, best first; without the default.
        default_s: what the default took in the pilot, seconds.
        scatter: standard deviation of the log of a call's time, as far as the pilot tells.
        seed: of Optuna's study.
        note: takes what is to stand in the journal.
        longest_step_s: what the first rung of a heat may take, wall time.
        predicted_s: the simulator's time of a candidate at this size; None where there is no prediction.
        neighbours: searches of the other sizes, whose candidates tell what to expect here.
        spent_s: wall time spent here.
        finished: nothing is left to find out, or no time is left for this size.
        problems: candidates with a wrong result, or whose calls were cut off, in words.
    """

    message_bytes: int
    candidates: tuple[Candidate, ...]
    default_s: float
    seed: int
    scatter: float = math.inf
    longest_step_s: float = _LONGEST_STEP_S
    note: Callable[[str, Mapping[str, Any]], None] = lambda _kind, _record: None
    predicted_s: Callable[[Candidate], float] | None = None
    neighbours: "Sequence[SizeSearch]" = ()
    spent_s: float = 0.0
    finished: bool = False
    problems: dict[Candidate, str] = field(default_factory=dict)
    _pairs: dict[Candidate, tuple[list[float], list[float]]] = field(default_factory=dict)
    _compared: dict[Candidate, Comparison] = field(default_factory=dict)
    _errors: dict[Candidate, Known] = field(default_factory=dict)
    _predicted: dict[Candidate, float] = field(default_factory=dict)
    _dropped: set[Candidate] = field(default_factory=set)
    _hopeless: dict[Candidate, float] = field(default_factory=dict)
    """Log-ratios of candidates that only their check was timed of."""

    def __post_init__(self) -> None:
        self._untried = list(self.candidates)
        self._space = search_space(self.candidates)
        self.study = new_study(self.seed)

    def take_up(self, past: Past) -> None:
        """Go on where earlier launches of the run stopped; before the first step."""
        for searched in past.searched.get(self.message_bytes, ()):
            if len(searched.times_s):
                self._add(searched.arms[1:], searched.times_s)
        for note in past.told:
            candidate = Candidate.of(note["algorithm"], note["params"])
            if note["message_bytes"] != self.message_bytes or candidate not in self.candidates:
                continue
            if candidate in self._untried:
                self._untried.remove(candidate)
            if note["state"] == TrialState.FAIL.name:
                self.problems[candidate] = note.get("problem") or "it failed"
            elif candidate not in self._pairs:
                self._hopeless[candidate] = note["log_ratio"] or 0.0
            if note["state"] != TrialState.COMPLETE.name:
                self._dropped.add(candidate)
        self.spent_s += past.spent_s.get(self.message_bytes, 0.0)
        self.study = rebuild_study(past.told, self.message_bytes, self.candidates, seed=self.seed)

    def ask(self, count: int) -> list[tuple[Candidate, optuna.Trial]]:
        """Up to ``count`` candidates never tried at this size, with their open trials.

        Those that are expected to improve the choice most; where nothing is known of any candidate yet, the
        best predicted of each algorithm, as variants of one may all be predicted wrongly.
        """
        if any(search.residuals() for search in (self, *self.neighbours)):
            known = self._in_play()
            gains = {
                one: improvement(known, expected)
                for one, expected in zip(self._untried, self._expected(), strict=True)
            }
            worth_it = _COMPANY * max(gains.values(), default=0.0)
            ranked = [one for one in sorted(gains, key=lambda one: -gains[one]) if gains[one] >= worth_it]
        else:
            first = _one_per_algorithm(self._untried)
            ranked = [*first, *(one for one in self._untried if one not in first)]
        asked: list[tuple[Candidate, optuna.Trial]] = []
        for candidate in ranked[:count]:
            self._untried.remove(candidate)
            asked.append((candidate, open_trial(self.study, self._space, candidate)))
        return asked

    def regret(self) -> float:
        """What the choice at this size is expected to lose, in log-time, if nothing more is measured here."""
        return expected_regret(self._in_play(), self._expected())

    def open_gains(self) -> list[Known]:
        """By how much each other candidate may improve the choice at this size, in log-time."""
        return open_gains(self._in_play(), self._expected())

    def residuals(self) -> dict[Candidate, Known]:
        """How wrong predictions of candidates that were timed here are: log(measured / predicted).

        Two cold calls of a check, which may have waited for a core, say nothing of other sizes.
        """
        residuals = {}
        for candidate in self._pairs:
            predicted = self._predicted_log_ratio(candidate)
            if math.isfinite(predicted):
                known = self._known(candidate)
                residuals[candidate] = replace(known, log_ratio=known.log_ratio - predicted)
        return residuals

    def _in_play(self) -> list[Known]:
        return [
            self._known(one) for one in self._pairs if one not in self.problems and one not in self._dropped
        ]

    def _known(self, candidate: Candidate) -> Known:
        """Log(candidate / default) of one that was timed, and its error."""
        known = self._errors.get(candidate)
        if known is None:
            default_s, own_s = self._pairs[candidate]
            spread = max(_LEAST_SPREAD, log_spread(_array(default_s), _array(own_s)))
            if len(own_s) < _FEW_ROUNDS and math.isfinite(self.scatter):
                spread = max(spread, math.sqrt(2) * self.scatter)
            error = math.sqrt(math.pi / 2 / len(own_s)) * spread
            known = self._errors[candidate] = Known(log_ratio=self._log_ratio(candidate), error=error)
        return known

    def _expected(self) -> list[Known]:
        """What is expected of each candidate that was not tried, in their order.

        Its prediction, put right by how wrong that was at the nearest size where the candidate was tried, or
        else by how wrong the others' were; but no more than what a rule promises of what was timed.
        """
        near = [(self._doublings_to(search), self._carried_here(search)) for search in self.neighbours]
        found = put_right(self._untried, [(0.0, self.residuals()), *near])
        return [
            Known(
                log_ratio=min(self._predicted_log_ratio(one) + wrong.log_ratio, self._promised(one)),
                error=wrong.error,
            )
            for one, wrong in zip(self._untried, found, strict=True)
        ]

    def _promised(self, candidate: Candidate) -> float:
        """Log(candidate / default) of a larger message in its place, or of smaller ones that are as much.

        Only for what is tried next: it is measured before it counts (`topotune.tune.consistency`).
        """
        times_s = (
            -(-self.message_bytes // other.message_bytes)
            * other.default_s
            * math.exp(other._log_ratio(candidate))
            for other in self.neighbours
            if candidate in other._pairs and candidate not in other.problems
        )
        return math.log(min(times_s, default=math.inf) / self.default_s)

    def _carried_here(self, other: "SizeSearch") -> dict[Candidate, Known]:
        """How wrong predictions are here, as far as another size tells."""
        residuals = other.residuals()
        if other.message_bytes >= self.message_bytes:
            return residuals
        return {
            one: grown(wrong, other.expected_s(one), self.expected_s(one)) for one, wrong in residuals.items()
        }

    def expected_s(self, candidate: Candidate) -> float:
        """A candidate's time, by what the default took and by the predicted ratio, or like the default's."""
        ratio = math.exp(self._predicted_log_ratio(candidate))
        return self.default_s * (ratio if math.isfinite(ratio) else 1.0)

    def _doublings_to(self, other: "SizeSearch") -> float:
        return abs(math.log2(other.message_bytes / self.message_bytes))

    def _predicted_log_ratio(self, candidate: Candidate) -> float:
        known = self._predicted.get(candidate)
        if known is None:
            known = 0.0
            if self.predicted_s is not None:
                predicted_s, default_s = self.predicted_s(candidate), self.predicted_s(DEFAULT)
                known = math.log(predicted_s / default_s) if predicted_s > 0 and default_s > 0 else 0.0
            self._predicted[candidate] = known
        return known

    @property
    def is_untouched(self) -> bool:
        """Whether no candidate was tried at this size yet."""
        return len(self._untried) == len(self.candidates)

    def step_cost_s(self) -> float:
        """What the next step is expected to cost in wall time."""
        contenders = self._contenders()
        if self._plays_off(contenders):
            return self._playoff_cost_s(contenders)
        return self._heat_cost_s()

    def _heat_cost_s(self) -> float:
        calls_s = self._heat_size() * (sum(self._rungs()[:2]) + 2) * self.best_median_s()
        return _OVERHEAD * (calls_s + 6 * self.default_s)

    def _playoff_cost_s(self, contenders: Sequence[Candidate]) -> float:
        calls_s = self.default_s + len(contenders) * self.best_median_s()
        return _OVERHEAD * _PLAYOFF_ROUNDS * calls_s

    def _plays_off(self, contenders: Sequence[Candidate]) -> bool:
        """Whether a play-off is next: it is worth more a second than new candidates, or none are left."""
        if not self._untried:
            return True
        if self._is_settled(contenders):
            return False
        known = self._in_play()
        between_them = expected_regret(known, ())
        of_new = expected_regret(known, self._expected()) - between_them
        return between_them / self._playoff_cost_s(contenders) > of_new / self._heat_cost_s()

    def _is_settled(self, contenders: Sequence[Candidate]) -> bool:
        return len(contenders) < 2 or self._rounds_of(contenders[-1]) >= self._enough_rounds()

    def step(self, sampling: Sampling) -> None:
        """One heat of new candidates, or one play-off; sets ``finished`` when nothing is left."""
        contenders = self._contenders()
        if not self._plays_off(contenders):
            self._heat(sampling, self.ask(self._heat_size()))
            return
        if self._is_settled(contenders):
            self.finished = True
            return
        self._measure(sampling, contenders, _PLAYOFF_ROUNDS)
        for candidate in contenders:
            if candidate in self.problems:  # the study keeps what it was told before
                self._note_told(candidate, TrialState.FAIL, None)

    def standings(self) -> list[Standing]:
        """All candidates that were timed and have no problem, fastest first by ratio."""
        standings = [
            Standing(
                candidate=candidate,
                comparison=self._compare(candidate),
                log_spread=log_spread(_array(pairs[0]), _array(pairs[1])),
                dropped=candidate in self._dropped,
            )
            for candidate, pairs in self._pairs.items()
            if candidate not in self.problems
        ]
        return sorted(standings, key=lambda standing: -standing.comparison.ratio)

    @property
    def ruled_out(self) -> frozenset[Candidate]:
        """Candidates that failed here, or whose check took too long to time them; earlier launches count."""
        return frozenset(self.problems) | frozenset(self._hopeless)

    def best_median_s(self) -> float:
        """Median of the fastest candidate so far, or of the default if that is faster."""
        return min(
            [
                self.default_s,
                *(float(np.median(own)) for one, (_, own) in self._pairs.items() if one not in self.problems),
            ]
        )

    def tell(self, candidate: Candidate, trial: optuna.Trial, state: TrialState) -> None:
        """Close a trial with what is known of its candidate, and note it for the journal."""
        value = None
        if state is not TrialState.FAIL:
            value = self._log_ratio(candidate)
            trial.report(value, step=self._rounds_of(candidate))
        # Optuna takes the last reported value of a pruned trial, and wants none for it here.
        self.study.tell(trial, value if state is TrialState.COMPLETE else None, state=state)
        self._note_told(candidate, state, value)

    def _note_told(self, candidate: Candidate, state: TrialState, value: float | None) -> None:
        self.note(
            "told",
            {
                "message_bytes": self.message_bytes,
                **candidate.to_json(),
                "state": state.name,
                "log_ratio": value,
                "num_rounds": self._rounds_of(candidate),
                "problem": self.problems.get(candidate),
            },
        )

    def _heat(self, sampling: Sampling, asked: list[tuple[Candidate, optuna.Trial]]) -> None:
        running = dict(asked)

        def leave(candidate: Candidate, state: TrialState) -> None:
            self._dropped.add(candidate)
            self.tell(candidate, running.pop(candidate), state)

        for candidate, _ in asked:
            problem = sampling.check(candidate, self.message_bytes)
            checked_s = sampling.checked_s(candidate, self.message_bytes)
            if problem is not None:
                self.problems[candidate] = problem
                leave(candidate, TrialState.FAIL)
            elif checked_s > max(_CHEAP_S, _HOPELESS_CHECK * self.best_median_s()):
                self._hopeless[candidate] = math.log(checked_s / self.default_s)
                leave(candidate, TrialState.PRUNED)
        for rounds, hopeless in zip(self._rungs(), _HOPELESS, strict=True):
            self._measure(sampling, list(running), rounds)
            for candidate in list(running):
                if candidate in self.problems:
                    leave(candidate, TrialState.FAIL)
                elif self._is_poor(candidate, hopeless):
                    leave(candidate, TrialState.PRUNED)
        for candidate, trial in running.items():
            self.tell(candidate, trial, TrialState.COMPLETE)

    def _measure(self, sampling: Sampling, candidates: Sequence[Candidate], num_rounds: int) -> None:
        """Rounds of these candidates; those whose calls are cut off become problems."""
        together = [one for one in candidates if not sampling.is_suspect(one)]
        groups = [together, *([one] for one in candidates if sampling.is_suspect(one))]
        for group in groups:
            left = list(group)
            while left:
                try:
                    times_s = sampling.rounds(
                        "search",
                        self.message_bytes,
                        (DEFAULT, *left),
                        num_rounds,
                        first_guess_s=self.default_s,
                    )
                except CandidateFailedError as failure:
                    self.problems[failure.candidate] = failure.why
                    self._dropped.add(failure.candidate)
                    left.remove(failure.candidate)
                    continue
                self._add(left, times_s)
                break

    def _add(self, candidates: Sequence[Candidate], times_s: Samples) -> None:
        """Take rounds of the default and these candidates into account."""
        for index, candidate in enumerate(candidates, start=1):
            default_s, own_s = self._pairs.setdefault(candidate, ([], []))
            default_s.extend(times_s[:, 0].tolist())
            own_s.extend(times_s[:, index].tolist())
            self._compared.pop(candidate, None)
            self._errors.pop(candidate, None)

    def _is_poor(self, candidate: Candidate, hopeless: float) -> bool:
        own = self._compare(candidate)
        if own.median_s > _CHEAP_S:
            hopeless = min(_HOPELESS)
        # One call in two that was held up proves nothing: the faster ones speak for a candidate.
        fastest_s = min(self._pairs[candidate][1])
        if fastest_s > hopeless * min(self.best_median_s(), own.default_median_s):
            return True
        best = max(self._least_ratio(other) for other in self._pairs if other not in self.problems)
        behind = math.log(max(1.0, best) / max(own.ratio, self.default_s / fastest_s))
        if behind > max(_BEHIND * self.scatter, _LEAST_BEHIND):
            return True
        if own.num_rounds < 3:
            return False
        others = (
            self._compare(other) for other in self._pairs if other != candidate and other not in self._dropped
        )
        return own.high < max(1.0, max((other.low for other in others), default=1.0))

    def _least_ratio(self, candidate: Candidate) -> float:
        """Default / candidate, by the default's rounds beside it or by the pilot's, whichever is less."""
        own = self._compare(candidate)
        return min(own.ratio, self.default_s / own.median_s)

    def _contenders(self) -> list[Candidate]:
        """The few fastest that the intervals do not separate from the fastest, best first."""
        in_play = [standing for standing in self.standings() if not standing.dropped]
        if not in_play:
            return []
        bar = max(standing.comparison.low for standing in in_play)
        return [s.candidate for s in in_play if s.comparison.high >= bar][:_PLAYOFF_SIZE]

    def _rungs(self) -> tuple[int, ...]:
        return _SHORT_RUNGS if self.default_s > _LONG_S else _RUNGS

    def _enough_rounds(self) -> int:
        return max(_FEWEST_ENOUGH, min(_ENOUGH_ROUNDS, int(_ENOUGH_S / self.default_s)))

    def _heat_size(self) -> int:
        """Fewer at once where calls are long, so that a step stays short against the budget."""
        return max(1, min(_HEAT, int(self.longest_step_s / (_FIRST_CALLS * self.default_s))))

    def _compare(self, candidate: Candidate) -> Comparison:
        known = self._compared.get(candidate)
        if known is None:
            default_s, own_s = self._pairs[candidate]
            known = screen_arms(_array(default_s), _array(own_s), confidence=_CONFIDENCE)
            self._compared[candidate] = known
        return known

    def _log_ratio(self, candidate: Candidate) -> float:
        """Log(candidate / default), as far as it is known."""
        if candidate in self._pairs:
            return -math.log(self._compare(candidate).ratio)
        return self._hopeless[candidate]

    def _rounds_of(self, candidate: Candidate) -> int:
        return len(self._pairs[candidate][0]) if candidate in self._pairs else 0


def search_sizes(
    searches: Sequence[SizeSearch],
    sampling: Sampling,
    *,
    deadline_s: Callable[[SizeSearch], float],
    budget_s: float = math.inf,
    weights: Mapping[int, float] | None = None,
    after_step: Callable[[], None] = lambda: None,
) -> Ending:
    """Search all sizes, where it is worth most first, until nothing is worth its cost or the deadline comes.

    Args:
        searches: one per size.
        sampling: where samples come from.
        deadline_s: of the next step of a size, on the clock of ``now_s``; asked before each, as what was
            found may move it.
        budget_s: of the run, by which a second of tuning is valued.
        weights: of each size, its share of the job's communication; None: all weigh the same.
        after_step: called after each.
    """
    if weights is None:
        weights = {search.message_bytes: 1 / len(searches) for search in searches}
    for search in searches:
        search.neighbours = [other for other in searches if other is not search]

    def worth_of_all() -> dict[int, float]:
        return {search.message_bytes: weights[search.message_bytes] * search.regret() for search in searches}

    worth = worth_of_all()
    by_time = False
    while unfinished := [search for search in searches if not search.finished]:
        costs_s = {search.message_bytes: max(_INSTANT_S, search.step_cost_s()) for search in unfinished}
        search = max(unfinished, key=lambda one: worth[one.message_bytes] / costs_s[one.message_bytes])
        cost_s = costs_s[search.message_bytes]
        started_s = sampling.now_s()
        if started_s + cost_s > deadline_s(search):
            search.finished = by_time = True
            continue
        if worth[search.message_bytes] * SERVED * budget_s < cost_s:
            search.finished = True
            continue
        search.step(sampling)
        search.spent_s += sampling.now_s() - started_s
        worth = worth_of_all()
        after_step()
    return Ending.of(
        [(weights[search.message_bytes], search.open_gains()) for search in searches], by_time=by_time
    )


def _one_per_algorithm(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The first of each algorithm, in order."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.algorithm, candidate)
    return list(first.values())


def _array(samples: list[float]) -> Samples:
    return np.array(samples, dtype=np.float64)

"""The phases of choosing, from a bench to the rows of a table.

Pilot, search, conditions, confirmation with null trials. Only rank 0 runs this, and only its clock counts;
what it wants measured goes through the bench to all ranks. Each phase has the share of the budget that stands
below, and begins nothing that its share would not hold. Time that a phase leaves over falls to the next.
Where calls are long, the search ends sooner, so that what it has found can be confirmed; and the conditions
may take what confirmation does not need. Null trials are planned for what is left of their share and of
confirmation's, but for as much again as its first look takes, and taken in the passes of that look. Further
looks at what is open then (`topotune.tune.looks`) may take all of both shares.

In a run that was resumed, the time that earlier launches took up to the conditions is taken off the budget,
and what they recorded is not measured again; confirmation and null trials have their whole share.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Final

import numpy as np

from topotune.plan.lookup import find_row
from topotune.plan.model import Certificate, Row
from topotune.tune.confirm import Passes, judge_in_looks, judge_once
from topotune.tune.consistency import LIBRARY, PLAN, Timed, Times, times_of, times_of_search, violations
from topotune.tune.decide import DefaultTime, Limit, decide_rows
from topotune.tune.diagnosis import (
    Seen,
    dropped_warnings,
    look_at,
    sample_warnings,
    samples_in_words,
    seen_in,
    seen_of,
)
from topotune.tune.dispatch_cost import (
    loss_in_words,
    note_in_words,
    sizes_of_default_rows,
    time_dispatch,
)
from topotune.tune.finalists import (
    Conditions,
    choose_finalists,
    condition_cost_s,
    conditions_recorded,
    measure_conditions,
)
from topotune.tune.inherit import losses_beyond, low_needed, with_inherited
from topotune.tune.judge import CONFIDENCE, PASSES, Confirmation
from topotune.tune.null_trials import NullPlan, NullTrials
from topotune.tune.options import TuneOptions
from topotune.tune.plan_rounds import (
    ConfirmationPlan,
    interpolated,
    least_confirmation_s,
    plan_confirmation,
)
from topotune.tune.progress import BestSoFar, Measuring, OnProgress, Phase, share_of_budget
from topotune.tune.regret import size_weights
from topotune.tune.sampling import Sampling
from topotune.tune.search import SizeSearch, Standing, ratio_of, search_sizes
from topotune.tune.shortlist import PredictedTime, shortlist
from topotune.tune.smoothing import smoothed
from topotune.tune.statistics import log_scatter, relative_spread
from topotune.tune.trial import DEFAULT, Candidate, CandidateFailedError
from topotune.units import format_bytes, format_seconds

_PILOT_ENDS, _SEARCH_ENDS, _CONDITIONS_END, _CONFIRM_ENDS, _NULL_ENDS = 0.20, 0.50, 0.66, 0.87, 0.97
"""Shares of the budget, counted from the moment the ranks joined."""

_DISPATCH_ENDS: Final = 0.985
"""So does the share of what the backend's dispatch is timed in, when the rows are known."""

_SEARCH_LEAST: Final = 0.35
"""The search ends no sooner than here, counted like them."""

_FIRST_LOOK: Final = 0.1
"""… but for a size where nothing was tried yet, if a first look takes no larger share of the budget: without
one its row is the default, whatever that loses."""

_RESERVE: Final = 1.2
"""Confirmation keeps this many times what it takes with the fewest rounds."""

_LONGEST_CALL: Final = 0.01
"""A size whose default takes a larger share of the budget than this is not searched …"""

_CALLS_OF_A_SIZE, _SHARE_OF_SIZES = 120, 0.75
"""… nor one for which, with all smaller sizes, so many of the default's calls take more than this share: so
long take a look at a few candidates, a backward beside the best, and its confirmation with the fewest rounds.
What is only looked at cannot be chosen, and would cost the smaller sizes their time."""

_PILOT_ROUNDS: Final = 7
"""Of the default at each size at most; fewer where they would take more than a single longest call."""

_LEAST_SCATTER: Final = 0.02
"""A few samples that agree by chance are not believed to scatter less, in log-time."""

_LONGEST_STEP: Final = 0.05
"""Of the budget: what the first look at new candidates may take."""

_PREDICTED_WITHIN: Final = 3.0
"""The default's predicted time is trusted to be at most this many times too long."""

_PATIENCE: Final = 10.0
"""A candidate's call is cut off after this many times what the default takes, or what was predicted …"""

_TRUSTED_PREDICTION: Final = 5.0
"""… of which no more is believed than this many times the default …"""

_LEAST_LIMIT: Final = (0.05, 2.0, 10.0)
"""… but never before this share of the budget, within these bounds in seconds: ranks wait for cores too."""

_FIRST_GUESS_S: Final = 0.01
_PHASES: Final[dict[str, Phase]] = {
    "pilot": "pilot",
    "search": "search",
    "condition": "conditions",
}
"""The phase that trials of a purpose are taken in; others are taken in several."""
_SCATTERED: Final = 0.5
"""Interquartile range over median from which a run says that the machine was unsteady at a size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What came out.

    Attributes:
        rows: the table for allreduce.
        certificate: how it was confirmed.
        warnings: one line each.
        confirmations: with their samples.
        timed: the default, and what the rows run, at each size where it was timed; empty where the rows were
            chosen in another launch.
    """

    rows: tuple[Row, ...]
    certificate: Certificate
    warnings: tuple[str, ...]
    confirmations: tuple[Confirmation, ...] = ()
    timed: Times = field(default_factory=dict, repr=False, compare=False)


@dataclass(kw_only=True)
class _Run:
    """What the phases share."""

    options: TuneOptions
    sampling: Sampling
    on_progress: OnProgress
    limit: Limit
    predicted_s: PredictedTime
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    best: dict[int, BestSoFar] = field(default_factory=dict)
    default_timed: dict[int, Timed] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    """How the samples of the last phase that took some look."""
    weights: Mapping[int, float] = field(default_factory=dict)
    """Of each searched size, its share of the job's communication."""
    phase: Phase = "pilot"
    measuring: Measuring | None = None
    unsearched: tuple[int, str, float] | None = None
    """The first size that was not searched, why not, and with what budget it may well be, seconds."""
    untimed: frozenset[int] = frozenset()
    """Sizes at which there was no time to try candidates beside a backward."""

    def ends_s(self, share: float) -> float:
        return share * self.options.budget_s

    def report(self, phase: Phase) -> None:
        self.phase = phase
        now = share_of_budget(phase, self.sampling.now_s(), self.options.budget_s, self.measuring)
        self.on_progress(replace(now, best=dict(self.best)))

    def on_trial(self, purpose: str, message_bytes: int, arms: Sequence[Candidate]) -> None:
        labels = tuple(arm.label for arm in arms if arm != DEFAULT) or (DEFAULT.label,)
        self.measuring = Measuring(message_bytes=message_bytes, arms=labels)
        self.report(_PHASES.get(purpose, self.phase))

    def stands(self, message_bytes: int, candidate: Candidate, ratio: float, default_s: float) -> None:
        """Note the fastest candidate at a size so far."""
        self.best[message_bytes] = BestSoFar(
            algorithm=candidate.label,
            ratio=ratio,
            default_s=default_s,
            optimum_s=None if self.limit.time_s is None else self.limit.time_s(message_bytes),
        )

    def note(self, kind: str, record: Mapping[str, Any]) -> None:
        if self.sampling.journal is not None:
            self.sampling.journal.note(kind, record)


def choose_rows(
    sampling: Sampling,
    options: TuneOptions,
    candidates: Sequence[Candidate],
    *,
    predicted_s: Callable[[Candidate, int], float],
    limit: Limit,
    job_bytes: Sequence[int] = (),
    on_progress: OnProgress = lambda _progress: None,
) -> Choice:
    """Choose the rows of the allreduce table within the budget.

    Args:
        sampling: where samples come from; its clock started when the ranks joined.
        options: budget, sizes, margin, seed.
        candidates: all that are to be considered, without the default.
        predicted_s: the simulator's time of a candidate, or of the default, at a size; it orders the search.
            Infinite where a candidate does not take messages of that size.
        limit: the bound that rows are held against.
        job_bytes: sizes of the job's messages in a step, where they are known: what they take weighs more.
        on_progress: called after each step.
    """
    run = _Run(
        options=options, sampling=sampling, on_progress=on_progress, limit=limit, predicted_s=predicted_s
    )
    sampling.on_trial = run.on_trial
    defaults = _pilot(run, lambda size: predicted_s(DEFAULT, size))
    if defaults:
        sampling.limit_s = _limits(run, defaults, predicted_s)
    searches = _search(run, defaults, candidates, predicted_s, job_bytes)
    standings = {search.message_bytes: search.standings() for search in searches}
    finalists, conditions = _fit_for_training(run, searches)
    run.note(
        "finalists",
        {"finalists": [{"message_bytes": size, **one.to_json()} for size, one in finalists.items()]},
    )
    default_s = {size: defaults[size].median_s for size in standings}
    plan = plan_confirmation(
        finalists,
        standings,
        default_s,
        min_gain=options.min_gain,
        budget_s=run.ends_s(_CONFIRM_ENDS) - sampling.now_s(),
        stretch=sampling.stretch,
        weights=run.weights,
        aim=low_needed(max(standings, default=0), options.sizes, min_gain=options.min_gain),
    )
    confirmations, nulls = _confirm(run, plan, default_s)
    tested_bytes = [point.message_bytes for point in plan.points]
    held, lone = smoothed(
        confirmations, tested_bytes=tested_bytes, searched_bytes=defaults, min_gain=options.min_gain
    )
    rows = decide_rows(
        held,
        defaults,
        limit=limit,
        tested_bytes=tested_bytes,
        conditions=conditions,
        predicted_s=predicted_s,
    )
    rows = with_inherited(
        rows,
        held,
        standings,
        predicted_s=predicted_s,
        min_gain=options.min_gain,
        asked_bytes=options.sizes,
        limit=limit,
        unfit={
            *sampling.failed,
            *((search.message_bytes, one) for search in searches for one in search.ruled_out),
            *(key for key, found in conditions.items() if found.problem is not None),
        },
    )
    _time_dispatch(run, rows, {size: one.median_s for size, one in defaults.items()})
    for size in sorted(size for size in finalists if finalists[size] != plan.kept[size]):
        run.warnings.append(
            f"no time to confirm {finalists[size].label} at {format_bytes(size)}: "
            f"{_what_runs(rows, size)} there; a larger --budget gives it time"
        )
    run.warnings.extend(
        f"{one.in_words(options.min_gain)}: {_what_runs(rows, one.shown.message_bytes)} there; sizes beside "
        "it, or a larger --budget, may tell"
        for one in lone
    )
    for words, sizes in groupby(sorted(run.untimed), key=lambda size: _what_runs(rows, size)):
        run.warnings.append(
            f"no time to try candidates beside a backward at {_listed(sizes)}: {words} there; "
            "a larger --budget gives it time"
        )
    if run.unsearched is not None:
        size, why, enough_s = run.unsearched
        run.warnings.append(
            f"from {format_bytes(size)} on {why} the budget of {format_seconds(options.budget_s)}: not "
            f"searched{_what_runs_at(rows, [one for one in options.sizes if one >= size])}; "
            f"try --budget {math.ceil(enough_s / 60)}m"
        )
    run.warnings.extend(dropped_warnings(sampling.dropped, sampling.taken))
    run.warnings.extend(sample_warnings(run.seen))
    if (look := samples_in_words(run.seen, sampling.dropped)) is not None:
        run.notes.append(look)
    timed = _with_defaults(times_of(confirmations, lambda one: one.candidate.label), run.default_timed)
    planned = _planned(rows, timed)
    run.warnings.extend(
        violations(
            timed,
            limit.time_s,
            latency_s=limit.latency_s,
            planned=planned,
            searched=times_of_search(standings),
        )
    )
    run.warnings.extend(_problems(sampling, searches))
    run.report("done")
    return Choice(
        rows=rows,
        certificate=_certificate(run, plan, len(confirmations), nulls),
        warnings=tuple(run.warnings),
        confirmations=tuple(confirmations),
        timed={LIBRARY: timed[LIBRARY], PLAN: planned},
    )


def _pilot(run: _Run, predicted_s: Callable[[int], float]) -> dict[int, DefaultTime]:
    """Time the default at each size that is worth searching, ascending.

    Of the first size only the prediction says how long its calls are, before any is made.
    """
    limit_s = _LONGEST_CALL * run.options.budget_s
    defaults: dict[int, DefaultTime] = {}
    unsteady: list[int] = []
    called_s = 0.0
    last_bytes, last_s = run.options.sizes[0], predicted_s(run.options.sizes[0]) / _PREDICTED_WITHIN
    # Where the links took long, the pilot takes from the search.
    deadline_s = max(run.ends_s(_PILOT_ENDS), run.sampling.now_s() + run.ends_s(_PILOT_ENDS / 2))
    too_long = f"one call of the default takes over {_LONGEST_CALL:.0%} of"

    def stop_at(size: int, why: str, call_s: float) -> None:
        enough_s = max(call_s / _LONGEST_CALL, _CALLS_OF_A_SIZE * (called_s + call_s) / _SHARE_OF_SIZES)
        if enough_s <= run.options.budget_s:  # the links took the time
            enough_s = 2 * run.options.budget_s
        run.unsearched = (size, why, enough_s)

    for size in run.options.sizes:
        # Half of proportional growth: small sizes cost latency, which does not grow.
        if last_s * max(1.0, size / last_bytes / 2) > limit_s:
            stop_at(size, too_long, last_s * size / last_bytes)
            break
        if run.sampling.now_s() > deadline_s:
            stop_at(size, "there is no time within", last_s * size / last_bytes)
            break
        guess_s = max(_FIRST_GUESS_S, last_s * size / last_bytes)
        times_s = run.sampling.rounds("pilot", size, (DEFAULT,), 2, first_guess_s=guess_s)[:, 0]
        if times_s.min() > limit_s:  # a rank that got no core in time is no long call
            stop_at(size, too_long, float(times_s.min()))
            break
        if defaults and _CALLS_OF_A_SIZE * (called_s + times_s.min()) > run.ends_s(_SHARE_OF_SIZES):
            stop_at(size, "there is no time to confirm a candidate within", float(times_s.min()))
            break
        num_rounds = max(1, min(_PILOT_ROUNDS, int(limit_s / np.median(times_s))))
        more_s = run.sampling.rounds("pilot", size, (DEFAULT,), num_rounds, first_guess_s=guess_s)[:, 0]
        times_s = np.concatenate((times_s, more_s))
        last_bytes, last_s = size, float(np.median(times_s))
        called_s += last_s
        run.default_timed[size] = Timed.of(size, times_s)
        run.seen.append(Seen(what=format_bytes(size), arm="default", look=look_at(times_s)))
        defaults[size] = DefaultTime(
            median_s=last_s, num_samples=len(times_s), scatter=max(_LEAST_SCATTER, log_scatter(times_s))
        )
        run.stands(size, DEFAULT, 1.0, last_s)
        if relative_spread(times_s) > _SCATTERED:
            unsteady.append(size)
        run.report("pilot")
    if unsteady:
        run.warnings.append(
            f"the default's times scatter at {_listed(unsteady)}: small gains cannot be confirmed there; "
            "is other work on the machine?"
        )
    return defaults


def _search(
    run: _Run,
    defaults: Mapping[int, DefaultTime],
    candidates: Sequence[Candidate],
    predicted_s: Callable[[Candidate, int], float],
    job_bytes: Sequence[int],
) -> list[SizeSearch]:
    searches = []
    for size, default in defaults.items():
        able = shortlist(candidates, predicted_s, size)
        if able:
            searches.append(
                SizeSearch(
                    message_bytes=size,
                    candidates=able,
                    default_s=default.median_s,
                    seed=run.options.seed,
                    scatter=default.scatter,
                    longest_step_s=_LONGEST_STEP * run.options.budget_s,
                    note=run.note,
                    predicted_s=partial(_predicted_at, predicted_s, size),
                )
            )
            searches[-1].take_up(run.sampling.past)
    run.weights = size_weights(
        {one.message_bytes: one.default_s for one in searches}, job_bytes, asked_bytes=run.options.sizes
    )

    def after_step() -> None:
        for search in searches:
            for standing in search.standings()[:1]:
                if standing.comparison.ratio > run.best[search.message_bytes].ratio:
                    run.stands(
                        search.message_bytes,
                        standing.candidate,
                        standing.comparison.ratio,
                        search.default_s,
                    )
        run.report("search")

    def deadline_s(search: SizeSearch) -> float:
        if search.is_untouched and search.step_cost_s() <= run.ends_s(_FIRST_LOOK):
            return run.ends_s(_SEARCH_ENDS)
        standings = {one.message_bytes: one.standings() for one in searches}
        default_s = {one.message_bytes: one.default_s for one in searches}
        finalists = _finalists(run, standings)
        needed_s = _conditions_s(finalists, standings, default_s) + _reserve_s(
            run, finalists, standings, default_s
        )
        sooner_s = max(run.ends_s(_SEARCH_LEAST), run.ends_s(_CONFIRM_ENDS) - needed_s)
        return min(run.ends_s(_SEARCH_ENDS), sooner_s)

    ending = search_sizes(
        searches,
        run.sampling,
        deadline_s=deadline_s,
        budget_s=run.options.budget_s,
        weights=run.weights,
        after_step=after_step,
    )
    if searches:
        run.note("search ended", {"left": ending.left, "most": ending.most, "by_time": ending.by_time})
        run.notes.append(ending.in_words())
    return searches


def _finalists(
    run: _Run,
    standings: Mapping[int, Sequence[Standing]],
    unfit: frozenset[tuple[int, Candidate]] = frozenset(),
) -> dict[int, Candidate]:
    """One per searched size; that of the largest one is to serve larger sizes, too."""
    beyond: Mapping[Candidate, float] = {}
    if standings:
        last = max(standings)
        beyond = losses_beyond(standings[last], last, run.options.sizes, predicted_s=run.predicted_s)
    return choose_finalists(standings, min_gain=run.options.min_gain, unfit=unfit, beyond=beyond)


def _predicted_at(
    predicted_s: Callable[[Candidate, int], float], message_bytes: int, candidate: Candidate
) -> float:
    return predicted_s(candidate, message_bytes)


def _conditions_s(
    finalists: Mapping[int, Candidate],
    standings: Mapping[int, Sequence[Standing]],
    default_s: Mapping[int, float],
) -> float:
    """What trying these finalists beside a backward and beside Python is expected to take, seconds."""
    cost_s = 0.0
    seen = {DEFAULT}
    for size, candidate in sorted(finalists.items(), key=lambda item: item[0]):
        if candidate != DEFAULT:
            candidate_s = default_s[size] / ratio_of(standings[size], candidate)
            cost_s += condition_cost_s(default_s[size], candidate_s, busy=candidate not in seen)
            seen.add(candidate)
    return cost_s


def _reserve_s(
    run: _Run,
    finalists: Mapping[int, Candidate],
    standings: Mapping[int, Sequence[Standing]],
    default_s: Mapping[int, float],
) -> float:
    """What confirmation keeps of the time before its end, seconds."""
    return _RESERVE * least_confirmation_s(
        finalists,
        standings,
        default_s,
        min_gain=run.options.min_gain,
        stretch=run.sampling.stretch,
    )


def _limits(
    run: _Run, defaults: Mapping[int, DefaultTime], predicted_s: Callable[[Candidate, int], float]
) -> Callable[[Candidate, int], float]:
    """What a call of a candidate may take until it is cut off, seconds."""
    share, least_s, most_s = _LEAST_LIMIT
    floor_s = min(most_s, max(least_s, share * run.options.budget_s))
    default_s = {size: default.median_s for size, default in defaults.items()}

    def limit_s(candidate: Candidate, message_bytes: int) -> float:
        usual_s = interpolated(default_s, message_bytes)
        expected_s = min(predicted_s(candidate, message_bytes), _TRUSTED_PREDICTION * usual_s)
        return max(floor_s, _PATIENCE * max(usual_s, expected_s))

    return limit_s


def _problems(sampling: Sampling, searches: Sequence[SizeSearch]) -> list[str]:
    """What was left out because it is wrong, or does not end; one line each."""
    left_out = [candidate for candidate in sampling.deaths if sampling.is_left_out(candidate)]
    lines = {one: f"{one.label} was left out: {sampling.why_left_out(one)}" for one in left_out}
    for search in searches:
        for candidate, problem in search.problems.items():
            if candidate in sampling.failures and candidate not in left_out:
                lines[candidate] = f"{candidate.label} was given up {sampling.failures[candidate]}"
            lines.setdefault(candidate, f"{candidate.label} was left out: {problem}")
    for candidate, why in sampling.failures.items():
        lines.setdefault(candidate, f"{candidate.label} was given up {why}")
    return list(lines.values())


def _fit_for_training(
    run: _Run, searches: Sequence[SizeSearch]
) -> tuple[dict[int, Candidate], dict[tuple[int, Candidate], Conditions]]:
    """Finalists that hold beside a backward and beside Python, one per size.

    What Python in the main thread costs comes with each call, so it weighs most at the smallest size of a
    candidate: where it holds there, it is not tried at larger ones.
    """
    standings = {search.message_bytes: search.standings() for search in searches}
    default_s = {search.message_bytes: search.default_s for search in searches}
    taken: dict[tuple[int, Candidate], Conditions] = {}
    holds_busy_from: dict[Candidate, int] = {}
    unfit: set[tuple[int, Candidate]] = set()
    untimed: set[int] = set()
    while True:
        unfit |= {
            (size, one.candidate)
            for size, ranked in standings.items()
            for one in ranked
            if run.sampling.is_left_out(one.candidate)
        }
        finalists = _finalists(run, standings, frozenset(unfit))
        open_questions = [
            (size, candidate)
            for size, candidate in finalists.items()
            if candidate != DEFAULT and (size, candidate) not in taken
        ]
        if not open_questions:
            break
        reserve_s = _reserve_s(run, finalists, standings, default_s)
        deadline_s = max(run.ends_s(_CONDITIONS_END), run.ends_s(_CONFIRM_ENDS) - reserve_s)
        for size, candidate in open_questions:
            busy = size < holds_busy_from.get(candidate, size + 1)
            found = None
            candidate_s = default_s[size] / ratio_of(standings[size], candidate)
            cost_s = condition_cost_s(default_s[size], candidate_s, busy=busy)
            if conditions_recorded(run.sampling.past, size, candidate, default_s=default_s[size], busy=busy):
                cost_s = 0.0
            if cost_s == 0.0 or run.sampling.now_s() + cost_s <= deadline_s:
                try:
                    found = measure_conditions(
                        run.sampling,
                        size,
                        candidate,
                        default_s=default_s[size],
                        busy=busy,
                        seed=run.options.seed,
                        deadline_s=deadline_s,
                    )
                except CandidateFailedError:
                    unfit.add((size, candidate))
                    continue
            if found is None:
                unfit.add((size, candidate))
                untimed.add(size)
                continue
            taken[size, candidate] = found
            if found.problem is not None:
                unfit.add((size, candidate))
                run.warnings.append(
                    f"{candidate.label} at {format_bytes(size)} was left out: it is {found.problem}"
                )
            elif busy:
                holds_busy_from[candidate] = size
            run.report("conditions")
    run.untimed = frozenset(untimed)
    return finalists, taken


def _confirm(
    run: _Run, plan: ConfirmationPlan, default_s: Mapping[int, float]
) -> tuple[list[Confirmation], NullTrials]:
    """Confirmation and null trials, in the same passes; then further looks at what is open."""
    now_s, first_s = run.sampling.now_s(), plan.first_look_s
    again_s = (
        min(first_s, max(0.0, run.ends_s(_CONFIRM_ENDS) - now_s - first_s)) if plan.several_looks else 0.0
    )
    controls = NullPlan.within(
        run.ends_s(_NULL_ENDS) - now_s - first_s - again_s,
        default_s,
        comparisons=plan.num_comparisons,
        stretch=run.sampling.stretch,
    )
    phase: Phase = "confirm" if plan.points else "null trials"
    run.report(phase)
    passes = Passes(run.sampling, deadline_s=run.ends_s(_NULL_ENDS), after_point=lambda: run.report(phase))
    points = passes.add(plan.points, fewest=plan.fewest_rounds)
    null_points = passes.add(controls.points, fewest=controls.fewest)
    passes.run(dict.fromkeys((*points, *null_points), PASSES))
    taken = passes.taken()
    if plan.several_looks:
        confirmations = judge_in_looks(
            passes,
            points,
            num_comparisons=plan.num_comparisons,
            fewest=plan.fewest_rounds,
            min_gain=run.options.min_gain,
            seed=run.options.seed,
            until_s=run.ends_s(_NULL_ENDS),
        )
    else:
        confirmations = judge_once(
            passes,
            points,
            num_comparisons=plan.num_comparisons,
            min_gain=run.options.min_gain,
            seed=run.options.seed,
        )
    of_controls = [taken[index] for index in null_points]
    of_nulls = [
        seen
        for point, by_candidate in zip(controls.points, of_controls, strict=True)
        for candidate, blocks in by_candidate.items()
        for seen in seen_of(point.message_bytes, candidate, blocks)
    ]
    run.seen = [*seen_in(confirmations), *of_nulls] or run.seen
    nulls = controls.judged(of_controls, min_gain=run.options.min_gain, seed=run.options.seed)
    return confirmations, nulls


def _time_dispatch(run: _Run, rows: Sequence[Row], default_s: Mapping[int, float]) -> None:
    """Where rows that keep the default lose by the backend's dispatch; noted, and warned of."""
    asked = sizes_of_default_rows(rows, default_s)
    if asked:
        run.report("dispatch")
    costs = time_dispatch(run.sampling, asked, deadline_s=run.ends_s(_DISPATCH_ENDS))
    if (note := note_in_words(costs, asked)) is not None:
        run.notes.append(note)
    if (loss := loss_in_words(costs, rows, list(default_s), asked)) is not None:
        run.warnings.append(loss)


def _certificate(run: _Run, plan: ConfirmationPlan, num_comparisons: int, nulls: NullTrials) -> Certificate:
    looks = "looks after 6, 12, 24 … blocks that spend 1/2, 1/4, 1/8 … of the error rate"
    method = (
        f"fresh paired samples in random order, in {PASSES} or more blocks on new connections each; ratio "
        "of medians with the hull of a signed-rank interval, a percentile bootstrap and Student's t over "
        f"blocks; {looks if plan.several_looks else 'one look, number of rounds fixed beforehand'}; "
        f"corrected for {plan.num_comparisons} comparisons, made or not; null trials in the first blocks, "
        "judged by one look that spends all of it"
    )
    return Certificate(
        method="; ".join((method, *run.notes)),
        num_comparisons=num_comparisons,
        correction="holm",
        confidence=CONFIDENCE,
        min_gain=run.options.min_gain,
        false_win_rate=nulls.rate,
        false_win_rate_ci=nulls.rate_ci,
        num_null_trials=nulls.num_trials,
    )


def _what_runs(rows: Sequence[Row], size: int) -> str:
    """In words, what the table has for a size that was not confirmed."""
    row = find_row(rows, size)
    if row.algorithm == DEFAULT.algorithm:
        return "the default stays"
    assert row.evidence is not None, "a row that departs has evidence"
    return f"what was confirmed at {format_bytes(row.evidence.measured_bytes)} is taken over"


def _what_runs_at(rows: Sequence[Row], sizes: Sequence[int]) -> str:
    """The same of several sizes, ascending, as the end of a sentence about them."""
    runs = [(words, _listed(part)) for words, part in groupby(sizes, key=partial(_what_runs, rows))]
    if len(runs) == 1:
        return f", and {runs[0][0]} there"
    return ": " + " and ".join(f"{words} at {listed}" for words, listed in runs)


def _with_defaults(timed: Times, default: Mapping[int, Timed]) -> dict[str, Mapping[int, Timed]]:
    """What confirmed, and the pilot's times of the default at other sizes."""
    return {**timed, LIBRARY: {**default, **timed[LIBRARY]}}


def _planned(rows: Sequence[Row], timed: Times) -> dict[int, Timed]:
    """What the rows run, at the sizes where it was timed afresh."""
    planned = {}
    for size in timed[LIBRARY]:
        row = find_row(rows, size)
        arm = Candidate.of(row.algorithm, row.params)
        own = timed.get(LIBRARY if arm == DEFAULT else arm.label, {})
        if size in own:
            planned[size] = own[size]
    return planned


def _listed(sizes: Iterable[int]) -> str:
    return ", ".join(format_bytes(size) for size in sorted(sizes))

"""A tuning run as its journal tells it: every trial with its samples, every verdict, and how the run ended.

A journal's lines have checksums, which say that they are whole, not who wrote them: what stands in them is
read with the same bounds as any document.
"""

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from topotune.documents import Value
from topotune.errors import InputFileError
from topotune.links.document import from_document as measurement_from_document
from topotune.links.measurement import Measurement, median_ci
from topotune.plan.describe import params_in_words
from topotune.plan.load import plan_from_document
from topotune.plan.model import DEFAULT_ALGORITHM, Plan
from topotune.results.fields import MAX_SECONDS, maybe, needed, words
from topotune.results.prediction import params_of
from topotune.tune.journal import CHOSEN, ENDED, JournalContents, TableName
from topotune.units import MAX_MESSAGE_BYTES

_MAX_ARMS: Final = 10_000
_MAX_ROUNDS: Final = 1_000_000
_MAX_TABLES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to do an allreduce, as a trial ran it. Equal where algorithm and parameters are.

    Attributes:
        algorithm: a name that plans use, or ``plan``.
        params_json: its parameters as canonical JSON.
    """

    algorithm: str
    params_json: str = "{}"

    @property
    def label(self) -> str:
        """For people: ``ring channels=2 pieces=4``."""
        words_of = params_in_words(json.loads(self.params_json))
        return " ".join((self.algorithm, *(f"{name}={value}" for name, value in words_of.items())))

    @property
    def is_default(self) -> bool:
        """Whether it is the wrapped library's own allreduce."""
        return self.algorithm == DEFAULT_ALGORITHM


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One thing that was tried.

    Attributes:
        number: counts the trials of a run from 0.
        purpose: ``pilot``, ``check``, ``search``, ``condition``, ``confirm``, ``null`` or
            ``dispatch``.
        message_bytes: buffer on each rank.
        arms: what ran in turn.
        condition: what the main thread did meanwhile: ``idle``, ``backward`` or ``busy``.
        start_s, end_s: since the ranks joined; the end is None where the trial never ended.
        times_s: rounds of samples, one an arm; None where one was dropped.
        num_missed: starts that a rank missed.
        problem: why it failed; None where it did not.
    """

    number: int
    purpose: str
    message_bytes: int
    arms: tuple[Arm, ...]
    condition: str
    start_s: float
    end_s: float | None = None
    times_s: tuple[tuple[float | None, ...], ...] = ()
    num_missed: int = 0
    problem: str | None = None

    def samples_s(self, arm: int) -> list[float]:
        """The samples of one arm that were kept."""
        return [time_s for row in self.times_s if (time_s := row[arm]) is not None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What the search concluded of a candidate at one size.

    Attributes:
        message_bytes: buffer on each rank.
        arm: the candidate.
        state: ``COMPLETE``, ``PRUNED`` (hopeless) or ``FAIL``.
        log_ratio: log of candidate / default; None where it was not timed.
        num_rounds: that it was measured in.
        problem: why it failed; None where it did not.
    """

    message_bytes: int
    arm: Arm
    state: str
    log_ratio: float | None
    num_rounds: int
    problem: str | None


Curves = dict[Arm, dict[int, tuple[float, tuple[float, float], int]]]
"""Median, its 95 % interval (seconds) and the number of samples, by arm and message size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedTable:
    """A table beside the world's allreduce, as a run tuned it. Its clock counts what this table took.

    Attributes:
        number: counts the tables of a run from 1, in the order in which they are tuned.
        collective: that it is for.
        group: name of its groups; two tables may share one.
        trials: in the order of their numbers, which count all trials of the run.
        told: verdicts of the search, in order.
        finalists: what was to be confirmed at each size.
        chosen: whether its rows were chosen.
    """

    number: int
    collective: str
    group: str
    trials: tuple[Trial, ...] = ()
    told: tuple[Told, ...] = ()
    finalists: tuple[tuple[int, Arm], ...] = ()
    chosen: bool = False

    @property
    def title(self) -> str:
        """Collective and groups, for people."""
        return f"{self.collective}, {self.group}"

    def curves(self) -> Curves:
        """As of `TuningRun`."""
        return _curves(self.trials)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningRun:
    """A tuning run.

    Attributes:
        topotune_version: that made it.
        budget_s: what it was allowed to take.
        trials: of the world's allreduce, in the order of their numbers.
        told: verdicts of its search, in order.
        finalists: what was to be confirmed of it at each size.
        tables: those beside it, of other collectives and of groups.
        num_resumed: how often it was resumed.
        measurement: of the links; None where the run did not come so far.
        plan: that it ended with; None where it did not end.
        problems: lines of the journal that could not be taken.
    """

    topotune_version: str | None
    budget_s: float | None
    trials: tuple[Trial, ...]
    told: tuple[Told, ...] = ()
    finalists: tuple[tuple[int, Arm], ...] = ()
    tables: tuple[TunedTable, ...] = ()
    num_resumed: int = 0
    measurement: Measurement | None = None
    plan: Plan | None = None
    problems: tuple[str, ...] = ()

    @property
    def num_ranks(self) -> int | None:
        """Ranks of the run; None where it did not come so far as to say."""
        if self.plan is not None:
            return self.plan.fingerprint.hard.world_size
        return None if self.measurement is None else self.measurement.num_ranks

    def curves(self) -> Curves:
        """What the arms of the world's allreduce took.

        Of what ran while the main thread did nothing else, in the search and the confirmation alike; null
        trials ran the default on other connections, those of dispatch called it in another way.
        """
        return _curves(self.trials)


def _curves(trials: tuple[Trial, ...]) -> Curves:
    found: dict[Arm, dict[int, list[float]]] = {}
    for trial in trials:
        if trial.condition != "idle" or trial.purpose in ("null", "dispatch"):
            continue
        for index, arm in enumerate(trial.arms):
            if samples_s := trial.samples_s(index):
                found.setdefault(arm, {}).setdefault(trial.message_bytes, []).extend(samples_s)
    return {
        arm: {
            size: (statistics.median(samples_s), median_ci(samples_s), len(samples_s))
            for size, samples_s in sorted(sizes.items())
        }
        for arm, sizes in found.items()
    }


def tuning_run_of(contents: JournalContents, source: str) -> TuningRun:
    """The run that a journal records.

    Args:
        contents: of the journal.
        source: the file, for errors.

    Raises:
        InputFileError: a record is not of the form that a tuning run writes.
    """
    header = Value(contents.header, "line 1", source, InputFileError)
    notes = [
        (str(note["kind"]), Value(note, f"note {number}", source, InputFileError))
        for number, note in enumerate(contents.notes)
    ]
    whose = _Tables()
    for number, trial in contents.unfinished.items():
        whose.of(_table_name(trial, f"trial {number}", source)).trials.append(
            _trial(number, trial, None, source)
        )
    for one in contents.finished:
        whose.of(_table_name(one.trial, f"trial {one.number}", source)).trials.append(
            _trial(one.number, one.trial, one.outcome, source)
        )
    for kind, note in notes:
        if kind in ("told", "finalists", CHOSEN):
            whose.of(_table_name(note.raw, note.place, source)).take(kind, note)
    world = whose.world
    measured = [note for kind, note in notes if kind == "links"]
    plans = [note for kind, note in notes if kind == ENDED]
    return TuningRun(
        topotune_version=maybe(header, "topotune_version", lambda one: one.text(max_length=100)),
        budget_s=maybe(
            header, "options", lambda one: maybe(one, "budget_s", lambda it: it.number(0, MAX_SECONDS))
        ),
        trials=world.in_order(),
        told=tuple(world.told),
        finalists=tuple(world.finalists),
        tables=whose.beside(),
        num_resumed=sum(kind == "resumed" for kind, _ in notes),
        measurement=measurement_from_document(needed(measured[-1], "measurement").raw, source)
        if measured
        else None,
        plan=plan_from_document(needed(plans[-1], "plan").raw, source) if plans else None,
        problems=contents.problems,
    )


@dataclass(kw_only=True, slots=True)
class _Records:
    """What there is of one table."""

    trials: list[Trial] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    finalists: list[tuple[int, Arm]] = field(default_factory=list)
    chosen: bool = False

    def take(self, kind: str, note: Value) -> None:
        if kind == "told":
            self.told.append(_told(note))
        elif kind == "finalists":  # of each launch; the last one counts
            self.finalists = list(_finalists(note))
        else:
            self.chosen = True

    def in_order(self) -> tuple[Trial, ...]:
        return tuple(sorted(self.trials, key=lambda trial: trial.number))


class _Tables:
    """Records by their table."""

    def __init__(self) -> None:
        self.world = _Records()
        self._beside: dict[TableName, _Records] = {}

    def of(self, name: TableName | None) -> _Records:
        return self.world if name is None else self._beside.setdefault(name, _Records())

    def beside(self) -> tuple[TunedTable, ...]:
        return tuple(
            TunedTable(
                number=name.number,
                collective=name.collective,
                group=name.group,
                trials=records.in_order(),
                told=tuple(records.told),
                finalists=tuple(records.finalists),
                chosen=records.chosen,
            )
            for name, records in sorted(self._beside.items(), key=lambda item: item[0].number)
        )


def _table_name(record: dict[str, Any], place: str, source: str) -> TableName | None:
    """Which table a record is of; None of the world's allreduce."""
    return maybe(
        Value(record, place, source, InputFileError),
        "table",
        lambda one: TableName(
            number=needed(one, "number").integer(1, _MAX_TABLES),
            collective=needed(one, "collective").text(max_length=100),
            group=needed(one, "group").text(max_length=200),
        ),
    )


def _trial(number: int, raw_trial: dict[str, Any], raw_outcome: dict[str, Any] | None, source: str) -> Trial:
    trial = Value(raw_trial, f"trial {number}", source, InputFileError)
    arms = tuple(_arm(one) for one in needed(trial, "arms").items(_MAX_ARMS, what="arms"))
    common: dict[str, Any] = {
        "number": number,
        "purpose": needed(trial, "kind").text(max_length=100),
        "message_bytes": needed(trial, "message_bytes").integer(0, MAX_MESSAGE_BYTES),
        "arms": arms,
        "condition": maybe(trial, "condition", lambda one: one.text(max_length=100)) or "idle",
        "start_s": float(needed(trial, "at_s").number(-MAX_SECONDS, MAX_SECONDS)),
    }
    if raw_outcome is None:
        return Trial(**common)
    outcome = Value(raw_outcome, f"trial {number}, its outcome", source, InputFileError)
    times_s = maybe(outcome, "times_s", lambda one: tuple(_rounds(one, len(arms))))
    return Trial(
        **common,
        end_s=maybe(outcome, "at_s", lambda one: float(one.number(-MAX_SECONDS, MAX_SECONDS))),
        times_s=times_s or (),
        num_missed=maybe(outcome, "num_missed", lambda one: one.integer()) or 0,
        problem=maybe(outcome, "broken", words) or maybe(outcome, "problem", words),
    )


def _rounds(value: Value, num_arms: int) -> Iterator[tuple[float | None, ...]]:
    for row in value.items(_MAX_ROUNDS, what="rounds"):
        yield tuple(
            time_s.optional(lambda one: float(one.number(0, MAX_SECONDS, above=True)))
            for time_s in row.items(num_arms, min_items=num_arms, what="samples")
        )


def _arm(value: Value) -> Arm:
    params = params_of(needed(value, "params"))
    return Arm(
        algorithm=needed(value, "algorithm").text(max_length=100),
        params_json=json.dumps(params, sort_keys=True, separators=(",", ":")),
    )


def _told(note: Value) -> Told:
    return Told(
        message_bytes=needed(note, "message_bytes").integer(0, MAX_MESSAGE_BYTES),
        arm=_arm(note),
        state=needed(note, "state").text(max_length=100),
        log_ratio=maybe(note, "log_ratio", lambda one: one.number(-100, 100)),
        num_rounds=maybe(note, "num_rounds", lambda one: one.integer()) or 0,
        problem=maybe(note, "problem", words),
    )


def _finalists(note: Value) -> Iterator[tuple[int, Arm]]:
    for one in needed(note, "finalists").items(_MAX_ARMS, what="finalists"):
        yield needed(one, "message_bytes").integer(0, MAX_MESSAGE_BYTES), _arm(one)

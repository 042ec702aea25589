"""What earlier launches of a tuning run have found: a journal, read back for the launch that goes on with it.

Everything up to the choice of finalists is taken from the journal: how the links were measured, the default's
times, checks, the search's samples and verdicts, times beside a backward. Confirmation and null trials are
not: those of an earlier launch stay in the journal and count for nothing, so that the evidence of a table is
always of one launch, whose ranks and machines were the same throughout.

So it is for each table of a run by itself: the world's allreduce, and the tables beside it, whose records say
so. A table beside it whose rows an earlier launch had chosen is taken as it is, with all its evidence.

A candidate that was running when a run died is counted a death, as is one whose call was cut off. Where
several candidates ran in turn each is counted; such candidates then run alone, so that a second death
strikes the right one.
"""

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from topotune.errors import InputFileError
from topotune.tune.journal import CHOSEN, SCHEMA_VERSION, TABLES, FinishedTrial, JournalContents
from topotune.tune.statistics import Samples
from topotune.tune.trial import DEFAULTS, Candidate, Check, Condition
from topotune.units import MAX_SECONDS

DEATHS: Final = 2
"""A candidate that was running at so many deaths, or was cut off so often, is left out."""

RoundsKey = tuple[str, int, tuple[Candidate, ...], Condition]
"""Purpose, message size, arms, condition."""

_REPLAYED: Final = ("pilot", "search", "condition")
_OWN_OPTIONS: Final = frozenset({"budget_s", "journal_path", "resume", "fresh"})
"""Options in which launches of one run may differ."""

_SHOWN_DIFFERENCES, _SHOWN_CHARACTERS = 3, 60

FormT = TypeVar("FormT")


@dataclass(frozen=True, kw_only=True)
class Searched:
    """Rounds of a search at one size.

    Attributes:
        arms: the default, then candidates.
        times_s: whole rounds, seconds, shape (rounds, arms).
    """

    arms: tuple[Candidate, ...]
    times_s: Samples


@dataclass(kw_only=True)
class Past:
    """What there is to go on from, of one table; empty for a new run.

    Attributes:
        num_finished: trials that ended, of all tables.
        elapsed_s: of the table's budget, what earlier launches used up before confirmation.
        measurement: document of the links' measurement, or None.
        checks: by size and candidate.
        searched: by size.
        spent_s: wall time of the search, by size.
        told: verdicts of the search, notes of the journal.
        deaths: by candidate.
        rounds: samples of pilot and conditions that nobody has taken yet.
        chosen: the note with the rows of the table, where an earlier launch came so far; None of the world's
            allreduce.
        tables: of those beside the world's allreduce, by their numbers; in the past of the latter alone.
        table_names: what these tables were, as their note says it; None where the run did not come so far.
    """

    num_finished: int = 0
    elapsed_s: float = 0.0
    measurement: dict[str, Any] | None = None
    checks: dict[tuple[int, Candidate], Check] = field(default_factory=dict)
    searched: dict[int, list[Searched]] = field(default_factory=dict)
    spent_s: dict[int, float] = field(default_factory=dict)
    told: list[Mapping[str, Any]] = field(default_factory=list)
    deaths: Counter[Candidate] = field(default_factory=Counter)
    rounds: dict[RoundsKey, deque[Samples]] = field(default_factory=dict)
    chosen: Mapping[str, Any] | None = None
    tables: dict[int, "Past"] = field(default_factory=dict)
    table_names: list[Any] | None = None

    def of_table(self, table: "_Table | None") -> "Past":
        """Of the table that a record is of."""
        return self if table is None else self.tables.setdefault(table.number, Past())

    def num_recorded(self, key: RoundsKey) -> int:
        """How many rounds are left to be taken."""
        return sum(len(times_s) for times_s in self.rounds.get(key, ()))

    def take(self, key: RoundsKey, num_rounds: int) -> Samples:
        """Rounds that were recorded, each once, oldest first; at most so many. Shape (rounds, arms)."""
        taken: list[Samples] = [np.empty((0, len(key[2])))]
        recorded = self.rounds.get(key, deque())
        while recorded and num_rounds > 0:
            times_s = recorded.popleft()
            taken.append(times_s[:num_rounds])
            if len(times_s) > num_rounds:
                recorded.appendleft(times_s[num_rounds:])
            num_rounds -= len(taken[-1])
        return np.concatenate(taken)


def read_past(contents: JournalContents, path: Path) -> Past:
    """What a journal tells a resumed run.

    Args:
        contents: of the journal.
        path: where it came from, for errors.

    Raises:
        InputFileError: a record is not of the form that this topotune writes.
    """
    past = Past(num_finished=len(contents.finished))
    for trial in contents.finished:
        begun = _valid(_TRIAL, trial.trial, path, f"trial {trial.number}")
        _take_finished(past.of_table(begun.table), begun, trial, path)
    for number, unfinished in contents.unfinished.items():
        begun = _valid(_TRIAL, unfinished, path, f"trial {number}")
        own = past.of_table(begun.table)
        own.deaths.update(arm for arm in begun.candidates if arm not in DEFAULTS)
        if begun.kind in _REPLAYED:
            own.elapsed_s = max(own.elapsed_s, begun.at_s)
    for number, note in enumerate(contents.notes, start=1):
        if note["kind"] == "told":
            told = _valid(_TOLD, note, path, f"note {number}")
            past.of_table(told.table).told.append(note)
        elif note["kind"] == CHOSEN:
            chosen = _valid(_CHOSEN, note, path, f"note {number}")
            past.of_table(chosen.table).chosen = note
        elif note["kind"] == TABLES and isinstance(note.get("tables"), list):
            past.table_names = note["tables"]
        elif note["kind"] == "links" and isinstance(note.get("measurement"), dict):
            past.measurement = note["measurement"]
    return past


def check_version(contents: JournalContents, path: Path) -> None:
    """Whether a journal can be gone on with, and not only be read.

    Raises:
        InputFileError: it is of an older version: what is added would not be told apart by who reads that.
    """
    if contents.schema_version < SCHEMA_VERSION:
        raise InputFileError(
            path,
            f"is of schema_version {contents.schema_version}; what can be gone on with is {SCHEMA_VERSION}",
            hint="go on with the topotune that wrote it, or leave --resume out",
        )


def check_same_tables(past: Past, now: Sequence[Mapping[str, Any]], path: str) -> None:
    """Whether the tables beside the world's allreduce are those that the journal's records are of.

    Args:
        past: of the run.
        now: the tables, as their note says them.
        path: of the journal.

    Raises:
        InputFileError: they are others: the same options on ranks that are placed otherwise.
    """
    if past.table_names is None:
        return
    here = json.loads(json.dumps(list(now)))
    differing = [pair for pair in zip_longest(past.table_names, here) if pair[0] != pair[1]]
    if differing:
        there, own = differing[0]
        raise InputFileError(
            path,
            f"is of another run: a table is {_shown(there)} there and {_shown(own)} here",
            hint="place the ranks on the nodes as they were, or leave --resume out",
        )


def check_same_run(header: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Whether a journal is of a run like this one.

    Args:
        header: of the journal.
        now: what this run would write.
        path: of the journal.

    Raises:
        InputFileError: it differs in anything but the budget; both values are named.
    """
    there, here = dict(_flat(_compared(header))), dict(_flat(_compared(json.loads(json.dumps(now)))))
    differing = [
        f"{name} is {_shown(there.get(name))} there and {_shown(here.get(name))} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
    if differing:
        more = len(differing) - _SHOWN_DIFFERENCES
        shown = "; ".join(differing[:_SHOWN_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
        raise InputFileError(
            path,
            f"is of another run: {shown}",
            hint="give the same options on the same machines, or leave --resume out",
        )


@dataclass(frozen=True)
class _Arm:
    algorithm: str
    params: dict[str, Any]


@dataclass(frozen=True)
class _Table:
    """Which table a record is of; where it does not say, of the world's allreduce."""

    number: Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class _Trial:
    """What stands in a journal when a trial begins."""

    kind: str
    message_bytes: int
    arms: list[_Arm]
    condition: Condition
    at_s: float
    table: _Table | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(Candidate.of(arm.algorithm, arm.params) for arm in self.arms)


@dataclass(frozen=True)
class _Broken:
    arm: int
    why: str


@dataclass(frozen=True)
class _Rounds:
    """… when one of rounds has ended."""

    times_s: list[list[float | None]]
    at_s: float
    broken: _Broken | None = None


@dataclass(frozen=True)
class _Check:
    """… when a check has ended."""

    problem: str | None
    call_s: float | None
    at_s: float
    broken: str | None = None


@dataclass(frozen=True)
class _Told:
    """… when the search has judged a candidate."""

    message_bytes: int
    algorithm: str
    params: dict[str, Any]
    state: Literal["COMPLETE", "PRUNED", "FAIL"]
    log_ratio: float | None
    num_rounds: int
    problem: str | None = None
    table: _Table | None = None


@dataclass(frozen=True)
class _Chosen:
    """… when the rows of a table beside the world's allreduce were chosen."""

    table: _Table
    elapsed_s: Annotated[float, Field(ge=0, le=MAX_SECONDS)]


_TRIAL: Final = TypeAdapter(_Trial)
_ROUNDS: Final = TypeAdapter(_Rounds)
_CHECK: Final = TypeAdapter(_Check)
_TOLD: Final = TypeAdapter(_Told)
_CHOSEN: Final = TypeAdapter(_Chosen)


def _valid(form: TypeAdapter[FormT], record: Mapping[str, Any], path: Path, place: str) -> FormT:
    try:
        return form.validate_python(dict(record))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputFileError(path, f"{where}: {first['msg']}", place=place) from error


def _take_finished(past: Past, begun: _Trial, trial: FinishedTrial, path: Path) -> None:
    place = f"trial {trial.number}"
    arms = begun.candidates
    if begun.kind == "check":
        check = _valid(_CHECK, trial.outcome, path, place)
        if check.broken is not None:
            past.deaths.update(arms)
            return  # it may be tried once more
        call_s = float("nan") if check.call_s is None else check.call_s
        past.checks[begun.message_bytes, arms[0]] = Check(problem=check.problem, call_s=call_s)
        return
    ended = _valid(_ROUNDS, trial.outcome, path, place)
    if any(len(row) != len(arms) for row in ended.times_s):
        raise InputFileError(path, f"times_s: a round has other than {len(arms)} times", place=place)
    if begun.kind in _REPLAYED:
        past.elapsed_s = max(past.elapsed_s, ended.at_s)
    if ended.broken is not None:
        if not 0 <= ended.broken.arm < len(arms):
            raise InputFileError(path, f"broken.arm: {ended.broken.arm} is none of {len(arms)}", place=place)
        past.deaths.update([arms[ended.broken.arm]])
        return
    whole = [row for row in ended.times_s if None not in row]
    times_s = np.array(whole, dtype=np.float64).reshape(len(whole), len(arms))
    if begun.kind == "search":
        past.searched.setdefault(begun.message_bytes, []).append(Searched(arms=arms, times_s=times_s))
        spent_s = past.spent_s.get(begun.message_bytes, 0.0)
        past.spent_s[begun.message_bytes] = spent_s + max(0.0, ended.at_s - begun.at_s)
    elif begun.kind in _REPLAYED:
        key = (begun.kind, begun.message_bytes, arms, begun.condition)
        past.rounds.setdefault(key, deque()).append(times_s)


def _compared(header: Mapping[str, Any]) -> dict[str, Any]:
    options = header.get("options")
    kept = options if isinstance(options, Mapping) else {}
    return {
        "topotune_version": header.get("topotune_version"),
        "options": {name: value for name, value in kept.items() if name not in _OWN_OPTIONS},
        "fingerprint": header.get("fingerprint"),
    }


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested objects by name: the options' own names, ``fingerprint.hard.world_size``."""
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner in value.items():
        outer = "" if name == "options" else f"{name}." if name else ""
        yield from _flat(inner, f"{outer}{key}")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"

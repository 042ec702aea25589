"""The journal: the only record of a tuning run, one JSON document a line, readable after a kill at any byte.

Each line is ``{"crc32": …, "record": {…}}``, the checksum taken over the record's canonical JSON. The first
record is the header. A trial is written before it starts and again when it ends, so that what was running
when a run died is known by name. A line is handed to the kernel in one write, which survives the death of the
process; the disk is asked to hold it (fsync) at most once a second and at the end, which bounds what a power
failure costs.

Reading drops a torn last line (that is how a killed run ends) and reports a line spoilt in the middle, whose
trial is lost while all others stand. A run that is resumed cuts the torn line off and goes on behind it. One
process at a time writes a journal: it holds a lock, which goes with the process.

A new run replaces the journal of a run that came to its end. One that did not is kept beside it, with its
finished trials, as ``….1.jsonl``; one generation is kept.

The world's allreduce is what trials and notes are of, unless they say ``table``: the number, the collective
and the groups of one of the tables beside it.

schema_version history: 1 is the first, in which no table beside the world's allreduce was recorded; 2 has
``table``. Both are read; only a journal of the newest is gone on with.
"""

import fcntl
import json
import math
import os
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from topotune.documents import read_bytes_from_start
from topotune.errors import InputFileError, OutputFileError

SCHEMA: Final = "topotune/journal"
SCHEMA_VERSION: Final = 2

ENDED: Final = "ended"
"""Kind of the note with which a run that came to its end closes its journal; it holds the plan."""

TABLES: Final = "tables"
"""Kind of the note that says which tables a run has beside the world's allreduce."""

CHOSEN: Final = "chosen"
"""Kind of the note with the rows of such a table, once they are chosen."""

MAX_BYTES: Final = 1 << 30
_SYNC_INTERVAL_S: Final = 1.0
_LINE_START: Final = b'{"crc32":'


@dataclass(frozen=True, kw_only=True, slots=True)
class TableName:
    """Which table a record is of; records of the world's allreduce have none.

    Attributes:
        number: counts the tables beside the world's allreduce from 1, in the order in which they are tuned.
        collective: that it is for.
        group: name of its groups, for people; two tables may share one.
    """

    number: int
    collective: str
    group: str

    def to_json(self) -> dict[str, Any]:
        """Its JSON form."""
        return {"number": self.number, "collective": self.collective, "group": self.group}


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedTrial:
    """A trial that ended.

    Attributes:
        number: counts the trials of a run from 0.
        trial: what was to be done (kind, message_bytes, arms, …), as ``begin`` got it.
        outcome: what came of it (times_s, problem, …), as ``end`` got it.
    """

    number: int
    trial: dict[str, Any]
    outcome: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalContents:
    """What a journal holds.

    Attributes:
        header: the first record: version, options, fingerprint, seed.
        finished: trials that ended, in the order of their ends.
        unfinished: trials that began and never ended, by number.
        notes: all other records (decisions, phases), in order.
        next_number: the first number that no trial has.
        problems: lines that could not be taken, in words, with their numbers.
        torn_tail_bytes: length of the torn last line that was dropped; 0 if there was none.
    """

    header: dict[str, Any]
    finished: tuple[FinishedTrial, ...]
    unfinished: dict[int, dict[str, Any]]
    notes: tuple[dict[str, Any], ...]
    next_number: int
    problems: tuple[str, ...]
    torn_tail_bytes: int

    @property
    def schema_version(self) -> int:
        """Of the file."""
        version: int = self.header["schema_version"]
        return version

    @property
    def ended(self) -> bool:
        """Whether the run came to its end."""
        return any(note["kind"] == ENDED for note in self.notes)


class Journal:
    """Writes one journal; a context manager. Any thread may write.

    Args:
        path: the file. The journal of another run that is there is replaced, or kept beside it.
        header: what describes the run; ``schema``, ``schema_version`` and ``kind`` are added.

    Raises:
        OutputFileError: the folder does not exist or cannot be written, the file there is no journal, or
            another process is writing it.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        check_replaceable(path)
        self._take(path)
        try:
            if num_unfinished(path) > 0:
                check_replaceable(kept_path(path))
                with _refused(path):
                    path.replace(kept_path(path))
                former = self._descriptor
                self._take(path)
                os.close(former)
            with _refused(path):
                os.ftruncate(self._descriptor, 0)
        except BaseException:
            os.close(self._descriptor)
            raise
        self.note("header", {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **header})

    @classmethod
    def resume(cls, path: Path) -> tuple[Self, JournalContents]:
        """Go on with a journal; it, and what it holds so far.

        Raises:
            InputFileError: it cannot be read, or is none.
            OutputFileError: it cannot be written, or another process is writing it.
        """
        if not path.exists():
            raise InputFileError(path, "is not there: there is no run to resume", hint="leave --resume out")
        journal = cls.__new__(cls)
        journal._take(path)
        try:
            contents = read_journal(path)
            whole_bytes = os.fstat(journal._descriptor).st_size - contents.torn_tail_bytes
            with _refused(path):
                os.ftruncate(journal._descriptor, whole_bytes)
        except BaseException:
            os.close(journal._descriptor)
            raise
        journal._next_number = contents.next_number
        return journal, contents

    def _take(self, path: Path) -> None:
        """Open the file for this process alone."""
        with _refused(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise OutputFileError(
                f"{path}: another run is writing this journal",
                hint="wait for it, or name another plan with -o",
            ) from error
        except OSError:
            pass  # a file system without locks: there, nobody can be told of another run
        self._descriptor = descriptor
        self._path = path
        self._lock = threading.Lock()
        self._next_number = 0
        self._synced_at_s = -math.inf
        self._closed = False

    def begin(self, trial: Mapping[str, Any]) -> int:
        """Record a trial that is about to start; its number."""
        number = self._next_number
        self._next_number += 1
        self._append({"kind": "begin", "number": number, "trial": dict(trial)})
        return number

    def end(self, number: int, outcome: Mapping[str, Any]) -> None:
        """Record how a trial ended."""
        self._append({"kind": "end", "number": number, "outcome": dict(outcome)})

    def note(self, kind: str, record: Mapping[str, Any]) -> None:
        """Record anything else: a phase that begins, a decision. Nothing, once it was closed."""
        self._append({"kind": kind, **record})

    def close(self) -> None:
        """Have the disk hold it, and close it."""
        with self._lock:
            self._closed = True
            with _refused(self._path):
                os.fsync(self._descriptor)
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, record: Mapping[str, Any]) -> None:
        line = memoryview(encode_line(record))
        with self._lock, _refused(self._path):
            if self._closed:
                return
            while line:
                line = line[os.write(self._descriptor, line) :]
            now_s = time.monotonic()
            if now_s - self._synced_at_s >= _SYNC_INTERVAL_S:
                os.fsync(self._descriptor)
                self._synced_at_s = now_s


class TableJournal:
    """The journal as one table beside the world's allreduce writes it: every record says whose it is.

    Args:
        journal: of the run.
        name: of the table.
    """

    def __init__(self, journal: Journal, name: TableName) -> None:
        self._journal = journal
        self._table = {"table": name.to_json()}

    def begin(self, trial: Mapping[str, Any]) -> int:
        """Record a trial that is about to start; its number, which no other of the run has."""
        return self._journal.begin({**trial, **self._table})

    def end(self, number: int, outcome: Mapping[str, Any]) -> None:
        """Record how a trial ended."""
        self._journal.end(number, outcome)

    def note(self, kind: str, record: Mapping[str, Any]) -> None:
        """Record anything else."""
        self._journal.note(kind, {**record, **self._table})


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputFileError(f"{path}: the journal cannot be written: {error.strerror}") from error


def journal_path_of(plan: Path) -> Path:
    """Where the journal of a plan stands: ``plan.json`` → ``plan.journal.jsonl``."""
    return plan.with_name(f"{plan.stem}.journal.jsonl")


def kept_path(path: Path) -> Path:
    """Where an unfinished journal is kept that a new run replaces: ``plan.journal.1.jsonl``."""
    return path.with_name(f"{path.stem}.1{path.suffix}")


def num_unfinished(path: Path) -> int:
    """How many finished trials a journal holds whose run did not come to its end; 0 where none is there.

    Raises:
        InputFileError: it cannot be read, or was written by a newer topotune.
    """
    try:
        with path.open("rb") as file:
            if not file.readline().endswith(b"\n"):
                return 0  # empty, or killed before it had a header
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror}") from error
    contents = read_journal(path)
    return 0 if contents.ended else len(contents.finished)


def encode_line(record: Mapping[str, Any]) -> bytes:
    """One line of a journal, newline included. NaN and infinities are programmer's mistakes: write None."""
    text = _canonical(record)
    return b'%s%d,"record":%s}\n' % (_LINE_START, zlib.crc32(text), text)


def read_journal(path: Path) -> JournalContents:
    """Read what a run recorded, also one that was killed.

    Raises:
        InputFileError: the file cannot be read, its first line is no header of a journal (torn off included),
            or it is of a newer version.
    """
    try:
        num_bytes = path.stat().st_size
        if num_bytes > MAX_BYTES:
            raise InputFileError(path, f"has {num_bytes} bytes; a journal has at most {MAX_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror}") from error
    return parse_journal(data, path)


def parse_journal(data: bytes, path: Path) -> JournalContents:
    """As ``read_journal``, from the file's bytes."""
    *lines, tail = data.split(b"\n")
    if not lines:
        raise InputFileError(path, "holds no whole line, so it is no journal", hint="start the run anew")
    header = _decode_line(lines[0])
    if isinstance(header, str) or header.get("schema") != SCHEMA:
        problem = header if isinstance(header, str) else f"schema is {header.get('schema')!r}, not {SCHEMA!r}"
        raise InputFileError(path, f"no journal: {problem}", place="line 1")
    version = header.get("schema_version")
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise InputFileError(
            path,
            f"is of schema_version {version!r}; this topotune reads 1 to {SCHEMA_VERSION}",
            hint="use the topotune that wrote it, or a newer one",
        )
    running: dict[int, dict[str, Any]] = {}
    finished: list[FinishedTrial] = []
    notes: list[dict[str, Any]] = []
    problems: list[str] = []
    next_number = 0
    for line_number, line in enumerate(lines[1:], start=2):
        record = _decode_line(line)
        if isinstance(record, str):
            problems.append(f"line {line_number}: {record}")
            continue
        if isinstance(number := record.get("number"), int):
            next_number = max(next_number, number + 1)
        match record:
            case {"kind": "begin", "number": int(number), "trial": dict(trial)}:
                running[number] = trial
            case {"kind": "end", "number": int(number), "outcome": dict(outcome)} if number in running:
                finished.append(FinishedTrial(number=number, trial=running.pop(number), outcome=outcome))
            case {"kind": "end", "number": number}:
                problems.append(f"line {line_number}: trial {number} ends, but its beginning is lost")
            case {"kind": str()}:
                notes.append(record)
            case _:
                problems.append(f"line {line_number}: is of no kind")
    return JournalContents(
        header=header,
        finished=tuple(finished),
        unfinished=running,
        notes=tuple(notes),
        next_number=next_number,
        problems=tuple(problems),
        torn_tail_bytes=len(tail),
    )


def _decode_line(line: bytes) -> dict[str, Any] | str:
    """The record of a line, or what is wrong with it."""
    try:
        document = json.loads(line)
        if not (isinstance(document, dict) and isinstance(document.get("record"), dict)):
            return "is no line of a journal"
        record: dict[str, Any] = document["record"]
        checksum = zlib.crc32(_canonical(record))
    except (ValueError, RecursionError):
        return "is no JSON"
    return record if checksum == document.get("crc32") else "its checksum does not fit"


def _canonical(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def is_journal(path: Path) -> bool:
    """Whether a regular file begins as a journal does; False for what cannot be read.

    Whatever is none is for another reader to refuse.
    """
    try:
        return read_bytes_from_start(path, len(_LINE_START)) == _LINE_START
    except InputFileError:
        return False


def check_replaceable(path: Path) -> None:
    """Whether a new journal may stand there: one is replaced by the next run's, any other file left alone.

    Raises:
        OutputFileError: it may not.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(_LINE_START))
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputFileError(f"{path}: cannot be read: {error.strerror}") from error
    if not _LINE_START.startswith(start):
        raise OutputFileError(
            f"{path}: is there and is no journal of topotune", hint="name another file for the journal"
        )

"""The journal: the only record of a tuning run, one JSON document a line, readable after a kill at any byte.

Each line is ``{"crc32": …, "record": {…}}``, the checksum taken over the record's canonical JSON. The first
record is the header. A trial is written before it starts and again when it ends, so that what was running
when a run died is known by name. A line is handed to the kernel in one write, which survives the death of the
process; the disk is asked to hold it (fsync) at most once a second and at the end, which bounds what a power
failure costs.

Reading drops a torn last line (that is how a killed run ends) and reports a line spoilt in the middle, whose
trial is lost while all others stand.

schema_version history: 1 is the first.
"""

import json
import math
import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from topotune.errors import InputFileError, OutputFileError

SCHEMA: Final = "topotune/journal"
SCHEMA_VERSION: Final = 1

_SYNC_INTERVAL_S: Final = 1.0
_LINE_START: Final = b'{"crc32":'


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
        problems: lines that could not be taken, in words, with their numbers.
        torn_tail_bytes: length of the torn last line that was dropped; 0 if there was none.
    """

    header: dict[str, Any]
    finished: tuple[FinishedTrial, ...]
    unfinished: dict[int, dict[str, Any]]
    notes: tuple[dict[str, Any], ...]
    problems: tuple[str, ...]
    torn_tail_bytes: int


class Journal:
    """Writes one journal; a context manager.

    Args:
        path: the file. A journal that is already there is replaced.
        header: what describes the run; ``schema``, ``schema_version`` and ``kind`` are added.

    Raises:
        OutputFileError: the folder does not exist or cannot be written, or the file there is no journal.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        check_replaceable(path)
        try:
            self._descriptor = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise OutputFileError(f"{path}: the journal cannot be written: {error.strerror}") from error
        self._path = path
        self._next_number = 0
        self._synced_at_s = -math.inf
        self.note("header", {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **header})

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
        """Record anything else: a phase that begins, a decision."""
        self._append({"kind": kind, **record})

    def close(self) -> None:
        """Have the disk hold it, and close it."""
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
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
            now_s = time.monotonic()
            if now_s - self._synced_at_s >= _SYNC_INTERVAL_S:
                os.fsync(self._descriptor)
                self._synced_at_s = now_s
        except OSError as error:
            raise OutputFileError(f"{self._path}: the journal cannot be written: {error.strerror}") from error


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
    if version != SCHEMA_VERSION:
        raise InputFileError(
            path,
            f"is of schema_version {version!r}; this topotune reads {SCHEMA_VERSION}",
            hint="use the topotune that wrote it, or a newer one",
        )
    running: dict[int, dict[str, Any]] = {}
    finished: list[FinishedTrial] = []
    notes: list[dict[str, Any]] = []
    problems: list[str] = []
    for line_number, line in enumerate(lines[1:], start=2):
        record = _decode_line(line)
        if isinstance(record, str):
            problems.append(f"line {line_number}: {record}")
            continue
        match record:
            case {"kind": "begin", "number": int(number), "trial": dict(trial)}:
                running[number] = trial
            case {"kind": "end", "number": int(number), "outcome": dict(outcome)} if number in running:
                finished.append(FinishedTrial(number=number, trial=running.pop(number), outcome=outcome))
            case {"kind": "end", "number": number}:
                problems.append(f"line {line_number}: trial {number} ends, but its beginning is lost")
            case _:
                notes.append(record)
    return JournalContents(
        header=header,
        finished=tuple(finished),
        unfinished=running,
        notes=tuple(notes),
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

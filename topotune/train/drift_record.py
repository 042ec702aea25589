"""What the watch over a job's calls saw, in a file: TOPOTUNE_DRIFT.

Rank 0 of the job writes it: when the job starts, so that a path which cannot be written is known then; after
each trial, in a thread of its own, since all ranks wait for a call that begins late on one; and at exit. A
file that cannot be written costs one warning, and the job nothing.

schema_version history of ``topotune/drift``: 1 is the first.
"""

import atexit
import json
import logging
import os
import threading
import warnings
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from topotune.train.usage import write_text

DRIFT_VARIABLE: Final = "TOPOTUNE_DRIFT"
OFF: Final = "off"

SCHEMA: Final = "topotune/drift"
SCHEMA_VERSION: Final = 1

_MAX_ENDED: Final = 64
"""Groups that have ended and are still told of, the last ones."""

_LOG: Final = logging.getLogger(__name__)


class Watched(Protocol):
    """A group's watch."""

    def document(self) -> dict[str, Any]:
        """What it saw so far; {} for nothing."""


class DriftRecord:
    """What all groups of this process saw. One object per process.

    Attributes:
        acts: whether groups that are made now may leave their plan.
    """

    def __init__(self) -> None:
        self.acts = True
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._live: list[Watched] = []
        self._ended: deque[dict[str, Any]] = deque(maxlen=_MAX_ENDED)
        self._path: str | None = None
        self._writer: int | None = None

    def stay_silent(self) -> None:
        """This process is no training job: its groups keep their plans, and no file is written."""
        self.acts = False

    def begin(self) -> None:
        """This process is rank 0 of a job: it writes the file that TOPOTUNE_DRIFT names, if it names one."""
        path = os.environ.get(DRIFT_VARIABLE)
        if path and path != OFF and self.acts:
            self._path, self._writer = path, os.getpid()
            self.write()

    def open(self, watched: Watched) -> None:
        """Take a group in."""
        with self._lock:
            self._live.append(watched)

    def close(self, watched: Watched) -> None:
        """A group has ended; what it saw is kept."""
        with self._lock:
            if watched in self._live:
                self._live.remove(watched)
                self._keep(watched.document())

    def _keep(self, document: dict[str, Any]) -> None:
        if document:
            self._ended.append(document)

    def document(self) -> dict[str, Any]:
        """The whole file."""
        with self._lock:
            live = [watched.document() for watched in self._live]
            groups = [*self._ended, *(one for one in live if one)]
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "groups": groups,
            "warnings": [],
        }

    def write(self) -> None:
        """Write the file as things stand; nothing where none is wanted."""
        if self._is_wanted():
            with self._writing:
                self._write()

    def end(self) -> None:
        """At exit: `write` for the last time, since a thread that wrote later could be cut off half way."""
        if self._is_wanted():
            with self._writing:
                self._write()
                self._path = None

    def _is_wanted(self) -> bool:
        """Whether there is a file to write; not on another rank, nor in a process forked from rank 0."""
        return self._path is not None and os.getpid() == self._writer

    def _write(self) -> None:
        path = self._path
        if path is None:  # another thread has ended it, or found that it cannot be written
            return
        try:
            write_text(path, json.dumps(self.document(), indent=1) + "\n")
        except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
            self._path = None
            warn(f"topotune: {DRIFT_VARIABLE}={path} is not written: {error}")

    def write_aside(self) -> None:
        """`write` in another thread, for callers whom other ranks wait for."""
        if self._is_wanted():
            # Where no thread can be started any more the process ends, and writes then.
            with suppress(RuntimeError):
                threading.Thread(target=self.write, name="drift record", daemon=True).start()


def watching() -> bool:
    """Whether groups that are made now watch their calls."""
    return os.environ.get(DRIFT_VARIABLE) != OFF


def warn(text: str) -> None:
    """Warn from any thread; it must fail no collective, on this rank alone.

    The job may have made warnings errors, or show them in a way of its own that fails.
    """
    try:
        warnings.warn(text, stacklevel=3)
    except Exception:
        _LOG.warning(text)


RECORD: Final = DriftRecord()
atexit.register(RECORD.end)

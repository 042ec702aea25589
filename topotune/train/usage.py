"""Counting the calls of each group, and the one line at exit that says whether a plan was used."""

import atexit
import os
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from topotune.files import write_whole
from topotune.plan.algorithms import DEFAULT

REPORT_VARIABLE: Final = "TOPOTUNE_REPORT"


@dataclass(kw_only=True, slots=True, eq=False)
class GroupUsage:
    """The calls of one group, or of all groups of one kind that have ended.

    Attributes:
        kind: in words: ``world of 4 ranks``, ``groups of 2 ranks``, ``DDP hook on 4 ranks``.
        planned: whether a plan's table was used.
        calls: number of calls by (collective, algorithm); the wrapped backend's own algorithm is ``default``.
        lock: held to change ``calls``, and to read them all.
        straight: number of calls by collective that went straight to the wrapped backend, not in ``calls``.
            Only callers count here, one at a time as a process group demands anyway, so it needs no lock.
    """

    kind: str
    planned: bool = False
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    straight: Counter[str] = field(default_factory=Counter)

    def count(self, collective: str, algorithm: str) -> None:
        """One call more; the caller's thread and the queue's both count."""
        with self.lock:
            self.calls[collective, algorithm] += 1

    def total(self) -> Counter[tuple[str, str]]:
        """All calls by (collective, algorithm)."""
        with self.lock:
            queued = self.calls.copy()
        return queued + Counter({(name, DEFAULT): count for name, count in self.straight.items()})


class UsageReport:
    """What all groups of this process did. One object per process, made with the first group."""

    def __init__(self) -> None:
        self._live: list[GroupUsage] = []
        self._ended: dict[tuple[str, bool], GroupUsage] = {}
        self._outcome = "no plan was given"
        self._speaker: int | None = None

    def speak_for_the_job(self) -> None:
        """This process is rank 0 of the world: it prints the line at exit."""
        self._speaker = os.getpid()

    def stay_silent(self) -> None:
        """This process is no training job: no line at exit."""
        self._speaker = None

    def set_outcome(self, outcome: str) -> None:
        """What became of the plan: ``plan /path used``, or why none was."""
        self._outcome = outcome

    def open(self, usage: GroupUsage) -> None:
        """Count a group in."""
        self._live.append(usage)

    def close(self, usage: GroupUsage) -> None:
        """A group has ended; its calls are added to those of its kind, so that many groups cost no memory."""
        if usage not in self._live:
            return
        self._live.remove(usage)
        key = (usage.kind, usage.planned)
        self._ended.setdefault(key, GroupUsage(kind=usage.kind, planned=usage.planned)).calls.update(
            usage.total()
        )

    def calls(self) -> Counter[tuple[str, str]]:
        """The calls of all groups together, by (collective, algorithm)."""
        return sum((usage.total() for usage in (*self._ended.values(), *self._live)), Counter())

    def line(self) -> str:
        """The line, without its end."""
        merged: dict[str, Counter[tuple[str, str]]] = {}
        for usage in (*self._ended.values(), *self._live):
            merged.setdefault(usage.kind, Counter()).update(usage.total())
        groups = "; ".join(f"{kind}: {_calls_text(calls)}" for kind, calls in merged.items())
        return f"topotune: {self._outcome}; {groups}" if groups else f"topotune: {self._outcome}"

    def say(self) -> None:
        """At exit: write the line to TOPOTUNE_REPORT, or to stderr."""
        if os.getpid() != self._speaker:  # another rank, or a process forked from rank 0
            return
        text = self.line()
        path = os.environ.get(REPORT_VARIABLE)
        if path:
            try:
                write_text(path, f"{text}\n")
                return
            except OSError as error:  # an OutputFileError is one
                text = f"{text} ({REPORT_VARIABLE}: {error})"
        sys.stderr.write(f"{text}\n")


def write_text(path: str, text: str) -> None:
    """Write a file whole, over an older one, or into what is no regular file.

    Raises:
        OSError: it cannot be written.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a terminal, a pipe, /dev/null
        # A pipe that nobody reads is an error; it must not keep the job from ending.
        with open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "w") as device:
            device.write(text)
    else:
        write_whole(path, text.encode(), force=True)


def _calls_text(calls: Counter[tuple[str, str]]) -> str:
    if not calls:
        return "no calls"
    by_collective: dict[str, list[str]] = {}
    for (collective, algorithm), count in sorted(calls.items()):
        by_collective.setdefault(collective, []).append(f"{count} {algorithm}")
    return ", ".join(f"{name} {' + '.join(counts)}" for name, counts in by_collective.items())


REPORT: Final = UsageReport()
atexit.register(REPORT.say)

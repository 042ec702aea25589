"""What a user can meet, as one small tree.

    TopotuneError               one clear first line, an optional hint, an exit code
    ├── UsageError              wrong use: flags, values, launcher environments (exit 2)
    │   ├── InputFileError      a file from outside that cannot be taken: file, place, value (exit 2)
    │   │   └── PlanError       … and it should have been a plan
    │   └── OutputFileError     a place where nothing can or may be written (exit 2)
    └── RunError                the work itself failed (exit 1)
        ├── RankFailedError     a rank died: which, how, and what it printed last
        └── WrongResultError    a schedule or candidate that does not compute an allreduce

A programmer's mistake is an ``assert``; it is not part of this tree. Errors can be pickled, and made again
from their ``arguments``, so that one which a rank raises reaches the user from another process as it was.
"""

import difflib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any


class TopotuneError(Exception):
    """Root of everything topotune raises on purpose.

    Args:
        message: one line: what, where, and the values (both sides of a conflict).
        hint: what to try, or None.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def arguments(self) -> "tuple[list[Any], dict[str, Any]]":
        """What the error was made of: positional and keyword arguments, plain values."""
        return [self.message], {"hint": self.hint}

    def __reduce__(self) -> "tuple[partial[TopotuneError], tuple[Any, ...]]":
        positional, keywords = self.arguments
        return partial(type(self), **keywords), tuple(positional)


class UsageError(TopotuneError, ValueError):
    """Wrong use or bad input."""

    exit_code = 2


class InputFileError(UsageError):
    """A file from outside that cannot be taken.

    Args:
        path: the file.
        problem: what is wrong, with the values.
        place: where inside the file (``groups[0].allreduce[3].min_bytes``, ``line 7``), or None.
        hint: what to do.
    """

    def __init__(
        self, path: str | Path, problem: str, *, place: str | None = None, hint: str | None = None
    ) -> None:
        where = f"{path}: {place}: " if place else f"{path}: "
        super().__init__(where + problem, hint=hint)
        self.path = str(path)
        self.place = place
        self.problem = problem

    @property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """What the error was made of."""
        return [self.path, self.problem], {"place": self.place, "hint": self.hint}


class PlanError(InputFileError):
    """A file that should have been a plan and cannot be used as one; the hint says how to make one."""

    def __init__(
        self, path: str | Path, problem: str, *, place: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(path, problem, place=place, hint=hint or "topotune tune -o plan.json makes a plan")


class OutputFileError(UsageError, OSError):
    """A place where nothing can or may be written."""


class RunError(TopotuneError, RuntimeError):
    """The work itself failed."""


class RankFailedError(RunError):
    """A rank died.

    Args:
        rank: which one.
        cause: how it ended (``killed by SIGKILL``, ``exit code 3``).
        last_output: the last lines it printed, or "".
    """

    def __init__(self, rank: int, cause: str, last_output: str = "") -> None:
        tail = last_output.strip().splitlines()
        said = f"; it printed last: {tail[-1].strip()[:300]}" if tail else ""
        super().__init__(f"rank {rank} failed: {cause}{said}")
        self.rank = rank
        self.cause = cause
        self.last_output = last_output

    @property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """What the error was made of."""
        return [self.rank, self.cause, self.last_output], {}


class WrongResultError(RunError):
    """A schedule or candidate that does not compute an allreduce."""


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """For a hint: the names that are most like one that does not exist; None where none is."""
    near = difflib.get_close_matches(name[:100], list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else None


def error_to_json(error: TopotuneError) -> dict[str, Any]:
    """An error for another process, which `error_from_json` makes again there."""
    cls = next(cls for cls in type(error).__mro__ if cls.__module__ == __name__)
    positional, keywords = error.arguments
    return {"class": cls.__name__, "positional": positional, "keywords": keywords}


def error_from_json(document: dict[str, Any]) -> TopotuneError:
    """The error that ``error_to_json`` was given."""
    cls: type[TopotuneError] = globals()[document["class"]]
    assert issubclass(cls, TopotuneError), document["class"]
    return cls(*document["positional"], **document["keywords"])

"""``-v``: what topotune does, a line each on standard error.

The rooms say it to the logger ``topotune``; without ``-v`` nobody listens. Ranks that topotune starts are
told by a variable of their environment.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

VARIABLE: Final = "TOPOTUNE_VERBOSE"
"""Set to 1 for ranks that are started."""

_LOGGER: Final = logging.getLogger("topotune")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


class _Narration(logging.Handler):
    """Writes what is done; where lines are drawn in place, above them."""

    def __init__(self) -> None:
        super().__init__()
        self.write: Callable[[str], None] = _to_stderr

    def emit(self, record: logging.LogRecord) -> None:
        self.write(f"- {record.getMessage()}")


_NARRATION: Final = _Narration()


def narrate() -> None:
    """Say from now on what is done."""
    if not is_narrated():
        _LOGGER.addHandler(_NARRATION)
        _LOGGER.setLevel(logging.INFO)


def narrate_if_told() -> None:
    """In a rank: the same, if the process that started it does."""
    if os.environ.get(VARIABLE) == "1":
        narrate()


def is_narrated() -> bool:
    """Whether it is said what is done."""
    return _NARRATION in _LOGGER.handlers


@contextmanager
def told_to_ranks() -> Iterator[None]:
    """Have the ranks that are started inside say what they do, too, if this process does."""
    former = os.environ.get(VARIABLE)
    if is_narrated():
        os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        if former is not None:
            os.environ[VARIABLE] = former
        else:
            os.environ.pop(VARIABLE, None)


@contextmanager
def notes_go_to(write: Callable[[str], None]) -> Iterator[None]:
    """Have lines written in another way inside."""
    former, _NARRATION.write = _NARRATION.write, write
    try:
        yield
    finally:
        _NARRATION.write = former


def say(line: str) -> None:
    """Say a line on standard error, above what is drawn in place there."""
    _NARRATION.write(line)

"""Signals that are noted while ranks run, instead of interrupting the statements that start and end them."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class NotedSignals:
    """Signals that came while the ranks ran, in their order."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def note(self, number: int, frame: object) -> None:
        """Handle a signal."""
        self.signals.append(number)

    def act(self) -> None:
        """Do what the first of them asks for, if one came.

        Raises:
            KeyboardInterrupt: SIGINT.
            SystemExit: another; the code is 128 + its number.
        """
        if self.signals:
            act_on(self.signals[0])


def act_on(number: int) -> None:
    """End as a signal asks for.

    Raises:
        KeyboardInterrupt: SIGINT.
        SystemExit: another; the code is 128 + its number.
    """
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


@contextmanager
def noted_signals() -> Iterator[NotedSignals]:
    """Note signals instead of being interrupted by them; those that are ignored (nohup) stay so.

    Only the main thread can do this; elsewhere signals do what they did before.
    """
    noted = NotedSignals()
    former = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):
                former[number] = signal.signal(number, noted.note)
    try:
        yield noted
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)

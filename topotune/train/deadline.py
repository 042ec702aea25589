"""Deadlines for native calls that have none: when one passes, something is done that makes the call return.

The waits of a gloo connection last as long as it was told when it was made, whatever ``set_timeout`` says
later, and a schedule is many waits. So private connections are made with a long timeout, and the group's own,
as it is at each call, is kept here. Setting and clearing a deadline costs microseconds and wakes nobody: one
thread in the process looks four times a second while the job runs.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LOOK_EVERY_S: Final = 0.25

_LOG: Final = logging.getLogger(__name__)


class Expiry:
    """Whether the deadline has passed."""

    passed = False


class Deadlines:
    """All deadlines of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: dict[Expiry, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float, expire: Callable[[], None]) -> Iterator[Expiry]:
        """Call ``expire``, in another thread, if the block has not ended by then; up to 0.25 s late."""
        expiry = Expiry()
        with self._lock:
            self._set[expiry] = (time.monotonic() + seconds, expire)
            if self._thread is None or not self._thread.is_alive():  # it does not live on in a forked child
                self._thread = threading.Thread(target=self._look, name="deadlines", daemon=True)
                self._thread.start()
        try:
            yield expiry
        finally:
            with self._lock:
                self._set.pop(expiry, None)

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            now = time.monotonic()
            with self._lock:
                due = [
                    (expiry, expire) for expiry, (deadline, expire) in self._set.items() if deadline <= now
                ]
                for expiry, _ in due:
                    expiry.passed = True
                    del self._set[expiry]
            for _, expire in due:
                try:
                    expire()
                except Exception:  # the other deadlines must be kept all the same
                    _LOG.exception("ending a call whose deadline has passed failed")


DEADLINES: Final = Deadlines()

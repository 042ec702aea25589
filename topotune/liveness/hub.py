"""What the hub of a watch knows of the ranks that it watches, and when it decides that some are lost."""

import time
from typing import Final

from topotune.liveness.connection import Line
from topotune.liveness.loss import How, Loss

_SETTLE_S: Final = 0.6
"""From the first lost rank to the verdict: launchers poll for ended ranks ten times a second."""


class Hub:
    """What rank 0 knows of the others; used by its thread alone.

    Attributes:
        secret: what a rank must say.
        come: ranks that have come.
        left: ranks that have said that they leave.
        strangers: connections on which no rank has introduced itself yet, oldest first.
    """

    def __init__(self, secret: str, host: str) -> None:
        self.secret = secret
        self.host = host
        self.come: set[int] = set()
        self.left: set[int] = set()
        self.strangers: list[Line] = []
        self._lost: dict[int, tuple[str, How, str]] = {}
        self._decide_at_s = 0.0

    def lose(self, rank: int, host: str, how: How, why: str) -> None:
        """A rank is gone; the first one counts, and what follows at once goes with it."""
        if not self._lost:
            self._decide_at_s = time.monotonic() + _SETTLE_S
        self._lost.setdefault(rank, (host, how, why))

    def wait_s(self, until_s: float | None) -> float | None:
        """How long to wait for more: for good while all is well and all are here."""
        ends = [end for end in (until_s, self._decide_at_s if self._lost else None) if end is not None]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def verdict(self, *, at_once: bool = False) -> Loss | None:
        """The loss, once others had time to show that they went too; or with what is known now."""
        if not self._lost or (not at_once and time.monotonic() < self._decide_at_s):
            return None
        # A launcher ends ranks because of another's death; whichever is seen first.
        causes = [rank for rank, (_, how, _) in self._lost.items() if how != "terminated"]
        first = (causes or list(self._lost))[0]
        host, how, why = self._lost[first]
        others = tuple((rank, known[0]) for rank, known in self._lost.items() if rank != first)
        return Loss(rank=first, host=host, how=how, why=why, others=others)

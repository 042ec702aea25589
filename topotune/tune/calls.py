"""Calls of candidates that may not end: made one after the other, and given up on together."""

import time
from collections.abc import Callable

from topotune.execute.communicator import cause_in_words
from topotune.train.process_group import ProcessGroupTopotune
from topotune.tune.trial import DEFAULTS, Candidate


class Calls:
    """The calls of one command on this rank, in their order, which is the same on all ranks.

    Args:
        planned: the group that candidates run on.

    Attributes:
        arms: of all calls so far.
        why: why the first that failed did so; "" while none has.
    """

    def __init__(self, planned: ProcessGroupTopotune) -> None:
        self.arms: list[Candidate] = []
        self.why = ""
        self._planned = planned
        self._failed_at = 0
        self._passed_s = 0.0

    @property
    def outcome(self) -> tuple[float, float]:
        """Which call failed first (they count from 1; 0 for none), and how long it had taken."""
        return float(self._failed_at), self._passed_s

    def make(self, arm: Candidate, limit_s: float | None, call: Callable[[], None]) -> None:
        """Make a call; that of a candidate with a limit may fail, and then no more of them are made."""
        self.arms.append(arm)
        if limit_s is None or arm in DEFAULTS:
            call()
            return
        if self._failed_at:
            return
        began_s = time.perf_counter()
        try:
            call()
        except RuntimeError as error:
            self._passed_s = time.perf_counter() - began_s
            self._failed_at = len(self.arms)
            cut_off = self._passed_s >= limit_s
            self.why = f"a call had not ended after {limit_s:.3g} s" if cut_off else cause_in_words(error)
            self._planned.stop_planned()

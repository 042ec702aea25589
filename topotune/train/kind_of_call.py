"""What one rank knows of one kind of call: what it took at first, whether it now takes longer. No torch."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from topotune.plan.model import Collective
from topotune.train.detector import Detector

Kind = tuple[Collective, int, Hashable]
"""(collective, bytes of the message by which the plan chooses, dtype)."""

_FIRST_PAUSE: Final = 512
"""Calls of a kind from its first trial until its next one; twice as many after each."""

_SLOW_START: Final = 2.0
"""Times the plan's figure for the default: slower calls make a suspicion at the job's start. Less may be the
compute beside them, and a trial rounds floats otherwise."""

_MAX_WINDOWS: Final = 512


@dataclass(kw_only=True, slots=True, eq=False)
class KindOfCall:
    """What one rank knows of one kind of call.

    Attributes:
        number: in the group, in the order of first calls; the same on all ranks.
        kind: the collective, bytes and type.
        name: of the plan's algorithm.
        expected_ns: of a call by the plan; the same on all ranks.
        plan_s: what the plan was measured to take; None where it has no evidence.
        default_s: likewise the default.
        detector: of a lasting change.
        windows: (seconds since the group was made, what counts of the window in seconds), thinned out evenly.
        num_calls: by the plan, so far.
        num_trials: so far.
        starts_slow: whether it was slower than the plan's figure for the default when it was learnt.
        fallen: whether the default has taken its place.
    """

    number: int
    kind: Kind
    name: str
    expected_ns: int
    plan_s: float | None
    default_s: float | None
    detector: Detector
    windows: list[tuple[float, float]] = field(default_factory=list)
    num_calls: int = 0
    num_trials: int = 0
    starts_slow: bool = False
    fallen: bool = False
    _first_usual_s: float | None = None
    _quiet_until: int = 0
    _num_windows: int = 0
    _stride: int = 1

    @property
    def suspect(self) -> bool:
        """Whether this rank wants a trial."""
        return (self.detector.slower or self.starts_slow) and self.num_calls >= self._quiet_until

    def observe(self, time_s: float, ended_s: float, began_s: float) -> None:
        """Take in a call of the plan.

        Args:
            time_s: what it took.
            ended_s: by the monotonic clock.
            began_s: when the group was made, by the same.
        """
        self.num_calls += 1
        counts_s = self.detector.observe(time_s, ended_s)
        if counts_s is None:
            return
        self._num_windows += 1
        if self._num_windows % self._stride == 0:
            self.windows.append((ended_s - began_s, counts_s))
            if len(self.windows) > _MAX_WINDOWS:
                self.windows = self.windows[1::2]
                self._stride *= 2
        usual_s = self.detector.usual_s
        if self._first_usual_s is None and usual_s is not None:
            self._first_usual_s = usual_s
            self.starts_slow = self.default_s is not None and usual_s > _SLOW_START * self.default_s

    def document(self) -> dict[str, Any]:
        """For the record."""
        collective, num_bytes, dtype = self.kind
        return {
            "collective": collective,
            "message_bytes": num_bytes,
            "dtype": str(dtype).removeprefix("torch."),
            "algorithm": self.name,
            "num_calls": self.num_calls,
            "plan_median_s": self.plan_s,
            "default_median_s": self.default_s,
            "first_usual_s": self._first_usual_s,
            "usual_s": self.detector.usual_s,
            "now_s": self.detector.now_s,
            "slower": self.detector.slower,
            "fallen": self.fallen,
            "windows": [list(window) for window in list(self.windows)],
        }

    def settle(self, *, has_fallen: bool) -> None:
        """A trial has ended: what is usual is learnt anew, and the next one waits."""
        self.num_trials += 1
        self._quiet_until = self.num_calls + _FIRST_PAUSE * 2 ** (self.num_trials - 1)
        self.starts_slow = False
        self.fallen = has_fallen
        self.detector.forget()

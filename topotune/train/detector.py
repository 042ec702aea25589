"""Whether the time of one kind of call has changed for good: a cumulative sum over windows. No torch.

Theory of operation. The time of a collective on one rank is what the exchange takes and what the rank waits
for others that come late. Waiting is no drift, and it only ever adds: so of each window of calls a low order
statistic counts, which noise with a heavy upper tail and a peer that is late now and then leave alone. Its
logarithm makes a change a shift, whatever the size of the message.

The first windows teach what is usual: their median b and their spread s, the larger of what the median
absolute deviation and the upper decile say. From then on a one-sided cumulative sum (Page 1954, "Continuous
inspection schemes") adds up how far a window x lies above b, less a slack k, and never falls below 0:

    S <- max(0, S + min(x - b, c) - k),        k = max(K, s),    h = max(H, 8 s),    c = k + max(C, h / 4)

A call is slower for good when S passes h. The slack holds small shifts back, the clip c makes a single window
count for no more than a quarter of what is needed, however slow it was: duration. And the windows of the run,
clipped, the last 16 of them, must lie above b by LEAST_SHIFT on average, and the run must have lasted
`Rules.least_s` seconds: magnitude. The mirror image finds calls that have become faster; what is usual is
then learnt anew, in silence.

Rates (`python benchmarks/drift_rates.py`): see docs/reference/backend.md.
"""

import math
from collections import deque
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

LEAST_SHIFT: Final = math.log(1.22)
"""Of the logarithm of times: a lasting change by less is none."""

_SLACK: Final = 0.12
_THRESHOLD: Final = 1.0
_CLIP: Final = 0.3
_LEAST_SPREAD: Final = 0.02
_SPREADS: Final = 8.0
_NORMAL_MAD: Final = 1.4826
_NORMAL_UPPER_DECILE: Final = 1.2816
_LEAST_TIME_S: Final = 1e-9
_RECENT: Final = 16
"""Windows of a run that say how much slower calls are now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """How long and how much.

    Attributes:
        skip: first calls, which make connections and touch memory, that do not count.
        window: calls of a window.
        order: which of them counts, from the fastest, 0 first.
        learn: windows that teach what is usual, at least 3.
        least_s: what a change must have lasted.
    """

    skip: int = 8
    window: int = 16
    order: int = 2
    learn: int = 16
    least_s: float = 10.0


class Detector:
    """The times of one kind of call on one rank.

    Attributes:
        usual_s: what such a call took at first; None while that is being learnt.
        slower: whether calls take longer than that, for good, as it looks now.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._to_skip = rules.skip
        self._window: list[float] = []
        self._windows: list[float] = []
        self._learn()

    def _learn(self) -> None:
        self.usual_s: float | None = None
        self.slower = False
        self._windows = []
        self._usual = self._slack = self._threshold = self._clip = 0.0
        self._up, self._down = _Run(), _Run()

    def forget(self) -> None:
        """What is usual is learnt anew, from the next call on."""
        self._window = []
        self._learn()

    @property
    def now_s(self) -> float | None:
        """What calls take in the last windows of the run of slower ones; None where there is no such run."""
        return math.exp(median(self._up.recent)) if self._up.num else None

    def observe(self, time_s: float, ended_s: float) -> float | None:
        """Take in one call.

        Args:
            time_s: what it took, above 0.
            ended_s: when it ended, by a clock that does not jump.

        Returns:
            What counts of the window that this call completes, in seconds; None within a window.
        """
        if self._to_skip:
            self._to_skip -= 1
            return None
        self._window.append(time_s)
        if len(self._window) < self._rules.window:
            return None
        counts_s = sorted(self._window)[self._rules.order]
        self._window = []
        self._take(math.log(max(counts_s, _LEAST_TIME_S)), ended_s)
        return counts_s

    def _take(self, logarithm: float, ended_s: float) -> None:
        if self.usual_s is None:
            self._windows.append(logarithm)
            if len(self._windows) == self._rules.learn:
                self._set_usual()
            return
        above = logarithm - self._usual
        for run, shift in ((self._up, above), (self._down, -above)):
            run.add(logarithm, min(shift, self._clip), self._slack, self._threshold, ended_s)
        if self._down.lasts(self._threshold, self._rules.least_s, ended_s):
            self._learn()
        elif self._up.num == 0:
            self.slower = False
        elif self._up.lasts(self._threshold, self._rules.least_s, ended_s):
            self.slower = True

    def _set_usual(self) -> None:
        ordered = sorted(self._windows)
        self._usual = median(ordered)
        deviation = median(abs(one - self._usual) for one in ordered)
        upper = ordered[(9 * len(ordered)) // 10] - self._usual
        spread = max(_LEAST_SPREAD, _NORMAL_MAD * deviation, upper / _NORMAL_UPPER_DECILE)
        self._slack = max(_SLACK, spread)
        self._threshold = max(_THRESHOLD, _SPREADS * spread)
        self._clip = self._slack + max(_CLIP, self._threshold / 4)
        self.usual_s = math.exp(self._usual)
        self._windows = []


class _Run:
    """A cumulative sum and the windows since it last was 0."""

    def __init__(self) -> None:
        self.num = 0
        self.recent: deque[float] = deque(maxlen=_RECENT)
        self._shifts: deque[float] = deque(maxlen=_RECENT)
        self._sum = 0.0
        self._began_s = 0.0

    def add(self, logarithm: float, shift: float, slack: float, threshold: float, ended_s: float) -> None:
        # Held at twice the threshold, so that a change that goes away is seen to go.
        self._sum = min(2 * threshold, self._sum + shift - slack)
        if self._sum <= 0.0:
            self._sum, self.num = 0.0, 0
            self.recent.clear()
            self._shifts.clear()
            return
        if self.num == 0:
            self._began_s = ended_s
        self.num += 1
        self.recent.append(logarithm)
        self._shifts.append(shift)

    def lasts(self, threshold: float, least_s: float, ended_s: float) -> bool:
        return (
            self._sum > threshold and fmean(self._shifts) > LEAST_SHIFT and ended_s - self._began_s >= least_s
        )

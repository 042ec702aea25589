"""What a tuning run says about itself while it works."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Phase = Literal["links", "pilot", "search", "conditions", "confirm", "null trials", "step", "done"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BestSoFar:
    """The fastest candidate at one size: not yet confirmed, so its ratio flatters it.

    Attributes:
        algorithm: its label (``ring channels=2``), or ``default``.
        ratio: default / candidate.
    """

    algorithm: str
    ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """One report.

    Attributes:
        phase: what is being done.
        done: share of the budget that has passed, within [0, 1].
        seconds_left: until the budget ends; less may be needed.
        best: size → best so far.
    """

    phase: Phase
    done: float
    seconds_left: float
    best: Mapping[int, BestSoFar] = field(default_factory=dict)


OnProgress = Callable[[Progress], None]

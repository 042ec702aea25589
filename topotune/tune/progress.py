"""What a tuning run says about itself while it works."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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


def share_of(report: OnProgress, number: int, count: int) -> OnProgress:
    """For one of several parts of a run that have equal shares of it, one after the other.

    Args:
        report: of the whole run.
        number: of the part, from 0.
        count: of the parts.
    """
    if count == 1:
        return report

    def on_progress(now: Progress) -> None:
        if now.phase == "done" and number < count - 1:
            return
        budget_s = now.seconds_left / (1 - now.done) if now.done < 1 else 0.0
        later_s = (count - 1 - number) * budget_s
        report(replace(now, done=(number + now.done) / count, seconds_left=now.seconds_left + later_s))

    return on_progress

"""What a tuning run says about itself while it works."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Phase = Literal[
    "links", "pilot", "search", "conditions", "confirm", "null trials", "dispatch", "step", "compare", "done"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class BestSoFar:
    """The fastest candidate at one size: not yet confirmed, so its ratio flatters it.

    Attributes:
        algorithm: its label (``ring channels=2``), or ``default``.
        ratio: default / candidate.
        default_s: what the default takes there, seconds.
        optimum_s: the provably shortest time there, seconds; None where there is no bound.
    """

    algorithm: str
    ratio: float
    default_s: float
    optimum_s: float | None = None

    @property
    def time_s(self) -> float:
        """What the candidate takes, seconds."""
        return self.default_s / self.ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Measuring:
    """What is timed at the moment.

    Attributes:
        message_bytes: buffer on each rank.
        arms: labels of what is timed in turn; without the default, unless it is timed alone.
    """

    message_bytes: int
    arms: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """One report.

    Attributes:
        phase: what is being done.
        done: share of the budget that has passed, within [0, 1].
        seconds_left: until the budget ends; less may be needed.
        best: size → best so far.
        measuring: what is timed; None where that is not calls of one size.
    """

    phase: Phase
    done: float
    seconds_left: float
    best: Mapping[int, BestSoFar] = field(default_factory=dict)
    measuring: Measuring | None = None


OnProgress = Callable[[Progress], None]


def share_of_budget(
    phase: Phase, passed_s: float, budget_s: float, measuring: Measuring | None = None
) -> Progress:
    """The report of a run of which so many seconds of the budget have passed."""
    return Progress(
        phase=phase,
        done=min(1.0, passed_s / budget_s),
        seconds_left=max(0.0, budget_s - passed_s),
        measuring=measuring,
    )


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

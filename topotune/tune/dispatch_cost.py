"""What the backend's own part in a call costs where the plan keeps the default.

Theory of operation. Where the plan's row is the default, a job's call is the wrapped library's own, and what
``topotune`` adds is its dispatch: some microseconds, whatever the size. Beside a long call they are nothing;
beside the shortest they are more than the margin, and no algorithm of the plan makes up for them there. So
the default is timed through the backend against the default called plainly, at sizes of default rows whose
calls are short. Both arms send over the same connections: only dispatch differs, luck of connections cannot,
and none have to be made. A size loses where the interval of the paired ratios, corrected for the number of
sizes, lies below `SLOWER`, as ``compare`` asks of one look.

Sizes are visited several times in turn, so that a moment in which the machine was busy is not all that is
seen of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from topotune.plan.describe import SLOWER, worth_from_in_words
from topotune.plan.lookup import find_row
from topotune.plan.model import Row
from topotune.tune.judge import CONFIDENCE
from topotune.tune.points import ELEMENT_BYTES
from topotune.tune.sampling import Sampling
from topotune.tune.statistics import Comparison, Samples, corrected, minimum_rounds, screen_arms
from topotune.tune.trial import DEFAULT, DISPATCHED, WRAPPED
from topotune.units import format_bytes, format_seconds

COSTS_MORE: Final = "the backend's dispatch costs more than 2 %"
"""So the warning of a plan begins."""

_LONGEST_S: Final = 5e-3
"""Calls of the default that take longer are not timed: 2 % of them are 100 µs, more than three times what
dispatch may cost (30 µs, benchmarks/dispatch.py)."""

_TURNS: Final = 4
_MOST_ROUNDS: Final = 400
"""At each size: where a call's time scatters by a fifth, they tell 4 % from 2 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchCost:
    """What dispatch costs at one size.

    Attributes:
        message_bytes: buffer on each rank.
        comparison: the default called plainly over the default through the backend.
    """

    message_bytes: int
    comparison: Comparison

    @property
    def loses(self) -> bool:
        """Whether the backend is slower there by more than 2 %, beyond doubt."""
        return self.comparison.high < SLOWER

    def in_words(self) -> str:
        """``6.3 % [4.9, 7.8] at 1 KiB (62 µs)``; the time is that of the default called plainly."""
        one = self.comparison
        cost, low, high = (100 * (1 / ratio - 1) for ratio in (one.ratio, one.high, one.low))
        size, default_s = format_bytes(self.message_bytes), format_seconds(one.default_median_s)
        return f"{cost:.1f} % [{low:.1f}, {high:.1f}] at {size} ({default_s})"


def sizes_of_default_rows(rows: Sequence[Row], default_s: Mapping[int, float]) -> dict[int, float]:
    """Where dispatch may count: sizes of default rows whose calls are short, ascending.

    Args:
        rows: the table.
        default_s: what the default takes, by size.

    Returns:
        of each, what the default takes; with the shortest message, as it takes at the smallest size.
    """
    if not default_s:
        return {}
    known = {ELEMENT_BYTES: default_s[min(default_s)], **default_s}
    return {
        size: time_s
        for size, time_s in sorted(known.items())
        if time_s <= _LONGEST_S and find_row(rows, size).algorithm == DEFAULT.algorithm
    }


def time_dispatch(
    sampling: Sampling, default_s: Mapping[int, float], *, deadline_s: float
) -> tuple[DispatchCost, ...]:
    """Time the default through the backend against the default called plainly.

    Args:
        sampling: where samples come from.
        default_s: of each size, ascending, what the default takes.
        deadline_s: on the clock of ``now_s``. Sizes for which there is no time are left out, the largest
            first: the smallest lose most.

    Returns:
        of each size that was timed often enough to tell, ascending.
    """
    left_s = deadline_s - sampling.now_s()
    costs_s = {size: 2 * sampling.stretch(time_s) * time_s for size, time_s in default_s.items()}
    sizes = list(default_s)
    fewest = minimum_rounds(corrected(CONFIDENCE, max(1, len(sizes)))) + _TURNS
    while sizes and fewest * sum(costs_s[size] for size in sizes) > left_s:
        sizes.pop()
    if not sizes:
        return ()
    affordable = int(left_s / sum(costs_s[size] for size in sizes))
    turn_rounds = -(-max(fewest, min(_MOST_ROUNDS, affordable)) // _TURNS)
    taken: dict[int, list[Samples]] = {size: [] for size in sizes}
    for turn in range(_TURNS):
        for size in sizes:
            if turn and sampling.now_s() >= deadline_s:
                continue
            taken[size].append(
                sampling.rounds(
                    "dispatch",
                    size,
                    (WRAPPED, DISPATCHED),
                    turn_rounds,
                    first_guess_s=default_s[size],
                    until_s=deadline_s,
                )
            )
    confidence = corrected(CONFIDENCE, len(sizes))
    found = []
    for size, parts in taken.items():
        times_s = np.concatenate(parts)
        if len(times_s) < minimum_rounds(confidence):
            continue
        comparison = screen_arms(times_s[:, 0], times_s[:, 1], confidence=confidence)
        found.append(DispatchCost(message_bytes=size, comparison=comparison))
    return tuple(found)


def loss_in_words(
    costs: Sequence[DispatchCost], rows: Sequence[Row], sizes: Sequence[int], asked: Mapping[int, float]
) -> str | None:
    """Where dispatch loses, and from which size on the backend is worth using; None where it loses nowhere.

    Args:
        costs: what was timed, ascending.
        rows: the table.
        sizes: of which the default's time is known.
        asked: the sizes at which dispatch may count: one that was not timed, or seems to lose if not beyond
            doubt, is not called worth it.
    """
    lost = [cost for cost in costs if cost.loses]
    if not lost:
        return None
    good = {cost.message_bytes for cost in costs if cost.comparison.ratio >= SLOWER}
    doubtful = asked.keys() - good
    departing = [row.min_bytes for row in rows if row.algorithm != DEFAULT.algorithm]
    worth = worth_from_in_words(
        [cost.message_bytes for cost in lost], [*(size for size in sizes if size not in doubtful), *departing]
    )
    return (
        f"{COSTS_MORE} where the plan keeps the default: "
        f"{', '.join(cost.in_words() for cost in lost)}; {worth}"
    )


def note_in_words(costs: Sequence[DispatchCost], asked: Mapping[int, float]) -> str | None:
    """What was timed of dispatch, for the certificate; None where there was nothing to time.

    Args:
        costs: what was timed.
        asked: the sizes at which dispatch may count.
    """
    if not asked:
        return None
    timed = [cost.message_bytes for cost in costs]
    said = []
    if timed:
        num_lost = sum(cost.loses for cost in costs)
        listed = ", ".join(map(format_bytes, timed))
        said.append(
            f"dispatch was timed at {listed}, and costs more than 2 % at {num_lost or 'none'} of them"
        )
    if missing := [format_bytes(size) for size in asked if size not in timed]:
        said.append(f"no time was left to time dispatch at {', '.join(missing)}")
    return ", ".join(said)

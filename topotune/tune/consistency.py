"""Rules that measured times must keep, whatever the cluster: what breaks one is an error, or a free gain.

Theory of operation. Some things are known of a collective without any model of the cluster: a message takes
no longer than a larger one, which could be sent in its place; one of twice the size takes no longer than two
calls; none takes less than the provable optimum, nor less than one message between two nodes. Measured
medians that break such a rule, by more than their scatter, are worth a line: either something went wrong
while measuring, or there is that much to be had by padding or splitting messages. How much of it the plan
leaves is told with it: what is slow in the library alone is no gain to a job that runs another algorithm.

No such gain is ever taken unmeasured. What a rule promises is made of other calls' times, each taken alone:
on links that carry a burst faster than what follows, many small calls in a row take longer than each did.

Rules between tables stand in `topotune.tune.across_tables`.

Source: "Self-consistent MPI performance guidelines" (Traeff, Gropp, Thakur, TPDS 2010); used for tuning by
Hunold and Carpen-Amarie (PGMPITuneLib, 2018).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np

from topotune.tune.judge import Confirmation
from topotune.tune.search import Standing
from topotune.tune.statistics import Samples, relative_spread
from topotune.units import format_bytes, format_seconds

LIBRARY, PLAN = "the default", "the plan"
"""Arms: the library's own, and whatever the plan has at a size."""

_TOLERANCE: Final = 0.1
"""Medians may break a rule by this much, or by twice their standard errors, before it is told."""

_SHOWN: Final = 3

_LEAST_GAIN: Final = 0.01
"""A smaller one is none."""

_FEWEST_ROUNDS: Final = 6
"""Of a candidate in the search: with fewer, the best of many candidates is mostly the luckiest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """An arm at one size.

    Attributes:
        message_bytes: of a call.
        median_s: seconds, of all its calls.
        error: relative standard error of that.
        num_calls: one after the other.
    """

    message_bytes: int
    median_s: float
    error: float
    num_calls: int = 1

    @classmethod
    def of(cls, message_bytes: int, samples_s: Samples) -> "Timed":
        """From samples, at least one."""
        # 1.349 standard deviations are an interquartile range; a median scatters by sqrt(pi/2) of a mean.
        error = relative_spread(samples_s) / 1.349 * 1.2533 / len(samples_s) ** 0.5
        return cls(message_bytes=message_bytes, median_s=float(np.median(samples_s)), error=error)

    @property
    def in_words(self) -> str:
        """``1.2 ms at 64 KiB``."""
        return f"{format_seconds(self.median_s)} at {format_bytes(self.message_bytes)}"

    def times(self, num_calls: int) -> "Timed":
        """So many such calls, one after the other."""
        return replace(self, median_s=num_calls * self.median_s, num_calls=num_calls)

    def taking(self, time_s: float) -> "Timed":
        """The same in a time that is known."""
        return replace(self, median_s=time_s, error=0.0)


Times = Mapping[str, Mapping[int, Timed]]
"""Of one table: by what was timed, in words, and by size."""


@dataclass(kw_only=True)
class Broken:
    """Where one rule is broken.

    Attributes:
        places: of each, the share of the time now that could be gained, and a line with the figures.
    """

    places: list[tuple[float, str]] = field(default_factory=list)

    def add(self, line: str, *, now_s: float, promised_s: float) -> None:
        """One place: what is taken there now, and what the rule promises."""
        self.places.append((1 - promised_s / now_s, line))

    def in_words(self, what: str, how: str) -> list[str]:
        """One line, the largest gain first; none where nothing is broken.

        Args:
            what: is broken.
            how: the gain is to be had.
        """
        if not self.places:
            return []
        ranked = sorted(self.places, key=lambda place: -place[0])
        gain = ranked[0][0]
        left = f"a gain of up to {gain:.0%} {how}" if gain >= _LEAST_GAIN else "slow where the plan is faster"
        return [f"{what} (a measuring error, or {left}): {_some([line for _, line in ranked])}"]


def times_of(
    confirmations: Sequence[Confirmation], label: Callable[[Confirmation], str]
) -> dict[str, dict[int, Timed]]:
    """What confirmed or compared, by arm and size; where a size was confirmed twice, the last one.

    Args:
        confirmations: with their samples.
        label: what the other arm is, in words.
    """
    timed: dict[str, dict[int, Timed]] = {LIBRARY: {}}
    for one in confirmations:
        default_s, other_s = (np.concatenate(arms) for arms in zip(*one.blocks, strict=True))
        for name, samples_s in ((LIBRARY, default_s), (label(one), other_s)):
            timed.setdefault(name, {})[one.message_bytes] = Timed.of(one.message_bytes, samples_s)
    return timed


def times_of_search(standings: Mapping[int, Sequence[Standing]]) -> dict[str, dict[int, Timed]]:
    """What the search timed often enough to be held against anything, by candidate and size."""
    timed: dict[str, dict[int, Timed]] = {}
    for size, ranked in standings.items():
        for one in ranked:
            rounds = one.comparison.num_rounds
            if rounds >= _FEWEST_ROUNDS:
                # The scatter of a ratio within rounds: no less than that of the candidate's own calls.
                error = one.log_spread * 1.2533 / math.sqrt(rounds)
                timed.setdefault(one.candidate.label, {})[size] = Timed(
                    message_bytes=size, median_s=one.comparison.median_s, error=error
                )
    return timed


def violations(
    timed: Times,
    limit_s: Callable[[int], float] | None = None,
    *,
    latency_s: float | None = None,
    planned: Mapping[int, Timed] = MappingProxyType({}),
    searched: Times = MappingProxyType({}),
) -> list[str]:
    """What breaks a rule within one table, one line each.

    Args:
        timed: by what was timed.
        limit_s: the provable optimum's time at a size; None where there is none.
        latency_s: of one smallest message between two nodes, which each call has to wait for; None where
            that is not known.
        planned: what the plan runs, by size, where that was timed: a gain is what it leaves.
        searched: more times, of few rounds. What rests on these is told only where it promises more than the
            plan has: the search looks at many slow candidates.
    """
    padding, splitting = Broken(), Broken()
    below: list[str] = []
    instant: list[str] = []
    for name in dict.fromkeys((*timed, *searched)):
        fresh = timed.get(name, {})
        own = {**searched.get(name, {}), **fresh}
        for sizes in dict.fromkeys((*pairwise(sorted(fresh)), *pairwise(sorted(own)))):
            small, large = own[sizes[0]], own[sizes[1]]
            parts = small.times(-(-large.message_bytes // small.message_bytes))
            num_calls = f"{parts.num_calls} of which are as much"
            for one, promised, rule, line in (
                (small, large, padding, f"{name} takes {small.in_words} and {large.in_words}"),
                (large, parts, splitting, f"{name} takes {large.in_words} and {small.in_words}, {num_calls}"),
            ):
                best = min(one, planned.get(one.message_bytes, one), key=lambda each: each.median_s)
                if exceeds(one, promised) and (fresh.keys() >= set(sizes) or exceeds(best, promised)):
                    rule.add(line, now_s=best.median_s, promised_s=promised.median_s)
        for _, one in sorted(own.items()):
            optimum_s = 0.0 if limit_s is None else limit_s(one.message_bytes)
            if exceeds(one.taking(optimum_s), one):
                below.append(
                    f"{name} takes {one.in_words}, less than the optimum of {format_seconds(optimum_s)}"
                )
            if latency_s is not None and exceeds(one.taking(latency_s), one):
                instant.append(
                    f"{name} takes {one.in_words}, less than the {format_seconds(latency_s)} of one message"
                )
    found = [
        *padding.in_words("a larger message is faster", "by padding"),
        *splitting.in_words("one message is slower than its parts", "by splitting"),
    ]
    if below:
        what = "a time is below the provable optimum (the links were faster, or were measured as too slow)"
        found.append(f"{what}: {_some(below)}")
    if instant:
        what = "a time is below that of one message between nodes (a measuring error, here or of the links)"
        found.append(f"{what}: {_some(instant)}")
    return found


def exceeds(one: Timed, other: Timed) -> bool:
    """Whether a time is longer than another beyond doubt."""
    return one.median_s * (1 - 2 * one.error) > other.median_s * (1 + 2 * other.error) * (1 + _TOLERANCE)


def in_sequence(parts: Sequence[Timed]) -> Timed:
    """Calls one after the other; at the first one's size."""
    total_s = sum(one.median_s for one in parts)
    error_s = math.hypot(*(one.median_s * one.error for one in parts))
    return replace(parts[0], median_s=total_s, error=error_s / total_s)


def _some(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return "; ".join(items[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")

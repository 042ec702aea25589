"""Rules that measured times must keep, whatever the cluster: what breaks one is an error, or a free gain.

Theory of operation. Some things are known of an allreduce without any model of the cluster: a message takes
no longer than a larger one, which could be sent in its place; one of twice the size takes no longer than two
calls; none takes less than the provable optimum. Measured medians that break such a rule, by more than their
scatter, are worth a line: either something went wrong while measuring, or the library leaves that much to be
had by padding or splitting messages.

Source: "Self-consistent MPI performance guidelines" (Traeff, Gropp, Thakur, TPDS 2010); used for tuning by
Hunold and Carpen-Amarie (PGMPITuneLib, 2018).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from topotune.tune.statistics import Samples, relative_spread
from topotune.units import format_bytes, format_seconds

_TOLERANCE: Final = 0.1
"""Medians may break a rule by this much, or by twice their standard errors, before it is told."""

_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """An arm at one size: median in seconds, and its relative standard error."""

    message_bytes: int
    median_s: float
    error: float

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


def violations(
    timed: Mapping[str, Sequence[Timed]], limit_s: Callable[[int], float] | None = None
) -> list[str]:
    """What breaks a rule, one line each.

    Args:
        timed: by what was timed, in words; each at any sizes.
        limit_s: the provable optimum's time at a size; None where there is none.
    """
    lines: dict[str, list[str]] = {}
    for name, own in timed.items():
        ordered = sorted(own, key=lambda one: one.message_bytes)
        for small, large in pairwise(ordered):
            if _exceeds(small, large.median_s, large.error):
                line = f"{name} takes {small.in_words} and {large.in_words}"
                lines.setdefault("padding", []).append(line)
            num_calls = -(-large.message_bytes // small.message_bytes)
            if _exceeds(large, num_calls * small.median_s, small.error):
                line = f"{name} takes {large.in_words} and {small.in_words}, {num_calls} of which are as much"
                lines.setdefault("splitting", []).append(line)
        for one in ordered if limit_s is not None else ():
            assert limit_s is not None
            optimum_s = limit_s(one.message_bytes)
            at_limit = Timed(message_bytes=one.message_bytes, median_s=optimum_s, error=0.0)
            if _exceeds(at_limit, one.median_s, one.error):
                line = f"{name} takes {one.in_words}, less than the optimum of {format_seconds(optimum_s)}"
                lines.setdefault("limit", []).append(line)
    words = {
        "padding": "a larger message is faster (a measuring error, or a gain by padding)",
        "splitting": "one message is slower than its parts (a measuring error, or a gain by splitting)",
        "limit": "a time is below the provable optimum (the links were faster, or were measured as too slow)",
    }
    return [f"{words[rule]}: {_some(found)}" for rule, found in lines.items()]


def _exceeds(one: Timed, other_s: float, other_error: float) -> bool:
    """Whether a time is longer than another beyond doubt."""
    return one.median_s * (1 - 2 * one.error) > other_s * (1 + 2 * other_error) * (1 + _TOLERANCE)


def _some(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return "; ".join(items[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")

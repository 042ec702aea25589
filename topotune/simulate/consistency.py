"""Where predicted times contradict each other, which affine costs never let them do but fitted ones may.

Fitted costs are piecewise in the size of a message and may jump (a library that changes its protocol). A time
that falls with size, or that more than doubles with twice the bytes, is then no mistake of the simulation: it
says that messages of another size, or two of half the size, would do better, or that a fit is off.

Source: Träff, Gropp, Thakur, "Self-consistent MPI performance guidelines", 2010.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from topotune.units import format_bytes, format_seconds

TOLERANCE: Final = 0.02
"""Relative: less is within any fit's error."""


def contradictions(curves: Mapping[str, Sequence[float]], message_bytes: Sequence[int]) -> list[str]:
    """One line for each rule that is broken: where it is most, and by how many algorithms.

    Args:
        curves: name of an algorithm → seconds at each size.
        message_bytes: sizes, ascending.
    """
    falls: list[tuple[float, str]] = []
    doubles: list[tuple[float, str]] = []
    for name, times_s in curves.items():
        points = list(zip(message_bytes, times_s, strict=True))
        time_of = dict(points)
        fallen = [
            (_excess(before_s, after_s), f"{_at(before, before_s)} and {_at(after, after_s)}")
            for (before, before_s), (after, after_s) in pairwise(points)
        ]
        doubled = [
            (_excess(twice_s, 2 * time_s), f"{_at(size, time_s)} and {_at(2 * size, twice_s)}")
            for size, time_s in points
            if (twice_s := time_of.get(2 * size)) is not None
        ]
        for found, kind in ((fallen, falls), (doubled, doubles)):
            worst = max(found, default=(0.0, ""))
            if worst[0] > TOLERANCE:
                kind.append((worst[0], f"{name} takes {worst[1]}"))
    return [
        f"fitted costs {what}: {max(found)[1]}{_others(len(found) - 1)}"
        for what, found in (
            ("make a larger message faster", falls),
            ("make one message slower than two of half the size", doubles),
        )
        if found
    ]


def _at(size: int, time_s: float) -> str:
    return f"{format_seconds(time_s)} at {format_bytes(size)}"


def _others(count: int) -> str:
    return "" if count == 0 else f" ({count} more algorithm{'s' if count > 1 else ''})"


def _excess(value_s: float, most_s: float) -> float:
    return value_s / most_s - 1 if most_s > 0 else 0.0

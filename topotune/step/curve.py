"""The time of one allreduce by its size, from what a plan's rows were measured to take.

Straight lines between measured sizes; the smallest one's time below it, and beyond the largest the time grows
as between the last two, but never less than in proportion to the last rate. One line for all sizes would miss
by tens of percent at some.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from topotune.plan.lookup import find_row
from topotune.plan.model import DEFAULT_ALGORITHM, Row

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """T(m), measured.

    Attributes:
        sizes: bytes, ascending, at least one, above 0.
        times_s: at each of them, above 0.
    """

    sizes: tuple[int, ...]
    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        assert len(self.sizes) == len(self.times_s) >= 1
        assert all(before < after for before, after in pairwise(self.sizes))

    @classmethod
    def through(cls, points: Iterable[tuple[int, float]]) -> "Curve":
        """The curve through these (bytes, seconds); of several at one size the mean."""
        by_size: dict[int, list[float]] = {}
        for size, time_s in points:
            by_size.setdefault(size, []).append(time_s)
        sizes = sorted(by_size)
        return cls(tuple(sizes), tuple(sum(by_size[size]) / len(by_size[size]) for size in sizes))

    @property
    def seconds_per_byte(self) -> float:
        """Of each byte beyond the largest size."""
        if len(self.sizes) == 1:
            return self.times_s[0] / self.sizes[0]
        rise = (self.times_s[-1] - self.times_s[-2]) / (self.sizes[-1] - self.sizes[-2])
        # A last pair that noise has turned around must not make large messages free.
        return max(rise, self.times_s[-1] / self.sizes[-1] / 2)

    @property
    def best_seconds_per_byte(self) -> float:
        """Of the size that goes fastest for its bytes."""
        return min(time_s / size for size, time_s in zip(self.sizes, self.times_s, strict=True))

    @property
    def launch_s(self) -> float:
        """What a message costs however small: the line through the two smallest sizes, at no bytes at all.

        With one size nothing can be told apart, and it is 0.
        """
        if len(self.sizes) == 1:
            return 0.0
        (first, second), (first_s, second_s) = self.sizes[:2], self.times_s[:2]
        rise = (second_s - first_s) / (second - first)
        return min(first_s, max(0.0, first_s - rise * first))

    def __call__(self, message_bytes: float | Floats) -> Floats:
        """Seconds, shape of ``message_bytes``."""
        wanted = np.asarray(message_bytes, dtype=np.float64)
        inside = np.interp(wanted, self.sizes, self.times_s)
        return np.asarray(inside + self.seconds_per_byte * np.maximum(0.0, wanted - self.sizes[-1]))

    def time_s(self, message_bytes: float) -> float:
        """Seconds for one size."""
        return float(self(message_bytes))


def curves_of_rows(rows: Sequence[Row]) -> tuple[Curve, Curve] | None:
    """(under the plan, of the default), from the evidence of a table's rows; None where it has none."""
    planned: list[tuple[int, float]] = []
    default: list[tuple[int, float]] = []
    for row in rows:
        evidence = row.evidence
        if evidence is None:
            continue
        # The evidence of a row that keeps the default may be of a candidate that did not win, or of a size
        # in the range of another row: only what the plan would run there counts.
        runs_here = find_row(rows, evidence.measured_bytes).algorithm == row.algorithm
        default.append((evidence.measured_bytes, evidence.default_median_s))
        if runs_here and row.algorithm != DEFAULT_ALGORITHM:
            planned.append((evidence.measured_bytes, evidence.median_s))
        elif runs_here:
            planned.append((evidence.measured_bytes, evidence.default_median_s))
    if not planned or not default:
        return None
    return Curve.through(planned), Curve.through(default)

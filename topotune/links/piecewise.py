"""Fit a piecewise affine cost to times by message size: relative errors, no negative cost, jumps allowed.

Theory of operation. Libraries change protocol with size (eager to rendezvous, one buffer to many), so a
line through all sizes is wrong by tens of per cent somewhere, and the cost may jump. Times span five
decades, so only relative errors treat all sizes alike: each segment minimises the sum of ((alpha + beta m)
/ T - 1)^2 / sigma^2, which near the optimum is least squares in log T, over alpha >= 0 and beta >= 0
(non-negative least squares, two unknowns). A dynamic programme over the places between sizes finds the best
cut into 1, 2, 3, ... segments, and BIC with known sigma picks their number: one more segment costs 4
parameters (alpha, beta, and 2 for its place, which was searched for). The largest size may stand alone:
where a link lets bursts pass, all sizes but that one fit into the burst.

beta need not fall from segment to segment and segments need not join: protocols behave like that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

FloatArray = npt.NDArray[np.float64]
_MIN_SIZES_PER_SEGMENT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class PiecewiseFit:
    """Segments: i covers the sizes ``starts[i]`` to ``starts[i+1]``, by index, and costs alpha + beta m."""

    starts: tuple[int, ...]
    alpha_s: tuple[float, ...]
    beta_s_per_byte: tuple[float, ...]


def fit_piecewise(
    message_bytes: Sequence[int],
    time_s: Sequence[float],
    relative_error: Sequence[float],
    *,
    max_segments: int = 3,
) -> PiecewiseFit:
    """The piecewise affine cost that explains the times best for its number of segments.

    Args:
        message_bytes: K >= 1 distinct sizes, ascending.
        time_s: K times above 0.
        relative_error: K standard errors of the times, relative to them, above 0.
        max_segments: at most; each needs two sizes, except the last.

    Complexity: O(K^2) segment fits.
    """
    sizes, times, errors = (
        np.asarray(column, dtype=np.float64) for column in (message_bytes, time_s, relative_error)
    )
    num_sizes = len(sizes)
    if num_sizes < _MIN_SIZES_PER_SEGMENT:
        return PiecewiseFit(starts=(0,), alpha_s=(float(times[0]),), beta_s_per_byte=(0.0,))
    costs: dict[tuple[int, int], float] = {}
    for first in range(num_sizes):
        for end in range(first + 1, num_sizes + 1):
            if end - first >= _MIN_SIZES_PER_SEGMENT or end == num_sizes:
                part = slice(first, end)
                costs[first, end] = fit_segment(sizes[part], times[part], errors[part])[2]

    # [number of segments][end] -> (cost, starts)
    best: list[dict[int, tuple[float, tuple[int, ...]]]] = [{0: (0.0, ())}]
    for _ in range(max_segments):
        longer: dict[int, tuple[float, tuple[int, ...]]] = {}
        for (first, end), cost in costs.items():
            if first in best[-1]:
                before, starts = best[-1][first]
                longer[end] = min(longer.get(end, (math.inf, ())), (before + cost, (*starts, first)))
        best.append(longer)
    complete = [row[num_sizes] for row in best[1:] if num_sizes in row]
    penalty = math.log(num_sizes)
    _, starts = min(
        (cost + _num_parameters(starts, num_sizes) * penalty, starts) for cost, starts in complete
    )
    fits = [
        fit_segment(sizes[first:end], times[first:end], errors[first:end])
        for first, end in zip(starts, [*starts[1:], num_sizes], strict=True)
    ]
    return PiecewiseFit(
        starts=starts, alpha_s=tuple(fit[0] for fit in fits), beta_s_per_byte=tuple(fit[1] for fit in fits)
    )


def _num_parameters(starts: Sequence[int], num_sizes: int) -> int:
    """Alpha and beta of each segment (a single size has one), and 2 for each place that was searched."""
    alone = num_sizes - starts[-1] == 1
    return 2 * len(starts) + 2 * (len(starts) - 1) - int(alone)


def fit_segment(sizes: FloatArray, times: FloatArray, errors: FloatArray) -> tuple[float, float, float]:
    """``(alpha >= 0, beta >= 0, chi^2)`` of one segment, by least squares of relative errors.

    A single size is taken to cost its bytes alone.
    """
    if len(sizes) == 1:
        return 0.0, float(times[0] / sizes[0]), 0.0
    design = np.column_stack([1.0 / times, sizes / times]) / errors[:, None]
    scale = np.linalg.norm(design, axis=0)  # columns differ by nine decades
    solution, residual = scipy.optimize.nnls(design / scale, 1.0 / errors)
    return float(solution[0] / scale[0]), float(solution[1] / scale[1]), float(residual**2)


def boundaries(fit: PiecewiseFit, message_bytes: Sequence[int]) -> tuple[int, ...]:
    """First size of each segment: where neighbouring segments meet, if they meet between their sizes.

    If they do not, the cost jumps somewhere between the last size of one and the first of the next: in the
    middle, on the logarithmic scale.
    """
    first_sizes = [0]
    for i, start in enumerate(fit.starts[1:]):
        low, high = message_bytes[start - 1], message_bytes[start]
        slope = fit.beta_s_per_byte[i] - fit.beta_s_per_byte[i + 1]
        meet = (fit.alpha_s[i + 1] - fit.alpha_s[i]) / slope if slope else math.nan
        first_sizes.append(math.ceil(meet) if low < meet <= high else math.ceil(math.sqrt(low * high)))
    return tuple(first_sizes)

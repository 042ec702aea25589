"""Comparing two arms honestly: ratios of medians with intervals, corrected for how many are looked at.

Theory of operation. Samples come in rounds: each arm once, in random order. If the plan were in truth the
default under another name, swapping the two within any round would change nothing, so the sign of each
round's log-ratio would be a fair coin *whatever* the distribution, drift and autocorrelation of the times:
the signed-rank interval holds its error rate by the randomisation alone (Wilcoxon's test as a randomisation
test; Walsh averages give its interval, Hodges and Lehmann 1963). What people read, though, is the ratio of
medians, whose interval is the percentile bootstrap over rounds (pairs stay together). ``compare_arms``
returns the hull of the two: its low end can pass the true ratio no more often than the exact interval's does,
and it covers the reported ratio's own uncertainty.

Rounds come in blocks, and blocks differ: `topotune.tune.blocks`.

Nothing is trimmed. To look more than once is paid for (`topotune.tune.looks`). Many rows are paid for by
Bonferroni, which keeps the intervals simultaneous, or where only decisions are wanted by Holm's steps
(`topotune.tune.judge`). Outliers, autocorrelation and two modes are told, not removed.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

Samples = npt.NDArray[np.float64]

_MAX_EXACT_ROUNDS = 200
MAD_TO_SD = 1.4826
"""Standard deviation of normal values over their median absolute deviation."""

_FEWEST_TO_DESCRIBE = 8
_LEAST_APART = 0.02
"""Modes closer than this in log-time do not matter to anybody."""

_TWO_MODES_APART, _TWO_MODES_SHARE = 6.0, 0.2
"""Samples have two modes where the best split into two parts, each of at least this share, leaves the means
of the parts so many of their standard deviations apart. A uniform distribution has 3.5; of a thousand sets of
24 to 96 normal, uniform, exponential or log-normal samples at most 1 % pass (found by trial)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The default against another arm, over paired rounds.

    Attributes:
        default_median_s, median_s: medians of the two arms.
        ratio: default / other: above 1 where the other is faster.
        low, high: its interval; (0, inf) where there are too few rounds for the confidence asked.
        num_rounds: rounds in which both were timed.
        outlier_share: share of the samples of both that lie beyond Tukey's fences; none is removed.
    """

    default_median_s: float
    median_s: float
    ratio: float
    low: float
    high: float
    num_rounds: int
    outlier_share: float


def compare_arms(default_s: Samples, other_s: Samples, *, confidence: float, seed: int) -> Comparison:
    """Ratio of medians of two arms with its interval.

    Args:
        default_s: seconds, shape (rounds,); a round with a NaN in either arm is left out.
        other_s: the other arm in the same rounds.
        confidence: of the two-sided interval, within (0, 1); see ``corrected`` for many rows.
        seed: of the bootstrap.

    Raises:
        ValueError: no round in which both were timed.
    """
    screened = screen_arms(default_s, other_s, confidence=confidence)
    paired = ~(np.isnan(default_s) | np.isnan(other_s))
    boot_low, boot_high = _bootstrap_interval(default_s[paired], other_s[paired], confidence, seed)
    return replace(screened, low=min(screened.low, boot_low), high=max(screened.high, boot_high))


def screen_arms(default_s: Samples, other_s: Samples, *, confidence: float) -> Comparison:
    """As `compare_arms`, with the signed-rank interval alone: quick, for dropping what is poor.

    Args:
        default_s: seconds, shape (rounds,); a round with a NaN in either arm is left out.
        other_s: the other arm in the same rounds.
        confidence: of the two-sided interval, within (0, 1).

    Raises:
        ValueError: no round in which both were timed.
    """
    paired = ~(np.isnan(default_s) | np.isnan(other_s))
    default_s, other_s = default_s[paired], other_s[paired]
    if len(default_s) == 0:
        raise ValueError("no round has a time for both arms")
    default_median_s, median_s = float(np.median(default_s)), float(np.median(other_s))
    ratio = default_median_s / median_s
    low, high = signed_rank_interval(np.log(default_s / other_s), confidence)
    return Comparison(
        default_median_s=default_median_s,
        median_s=median_s,
        ratio=ratio,
        low=min(math.exp(low), ratio),
        high=max(math.exp(high), ratio),
        num_rounds=len(default_s),
        outlier_share=(outlier_share(default_s) + outlier_share(other_s)) / 2,
    )


def signed_rank_interval(differences: Samples, confidence: float) -> tuple[float, float]:
    """Interval of the centre of symmetric differences, by inverting Wilcoxon's signed-rank test exactly.

    Args:
        differences: shape (n,).
        confidence: two-sided, within (0, 1).

    Returns:
        The ends; (-inf, inf) below ``minimum_rounds(confidence)``.
    """
    count = len(differences)
    tail = (1.0 - confidence) / 2
    rows, columns = np.triu_indices(count)
    walsh = np.sort((differences[rows] + differences[columns]) / 2)
    below = _largest_tail_statistic(count, tail)
    if below < 0:
        return -math.inf, math.inf
    return float(walsh[below]), float(walsh[len(walsh) - 1 - below])


def minimum_rounds(confidence: float) -> int:
    """Fewest rounds with which an interval of this confidence can be bounded at all."""
    return math.ceil(math.log2(2.0 / (1.0 - confidence)) - 1e-9)


def corrected(confidence: float, num_comparisons: int) -> float:
    """Confidence that each of several intervals needs so that all hold at once (Bonferroni)."""
    return 1.0 - (1.0 - confidence) / max(1, num_comparisons)


def rounds_needed(
    log_gain: float, log_spread: float, *, confidence: float, most: int, power: float = 0.95
) -> int:
    """Rounds after which a true gain would clear its margin.

    Args:
        log_gain: log(true ratio / ratio that must be passed); up to 0 means never.
        log_spread: standard deviation of the log-ratio within a round.
        confidence: of the two-sided interval.
        power: how surely.
        most: upper limit of the answer.
    """
    fewest = minimum_rounds(confidence) + 2
    if log_gain <= 0:
        return most
    z = scipy.special.ndtri((1 + confidence) / 2) + scipy.special.ndtri(power)
    # The hull of two intervals is wider than the mean's: pi/2 is the variance of a normal median over its
    # mean's.
    wanted = math.pi / 2 * (z * log_spread / log_gain) ** 2
    return int(min(most, max(fewest, math.ceil(wanted))))


def log_spread(default_s: Samples, other_s: Samples) -> float:
    """Robust standard deviation of a round's log-ratio (1.4826 × median absolute deviation)."""
    logs = np.log(default_s / other_s)
    logs = logs[~np.isnan(logs)]
    if len(logs) == 0:
        return math.inf
    return float(MAD_TO_SD * np.median(np.abs(logs - np.median(logs))))


def log_scatter(samples_s: Samples) -> float:
    """Robust standard deviation of the log of one arm's times, corrected for few of them; needs two."""
    logs = np.log(samples_s)
    count = len(logs)
    return float(MAD_TO_SD * np.median(np.abs(logs - np.median(logs)))) * count / (count - 1)


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact interval of a rate, within [0, 1] (Clopper and Pearson 1934)."""
    tail = (1.0 - confidence) / 2
    low = 0.0 if successes == 0 else float(scipy.special.betaincinv(successes, trials - successes + 1, tail))
    high = (
        1.0
        if successes == trials
        else float(scipy.special.betaincinv(successes + 1, trials - successes, 1 - tail))
    )
    return low, high


def outlier_share(samples_s: Samples) -> float:
    """Share of samples beyond Tukey's fences (1.5 interquartile ranges off the quartiles)."""
    low, high = np.percentile(samples_s, (25, 75))
    reach = 1.5 * (high - low)
    return float(np.mean((samples_s < low - reach) | (samples_s > high + reach)))


def autocorrelation(samples_s: Samples) -> float:
    """Correlation of each sample with the one before it, in log-time; 0 where it cannot be told.

    Args:
        samples_s: in the order in which they were taken; fewer than eight say nothing.
    """
    if len(samples_s) < _FEWEST_TO_DESCRIBE:
        return 0.0
    logs = np.log(samples_s) - np.mean(np.log(samples_s))
    total = float(np.sum(logs**2))
    return float(np.sum(logs[1:] * logs[:-1])) / total if total > 0 else 0.0


def effective_samples(samples_s: Samples) -> float:
    """So many independent samples tell as much about the mean log-time (first-order autoregression)."""
    correlation = min(0.99, max(0.0, autocorrelation(samples_s)))
    return len(samples_s) * (1 - correlation) / (1 + correlation)


def two_modes(samples_s: Samples) -> tuple[float, float, float] | None:
    """The lower and the upper mode in seconds, and the share of the upper; None where there is one mode.

    Two modes of a collective's time usually are two paths through the network, or another user of it.
    """
    count = len(samples_s)
    if count < 2 * _FEWEST_TO_DESCRIBE:
        return None
    ordered = np.sort(np.log(samples_s))
    sums, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    least = math.ceil(_TWO_MODES_SHARE * count)
    sizes = np.arange(least, count - least + 1)
    lower_mean, upper_mean = (
        sums[sizes - 1] / sizes,
        (sums[-1] - sums[sizes - 1]) / (count - sizes),
    )
    within = (
        squares[-1] - sizes * lower_mean**2 - (count - sizes) * upper_mean**2
    )  # sum of squares about the two means
    best = int(np.argmin(within))
    deviation = math.sqrt(max(0.0, float(within[best])) / count)
    apart = float(upper_mean[best] - lower_mean[best])
    if apart <= max(_TWO_MODES_APART * deviation, _LEAST_APART):
        return None
    split = int(sizes[best])
    return (
        math.exp(float(np.median(ordered[:split]))),
        math.exp(float(np.median(ordered[split:]))),
        (count - split) / count,
    )


def relative_spread(samples_s: Samples) -> float:
    """Interquartile range over median."""
    low, median, high = np.percentile(samples_s, (25, 50, 75))
    return float((high - low) / median)


def _bootstrap_interval(
    default_s: Samples, other_s: Samples, confidence: float, seed: int
) -> tuple[float, float]:
    """Percentile bootstrap of the ratio of medians, resampling rounds."""
    tail = (1.0 - confidence) / 2
    # Twenty resamples beyond each end, or what a second of many comparisons allows.
    resamples = int(min(5_000, max(1_000, math.ceil(20 / tail))))
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(default_s), size=(resamples, len(default_s)))
    ratios = np.median(default_s[picks], axis=1) / np.median(other_s[picks], axis=1)
    low, high = np.quantile(ratios, (tail, 1 - tail))
    return float(low), float(high)


@lru_cache(maxsize=256)
def _largest_tail_statistic(count: int, tail: float) -> int:
    """Largest w with P(W <= w) <= tail for the signed-rank statistic W of so many differences, else -1."""
    if count > _MAX_EXACT_ROUNDS:
        mean = count * (count + 1) / 4
        deviation = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return math.floor(mean + float(scipy.special.ndtri(tail)) * deviation - 0.5)
    probability = np.zeros(count * (count + 1) // 2 + 1)
    probability[0] = 1.0
    for rank in range(1, count + 1):
        shifted = np.zeros_like(probability)
        shifted[rank:] = probability[:-rank]
        probability = (probability + shifted) / 2
    return int(np.searchsorted(np.cumsum(probability), tail * (1 + 1e-9), side="right")) - 1

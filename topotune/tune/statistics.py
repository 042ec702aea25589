"""Comparing two arms honestly: ratios of medians with intervals, corrected for how many are looked at.

Theory of operation. Samples come in rounds: each arm once, in random order. If the plan were in truth the
default under another name, swapping the two within any round would change nothing, so the sign of each
round's log-ratio would be a fair coin *whatever* the distribution, drift and autocorrelation of the times:
the signed-rank interval holds its error rate by the randomisation alone (Wilcoxon's test as a randomisation
test; Walsh averages give its interval, Hodges and Lehmann 1963). What people read, though, is the ratio of
medians, whose interval is the percentile bootstrap over rounds (pairs stay together). ``compare_arms``
returns the hull of the two: its low end can pass the true ratio no more often than the exact interval's does,
and it covers the reported ratio's own uncertainty.

Rounds on one set of connections share its luck: where its packets go, on which core its thread wakes. Two
gloo groups of the same ranks that run the same algorithm were seen to differ by a tenth and more for as long
as they lived (busy 2-core virtual machine, 2026), and process launches differ again. So rounds come in
blocks, each on connections of its own (or of a launch of its own), and `compare_blocks` widens the interval
by what the blocks' ratios scatter: with Student's t over the blocks. Their variance is that of the row's own
rounds, plus what connections add, which is estimated from all rows of a run together. Where the row's blocks
scatter by more than its rounds explain (chance of 5 %), it is no less than their own: a row that two lucky
connections made look fast has blocks that disagree.

Launches are few, and rows differ in what a launch does to them (a latency hangs on cores, a rate does not),
so one variance for all would be too little for some: where launches move one of eight rows alone, some
interval of three launches misses in a tenth of runs in place of a twentieth. `compare_launches` lets each row
pay with its own variance, moderated by that of all rows as far as they agree (Smyth 2004: the prior's degrees
of freedom follow from how the logs of the rows' variances scatter).

Nothing is trimmed. To look more than once is paid for (`topotune.tune.looks`). Many rows are paid for by
Bonferroni, which keeps the intervals simultaneous, or where only decisions are wanted by Holm's steps
(`topotune.tune.judge`). Outliers, autocorrelation and two modes are told, not removed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

Samples = npt.NDArray[np.float64]

Block = tuple[Samples, Samples]
"""Paired rounds on one set of connections, or of one launch: seconds of the default and of the other arm."""

_MAX_EXACT_ROUNDS = 200
_MOST_LOG = 50.0
_MAD_TO_SD = 1.4826
_INSTANT = 1e-18
"""Variance of log-ratios below which no clock tells anything."""

_OWN_LUCK = 0.05
"""Chance of a row's blocks to scatter by so much more than its rounds explain that it is put down to luck."""

_TRUST_IN_OTHERS = 0.5
"""Share of the prior's degrees of freedom that counts, and at most those of all other rows: they are an
estimate themselves. With 3 to 5 launches of 8 or 16 rows, alike or not, some interval then misses in 1 to 6 %
of runs (5 wanted), where trust in all of them made it up to 10 %. Two launches tell too little of rows that
are not alike: up to 14 % (found by simulation, 2026)."""

_DEGREES = (1e-2, 1e6)
"""Between these the prior's degrees of freedom are looked for; beyond, there are none, or rows are alike."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Luck:
    """How far connections (or launches) of the same two arms differ.

    Attributes:
        variance: of a block's log-ratio: of connections what they add to rounds, 0 where those explain all of
            it; of launches all of it.
        degrees: of freedom of that; 0 where nothing is known of it.
    """

    variance: float
    degrees: float


def compare_blocks(blocks: Sequence[Block], *, luck: Luck, confidence: float, seed: int) -> Comparison:
    """As `compare_arms` over all rounds, widened by how far blocks differ.

    Args:
        blocks: at least one with a round in which both were timed.
        luck: of connections, from all rows (`luck_of_connections`).
        confidence: of the two-sided interval, within (0, 1).
        seed: of the bootstrap.

    Raises:
        ValueError: no round in which both were timed.
    """
    default_s = np.concatenate([default for default, _ in blocks])
    other_s = np.concatenate([other for _, other in blocks])
    compared = compare_arms(default_s, other_s, confidence=confidence, seed=seed)
    row = _row_of_blocks(blocks)
    if row.degrees < 1 or luck.degrees < 1:
        return compared
    variance = luck.variance + row.by_rounds
    if row.squares > row.by_rounds * _most_by_chance(row.degrees):
        variance = max(variance, row.squares / row.degrees)
    return _widened(compared, row, variance, luck.degrees, confidence)


def luck_of_connections(rows: Iterable[Sequence[Block]]) -> Luck:
    """What the blocks of all rows differ by beyond what their rounds explain (Paule and Mandel 1982).

    A row whose rounds scatter much says little of it, and one whose rounds agree says much. None says more
    than chance makes plausible: what a row scatters beyond that it pays for itself, and not the others.

    Args:
        rows: each with its blocks.
    """
    told = [row for row in map(_row_of_blocks, rows) if row.degrees > 0]
    expected = sum(_mean_capped(row.degrees) for row in told)

    def excess(variance: float) -> float:
        found = (
            min(row.squares / (variance + max(_INSTANT, row.by_rounds)), _most_by_chance(row.degrees))
            for row in told
        )
        return sum(found) - expected

    degrees = sum(row.degrees for row in told)
    most = 2 * sum(row.squares for row in told)  # leaves half of one, and every row is expected to have more
    if excess(0.0) <= 0:
        return Luck(variance=0.0, degrees=degrees)
    return Luck(variance=float(scipy.optimize.brentq(excess, 0.0, most)), degrees=degrees)


def _most_by_chance(degrees: int) -> float:
    """What squares over their variance come to by chance at most, but for `_OWN_LUCK` of all rows."""
    return float(scipy.special.chdtri(degrees, _OWN_LUCK))


def _mean_capped(degrees: int) -> float:
    """Mean of a chi-squared variable of which more than `_most_by_chance` counts as that."""
    cap = _most_by_chance(degrees)
    return float(degrees * scipy.special.chdtr(degrees + 2, cap) + cap * _OWN_LUCK)


def compare_launches(blocks: Sequence[Block], *, scatter: Luck, confidence: float, seed: int) -> Comparison:
    """As `compare_arms` over all rounds, widened by how far this row's launches differ.

    Args:
        blocks: one of each launch, at least one with a round in which both were timed.
        scatter: of launches, from all rows (`scatter_of_launches`).
        confidence: of the two-sided interval, within (0, 1).
        seed: of the bootstrap.

    Raises:
        ValueError: no round in which both were timed.

    Source: Smyth, "Linear models and empirical Bayes methods for assessing differential expression", 2004,
    section 4.
    """
    default_s = np.concatenate([default for default, _ in blocks])
    other_s = np.concatenate([other for _, other in blocks])
    compared = compare_arms(default_s, other_s, confidence=confidence, seed=seed)
    row = _row_of_blocks(blocks)
    if row.degrees < 1:
        return compared
    degrees = row.degrees + scatter.degrees
    variance = (row.squares + scatter.degrees * scatter.variance) / degrees
    # Launches that happen to agree by more than their rounds do tell nothing of that.
    return _widened(compared, row, max(variance, row.by_rounds), degrees, confidence)


def scatter_of_launches(rows: Iterable[Sequence[Block]]) -> Luck:
    """What is known of how far a row's launches differ before it is looked at: from all rows.

    Args:
        rows: each with a block of each launch.

    Returns:
        The prior's variance of a launch's log-ratio, rounds included, and its degrees of freedom; 0 where
        fewer than two rows have launches.

    Source: Smyth 2004, section 6.2.
    """
    told = [row for row in map(_row_of_blocks, rows) if row.degrees > 0]
    if len(told) < 2:
        return Luck(variance=0.0, degrees=0.0)
    halves = np.array([row.degrees / 2 for row in told])
    variances = np.array([max(_INSTANT, row.squares / row.degrees) for row in told])
    logs = np.log(variances) - scipy.special.digamma(halves) + np.log(halves)
    excess = float(np.var(logs, ddof=1) - np.mean(scipy.special.polygamma(1, halves)))
    least, most = _DEGREES

    def left(log_degrees: float) -> float:
        return float(scipy.special.polygamma(1, math.exp(log_degrees) / 2)) - excess

    if excess <= scipy.special.polygamma(1, most / 2):
        degrees = most
    elif excess >= scipy.special.polygamma(1, least / 2):
        degrees = least
    else:
        degrees = math.exp(scipy.optimize.brentq(left, math.log(least), math.log(most)))
    shift = float(scipy.special.digamma(degrees / 2)) - math.log(degrees / 2)
    of_others = float(np.sum(2 * halves)) * (1 - 1 / len(told))
    return Luck(
        variance=math.exp(float(np.mean(logs)) + shift), degrees=_TRUST_IN_OTHERS * min(degrees, of_others)
    )


def hull_of_looks(looks: Sequence[Comparison], blocks: Sequence[Block]) -> Comparison:
    """What several looks at the same arms say together: medians of all samples, the hull of the intervals.

    So a side of 1 is left only where every look leaves it.

    Args:
        looks: each on fresh samples, at least one.
        blocks: the samples of all of them.
    """
    default_s = np.concatenate([default for default, _ in blocks])
    other_s = np.concatenate([other for _, other in blocks])
    both = screen_arms(default_s, other_s, confidence=0.5)
    return replace(
        both,
        low=min(both.ratio, *(look.low for look in looks)),
        high=max(both.ratio, *(look.high for look in looks)),
    )


def _widened(
    compared: Comparison, row: "_RowOfBlocks", variance: float, degrees: float, confidence: float
) -> Comparison:
    """With what Student's t over blocks says of their mean."""
    reach = float(scipy.special.stdtrit(degrees, (1 + confidence) / 2)) * math.sqrt(
        variance / (row.degrees + 1)
    )
    # An exponent of a very wide interval must not overflow.
    return replace(
        compared,
        low=min(compared.low, math.exp(max(row.centre - reach, -_MOST_LOG))),
        high=max(compared.high, math.exp(min(row.centre + reach, _MOST_LOG))),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _RowOfBlocks:
    """Medians of blocks' log-ratios, in short.

    Attributes:
        centre: their mean.
        squares: sum of their squared distances from it.
        degrees: of freedom of that: one less than there are blocks.
        by_rounds: variance that such a median has by the scatter of its block's rounds, on average.
    """

    centre: float
    squares: float
    degrees: int
    by_rounds: float


def _row_of_blocks(blocks: Sequence[Block]) -> _RowOfBlocks:
    logs = _block_logs(blocks)
    medians = np.array([np.median(one) for one in logs])
    centre = float(np.mean(medians)) if len(medians) else 0.0
    apart = [np.abs(one[:, None] - one[None, :])[np.triu_indices(len(one), 1)] for one in logs]
    differences = np.concatenate(apart) if apart else np.array([])
    # Robust, and so rather too little than too much: what is not put down to rounds counts as luck.
    round_variance = (_MAD_TO_SD * float(np.median(differences))) ** 2 / 2 if len(differences) else 0.0
    # Variance of a median of n normal values over that of one: exact at 1, pi / 2n for many.
    shares = [math.pi / 2 / (len(one) + math.pi / 2 - 1) for one in logs]
    return _RowOfBlocks(
        centre=centre,
        squares=float(np.sum((medians - centre) ** 2)),
        degrees=len(logs) - 1,
        by_rounds=round_variance * float(np.mean(shares)) if shares else 0.0,
    )


def _block_logs(blocks: Sequence[Block]) -> list[Samples]:
    """Of each block that has rounds, each round's log(default / other)."""
    logs = [np.log(default_s / other_s) for default_s, other_s in blocks]
    logs = [one[~np.isnan(one)] for one in logs]
    return [one for one in logs if len(one)]


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
    return float(_MAD_TO_SD * np.median(np.abs(logs - np.median(logs))))


def log_scatter(samples_s: Samples) -> float:
    """Robust standard deviation of the log of one arm's times, corrected for few of them; needs two."""
    logs = np.log(samples_s)
    count = len(logs)
    return float(_MAD_TO_SD * np.median(np.abs(logs - np.median(logs)))) * count / (count - 1)


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

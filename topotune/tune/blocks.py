"""Rounds in blocks: how far connections, or launches, of the same two arms differ, and what that costs.

Theory of operation. Rounds on one set of connections share its luck: where its packets go, on which core its
thread wakes. Two gloo groups of the same ranks that run the same algorithm were seen to differ by a tenth and
more for as long as they lived (busy 2-core virtual machine, 2026), and process launches differ again. So
rounds come in blocks, each on connections of its own (or of a launch of its own), and `compare_blocks` widens
the interval by what the blocks' ratios scatter: with Student's t over the blocks. Their variance is that of
the row's own rounds, plus what connections add, which is estimated from all rows of a run together. Where the
row's blocks scatter by more than its rounds explain (chance of 5 %), the interval also holds what they say
alone, with their own degrees of freedom: a row that two lucky connections made look fast has blocks that
disagree.

Launches are few, and rows differ in what a launch does to them (a latency hangs on cores, a rate does not),
so one variance for all would be too little for some: where launches move one of eight rows alone, some
interval of three launches misses in a tenth of runs in place of a twentieth. `compare_launches` lets each row
pay with its own variance, moderated by that of all rows as far as they agree (Smyth 2004: the prior's degrees
of freedom follow from how the logs of the rows' variances scatter).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from topotune.tune.statistics import MAD_TO_SD, Comparison, Samples, compare_arms, screen_arms

Block = tuple[Samples, Samples]
"""Paired rounds on one set of connections, or of one launch: seconds of the default and of the other arm."""

_MOST_LOG = 50.0
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
    compared = _widened(compared, row, luck.variance + row.by_rounds, luck.degrees, confidence)
    if row.squares > row.by_rounds * _most_by_chance(row.degrees):
        compared = _widened(compared, row, row.squares / row.degrees, row.degrees, confidence)
    return compared


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
    round_variance = (MAD_TO_SD * float(np.median(differences))) ** 2 / 2 if len(differences) else 0.0
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

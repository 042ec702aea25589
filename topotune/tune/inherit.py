"""Beyond the largest confirmed size: where a row's algorithm is taken over, and where the default stays.

Theory of operation. Calls of large messages may take longer than a budget has time for, and a job's messages
may be larger than any that was asked for. What was confirmed last is taken over there, by a row of its own
that says ``extrapolated``, if everything that is known speaks for it:

- the interval at the last confirmed size clears the margin twice over;
- the model knows this cluster: at that size it was right about the default and the candidate within a factor
  of two;
- neither by the model nor by what was confirmed does the gain shrink so far that the rest of it would not
  clear the margin, up to eight times the last confirmed size; beyond that, as far as sizes were asked for and
  up to 64 times, a twentieth of the time is kept in reserve for each further doubling;
- no sample speaks against it: it did not fail further out, where another one was tried there in vain the
  search saw this one gain, and so it did at all larger sizes where it was timed, or where only others were,
  one of those;
- it was not found unfit on the way: wrong, cut off, far too slow in its check, or slower beside a backward.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from statistics import linear_regression, pvariance
from typing import Final

from topotune.plan.model import Evidence, Row
from topotune.tune.decide import Limit, held_against
from topotune.tune.judge import Confirmation, margin_twice_over
from topotune.tune.search import Standing
from topotune.tune.shortlist import PredictedTime
from topotune.tune.trial import DEFAULT, Candidate

REACH: Final = 8
"""Times the last confirmed size: further out, other limits may count …"""

_MOST_REACH, _RESERVE_A_DOUBLING = 64, 0.95
"""… so that only sizes asked for are reached there, and what is left of the gain counts by so much less."""

_FITTED_OVER: Final = 16
"""Times the smallest size whose gain says how gains go on."""

_TRUSTED_WITHIN: Final = 2.0
"""The factor within which the model must have been right."""


def with_inherited(
    rows: Sequence[Row],
    confirmations: Sequence[Confirmation],
    standings: Mapping[int, Sequence[Standing]],
    *,
    predicted_s: PredictedTime,
    min_gain: float,
    asked_bytes: Iterable[int] = (),
    unfit: Iterable[tuple[int, Candidate]] = (),
    limit: Limit,
) -> tuple[Row, ...]:
    """The table with a row that takes over what was confirmed last, where that is safe.

    Args:
        rows: the table as it was confirmed.
        confirmations: what it was decided by, passed or not.
        standings: of each searched size; empty where no candidate was timed.
        predicted_s: the simulator's time of a candidate, or of the default, at a size.
        min_gain: the margin of confirmation.
        asked_bytes: sizes that the run was asked for, searched or not.
        unfit: (size, candidate) pairs that were found to be of no use, whatever their times: no row reaches
            there.
        limit: what rows are held against.
    """
    departing = [index for index, row in enumerate(rows) if row.algorithm != DEFAULT.algorithm]
    if not departing:
        return tuple(rows)
    before, last_row, after = rows[: departing[-1]], rows[departing[-1]], rows[departing[-1] + 1 :]
    candidate = Candidate.of(last_row.algorithm, last_row.params)
    if last_row.max_bytes is None:
        return tuple(rows)
    # What passed beyond the row, behind a size where it did not, confirms nothing in between.
    confirmed = sorted(
        (
            one
            for one in confirmations
            if one.candidate == candidate and one.passed and one.message_bytes < last_row.max_bytes
        ),
        key=lambda one: one.message_bytes,
    )
    last = confirmed[-1]
    no_further = min(
        (size for size, one in unfit if one == candidate and size > last.message_bytes), default=math.inf
    )
    if (
        last.comparison.low < margin_twice_over(min_gain)
        or _speaks_against(candidate, last.message_bytes, confirmations, standings)
        or not _is_known(last, predicted_s)
    ):
        return tuple(rows)
    safe = takewhile(
        lambda size: (
            size < no_further
            and _expected_low(size, confirmed, predicted_s) > 1 + min_gain
            and _is_faster(standings.get(size), candidate, min_gain)
        ),
        _sizes_beyond(last.message_bytes, standings, asked_bytes),
    )
    end = max(safe, default=last.message_bytes) + 1
    if end == last_row.max_bytes:
        return tuple(rows)
    inherited = held_against(
        limit,
        replace(
            last_row,
            min_bytes=last_row.max_bytes,
            max_bytes=end,
            evidence=_evidence(last_row, last, predicted_s(candidate, last.message_bytes)),
        ),
    )
    first, *others = (row for row in after if row.max_bytes is None or row.max_bytes > end)
    if first.evidence is not None and first.min_bytes < end:
        first = replace(first, evidence=replace(first.evidence, extrapolated=True))
    return (*before, last_row, inherited, replace(first, min_bytes=end), *others)


def low_needed(last_bytes: int, asked_bytes: Iterable[int], *, min_gain: float) -> float:
    """Low end of default / candidate at the last confirmed size with which all sizes asked for can inherit.

    As far as the gain does not shrink; 0 where nothing larger was asked for.
    """
    beyond = [size for size in asked_bytes if last_bytes < size <= _MOST_REACH * last_bytes]
    return max(
        ((1 + min_gain) * max(1 + min_gain, 1 / _kept_in_reserve(last_bytes, size)) for size in beyond),
        default=0.0,
    )


def losses_beyond(
    ranked: Sequence[Standing], last_bytes: int, asked_bytes: Iterable[int], *, predicted_s: PredictedTime
) -> dict[Candidate, float]:
    """What the finalist of the largest searched size is expected to lose at sizes that were not searched.

    Each candidate's ratio to the default is carried on along its own predicted curve, from where it was
    measured. Nothing of it is established, so it counts half.

    Args:
        ranked: how candidates stand at that size.
        last_bytes: that size.
        asked_bytes: sizes that the run was asked for.
        predicted_s: the simulator's time of a candidate, or of the default, at a size.

    Returns:
        candidate → log-time, summed over the larger sizes; empty where there are none.
    """

    def log_gain(candidate: Candidate, size: int) -> float:
        return math.log(predicted_s(DEFAULT, size) / predicted_s(candidate, size))

    losses = dict.fromkeys([DEFAULT, *(one.candidate for one in ranked)], 0.0)
    beyond = [size for size in asked_bytes if last_bytes < size <= _MOST_REACH * last_bytes]
    for size in beyond:
        expected = {DEFAULT: 0.0}
        for one in ranked:
            takes_it = math.isfinite(predicted_s(one.candidate, size))
            change = log_gain(one.candidate, size) - log_gain(one.candidate, last_bytes) if takes_it else 0.0
            # Where it does not gain, or does not take the size, the default stays.
            expected[one.candidate] = max(0.0, math.log(one.comparison.ratio) + change) if takes_it else 0.0
        most = max(expected.values())
        for candidate, gain in expected.items():
            losses[candidate] += (most - gain) / 2
    return losses if beyond else {}


def _sizes_beyond(last_bytes: int, standings: Mapping[int, object], asked_bytes: Iterable[int]) -> list[int]:
    """Where to look: each doubling, each size that was searched, and those asked for; ascending."""
    doublings = {last_bytes * factor for factor in (2, 4, REACH)}
    searched = {size for size in standings if last_bytes < size <= REACH * last_bytes}
    asked = {size for size in asked_bytes if last_bytes < size <= _MOST_REACH * last_bytes}
    return sorted(doublings | searched | asked)


def _speaks_against(
    candidate: Candidate,
    last_bytes: int,
    confirmations: Sequence[Confirmation],
    standings: Mapping[int, Sequence[Standing]],
) -> bool:
    """Whether anything tested beyond the last size does: of this candidate, or of another in its stead."""
    further = [one for one in confirmations if one.message_bytes > last_bytes]
    if any(one.candidate == candidate for one in further):
        return True
    was_seen = any(
        size > last_bytes and any(one.candidate == candidate for one in ranked)
        for size, ranked in standings.items()
    )
    return bool(further) and not was_seen


def _is_known(last: Confirmation, predicted_s: PredictedTime) -> bool:
    """Whether the model was right about both arms."""
    compared = last.comparison
    arms = ((DEFAULT, compared.default_median_s), (last.candidate, compared.median_s))
    return all(
        1 / _TRUSTED_WITHIN <= predicted_s(arm, last.message_bytes) / measured_s <= _TRUSTED_WITHIN
        for arm, measured_s in arms
    )


def _expected_low(size: int, confirmed: Sequence[Confirmation], predicted_s: PredictedTime) -> float:
    """The low end of default / candidate that is left at a larger size, by the one with the greater loss.

    What was confirmed is carried on as a power of the size, fitted over the confirmed sizes down to a 16th,
    as far as it shrinks beyond the fit's own error: noise of neighbours would grow with the distance. Gains
    that grow are not carried on.
    """
    last = confirmed[-1]

    def predicted(message_bytes: int) -> float:
        return predicted_s(DEFAULT, message_bytes) / predicted_s(last.candidate, message_bytes)

    kept = min(1.0, predicted(size) / predicted(last.message_bytes))
    fitted = [one for one in confirmed if one.message_bytes >= last.message_bytes / _FITTED_OVER]
    if fitted[0].message_bytes <= last.message_bytes / 2:
        sizes = [math.log(one.message_bytes) for one in fitted]
        slope, _ = linear_regression(sizes, [math.log(one.comparison.ratio) for one in fitted])
        error = max(_error(one) for one in fitted) / math.sqrt(len(sizes) * pvariance(sizes))
        kept = min(kept, math.pow(size / last.message_bytes, slope + error))
    return last.comparison.low * kept * _kept_in_reserve(last.message_bytes, size)


def _kept_in_reserve(last_bytes: int, size: int) -> float:
    """Share of what is left of a gain that counts so far beyond the last confirmed size."""
    return math.pow(_RESERVE_A_DOUBLING, max(0.0, math.log2(size / (REACH * last_bytes))))


def _error(one: Confirmation) -> float:
    """Standard error of a confirmed log-ratio: a corrected interval is about three each way."""
    return math.log(one.comparison.high / one.comparison.low) / 6


def _is_faster(ranked: Sequence[Standing] | None, candidate: Candidate, min_gain: float) -> bool:
    """Whether the search saw the gain at its size; where it timed others only, whether any of them gains.

    Nothing is said of sizes where it timed no candidate.
    """
    ranked = ranked or ()
    timed = [one for one in ranked if one.candidate == candidate] or ranked
    return not timed or any(one.comparison.ratio > 1 + min_gain for one in timed)


def _evidence(row: Row, last: Confirmation, predicted_s: float) -> Evidence:
    """What was measured at the last confirmed size; nothing of it was confirmed in the new row's range."""
    assert row.evidence is not None, "a row that departs has evidence"
    compared, same_size = last.comparison, row.evidence.measured_bytes == last.message_bytes
    return replace(
        row.evidence,
        median_s=compared.median_s,
        default_median_s=compared.default_median_s,
        ratio=compared.ratio,
        ratio_ci=(compared.low, compared.high),
        num_samples=compared.num_rounds,
        measured_bytes=last.message_bytes,
        extrapolated=True,
        predicted_s=predicted_s,
        confirmed_bytes=(),
        backward_ratio_ci=row.evidence.backward_ratio_ci if same_size else None,
        busy_ratio=row.evidence.busy_ratio if same_size else None,
    )

"""From confirmations to the rows of a plan: where a candidate holds, and the default everywhere else.

A row that is not default begins and ends at confirmed sizes, with a confirmed size of an odd number of
elements inside; nothing is claimed beyond. Rows keep to the searched sizes, so that each carries the evidence
of its own.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from topotune.plan.model import Bottleneck, Evidence, Row
from topotune.tune.finalists import Conditions
from topotune.tune.judge import Confirmation
from topotune.tune.points import ELEMENT_BYTES
from topotune.tune.trial import DEFAULT, Candidate

_EXACT: Final = (1.0, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultTime:
    """What the default took at a searched size.

    Attributes:
        median_s: median, seconds.
        num_samples: over how many.
        scatter: robust standard deviation of the log of a call's time; infinite where it is not known.
    """

    median_s: float
    num_samples: int
    scatter: float = math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """The bound that rows are held against.

    Attributes:
        time_s: provably shortest time for a message of so many bytes; None where there is no bound.
        bottleneck: what bounds it, in words and as a cut.
        no_bound_reason: why there is none.
        latency_s: of one smallest message between nodes, which every call has to wait for; None where all
            ranks are on one node, or links were not measured.
    """

    time_s: Callable[[int], float] | None = None
    bottleneck: Bottleneck | None = None
    no_bound_reason: str | None = None
    latency_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A range in which one candidate was confirmed, both ends included.

    Attributes:
        confirmed: ascending; the first and last are the ends of the range.
    """

    candidate: Candidate
    confirmed: tuple[Confirmation, ...]

    @property
    def first_bytes(self) -> int:
        """Smallest confirmed size."""
        return self.confirmed[0].message_bytes

    @property
    def last_bytes(self) -> int:
        """Largest confirmed size."""
        return self.confirmed[-1].message_bytes

    @property
    def has_odd_inside(self) -> bool:
        """Whether a size of an odd number of elements lies strictly inside."""
        return any(one.message_bytes // ELEMENT_BYTES % 2 for one in self.confirmed[1:-1])


def confirmed_spans(confirmations: Sequence[Confirmation], tested_bytes: Iterable[int]) -> list[Span]:
    """Maximal ranges in which one candidate passed at every tested size, cut at searched sizes; ascending.

    A range that lacks an odd size inside is none. Two spans may share an end, never more.

    Args:
        confirmations: of all candidates, passed or not.
        tested_bytes: every size that was searched or was to be confirmed, for whichever candidate: one that
            finished differently there, or that time ran out for, ends a range.
    """
    spans: list[Span] = []
    sizes = sorted({*tested_bytes, *(one.message_bytes for one in confirmations)})
    for candidate in dict.fromkeys(one.candidate for one in confirmations):
        passed = {
            one.message_bytes: one for one in confirmations if one.candidate == candidate and one.passed
        }
        run: list[Confirmation] = []
        for size in sizes:
            if size in passed:
                run.append(passed[size])
            else:
                spans.extend(_cut(candidate, run))
                run = []
        spans.extend(_cut(candidate, run))
    return sorted(spans, key=lambda span: (span.first_bytes, span.last_bytes))


def decide_rows(
    confirmations: Sequence[Confirmation],
    defaults: Mapping[int, DefaultTime],
    *,
    limit: Limit,
    tested_bytes: Iterable[int] = (),
    conditions: Mapping[tuple[int, Candidate], Conditions] | None = None,
    predicted_s: Callable[[Candidate, int], float] | None = None,
) -> tuple[Row, ...]:
    """The table: half-open ranges without gaps from 0 to unbounded.

    Args:
        confirmations: of all points, passed or not.
        defaults: of each searched size, the default's time.
        limit: what rows are held against.
        tested_bytes: sizes that were to be confirmed, run or not.
        conditions: of the finalists, by (size, candidate).
        predicted_s: what the simulator says for a candidate and size.
    """
    rows: list[Row] = []
    spans = confirmed_spans(confirmations, {*defaults, *tested_bytes})
    reached = 0
    for index, span in enumerate(spans):
        rows.extend(_default_rows(reached, span.first_bytes, defaults, limit, predicted_s))
        follows = index + 1 < len(spans) and spans[index + 1].first_bytes == span.last_bytes
        reached = span.last_bytes if follows else span.last_bytes + 1
        rows.append(_row(span, reached, limit, conditions or {}, predicted_s))
    rows.extend(_default_rows(reached, None, defaults, limit, predicted_s))
    return _joined(rows)


def _cut(candidate: Candidate, run: Sequence[Confirmation]) -> list[Span]:
    """Cut a run at searched sizes into spans that each have an odd size inside."""
    spans: list[Span] = []
    start = 0
    for index in range(1, len(run) - 1):
        left, right = Span(candidate=candidate, confirmed=tuple(run[start : index + 1])), run[index:]
        if (
            run[index].searched
            and left.has_odd_inside
            and Span(candidate=candidate, confirmed=tuple(right)).has_odd_inside
        ):
            spans.append(left)
            start = index
    if run:
        last = Span(candidate=candidate, confirmed=tuple(run[start:]))
        spans.extend([last] if last.has_odd_inside else [])
    return spans


def _row(
    span: Span,
    max_bytes: int,
    limit: Limit,
    conditions: Mapping[tuple[int, Candidate], Conditions],
    predicted_s: Callable[[Candidate, int], float] | None,
) -> Row:
    """The row of a span; its evidence is that of its first searched size (its first size, if it has none)."""
    inside = [one for one in span.confirmed if one.message_bytes < max_bytes]
    shown = next((one for one in inside if one.searched), inside[0])
    comparison = shown.comparison
    taken = conditions.get((shown.message_bytes, span.candidate))
    evidence = Evidence(
        median_s=comparison.median_s,
        default_median_s=comparison.default_median_s,
        ratio=comparison.ratio,
        ratio_ci=(comparison.low, comparison.high),
        num_samples=comparison.num_rounds,
        measured_bytes=shown.message_bytes,
        predicted_s=predicted_s(span.candidate, shown.message_bytes) if predicted_s else None,
        confirmed_bytes=tuple(one.message_bytes for one in span.confirmed),
        backward_ratio_ci=(taken.backward.low, taken.backward.high) if taken else None,
        busy_ratio=taken.busy_ratio if taken else None,
    )
    return held_against(
        limit,
        Row(
            min_bytes=span.first_bytes,
            max_bytes=max_bytes,
            algorithm=span.candidate.algorithm,
            params=span.candidate.params,
            no_bound_reason=limit.no_bound_reason,
            evidence=evidence,
        ),
    )


def _default_rows(
    min_bytes: int,
    max_bytes: int | None,
    defaults: Mapping[int, DefaultTime],
    limit: Limit,
    predicted_s: Callable[[Candidate, int], float] | None,
) -> list[Row]:
    """Default rows that tile a range, beginning anew at each searched size in it."""
    if min_bytes == max_bytes:
        return []
    inside = [
        size for size in sorted(defaults) if size >= min_bytes and (max_bytes is None or size < max_bytes)
    ]
    starts = sorted({min_bytes, *inside})
    rows = []
    for start, end in zip(starts, [*starts[1:], max_bytes], strict=True):
        row = Row(
            min_bytes=start,
            max_bytes=end,
            algorithm=DEFAULT.algorithm,
            bottleneck=limit.bottleneck,
            no_bound_reason=limit.no_bound_reason or "not measured in this range",
        )
        if start in defaults:
            own = defaults[start]
            evidence = Evidence(
                median_s=own.median_s,
                default_median_s=own.median_s,
                ratio=1.0,
                ratio_ci=_EXACT,
                num_samples=own.num_samples,
                measured_bytes=start,
                # A single rank exchanges nothing, and has no prediction: its 0 s is none.
                predicted_s=(predicted_s(DEFAULT, start) or None) if predicted_s else None,
            )
            row = held_against(limit, replace(row, evidence=evidence))
        rows.append(row)
    return rows


def held_against(limit: Limit, row: Row) -> Row:
    """The row with its share of the optimum at its evidence's size, where there is a bound and a time."""
    if limit.time_s is None or row.evidence is None:
        return row
    optimum_s = limit.time_s(row.evidence.measured_bytes)
    return replace(
        row,
        percent_of_optimum=100 * optimum_s / row.evidence.median_s,
        bottleneck=limit.bottleneck,
        no_bound_reason=None,
    )


def _joined(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Default rows without evidence join their default neighbour."""
    joined: list[Row] = []
    for row in rows:
        before = joined[-1] if joined else None
        both_default = before is not None and before.algorithm == row.algorithm == DEFAULT.algorithm
        if before is not None and both_default and (before.evidence is None or row.evidence is None):
            told = before if before.evidence is not None else row
            joined[-1] = replace(told, min_bytes=before.min_bytes, max_bytes=row.max_bytes)
        else:
            joined.append(row)
    return tuple(joined)

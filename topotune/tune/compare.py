"""The plan against the default, now: paired, interleaved, on fresh samples.

Theory of operation. Rows are compared as confirmation does it, in passes on new connections, with intervals
that hold all at once (Bonferroni). Where the plan's row is the default, both arms send over the same
connections: there nothing but the dispatch between them can differ, and luck of connections must not. A row
of NCCL's own settings acts in a job through NCCL's tuner interface, whatever group calls; what stands for it
here is a communicator that was told the setting, which NCCL's log has to confirm, as in tuning. A size where
the plan seems slower is measured a second time on fresh samples and connections, and its interval is the
hull of both: "slower" ends scripts, so it has to be seen twice; of a training step, too
(`topotune.tune.step_compare`). Several launches are several looks already: they are judged together
(`topotune.tune.launches`).

schema_version history of ``topotune/comparison``: 1 is the first.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np

from topotune.errors import WrongResultError
from topotune.plan.describe import SLOWER
from topotune.plan.model import DEFAULT_ALGORITHM, Row
from topotune.plan.nccl import NCCL
from topotune.tune.blocks import hull_of_looks
from topotune.tune.confirm import confirm
from topotune.tune.consistency import PLAN, times_of, violations
from topotune.tune.diagnosis import dropped_warnings, look_at, sample_warnings, seen_in
from topotune.tune.judge import CONFIDENCE, PASSES, Confirmation, Point
from topotune.tune.options import DEFAULT_SIZES, CompareOptions
from topotune.tune.points import ELEMENT_BYTES, odd_between
from topotune.tune.sampling import Sampling
from topotune.tune.statistics import Comparison, corrected, minimum_rounds
from topotune.tune.trial import DEFAULT, PLANNED, WRAPPED, Candidate
from topotune.units import format_bytes

SCHEMA: Final = "topotune/comparison"
SCHEMA_VERSION: Final = 1

FASTER = 1.02
"""An interval wholly above the first is faster, wholly below the second slower, anything else the same."""

Verdict = Literal["faster", "slower", "same"]

OnCompared = Callable[[str, Sequence[Confirmation]], None]
"""Gets what was measured of a table, with its samples: its number ("" for the world's allreduce), and all
sizes."""

WORLD_TABLE: Final = ""
"""The name of the allreduce over all ranks."""

_MOST_ROUNDS: Final = 60
_OVERHEAD: Final = 1.45
_FIRST_GUESS_S: Final = 0.01
_LARGEST_SHARE: Final = 0.25
"""A size of our own choosing whose fewest rounds would take more of the budget than this is left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonRow:
    """One message size.

    Attributes:
        message_bytes: buffer on each rank.
        default_median_s: ``dist.all_reduce`` on a raw group.
        plan_median_s: ``dist.all_reduce`` on the ``topotune`` group under the plan, dispatch included.
        ratio: default / plan.
        ratio_ci: its interval; those of all rows together hold with 95 %.
        num_samples: per arm.
        verdict: ``faster`` if low > 1.02, ``slower`` if high < 0.98, else ``same``.
        algorithm: what the plan uses at this size.
        outlier_share: of the samples of both arms, beyond Tukey's fences; none was removed.
        autocorrelation: of the default's samples, each with the one before it.
        two_modes: whether either arm's times have two modes.
    """

    message_bytes: int
    default_median_s: float
    plan_median_s: float
    ratio: float
    ratio_ci: tuple[float, float]
    num_samples: int
    verdict: Verdict
    algorithm: str
    outlier_share: float
    autocorrelation: float
    two_modes: bool


def verdict_of(low: float, high: float) -> Verdict:
    """What an interval of default / plan says."""
    if low > FASTER:
        return "faster"
    return "slower" if high < SLOWER else "same"


def sizes_to_compare(rows: Sequence[Row]) -> tuple[int, ...]:
    """The usual sizes, and both ends and the middle of every row that is not default; ascending.

    The middle is an odd number of elements. An end where the same algorithm goes on is none.
    """
    sizes = set(DEFAULT_SIZES)
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        if row.algorithm == DEFAULT_ALGORITHM or row.max_bytes is None:
            continue
        first = max(ELEMENT_BYTES, -(-row.min_bytes // ELEMENT_BYTES) * ELEMENT_BYTES)
        last = (row.max_bytes - 1) // ELEMENT_BYTES * ELEMENT_BYTES
        if last < first:
            continue
        goes_on = following is not None and (following.algorithm, following.params) == (
            row.algorithm,
            row.params,
        )
        middle = odd_between(first, last) if first < last else None
        sizes.update(size for size in (first, middle, None if goes_on else last) if size is not None)
    return tuple(sorted(sizes))


def arm_of(row: Row) -> Candidate:
    """What is timed for a row: the group under the plan, or a communicator of NCCL's own settings."""
    return Candidate.of(row.algorithm, row.params) if row.algorithm == NCCL else PLANNED


def compare_plan(
    sampling: Sampling,
    rows: Sequence[Row],
    options: CompareOptions,
    *,
    algorithm_at: Callable[[int], str],
    arm_at: Callable[[int], Candidate] = lambda _message_bytes: PLANNED,
    on_compared: Callable[[Sequence[Confirmation]], None] = lambda _found: None,
) -> tuple[list[ComparisonRow], list[str]]:
    """Compare at each size; the rows, ascending, and warnings.

    Args:
        sampling: where samples come from; its clock started when the ranks joined.
        rows: the plan's table for these ranks.
        options: sizes, budget, seed.
        algorithm_at: what the plan uses at a size.
        arm_at: what is timed for the plan at a size (`arm_of`).
        on_compared: gets what was measured, with its samples.

    Raises:
        WrongResultError: the plan computes something else than an allreduce, or NCCL runs something else.
    """
    sizes = options.sizes or sizes_to_compare(rows)
    warnings: list[str] = []
    costs: dict[int, float] = {}
    calls: dict[int, float] = {}
    baselines: dict[int, Candidate] = {}
    fewest = minimum_rounds(corrected(CONFIDENCE, len(sizes))) + 2
    for size in sizes:
        # Half of proportional growth, as small sizes cost latency; a plan's rows may end at any size.
        growth_s = max((costs[one] * size / one / 2 for one in list(costs)[-1:]), default=0.0)
        if options.sizes is None and fewest * growth_s > _LARGEST_SHARE * options.budget_s:
            warnings.append(_left_out(size, options.budget_s))
            break
        planned = arm_at(size)
        problem = sampling.check(planned, size)
        if problem is not None:
            raise WrongResultError(f"{format_bytes(size)} by {algorithm_at(size)}: {problem}")
        baseline = baselines[size] = WRAPPED if algorithm_at(size) == DEFAULT_ALGORITHM else DEFAULT
        times_s = sampling.rounds(
            "pilot", size, (baseline, planned), 2, first_guess_s=max(_FIRST_GUESS_S, *calls.values(), 0.0)
        )
        costs[size] = _OVERHEAD * float(np.sum(np.median(times_s, axis=0)))
        calls[size] = float(np.max(times_s))
        if options.sizes is None and fewest * costs[size] > _LARGEST_SHARE * options.budget_s:
            del costs[size]
            warnings.append(_left_out(size, options.budget_s))
            break
    # Each size gets the same time, but what small sizes cannot use falls to the larger ones.
    left_s = options.budget_s - sampling.now_s() - (PASSES - 1) * sum(costs.values())
    points: list[Point] = []
    for position, size in enumerate(sorted(costs, key=lambda one: costs[one])):
        share_s = max(0.0, left_s) / (len(costs) - position)
        num_rounds = min(_MOST_ROUNDS, max(fewest, math.floor(share_s / costs[size])))
        left_s -= num_rounds * costs[size]
        points.append(
            Point(
                message_bytes=size,
                candidates=(arm_at(size),),
                searched=True,
                num_rounds=num_rounds,
                round_s=costs[size],
                call_s=calls[size],
                baseline=baselines[size],
            )
        )
    points.sort(key=lambda point: point.message_bytes)
    found = _measured(points, sampling, options)
    slower = {
        one.message_bytes for one in found if verdict_of(one.comparison.low, one.comparison.high) == "slower"
    }
    if slower:
        again = [point for point in points if point.message_bytes in slower]
        sampling.renew()
        seen_twice = {one.message_bytes: one for one in _measured(again, sampling, options, len(points))}
        found = [_joined(one, seen_twice.get(one.message_bytes)) for one in found]
    warnings.extend(dropped_warnings(sampling.dropped, sampling.taken))
    warnings.extend(sample_warnings(seen_in(found)))
    timed = times_of(found, lambda _one: PLAN)
    warnings.extend(violations(timed, partial(_proven_s, rows), planned=timed.get(PLAN, {})))
    on_compared(found)
    return [_row(one, algorithm_at(one.message_bytes)) for one in found], warnings


def comparison_to_document(
    rows: Sequence[ComparisonRow],
    *,
    num_ranks: int,
    plan: str,
    warnings: Sequence[str],
    num_dropped: int = 0,
    step: Mapping[str, Any] | None = None,
    tables: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The JSON document of one launch.

    Args:
        rows: ascending.
        num_ranks: of the group.
        plan: where the plan came from.
        warnings: one line each.
        num_dropped: samples of the rows that do not count, because a rank missed the common start.
        step: a training step under the plan against one without; None where none was compared.
        tables: of other collectives and groups, each with its ``rows``.
    """
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "plan": plan,
        "num_ranks": num_ranks,
        "confidence": CONFIDENCE,
        "correction": "bonferroni",
        "num_launches": 1,
        "num_dropped": num_dropped,
        "rows": [row_to_json(row) for row in rows],
        "warnings": list(warnings),
    }
    if step is not None:
        document["step"] = dict(step)
    if tables:
        document["tables"] = [dict(table) for table in tables]
    return document


def joined_document(
    documents: Sequence[Mapping[str, Any]],
    found: Mapping[str, Sequence[Confirmation]],
    step: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The JSON document of several launches.

    Args:
        documents: of each launch, the first first.
        found: over all of them, by table (in the order of the first document's) and size.
        step: over all of them; None where none was compared.
    """
    first = dict(documents[0])
    said = [line for document in documents for line in document["warnings"]]
    warnings = []
    for line in dict.fromkeys(said):
        in_launches = [
            number for number, document in enumerate(documents, start=1) if line in document["warnings"]
        ]
        of_all = len(in_launches) == len(documents)
        warnings.append(line if of_all else f"launch {', '.join(map(str, in_launches))}: {line}")
    if "tables" in first:
        numbers = [number for number in found if number != WORLD_TABLE]
        first["tables"] = [
            {**table, "rows": _joined_rows(table["rows"], found[number])}
            for number, table in zip(numbers, first["tables"], strict=True)
        ]
    if step is not None:
        first["step"] = dict(step)
    return {
        **first,
        "num_launches": len(documents),
        "num_dropped": sum(document["num_dropped"] for document in documents),
        "rows": _joined_rows(first["rows"], found[WORLD_TABLE]),
        "warnings": warnings,
    }


def _joined_rows(
    of_first: Sequence[Mapping[str, Any]], found: Sequence[Confirmation]
) -> list[dict[str, Any]]:
    algorithms = {row["message_bytes"]: row["algorithm"] for row in of_first}
    return [row_to_json(_row(one, algorithms[one.message_bytes])) for one in found]


def row_to_json(row: ComparisonRow) -> dict[str, Any]:
    """One size as it stands in the document."""
    return {**asdict(row), "ratio_ci": list(row.ratio_ci)}


def _left_out(size: int, budget_s: float) -> str:
    return (
        f"{format_bytes(size)} and more were left out: they take too much of {budget_s:g} s; "
        "--sizes or a larger --budget brings them in"
    )


def _proven_s(rows: Sequence[Row], message_bytes: int) -> float:
    """What the plan's bound leaves no message of this size to be faster than: the optimum of smaller ones."""
    return max(
        (
            row.evidence.median_s * row.percent_of_optimum / 100
            for row in rows
            if row.evidence is not None
            and row.percent_of_optimum is not None
            and row.evidence.measured_bytes <= message_bytes
        ),
        default=0.0,
    )


def _measured(
    points: Sequence[Point], sampling: Sampling, options: CompareOptions, num_comparisons: int | None = None
) -> list[Confirmation]:
    return confirm(
        points,
        sampling,
        min_gain=FASTER - 1,
        seed=options.seed,
        deadline_s=math.inf,
        correction="bonferroni",
        num_comparisons=num_comparisons,
    )


def _joined(first: Confirmation, second: Confirmation | None) -> Confirmation:
    """Both measurements of a size: medians of all samples, and the hull of the intervals."""
    if second is None:
        return first
    blocks = (*first.blocks, *second.blocks)
    return replace(
        first, comparison=hull_of_looks((first.comparison, second.comparison), blocks), blocks=blocks
    )


def _row(found: Confirmation, algorithm: str) -> ComparisonRow:
    comparison: Comparison = found.comparison
    default, planned = (look_at(np.concatenate(parts)) for parts in zip(*found.blocks, strict=True))
    return ComparisonRow(
        message_bytes=found.message_bytes,
        default_median_s=comparison.default_median_s,
        plan_median_s=comparison.median_s,
        ratio=comparison.ratio,
        ratio_ci=(comparison.low, comparison.high),
        num_samples=comparison.num_rounds,
        verdict=verdict_of(comparison.low, comparison.high),
        algorithm=algorithm,
        outlier_share=comparison.outlier_share,
        autocorrelation=default.autocorrelation,
        two_modes=default.modes is not None or planned.modes is not None,
    )

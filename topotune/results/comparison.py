"""Reading what ``topotune compare`` writes (``topotune/comparison``)."""

from dataclasses import dataclass
from typing import Final

from topotune.documents import Value, document_of
from topotune.plan.model import COLLECTIVES
from topotune.plan.rules import MAX_GROUPS
from topotune.results.fields import maybe, needed, seconds, warnings_of, words
from topotune.step.gradients import MAX_GRADIENT_BYTES, MAX_GRADIENTS
from topotune.step.timeline import Timeline
from topotune.units import MAX_MESSAGE_BYTES

SCHEMA: Final = "topotune/comparison"
SCHEMA_VERSION: Final = 1
_MAX_ROWS: Final = 10_000
_MAX_TABLES: Final = MAX_GROUPS * len(COLLECTIVES)
_MAX_RATIO: Final = 1e9
_VERDICTS: Final = ("faster", "slower", "same")


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedSize:
    """The plan against the default at one message size.

    Attributes:
        message_bytes: buffer on each rank.
        default_median_s, plan_median_s: medians of both.
        ratio: default / plan.
        ratio_ci: its interval; those of all sizes together hold with the comparison's confidence.
        num_samples: per arm.
        verdict: ``faster``, ``slower`` or ``same``.
        algorithm: what the plan uses at this size; "" where that is not said.
    """

    message_bytes: int
    default_median_s: float
    plan_median_s: float
    ratio: float
    ratio_ci: tuple[float, float]
    num_samples: int
    verdict: str
    algorithm: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedTable:
    """Another collective, or the groups of a job's mesh, under the plan against the default.

    Attributes:
        collective: ``allreduce``, ``reduce_scatter`` or ``allgather``.
        group: its name; ``world`` for all ranks.
        num_ranks: of one such group.
        sizes: ascending.
    """

    collective: str
    group: str
    num_ranks: int
    sizes: tuple[ComparedSize, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedStep:
    """A training step under the plan against one without, measured; and when the model sends its buckets.

    Attributes:
        default_median_s, plan_median_s: medians of both.
        ratio: default / plan.
        ratio_ci: its interval.
        num_samples: per arm.
        verdict: ``faster``, ``slower`` or ``same``.
        gradients: whose step it was, in words.
        compute: what stood for the backward's computing; "" where that is not said.
        default_layout_bytes, plan_layout_bytes: the buckets that DDP made, in the order of sending.
        default_timeline, plan_timeline: of the model; None where it has none.
        bound: what bounds the step without the plan, in words; None where that is not known.
    """

    default_median_s: float
    plan_median_s: float
    ratio: float
    ratio_ci: tuple[float, float]
    num_samples: int
    verdict: str
    gradients: str
    compute: str = ""
    default_layout_bytes: tuple[int, ...] = ()
    plan_layout_bytes: tuple[int, ...] = ()
    default_timeline: Timeline | None = None
    plan_timeline: Timeline | None = None
    bound: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A plan against the default.

    Attributes:
        plan: where the plan came from.
        num_ranks: of the group.
        confidence: of the intervals of all sizes of a table together (0.95).
        sizes: of the allreduce over all ranks, ascending.
        tables: of other collectives and of groups.
        step: of training; None where none was compared.
        warnings: one line each.
    """

    plan: str
    num_ranks: int
    confidence: float
    sizes: tuple[ComparedSize, ...]
    tables: tuple[ComparedTable, ...] = ()
    step: ComparedStep | None = None
    warnings: tuple[str, ...] = ()


def comparison_of(value: Value) -> Comparison:
    """A comparison from a document of unknown origin.

    Raises:
        InputFileError: no comparison, a newer version, or a value missing or out of bounds.
    """
    document = document_of(value, SCHEMA, SCHEMA_VERSION)
    return Comparison(
        plan=needed(document, "plan").text(),
        num_ranks=needed(document, "num_ranks").integer(1, 2**31),
        confidence=maybe(document, "confidence", lambda one: one.number(0, 1)) or 0.95,
        sizes=_sizes(needed(document, "rows")),
        tables=maybe(document, "tables", _tables) or (),
        step=maybe(document, "step", _step),
        warnings=warnings_of(document),
    )


def _tables(listed: Value) -> tuple[ComparedTable, ...]:
    return tuple(
        ComparedTable(
            collective=needed(one, "collective").text(one_of=COLLECTIVES),
            group=needed(one, "group").text(),
            num_ranks=needed(one, "num_ranks").integer(1, 2**31),
            sizes=_sizes(needed(one, "rows")),
        )
        for one in listed.items(_MAX_TABLES, what="tables")
    )


def _sizes(rows: Value) -> tuple[ComparedSize, ...]:
    sizes = [_size(row) for row in rows.items(_MAX_ROWS, what="rows")]
    return tuple(sorted(sizes, key=lambda size: size.message_bytes))


def _size(row: Value) -> ComparedSize:
    return ComparedSize(
        message_bytes=needed(row, "message_bytes").integer(1, MAX_MESSAGE_BYTES),
        default_median_s=seconds(needed(row, "default_median_s")),
        plan_median_s=seconds(needed(row, "plan_median_s")),
        ratio=needed(row, "ratio").number(0, _MAX_RATIO),
        ratio_ci=needed(row, "ratio_ci").interval(0, _MAX_RATIO),
        num_samples=needed(row, "num_samples").integer(),
        verdict=needed(row, "verdict").text(one_of=_VERDICTS),
        algorithm=maybe(row, "algorithm", lambda one: one.text()) or "",
    )


def _step(step: Value) -> ComparedStep:
    return ComparedStep(
        default_median_s=seconds(needed(step, "default_median_s")),
        plan_median_s=seconds(needed(step, "plan_median_s")),
        ratio=needed(step, "ratio").number(0, _MAX_RATIO),
        ratio_ci=needed(step, "ratio_ci").interval(0, _MAX_RATIO),
        num_samples=needed(step, "num_samples").integer(),
        verdict=needed(step, "verdict").text(one_of=_VERDICTS),
        gradients=words(needed(step, "gradients")),
        compute=maybe(step, "compute", words) or "",
        default_layout_bytes=maybe(step, "default_layout_bytes", _layout) or (),
        plan_layout_bytes=maybe(step, "plan_layout_bytes", _layout) or (),
        default_timeline=maybe(step, "default_timeline", _timeline),
        plan_timeline=maybe(step, "plan_timeline", _timeline),
        bound=maybe(step, "bound", lambda one: words(needed(one, "text"))),
    )


def _layout(layout: Value) -> tuple[int, ...]:
    return tuple(one.integer(1, MAX_GRADIENT_BYTES) for one in layout.items(MAX_GRADIENTS, what="buckets"))


def _timeline(timeline: Value) -> Timeline:
    buckets = needed(timeline, "buckets").items(MAX_GRADIENTS, min_items=1, what="buckets")

    def column(key: str) -> tuple[float, ...]:
        return tuple(seconds(needed(bucket, key), above=False) for bucket in buckets)

    found = Timeline(
        sizes=tuple(needed(bucket, "num_bytes").integer(1, MAX_GRADIENT_BYTES) for bucket in buckets),
        complete_s=column("complete_s"),
        starts_s=column("start_s"),
        ends_s=column("end_s"),
        backward_s=seconds(needed(timeline, "backward_s")),
    )
    for bucket, start_s, end_s in zip(buckets, found.starts_s, found.ends_s, strict=True):
        if end_s < start_s:
            bucket.fail(f"ends at {end_s:g} s, before it starts at {start_s:g} s")
    return found

"""Reading what ``topotune compare`` writes (``topotune/comparison``)."""

from dataclasses import dataclass
from typing import Final

from topotune.documents import Value, document_of
from topotune.results.fields import maybe, needed, seconds, warnings_of
from topotune.units import MAX_MESSAGE_BYTES

SCHEMA: Final = "topotune/comparison"
SCHEMA_VERSION: Final = 1
_MAX_ROWS: Final = 10_000
_MAX_RATIO: Final = 1e9


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
class Comparison:
    """A plan against the default.

    Attributes:
        plan: where the plan came from.
        num_ranks: of the group.
        confidence: of the intervals of all sizes together (0.95).
        sizes: ascending.
        warnings: one line each.
    """

    plan: str
    num_ranks: int
    confidence: float
    sizes: tuple[ComparedSize, ...]
    warnings: tuple[str, ...] = ()


def comparison_of(value: Value) -> Comparison:
    """A comparison from a document of unknown origin.

    Raises:
        InputFileError: no comparison, a newer version, or a value missing or out of bounds.
    """
    document = document_of(value, SCHEMA, SCHEMA_VERSION)
    sizes = [_size(row) for row in needed(document, "rows").items(_MAX_ROWS, what="rows")]
    return Comparison(
        plan=needed(document, "plan").text(),
        num_ranks=needed(document, "num_ranks").integer(1, 2**31),
        confidence=maybe(document, "confidence", lambda one: one.number(0, 1)) or 0.95,
        sizes=tuple(sorted(sizes, key=lambda size: size.message_bytes)),
        warnings=warnings_of(document),
    )


def _size(row: Value) -> ComparedSize:
    return ComparedSize(
        message_bytes=needed(row, "message_bytes").integer(1, MAX_MESSAGE_BYTES),
        default_median_s=seconds(needed(row, "default_median_s")),
        plan_median_s=seconds(needed(row, "plan_median_s")),
        ratio=needed(row, "ratio").number(0, _MAX_RATIO),
        ratio_ci=needed(row, "ratio_ci").interval(0, _MAX_RATIO),
        num_samples=needed(row, "num_samples").integer(),
        verdict=needed(row, "verdict").text(one_of=("faster", "slower", "same")),
        algorithm=maybe(row, "algorithm", lambda one: one.text()) or "",
    )

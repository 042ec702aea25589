"""What a job exchanges in a step: its gradients in the order in which the backward makes them.

    topotune record -- python train.py      writes one, from a job
    topotune.record(model)                  the same from inside

Nothing of the job's data is in it: sizes, types, times. It comes from outside as any other file, so reading
bounds everything. schema_version history of ``topotune/gradients``: 1 is the first.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final

from topotune.documents import Value, document_of, parse_json, read_bytes
from topotune.errors import InputFileError
from topotune.units import format_bytes, format_seconds

SCHEMA: Final = "topotune/gradients"
SCHEMA_VERSION: Final = 1

MAX_GRADIENTS: Final = 2**16
MAX_GRADIENT_BYTES: Final = 2**40
MAX_BACKWARD_S: Final = 86_400.0
MAX_STEPS: Final = 2**20
MAX_WARNINGS: Final = 64

ELEMENT_BYTES: Final = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Types of gradients that DDP reduces, by torch's name → bytes of an element."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradient:
    """One parameter's gradient.

    Attributes:
        num_bytes: of the gradient on each rank, above 0; whole elements.
        dtype: torch's name of its type: float64, float32, float16 or bfloat16.
        ready_s: from the start of the backward until it is there.
    """

    num_bytes: int
    dtype: str
    ready_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradients:
    """All gradients of a step, in the order in which they become ready.

    Attributes:
        gradients: in order; ``ready_s`` never falls and never passes ``backward_s``.
        backward_s: from the start of the backward to its end, without any exchange.
        timed: whether the times were measured. Else only their proportions mean anything, and ``backward_s``
            is 1.
        source: where it comes from, in words.
        num_steps: backwards that the times are medians of; 0 where nothing was measured.
        definition_order: indices of the gradients in the order in which the model defines their parameters,
            where the job's DDP keeps buckets by that order (``find_unused_parameters`` without a static
            graph); None where it puts them into buckets as they become ready.
        warnings: one line each.

    Raises:
        ValueError: no gradients, times out of order, or an order that has not each gradient once.
    """

    gradients: tuple[Gradient, ...]
    backward_s: float
    timed: bool
    source: str
    num_steps: int = 0
    definition_order: tuple[int, ...] | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem is not None:
            raise ValueError("{}: {}".format(*problem))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each."""
        return tuple(gradient.num_bytes for gradient in self.gradients)

    @property
    def total_bytes(self) -> int:
        """Bytes of all."""
        return sum(self.sizes)

    @property
    def ready_s(self) -> tuple[float, ...]:
        """When each is ready."""
        return tuple(gradient.ready_s for gradient in self.gradients)

    def with_backward(self, backward_s: float) -> "Gradients":
        """The same with a backward of this length, all times in proportion."""
        scale = backward_s / self.backward_s
        return replace(
            self,
            gradients=tuple(
                replace(one, ready_s=min(backward_s, one.ready_s * scale)) for one in self.gradients
            ),
            backward_s=backward_s,
            timed=True,
        )

    def in_words(self) -> str:
        """One line: what they are."""
        count = len(self.gradients)
        backward = f", backward {format_seconds(self.backward_s)}" if self.timed else ""
        plural = "s" if count > 1 else ""
        kept = ", buckets in the order of definition" if self.definition_order is not None else ""
        return f"{self.source}: {count} gradient{plural}, {format_bytes(self.total_bytes)}{backward}{kept}"


def gradients_to_document(gradients: Gradients) -> dict[str, Any]:
    """The JSON document."""
    document = asdict(gradients)
    document["gradients"] = [asdict(one) for one in gradients.gradients]
    document["warnings"] = list(gradients.warnings)
    if gradients.definition_order is None:
        del document["definition_order"]
    else:
        document["definition_order"] = list(gradients.definition_order)
    return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **document}


def load_gradients(path: str | os.PathLike[str]) -> Gradients:
    """Read a list of gradients from a file.

    Raises:
        InputFileError: the file cannot be read, is no such document, or breaks a rule.
    """
    return _gradients_of(parse_json(read_bytes(path), os.fspath(path)))


def gradients_from_document(document: dict[str, Any], source: str) -> Gradients:
    """The gradients of a parsed document.

    Args:
        document: JSON values.
        source: names it in errors.

    Raises:
        InputFileError: it is no such document, or breaks a rule.
    """
    return _gradients_of(Value(document, "", source, InputFileError))


def _gradients_of(value: Value) -> Gradients:
    document = document_of(value, SCHEMA, SCHEMA_VERSION)
    members = document.members(
        ("schema", "schema_version", "gradients", "backward_s", "timed", "source"),
        ("num_steps", "definition_order", "warnings"),
    )
    gradients = tuple(_gradient_of(item) for item in members["gradients"].items(MAX_GRADIENTS, min_items=1))
    texts = members["warnings"].items(MAX_WARNINGS) if "warnings" in members else []
    backward_s = members["backward_s"].number(0.0, MAX_BACKWARD_S, above=True)
    disorder = _disorder(gradients, backward_s)
    if disorder is not None:
        document.fail(
            disorder[1], inside=disorder[0], hint="list gradients in the order in which they become ready"
        )
    order = None
    if "definition_order" in members and members["definition_order"].raw is not None:
        places = members["definition_order"].items(MAX_GRADIENTS)
        order = tuple(place.integer(0, len(gradients) - 1) for place in places)
        if (problem := _not_each_once(order, len(gradients))) is not None:
            members["definition_order"].fail(problem)
    return Gradients(
        gradients=gradients,
        backward_s=backward_s,
        timed=members["timed"].boolean(),
        source=members["source"].text(max_length=200),
        num_steps=members["num_steps"].integer(0, MAX_STEPS) if "num_steps" in members else 0,
        definition_order=order,
        warnings=tuple(text.text() for text in texts),
    )


def _gradient_of(value: Value) -> Gradient:
    members = value.members(("num_bytes", "dtype", "ready_s"))
    dtype = members["dtype"].text(max_length=20, one_of=tuple(ELEMENT_BYTES))
    num_bytes = members["num_bytes"].integer(1, MAX_GRADIENT_BYTES)
    if num_bytes % ELEMENT_BYTES[dtype]:
        members["num_bytes"].fail(f"is {num_bytes}, not a whole number of elements of {dtype}")
    return Gradient(num_bytes=num_bytes, dtype=dtype, ready_s=members["ready_s"].number(0.0, MAX_BACKWARD_S))


def _problem(gradients: Gradients) -> tuple[str, str] | None:
    if not gradients.gradients:
        return "gradients", "there are none"
    for index, one in enumerate(gradients.gradients):
        if one.num_bytes <= 0 or one.num_bytes % ELEMENT_BYTES[one.dtype]:
            return f"gradients[{index}].num_bytes", f"is {one.num_bytes}"
    if not 0 < gradients.backward_s <= MAX_BACKWARD_S:
        return "backward_s", f"is {gradients.backward_s:g}"
    if gradients.definition_order is not None:
        problem = _not_each_once(gradients.definition_order, len(gradients.gradients))
        if problem is not None:
            return "definition_order", problem
    return _disorder(gradients.gradients, gradients.backward_s)


def _not_each_once(order: Sequence[int], count: int) -> str | None:
    """What is wrong with an order of so many gradients."""
    if len(order) == count and sorted(order) == list(range(count)):
        return None
    return f"has {len(order)} indices, {len(set(order))} of them different, of {count} gradients"


def _disorder(gradients: Sequence[Gradient], backward_s: float) -> tuple[str, str] | None:
    """The first time that is out of order, and why."""
    for index, (before, after) in enumerate(pairwise(gradients), start=1):
        if after.ready_s < before.ready_s:
            return (
                f"gradients[{index}].ready_s",
                f"is {after.ready_s:g}, before the {before.ready_s:g} of the gradient ahead of it",
            )
    if gradients[-1].ready_s > backward_s:
        last = len(gradients) - 1
        return (
            f"gradients[{last}].ready_s",
            f"is {gradients[-1].ready_s:g}, after the backward's end at {backward_s:g}",
        )
    return None

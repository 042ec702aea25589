"""JSON Schemas of topotune's documents (draft 2020-12), made from the classes that have their fields.

The classes are the one source: types, defaults and docstrings become the schema. What a class cannot say
(constants, signs, lengths) is added here. A schema accepts all that topotune reads; not all that it accepts
is read, since rules between fields (`topotune.plan.rules`, `topotune.schedule.verify`) have no place in it.
"""

import inspect
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from pydantic import TypeAdapter

from topotune.lab.profile import LabNode, LabRack
from topotune.plan.algorithms import ALGORITHMS
from topotune.plan.rules import MAX_GROUPS, MAX_ROWS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_STRICT = {"plan", "schedule", "lab", "profile", "gradients"}
"""Kinds whose readers refuse unknown keys."""
_ABSENT_NOT_NULL = {"allreduce", "reduce_scatter", "allgather"}


@dataclass(frozen=True, kw_only=True)
class ScheduleDocument:
    """An allreduce as columns of transfers, for any message size.

    Attributes:
        algorithm: name in the catalogue.
        num_ranks: n.
        chunk_bounds: cumulative numerators of the chunks' ends over the last of them, from 0.
        step: of each transfer; steps of one channel run in order.
        channel: independent lanes.
        src: rank that sends.
        dst: rank that receives.
        chunk: what is sent.
        op: 0: the receiver replaces its chunk; 1: it combines it with its own.
        params: what the generator was given.
        servers: ranks that add for the others, own no part and need no result.
    """

    algorithm: str
    num_ranks: int
    chunk_bounds: list[int]
    step: list[int]
    channel: list[int]
    src: list[int]
    dst: list[int]
    chunk: list[int]
    op: list[Literal[0, 1]]
    params: dict[str, Any] = field(default_factory=dict)
    servers: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LabDocument:
    """An emulated cluster.

    Attributes:
        nodes: its hosts.
        racks: where there are any, each node names one.
        burst_bytes: what the token bucket of each link lets pass at once.
        placement: how ranks are dealt to nodes.
        latency_s: of every link that says nothing else.
    """

    nodes: list[LabNode]
    racks: list[LabRack] = field(default_factory=list)
    burst_bytes: int = 32768
    placement: Literal["block", "round-robin"] = "block"
    latency_s: float = 0.0


def build_json_schema(name: str, class_path: str) -> dict[str, Any]:
    """The schema of a kind of document.

    Args:
        name: ``plan``, ….
        class_path: ``module:Class``.
    """
    module_name, _, class_name = class_path.partition(":")
    module = import_module(module_name)
    cls = getattr(module, class_name)
    schema = TypeAdapter(cls).json_schema()
    definitions = schema.get("$defs", {})
    for title, part in (*definitions.items(), (class_name, schema)):
        _describe(part, getattr(module, title, None), strict=name in _STRICT)
    if name == "plan":
        _constrain_plan(schema)
    return {
        "$schema": _DIALECT,
        "title": f"topotune/{name}",
        "description": schema.get("description", ""),
        "type": "object",
        "properties": {
            "schema": {"const": f"topotune/{name}"},
            "schema_version": {"const": 1},
            **schema["properties"],
        },
        "required": ["schema", "schema_version", *schema.get("required", [])],
        **({"additionalProperties": False} if name in _STRICT else {}),
        "$defs": definitions,
    }


def _describe(part: dict[str, Any], cls: type | None, *, strict: bool) -> None:
    """Words from the class's docstring; no titles, which only repeat the names."""
    part.pop("title", None)
    texts = attribute_texts(cls) if cls is not None else {}
    if cls is not None:
        part["description"] = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    for name, entry in part.get("properties", {}).items():
        entry.pop("title", None)
        if name in texts:
            entry["description"] = texts[name]
    if strict and "properties" in part:
        part["additionalProperties"] = False


def attribute_texts(cls: type) -> dict[str, str]:
    """Name → text of the ``Attributes`` section of a class's docstring."""
    section = re.search(r"^Attributes:\n((?: .*\n?|\n)+)", inspect.getdoc(cls) or "", re.MULTILINE)
    texts: dict[str, str] = {}
    if section:
        for entry in re.split(r"\n(?=    \w)", section[1].rstrip("\n")):
            names, _, text = entry.strip().partition(":")
            for name in names.split(", "):
                texts[name] = re.sub(r"\s+", " ", text).strip()
    return texts


def _constrain_plan(schema: dict[str, Any]) -> None:
    """What the plan's reader demands of single values: no number below 0, known algorithms, bounded lists."""
    definitions = schema["$defs"]
    for part in (schema, *definitions.values()):
        _no_negative_numbers(part.get("properties", {}))
    for name in _ABSENT_NOT_NULL:
        table = definitions["Group"]["properties"][name]
        array = next(choice for choice in table.pop("anyOf") if choice.get("type") == "array")
        table.pop("default", None)
        table.update(array, minItems=1, maxItems=MAX_ROWS)
    definitions["Row"]["properties"]["algorithm"]["enum"] = list(ALGORITHMS)
    schema["properties"]["groups"].update(minItems=1, maxItems=MAX_GROUPS)


def _no_negative_numbers(node: Any) -> None:
    if isinstance(node, dict):
        if node.get("type") in ("integer", "number"):
            node["minimum"] = 0
        for value in node.values():
            _no_negative_numbers(value)
    elif isinstance(node, list):
        for value in node:
            _no_negative_numbers(value)

"""Writing a plan: the one JSON form of each plan. Standard library only."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

from topotune.documents import document_text
from topotune.plan.model import COLLECTIVES, SCHEMA, SCHEMA_VERSION, Certificate, Group, Plan


def plan_to_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON knows it: dicts, lists, texts, numbers. A table that was not tuned is absent."""
    document: dict[str, Any] = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION}
    document.update(_plain(plan))
    return document


def part_to_json(part: Group | Certificate) -> dict[str, Any]:
    """A part of a plan as it stands in the plan's document."""
    plain: dict[str, Any] = _plain(part)
    return plain


def canonical_bytes(plan: Plan) -> bytes:
    """The same bytes for the same plan, on every rank: sorted keys, no spaces, UTF-8, exact floats."""
    text = json.dumps(
        plan_to_document(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def file_bytes(plan: Plan) -> bytes:
    """What stands in a plan's file."""
    return document_text(plan_to_document(plan)).encode()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        if isinstance(value, Group):
            names = [name for name in names if name not in COLLECTIVES or getattr(value, name) is not None]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value

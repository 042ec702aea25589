"""A kind's JSON Schema that takes no key beside those it describes: for what topotune itself writes."""

from typing import Any

import jsonschema

from topotune.documents import json_schema


def validate_written(document: dict[str, Any], kind: str) -> None:
    """Raise where a written document breaks its schema, or has a key that the schema does not describe."""
    jsonschema.validate(document, _closed(json_schema(kind)))


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(one) for one in node]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in node.items()}
    if node.get("type") == "object" and "properties" in node:
        closed["additionalProperties"] = False
    return closed

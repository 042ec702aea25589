"""The tables of docs/reference/plan-format.md, made from the model.

``python tests/plan/plan_format.py`` refreshes them.
"""

import dataclasses
import re
import types
import typing
from pathlib import Path

from topotune.json_schemas import attribute_texts
from topotune.plan import COLLECTIVES, model
from topotune.plan.algorithms import ALLOWED_PARAMS, ALLOWED_PART_PARAMS

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "plan-format.md"
_TABLE = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def refreshed(text: str) -> str:
    """The document with each table between ``<!-- Class -->`` and ``<!-- end -->`` made anew."""
    return _TABLE.sub(lambda match: f"{match[1]}{_table(match[2])}\n{match[3]}", text)


def described_classes(text: str) -> list[str]:
    return [match[2] for match in _TABLE.finditer(text)]


def _table(name: str) -> str:
    if name in ("algorithms", "part_algorithms"):
        of_tables = ALLOWED_PARAMS if name == "algorithms" else ALLOWED_PART_PARAMS
        lines = ["| algorithm | params |", "| --- | --- |"]
        lines += [
            f"| `{algorithm}` | {', '.join(f'`{param}`' for param in params)} |"
            for algorithm, params in of_tables.items()
        ]
        return "\n".join(lines)
    cls = getattr(model, name)
    texts, hints = attribute_texts(cls), typing.get_type_hints(cls)
    lines = ["| key | type | meaning |", "| --- | --- | --- |"]
    for field in dataclasses.fields(cls):
        has_default = (
            field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        )
        shown = _in_words(hints[field.name])
        if field.name in COLLECTIVES:
            shown = shown.removesuffix(" or null")
        text = re.sub(r"\bNone\b", "null", re.sub(r"\bTrue\b", "true", texts[field.name])).replace("``", "`")
        lines.append(f"| `{field.name}` | {shown}{', may be absent' if has_default else ''} | {text} |")
    return "\n".join(lines)


def _in_words(hint: object) -> str:
    if hint in _WORDS:
        return _WORDS[hint]
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return f"{_in_words(arguments[0])} or null"
    if typing.get_origin(hint) is tuple:
        return f"list of {_in_words(arguments[0])}" if arguments[1] is ... else "[low, high]"
    if typing.get_origin(hint) is dict:
        return "object"
    return hint.__name__


if __name__ == "__main__":
    DOCUMENT.write_text(refreshed(DOCUMENT.read_text()))

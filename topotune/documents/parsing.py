"""JSON text → value, within bounds.

Nesting is bounded before ``json.loads`` sees the text, because the parser recurses on the C stack, which is
small in a thread of somebody else's job. What its hooks must not let through is kept until its place in the
document is known.
"""

import codecs
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from topotune.documents.reading import MAX_DOCUMENT_BYTES
from topotune.documents.value import MAX_INTEGER, Value
from topotune.documents.words import cut, shown
from topotune.errors import InputFileError

MAX_DEPTH: Final = 64

_NO_JSON_HINT = "the file is no JSON document, or was cut off while it was written; make it anew"
# A string is taken whole, closed or not, and possessively: text full of quotes cannot make this quadratic.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_NO_BRACKETS = re.compile(r'(?:"(?:[^"\\]++|\\.)*+"?|[^"\[\]{}]++)++', re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands for what the parser's hooks must not let through, until its place in the document is known."""

    problem: str


def parse_json(
    data: bytes,
    source: str,
    *,
    error: type[InputFileError] = InputFileError,
    max_bytes: int = MAX_DOCUMENT_BYTES,
) -> Value:
    """JSON text → value, with nothing in it that JSON does not know.

    Args:
        data: UTF-8, with or without a byte order mark.
        source: names the text in errors: a path as the user wrote it.
        error: what to raise.
        max_bytes: bound on the text.

    Raises:
        InputFileError: (or ``error``) too large, no UTF-8, no JSON, nested more than 64 deep, a key twice in
            one object, NaN, Infinity, a number beyond float64 or beyond 64 bits.
    """
    if len(data) > max_bytes:
        raise error(source, f"has {len(data)} bytes, more than the {max_bytes} that such a document may have")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as problem:
        raise error(
            source,
            f"is no UTF-8 text: byte 0x{problem.object[problem.start]:02x} at {problem.start}",
            hint=_NO_JSON_HINT,
        ) from problem
    if not text.strip():
        raise error(source, "is empty", hint=_NO_JSON_HINT)
    if not _is_shallow(text):
        _refuse_depth(text, source, error)
    refused: list[_Refused] = []
    try:
        raw = json.loads(
            text,
            object_pairs_hook=lambda pairs: _object(pairs, refused),
            parse_int=lambda digits: _integer(digits, refused),
            parse_float=lambda digits: _float(digits, refused),
            parse_constant=lambda name: _refuse(f"{name} is no number that a document may hold", refused),
        )
    except json.JSONDecodeError as problem:
        at_end = problem.pos >= len(text.rstrip()) or problem.msg.startswith("Unterminated string")
        what = "the text ends in the middle of the document" if at_end else f"is no JSON: {problem.msg}"
        raise error(source, what, place=_line(text, problem.pos), hint=_NO_JSON_HINT) from problem
    value = Value(raw, "", source, error)
    if refused:
        _raise_refused(value)
    return value


def _is_shallow(text: str) -> bool:
    """Whether brackets close each other within `MAX_DEPTH`; others are nested deeper, or not closed at all.

    Each round takes off the innermost ones, by methods that need no Python for each of a million strings.
    """
    brackets = _NO_BRACKETS.sub("", text)
    for _ in range(MAX_DEPTH):
        if not brackets:
            break
        brackets = brackets.replace("[]", "").replace("{}", "")
    return not brackets


def _refuse_depth(text: str, source: str, error: type[InputFileError]) -> None:
    """Say where a text is nested too deep, if that is what is wrong with it."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        token = match[0]
        if token in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise error(
                    source,
                    f"lists and objects are nested more than {MAX_DEPTH} deep",
                    place=_line(text, match.start()),
                )
        elif token in "]}":
            depth -= 1


def _line(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f"line {line} column {position - text.rfind(chr(10), 0, position)}"


def _refuse(problem: str, refused: list[_Refused]) -> _Refused:
    refused.append(_Refused(problem))
    return refused[-1]


def _object(pairs: list[tuple[str, Any]], refused: list[_Refused]) -> Any:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                return _refuse(f"the key {shown(key)} stands twice", refused)
            seen.add(key)
    return result


def _integer(text: str, refused: list[_Refused]) -> Any:
    # Length first: converting a million digits takes minutes.
    if len(text) > 20 or not -MAX_INTEGER <= (number := int(text)) <= MAX_INTEGER:
        return _refuse(f"{cut(text)} does not fit in 64 bits", refused)
    return number


def _float(text: str, refused: list[_Refused]) -> Any:
    number = float(text) if len(text) <= 400 else math.inf
    return number if math.isfinite(number) else _refuse(f"{cut(text)} is no finite number", refused)


def _raise_refused(root: Value) -> None:
    """Say where the first thing stands that the hooks refused; places are made only where one is needed."""
    path = _path_to_refused(root.raw)
    if path is not None:
        value = root
        for step in path:
            value = value.member(step) if isinstance(step, str) else value.item(step)
        value.fail(value.raw.problem)


def _path_to_refused(raw: Any) -> list[str | int] | None:
    """Keys and indices that lead to it. Recursion is safe here: depth is bounded by now."""
    if isinstance(raw, _Refused):
        return []
    steps: Iterable[tuple[str | int, Any]] = ()
    if isinstance(raw, dict):
        steps = raw.items()
    elif isinstance(raw, list):
        steps = enumerate(raw)
    for step, item in steps:
        if isinstance(item, dict | list | _Refused):
            path = _path_to_refused(item)
            if path is not None:
                return [step, *path]
    return None

"""YAML from outside as plain values, within bounds: mappings, lists and texts, nothing that refers or acts.

The library's parser gives events; what it would make of tags, and of the anchors by which a few lines stand
for gigabytes, is not asked for. All scalars stay texts as they are written: ``on`` is no truth value here,
and ``010`` no number.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from topotune.errors import InputFileError

MAX_YAML: Final = 4 * 2**20
MAX_DEPTH: Final = 32
MAX_EVENTS: Final = 400_000

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")

Tree = dict[str, "Tree"] | list["Tree"] | str | None

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, source: str) -> Tree:
    """One document → its value; an empty scalar is None.

    Raises:
        InputFileError: no YAML, several documents, tags, anchors, a key twice or that is no text, more than
            4 MiB, 32 levels or 400,000 values.
    """
    if len(text) > MAX_YAML:
        raise InputFileError(source, f"has {len(text)} characters, more than the {MAX_YAML} of a YAML file")
    builder = _Builder(source)
    try:
        for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
            if number >= MAX_EVENTS:
                builder.fail(event, f"has more than {MAX_EVENTS} values")
            builder.take(event)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        place = None if mark is None else f"line {mark.line + 1}"
        raise InputFileError(source, f"is no YAML: {problem.problem}", place=place) from problem
    except yaml.YAMLError as problem:
        raise InputFileError(source, "is no YAML: a character that it does not allow") from problem
    return builder.root


class _Builder:
    def __init__(self, source: str) -> None:
        self.root: Tree = None
        self._source = source
        self._open: list[dict[str, Tree] | list[Tree]] = []
        self._keys: list[str | None] = []  # of each open mapping: the key whose value is to come
        self._documents = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self.fail(event, "holds several YAML documents")
        elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            self.fail(event, "has an anchor or alias, which no topology needs")
        elif getattr(event, "tag", None) is not None:
            self.fail(event, "has a tag, which no topology needs")
        elif isinstance(event, yaml.ScalarEvent):
            if _CONTROL.search(event.value):  # written as an escape
                self.fail(event, "has a control character")
            plain = event.style is None
            self._put(event, None if plain and event.value in ("", "~", "null") else event.value)
        elif isinstance(event, yaml.MappingStartEvent):
            self._start(event, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self._start(event, [])
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._open.pop()
            self._keys.pop()

    def _start(self, event: Any, value: dict[str, Tree] | list[Tree]) -> None:
        if len(self._open) >= MAX_DEPTH:
            self.fail(event, f"is nested more than {MAX_DEPTH} deep")
        self._put(event, value)
        self._open.append(value)
        self._keys.append(None)

    def _put(self, event: Any, value: Tree) -> None:
        if not self._open:
            self.root = value
            return
        around = self._open[-1]
        if isinstance(around, list):
            around.append(value)
            return
        key = self._keys[-1]
        if key is None:
            if not isinstance(value, str):
                self.fail(event, "has a key that is no text")
            elif value in around:
                self.fail(event, f"has the key {value[:60]!r} twice")
            self._keys[-1] = str(value)
        else:
            around[key] = value
            self._keys[-1] = None

    def fail(self, event: Any, problem: str) -> None:
        """Refuse the file at an event."""
        raise InputFileError(self._source, problem, place=f"line {event.start_mark.line + 1}")


def texts_of(value: Tree) -> Iterator[str]:
    """The texts of a list of them, or the one text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))

"""JSON documents from outside, read within bounds. Standard library only.

What comes from a file is hostile until it is read: its size, nesting, numbers and texts are bounded before
anything is built from them, and every refusal names the file, the place (``groups[0].allreduce[3].params``),
the value and what to do. Nesting is bounded before ``json.loads`` sees the text, because the parser recurses
on the C stack, which is small in a thread of somebody else's job.
"""

import codecs
import difflib
import functools
import itertools
import json
import logging
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from topotune.errors import InputFileError, UsageError, did_you_mean

MAX_DOCUMENT_BYTES: Final = 16 * 2**20
MAX_MEASUREMENT_BYTES: Final = 64 * 2**20
"""For `read_document`: a measurement keeps every sample, and there are as many pairs as ranks squared."""
MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 2**63 - 1
MAX_TEXT: Final = 4096

KINDS: Final[Mapping[str, str]] = {
    "plan": "topotune.plan.model:Plan",
    "topology": "topotune.topology.model:Topology",
    "measurement": "topotune.links.measurement:Measurement",
    "check": "topotune.links.check:Check",
    "schedule": "topotune.json_schemas:ScheduleDocument",
    "lab": "topotune.json_schemas:LabDocument",
    "prediction": "topotune.simulate.document:Prediction",
    "profile": "topotune.topology.profile:MachineProfile",
    "gradients": "topotune.step.gradients:Gradients",
    "comparison": "topotune.results.documents:ComparisonDocument",
    "optimum": "topotune.results.documents:OptimumDocument",
}
"""Name of a kind of document (``schema`` is ``topotune/`` and this) → the class that has its fields."""

_MADE_BY: Final[Mapping[str, str]] = {
    "topology": "topotune probe -o machine.json",
    "measurement": "topotune measure -o links.json",
    "check": "topotune check -o check.json",
    "schedule": "topotune simulate … --algorithm ring --emit ring.json",
    "prediction": "topotune simulate … --json",
    "gradients": "topotune record -- CMD",
    "comparison": "topotune compare plan.json -o compared.json",
    "optimum": "topotune optimum … -o optimum.json",
}
"""Commands, for hints where a file of another kind was given; a plan's error has its own."""

_LOOKED_AT: Final = 1000
"""Entries of a folder that are looked at for the file that was meant."""

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
Migrations = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]

_TOO_LARGE_HINT = "it is another file than was meant, or was made for far more ranks than this is for"
_NO_JSON_HINT = "the file is no JSON document, or was cut off while it was written; make it anew"
# A string is taken whole, closed or not, and possessively: text full of quotes cannot make this quadratic.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_NO_BRACKETS = re.compile(r'(?:"(?:[^"\\]++|\\.)*+"?|[^"\[\]{}]++)++', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands for what the parser's hooks must not let through, until its place in the document is known."""

    problem: str


def read_bytes(
    path: str | os.PathLike[str],
    *,
    error: type[InputFileError] = InputFileError,
    max_bytes: int = MAX_DOCUMENT_BYTES,
) -> bytes:
    """The whole of a regular file of at most ``max_bytes``.

    Pipes and devices are refused without waiting for them.

    Raises:
        InputFileError: (or ``error``) no such file, no regular file, not readable, too large.
    """
    # One byte beyond the bound tells too large from just so, also where a file's size says 0 (/proc).
    size, data = _read_from_start(path, max_bytes + 1, error)
    if len(data) > max_bytes:
        raise error(
            os.fspath(path),
            f"has {max(size, len(data))} bytes, more than the {max_bytes} that such a document may have",
            hint=_TOO_LARGE_HINT,
        )
    _LOG.info("read %s, %d bytes", os.fspath(path), len(data))
    return data


def read_bytes_from_start(
    path: str | os.PathLike[str], num_bytes: int, *, error: type[InputFileError] = InputFileError
) -> bytes:
    """As much of the start of a regular file, or all of it; refusals as in `read_bytes`, but for size."""
    return _read_from_start(path, num_bytes, error)[1]


def _where_it_may_be(path: str | os.PathLike[str], error: type[InputFileError]) -> str | None:
    """Which file may have been meant, for a hint; None where the error's own hint says more."""
    folder, name = os.path.split(os.fspath(path))
    try:
        with os.scandir(folder or ".") as entries:
            found = [entry.name for entry in itertools.islice(entries, _LOOKED_AT) if entry.is_file()]
    except OSError:
        return f"there is no folder {folder}"
    looked_in = f"it was looked for in {os.path.abspath(folder)}" if error is InputFileError else None
    return did_you_mean(name, found) or looked_in


def _read_from_start(
    path: str | os.PathLike[str], num_bytes: int, error: type[InputFileError]
) -> tuple[int, bytes]:
    """The file's size as it says it, and its first bytes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as problem:
        raise error(os.fspath(path), "no such file", hint=_where_it_may_be(path, error)) from problem
    except (OSError, ValueError) as problem:
        hint = "a user who may read it must run this" if isinstance(problem, PermissionError) else None
        raise error(os.fspath(path), f"cannot be read: {_reason(problem)}", hint=hint) from problem
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise error(os.fspath(path), "is a folder, not a file", hint="name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise error(os.fspath(path), "is a pipe or device, not a file", hint="write it to a file first")
        with open(descriptor, "rb", closefd=False) as file:
            return status.st_size, file.read(num_bytes)
    except OSError as problem:
        raise error(os.fspath(path), f"cannot be read: {_reason(problem)}") from problem
    finally:
        os.close(descriptor)


def parse_json(
    data: bytes,
    source: str,
    *,
    error: type[InputFileError] = InputFileError,
    max_bytes: int = MAX_DOCUMENT_BYTES,
) -> "Value":
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
                return _refuse(f"the key {_shown(key)} stands twice", refused)
            seen.add(key)
    return result


def _integer(text: str, refused: list[_Refused]) -> Any:
    # Length first: converting a million digits takes minutes.
    if len(text) > 20 or not -MAX_INTEGER <= (number := int(text)) <= MAX_INTEGER:
        return _refuse(f"{_cut(text)} does not fit in 64 bits", refused)
    return number


def _float(text: str, refused: list[_Refused]) -> Any:
    number = float(text) if len(text) <= 400 else math.inf
    return number if math.isfinite(number) else _refuse(f"{_cut(text)} is no finite number", refused)


def _raise_refused(root: "Value") -> None:
    """Say where the first thing stands that the hooks refused; places are made only where one is needed."""
    path = _path_to_refused(root.raw)
    if path is not None:
        value = root
        for step in path:
            value = value.member(step) if isinstance(step, str) else value.item(step)
        value.fail(value.raw.problem)


def _path_to_refused(raw: Any) -> "list[str | int] | None":
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


class Value:
    """A JSON value with the place where it stands, so that whoever takes it can say what is wrong with it.

    A document of a thousand nodes has a million of them, and places are for the one that is refused: each
    keeps the value that it is in, and works its place out when somebody asks.

    Attributes:
        raw: dict, list, str, int, float, bool or None.
        source: the file.
        error: what `fail` raises.
    """

    __slots__ = ("_above", "_step", "error", "raw", "source")

    def __init__(
        self,
        raw: Any,
        place: str | int,
        source: str,
        error: type[InputFileError],
        above: "Value | None" = None,
    ) -> None:
        """A value.

        Args:
            raw: as the parser left it.
            place: where it stands, "" for a whole document; with ``above``, its key or index there.
            source: names the file in errors.
            error: what `fail` raises.
            above: the object or list that it is in.
        """
        self.raw = raw
        self.source = source
        self.error = error
        self._step = place
        self._above = above

    @property
    def place(self) -> str:
        """``groups[0].shape``; "" for the whole document."""
        if self._above is None:
            return str(self._step)
        above = self._above.place
        if isinstance(self._step, int):
            return f"{above}[{self._step}]"
        if not self._step.isidentifier():
            return f"{above}[{_shown(self._step)}]"
        return f"{above}.{self._step}" if above else self._step

    def fail(self, problem: str, *, inside: str = "", hint: str | None = None) -> NoReturn:
        """Refuse the document because of this value, or of the place ``inside`` it (``[3].min_bytes``)."""
        joint = "." if self.place and inside and not inside.startswith("[") else ""
        raise self.error(self.source, problem, place=f"{self.place}{joint}{inside}" or None, hint=hint)

    def member(self, key: str) -> "Value":
        """The value under a key of this object."""
        return Value(self.raw[key], key, self.source, self.error, self)

    def item(self, index: int) -> "Value":
        """The value at an index of this list."""
        return Value(self.raw[index], index, self.source, self.error, self)

    def members(self, required: Iterable[str], optional: Iterable[str] = ()) -> "dict[str, Value]":
        """Members by key, which must be known ones."""
        if not isinstance(self.raw, dict):
            self.fail(f"is {_kind(self.raw)}, not an object")
        required, known = _keys(tuple(required), tuple(optional))
        if not self.raw.keys() <= known.keys():
            key = next(key for key in self.raw if key not in known)
            near = difflib.get_close_matches(key[:100], known, n=1)
            self.fail(
                f"has the unknown key {_shown(key)}",
                hint=f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}",
            )
        if not required <= self.raw.keys():
            key = next(key for key in known if key in required and key not in self.raw)
            self.fail(f"lacks the key {key!r}")
        return {key: Value(raw, key, self.source, self.error, self) for key, raw in self.raw.items()}

    def mapping(self, max_items: int) -> "dict[str, Value]":
        """Members of an object with keys of any name (printable, at most 4096 characters)."""
        if not isinstance(self.raw, dict):
            self.fail(f"is {_kind(self.raw)}, not an object")
        if len(self.raw) > max_items:
            self.fail(f"has {len(self.raw)} members, more than {max_items}")
        for key in self.raw:
            Value(key, self.place, self.source, self.error).text()
        return {key: self.member(key) for key in self.raw}

    def items(self, max_items: int, *, min_items: int = 0, what: str = "items") -> "list[Value]":
        """Items of a list of bounded length."""
        if not isinstance(self.raw, list):
            self.fail(f"is {_kind(self.raw)}, not a list")
        if len(self.raw) > max_items:
            self.fail(f"has {len(self.raw)} {what}, more than {max_items}")
        if len(self.raw) < min_items:
            self.fail(f"has {len(self.raw)} {what}, fewer than {min_items}")
        return [self.item(index) for index in range(len(self.raw))]

    def text(self, *, max_length: int = MAX_TEXT, one_of: Sequence[str] | None = None) -> str:
        """A text without control characters (they could write over a reader's terminal)."""
        if not isinstance(self.raw, str):
            self.fail(f"is {_kind(self.raw)}, not a text")
        if len(self.raw) > max_length:
            self.fail(f"has {len(self.raw)} characters, more than {max_length}")
        # No control character is printable, and to ask for that takes a tenth of the time.
        if not self.raw.isprintable() and (control := _CONTROL.search(self.raw)):
            self.fail(f"has the control character U+{ord(control[0]):04X}")
        if one_of is not None and self.raw not in one_of:
            self.fail(f"is {_shown(self.raw)}, not one of {', '.join(one_of)}")
        return self.raw

    def integer(self, minimum: int = 0, maximum: int = MAX_INTEGER) -> int:
        """A whole number in a closed range."""
        if type(self.raw) is not int:
            self.fail(f"is {_kind(self.raw)}, not a whole number")
        if not minimum <= self.raw <= maximum:
            self.fail(f"is {self.raw}, not a whole number from {minimum} to {maximum}")
        return self.raw

    def number(self, minimum: float = 0.0, maximum: float = math.inf, *, above: bool = False) -> float:
        """A finite number in a closed range; ``above`` leaves out the minimum itself."""
        if type(self.raw) not in (int, float):
            self.fail(f"is {_kind(self.raw)}, not a number")
        number: float = self.raw
        if not minimum <= number <= maximum or (above and number == minimum):
            low = f"above {minimum:g}" if above else f"of at least {minimum:g}"
            high = f" and at most {maximum:g}" if maximum < math.inf else ""
            self.fail(f"is {self.raw}, not a number {low}{high}")
        return number  # an int stays one, so that what is written again is the same text

    def interval(self, minimum: float = 0.0, maximum: float = math.inf) -> tuple[float, float]:
        """``[low, high]`` with low <= high."""
        low, high = (end.number(minimum, maximum) for end in self.items(2, min_items=2, what="ends"))
        if low > high:
            self.fail(f"runs from {low:g} down to {high:g}")
        return low, high

    def boolean(self) -> bool:
        """True or false."""
        if not isinstance(self.raw, bool):
            self.fail(f"is {_kind(self.raw)}, not true or false")
        return self.raw

    def optional(self, take: "Callable[[Value], T]") -> T | None:
        """None for null, else what ``take`` makes of it."""
        return None if self.raw is None else take(self)


@functools.lru_cache(maxsize=256)
def _keys(required: tuple[str, ...], optional: tuple[str, ...]) -> tuple[frozenset[str], dict[str, None]]:
    """The keys that must be there, and all that may, in order."""
    return frozenset(required), dict.fromkeys((*required, *optional))


def read_document(path: str | os.PathLike[str], schema: str | None = None) -> dict[str, Any]:
    """Read a document of any kind, within bounds; its contents are for the kind's own reader to check.

    Args:
        path: the file.
        schema: the kind it must be (``topotune/topology``); None: any that there is.

    Raises:
        InputFileError: the file cannot be read, is no JSON document of topotune, or is of another kind.
    """
    data = read_bytes(path, max_bytes=MAX_MEASUREMENT_BYTES)
    value = parse_json(data, os.fspath(path), max_bytes=MAX_MEASUREMENT_BYTES)
    name = schema_of(value)
    if schema is not None and name != schema:
        _refuse_kind(value, name, schema)
    if name.removeprefix("topotune/") not in KINDS:
        value.fail(
            f"is a {_cut(name)}, which this topotune does not know", hint=f"it knows: {', '.join(KINDS)}"
        )
    document: dict[str, Any] = value.raw
    return document


def holds(path: str | os.PathLike[str], schema: str) -> bool:
    """Whether a file is a document of this kind, or says that it is one; it is not checked.

    Raises:
        InputFileError: the file cannot be read.
    """
    start = read_bytes_from_start(path, MAX_MEASUREMENT_BYTES)
    return start.lstrip().startswith(b"{") and f'"{schema}"'.encode() in start


def document_text(document: dict[str, Any]) -> str:
    """A document as it stands in files and on stdout: sorted keys, laid out for people to compare."""
    return json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a kind of document (``plan``, ``topology``).

    Raises:
        UsageError: no such kind.
    """
    name = name.removeprefix("topotune/")
    if name not in KINDS:
        raise UsageError(
            f"{_shown(name)}: no such kind of document",
            hint=did_you_mean(name, KINDS) or f"there are: {', '.join(KINDS)}",
        )
    from topotune.json_schemas import build_json_schema

    return build_json_schema(name, KINDS[name])


_FOREIGN: Final = "topotune import reads other tools' files"


def schema_of(value: Value) -> str:
    """What a document says it is.

    Raises:
        InputFileError: (or the value's own class) it is no object, or says nothing.
    """
    if not isinstance(value.raw, dict):
        value.fail(f"is {_kind(value.raw)}, not a document of topotune", hint=_FOREIGN)
    if "schema" not in value.raw:
        value.fail("is no document of topotune: it lacks the key 'schema'", hint=_FOREIGN)
    return value.member("schema").text(max_length=100)


def document_of(value: Value, schema: str, version: int, migrations: Migrations | None = None) -> Value:
    """Check the header of a document, and bring an older one to this version.

    Args:
        value: the whole document.
        schema: what it must say it is (``topotune/plan``).
        version: the newest ``schema_version`` that can be read.
        migrations: version → what turns such a document into one of the next version.

    Raises:
        InputFileError: (or the value's own class) another kind of document, none of ours, or a newer version.
    """
    name = schema_of(value)
    if name != schema:
        _refuse_kind(value, name, schema)
    if "schema_version" not in value.raw:
        value.fail("lacks the key 'schema_version'")
    found = value.member("schema_version").integer(1)
    if found > version:
        value.fail(
            f"made by a newer topotune: schema_version {found}, this one reads {version}",
            hint="upgrade topotune, or make the file anew with this one",
        )
    raw = value.raw
    for step in range(found, version):
        raw = (migrations or {})[step](raw)
    return Value({**raw, "schema_version": version}, value.place, value.source, value.error)


def _refuse_kind(value: Value, found: str, wanted: str) -> NoReturn:
    command = _MADE_BY.get(wanted.removeprefix("topotune/"))
    value.fail(f"is a {_cut(found)}, not a {wanted}", hint=command and f"{command} makes one")


def _kind(raw: Any) -> str:
    """A JSON value in words, with the value where it is short."""
    match raw:
        case None:
            return "null"
        case bool():
            return "true" if raw else "false"
        case int() | float():
            return f"the number {raw}"
        case str():
            return f"the text {_shown(raw)}"
        case list():
            return f"a list of {len(raw)}"
        case _:
            return "an object"


def _shown(text: str) -> str:
    return repr(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _reason(problem: OSError | ValueError) -> str:
    return (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)

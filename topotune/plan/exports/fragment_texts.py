"""The texts that documents become: JSON, YAML and NAME=VALUE lines, written stably and read within bounds."""

import shlex
from collections.abc import Mapping
from typing import Any, Final

import yaml

from topotune.documents import MAX_INTEGER, MAX_TEXT, Value, document_text, parse_json
from topotune.errors import InputFileError
from topotune.topology.formats.yaml_tree import parse_yaml

MAX_VARIABLES: Final = 256


def write_json(document: dict[str, Any]) -> str:
    """An object, with sorted keys."""
    return document_text(document)


def read_json(text: str, source: str) -> Value:
    """The value of a JSON text, within bounds.

    Raises:
        InputFileError: it is no such text.
    """
    return parse_json(text.encode(errors="surrogatepass"), source)


class _Quoted(str):
    """A text that is written in double quotes, whatever a reader of YAML 1.1 or 1.2 would take it for."""


_DUMPER: Any = type("_Dumper", (yaml.SafeDumper,), {})
_DUMPER.add_representer(
    _Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')
)


def write_yaml(document: dict[str, Any]) -> str:
    """A mapping, keys in the order given; all texts but keys in double quotes (``no`` and ``1e3`` too)."""
    return str(yaml.dump(_quoted(document), Dumper=_DUMPER, sort_keys=False, width=1000))


def _quoted(value: Any) -> Any:
    match value:
        case dict():
            return {key: _quoted(item) for key, item in value.items()}
        case list():
            return [_quoted(item) for item in value]
        case str():
            return _Quoted(value)
        case _:
            return value


def read_yaml(text: str, source: str) -> Value:
    """The value of a YAML text; all scalars are texts, as they are written.

    Raises:
        InputFileError: no YAML, or more than plain mappings, lists and texts.
    """
    return Value(parse_yaml(text, source), "", source, InputFileError)


def write_variables(variables: Mapping[str, str]) -> str:
    """A line ``NAME=VALUE`` each, quoted for a shell where needed; a lone line end where there is none."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()) or "\n"


def read_variables(text: str, source: str) -> dict[str, str]:
    """The variables of such lines; empty lines and those that start with ``#`` are passed over.

    Raises:
        InputFileError: a line that is no ``NAME=VALUE``, a name twice, too many or too long ones.
    """
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        place = f"line {number}"
        if not line.strip() or line.startswith("#"):
            continue
        if len(line) > MAX_TEXT or len(variables) == MAX_VARIABLES:
            raise InputFileError(
                source,
                f"has more than {MAX_VARIABLES} variables, or one of more than {MAX_TEXT} characters",
                place=place,
            )
        try:
            words = shlex.split(line)
        except ValueError as problem:
            raise InputFileError(source, "has a quote that is not closed", place=place) from problem
        name, equals, value = words[0].partition("=")
        if len(words) != 1 or not equals or not name.isidentifier() or not name.isascii():
            raise InputFileError(source, f"{line[:60]!r} is no NAME=VALUE", place=place)
        if name in variables:
            raise InputFileError(source, f"sets {name} twice", place=place)
        Value(value, place, source, InputFileError).text()
        variables[name] = value
    return variables


def number_of(value: Value, minimum: int = 0, maximum: int = MAX_INTEGER) -> int:
    """The whole number that a text of `read_yaml` is.

    Raises:
        InputFileError: it is none.
    """
    text = value.text(max_length=20)
    if not (text.isascii() and text.isdigit()):
        value.fail(f"is {text!r}, not a whole number")
    return Value(int(text), value.place, value.source, value.error).integer(minimum, maximum)

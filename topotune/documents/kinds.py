"""Documents of topotune: which kinds there are, what each says it is, and how they are read and written."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from topotune.documents.parsing import parse_json
from topotune.documents.reading import MAX_MEASUREMENT_BYTES, read_bytes, read_bytes_from_start
from topotune.documents.value import Value
from topotune.documents.words import cut, kind, shown
from topotune.errors import UsageError, did_you_mean

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

Migrations = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]

_FOREIGN: Final = "topotune import reads other tools' files"


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
            f"is a {cut(name)}, which this topotune does not know", hint=f"it knows: {', '.join(KINDS)}"
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
            f"{shown(name)}: no such kind of document",
            hint=did_you_mean(name, KINDS) or f"there are: {', '.join(KINDS)}",
        )
    from topotune.json_schemas import build_json_schema

    return build_json_schema(name, KINDS[name])


def schema_of(value: Value) -> str:
    """What a document says it is.

    Raises:
        InputFileError: (or the value's own class) it is no object, or says nothing.
    """
    if not isinstance(value.raw, dict):
        value.fail(f"is {kind(value.raw)}, not a document of topotune", hint=_FOREIGN)
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
    value.fail(f"is a {cut(found)}, not a {wanted}", hint=command and f"{command} makes one")

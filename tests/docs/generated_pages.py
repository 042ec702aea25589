"""Pages of the reference that are made from the code.

``python tests/docs/generated_pages.py`` writes them anew.
"""

import re
from pathlib import Path
from typing import Any

import typer.main

from topotune.cli.app import app
from topotune.documents import KINDS, json_schema

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_MADE = "<!-- made by tests/docs/generated_pages.py -->"

_CLI_HEAD = f"""# Command line

{_MADE}

    topotune

alone says what to do first; `topotune VERB --help` says the same as this page. Every verb takes `--json` (one
JSON document on standard output; all else goes to standard error), but `run` and `record`, whose output is
the job's.

| for every verb | |
| --- | --- |
| `-v`, `--verbose` | say on standard error what is done |
| `--debug` | show tracebacks |
| `--version` | print the version |
| `--install-completion` | install completion for this shell; `--show-completion` prints it |

| exit code | |
| --- | --- |
| 0 | done |
| 1 | failed |
| 2 | wrong use or bad input |
| 3 | findings: `check` from `--fail-on` on, `compare` where slower, `export --verify` where not so |
| 130 | interrupted (Ctrl-C) |

An error's first line is `error: …`; a line `hint: …` may follow. Sizes are written 4096, 64K, 8M, 1.5GiB (K,
M, G are powers of 1024); several as 256K,8M, or 1K:64M (doubling), or 1K:64M:4. Times are 500ms, 60s, 2m,
1.5h; rates 25Gbit, 200Mbit.
"""

_FILES_HEAD = f"""# Files

{_MADE}

What topotune writes and reads is JSON with `schema` (`topotune/plan`, …), `schema_version` and, in what verbs
print, `warnings`. `topotune schema plan` prints a kind's JSON Schema (draft 2020-12), from which these tables
are made. A newer `schema_version` is refused, an older one migrated. A file is written whole or not at all.
The [plan](plan-format.md) has a page with examples and rules.

| printed by `--json` without a schema | by | holds |
| --- | --- | --- |
| `topotune/export`, `topotune/formats` | `export`, `export --to list` | the text; what there is |
| `topotune/report` | `report` | sections, pictures and tables that were made |
| `topotune/labs` | `lab` | profiles, or what was removed |"""


def pages() -> dict[Path, str]:
    """Path → text."""
    return {REFERENCE / "cli.md": _command_line(), REFERENCE / "file-formats.md": _files()}


def _command_line() -> str:
    root = typer.main.get_command(app)
    context = root.make_context("topotune", [], resilient_parsing=True)
    parts = [_CLI_HEAD]
    for name in root.list_commands(context):
        verb = root.get_command(context, name)
        assert verb is not None
        assert verb.help is not None
        text, _, example = " ".join(verb.help.split()).partition(" Example: ")
        parts += [f"\n## {name}\n", text, "", f"    {example}", "", "| | |", "| --- | --- |"]
        arguments = [one for one in verb.params if not one.opts[0].startswith("-")]
        options = [one for one in verb.params if one.opts[0].startswith("-")]
        parts += [f"| `{_metavar(one)}` | {_cell(one.help)} |" for one in arguments]
        parts += [f"| {_spelling(one)} | {_cell(one.help)}{_default(one)} |" for one in options]
    return "\n".join(parts) + "\n"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _spelling(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return names if option.is_flag else f"{names[:-1]} {option.metavar}`"


def _default(option: Any) -> str:
    if option.default in (None, False, True) or option.is_flag or "[default:" in (option.help or ""):
        return ""
    return (
        f" Default: {option.default:g}."
        if isinstance(option.default, float)
        else f" Default: {option.default}."
    )


def _cell(text: str | None) -> str:
    text = re.sub(r"\s+", " ", text or "").strip()
    text = re.sub(r" ?\[default: (.*)\]$", r" Default: \1.", text)
    return text.replace("|", "\\|")


def _files() -> str:
    parts = [_FILES_HEAD]
    for kind in KINDS:
        schema = json_schema(kind)
        parts += [f"\n## {kind}\n", _prose(schema.get("description", "")), "", *_table(schema, schema)]
        for name, definition in sorted(schema.get("$defs", {}).items()):
            if "properties" in definition:
                parts += [
                    "",
                    f"**{name}**: {_prose(definition.get('description', ''))}",
                    "",
                    *_table(definition, schema),
                ]
    return "\n".join(parts) + "\n"


def _prose(text: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(text.replace("``", "`").split()))


def _table(schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    required = set(schema.get("required", ()))
    lines = ["| key | type | meaning |", "| --- | --- | --- |"]
    for key, value in schema.get("properties", {}).items():
        absent = "" if key in required else ", may be absent"
        lines.append(f"| `{key}` | {_type(value)}{absent} | {_cell(_prose(value.get('description', '')))} |")
    return lines


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    for form in ("anyOf", "oneOf"):
        if form in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[form]))
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
        return f"list of {_type(schema.get('items', {}))}"
    words = {"integer": "whole number", "string": "text", "boolean": "true or false", "object": "object"}
    kind = schema.get("type", "anything")
    return " or ".join(words.get(one, one) for one in ([kind] if isinstance(kind, str) else kind))


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)

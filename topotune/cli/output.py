"""What verbs print and write: a document, its text, an error.

With ``--json`` stdout holds exactly one JSON document; all else goes to stderr.
"""

import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from topotune.errors import TopotuneError


def say(what: dict[str, Any] | str, as_json: bool) -> None:
    """Print a document, where JSON was asked for, or its text."""
    if as_json:
        assert isinstance(what, dict)
        print_json(what)
    else:
        assert isinstance(what, str)
        print_text(what)


def print_text(text: str) -> None:
    """Print a text; on a terminal its sentences are folded between words, tables stand as they were made."""
    print(folded(text, width()) if sys.stdout.isatty() else text)


def folded(text: str, columns: int) -> str:
    """Lines that are longer, folded between words; not those that have columns, which two blanks part."""
    lines: list[str] = []
    for line in text.splitlines():
        body = line.lstrip()
        if len(line) <= columns or "  " in body:
            lines.append(line)
            continue
        indent = " " * (len(line) - len(body))
        lines += textwrap.wrap(
            body,
            columns,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def print_json(document: dict[str, Any]) -> None:
    """Print a document."""
    from topotune.documents import document_text

    print(document_text(document), end="")


def deliver(
    document: dict[str, Any], text: str, output: Path | None, force: bool, as_json: bool, schema: str | None
) -> None:
    """Write the document if asked to, then print it, or its text."""
    if output is not None:
        from topotune.documents import document_text
        from topotune.files import write_whole

        write_whole(output, document_text(document).encode(), force=force, renews=schema)
    if as_json:
        print_json(document)
    else:
        print_text(text)
        if output is not None:
            print(f"written to {output}", file=sys.stderr)


def check_output(output: Path | None, force: bool, schema: str | None) -> None:
    """Refuse a place that cannot be written, before the work whose result it is."""
    if output is not None:
        from topotune.files import check_writable

        check_writable(output, force=force, renews=schema)


def width() -> int:
    """Columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size().columns


def print_error(error: TopotuneError) -> None:
    """Say on stderr what went wrong, and what to do."""
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)

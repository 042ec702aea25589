r"""A report as one HTML file: no network, nothing from outside, nothing from the files is run.

Theory of operation. Jinja escapes every text. What scripts read stands in islands (``<script
type="application/json">``), in which every ``<``, ``>`` and ``&`` is written as JSON's ``\u003c`` and so
on, so that no name can end the island. On top of that a Content Security Policy names the hashes of the two
scripts of the page, Plotly's and its own: a browser runs no other, wherever it stands, and loads nothing.

Plotly's bundle (4.6 MiB) is most of the file; a report without charts goes without it.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePath
from typing import Any, Final

from topotune import __version__
from topotune.errors import UsageError
from topotune.report.content import Chart, Report, Table
from topotune.report.spreadsheet import csv_text

MAX_CSV_ROWS: Final = 2_000
"""Rows of a table that can be downloaded from the page; what keeps the file small."""

_MAX_WARNINGS: Final = 50
_HINT: Final = "pip install 'topotune[report]'"
_ESCAPES: Final = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def render_page(report: Report) -> str:
    """The report as HTML; the same report gives the same text.

    Raises:
        UsageError: jinja2 or plotly is not installed.
    """
    try:
        import jinja2
        import markupsafe
    except ImportError as problem:
        raise UsageError("a report as HTML needs jinja2, which is not installed", hint=_HINT) from problem

    numbers = {id(section): number for number, section in enumerate(report.sections, start=1)}
    has_charts = any(isinstance(one, Chart) for section in report.sections for one in section.pictures)
    plotly = _plotly() if has_charts else ""
    here = files("topotune.report.html")
    script = here.joinpath("page.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "name": lambda path: PurePath(path).name,
        "island": lambda figure: markupsafe.Markup(island(figure)),
        "csv": lambda table: markupsafe.Markup(_csv_island(table)),
        "drawn": markupsafe.Markup,  # of `Drawing.svg`, in which everything is escaped
        "id": lambda section: numbers[id(section)],
    }
    template = environment.from_string(here.joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        report=report,
        version=__version__,
        policy=_policy([script, plotly] if has_charts else [script]),
        style=markupsafe.Markup(here.joinpath("page.css").read_text(encoding="utf-8")),
        script=markupsafe.Markup(script),
        plotly=markupsafe.Markup(plotly),
        has_charts=has_charts,
        max_rows=MAX_CSV_ROWS,
        max_warnings=_MAX_WARNINGS,
    )


def island(value: Mapping[str, Any] | str) -> str:
    """JSON that nothing inside a ``<script>`` element can end."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.translate(_ESCAPES)


def _csv_island(table: Table) -> str:
    return island(csv_text(table.frame, MAX_CSV_ROWS))


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as problem:
        raise UsageError("pictures need plotly, which is not installed", hint=_HINT) from problem
    script: str = get_plotlyjs()
    assert "</script" not in script.lower(), "Plotly's bundle would end its element"
    return script


def _policy(scripts: list[str]) -> str:
    """Only these scripts, styles of the page, and pictures made in it; nothing is fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )

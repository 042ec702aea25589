"""A report as Markdown, for pull requests and job summaries: texts and tables, no pictures.

Names from files become text and nothing else: no links, pictures, markup or mentions.
"""

import re
from typing import Final

from topotune.report.content import Chart, Drawing, Report, Section, Table

MAX_ROWS: Final = 20
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&])")
_NOTICED = re.compile(r"(@|#(?=\d)|:(?=//)|www(?=\.))")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def markdown_text(report: Report) -> str:
    """The report as GitHub's Markdown; tables are cut after 20 rows."""
    parts = [f"# {literal(report.title)}"]
    for section in report.sections:
        parts.extend(_section(section))
    return "\n\n".join(parts) + "\n"


def literal(text: str) -> str:
    """Text of unknown origin on one line, with nothing in it that Markdown reads.

    GitHub looks for mentions, issues and addresses after Markdown is read, where a backslash is gone: a space
    of no width parts them.
    """
    return _SPECIAL.sub(r"\\\1", _NOTICED.sub("\\1\u200b", _BREAKS.sub(" ", text)))


def _section(section: Section) -> list[str]:
    source = f" ({literal(section.source)})" if section.source else ""
    parts = [f"## {section.title}{source}"]
    if section.facts:
        parts.append("\n".join(f"- {literal(label)}: {literal(value)}" for label, value in section.facts))
    parts.extend(literal(paragraph) for paragraph in section.paragraphs)
    parts.extend(_picture(picture) for picture in section.pictures if isinstance(picture, Drawing))
    parts.extend(
        f"**{remark.severity}**: {literal(remark.head)}\n"
        + "\n".join(f"- {literal(line)}" for line in remark.lines)
        for remark in section.remarks
    )
    parts.extend(f"{literal(what)}:\n\n{_code(text)}" for what, text in section.commands)
    if not section.remarks:  # which say all that the table of findings says
        parts.extend(_table(table) for table in section.tables if not table.repeats)
    if section.warnings:
        parts.append("\n".join(f"- warning: {literal(warning)}" for warning in section.warnings))
    return parts if len(parts) > 1 else []  # of charts alone, which are no text


def _picture(picture: Chart | Drawing) -> str:
    return literal(picture.alt)


def _code(text: str) -> str:
    """Indented, so that no fence in it can end it."""
    return "\n".join(f"    {_BREAKS.sub(' ', line)}" for line in text.split("\n"))


def _table(table: Table) -> str:
    columns = list(table.cells.columns)
    lines = [f"**{table.title}**", "", _row(columns), "|" + " --- |" * len(columns)]
    lines.extend(_row(row) for row in table.cells.head(MAX_ROWS).itertuples(index=False))
    if len(table.frame) > MAX_ROWS:
        lines.extend(["", f"{MAX_ROWS} of {len(table.frame)} rows"])
    return "\n".join(lines)


def _row(cells: object) -> str:
    assert isinstance(cells, list | tuple)
    return f"| {' | '.join(literal(str(cell)) for cell in cells)} |"

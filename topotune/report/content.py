"""What a report holds, before it is a page, a text or a spreadsheet: sections with pictures and tables.

Texts in here are plain: those that come from files may hold anything. Whoever writes them out escapes them
for what is written; pictures alone are escaped already, since Plotly reads markup in its texts
(`topotune.report.pictures.axes.plain`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Table:
    """A data frame with a name.

    Attributes:
        name: of the table's file, without ending; letters, digits, ``-`` and ``_``; unique in a report.
        title: for people.
        frame: its rows, units in the names of columns.
        cells: its first rows for people, units in the cells.
        repeats: whether its rows stand in other tables, too: a text leaves it out.
        is_open: whether it is unfolded at first.
    """

    name: str
    title: str
    frame: pd.DataFrame
    cells: pd.DataFrame
    repeats: bool = False
    is_open: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chart:
    """A picture that Plotly draws.

    Attributes:
        title: for people.
        figure: ``data`` and ``layout``; colours of text and grid are left to the page, which knows the theme.
        alt: what is to be seen, for whoever does not see it.
        height_px: of the drawing.
    """

    title: str
    figure: Mapping[str, Any]
    alt: str
    height_px: int = 420


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Drawing:
    """A picture that is drawn already.

    Attributes:
        title: for people.
        svg: markup in which everything from files is escaped.
        alt: what is to be seen.
        width_px: below which it is not readable; narrower screens scroll inside the picture.
    """

    title: str
    svg: str
    alt: str
    width_px: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """One finding.

    Attributes:
        severity: ``error``, ``warning`` or ``info``.
        head: its code and where.
        lines: evidence, cost, advice.
    """

    severity: str
    head: str
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Section:
    """One part of a report.

    Attributes:
        title: its heading.
        source: the file that it is about; "" where it is about several.
        facts: label and value.
        paragraphs: of text.
        commands: a program text each, with what it is for.
        remarks: findings.
        pictures: charts and drawings.
        tables: behind the pictures.
        warnings: one line each.
    """

    title: str
    source: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    paragraphs: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    remarks: tuple[Remark, ...] = ()
    pictures: tuple[Chart | Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Report:
    """A whole report.

    Attributes:
        title: its heading.
        sections: in order.
    """

    title: str
    sections: tuple[Section, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, in order."""
        return tuple(table for section in self.sections for table in section.tables)

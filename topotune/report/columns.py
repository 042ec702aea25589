"""Aligned columns, and where a terminal is too narrow for them: the same in blocks, one below the other.

A table never wraps: lines of it that a terminal breaks cannot be read. Text that goes to a file or a pipe has
no width, and keeps its lines whole.
"""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from typing import Final

_WIDTH: Final[ContextVar[int | None]] = ContextVar("width of the reader's terminal", default=None)
_INDENT: Final = 2
_GAP: Final = 2
_NARROWEST: Final = 12
"""A cell's text is folded to no less than this."""


@contextmanager
def shown_on(columns: int | None) -> Iterator[None]:
    """Have tables made inside fit a terminal of so many columns; None: any width."""
    token = _WIDTH.set(columns)
    try:
        yield
    finally:
        _WIDTH.reset(token)


def align(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> str:
    """Columns under a header, two blanks between: those numbered in ``left`` flush left, the others right.

    Where they are wider than the terminal, columns that do not fit stand in further blocks, each beginning
    with the first column; and the text of a column that alone is too wide is folded.
    """
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    columns = _WIDTH.get()
    if columns is not None:
        # The first column leaves room for the narrowest of the others, which leave room for it.
        room = columns - _INDENT - _GAP
        widths[0] = min(widths[0], max(_NARROWEST, room - min(widths[1:], default=0)))
        widths[1:] = [min(width, max(_NARROWEST, room - widths[0])) for width in widths[1:]]
    lines: list[str] = []
    for block in _blocks(widths, columns):
        for row in table:
            lines += _row(row, block, widths, left)
    return "\n".join(lines)


def _blocks(widths: Sequence[int], columns: int | None) -> list[list[int]]:
    """Columns of each block."""
    if columns is None:
        return [list(range(len(widths)))]
    blocks = [[0]]
    used = _INDENT + widths[0]
    for column in range(1, len(widths)):
        if used + _GAP + widths[column] > columns and len(blocks[-1]) > 1:
            blocks.append([0])
            used = _INDENT + widths[0]
        blocks[-1].append(column)
        used += _GAP + widths[column]
    return blocks


def _row(row: Sequence[str], block: Sequence[int], widths: Sequence[int], left: Sequence[int]) -> list[str]:
    """A row of a block; several lines where a cell's text is folded."""
    cells = [
        [row[column]] if len(row[column]) <= widths[column] else textwrap.wrap(row[column], widths[column])
        for column in block
    ]
    lines = []
    for parts in zip_longest(*cells, fillvalue=""):
        placed = [
            part.ljust(widths[column]) if column in left else part.rjust(widths[column])
            for column, part in zip(block, parts, strict=True)
        ]
        lines.append(f"{' ' * _INDENT}{(' ' * _GAP).join(placed)}".rstrip())
    return lines

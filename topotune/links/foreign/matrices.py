"""Matrices of figures between devices, as tools print them: a line of column numbers, and numbered rows."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from topotune.links.foreign.reading import Figure, figure_of
from topotune.probe.faults import Faults

MAX_DEVICES: Final = 1_024

_COLUMNS = re.compile(r"[ \t]*(?:(D\\D|GPU|CPU)[ \t]+)?([0-9]{1,4}(?:[ \t]+[0-9]{1,4}){0,1100})[ \t]*")
_NOTHING = ("N/A", "-", "nan", "n/a")


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix.

    Attributes:
        label: what stands before the column numbers, or "".
        cells: (row, column) → the figure; what the tool marks as not available is not in it.
        num_rows, num_columns: as they stand.
    """

    label: str
    cells: dict[tuple[int, int], Figure]
    num_rows: int
    num_columns: int


def matrix_at(lines: Sequence[tuple[int, str]], start: int, faults: Faults) -> tuple[Matrix | None, int]:
    """The matrix whose column numbers stand at ``lines[start]``, and the index behind it.

    None where they do not stand there. A row that is cut is left out, and told.
    """
    if start >= len(lines):
        return None, start
    heading = _COLUMNS.fullmatch(lines[start][1])
    if heading is None:
        return None, start
    columns = heading[2].split()
    if [int(column) for column in columns] != list(range(len(columns))) or len(columns) > MAX_DEVICES:
        faults.add("left out, matrices whose columns are not numbered from 0", f"line {lines[start][0]}")
        return None, start + 1
    cells: dict[tuple[int, int], Figure] = {}
    num_rows = 0
    index = start + 1
    for row, words, number in _rows(lines, index):
        index += 1
        figures = [figure_of(word) for word in words]
        known = [figure is not None or word in _NOTHING for figure, word in zip(figures, words, strict=True)]
        if row != num_rows or len(words) != len(columns) or not all(known):
            faults.add(f"left out, rows of matrices that have not {len(columns)} figures", f"line {number}")
            num_rows = max(num_rows, row + 1)
            continue
        num_rows += 1
        cells |= {(row, column): each for column, each in enumerate(figures) if each is not None}
    return Matrix(heading[1] or "", cells, num_rows, len(columns)), index


def _rows(lines: Sequence[tuple[int, str]], start: int) -> Iterator[tuple[int, list[str], int]]:
    for number, line in lines[start : start + MAX_DEVICES]:
        words = line.split()
        if not words or not words[0].isdecimal() or len(words[0]) > 4 or len(words) > MAX_DEVICES + 1:
            return
        if len(words) > 1 and not (figure_of(words[1]) or words[1] in _NOTHING):
            return
        yield int(words[0]), words[1:], number

"""The tables of devices by devices that ``nvidia-smi topo`` and ``rocm-smi --showtopo`` print, in any text.

Theory of operation. A header is a line of column names that starts with a GPU; rows follow, each with a
device's name first. The cells between devices are words, never empty, so a row is read word by word from its
start: tabs turned into blanks, lost blanks (``NODENODE``) and lost tabs all read the same, and a cell can
never move into another column, since their number and the place of the diagonal are checked. The columns
behind them (``CPU Affinity``) may be empty; they are cut at tabs, or, where the tabs are gone, matched by
their number or by the place under their heading; what fits neither is left out. Tables of Markdown have their
own separators, and are cut at those.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topotune.probe.faults import Faults

MAX_DEVICES: Final = 256
MAX_MATRICES: Final = 64

TAIL_COLUMNS: Final = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_DEVICE = r"[A-Za-z][\w.:+-]{0,62}"
_HEADER_WORD = re.compile(r"CPU +Affinity|NUMA +Affinity|GPU +NUMA +ID|\S+", re.IGNORECASE)
_STARTS_HEADER = re.compile(
    r"[\s|>]*(?:(?:CPU|NUMA) +Affinity[\s|]+|GPU +NUMA +ID[\s|]+)*GPU[0-9]{1,4}(?=[\s|]|$)"
)
_STARTS_ROW = re.compile(rf"[\s|>]*({_DEVICE})(?=[\s|])")
_RULE = re.compile(r"[\s|:+-]+")
_MAX_GAP = 3


@dataclass(slots=True)
class Matrix:
    """One table.

    Attributes:
        columns: names of the devices, in order.
        line: of the header.
        cells: row's device → word under each column.
        tails: row's device → what stands in the columns behind, by their names; only what is not empty.
        header: the heading itself.
    """

    columns: tuple[str, ...]
    line: int
    header: str
    cells: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tails: dict[str, dict[str, str]] = field(default_factory=dict)


def find_matrices(lines: Sequence[str], word: re.Pattern[str], faults: Faults) -> list[Matrix]:
    """All tables whose cells between devices are such words; faults of their rows are noted.

    Args:
        lines: of the text.
        word: matches one cell.
        faults: takes what had to be left out.
    """
    found: list[Matrix] = []
    at = 0
    while at < len(lines) and len(found) < MAX_MATRICES:
        columns = _header(lines[at], word)
        matrix = None
        if columns is not None:
            matrix, end = _read(lines, at, columns, word, faults)
        if matrix is not None and matrix.cells:
            found.append(matrix)
            at = end
        else:
            at += 1
    if len(found) == MAX_MATRICES:
        faults.add(f"left out, what stands behind {MAX_MATRICES} tables", f"line {at}")
    return found


@dataclass(frozen=True, slots=True)
class _Columns:
    devices: tuple[str, ...]
    tails: tuple[tuple[str, int], ...]  # name, where its heading starts
    in_order: tuple[str, ...]  # all of them, as they stand in the heading


def _header(line: str, word: re.Pattern[str]) -> _Columns | None:
    if _STARTS_HEADER.match(line) is None:
        return None
    devices: list[str] = []
    tails: list[tuple[str, int]] = []
    order: list[str] = []
    expanded = re.sub(r"[|>]", " ", line).expandtabs(8)
    for match in _HEADER_WORD.finditer(expanded):
        name = " ".join(match[0].split())
        tail = next((known for known in TAIL_COLUMNS if known.lower() == name.lower()), None)
        if tail is not None:
            tails.append((tail, match.start()))
        elif re.fullmatch(_DEVICE, name) is None or name in devices or word.fullmatch(name):
            return None
        elif len(devices) < MAX_DEVICES:
            devices.append(name)
        else:
            return None
        order.append(tail or name)
    return _Columns(tuple(devices), tuple(tails), tuple(order)) if devices else None


def _read(
    lines: Sequence[str], start: int, columns: _Columns, word: re.Pattern[str], faults: Faults
) -> tuple[Matrix, int]:
    matrix = Matrix(columns.devices, start + 1, lines[start])
    names = frozenset(columns.devices)
    gap = 0
    at = start + 1
    while at < len(lines) and len(matrix.cells) < len(names) and gap < _MAX_GAP:
        line = lines[at]
        at += 1
        if _RULE.fullmatch(line) or not line.strip():
            gap += not line.strip() and bool(matrix.cells)
            continue
        if _header(line, word) is not None:
            at -= 1
            break
        label = _STARTS_ROW.match(line)
        if label is None or label[1] not in names or label[1] in matrix.cells:
            gap += 1
            continue
        gap = 0
        row = _row(line, label, columns, word)
        if row is None:
            faults.add(
                f"left out, rows without a cell for each of the {len(names)} columns",
                f"{label[1]} in line {at}",
            )
            continue
        cells, tails = row
        diagonal = columns.devices.index(label[1])
        if cells[diagonal] not in ("X", "0") or "X" in cells[:diagonal] + cells[diagonal + 1 :]:
            faults.add("left out, rows whose X is not under their own name", f"{label[1]} in line {at}")
            continue
        matrix.cells[label[1]] = cells
        if tails is None:
            faults.add("left out, columns behind the matrix that fit no heading", f"line {at}")
        else:
            matrix.tails[label[1]] = tails
    return matrix, at


def _row(
    line: str, label: re.Match[str], columns: _Columns, word: re.Pattern[str]
) -> tuple[tuple[str, ...], dict[str, str] | None] | None:
    if "|" in line[label.end() :]:
        return _markdown_row(line, columns, word)
    at = label.end()
    cells: list[str] = []
    for _ in columns.devices:
        while at < len(line) and line[at] in " \t":
            at += 1
        match = word.match(line, at)
        if match is None:
            return None
        cells.append(match[0])
        at = match.end()
    return tuple(cells), _tail(line, at, columns.tails)


def _markdown_row(
    line: str, columns: _Columns, word: re.Pattern[str]
) -> tuple[tuple[str, ...], dict[str, str] | None] | None:
    fields = [each.strip() for each in line.strip().strip(">").strip().strip("|").split("|")][1:]
    if len(fields) < len(columns.in_order):
        fields += [""] * (len(columns.in_order) - len(fields))
    by_name = dict(zip(columns.in_order, fields, strict=False))
    cells = tuple(by_name[name] for name in columns.devices)
    if not all(word.fullmatch(cell) for cell in cells):
        return None
    return cells, {name: by_name[name] for name, _ in columns.tails if by_name[name]}


def _tail(line: str, at: int, headings: tuple[tuple[str, int], ...]) -> dict[str, str] | None:
    """What stands behind the matrix, by heading; None where it fits none."""
    rest = line[at:]
    names = [name for name, _ in headings]
    if not rest.strip() or not names:
        return {}
    if "\t" in rest:
        fields = [each.strip() for each in rest.split("\t")]
        if fields[0]:
            return None
        fields = fields[1:]
        # nvidia-smi puts two tabs before the last column, "GPU NUMA ID".
        if len(fields) > len(names) and "GPU NUMA ID" in names and not fields[len(names) - 1]:
            del fields[len(names) - 1]
        if any(fields[len(names) :]):
            return None
        return {name: text for name, text in zip(names, fields, strict=False) if text}
    words = rest.split()
    if len(words) == len(names):
        return dict(zip(names, words, strict=True))
    return _by_place(line.expandtabs(8), words, headings)


def _by_place(line: str, words: list[str], headings: tuple[tuple[str, int], ...]) -> dict[str, str] | None:
    """Fewer words than headings: each must start exactly under one."""
    starts = {start: name for name, start in headings}
    found: dict[str, str] = {}
    at = headings[0][1] - 1
    for word in words:
        at = line.find(word, max(at, 0))
        name = starts.get(at)
        if name is None:
            return None
        found[name] = word
        at += len(word)
    return found

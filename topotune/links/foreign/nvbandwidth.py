"""nvbandwidth: copies between GPUs and host, as text or JSON.

The arrow in a matrix's title says which way its copies go, and nothing else does: ``GPU(row) <- GPU(column)``
comes from the column. A matrix of all ways at once (``All Gpus -> GPU``) tells of no single link.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from topotune.documents import Value, parse_json
from topotune.errors import InputFileError
from topotune.links.figures import Duplex, LinkFigure
from topotune.links.foreign.matrices import MAX_DEVICES, Matrix, matrix_at
from topotune.links.foreign.reading import (
    MAX_FIGURES,
    FigureReader,
    FigureReading,
    figure_of,
    json_from,
    numbered_lines,
)
from topotune.probe.faults import Faults, shown

MAX_BYTES: Final = 64 * 2**20

_RUNNING = re.compile(r"[ \t]*Running[ \t]+([a-z][a-z0-9_]{3,80})\.?[ \t]*")
_RECOGNISED = re.compile(
    r"^[ \t]*(?:\[[^\]\n]{0,80}\]<std\w+>:|[0-9]{1,6}: )?[ \t]*Running [a-z][a-z0-9_]{3,80}\.", re.MULTILINE
)
_TITLE = re.compile(
    r"[ \t]*[\w ]{1,60}? (CPU|GPU)\(row\)[ \t]*(<->|<-|->)[ \t]*(CPU|GPU)\(column\)([\w ]{0,60})"
    r"\((GB/s|ns|us)\)[ \t]*"
)
_LOCAL = re.compile(r"[ \t]*[\w ]{0,60}\blocal\b[\w ]{0,20} GPU\(column\) bandwidth \((GB/s)\)[ \t]*")
_ANY_TITLE = re.compile(r"[ \t]*(?:memcpy|memory|Device)\b.{0,200}\((?:GB/s|ns|us)\)[ \t]*")
_SUM = re.compile(r"[ \t]*SUM[ \t]+([a-z][a-z0-9_]{3,80})[ \t]+([0-9.]{1,30})[ \t]*")
_DEVICE = re.compile(r"[ \t]*Device ([0-9]{1,4}): (.{1,100}?)(?: \([0-9A-Fa-f:.]{4,40}\))?[ \t]*")
_PROCESS = re.compile(
    r"[ \t]*Process ([0-9]{1,4}) \(([\w.-]{1,255})\): device [0-9]{1,4}: (.{1,100}?)"
    r"(?: \([0-9A-Fa-f:.]{4,40}\))?[ \t]*"
)
_VERSIONS: Final = (
    ("tool_version", re.compile(r"[ \t]*nvbandwidth Version:[ \t]*(\S{1,40})[ \t]*")),
    ("nvidia_driver", re.compile(r"[ \t]*Driver Version:[ \t]*(\S{1,40})[ \t]*")),
    ("cuda_version", re.compile(r"[ \t]*CUDA Runtime Version:[ \t]*(\S{1,40})[ \t]*")),
)
_JSON_MARK = re.compile(r'"nvbandwidth"\s{0,10}:\s{0,10}\{')
_UNITS: Final = {"GB/s": 1e9, "ns": 1e-9, "us": 1e-6}


@dataclass(slots=True)
class _Found:
    """What was gathered of a file.

    Attributes:
        devices: number → name, where they are listed.
        hosts: of each of these, where several nodes take part.
        num_gpus: as many as matrices have.
    """

    faults: Faults = field(default_factory=Faults)
    facts: dict[str, str] = field(default_factory=lambda: {"tool": "nvbandwidth"})
    devices: dict[int, str] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    figures: list[LinkFigure] = field(default_factory=list)
    num_gpus: int = 0
    tests: list[str] = field(default_factory=list)

    def take(self, test: str, title: str, matrix: Matrix, place: str) -> float | None:
        """Add a matrix's figures; the sum of its cells, None if it was left out."""
        ways = _TITLE.fullmatch(title)
        local = _LOCAL.fullmatch(title)
        if ways is None and local is None:
            self.faults.add(
                "left out, matrices that are of no single link", f"{test}: {shown(title.strip())}"
            )
            return None
        if len(self.figures) + len(matrix.cells) > MAX_FIGURES:
            self.faults.add(f"left out, beyond {MAX_FIGURES} figures", f"{test} ({place})")
            return None
        self.tests.append(test)
        if local is not None:
            self._count(matrix.num_columns, test)
            self._add_local(test, matrix)
        elif ways is not None:
            for end, number in ((ways[1], matrix.num_rows), (ways[3], matrix.num_columns)):
                if end == "GPU":
                    self._count(number, test)
            self._add(test, ways, matrix)
        return sum(cell.value for cell in matrix.cells.values())

    def _count(self, number: int, test: str) -> None:
        if self.devices and number > len(self.devices):
            self.faults.add(
                f"matrices of more GPUs than the {len(self.devices)} listed; they stand as they are",
                f"{test} has {number}",
            )
        self.num_gpus = max(self.num_gpus, number)

    def _add_local(self, test: str, matrix: Matrix) -> None:
        for (_, column), cell in matrix.cells.items():
            if cell.value > 0:
                self.figures.append(
                    LinkFigure(src=column, dst=column, method=test, bandwidth_bytes_per_s=cell.value * 1e9)
                )

    def _add(self, test: str, ways: re.Match[str], matrix: Matrix) -> None:
        row_end, arrow, column_end, what, unit = ways.groups()
        is_rate = unit == "GB/s"
        duplex: Duplex | None = None
        if arrow == "<->":
            # A latency is that of a load, there and back.
            duplex = "sum" if "otal" in what or not is_rate else "one"
        hosts = row_end == "CPU" and matrix.num_rows > 1
        for (row, column), cell in matrix.cells.items():
            if not cell.value > 0:  # what nvbandwidth prints where it measured nothing
                continue
            ends = row if row_end == "GPU" else None, column if column_end == "GPU" else None
            src, dst = ends[::-1] if arrow == "<-" else ends
            figure = cell.value * _UNITS[unit]
            words = [test, what.replace("bandwidth", "").strip(), f"CPU {row}" if hosts else ""]
            self.figures.append(
                LinkFigure(
                    src=src,
                    dst=dst,
                    method=", ".join(word for word in words if word),
                    bandwidth_bytes_per_s=figure if is_rate else None,
                    latency_s=None if is_rate else figure,
                    duplex=duplex,
                )
            )

    def reading(self, source: str) -> FigureReading:
        if not self.figures:
            raise InputFileError(
                source,
                "holds no figure of nvbandwidth: " + ("; ".join(self.faults.warnings()) or "no matrix"),
                hint="give the whole output, or that of nvbandwidth -j",
            )
        if self.devices:
            self.facts["devices"] = ", ".join(sorted(set(self.devices.values())))[:1000]
        self.facts["tests"] = ", ".join(dict.fromkeys(self.tests))[:4000]
        num_ranks = max(self.num_gpus, len(self.devices))
        names = tuple(dict.fromkeys(self.hosts.values()))
        placed = sorted(self.hosts) == list(range(num_ranks))
        if self.hosts and not placed:
            self.faults.add(
                f"which nodes the GPUs are on is not known: {len(self.hosts)} of {num_ranks} are listed"
            )
        return FigureReading(
            num_ranks=num_ranks,
            node_of_rank=tuple(names.index(self.hosts[rank]) for rank in range(num_ranks)) if placed else (),
            node_names=names if placed else (),
            link_figures=tuple(self.figures),
            facts=self.facts,
            warnings=self.faults.warnings(),
            single_node=not self.hosts,
        )

    def list_device(self, line: str) -> bool:
        """Take a line of the list of devices; False where it is none."""
        if process := _PROCESS.fullmatch(line):
            self.devices.setdefault(int(process[1]), process[3])
            self.hosts.setdefault(int(process[1]), process[2])
        elif device := _DEVICE.fullmatch(line):
            self.devices.setdefault(int(device[1]), device[2])
        return bool(process or device)


def _recognise(text: str) -> bool:
    return _RECOGNISED.search(text) is not None and ("GPU(" in text or "nvbandwidth" in text)


def _recognise_json(text: str) -> bool:
    return json_from(text) is not None and _JSON_MARK.search(text) is not None


def read(text: str, source: str) -> FigureReading:
    """The text output → what it proves.

    Raises:
        InputFileError: no matrix that is of single links.
    """
    found = _Found()
    lines = list(numbered_lines(text, source))
    test, index = "", 0
    sums: dict[str, float] = {}
    while index < len(lines):
        number, line = lines[index]
        index += 1
        if running := _RUNNING.fullmatch(line):
            test = running[1]
        elif _ANY_TITLE.fullmatch(line):
            matrix, index = matrix_at(lines, index, found.faults)
            if matrix is None:
                found.faults.add("left out, titles without a matrix", f"{test} (line {number})")
                continue
            total = found.take(test, line, matrix, f"line {number}")
            if total is not None:
                sums[test] = total
        elif stated := _SUM.fullmatch(line):
            _check_sum(stated[1], stated[2], sums, found.faults)
        else:
            _note(line, found)
    return found.reading(source)


def _note(line: str, found: _Found) -> None:
    if found.list_device(line):
        return
    for name, pattern in _VERSIONS:
        if version := pattern.fullmatch(line):
            found.facts.setdefault(name, version[1])


def _check_sum(test: str, text: str, sums: dict[str, float], faults: Faults) -> None:
    stated = figure_of(text)
    name = test if test in sums else next((each for each in sums if test.startswith(each)), None)
    if stated is None or name is None or name != test:
        return  # sums of matrices that were left out, or of one of a test's several
    if abs(stated.value - sums[name]) > 0.005 * (MAX_DEVICES + 1) + 1e-3 * stated.value:
        faults.add("the sum that is stated is not that of the cells", f"{test}: {text} and {sums[name]:.2f}")


def read_json(text: str, source: str) -> FigureReading:
    """The JSON output (``-j``) → what it proves.

    Raises:
        InputFileError: no JSON, no test cases, or no matrix that is of single links.
    """
    document = parse_json((json_from(text) or text).encode("utf-8", "replace"), source, max_bytes=MAX_BYTES)
    root = (
        document.member("nvbandwidth")
        if isinstance(document.raw, dict) and "nvbandwidth" in document.raw
        else document
    )
    if not isinstance(root.raw, dict) or not isinstance(root.raw.get("testcases"), list):
        root.fail("holds no list of testcases", hint="nvbandwidth -j writes one")
    found = _Found()
    for name, key in (
        ("tool_version", "version"),
        ("nvidia_driver", "Driver Version"),
        ("cuda_version", "CUDA Runtime Version"),
    ):
        if isinstance(root.raw.get(key), str | int | float):
            found.facts[name] = str(root.raw[key])[:40]
    for number, device in enumerate(_texts(root, "GPU Device list")):
        if found.list_device(device):
            continue
        named = re.fullmatch(
            r"(?:Device )?([0-9]{1,4}): (.{1,100}?)(?: \([0-9A-Fa-f:.]{4,40}\).{0,100})?", device
        )
        found.devices[int(named[1]) if named else number] = named[2] if named else device
    for case in root.member("testcases").items(1_000, what="test cases"):
        _take_case(case, found)
    return found.reading(source)


def _texts(root: Value, key: str) -> Iterator[str]:
    if isinstance(root.raw.get(key), list):
        for item in root.member(key).items(MAX_DEVICES, what="devices"):
            yield item.text()


def _take_case(case: Value, found: _Found) -> None:
    if not isinstance(case.raw, dict) or "name" not in case.raw:
        found.faults.add("left out, entries that are no test cases", case.place)
        return
    name = case.member("name").text(max_length=100)
    status = case.raw.get("status")
    if status != "Passed":
        found.faults.add(f"left out, tests with the status {shown(str(status)[:40])}", name)
        return
    title, rows = case.raw.get("bandwidth_description"), case.raw.get("bandwidth_matrix")
    if not isinstance(title, str) or not isinstance(rows, list) or not rows:
        found.faults.add("left out, tests without a matrix", name)
        return
    cells = {}
    width = len(rows[0]) if isinstance(rows[0], list) else 0
    for number, row in enumerate(case.member("bandwidth_matrix").items(MAX_DEVICES, what="rows")):
        if not isinstance(row.raw, list) or len(row.raw) != width:
            row.fail(f"is no row of {width} cells, as the first is")
        for column, cell in enumerate(row.items(MAX_DEVICES, what="cells")):
            figure = figure_of(str(cell.raw)[:40].strip())
            if figure is not None:
                cells[number, column] = figure
    total = found.take(name, title, Matrix("", cells, len(rows), width), case.place)
    stated = case.raw.get("sum")
    if total is not None and isinstance(stated, str | int | float):
        _check_sum(name, str(stated)[:30], {name: total}, found.faults)


READER = FigureReader("nvbandwidth", "output of nvbandwidth", _recognise, read)
JSON_READER = FigureReader("nvbandwidth-json", "nvbandwidth's JSON (-j)", _recognise_json, read_json)

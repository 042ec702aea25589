"""OSU micro-benchmarks: latency and bandwidth between two ranks, and times of collectives.

The output names neither hosts nor, of collectives, the number of ranks. Columns are taken by the words of the
heading: which there are depends on options (``--full``, validation, percentiles) and version. Rates are in
MB/s = 1e6 bytes/s.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError
from topotune.links.figures import Collective, CollectiveFigure, Duplex, LinkFigure
from topotune.links.foreign.reading import (
    MAX_FIGURES,
    Figure,
    FigureReader,
    FigureReading,
    figure_of,
    numbered_lines,
)
from topotune.probe.faults import Faults, shown

_TITLE = re.compile(
    r"[ \t]*# OSU ([A-Z]{2,8}(?:-[A-Za-z]{2,10})?) (\S.{2,70}?)(?: (?:Test|Benchmark))?"
    r"(?: v([0-9][\w.]{0,20}))?[ \t]*"
)
_RECOGNISED = re.compile(r"^[^\n#]{0,80}# OSU [A-Z]{2,8}(?:-[A-Za-z]{2,10})? \S", re.MULTILINE)
_HEADING = re.compile(r"[ \t]*#[ \t]*(?=(?:Size|Avg|Latency)\b)(.{3,400})")
_COLUMN = re.compile(
    r"Size|(?P<avg>Avg\.? Lat(?:ency)?[ \t]*\(us\)|(?<!Min )(?<!Max )(?<!Tail )Lat(?:ency)?[ \t]*\(us\))"
    r"|(?P<min>Min Lat(?:ency)?[ \t]*\(us\))|(?P<max>Max Lat(?:ency)?[ \t]*\(us\))"
    r"|(?P<rate>Bandwidth[ \t]*\(MB/s\))|(?P<iterations>Iterations)|(?P<validation>Validation)"
    r"|P[0-9]{1,2}(?:\.[0-9]{1,2})? Tail (?:Lat(?:ency)?|Bandwidth|BW|Bw)[ \t]*\([A-Za-z/]{2,4}\)"
)
_ROW = re.compile(r"[ \t]*[0-9][0-9.]{0,30}(?:[ \t]+[\w.+-]{1,40}){0,20}[ \t]*")
_DATATYPE = re.compile(r"[ \t]*# Datatype:[ \t]*(\w{1,40})\.?[ \t]*")
_COLLECTIVES: Final[dict[str, Collective]] = {
    "Allreduce Latency": "allreduce",
    "Reduce_scatter Latency": "reduce_scatter",
    "Reduce Latency": "reduce",
    "Broadcast Latency": "broadcast",
    "Bcast Latency": "broadcast",
    "Barrier Latency": "barrier",
}
_OF_PARTS: Final = ("Allgather", "Allgatherv", "All-to-All", "All-to-Allv", "Gather", "Scatter", "Alltoall")
_LINKS: Final[dict[str, tuple[Duplex | None, bool]]] = {
    "Bandwidth": (None, True),
    "Latency": (None, True),
    "Bi-Directional Bandwidth": ("sum", True),
    "MPI_Put Latency": (None, True),
    "MPI_Put Bandwidth": (None, True),
    "MPI_Put Bi-directional Bandwidth": ("sum", True),
    "MPI_Get Latency": (None, False),
    "MPI_Get Bandwidth": (None, False),
}
"""Tests between two ranks → whether both ways at once, and whether rank 0 is where the data starts."""


@dataclass(frozen=True, slots=True)
class _Test:
    """A title: the library, what it tests, and the version."""

    library: str
    name: str
    version: str | None
    number: int


@dataclass(frozen=True, slots=True)
class _Values:
    """A row, by what its columns are."""

    place: str
    size: int | None
    cells: dict[str, str]

    def figure(self, name: str) -> Figure | None:
        return figure_of(self.cells.get(name, ""))


def _recognise(text: str) -> bool:
    return _RECOGNISED.search(text) is not None


def read(text: str, source: str) -> FigureReading:
    """The output of one or more tests → what it proves.

    Raises:
        InputFileError: no row of a test that can be taken.
    """
    faults = Faults()
    facts = {"tool": "OSU micro-benchmarks"}
    links: list[LinkFigure] = []
    collectives: list[CollectiveFigure] = []
    run = -1
    before: _Test | None = None
    for test, row, dtype in _rows(text, source, faults):
        if test is not before:
            run, before = run + 1, test
            if test.version:
                facts.setdefault("tool_version", test.version)
            facts.setdefault("library", test.library)
        if test.name in _LINKS:
            figure = _link(test, row, faults)
            if figure is not None:
                links.append(figure)
        elif test.name in _COLLECTIVES:
            of_all = _collective(test, row, run, dtype, faults)
            if of_all is not None:
                collectives.append(of_all)
        elif test.name.split(" ")[0] in _OF_PARTS:
            faults.add(
                "left out, tests whose sizes are of one rank's part: how many ranks there were is not said",
                f"{test.name} (line {test.number})",
            )
        else:
            faults.add(
                "left out, tests that are of no single link or call", f"{test.name} (line {test.number})"
            )
        if len(links) + len(collectives) > MAX_FIGURES:
            raise InputFileError(source, f"has more than {MAX_FIGURES} rows", place=row.place)
    if not links and not collectives:
        raise InputFileError(
            source,
            "holds no row that can be taken of an OSU benchmark: "
            + ("; ".join(faults.warnings()) or "none at all"),
            hint="osu_latency, osu_bw, osu_bibw, osu_allreduce, osu_bcast, osu_reduce can be read",
        )
    if collectives:
        faults.add("does not say how many ranks there were: no bus bandwidth follows from its times")
    return FigureReading(
        num_ranks=2 if links else 0,
        link_figures=tuple(links),
        collectives=tuple(collectives),
        facts=facts,
        warnings=faults.warnings(),
    )


def _rows(text: str, source: str, faults: Faults) -> Iterator[tuple[_Test, _Values, str | None]]:
    """Rows with the title above them; those that are cut are left out."""
    test: _Test | None = None
    columns: list[str] = []
    dtype: str | None = None
    for number, line in numbered_lines(text, source):
        if title := _TITLE.fullmatch(line):
            test, columns, dtype = _Test(title[1], title[2], title[3], number), [], None
        elif datatype := _DATATYPE.fullmatch(line):
            dtype = datatype[1]
        elif heading := _HEADING.fullmatch(line):
            if test is None:
                faults.add("left out, tables without the title that says what they are of", f"line {number}")
            columns = _columns(heading[1])
            if not columns and test is not None:
                faults.add(
                    "left out, tables with a heading that is not known", f"line {number}: {shown(line)}"
                )
        elif test is not None and columns and _ROW.fullmatch(line):
            words = line.split()
            sized = columns[0] == "size"
            if len(words) != len(columns) or (sized and not words[0].isdecimal()) or len(words[0]) > 18:
                faults.add(
                    f"left out, rows that have not the {len(columns)} figures of the heading",
                    f"line {number}",
                )
                continue
            cells = dict(zip(columns, words, strict=True))
            yield test, _Values(f"line {number}", int(words[0]) if sized else None, cells), dtype


def _columns(heading: str) -> list[str]:
    """Their names; none where the heading has other words as well, or one twice."""
    names = [match.lastgroup or match[0].split(" ")[0].lower() for match in _COLUMN.finditer(heading)]
    rest = re.sub(r"[\s#]", "", _COLUMN.sub("", heading))
    return [] if rest or len(set(names)) < len(names) else names


def _link(test: _Test, row: _Values, faults: Faults) -> LinkFigure | None:
    duplex, forward = _LINKS[test.name]
    time, rate = row.figure("avg"), row.figure("rate")
    least, most = row.figure("min"), row.figure("max")
    iterations = row.figure("iterations")
    _check(row, faults)
    if not ((time is not None and time.value > 0) or (rate is not None and rate.value > 0)):
        faults.add("left out, rows without a figure above 0", row.place)
        return None
    return LinkFigure(
        src=0 if forward else 1,
        dst=1 if forward else 0,
        method=f"OSU {test.library} {test.name}",
        bandwidth_bytes_per_s=None if rate is None else rate.value * 1e6,
        latency_s=None if rate is not None or time is None else time.value * 1e-6,
        duplex=duplex,
        message_bytes=row.size,
        num_iterations=None if iterations is None else int(iterations.value),
        min_s=_seconds(least) if rate is None else None,
        max_s=_seconds(most) if rate is None else None,
    )


def _collective(
    test: _Test, row: _Values, run: int, dtype: str | None, faults: Faults
) -> CollectiveFigure | None:
    time, iterations = row.figure("avg"), row.figure("iterations")
    _check(row, faults)
    if time is None or not time.value > 0:
        faults.add("left out, rows without a time above 0", row.place)
        return None
    return CollectiveFigure(
        collective=_COLLECTIVES[test.name],
        message_bytes=row.size or 0,
        time_s=time.value * 1e-6,
        dtype=dtype,
        num_iterations=None if iterations is None else int(iterations.value),
        min_s=_seconds(row.figure("min")),
        max_s=_seconds(row.figure("max")),
        run=run,
    )


def _check(row: _Values, faults: Faults) -> None:
    verdict = row.cells.get("validation", "Pass")
    if not verdict.lower().startswith("pass"):
        faults.add("WRONG RESULTS, the tool's own validation", f"{shown(verdict)} ({row.place})")


def _seconds(microseconds: Figure | None) -> float | None:
    return microseconds.value * 1e-6 if microseconds is not None and microseconds.value > 0 else None


READER = FigureReader("osu", "output of the OSU micro-benchmarks", _recognise, read)

"""OSU micro-benchmarks: latency and bandwidth between ranks, and times of collectives.

The output names neither hosts nor, of collectives, the number of ranks; where the launcher's command line
stands above it, that says how many there were. Sizes of an allgather, and of all calls in which each rank has
a part of its own, are those of one part: without the number of ranks they stay that. Columns are taken by the
words of the heading: which there are depends on options (``--full``, validation, percentiles) and version.
Rates are in MB/s = 1e6 bytes/s. With several pairs (``osu_mbw_mr``) rank i sends to rank i + pairs, all at
once, and the rate is that of all together.

Source: OSU micro-benchmarks, c/mpi/{pt2pt,collective,one-sided}/*.c.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from topotune.errors import InputFileError
from topotune.links.figures import Collective, CollectiveFigure, Duplex, LinkFigure
from topotune.links.foreign.reading import (
    MAX_FIGURES,
    MAX_RANKS,
    Figure,
    FigureReader,
    FigureReading,
    check_messages,
    figure_of,
    numbered_lines,
)
from topotune.probe.faults import Faults, shown

_TITLE = re.compile(
    r"[ \t]*# OSU ([A-Z]{2,8})(_\w{3,20})?((?:-[A-Za-z]{2,10})?) (\S.{2,70}?)(?: (?:Test|Benchmark))?"
    r"(?: v([0-9][\w.]{0,20}))?[ \t]*"
)
_RECOGNISED = re.compile(r"^[^\n#]{0,80}# OSU [A-Z]{2,8}(?:_\w{3,20})?(?:-[A-Za-z]{2,10})? \S", re.MULTILINE)
_LAUNCHERS: Final = ("mpirun", "mpiexec", "mpiexec.hydra", "mpirun_rsh", "srun", "prun")
_NUM_RANKS = re.compile(r"(?:--?np?|--ntasks)(?:=(?P<value>\S{1,20}))?|-n(?P<number>[0-9]{1,20})")
_MAX_MESSAGE = 2**62
_MAX_COMMAND = 8_192
_PAIRS = re.compile(r"[ \t]*# \[ pairs: ([0-9]{1,6}) \] \[ window size: [0-9]{1,9} \][ \t]*")
_HEADING = re.compile(r"[ \t]*#[ \t]*(?=(?:Size|Avg|Latency)\b)(.{3,400})")
_COLUMN = re.compile(
    r"Size|(?P<avg>Avg\.? Lat(?:ency)?[ \t]*\(us\)|(?<!Min )(?<!Max )(?<!Tail )Lat(?:ency)?[ \t]*\(us\))"
    r"|(?P<min>Min Lat(?:ency)?[ \t]*\(us\))|(?P<max>Max Lat(?:ency)?[ \t]*\(us\))"
    r"|(?P<rate>Bandwidth[ \t]*\(MB/s\)|MB/s)|(?P<messages>Messages/s)|(?P<iterations>Iterations)"
    r"|(?P<validation>Validation)"
    r"|P[0-9]{1,2}(?:\.[0-9]{1,2})? Tail (?:Lat(?:ency)?|Bandwidth|BW|Bw)[ \t]*\([A-Za-z/]{2,4}\)"
)
_ROW = re.compile(r"[ \t]*[0-9][0-9.]{0,30}(?:[ \t]+[\w.+-]{1,40}){0,20}[ \t]*")
_DATATYPE = re.compile(r"[ \t]*# Datatype:[ \t]*(\w{1,40})\.?[ \t]*")
_COLLECTIVES: Final[dict[str, tuple[Collective, bool]]] = {
    "allreduce latency": ("allreduce", False),
    "reduce_scatter latency": ("reduce_scatter", False),
    "reduce latency": ("reduce", False),
    "broadcast latency": ("broadcast", False),
    "bcast latency": ("broadcast", False),
    "barrier latency": ("barrier", False),
    "allgather latency": ("allgather", True),
    "all-to-all latency": ("alltoall", True),
    "all-to-all personalized exchange latency": ("alltoall", True),
    "alltoall latency": ("alltoall", True),
    "gather latency": ("gather", True),
    "scatter latency": ("scatter", True),
}
"""Titles → the call, and whether sizes are those of one rank's part."""

_LINKS: Final[dict[str, tuple[Duplex | None, bool]]] = {
    "bandwidth": (None, True),
    "latency": (None, True),
    "bi-directional bandwidth": ("sum", True),
    "multiple bandwidth / message rate": (None, True),
    "multi latency": (None, True),
    "mpi_put latency": (None, True),
    "mpi_put bandwidth": (None, True),
    "mpi_put bi-directional bandwidth": ("sum", True),
    "mpi_get latency": (None, False),
    "mpi_get bandwidth": (None, False),
}
"""Tests between two ranks → whether both ways at once, and whether rank 0 is where the data starts."""

_OF_PAIRS: Final = ("multiple bandwidth / message rate", "multi latency")


@dataclass(frozen=True, slots=True)
class _Test:
    """A title: the library, what it tests, and the version.

    Attributes:
        library: ``MPI``, ``MPI-CUDA``, ``NCCL``.
        name: in small letters, with the call in front where the title has it (``mpi_put latency``).
        words: library and test as they stand.
        version: of the tool.
        number: of the line.
        num_ranks: as the launcher was told, where that stands above the title.
    """

    library: str
    name: str
    words: str
    version: str | None
    number: int
    num_ranks: int | None

    @property
    def is_known(self) -> bool:
        """Whether its rows say something of a link or of a call."""
        return self.name in _LINKS or self.name in _COLLECTIVES


@dataclass(frozen=True, slots=True)
class _Settings:
    """What stands between a title and its table."""

    dtype: str | None = None
    pairs: int | None = None


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
    num_ranks = 0
    for test, row, settings in _rows(text, source, faults):
        if test is not before:
            run, before = run + 1, test
            if test.version:
                facts.setdefault("tool_version", test.version)
            facts.setdefault("library", test.library)
        if test.name in _LINKS:
            pairs = _num_pairs(test, settings, faults)
            figure = None if pairs is None else _link(test, row, pairs, faults)
            if figure is not None and pairs is not None and num_ranks in (0, 2 * pairs):
                links.append(figure)
                num_ranks = 2 * pairs
            elif figure is not None:
                faults.add(
                    f"left out, tests between other ranks than the {num_ranks} of the first",
                    f"{test.words} (line {test.number})",
                )
        elif test.name in _COLLECTIVES:
            of_all = _collective(test, row, run, settings.dtype, faults)
            if of_all is not None:
                collectives.append(of_all)
        if len(links) + len(collectives) > MAX_FIGURES:
            raise InputFileError(source, f"has more than {MAX_FIGURES} rows", place=row.place)
    if not links and not collectives:
        raise InputFileError(
            source,
            "holds no row that can be taken of an OSU benchmark: "
            + ("; ".join(faults.warnings()) or "none at all"),
            hint="osu_latency, osu_bw, osu_bibw, osu_mbw_mr, osu_put_bw and osu_get_bw can be read, "
            "osu_allreduce and the other collectives that block and take equal parts of all ranks",
        )
    if any(figure.num_ranks is None for figure in collectives):
        faults.add(
            "does not say how many ranks there were: no bus bandwidth follows from its times",
            "the launcher's command line above the table would (mpirun -np 8 … osu_allreduce)",
        )
    return FigureReading(
        num_ranks=num_ranks,
        link_figures=tuple(links),
        collectives=tuple(collectives),
        facts=facts,
        warnings=faults.warnings(),
    )


def _num_pairs(test: _Test, settings: _Settings, faults: Faults) -> int | None:
    """How many pairs of ranks sent at the same time; None, which is told, where nobody says."""
    if test.name not in _OF_PAIRS:
        return 1
    pairs = settings.pairs
    if pairs is None and test.num_ranks is not None and test.num_ranks % 2 == 0:
        pairs = test.num_ranks // 2
    if pairs is None or not 0 < pairs <= MAX_RANKS // 2:
        faults.add(
            "left out, tests between pairs whose number is not said, or above what can be taken",
            f"{test.words} (line {test.number})",
        )
        return None
    return pairs


def _rows(text: str, source: str, faults: Faults) -> Iterator[tuple[_Test, _Values, _Settings]]:
    """Rows with the title above them; those that are cut are left out."""
    test: _Test | None = None
    columns: list[str] = []
    settings = _Settings()
    num_ranks: int | None = None
    for number, line in numbered_lines(text, source):
        if title := _TITLE.fullmatch(line):
            test = _test_of(title, number, num_ranks)
            columns, settings, num_ranks = [], _Settings(), None
            if not test.is_known:
                faults.add(
                    "left out, tests that are of no single link or call", f"{test.words} (line {number})"
                )
        elif "osu_" in line and not line.lstrip().startswith("#"):
            num_ranks = _ranks_of_command(line[:_MAX_COMMAND])
        elif pairs := _PAIRS.fullmatch(line):
            settings = replace(settings, pairs=int(pairs[1]))
        elif datatype := _DATATYPE.fullmatch(line):
            settings = replace(settings, dtype=datatype[1])
        elif heading := _HEADING.fullmatch(line):
            if test is None:
                faults.add("left out, tables without the title that says what they are of", f"line {number}")
            columns = _columns(heading[1])
            if not columns and test is not None and test.is_known:
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
            yield test, _Values(f"line {number}", int(words[0]) if sized else None, cells), settings
        elif test is not None and test.is_known and not columns and _ROW.fullmatch(line):
            faults.add("left out, rows below no heading that is known", f"{test.words} (line {number})")


def _ranks_of_command(line: str) -> int | None:
    """How many ranks a launcher was told to start: ``mpirun -np 8 …``, ``srun --ntasks=8 …``."""
    if " : " in line:  # several programs, each with a number of its own
        return None
    words = iter(line.split())
    if not any(word.rpartition("/")[2] in _LAUNCHERS for word in words):
        return None
    for word in words:
        option = _NUM_RANKS.fullmatch(word)
        if option is not None:
            number = option["value"] or option["number"] or next(words, "")
            return int(number) if re.fullmatch(r"[1-9][0-9]{0,6}", number) else None
    return None


def _test_of(title: re.Match[str], number: int, num_ranks: int | None) -> _Test:
    library, call, device, name, version = title.groups(default="")
    return _Test(
        library=f"{library}{device}",
        name=(f"{library}{call} {name}" if call else name).lower(),
        words=f"{library}{call}{device} {name}",
        version=version or None,
        number=number,
        num_ranks=num_ranks,
    )


def _columns(heading: str) -> list[str]:
    """Their names; none where the heading has other words as well, or one twice."""
    names = [match.lastgroup or match[0].split(" ")[0].lower() for match in _COLUMN.finditer(heading)]
    rest = re.sub(r"[\s#]", "", _COLUMN.sub("", heading))
    return [] if rest or len(set(names)) < len(names) else names


def _link(test: _Test, row: _Values, pairs: int, faults: Faults) -> LinkFigure | None:
    duplex, forward = _LINKS[test.name]
    time, rate = row.figure("avg"), row.figure("rate")
    least, most = row.figure("min"), row.figure("max")
    iterations = row.figure("iterations")
    _check(row, faults)
    messages = row.figure("messages")
    if rate is not None and messages is not None:
        check_messages(rate.scaled(1e6), messages, row.size or 0, row.place, faults)
    if not ((time is not None and time.value > 0) or (rate is not None and rate.value > 0)):
        faults.add("left out, rows without a figure above 0", row.place)
        return None
    return LinkFigure(
        src=0 if forward else pairs,
        dst=pairs if forward else 0,
        num_concurrent=pairs,
        method=f"OSU {test.words}",
        bandwidth_bytes_per_s=None if rate is None else rate.value * 1e6 / pairs,
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
    collective, of_part = _COLLECTIVES[test.name]
    size = (row.size or 0) * (test.num_ranks or 1 if of_part else 1)
    if size > _MAX_MESSAGE:
        faults.add("left out, messages larger than all memory", row.place)
        return None
    return CollectiveFigure(
        collective=collective,
        message_bytes=size,
        of_part=of_part and test.num_ranks is None,
        num_ranks=test.num_ranks,
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

"""nccl-tests and rccl-tests: the table on their standard output, of any version.

What differs between versions: a ``root`` column or none; ``error`` (a deviation) or ``#wrong`` (a count); one
half (out of place) or both; more columns behind each. So figures are taken by the words of the heading,
counted from its left: an integer time is no root where there is no such column.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError
from topotune.links.foreign.nccl_runs import COLLECTIVE_OF_PROGRAM, Half, ListedRank, Row, Run, reading_of
from topotune.links.foreign.reading import MAX_RANKS, FigureReader, FigureReading, figure_of, numbered_lines
from topotune.probe.faults import Faults

_HEADING = re.compile(r"^[^\n#]{0,80}#[ \t]+size[ \t]+count[ \t][^\n]{0,400}busbw", re.MULTILINE)
_HEADING_LINE = re.compile(r"[ \t]{0,20}#[ \t]+(size[ \t]+count[ \t].{0,400}busbw.{0,200})")
_ROW = re.compile(r"[ \t]*[0-9]{1,18}[ \t]+[0-9]{1,18}[ \t]+[a-z]")
_RANK = re.compile(
    r"[ \t#]{1,20}Rank[ \t]+([0-9]{1,7})[ \t]+(?:Group[ \t]+([0-9]{1,7})[ \t]+)?Pid[ \t]+[0-9]{1,10}[ \t]+"
    r"(?:on[ \t]+(\S{1,255})[ \t]+)?device[ \t]+[0-9]{1,4}[ \t]*(?:\[[^\]]{0,40}\])?[ \t]*(.{0,100})"
)
_PROGRAMS = "|".join(sorted(COLLECTIVE_OF_PROGRAM, key=len, reverse=True))
_PROGRAM = re.compile(rf"(?<![a-z_])({_PROGRAMS})_perf\b")
_START = re.compile(r"[ \t]{0,20}# Collective test starting:[ \t]*(\S{1,100})")
_END = re.compile(r"[ \t]{0,20}# Collective test concluded")
_OPTIONS = re.compile(r"[ \t]{0,20}# (nThread.{1,600})")
_ITERATIONS = re.compile(r"(?<!warmup )(?<!agg )\biters:? ([0-9]{1,9})\b")
_MAX_BYTES = re.compile(r"\bmaxBytes ([0-9]{1,18})\b")
_OUT_OF_BOUNDS = re.compile(r"[ \t]{0,20}# Out of bounds values[ \t]*:[ \t]*([0-9]{1,18})[ \t]+(OK|FAILED)")
_AVERAGE = re.compile(r"[ \t]{0,20}# Avg bus bandwidth[ \t]*:[ \t]*([0-9.e+-]{1,30})")
_VERSIONS: Final = (
    ("nccl_version", re.compile(r"\b(?:NCCL|RCCL) version[ :]+([0-9][\w.+:-]{1,60})")),
    ("tool_version", re.compile(r"\b(?:nccl|rccl)-tests(?:: Version| version)[ \t]+([\w.:+-]{1,60})")),
)
_RCCL = re.compile(r"\brccl-tests\b|\bRCCL version\b")
_TIMES = ("time", "cputime")
_WRONG = ("#wrong", "error", "wrong")
_NOTHING = ("N/A", "nan", "-nan", "inf")


@dataclass(frozen=True, slots=True)
class _Layout:
    """A heading.

    Attributes:
        has_op, has_root: of the columns that not all versions have.
        halves: the names of each half's columns, the first of which is its time.
    """

    has_op: bool
    has_root: bool
    halves: tuple[tuple[str, ...], ...]

    @property
    def width(self) -> int:
        return sum(map(len, self.halves))


def _recognise(text: str) -> bool:
    return _HEADING.search(text) is not None


def read(text: str, source: str) -> FigureReading:
    """The output of one or more runs → what it proves.

    Raises:
        InputFileError: no table, a table without rows, one of a collective that is nowhere named, a rank
            listed twice on different hosts, or more than there can be.
    """
    faults = Faults()
    facts = {"tool": "rccl-tests" if _RCCL.search(text) else "nccl-tests"}
    for name, pattern in _VERSIONS:
        if found := pattern.search(text):
            facts[name] = found[1]
    runs = [Run()]
    layout: _Layout | None = None
    announced: str | None = None  # by a script or shell, between two runs
    for number, line in numbered_lines(text, source):
        run = runs[-1]
        if layout is not None and _ROW.match(line):
            row = _row(line, number, layout, faults)
            if row is not None:
                run.rows.append(row)
        elif heading := _HEADING_LINE.match(line):
            if run.rows:
                run, announced = _next_run(runs, announced), None
            layout = _layout(heading[1].split(), source, number)
        elif "#" in line or "_perf" in line:
            if run.rows and _opens(line):
                run, layout, announced = _next_run(runs, announced), None, None
            elif run.rows and not _END.match(line) and (program := _PROGRAM.search(line)):
                announced = program[1]
                continue
            _note(run, line, number, source, faults)
    if all(not run.rows for run in runs) and layout is None:
        raise InputFileError(
            source, "holds no heading such as: #  size  count  type  redop  time  algbw  busbw"
        )
    _name_programs(runs)
    models = sorted({rank.model for run in runs for rank in run.ranks.values() if rank.model})
    if models:
        facts["devices"] = ", ".join(models)[:1000]
    if runs[0].options:
        facts["options"] = runs[0].options
    return reading_of(runs, facts, source, faults)


def _next_run(runs: list[Run], announced: str | None) -> Run:
    runs.append(Run(program=announced))
    return runs[-1]


def _opens(line: str) -> bool:
    return bool(_OPTIONS.match(line) or _START.match(line))


def _name_programs(runs: Sequence[Run]) -> None:
    """A program that is named once, before the first table, is that of all; one named later of the rest."""
    known: str | None = None
    for run in runs:
        known = run.program = run.program or known


def _note(run: Run, line: str, number: int, source: str, faults: Faults) -> None:
    """What a line of another kind says of its run."""
    if (run.program is None or _START.match(line)) and (program := _PROGRAM.search(line)):
        run.program = program[1]
    if rank := _RANK.match(line):
        _list(run, rank, number, source)
    elif options := _OPTIONS.match(line):
        run.options = " ".join(options[1].split())
        if iterations := _ITERATIONS.search(options[1]):
            run.num_iterations = int(iterations[1])
        if largest := _MAX_BYTES.search(options[1]):
            run.max_bytes = int(largest[1])
    elif bounds := _OUT_OF_BOUNDS.match(line):
        run.concluded = True
        if bounds[2] == "FAILED" or int(bounds[1]):
            faults.add("WRONG RESULTS, values out of bounds", f"{bounds[1]} {bounds[2]} (line {number})")
    elif average := _AVERAGE.match(line):
        run.concluded = True
        figure = figure_of(average[1])
        run.average = None if figure is None else figure.scaled(1e9)


def _list(run: Run, match: re.Match[str], number: int, source: str) -> None:
    rank = int(match[1])
    if rank >= MAX_RANKS:
        raise InputFileError(source, f"lists rank {rank}, more than {MAX_RANKS}", place=f"line {number}")
    listed = ListedRank(rank=rank, group=int(match[2] or 0), host=match[3], model=match[4].strip() or None)
    before = run.ranks.setdefault(rank, listed)
    if before.host != listed.host:
        raise InputFileError(
            source,
            f"lists rank {rank} on {listed.host} and on {before.host}",
            place=f"line {number}",
            hint="outputs of two runs need a file each",
        )


# -- heading and rows


def _layout(words: Sequence[str], source: str, number: int) -> _Layout:
    words = [word for word in words if word != "timestamp"]
    times = [index for index, word in enumerate(words) if word in _TIMES]
    ends = [*times[1:], len(words)] if times else []
    halves = tuple(tuple(words[start:end]) for start, end in zip(times, ends, strict=True))
    if not 1 <= len(halves) <= 2 or any(half[1:3] != ("algbw", "busbw") for half in halves):
        raise InputFileError(
            source,
            f"has a heading that no known version prints: {' '.join(words)[:200]}",
            place=f"line {number}",
        )
    left = words[: times[0]]
    return _Layout(has_op="redop" in left, has_root="root" in left, halves=halves)


def _row(line: str, number: int, layout: _Layout, faults: Faults) -> Row | None:
    """A row, if it is whole; text that another process put behind it does no harm."""
    words = line.split()
    place = f"line {number}"
    size, _, dtype = words[:3]
    rest = words[3:]
    op = rest.pop(0) if layout.has_op and rest and rest[0].isalpha() else None
    root = None
    if layout.has_root and len(rest) > layout.width and re.fullmatch(r"-?[0-9]{1,7}", rest[0]):
        root = int(rest.pop(0))
    cells, behind = rest[: layout.width], rest[layout.width :]
    broken = any(figure_of(cell) is None and cell not in _NOTHING for cell in cells[: layout.width - 1])
    if len(cells) < layout.width or broken or (behind and figure_of(behind[0]) is not None):
        faults.add(f"left out, rows that have not the {layout.width} figures of the heading", place)
        return None
    if figure_of(cells[-1]) is None and cells[-1] not in _NOTHING:
        faults.add("left out, a last cell with other text in it", place)
    halves: list[Half] = []
    for names in layout.halves:
        cells, own = cells[len(names) :], cells[: len(names)]
        half = _half(dict(zip(names, own, strict=True)), in_place=bool(halves))
        if half is not None:
            halves.append(half)
        else:
            faults.add("left out, halves of rows without a time", place)
            if not halves:
                return None
    return Row(
        place=place,
        message_bytes=int(size),
        dtype=dtype[:40],
        op=None if op in (None, "none") else op[:40],
        root=root if root is not None and root >= 0 else None,
        halves=halves,
    )


def _half(cells: dict[str, str], *, in_place: bool) -> Half | None:
    time = figure_of(cells.get("time", cells.get("cputime", "")))
    if time is None or not time.value > 0:
        return None
    algbw, busbw = figure_of(cells["algbw"]), figure_of(cells["busbw"])
    wrong = next((figure_of(cells[name]) for name in _WRONG if name in cells), None)
    counted = wrong is not None and "error" not in cells and wrong.value.is_integer() and wrong.value < 2**62
    least, most = (figure_of(cells.get(name, "")) for name in ("min", "max"))
    return Half(
        in_place=in_place,
        time=time.scaled(1e-6),
        algbw=None if algbw is None else algbw.scaled(1e9),
        busbw=None if busbw is None else busbw.scaled(1e9),
        num_wrong=int(wrong.value) if wrong is not None and counted else None,
        max_error=wrong.value if wrong is not None and not counted else None,
        min_s=least.value * 1e-6 if least is not None and least.value > 0 else None,
        max_s=most.value * 1e-6 if most is not None and most.value > 0 else None,
    )


READER = FigureReader("nccl-tests", "output of nccl-tests, rccl-tests", _recognise, read)

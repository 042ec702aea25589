"""perftest: ``ib_write_bw``, ``ib_read_lat``, ``ib_send_bw``, … between two ends of an RDMA network.

The tool calls its two ends local and remote; so are the nodes here. Rates come in Gb/sec or in MB/sec, which
perftest counts as 2**20 bytes (src/perftest_resources.c); where messages per second are stated as well, these
prove the unit. Times are half a round trip of writes and sends, and the whole of a read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError
from topotune.links.figures import LinkFigure
from topotune.links.foreign.reading import (
    MAX_FIGURES,
    Figure,
    FigureReader,
    FigureReading,
    check_messages,
    figure_of,
    numbered_lines,
)
from topotune.probe.faults import Faults, shown

_TITLE = re.compile(
    r"[ \t]*((RDMA_Write(?:_\w{1,12})?|RDMA_Read|Send|Raw Ethernet Send|Atomic(?: \w{1,30})?)"
    r"((?: Bidirectional)?)(?: Post List| Rate| Burst| Infinite){0,3} (BW|Latency)(?: Multicast)? Test)[ \t]*"
)
_HEADING = re.compile(r"[ \t]*(#bytes[ \t]+(?:#sl[ \t]+)?#iterations[ \t].{3,400})")
_RECOGNISED = re.compile(r"^[^\n#]{0,80}#bytes[ \t]+(?:#sl[ \t]+)?#iterations[ \t]", re.MULTILINE)
_COLUMN = re.compile(
    r"#bytes|#iterations|#sl|(?:BW|MsgRate) Port[12] ?\[\w{2,4}(?:/sec)?\]"
    r"|BW peak ?\[(?P<peak>[^\]]{2,10})\]|BW average ?\[(?P<mean>[^\]]{2,10})\]"
    r"|(?P<messages>MsgRate ?\[Mpps\])|(?P<least>t_min\[usec\])|(?P<most>t_max\[usec\])"
    r"|(?P<typical>t_typical\[usec\])|(?P<average>t_avg\[usec\])"
    r"|t_stdev\[usec\]|[0-9.]{2,8}% percentile\[usec\]|tps average|CPU_Util\[%\]"
)
UNITS: Final = {"Gb/sec": 1.25e8, "MB/sec": 2.0**20, "MiB/sec": 2.0**20}
SETTINGS: Final = {
    "Device": "rdma_device",
    "Number of qps": "num_qps",
    "Transport type": "transport",
    "Connection type": "connection",
    "Mtu": "mtu",
    "Link type": "link_type",
}
"""What perftest prints of a run → the name of the fact."""

_SETTING = re.compile(rf"({'|'.join(SETTINGS)})[ \t]*:[ \t]*(\S{{1,60}})")


@dataclass(frozen=True, slots=True)
class Test:
    """A title.

    Attributes:
        text: as it stands, which is the method of its figures.
        operation: ``RDMA_Write``, ``RDMA_Read``, ``Send``, …
        both_ways: both ends send at once, and the rate is of both together.
    """

    text: str
    operation: str
    both_ways: bool

    @property
    def ends(self) -> tuple[int, int]:
        """Where the data starts and ends: a read fetches it."""
        return (1, 0) if self.operation == "RDMA_Read" else (0, 1)


def _recognise(text: str) -> bool:
    return _RECOGNISED.search(text) is not None


def read(text: str, source: str) -> FigureReading:
    """The output of one or more tests → what it proves.

    Of a port's share of a test through two ports, and of a service level, nothing is taken.

    Raises:
        InputFileError: no row below a title that says which test it is.
    """
    faults = Faults()
    facts = {"tool": "perftest"}
    figures: list[LinkFigure] = []
    test: Test | None = None
    columns: list[tuple[str, str]] = []
    for number, line in numbered_lines(text, source):
        if title := _TITLE.fullmatch(line):
            test, columns = Test(title[1], title[2], bool(title[3])), []
        elif heading := _HEADING.fullmatch(line):
            columns = _columns(heading[1])
            if not columns:
                faults.add(
                    "left out, tables with a heading that is not known", f"line {number}: {shown(line)}"
                )
            if test is None:
                faults.add(
                    "left out, tables without the title that says which test they are", f"line {number}"
                )
        elif test is not None and columns and _is_row(line):
            figure = _figure(line.split(), columns, test, f"line {number}", faults)
            if figure is not None:
                figures.append(figure)
            if len(figures) > MAX_FIGURES:
                raise InputFileError(source, f"has more than {MAX_FIGURES} rows", place=f"line {number}")
        else:
            for name, value in _SETTING.findall(line[:400]):
                facts.setdefault(SETTINGS[name], value)
    if not figures:
        raise InputFileError(
            source,
            "holds no row of perftest that can be taken: "
            + ("; ".join(faults.warnings()) or "its table is empty"),
            hint="give the whole output, from its title (RDMA_Write BW Test) on",
        )
    return between_two_nodes(figures, facts, faults)


def between_two_nodes(figures: Sequence[LinkFigure], facts: dict[str, str], faults: Faults) -> FigureReading:
    """What a test of perftest has found out: it runs on two machines, a process each."""
    return FigureReading(
        num_ranks=2,
        node_of_rank=(0, 1),
        node_names=("local", "remote"),
        link_figures=tuple(figures),
        facts=facts,
        warnings=faults.warnings(),
    )


def _is_row(line: str) -> bool:
    words = line.split(None, 2)
    return len(words) >= 2 and all(word.isdecimal() and len(word) <= 18 for word in words[:2])


def _columns(heading: str) -> list[tuple[str, str]]:
    """Name and unit of each; none where the heading has other words as well."""
    if _COLUMN.sub("", heading).strip():
        return []
    columns = [
        (match.lastgroup or match[0], match[match.lastgroup or 0]) for match in _COLUMN.finditer(heading)
    ]
    named = dict(columns)
    known = {"mean", "typical", "average"} & named.keys()
    units = [named[name] for name in ("peak", "mean") if name in named]
    return columns if known and all(unit in UNITS for unit in units) else []


def _figure(
    words: list[str], columns: list[tuple[str, str]], test: Test, place: str, faults: Faults
) -> LinkFigure | None:
    by_name = dict(zip((name for name, _ in columns), words, strict=False))
    cells = {name: figure_of(word) for name, word in by_name.items()}
    time = cells.get("typical") or cells.get("average")
    mean = cells.get("mean")
    counts = [by_name.get(name, "") for name in ("#bytes", "#iterations")]
    if (
        len(words) != len(columns)
        or not all(count.isdecimal() and len(count) <= 18 for count in counts)
        or not any(each is not None and each.value > 0 for each in (time, mean))
    ):
        faults.add(f"left out, rows that have not the {len(columns)} figures of the heading", place)
        return None
    src, dst = test.ends
    size, iterations = (int(count) for count in counts)
    if mean is None:
        assert time is not None
        return LinkFigure(
            src=src,
            dst=dst,
            method=test.text,
            latency_s=time.value * 1e-6,
            message_bytes=size,
            num_iterations=iterations,
            min_s=_above_zero(cells.get("least"), 1e-6),
            max_s=_above_zero(cells.get("most"), 1e-6),
        )
    unit = UNITS[dict(columns)["mean"]]
    if (messages := cells.get("messages")) is not None and messages.value > 0:
        check_messages(mean.scaled(unit), messages.scaled(1e6), size, place, faults)
    return LinkFigure(
        src=src,
        dst=dst,
        method=test.text,
        bandwidth_bytes_per_s=mean.value * unit,
        duplex="sum" if test.both_ways else None,
        message_bytes=size,
        num_iterations=iterations,
        peak_bytes_per_s=_above_zero(cells.get("peak"), unit),
    )


def _above_zero(figure: Figure | None, unit: float) -> float | None:
    """A test for a time (``-D``) has no peak, and prints 0."""
    return figure.value * unit if figure is not None and figure.value > 0 else None


READER = FigureReader("perftest", "output of ib_write_bw and the other tests of perftest", _recognise, read)

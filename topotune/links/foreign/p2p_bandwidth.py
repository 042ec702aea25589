"""p2pBandwidthLatencyTest of the CUDA samples: copies between the GPUs of one machine.

``P2P=Disabled`` is the way through the host's memory, whatever the devices could do. With ``P2P=Enabled``
pairs that cannot reach each other still go that way; the connectivity matrix says which. Rows are where a
copy starts, columns where it ends. Bidirectional figures are of both ways together.
"""

import re
from dataclasses import replace
from typing import Final

from topotune.errors import InputFileError
from topotune.links.figures import LinkFigure
from topotune.links.foreign.matrices import Matrix, matrix_at
from topotune.links.foreign.reading import MAX_FIGURES, FigureReader, FigureReading, numbered_lines
from topotune.probe.faults import Faults

_RECOGNISED = re.compile(
    r"^[ \t]{0,20}(?:\[[^\]\n]{1,80}\]<std(?:out|err)>:|[0-9]{1,6}: )?[ \t]{0,20}"
    r"(?:\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]"
    r"|(?:Uni|Bi)directional P2P=(?:Dis|En)abled Bandwidth|P2P=(?:Dis|En)abled Latency)",
    re.MULTILINE,
)
_CONNECTIVITY = re.compile(r"[ \t]*P2P Connectivity Matrix[ \t]*")
_BANDWIDTH = re.compile(
    r"[ \t]*((Uni|Bi)directional P2P=(Disabled|Enabled) Bandwidth(?: \(P2P [A-Z][a-z]{3,9}\))?)"
    r" Matrix \(GB/s\)[ \t]*"
)
_LATENCY = re.compile(
    r"[ \t]*(P2P=(Disabled|Enabled) Latency(?: \(P2P [A-Z][a-z]{3,9}\))?) Matrix \(us\)[ \t]*"
)
_DEVICE = re.compile(r"[ \t]*Device: ([0-9]{1,4}), ([^,]{1,100}), pciBusID:.{0,100}")
_MAX_BLANK: Final = 2


def _recognise(text: str) -> bool:
    return _RECOGNISED.search(text) is not None


def read(text: str, source: str) -> FigureReading:
    """The output → what it proves.

    Raises:
        InputFileError: no matrix of bandwidths or latencies, or more figures than there can be.
    """
    faults = Faults()
    lines = list(numbered_lines(text, source))
    figures: list[LinkFigure] = []
    devices: dict[int, str] = {}
    access: dict[tuple[int, int], bool] = {}
    num_gpus = 0
    index = 0
    while index < len(lines):
        number, line = lines[index]
        index += 1
        if device := _DEVICE.fullmatch(line):
            devices[int(device[1])] = device[2].strip()
        elif _CONNECTIVITY.fullmatch(line):
            matrix, index = matrix_at(lines, index, faults)
            if matrix is not None:
                num_gpus = max(num_gpus, matrix.num_columns)
                access = {ends: cell.value > 0 for ends, cell in matrix.cells.items()}
        elif (bandwidth := _BANDWIDTH.fullmatch(line)) or _LATENCY.fullmatch(line):
            matrices, index = _matrices(lines, index, faults, most=1 if bandwidth else 2)
            if not matrices:
                faults.add("left out, titles without a matrix", f"line {number}")
            for matrix in matrices:
                num_gpus = max(num_gpus, matrix.num_columns)
                if matrix.num_rows != matrix.num_columns:
                    size = f"{matrix.num_rows} rows of {matrix.num_columns}"
                    faults.add("matrices that are cut", f"{size} (line {number})")
                figures += _figures(line, matrix)
            if len(figures) > MAX_FIGURES:
                raise InputFileError(source, f"has more than {MAX_FIGURES} figures", place=f"line {number}")
    if not figures:
        raise InputFileError(
            source,
            "holds no matrix of p2pBandwidthLatencyTest with a figure in it",
            hint="give the whole output: its matrices follow the list of devices",
        )
    for ends in [ends for ends in access if max(ends) >= num_gpus]:
        del access[ends]
    facts = {"tool": "p2pBandwidthLatencyTest"}
    if devices:
        facts["devices"] = ", ".join(sorted(set(devices.values())))[:1000]
        if len(devices) != num_gpus:
            faults.add(f"lists {len(devices)} devices, and has matrices of {num_gpus}")
    return FigureReading(
        num_ranks=num_gpus,
        link_figures=tuple(_with_access(figure, access) for figure in figures),
        facts=facts,
        warnings=faults.warnings(),
        single_node=True,
    )


def _matrices(
    lines: list[tuple[int, str]], index: int, faults: Faults, *, most: int
) -> tuple[list[Matrix], int]:
    """The matrices below a title: one, or that of the GPUs' clocks and that of the CPU's."""
    found: list[Matrix] = []
    while len(found) < most:
        start = index
        while start < len(lines) and start - index < _MAX_BLANK and not lines[start][1].strip():
            start += 1
        matrix, behind = matrix_at(lines, start, faults)
        if matrix is None:
            break
        found.append(matrix)
        index = behind
    return found, index


def _figures(title: str, matrix: Matrix) -> list[LinkFigure]:
    bandwidth, latency = _BANDWIDTH.fullmatch(title), _LATENCY.fullmatch(title)
    figures = []
    for (row, column), cell in matrix.cells.items():
        if not cell.value > 0:
            continue
        if bandwidth is not None:
            figures.append(
                LinkFigure(
                    src=row,
                    dst=column,
                    method=bandwidth[1],
                    bandwidth_bytes_per_s=cell.value * 1e9,
                    duplex="sum" if bandwidth[2] == "Bi" else None,
                    direct=bandwidth[3] == "Enabled",
                )
            )
        elif latency is not None:
            figures.append(
                LinkFigure(
                    src=row,
                    dst=column,
                    method=f"{latency[1]}, {matrix.label}" if matrix.label in ("GPU", "CPU") else latency[1],
                    latency_s=cell.value * 1e-6,
                    direct=latency[2] == "Enabled",
                )
            )
    return figures


def _with_access(figure: LinkFigure, access: dict[tuple[int, int], bool]) -> LinkFigure:
    if figure.src is None or figure.dst is None or figure.src == figure.dst:
        return figure
    ends = figure.src, figure.dst
    return replace(figure, peer_access=access[ends]) if ends in access else figure


READER = FigureReader("p2p-bandwidth", "output of p2pBandwidthLatencyTest", _recognise, read)

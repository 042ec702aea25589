"""Who reaches whom how fast: bandwidth and latency between all ranks as heat maps, outliers marked.

Many ranks are folded to nodes, and many nodes to blocks of consecutive ones: a cell is then the median of its
pairs. A pair stands out where it is worse than the better half of its kind (within a node, between nodes): by
more than a third, and by more than six times the scatter of that half. The better half is what is asked,
since one slow node of four has half of all pairs between nodes. A folded cell stands out where a pair in it
does.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from topotune.links.measurement import Measurement, PairTiming, is_of_a_link
from topotune.report.content import Chart
from topotune.report.pictures.axes import SCALE, layout, plain
from topotune.units import format_bytes, format_rate, format_seconds

MAX_CELLS_A_SIDE: Final = 96
_MAX_RANKS_SHOWN: Final = 64
_MIN_GAP: Final = math.log(4 / 3)
_SCATTERS: Final = 6.0
_MAD_TO_SIGMA: Final = 1.4826
_MAX_TICKS: Final = 32

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Matrix:
    """One figure for each ordered pair.

    Attributes:
        title: what it is of.
        names: of rows and columns; from files, not escaped.
        values: shape (n, n), row = source; NaN where nothing is known.
        outliers: cells (row, column) that are worse than their kind.
        low_is_bad: True for bandwidths, False for latencies.
        folded: what a cell stands for, in words; "" for a single pair.
    """

    title: str
    names: tuple[str, ...]
    values: FloatArray
    outliers: tuple[tuple[int, int], ...]
    low_is_bad: bool
    folded: str


def pair_matrices(measurement: Measurement) -> list[Matrix]:
    """Bandwidth by the largest message and latency by the smallest, and the matrices of other tools."""
    found = []
    if measurement.pairs:
        largest: dict[tuple[int, int], PairTiming] = {}
        smallest: dict[tuple[int, int], PairTiming] = {}
        for pair in sorted(measurement.pairs, key=lambda pair: pair.message_bytes):
            largest[pair.src, pair.dst] = pair
            smallest.setdefault((pair.src, pair.dst), pair)
        rates = {ends: pair.message_bytes / pair.median_s for ends, pair in largest.items()}
        times_s = {ends: pair.median_s for ends, pair in smallest.items()}
        title = f"bandwidth, messages of {_span(largest.values())}"
        found.append(_matrix(measurement, title, rates, low_is_bad=True))
        title = f"latency, messages of {_span(smallest.values())}"
        found.append(_matrix(measurement, title, times_s, low_is_bad=False))
    found.extend(_matrices_of_figures(measurement))
    return found


def _span(pairs: Iterable[PairTiming]) -> str:
    sizes = {pair.message_bytes for pair in pairs}
    low, high = format_bytes(min(sizes)), format_bytes(max(sizes))
    return low if low == high else f"{low} to {high}"


def _matrices_of_figures(measurement: Measurement) -> Iterator[Matrix]:
    bandwidths: dict[str, dict[tuple[int, int], float]] = {}
    latencies: dict[str, dict[tuple[int, int], float]] = {}
    for one in measurement.link_figures:
        if not is_of_a_link(one):
            continue
        assert one.src is not None
        assert one.dst is not None
        if one.bandwidth_bytes_per_s is not None:
            bandwidths.setdefault(one.method, {})[one.src, one.dst] = one.bandwidth_bytes_per_s
        if one.latency_s is not None:
            latencies.setdefault(one.method, {})[one.src, one.dst] = one.latency_s
    for method, values in bandwidths.items():
        yield _matrix(measurement, f"bandwidth, {method}", values, low_is_bad=True)
    for method, values in latencies.items():
        yield _matrix(measurement, f"latency, {method}", values, low_is_bad=False)


def _matrix(
    measurement: Measurement, title: str, values: Mapping[tuple[int, int], float], *, low_is_bad: bool
) -> Matrix:
    num_ranks = measurement.num_ranks
    nodes = measurement.node_of_rank or tuple(range(num_ranks))
    if num_ranks <= _MAX_RANKS_SHOWN:
        place: Sequence[int] = range(num_ranks)
        names = [f"rank {rank}{_of_node(measurement, rank)}" for rank in range(num_ranks)]
        folded = ""
    else:
        num_nodes = max(nodes) + 1
        block = -(-num_nodes // MAX_CELLS_A_SIDE)
        place = [node // block for node in nodes]
        folded = "node" if block == 1 else f"{block} nodes"
        names = [_block_name(measurement, first, block, num_nodes) for first in range(0, num_nodes, block)]
    side = max(place) + 1
    cells: dict[tuple[int, int], list[float]] = {}
    worst: dict[tuple[int, int], bool] = {}
    bad = _outliers(values, nodes, low_is_bad=low_is_bad)
    for (src, dst), value in values.items():
        at = (place[src], place[dst])
        cells.setdefault(at, []).append(value)
        worst[at] = worst.get(at, False) or (src, dst) in bad
    table = np.full((side, side), np.nan)
    for at, own in cells.items():
        table[at] = float(np.median(own))
    return Matrix(
        title=title,
        names=tuple(names),
        values=table,
        outliers=tuple(sorted(at for at, is_bad in worst.items() if is_bad)),
        low_is_bad=low_is_bad,
        folded=folded,
    )


def _outliers(
    values: Mapping[tuple[int, int], float], nodes: Sequence[int], *, low_is_bad: bool
) -> set[tuple[int, int]]:
    bad: set[tuple[int, int]] = set()
    for is_within in (True, False):
        own = {pair: v for pair, v in values.items() if (nodes[pair[0]] == nodes[pair[1]]) == is_within}
        if len(own) < 3:
            continue
        logs = np.log(np.fromiter(own.values(), dtype=np.float64, count=len(own)))
        better = np.sort(logs if not low_is_bad else -logs)[: max(2, -(-len(logs) // 2))]
        better = better if not low_is_bad else -better
        centre = float(np.median(better))
        scatter = _MAD_TO_SIGMA * float(np.median(np.abs(better - centre)))
        worse = (centre - logs) if low_is_bad else (logs - centre)
        limit = max(_MIN_GAP, _SCATTERS * scatter)
        bad.update(pair for pair, excess in zip(own, worse, strict=True) if excess > limit)
    return bad


def _of_node(measurement: Measurement, rank: int) -> str:
    nodes = measurement.node_of_rank
    return f" ({measurement.node_names[nodes[rank]]})" if len(measurement.node_names) > 1 else ""


def _block_name(measurement: Measurement, first: int, block: int, num_nodes: int) -> str:
    names = measurement.node_names or tuple(f"rank {number}" for number in range(num_nodes))
    last = min(first + block, num_nodes) - 1
    return names[first] if last == first else f"{names[first]} … {names[last]}"


def matrix_chart(matrix: Matrix) -> Chart:
    """The matrix as a heat map; outliers carry a cross."""
    form: Callable[[float], str] = format_rate if matrix.low_is_bad else format_seconds
    labels = [plain(name, 40) for name in matrix.names]
    known = matrix.values[np.isfinite(matrix.values)]
    logs = np.log10(np.where(np.isfinite(matrix.values), matrix.values, np.nan))
    low, high = (float(known.min()), float(known.max())) if known.size else (1.0, 1.0)
    ticks = np.geomspace(low, high, 5) if high > low else np.array([low])
    outliers = set(matrix.outliers)
    texts = [
        [
            ""
            if not np.isfinite(value)
            else f"{labels[row]} → {labels[column]}: {form(float(value))}"
            + (" (outlier)" if (row, column) in outliers else "")
            for column, value in enumerate(line)
        ]
        for row, line in enumerate(matrix.values)
    ]
    side = len(labels)
    shown = list(range(0, side, max(1, -(-side // _MAX_TICKS))))
    axis: dict[str, Any] = {
        "tickvals": shown,
        "ticktext": [plain(matrix.names[at], 18) for at in shown],
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
        "constrain": "domain",
    }
    data: list[dict[str, Any]] = [
        {
            "type": "heatmap",
            "z": [
                [None if not math.isfinite(cell) else round(float(cell), 4) for cell in row] for row in logs
            ],
            "text": texts,
            "hovertemplate": "%{text}<extra></extra>",
            "colorscale": [list(stop) for stop in SCALE],
            "reversescale": not matrix.low_is_bad,
            "xgap": 1 if side <= 32 else 0,
            "ygap": 1 if side <= 32 else 0,
            "colorbar": {
                "tickvals": [round(float(math.log10(tick)), 4) for tick in ticks],
                "ticktext": [form(float(tick)) for tick in ticks],
                "thickness": 12,
            },
        }
    ]
    if matrix.outliers:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [column for _, column in matrix.outliers],
                "y": [row for row, _ in matrix.outliers],
                "marker": {
                    "symbol": "x",
                    "size": 9 if side <= 32 else 5,
                    "color": "#ffffff",
                    "line": {"color": "#111111", "width": 1},
                },
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    figure = {
        "data": data,
        "layout": layout(
            xaxis={**axis, "title": {"text": "to", "standoff": 12}, "side": "bottom"},
            yaxis={**axis, "title": {"text": "from", "standoff": 12}, "autorange": "reversed"},
        ),
    }
    bad = len(matrix.outliers)
    return Chart(
        title=matrix.title[:1].upper() + matrix.title[1:],
        figure=figure,
        alt=(
            f"heat map of {matrix.title} between {side} "
            f"{'groups of ranks' if matrix.folded else 'ranks'}: "
            f"{form(low)} to {form(high)}, {bad} outlier{'' if bad == 1 else 's'}"
        ),
        height_px=520,
    )


def outliers_in_words(matrix: Matrix) -> str:
    """What the crosses say, in a sentence."""
    what = (
        "pairs"
        if not matrix.folded
        else f"cells (a cell is the median between one {matrix.folded} and another)"
    )
    if not matrix.outliers:
        return f"{matrix.title}: no outliers among the {what}"
    form: Callable[[float], str] = format_rate if matrix.low_is_bad else format_seconds
    named = ", ".join(
        f"{matrix.names[row]} → {matrix.names[column]} ({form(float(matrix.values[row, column]))})"
        for row, column in matrix.outliers[:5]
    )
    more = f" and {len(matrix.outliers) - 5} more" if len(matrix.outliers) > 5 else ""
    return f"{matrix.title}: {len(matrix.outliers)} {what} stand out: {named}{more}"

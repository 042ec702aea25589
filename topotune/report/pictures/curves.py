"""Time and bus bandwidth against message size: what was measured, predicted, and is possible at best."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

import pandas as pd

from topotune.frames.frame import ends, frame
from topotune.links.figures import CollectiveFigure, busbw_factor
from topotune.links.measurement import Measurement
from topotune.plan.model import DEFAULT_ALGORITHM, Collective, Group, Plan, Row
from topotune.report.content import Chart
from topotune.report.pictures.axes import (
    COLOURS,
    LEGEND_PX,
    NEUTRAL,
    layout,
    plain,
    rate_axis,
    seconds_axis,
    size_axis,
)
from topotune.results.comparison import ComparedSize, ComparedTable, Comparison
from topotune.results.optimum import OptimumResult
from topotune.results.tuning import TuningRun
from topotune.simulate.document import Predicted, Prediction
from topotune.units import format_bytes, format_rate, format_seconds

Mark = tuple[int, str]
"""A message size, and what to say there."""

Role = Literal["default", "plan", "candidate", "prediction", "optimum", "benchmark"]

MAX_CURVES: Final = 40
_MAX_POINTS: Final = 500
"""Of a curve with more, every so many-th is drawn."""
_SHOWN_OF_A_ROLE: Final = 6
"""So many curves of candidates, and of predictions, are drawn at once; the legend brings the others in."""

_DASH: Final[dict[str, str]] = {
    "default": "solid",
    "plan": "solid",
    "candidate": "solid",
    "benchmark": "solid",
    "prediction": "dot",
    "optimum": "dash",
}
_OWN_COLOURS: Final = {"default": COLOURS[0], "plan": COLOURS[1], "optimum": COLOURS[2]}
_OTHER_COLOURS: Final = COLOURS[3:]
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross")
"""Curves of one role and colour, from several files, differ in these."""

_USUAL_SIZES: Final = tuple(2**power for power in range(10, 31, 2))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Style:
    """How a curve is drawn; whether from the first, or when its name is clicked on."""

    colour: str
    symbol: str
    dash: str
    is_shown: bool


@dataclass(frozen=True, slots=True)
class Point:
    """A time at a message size.

    Attributes:
        message_bytes: buffer on each rank.
        time_s: the time.
        interval_s: its 95 % interval; None where there is none.
    """

    message_bytes: int
    time_s: float
    interval_s: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Times of one way to do a collective.

    Attributes:
        name: of it; from files, not escaped.
        source: the file.
        role: how it is drawn.
        collective: which.
        num_ranks: n; None where it is not known.
        points: ascending.
    """

    name: str
    source: str
    role: Role
    num_ranks: int | None
    points: tuple[Point, ...]
    collective: str = "allreduce"

    def busbw_bytes_per_s(self, point: Point, time_s: float) -> float:
        """Bus bandwidth of a time at a point, as nccl-tests counts it."""
        assert self.num_ranks is not None
        return point.message_bytes / time_s * busbw_factor(self.collective, self.num_ranks)


def plan_curves(plan: Plan, source: str) -> list[Curve]:
    """The default, the plan, what was predicted of it, and the optimum, for the world's allreduce."""
    world = plan.groups[0]
    return _planned(world.allreduce or (), source, world.shape.num_ranks, "allreduce")


def group_curves(group: Group, collective: Collective, source: str) -> list[Curve]:
    """The same of another table of a plan; empty where nothing in it was measured."""
    return _planned(getattr(group, collective) or (), source, group.shape.num_ranks, collective)


def _planned(rows: Sequence[Row], source: str, num_ranks: int, collective: str) -> list[Curve]:
    measured = {
        row.evidence.measured_bytes: (row, row.evidence)
        for row in rows
        if row.evidence is not None and not row.evidence.extrapolated
    }
    default, planned, predicted, least = [], [], [], []
    for size, (row, evidence) in sorted(measured.items()):
        default.append(Point(size, evidence.default_median_s))
        if row.algorithm == DEFAULT_ALGORITHM:
            planned.append(Point(size, evidence.default_median_s))
        else:
            low, high = evidence.ratio_ci
            interval_s = (evidence.default_median_s / high, evidence.default_median_s / low) if low else None
            planned.append(Point(size, evidence.median_s, interval_s))
        if evidence.predicted_s:
            predicted.append(Point(size, evidence.predicted_s))
        if row.percent_of_optimum:
            least.append(Point(size, row.percent_of_optimum / 100 * planned[-1].time_s))
    named: tuple[tuple[str, Role, list[Point]], ...] = (
        ("default", "default", default),
        ("plan", "plan", planned),
        ("plan, as predicted", "prediction", predicted),
        ("optimum", "optimum", least),
    )
    return [
        Curve(
            name=name,
            source=source,
            role=role,
            num_ranks=num_ranks,
            points=tuple(points),
            collective=collective,
        )
        for name, role, points in named
        if points
    ]


def tuning_curves(run: TuningRun, source: str) -> list[Curve]:
    """The default and every candidate that was timed, those that were timed most first."""
    found = sorted(
        run.curves().items(), key=lambda one: (not one[0].is_default, -sum(p[2] for p in one[1].values()))
    )
    return [
        Curve(
            name=arm.label,
            source=source,
            role="default" if arm.is_default else "candidate",
            num_ranks=run.num_ranks,
            points=tuple(Point(size, time_s, interval_s) for size, (time_s, interval_s, _) in sizes.items()),
        )
        for arm, sizes in found
    ]


def comparison_curves(comparison: Comparison, source: str) -> list[Curve]:
    """The default and the plan for the allreduce over all ranks."""
    return _compared(comparison.sizes, source, comparison.num_ranks, "allreduce")


def table_curves(table: ComparedTable, source: str) -> list[Curve]:
    """The default and the plan for another collective, or for the groups of a mesh."""
    return _compared(table.sizes, source, table.num_ranks, table.collective)


def _compared(sizes: Sequence[ComparedSize], source: str, num_ranks: int, collective: str) -> list[Curve]:
    """With the interval of their ratio on the plan's side."""
    default, planned = [], []
    for one in sizes:
        low, high = one.ratio_ci
        interval_s = (one.default_median_s / high, one.default_median_s / low) if low > 0 else None
        default.append(Point(one.message_bytes, one.default_median_s))
        planned.append(Point(one.message_bytes, one.plan_median_s, interval_s))
    roles: tuple[tuple[Role, list[Point]], ...] = (("default", default), ("plan", planned))
    return [
        Curve(
            name=role,
            source=source,
            role=role,
            num_ranks=num_ranks,
            points=tuple(points),
            collective=collective,
        )
        for role, points in roles
    ]


def prediction_curves(prediction: Prediction, source: str) -> list[Curve]:
    """The best of each algorithm, the fastest at the largest size first, and the optimum."""
    best: dict[str, dict[int, Predicted]] = {}
    for size in prediction.sizes:
        for one in size.predictions:  # fastest first
            best.setdefault(one.algorithm, {}).setdefault(size.message_bytes, one)
    curves = [
        Curve(
            name=f"{algorithm}, predicted",
            source=source,
            role="prediction",
            num_ranks=prediction.num_ranks,
            points=tuple(Point(size, one.time_s) for size, one in sorted(sizes.items())),
        )
        for algorithm, sizes in sorted(best.items(), key=lambda item: item[1][max(item[1])].time_s)
    ]
    least = [Point(one.message_bytes, one.optimum_s) for one in prediction.sizes if one.optimum_s is not None]
    if least:
        curves.append(_optimum("optimum", source, prediction.num_ranks, least))
    return curves


def optimum_curves(result: OptimumResult, source: str, message_bytes: Sequence[int] = ()) -> list[Curve]:
    """The optimum, and what a flat ring takes at best; at the result's sizes, or the given, or usual ones."""
    sizes = [one.message_bytes for one in result.sizes] or list(message_bytes) or list(_USUAL_SIZES)
    optima = result.optima
    curves = [
        _optimum("optimum", source, optima.num_ranks, [Point(size, result.time_s(size)) for size in sizes])
    ]
    if (ring := optima.ring_algbw_bytes_per_s) is not None:
        points = [Point(size, max(size / ring, result.latency_s)) for size in sizes]
        curves.append(_optimum("flat ring at best", source, optima.num_ranks, points))
    return curves


def benchmark_curves(measurement: Measurement, source: str) -> list[Curve]:
    """What other tools say of collectives: a curve for each collective, run, and place of the buffer."""
    found: dict[tuple[str, int, bool | None, int | None, bool], dict[int, CollectiveFigure]] = {}
    for one in measurement.collectives:
        if one.message_bytes > 0:
            key = (one.collective, one.run, one.in_place, one.num_ranks, one.of_part)
            found.setdefault(key, {})[one.message_bytes] = one
    several_runs = len({run for _, run, *_ in found}) > 1
    place = {True: ", in place", False: ", out of place", None: ""}
    return [
        Curve(
            name=f"{collective}{', of a part' * of_part}{place[in_place]}"
            f"{f', run {run}' if several_runs else ''}",
            source=source,
            role="benchmark",
            collective=collective,
            num_ranks=num_ranks,
            points=tuple(
                Point(
                    size,
                    one.time_s,
                    (one.min_s, one.max_s) if one.min_s is not None and one.max_s is not None else None,
                )
                for size, one in sorted(sizes.items())
            ),
        )
        for (collective, run, in_place, num_ranks, of_part), sizes in found.items()
    ]


def _optimum(name: str, source: str, num_ranks: int, points: Sequence[Point]) -> Curve:
    return Curve(name=name, source=source, role="optimum", num_ranks=num_ranks, points=tuple(points))


def curve_points(curves: Sequence[Curve]) -> pd.DataFrame:
    """One row for each point of some curves; intervals and bus bandwidth where there are any."""
    return frame(
        (
            "curve", "source", "role", "collective", "num_ranks", "message_bytes", "time_s", "time_s_low",
            "time_s_high", "busbw_bytes_per_s",
        ),
        (
            (
                curve.name, curve.source, curve.role, curve.collective, curve.num_ranks, point.message_bytes,
                point.time_s, *ends(point.interval_s),
                curve.busbw_bytes_per_s(point, point.time_s) if (curve.num_ranks or 0) > 1 else None,
            )
            for curve in curves
            for point in curve.points
        ),
    )  # fmt: skip


def crossovers(plan: Plan) -> list[Mark]:
    """Message sizes at which the world's allreduce goes over from one algorithm to another, and to which."""
    return table_crossovers(plan.groups[0].allreduce or ())


def table_crossovers(rows: Sequence[Row]) -> list[Mark]:
    """The same of any table of a plan."""
    return [
        (row.min_bytes, row.algorithm)
        for before, row in pairwise(rows)
        if (before.algorithm, before.params) != (row.algorithm, row.params)
    ]


def _thinned(curve: Curve) -> Curve:
    return replace(curve, points=curve.points[:: -(-len(curve.points) // _MAX_POINTS) or 1])


def time_chart(curves: Sequence[Curve], marks: Sequence[Mark] = ()) -> Chart:
    """Time against message size, intervals as bars.

    Args:
        curves: one or more, not more than `MAX_CURVES`.
        marks: message sizes to mark, with a word each: where a plan changes algorithms, and to which.
    """
    curves = [_thinned(curve) for curve in curves]
    traces = [
        _trace(curve, style, [(p.time_s, p.interval_s) for p in curve.points], format_seconds)
        for curve, style in _styled(curves)
    ]
    times_s = [point.time_s for curve in curves for point in curve.points]
    figure = {"data": traces, "layout": layout(yaxis=seconds_axis(times_s), **_sizes(curves, marks))}
    return Chart(
        title="Time against message size",
        figure=figure,
        alt=f"{len(curves)} curves of time against message size: {_names(curves)}",
        height_px=_height(curves),
    )


def busbw_chart(curves: Sequence[Curve], marks: Sequence[Mark] = ()) -> Chart | None:
    """Bus bandwidth against message size; None where nobody says how many ranks there were."""
    curves = [_thinned(curve) for curve in curves if curve.num_ranks is not None and curve.num_ranks > 1]
    if not curves:
        return None
    traces = []
    rates: list[float] = []
    for curve, style in _styled(curves):
        values = []
        for point in curve.points:
            rate = curve.busbw_bytes_per_s(point, point.time_s)
            interval = point.interval_s and (
                curve.busbw_bytes_per_s(point, point.interval_s[1]),
                curve.busbw_bytes_per_s(point, point.interval_s[0]),
            )
            values.append((rate, interval))
            rates.append(rate)
        traces.append(_trace(curve, style, values, format_rate))
    figure = {"data": traces, "layout": layout(yaxis=rate_axis(rates), **_sizes(curves, marks))}
    return Chart(
        title="Bus bandwidth against message size",
        figure=figure,
        alt=f"{len(curves)} curves of bus bandwidth against message size: {_names(curves)}",
        height_px=_height(curves),
    )


def _sizes(curves: Sequence[Curve], marks: Sequence[Mark]) -> dict[str, Any]:
    """The axis of message sizes, and the marks along it with their words."""
    sizes = [point.message_bytes for curve in curves for point in curve.points]
    low, high = min(sizes, default=1), max(sizes, default=1)
    words: dict[int, list[str]] = {}
    for size, word in marks:
        if low <= size <= high:
            words.setdefault(size, []).append(plain(word, 24))
    shapes = [
        {
            "type": "line", "x0": size, "x1": size, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": NEUTRAL, "width": 1, "dash": "dot"},
        }
        for size in words
    ]  # fmt: skip
    annotations = [
        {
            "x": math.log10(size), "y": 0, "yref": "paper", "text": "→ " + ", ".join(dict.fromkeys(said)),
            "textangle": -90, "xanchor": "left", "yanchor": "bottom", "showarrow": False,
            "font": {"size": 11},
        }
        for size, said in words.items()
    ]  # fmt: skip
    return {"xaxis": size_axis(sizes), "shapes": shapes, "annotations": annotations}


def _styled(curves: Sequence[Curve]) -> Iterator[tuple[Curve, _Style]]:
    """The default, the plan and the optimum have colours of their own in every chart; others take turns."""
    count: dict[str, int] = {}
    num_others = 0
    for curve in curves:
        number = count.get(curve.role, 0)
        count[curve.role] = number + 1
        if curve.role in _OWN_COLOURS:
            colour = _OWN_COLOURS[curve.role]
        else:
            colour = _OTHER_COLOURS[num_others % len(_OTHER_COLOURS)]
            num_others += 1
        yield (
            curve,
            _Style(
                colour=colour,
                symbol=_SYMBOLS[number % len(_SYMBOLS)],
                dash="dashdot" if curve.role == "optimum" and number % 2 else _DASH[curve.role],
                is_shown=curve.role not in ("candidate", "prediction") or number < _SHOWN_OF_A_ROLE,
            ),
        )


def _trace(
    curve: Curve,
    style: _Style,
    values: Sequence[tuple[float, tuple[float, float] | None]],
    form: Any,
) -> dict[str, Any]:
    name = f"{plain(curve.name, 60)} ({plain(curve.source, 30)})"
    texts = [
        f"{format_bytes(point.message_bytes)}: {form(value)}"
        + (f" ({form(interval[0])} … {form(interval[1])})" if interval else "")
        for point, (value, interval) in zip(curve.points, values, strict=True)
    ]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" if curve.role == "optimum" else "lines+markers",
        "name": name,
        "x": [point.message_bytes for point in curve.points],
        "y": [value for value, _ in values],
        "text": texts,
        "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
        "line": {"color": style.colour, "dash": style.dash, "width": 3 if curve.role == "plan" else 2},
        "marker": {"color": style.colour, "size": 7, "symbol": style.symbol},
        "visible": True if style.is_shown else "legendonly",
    }
    if any(interval for _, interval in values):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, interval[1] - value) if interval else 0.0 for value, interval in values],
            "arrayminus": [max(0.0, value - interval[0]) if interval else 0.0 for value, interval in values],
            "color": style.colour,
            "thickness": 1,
        }
    return trace


def _names(curves: Sequence[Curve]) -> str:
    return ", ".join(dict.fromkeys(curve.name for curve in curves[:8])) + (" …" if len(curves) > 8 else "")


def _height(curves: Sequence[Curve]) -> int:
    """The legend stands below the drawing, a line a curve on a narrow screen, and scrolls."""
    return 480 + min(22 * len(curves), LEGEND_PX)

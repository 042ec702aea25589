"""A training step as bars: the backward, the exchange of each bucket beside it, and the tail behind it.

Each way to run the step has two lines, one above the other: what computes, and what the network does. Where
an exchange goes on behind the end of the backward it has another colour: that is what the step pays for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from topotune.report.content import Chart
from topotune.report.pictures.axes import COLOURS, NEUTRAL, layout, plain
from topotune.step.gradients import Gradients
from topotune.step.timeline import Timeline
from topotune.units import format_bytes, format_seconds

_MAX_BARS: Final = 400
"""Of one line; more buckets are drawn together, so many neighbours each."""

_BACKWARD, _HIDDEN, _EXPOSED = COLOURS[8], COLOURS[0], COLOURS[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to run a step.

    Attributes:
        name: of it; from files, not escaped.
        timeline: by the model.
        measured_s: median of steps that were run; None where none were.
    """

    name: str
    timeline: Timeline
    measured_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Bar:
    """Some neighbouring buckets: from the first's start to the last's end."""

    start_s: float
    end_s: float
    text: str


def step_chart(ways: Sequence[Way]) -> Chart:
    """The ways one below the other on one axis of time.

    Args:
        ways: one or more.
    """
    backward: list[tuple[str, _Bar]] = []
    hidden: list[tuple[str, _Bar]] = []
    exposed: list[tuple[str, _Bar]] = []
    lines = []
    for way in ways:
        name, end_s = plain(way.name, 40), way.timeline.backward_s
        lines += [f"{name}: backward", f"{name}: exchange"]
        backward.append((lines[-2], _Bar(0.0, end_s, f"backward: {format_seconds(end_s)}")))
        for bar in _bars(way.timeline):
            if bar.start_s < end_s:
                hidden.append((lines[-1], _Bar(bar.start_s, min(bar.end_s, end_s), bar.text)))
            if bar.end_s > end_s:
                exposed.append((lines[-1], _Bar(max(bar.start_s, end_s), bar.end_s, bar.text)))
    data = [
        _trace(name, bars, colour)
        for name, bars, colour in (
            ("backward", backward, _BACKWARD),
            ("exchange beside the backward", hidden, _HIDDEN),
            ("exposed tail", exposed, _EXPOSED),
        )
        if bars
    ]
    measured = [(way, plain(way.name, 40)) for way in ways if way.measured_s is not None]
    if measured:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "measured step (median)",
                "x": [way.measured_s for way, _ in measured],
                "y": [f"{name}: exchange" for _, name in measured],
                "text": [f"{name}: measured {format_seconds(way.measured_s or 0)}" for way, name in measured],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"symbol": "line-ns", "size": 26, "line": {"width": 3, "color": NEUTRAL}},
            }
        )
    drawn = layout(
        barmode="overlay",
        xaxis={
            "title": {"text": "seconds since the backward began"},
            "rangemode": "tozero",
            "zeroline": False,
            "automargin": True,
        },
        yaxis={
            "categoryorder": "array",
            "categoryarray": lines,
            "autorange": "reversed",
            "showgrid": False,
            "automargin": True,
        },
    )
    drawn["legend"]["title"] = {
        "text": "bars: the model; mark: measured" if measured else "bars: the model",
        "side": "top",  # to the left it would push the entries out of a narrow screen
    }
    return Chart(
        title="Buckets beside the backward, by the model",
        figure={"data": data, "layout": drawn},
        alt="; ".join((*(in_words(way) for way in ways), where_from(ways))),
        height_px=220 + 80 * len(ways),
    )


def in_words(way: Way) -> str:
    """What the bars of a way say."""
    line = way.timeline
    count = len(line.sizes)
    backward, exchange = format_seconds(line.backward_s), format_seconds(line.exchange_s)
    return (
        f"{way.name}: {count} bucket{'s' * (count != 1)}, a backward of {backward} and {exchange} of "
        f"exchange; {format_seconds(line.exposed_s)} lie behind the backward, which makes a step of "
        f"{format_seconds(line.step_s)}"
        + (f" (measured {format_seconds(way.measured_s)})" if way.measured_s is not None else "")
    )


def where_from(ways: Sequence[Way]) -> str:
    """What of a step's picture was measured, and what follows from it."""
    bars = (
        "The bars are the model's: each bucket's time follows from measured times of single calls, none was "
        "timed inside a step"
    )
    if any(way.measured_s is not None for way in ways):
        return f"{bars}; the mark is the step that was measured."
    return f"{bars}; no step was measured here."


def ready_chart(gradients: Gradients) -> Chart:
    """How many bytes of gradients there are by the time, over the backward."""
    scale = 1.0 if gradients.timed else gradients.backward_s
    times = [one / scale for one in gradients.ready_s]
    total, sums = 0, []
    for size in gradients.sizes:
        total += size
        sums.append(total)
    stride = -(-len(sums) // _MAX_BARS)
    shown = [*range(0, len(sums) - 1, stride), len(sums) - 1]
    unit = "seconds since the backward began" if gradients.timed else "share of the backward"
    figure = {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "x": [0.0, *(times[at] for at in shown)],
                "y": [0.0, *(100 * sums[at] / total for at in shown)],
                "text": ["nothing yet", *(f"{format_bytes(sums[at])} are ready" for at in shown)],
                "hovertemplate": "%{x:.3g}: %{text}<extra></extra>",
                "line": {"color": COLOURS[0], "shape": "hv", "width": 2},
                "name": "gradients",
            }
        ],
        "layout": layout(
            xaxis={"title": {"text": unit}, "rangemode": "tozero", "zeroline": False, "automargin": True},
            yaxis={
                "title": {"text": f"% of {format_bytes(total)}"},
                "rangemode": "tozero",
                "zeroline": False,
                "automargin": True,
            },
        ),
    }
    return Chart(
        title="When gradients are ready",
        figure=figure,
        alt=f"{len(sums)} gradients of {format_bytes(total)} over the backward",
        height_px=320,
    )


def _trace(name: str, bars: Sequence[tuple[str, _Bar]], colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [line for line, _ in bars],
        "base": [bar.start_s for _, bar in bars],
        "x": [bar.end_s - bar.start_s for _, bar in bars],
        "width": 0.7,
        "text": [bar.text for _, bar in bars],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": colour, "line": {"width": 1, "color": "rgba(255,255,255,0.6)"}},
    }


def _bars(line: Timeline) -> Iterator[_Bar]:
    """A bar a bucket, or for some neighbours where there are many."""
    stride = -(-len(line.sizes) // _MAX_BARS)
    for first in range(0, len(line.sizes), stride):
        last = min(first + stride, len(line.sizes)) - 1
        who = f"bucket {first}" if first == last else f"buckets {first} to {last}"
        waited_s = line.starts_s[first] - line.complete_s[first]
        waited = f", waits {format_seconds(waited_s)}" if waited_s > 0 else ""
        yield _Bar(
            line.starts_s[first],
            line.ends_s[last],
            f"{who}, {format_bytes(sum(line.sizes[first : last + 1]))}: complete at "
            f"{format_seconds(line.complete_s[first])}{waited}, exchanged in "
            f"{format_seconds(line.ends_s[last] - line.starts_s[first])}",
        )

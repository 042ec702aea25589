"""What a tuning run tried over time, and how candidates stood against the default."""

import statistics
from typing import Any, Final

from topotune.report.content import Chart
from topotune.report.pictures.axes import COLOURS, NEUTRAL, layout, plain
from topotune.results.tuning import Trial, TuningRun
from topotune.units import format_bytes, format_seconds

_PURPOSES: Final = {
    "pilot": "pilot: what the default takes",
    "check": "check: is the result right",
    "search": "search: candidates in turn with the default",
    "condition": "condition: beside a backward, or busy Python",
    "confirm": "confirm: finalists on fresh samples",
    "null": "null: the default against itself",
    "dispatch": "dispatch: the default through the backend",
}
_MAX_TRIALS: Final = 5_000
"""Of a longer run the last ones are drawn; the table has all."""
_MAX_ARMS_NAMED: Final = 6
_SYMBOLS: Final = ("circle", "diamond", "square", "x")
"""Of message sizes, where there are more of them than colours."""


def trials_chart(run: TuningRun) -> Chart:
    """Bars from start to end of each trial, by message size, coloured by purpose."""
    trials = run.trials[-_MAX_TRIALS:]
    sizes = sorted({trial.message_bytes for trial in trials})
    row_of = {size: row for row, size in enumerate(sizes)}
    last_s = max((trial.end_s or trial.start_s for trial in trials), default=0.0)
    data: list[dict[str, Any]] = []
    purposes = [*_PURPOSES, *sorted({trial.purpose for trial in trials} - set(_PURPOSES))]
    for number, purpose in enumerate(purposes):
        own = [trial for trial in trials if trial.purpose == purpose]
        if own:
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": plain(_PURPOSES.get(purpose, purpose)),
                    "y": [row_of[trial.message_bytes] for trial in own],
                    "base": [trial.start_s for trial in own],
                    "x": [max((trial.end_s or last_s) - trial.start_s, 0.0) for trial in own],
                    "width": 0.7,
                    "marker": {"color": COLOURS[number % len(COLOURS)], "line": {"width": 0}},
                    "text": [_in_words(trial) for trial in own],
                    "textposition": "none",
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
    figure = {
        "data": data,
        "layout": layout(
            barmode="overlay",
            xaxis={
                "title": {"text": "seconds since the ranks joined"},
                "zeroline": False,
                "automargin": True,
            },
            yaxis={
                "title": {"text": "message size"},
                "tickvals": list(range(len(sizes))),
                "ticktext": [format_bytes(size) for size in sizes],
                "automargin": True,
            },
        ),
    }
    return Chart(
        title="What was tried, over time",
        figure=figure,
        alt=f"{len(trials)} trials at {len(sizes)} message sizes over {last_s:.0f} s",
        height_px=260 + 26 * len(sizes) + 22 * len(data),
    )


def ratios_chart(run: TuningRun) -> Chart | None:
    """Default / candidate of each trial in which both ran, at its end; None where there was none."""
    data: list[dict[str, Any]] = []
    trials = run.trials[-_MAX_TRIALS:]
    for number, size in enumerate(sorted({trial.message_bytes for trial in trials})):
        points = [
            (trial.end_s or trial.start_s, ratio, f"{label} at {format_bytes(size)}, {trial.purpose}")
            for trial in trials
            if trial.message_bytes == size and trial.condition == "idle"
            for label, ratio in _ratios(trial)
        ]
        if points:
            points.sort(key=lambda point: point[0])
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": format_bytes(size),
                    "x": [at_s for at_s, _, _ in points],
                    "y": [ratio for _, ratio, _ in points],
                    "text": [
                        f"{plain(text, 200)}: {ratio:.2f} times as fast as the default"
                        for _, ratio, text in points
                    ],
                    "hovertemplate": "%{text}<extra></extra>",
                    "marker": {
                        "color": COLOURS[number % len(COLOURS)],
                        "symbol": _SYMBOLS[number // len(COLOURS) % len(_SYMBOLS)],
                        "size": 7,
                    },
                }
            )
    if not data:
        return None
    figure = {
        "data": data,
        "layout": layout(
            xaxis=_elapsed_axis(),
            yaxis={
                "type": "log",
                "title": {"text": "default / candidate"},
                "tickvals": [0.1, 0.2, 0.5, 1, 2, 5, 10],
                "automargin": True,
            },
            shapes=[
                {
                    "type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": 1, "y1": 1,
                    "line": {"color": NEUTRAL, "width": 1},
                }
            ],
        ),
    }  # fmt: skip
    return Chart(
        title="How candidates stood against the default (above 1 is faster)",
        figure=figure,
        alt=f"ratios of {sum(len(trace['x']) for trace in data)} timings of candidates to the default",
        height_px=420 + 10 * len(data),
    )


def _elapsed_axis() -> dict[str, Any]:
    return {"title": {"text": "seconds since the ranks joined"}, "zeroline": False, "automargin": True}


def _ratios(trial: Trial) -> list[tuple[str, float]]:
    samples = [trial.samples_s(index) for index in range(len(trial.arms))]
    default = next(
        (own for arm, own in zip(trial.arms, samples, strict=True) if arm.is_default and own), None
    )
    if default is None:
        return []
    default_s = statistics.median(default)
    return [
        (arm.label, default_s / statistics.median(own))
        for arm, own in zip(trial.arms, samples, strict=True)
        if own and not arm.is_default
    ]


def _in_words(trial: Trial) -> str:
    arms = [plain(arm.label, 60) for arm in trial.arms[:_MAX_ARMS_NAMED]]
    more = f" and {len(trial.arms) - _MAX_ARMS_NAMED} more" if len(trial.arms) > _MAX_ARMS_NAMED else ""
    lasted = "never ended" if trial.end_s is None else format_seconds(max(trial.end_s - trial.start_s, 0.0))
    problem = f"<br>{plain(trial.problem, 200)}" if trial.problem else ""
    return (
        f"trial {trial.number}, {plain(trial.purpose)}, {format_bytes(trial.message_bytes)}, "
        f"{plain(trial.condition)}: {lasted}<br>{'<br>'.join(arms)}{more}{problem}"
    )

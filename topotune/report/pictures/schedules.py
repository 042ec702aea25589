"""A schedule as a picture: what each rank sends in each step."""

from typing import Any, Final

import numpy as np

from topotune.report.content import Chart
from topotune.report.pictures.axes import SCALE, layout
from topotune.schedule.model import Schedule

_MAX_SIDE: Final = 256


def sending_chart(schedule: Schedule) -> Chart:
    """Share of the message that each rank sends in each step, as a heat map.

    More than 256 steps or ranks are folded: a cell is then the sum over its steps, the mean over its ranks.
    """
    step = np.asarray(schedule.step, dtype=np.int64)
    num_steps = int(step.max()) + 1 if schedule.num_transfers else 1
    steps_a_cell = -(-num_steps // _MAX_SIDE)
    ranks_a_cell = -(-schedule.num_ranks // _MAX_SIDE)
    shape = (-(-schedule.num_ranks // ranks_a_cell), -(-num_steps // steps_a_cell))
    sent = np.zeros(shape)
    shares = 100.0 * schedule.chunk_fractions()[schedule.chunk] / ranks_a_cell
    np.add.at(sent, (np.asarray(schedule.src) // ranks_a_cell, step // steps_a_cell), shares)
    fold = "" if steps_a_cell == ranks_a_cell == 1 else (
        f"; a cell is {steps_a_cell} steps of {ranks_a_cell} ranks"
    )  # fmt: skip
    data: list[dict[str, Any]] = [
        {
            "type": "heatmap",
            "z": np.round(sent, 3).tolist(),
            "x0": 0,
            "dx": steps_a_cell,
            "y0": 0,
            "dy": ranks_a_cell,
            "colorscale": [list(stop) for stop in SCALE],
            "colorbar": {"title": {"text": "% of message"}, "thickness": 12},
            "hovertemplate": "rank %{y}, step %{x}: %{z} % of the message<extra></extra>",
        }
    ]
    figure = {
        "data": data,
        "layout": layout(
            xaxis={"title": {"text": "step"}, "showgrid": False, "zeroline": False, "automargin": True},
            yaxis={
                "title": {"text": "rank"},
                "showgrid": False,
                "zeroline": False,
                "autorange": "reversed",
                "automargin": True,
            },
        ),
    }
    return Chart(
        title=f"What each rank sends in each step{fold}",
        figure=figure,
        alt=f"heat map of {num_steps} steps of {schedule.num_ranks} ranks, share of the message sent",
    )

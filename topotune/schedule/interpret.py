"""What a schedule computes, by doing it: the numpy oracle that everything faster is held against."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from topotune.schedule.model import REDUCE, Schedule

Combine = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]]


def interpret(schedule: Schedule, inputs: npt.NDArray[Any], combine: Combine = np.add) -> npt.NDArray[Any]:
    """Run ``schedule`` step by step, transfer by transfer.

    All transfers of a step read what stood there when the step began. Channels have no chunk in common, so
    running them in lockstep gives the one result that any interleaving gives.

    Args:
        schedule: need not be verified; with a chunk received twice in one step, the later row counts last.
        inputs: shape (num_ranks, num_elements), any dtype.
        combine: of (own, received), elementwise.

    Returns:
        What each rank holds at the end; shape and dtype of ``inputs``.
    """
    if inputs.shape[0] != schedule.num_ranks:
        raise ValueError(f"inputs for {inputs.shape[0]} ranks, schedule for {schedule.num_ranks}")
    bounds = schedule.element_bounds(inputs.shape[1])
    held = inputs.copy()
    for step in np.unique(schedule.step):
        rows = np.flatnonzero(schedule.step == step)
        sent = []
        for row in rows:
            chunk = schedule.chunk[row]
            sent.append(held[schedule.src[row], bounds[chunk] : bounds[chunk + 1]].copy())
        for row, received in zip(rows, sent, strict=True):
            chunk = schedule.chunk[row]
            own = held[schedule.dst[row], bounds[chunk] : bounds[chunk + 1]]
            own[:] = combine(own, received) if schedule.op[row] == REDUCE else received
    return held

"""Predicted times of reduce-scatters and all-gathers, for the order in which they are tried.

The library's own are predicted as `topotune.simulate.native` says. What goes through memory takes half as
long as an allreduce through it, and between nodes as long as a ring.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from topotune.links.model import LinkModel
from topotune.plan.algorithms import DEFAULT, PART_SCHEDULES
from topotune.schedule.catalog import build
from topotune.schedule.model import Params, PartCollective
from topotune.simulate.calls import SEGMENTS, calls_on
from topotune.simulate.memory import allreduce_through_memory, stages_through_memory
from topotune.simulate.prediction import predict

FloatArray = npt.NDArray[np.float64]


def predict_parts(
    collective: PartCollective,
    algorithm: str,
    params: Params,
    model: LinkModel,
    message_bytes: Sequence[int],
) -> FloatArray:
    """Seconds of one reduce-scatter or all-gather.

    Args:
        collective: which of the two.
        algorithm: as in plans: ``default``, a schedule of parts, ``shm`` or ``shm_hierarchical``.
        params: of the algorithm.
        model: fitted links, between as many ranks as take part.
        message_bytes: of all ranks' parts together, each >= 0.

    Returns:
        Seconds, shape (len(message_bytes),).
    """
    num_ranks = model.num_ranks
    if algorithm in PART_SCHEDULES:
        return predict(build(algorithm, params, num_ranks, collective), model, message_bytes)
    if algorithm == DEFAULT:
        calls = calls_on(model, [SEGMENTS * num_ranks])
        if collective == "reduce_scatter":
            calls.allreduce([range(num_ranks)], 0)
        else:
            calls.allgather([range(num_ranks)], 0)
        return calls.time_s(message_bytes)
    if algorithm == "shm":
        return allreduce_through_memory(model, range(num_ranks), message_bytes) / 2 + model.call_overhead_s
    assert algorithm == "shm_hierarchical", algorithm
    groups: list[list[int]] = [list(group) for group in params["groups"]]  # type: ignore[arg-type,union-attr]
    inside: FloatArray = np.max(
        [stages_through_memory(model, group, message_bytes, by_shards=True) for group in groups], axis=0
    )
    whole = predict(build("hierarchical", {"groups": groups}, num_ranks, collective), model, message_bytes)
    rings = np.max([_ring_s(model, group, collective, message_bytes) for group in groups], axis=0)
    across: FloatArray = np.maximum(whole - rings, 0.0)
    return inside / 2 + across


def _ring_s(
    model: LinkModel, group: Sequence[int], collective: PartCollective, message_bytes: Sequence[int]
) -> FloatArray:
    """What a ring of the whole message inside one group takes."""
    if len(group) == 1:
        return np.zeros(len(message_bytes))
    return predict(build("ring", {}, len(group), collective), model.among(group), message_bytes)

"""What the library's own collectives do, step by step: they are predicted by the same rules as schedules.

The library is gloo as torch 2.13 drives it:

- allreduce: a ring from rank r to r - 1, chunks in two segments at least, one in flight while the other is
  reduced (gloo, allreduce.cc). Of more segments (each has 1 MiB at most) it also keeps two in flight, so two
  are taken at every size.
- reduce: the ring's first half, then all chunks to the root (gloo, reduce.cc).
- broadcast: a binomial tree from the root, whole messages (gloo, broadcast.cc).
- allgather: a ring, in two segments (gloo, allgather.cc).
- reduce_scatter_tensor: an allreduce of a copy, of which each rank keeps its part (torch,
  ProcessGroupGloo.cpp).

Sources of the algorithms: Patarasuk and Yuan 2009 (ring); Thakur, Rabenseifner, Gropp 2005 (binomial tree,
scatter and gather).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from topotune.errors import UsageError
from topotune.links.model import LinkModel
from topotune.plan.algorithms import check_params
from topotune.plan.nccl import NCCL
from topotune.schedule.assemble import Transfers, assemble
from topotune.schedule.catalog import PARAMS_OF_ALGORITHM, build
from topotune.schedule.hierarchical import between_groups, check_groups, num_parts
from topotune.schedule.model import COPY, REDUCE, Params, Schedule
from topotune.simulate.calls import SEGMENTS, Calls, calls_on
from topotune.simulate.memory import allreduce_through_memory, stages_through_memory
from topotune.simulate.prediction import predict

FloatArray = npt.NDArray[np.float64]


def predict_candidate(
    algorithm: str, params: Params, model: LinkModel, message_bytes: Sequence[int]
) -> FloatArray:
    """Seconds of one allreduce by a schedule, by a composition of native collectives, or by the default.

    Args:
        algorithm: as in plans: ``default``, a schedule's name, or ``native_…`` or ``shm…``.
        params: of the algorithm.
        model: fitted links, between as many ranks as the allreduce has.
        message_bytes: sizes, each >= 0.

    Returns:
        Seconds, shape (len(message_bytes),).

    Raises:
        UsageError: no such algorithm, params it does not take, or NCCL's own, which have no model here.
    """
    if algorithm in PARAMS_OF_ALGORITHM:
        return predict(build(algorithm, params, model.num_ranks), model, message_bytes)
    problem = check_params(algorithm, params, model.num_ranks)
    if problem is not None:
        raise UsageError(problem)
    if algorithm == NCCL:
        raise UsageError("nccl: links between ranks do not say how fast NCCL's own kernels are")
    ranks = range(model.num_ranks)
    calls = calls_on(model, [SEGMENTS * model.num_ranks])
    match algorithm:
        case "default" | "native_allreduce":
            calls.allreduce([ranks], 0)
        case "native_reduce_broadcast":
            calls.reduce([ranks], 0)
            calls.broadcast([ranks])
        case "native_reduce_scatter_allgather":
            calls.allreduce([ranks], 0)
            calls.allgather([ranks], 0)
        case "native_allgather_reduce":
            return _allgather_reduce(model, message_bytes)
        case "native_hierarchical":
            calls = _hierarchical(params["groups"], model)
        case "shm":
            return allreduce_through_memory(model, ranks, message_bytes) + model.call_overhead_s
        case "shm_hierarchical":
            return _through_memory_and_across(params, model, message_bytes)
        case _:
            raise AssertionError(algorithm)
    return calls.time_s(message_bytes)


def _allgather_reduce(model: LinkModel, message_bytes: Sequence[int]) -> FloatArray:
    """Everybody gets all n messages and adds them up: n chunks, each a whole message."""
    num_ranks = model.num_ranks
    calls = calls_on(model, [SEGMENTS * num_ranks])
    calls.allgather([range(num_ranks)], 0)
    gathered = [size * num_ranks for size in message_bytes]
    reduce_s = (num_ranks - 1) * model.reduce_s_per_byte * np.asarray(message_bytes, dtype=np.float64)
    return calls.time_s(gathered) + reduce_s


def _through_memory_and_across(params: Params, model: LinkModel, message_bytes: Sequence[int]) -> FloatArray:
    """As ``native_hierarchical``, with the stages inside groups through memory.

    Across: one call of gloo where there are two levels, the schedule ``hierarchical`` where there are three.
    With two levels of equal groups the network carries one part while the memory works on others.
    """
    nested = check_groups(params["groups"], model.num_ranks)
    members = [group for outer in nested for group in outer]
    by_shards = len(set(map(len, members))) == 1
    inside: FloatArray = np.max(
        [stages_through_memory(model, group, message_bytes, by_shards=by_shards) for group in members], axis=0
    )
    if len(members) == 1:
        return inside + model.call_overhead_s
    counterparts = _counterparts(members)
    if len(members) > len(nested):
        across = build("hierarchical", between_groups(nested, params.get("pieces", 1)), len(members))
        everywhere = _on_counterparts(across, counterparts, model.num_ranks)
        return inside + predict(everywhere, model, message_bytes)
    calls = calls_on(model, [SEGMENTS * len(counterparts) * len(members)])
    _across(calls, members, 0)
    across_s = calls.time_s(message_bytes)
    if not by_shards:
        return inside + across_s
    # The first part's way in and the last one's way out are beside nothing.
    parts = np.asarray([num_parts(size) for size in message_bytes])
    beside_s = np.maximum(across_s - model.call_overhead_s, inside * (1 - 1 / parts))
    time_s: FloatArray = inside / parts + beside_s + model.call_overhead_s
    return time_s


def _counterparts(members: Sequence[Sequence[int]]) -> list[list[int]]:
    """The ranks that exchange what belongs to them, one of each group: all, or the first ones alone."""
    places = range(len(members[0])) if len(set(map(len, members))) == 1 else range(1)
    return [[group[place] for group in members] for place in places]


def _on_counterparts(schedule: Schedule, counterparts: Sequence[Sequence[int]], num_ranks: int) -> Schedule:
    """The schedule run by each of several sets of ranks at once, on equal shards of the message."""
    denominator = schedule.chunk_bounds[-1]
    bounds = [
        place * denominator + bound
        for place in range(len(counterparts))
        for bound in schedule.chunk_bounds[:-1]
    ]
    rank = np.asarray(counterparts)
    parts = [
        Transfers(
            step=schedule.step[of_op],
            src=rank[place][schedule.src[of_op]],
            dst=rank[place][schedule.dst[of_op]],
            chunk=schedule.chunk[of_op] + place * schedule.num_chunks,
            op=op,
        )
        for place in range(len(counterparts))
        for op in (COPY, REDUCE)
        for of_op in (schedule.op == op,)
    ]
    return assemble("shm_hierarchical", {}, num_ranks, [*bounds, len(counterparts) * denominator], parts)


def _across(calls: Calls, members: Sequence[Sequence[int]], cut: int) -> None:
    """Between groups: each shard where they are equal, whole messages of the first ranks where not."""
    if len(set(map(len, members))) == 1:
        calls.allreduce_shards(members, cut)
    else:
        calls.allreduce([[group[0] for group in members]], cut)


def _hierarchical(groups: object, model: LinkModel) -> Calls:
    """Equal groups: reduce-scatter inside, allreduce of each shard across, all-gather inside.

    Unequal ones: reduce to the first rank of each, allreduce among these, broadcast from them.
    """
    members = [group for (group,) in check_groups(groups, model.num_ranks, most_levels=2)]
    sizes = {len(group) for group in members}
    if len(sizes) == 1:
        size = sizes.pop()
        calls = calls_on(model, [SEGMENTS * size, SEGMENTS * model.num_ranks])
        calls.allreduce(members, 0)
        _across(calls, members, 1)
        calls.allgather(members, 0)
        return calls
    calls = calls_on(model, [*(SEGMENTS * len(group) for group in members), SEGMENTS * len(members)])
    calls.reduce(members, *range(len(members)))
    _across(calls, members, len(members))
    calls.broadcast(members)
    return calls

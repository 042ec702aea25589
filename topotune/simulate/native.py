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
from topotune.schedule.assemble import IntArray, Transfers, assemble
from topotune.schedule.catalog import PARAMS_OF_ALGORITHM, build
from topotune.schedule.hierarchical import check_groups
from topotune.schedule.model import COPY, Params, Schedule
from topotune.schedule.phases import allgather_ring, common_cuts, reduce_scatter_ring
from topotune.simulate.prediction import predict

SEGMENTS = 2

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
        UsageError: no such algorithm, or params it does not take.
    """
    if algorithm in PARAMS_OF_ALGORITHM:
        return predict(build(algorithm, params, model.num_ranks), model, message_bytes)
    takes = {"groups"} if algorithm.endswith("_hierarchical") else set()
    if set(params) != takes:
        raise UsageError(f"{algorithm} takes the params {sorted(takes)}, not {sorted(params)}")
    ranks = range(model.num_ranks)
    match algorithm:
        case "default":
            calls = _Calls([SEGMENTS * model.num_ranks])
            calls.allreduce([ranks], 0)
        case "native_reduce_broadcast":
            calls = _Calls([SEGMENTS * model.num_ranks])
            calls.reduce([ranks], 0)
            calls.broadcast([ranks])
        case "native_reduce_scatter_allgather":
            calls = _Calls([SEGMENTS * model.num_ranks])
            calls.allreduce([ranks], 0)
            calls.allgather([ranks], 0)
        case "native_allgather_reduce":
            return _allgather_reduce(model, message_bytes)
        case "native_hierarchical":
            calls = _hierarchical(params["groups"], model.num_ranks)
        case "shm":
            return _through_memory(model, ranks, message_bytes) + model.call_overhead_s
        case "shm_hierarchical":
            return _through_memory_and_across(params["groups"], model, message_bytes)
        case _:
            raise UsageError(f"{algorithm!r:.100} is no known algorithm")
    further_calls_s = (calls.num_calls - 1) * model.call_overhead_s
    return predict(calls.schedule(algorithm, params, model.num_ranks), model, message_bytes) + further_calls_s


def _allgather_reduce(model: LinkModel, message_bytes: Sequence[int]) -> FloatArray:
    """Everybody gets all n messages and adds them up: n chunks, each a whole message."""
    num_ranks = model.num_ranks
    calls = _Calls([SEGMENTS * num_ranks])
    calls.allgather([range(num_ranks)], 0)
    gathered = [size * num_ranks for size in message_bytes]
    reduce_s = (num_ranks - 1) * model.reduce_s_per_byte * np.asarray(message_bytes, dtype=np.float64)
    return predict(calls.schedule("native_allgather_reduce", {}, num_ranks), model, gathered) + reduce_s


def _through_memory(model: LinkModel, ranks: Sequence[int], message_bytes: Sequence[int]) -> FloatArray:
    """Shared memory among some ranks, by the cheaper of the two ways that there are.

    Links are timed through gloo. That a copy to or from memory with the meeting beside it takes as long as a
    message of the same size is an estimate from above: gloo copies twice, and wakes two threads.
    """
    sizes, others = np.asarray(message_bytes, dtype=np.float64), len(ranks) - 1
    if others == 0:
        return np.zeros(len(sizes))
    everywhere = _slowest_message(model, ranks, sizes) + model.reduce_s_per_byte * others * sizes
    if others == 1:
        return everywhere
    reduced = others / len(ranks) * sizes
    in_pieces = 2 * _slowest_message(model, ranks, reduced) + model.reduce_s_per_byte * reduced
    return np.minimum(everywhere, in_pieces)


def _slowest_message(model: LinkModel, ranks: Sequence[int], sizes: FloatArray) -> FloatArray:
    numbers = {model.pair_class[src][dst] for src in ranks for dst in ranks if src != dst}
    slowest: FloatArray = np.max([model.classes[number].time_s(sizes) for number in sorted(numbers)], axis=0)
    return slowest


def _through_memory_and_across(groups: object, model: LinkModel, message_bytes: Sequence[int]) -> FloatArray:
    """As ``native_hierarchical``, with the stages inside groups through memory; one call of gloo, across."""
    members = _partition("shm_hierarchical", groups, model.num_ranks)
    inside: FloatArray = np.max([_through_memory(model, group, message_bytes) for group in members], axis=0)
    if len(members) == 1:
        return inside + model.call_overhead_s
    calls = _Calls([SEGMENTS * (model.num_ranks if len(set(map(len, members))) == 1 else len(members))])
    _across(calls, members, 0)
    across = predict(calls.schedule("shm_hierarchical", {}, model.num_ranks), model, message_bytes)
    return inside + across


def _across(calls: "_Calls", members: Sequence[Sequence[int]], cut: int) -> None:
    """Between groups: each shard where they are equal, whole messages of the first ranks where not."""
    if len(set(map(len, members))) == 1:
        calls.allreduce_shards(members, cut)
    else:
        calls.allreduce([[group[0] for group in members]], cut)


def _partition(algorithm: str, groups: object, num_ranks: int) -> Sequence[Sequence[int]]:
    members = check_groups(groups)
    named = sum(map(len, members))
    if named != num_ranks:
        raise UsageError(f"{algorithm}: groups names {named} ranks, the links are between {num_ranks}")
    return members


def _hierarchical(groups: object, num_ranks: int) -> "_Calls":
    """Equal groups: reduce-scatter inside, allreduce of each shard across, all-gather inside.

    Unequal ones: reduce to the first rank of each, allreduce among these, broadcast from them.
    """
    members = _partition("native_hierarchical", groups, num_ranks)
    sizes = {len(group) for group in members}
    if len(sizes) == 1:
        size = sizes.pop()
        calls = _Calls([SEGMENTS * size, SEGMENTS * num_ranks])
        calls.allreduce(members, 0)
        _across(calls, members, 1)
        calls.allgather(members, 0)
        return calls
    calls = _Calls([*(SEGMENTS * len(group) for group in members), SEGMENTS * len(members)])
    calls.reduce(members, *range(len(members)))
    _across(calls, members, len(members))
    calls.broadcast(members)
    return calls


class _Calls:
    """Collective calls made one after the other, on all of several disjoint groups at once, as transfers.

    ``cuts`` are the numbers of equal parts that calls cut the message in; a call names the one it uses by its
    index.
    """

    def __init__(self, cuts: Sequence[int]) -> None:
        self.num_calls = 0
        self._bounds, self._part = common_cuts(cuts)
        self._chunks = np.arange(len(self._bounds) - 1)
        self._parts: list[Transfers] = []
        self._next_step = 0

    def schedule(self, algorithm: str, params: Params, num_ranks: int) -> Schedule:
        """All calls as one schedule."""
        return assemble(algorithm, params, num_ranks, self._bounds, self._parts)

    def allreduce(self, groups: Sequence[Sequence[int]], cut: int) -> None:
        """In each group, a segmented ring."""
        half = SEGMENTS * (max(map(len, groups)) - 1)
        for group in groups:
            members, owner, segment = self._ring(group, cut)
            self._rings(members, owner, segment + self._next_step, half)
        self._end_call(2 * half)

    def allreduce_shards(self, groups: Sequence[Sequence[int]], cut: int) -> None:
        """Shard i of the message among the i-th ranks of groups of one size, for all i at once."""
        num_groups, size = len(groups), len(groups[0])
        shard, place = np.divmod(self._part[cut], SEGMENTS * num_groups)
        owner, segment = np.divmod(place, SEGMENTS)
        across = np.asarray(groups)[:, shard]
        assert across.shape == (num_groups, len(self._chunks)), f"{size} ranks a group"
        half = SEGMENTS * (num_groups - 1)
        self._rings(across[::-1], owner, segment + self._next_step, half)
        self._end_call(2 * half)

    def reduce(self, groups: Sequence[Sequence[int]], *cuts: int) -> None:
        """In each group, to its first rank."""
        half = SEGMENTS * (max(map(len, groups)) - 1)
        for group, cut in zip(groups, cuts, strict=True):
            members, owner, segment = self._ring(group, cut)
            first_step = segment + self._next_step
            self._parts.append(
                reduce_scatter_ring(members, owner, self._chunks, first_step=first_step, stride=SEGMENTS)
            )
            sender = members[owner, 0]
            away = sender != group[0]
            self._parts.append(
                Transfers(self._next_step + half, sender[away], group[0], self._chunks[away], COPY)
            )
        self._end_call(half + 1)

    def broadcast(self, groups: Sequence[Sequence[int]]) -> None:
        """In each group, from its first rank, down a binomial tree."""
        num_levels = max((len(group) - 1).bit_length() for group in groups)
        for group in groups:
            ranks, levels = np.asarray(group), (len(group) - 1).bit_length()
            for level in range(levels):
                distance = 1 << (levels - 1 - level)
                sender = np.arange(0, len(group) - distance, 2 * distance)
                self._parts.append(
                    Transfers(
                        self._next_step + level,
                        ranks[sender][:, None],
                        ranks[sender + distance][:, None],
                        self._chunks,
                        COPY,
                    )
                )
        self._end_call(num_levels)

    def allgather(self, groups: Sequence[Sequence[int]], cut: int) -> None:
        """In each group, a segmented ring; the message is all parts together."""
        for group in groups:
            members, owner, segment = self._ring(group, cut)
            first_step = segment + self._next_step
            self._parts.append(
                allgather_ring(members, owner, self._chunks, first_step=first_step, stride=SEGMENTS)
            )
        self._end_call(SEGMENTS * (max(map(len, groups)) - 1))

    def _ring(self, group: Sequence[int], cut: int) -> tuple[IntArray, IntArray, IntArray]:
        """Members in the order of the ring (downwards), owner of each chunk as a place in it, and segment."""
        owner, segment = np.divmod(self._part[cut], SEGMENTS)
        return np.asarray(group)[::-1, None], len(group) - 1 - owner, segment

    def _rings(self, members: IntArray, owner: IntArray, first_step: IntArray, half: int) -> None:
        self._parts.append(
            reduce_scatter_ring(members, owner, self._chunks, first_step=first_step, stride=SEGMENTS)
        )
        self._parts.append(
            allgather_ring(members, owner, self._chunks, first_step=first_step + half, stride=SEGMENTS)
        )

    def _end_call(self, num_steps: int) -> None:
        self.num_calls += 1
        self._next_step += num_steps

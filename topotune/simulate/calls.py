"""Collective calls of the library, made one after the other, as predictions take them.

Two forms with one interface. `ListedCalls` writes every transfer down and is predicted as schedules are.
Rings have as many transfers as ranks squared, so from some hundred ranks on `SteadyCalls` stands in: in a
ring every step is like the others, so a call takes as many times one step as it has steps, the slowest
message of that step deciding, and what is reduced hides behind the next segment's transfer or hides that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from topotune.links.model import LinkModel
from topotune.schedule.assemble import IntArray, Transfers, assemble
from topotune.schedule.model import COPY
from topotune.schedule.phases import allgather_ring, common_cuts, reduce_scatter_ring
from topotune.simulate.prediction import predict

SEGMENTS: Final = 2

FloatArray = npt.NDArray[np.float64]
Groups = Sequence[Sequence[int]]

_MOST_LISTED_RANKS: Final = 128
"""More ranks have rings whose transfers take seconds to predict."""


class Calls(Protocol):
    """Calls one after the other, each on all of several disjoint groups at once.

    A call names the number of equal parts that it cuts the message in by its index among ``cuts``.
    """

    def allreduce(self, groups: Groups, cut: int) -> None:
        """In each group, a segmented ring."""
        ...

    def allreduce_shards(self, groups: Groups, cut: int) -> None:
        """Shard i of the message among the i-th ranks of groups of one size, for all i at once."""
        ...

    def reduce(self, groups: Groups, *cuts: int) -> None:
        """In each group, to its first rank."""
        ...

    def broadcast(self, groups: Groups) -> None:
        """In each group, from its first rank, down a binomial tree."""
        ...

    def allgather(self, groups: Groups, cut: int) -> None:
        """In each group, a segmented ring; the message is all parts together."""
        ...

    def time_s(self, message_bytes: Sequence[int]) -> FloatArray:
        """Seconds of all calls, what each costs by itself included; shape (len(message_bytes),)."""
        ...


def calls_on(model: LinkModel, cuts: Sequence[int]) -> Calls:
    """No calls yet.

    Args:
        model: fitted links.
        cuts: the numbers of equal parts that calls will cut the message in.
    """
    return ListedCalls(model, cuts) if model.num_ranks <= _MOST_LISTED_RANKS else SteadyCalls(model, cuts)


class ListedCalls:
    """All transfers of all calls, as one schedule. Arguments as of `calls_on`."""

    def __init__(self, model: LinkModel, cuts: Sequence[int]) -> None:
        self._model = model
        self._num_calls = 0
        self._bounds, self._part = common_cuts(cuts)
        self._chunks = np.arange(len(self._bounds) - 1)
        self._parts: list[Transfers] = []
        self._next_step = 0

    def time_s(self, message_bytes: Sequence[int]) -> FloatArray:
        """Seconds of all calls."""
        schedule = assemble("calls", {}, self._model.num_ranks, self._bounds, self._parts)
        further_calls_s = (self._num_calls - 1) * self._model.call_overhead_s
        return predict(schedule, self._model, message_bytes) + further_calls_s

    def allreduce(self, groups: Groups, cut: int) -> None:
        """In each group, a segmented ring."""
        half = SEGMENTS * (max(map(len, groups)) - 1)
        for group in groups:
            members, owner, segment = self._ring(group, cut)
            self._rings(members, owner, segment + self._next_step, half)
        self._end_call(2 * half)

    def allreduce_shards(self, groups: Groups, cut: int) -> None:
        """Shard i of the message among the i-th ranks of groups of one size, for all i at once."""
        num_groups, size = len(groups), len(groups[0])
        shard, place = np.divmod(self._part[cut], SEGMENTS * num_groups)
        owner, segment = np.divmod(place, SEGMENTS)
        across = np.asarray(groups)[:, shard]
        assert across.shape == (num_groups, len(self._chunks)), f"{size} ranks a group"
        half = SEGMENTS * (num_groups - 1)
        self._rings(across[::-1], owner, segment + self._next_step, half)
        self._end_call(2 * half)

    def reduce(self, groups: Groups, *cuts: int) -> None:
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

    def broadcast(self, groups: Groups) -> None:
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

    def allgather(self, groups: Groups, cut: int) -> None:
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
        self._num_calls += 1
        self._next_step += num_steps


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps that are all alike: the messages of one, and how often it comes.

    ``fraction`` of the whole message travels in each; ``reduced`` of it is combined by each receiver.
    """

    num_steps: int
    src: IntArray
    dst: IntArray
    fraction: float
    reduces: bool


class SteadyCalls:
    """Steps that stand for all others of a call. Arguments as of `calls_on`.

    Groups of different sizes take different steps, side by side: the slower ones count, and that they may get
    into each other's way is left out.
    """

    def __init__(self, model: LinkModel, cuts: Sequence[int]) -> None:
        self._model = model
        self._cuts = cuts
        self._num_calls = 0
        self._stages: list[list[_Steps]] = []

    def time_s(self, message_bytes: Sequence[int]) -> FloatArray:
        """Seconds of all calls."""
        total_s = np.full(len(message_bytes), self._num_calls * self._model.call_overhead_s)
        for stage in filter(None, self._stages):  # empty where every group is a single rank
            total_s += np.max([self._steps_s(steps, message_bytes) for steps in stage], axis=0)
        return total_s

    def _steps_s(self, steps: _Steps, message_bytes: Sequence[int]) -> FloatArray:
        # A fraction of whole numbers: 2^40 parts tell all sizes apart.
        travels = max(1, round(steps.fraction * 2**40))
        message = Transfers(0, steps.src, steps.dst, 0, COPY)
        one_step = assemble("step", {}, self._model.num_ranks, [0, travels, 2**40], [message])
        step_s = predict(one_step, self._model, message_bytes) - self._model.call_overhead_s
        if not steps.reduces:
            return steps.num_steps * step_s
        sizes = np.asarray(message_bytes, dtype=np.float64)
        reduce_s = self._model.reduce_s_per_byte * steps.fraction * sizes
        both: FloatArray = steps.num_steps * np.maximum(step_s, reduce_s) + np.minimum(step_s, reduce_s)
        return both

    def allreduce(self, groups: Groups, cut: int) -> None:
        """In each group, a segmented ring."""
        fractions = [1 / self._cuts[cut]] * len(groups)
        self._around(groups, fractions, reduces=True)
        self._around(groups, fractions, reduces=False)
        self._num_calls += 1

    def allreduce_shards(self, groups: Groups, cut: int) -> None:
        """Shard i of the message among the i-th ranks of groups of one size, for all i at once."""
        self.allreduce(np.asarray(groups).T.tolist(), cut)

    def reduce(self, groups: Groups, *cuts: int) -> None:
        """In each group, to its first rank."""
        self._around(groups, [1 / self._cuts[cut] for cut in cuts], reduces=True)
        self._stages.append(
            [
                _steps(1, [(rank, group[0]) for group in alike for rank in group[1:]], 1 / size)
                for size, alike in _by_size(groups).items()
            ]
        )
        self._num_calls += 1

    def broadcast(self, groups: Groups) -> None:
        """In each group, from its first rank, down a binomial tree."""
        num_levels = max((len(group) - 1).bit_length() for group in groups)
        for level in range(num_levels):
            distance = 1 << (num_levels - 1 - level)
            pairs = [
                (group[at], group[at + distance])
                for group in groups
                for at in range(0, len(group) - distance, 2 * distance)
            ]
            self._stages.append([_steps(1, pairs, 1.0)])
        self._num_calls += 1

    def allgather(self, groups: Groups, cut: int) -> None:
        """In each group, a segmented ring; the message is all parts together."""
        self._around(groups, [1 / self._cuts[cut]] * len(groups), reduces=False)
        self._num_calls += 1

    def _around(self, groups: Groups, fractions: Sequence[float], *, reduces: bool) -> None:
        """Half of an allreduce: once around the ring of each group, downwards."""
        fraction_of_size = {len(group): part for group, part in zip(groups, fractions, strict=True)}
        self._stages.append(
            [
                _steps(
                    SEGMENTS * (size - 1),
                    [(group[place], group[place - 1]) for group in alike for place in range(size)],
                    fraction_of_size[size],
                    reduces=reduces,
                )
                for size, alike in _by_size(groups).items()
            ]
        )


def _by_size(groups: Groups) -> dict[int, list[Sequence[int]]]:
    """Groups of several ranks, by how many they have."""
    found: dict[int, list[Sequence[int]]] = {}
    for group in groups:
        if len(group) > 1:
            found.setdefault(len(group), []).append(group)
    return found


def _steps(
    num_steps: int, pairs: Sequence[tuple[int, int]], fraction: float, *, reduces: bool = False
) -> _Steps:
    src, dst = np.asarray(pairs, dtype=np.int64).T
    return _Steps(num_steps, src, dst, fraction, reduces)

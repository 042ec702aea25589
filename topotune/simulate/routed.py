"""Predicted time of a schedule on a network of links, which its messages share.

Theory of operation. A step takes as long as its slowest message:

    latency along its way + what its sender combines first + its bytes at the rate that sharing leaves it

and no less than what any rank combines beside it; steps follow one another (`topotune.simulate.steps`). A
link so carries in no step more than its bandwidth allows, and no time is below the optimum of the same links
(`topotune.bounds`). For a message size each step is an affine function of it, the largest of a few; so time
never falls with size, and twice the bytes never take more than twice the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from topotune.bounds.allreduce_forest import AllreduceForest
from topotune.errors import UsageError
from topotune.schedule.model import COPY, REDUCE, Schedule
from topotune.simulate.fair_share import finish_times
from topotune.simulate.network import FloatArray, IntArray, Network
from topotune.simulate.routes import Routes, Ways, given_routes, join_routes, shortest_routes
from topotune.simulate.steps import Step, steps_of

Flow = tuple[int, int, int]
"""(op, src, dst), ranks."""


def predict_routed(
    schedule: Schedule,
    network: Network,
    message_bytes: Sequence[int],
    *,
    ways: Mapping[Flow, Ways] | None = None,
) -> FloatArray:
    """Seconds from common start to last end, for each message size.

    Args:
        schedule: for as many ranks as the network has; need not be an allreduce.
        network: its links.
        message_bytes: sizes, each >= 0.
        ways: of the messages that bring their own; the others take the shortest.

    Returns:
        Seconds, shape (len(message_bytes),).

    Raises:
        UsageError: the schedule and the network are for different numbers of ranks.
        ValueError: a rank cannot reach another, or a way leads over no link.
    """
    if schedule.num_ranks != network.num_ranks:
        raise UsageError(
            f"the schedule is for {schedule.num_ranks} ranks, the network has {network.num_ranks}"
        )
    return predict_steps(steps_of(schedule), network, message_bytes, ways=ways)


def predict_steps(
    steps: Sequence[Step],
    network: Network,
    message_bytes: Sequence[int],
    *,
    ways: Mapping[Flow, Ways] | None = None,
) -> FloatArray:
    """As `predict_routed`, of steps that may come from anywhere."""
    sizes = np.asarray(message_bytes, dtype=np.float64)
    if not ways:
        steps = [one_of_lines(step, network) for step in steps]
    costs = _Costs(steps, network, ways or {})
    total = np.full(len(sizes), network.call_overhead_s)
    for step in steps:
        total += step.repeats * costs.step_s(step, sizes)
    return total


def one_of_lines(step: Step, network: Network) -> Step:
    """The same step of the first line alone, where all lines of the network do the same, each for itself."""
    columns = (step.src, step.dst, step.op, step.streams, step.fraction, step.waits)
    for stride, length in network.lines:
        num_lines = network.num_ranks // length
        if num_lines < 2 or len(step.src) % num_lines or not len(step.src):
            continue
        (src_line, src_place), (dst_line, dst_place) = (
            _line_and_place(ranks, stride, length) for ranks in (step.src, step.dst)
        )
        if (src_line != dst_line).any():
            continue
        order = np.lexsort((dst_place, src_place, step.op, src_line))
        placed = (src_place, dst_place, *columns[2:])
        table = [column[order].reshape(num_lines, -1) for column in placed]
        if (src_line[order].reshape(num_lines, -1) == np.arange(num_lines)[:, None]).all() and all(
            (column == column[0]).all() for column in table
        ):
            first = order[: len(step.src) // num_lines]
            return replace(
                step,
                src=step.src[first],
                dst=step.dst[first],
                op=step.op[first],
                streams=step.streams[first],
                fraction=step.fraction[first],
                waits=step.waits[first],
            )
    return step


def _line_and_place(ranks: IntArray, stride: int, length: int) -> tuple[IntArray, IntArray]:
    outer, inner = np.divmod(ranks, stride * length)
    place, offset = np.divmod(inner, stride)
    return outer * stride + offset, place


def forest_ways(found: AllreduceForest) -> dict[Flow, Ways]:
    """The ways that the trees of a forest take, for the messages of its schedule.

    Its trees were packed with them: other ways may not carry what the forest counts on.
    """
    ways: dict[Flow, Ways] = {}
    members = found.copying.members
    for (above, below), pieces in found.copying.routes.items():
        for a in members[above]:
            for b in members[below]:
                ways[COPY, a, b] = pieces
    for (above, below), pieces in found.adding.routes.items():
        back = tuple((way[::-1], units) for way, units in pieces)
        for a in members[above]:
            for b in members[below]:
                ways[REDUCE, b, a] = back
    return ways


class _Costs:
    """What steps take on a network; routes are found once for all, and flows alike are looked at once."""

    def __init__(self, steps: Sequence[Step], network: Network, ways: Mapping[Flow, Ways]) -> None:
        self._network = network
        self._by_op = bool(ways)  # only ways of their own tell copying from combining
        self._found: dict[bytes, tuple[FloatArray, FloatArray]] = {}
        self._routes: Routes | None = None
        if ways or network.own_routes is None:
            used = [self._keys(step) for step in steps]
            self._known = np.unique(np.concatenate(used or [np.empty(0, dtype=np.int64)]))
            self._routes = self._find(ways)

    def step_s(self, step: Step, sizes: FloatArray) -> FloatArray:
        """Seconds of one step at each size."""
        gamma = self._network.reduce_s_per_byte
        combines: FloatArray = gamma * step.combines * sizes
        if not len(step.src):
            return combines
        latency_s, per_byte = self._flows(step)
        if gamma > 0:
            per_byte = per_byte + gamma * step.waits
        slowest = [float((latency_s + per_byte * size).max()) for size in sizes]
        return np.maximum(slowest, combines)

    def _flows(self, step: Step) -> tuple[FloatArray, FloatArray]:
        """Latency of each message, and seconds per byte of the whole message until it has arrived."""
        columns = (self._keys(step), step.fraction, step.streams)
        identity = blake2b(b"".join(np.ascontiguousarray(column).tobytes() for column in columns)).digest()
        if identity not in self._found:
            self._found[identity] = self._share(*columns, step)
        return self._found[identity]

    def _share(
        self, keys: IntArray, fraction: FloatArray, streams: IntArray, step: Step
    ) -> tuple[FloatArray, FloatArray]:
        size, count, which = fraction / streams, streams, np.arange(len(keys))
        first = which
        if (keys[1:] <= keys[:-1]).any() and len(np.unique(keys)) < len(keys):
            # Messages alike in all are counted, not repeated.
            _, first, which = np.unique(
                np.stack((keys, size)).T, axis=0, return_index=True, return_inverse=True
            )
            which = which.reshape(-1)
            count = np.bincount(which, streams).astype(np.int64)
            keys, size = keys[first], size[first]
        if self._routes is None:
            routes = shortest_routes(self._network, step.src[first], step.dst[first])
        else:
            routes = self._routes.chosen(np.searchsorted(self._known, keys))
        per_byte = finish_times(
            size, count, routes.pair, routes.link, routes.share, self._network.bandwidth_bytes_per_s
        )
        return routes.latency_s[which], per_byte[which]

    def _keys(self, step: Step) -> IntArray:
        num_ranks = self._network.num_ranks
        pairs: IntArray = step.src * num_ranks + step.dst
        return step.op * num_ranks**2 + pairs if self._by_op else pairs

    def _find(self, ways: Mapping[Flow, Ways]) -> Routes:
        num_ranks = self._network.num_ranks
        op, pair = np.divmod(self._known, num_ranks * num_ranks)
        src, dst = np.divmod(pair, num_ranks)
        flows: list[Flow] = list(zip(op.tolist(), src.tolist(), dst.tolist(), strict=True)) if ways else []
        is_own = np.array([flow in ways for flow in flows] or [False] * len(src), dtype=np.bool_)
        own, others = np.flatnonzero(is_own), np.flatnonzero(~is_own)
        laid_down = given_routes(
            self._network, src[own].tolist(), dst[own].tolist(), [ways[flows[number]] for number in own]
        )
        shortest = shortest_routes(self._network, src[others], dst[others])
        return join_routes([(own, laid_down), (others, shortest)], len(src))

"""Time the links between all ranks of a group: one-way times of every pair, and what pairs cost each other.

Theory of operation. After the handshake that says which ranks share a node, and a synchronisation of
clocks, a first look at each size tells what fits into the budget (``timing_plan``). Then pairs ping-pong in
rounds of disjoint pairs, split so that no node is in two pairs at once, since pairs of one node share its
memory and its link: what is fitted later is a link on an otherwise idle node. Each pair is visited in two
sweeps, the second in reverse order, so that a disturbance that passes is not taken for a property of a
pair. What pairs cost each other is then measured on its own: whole rounds that send both ways at once, one
rank of each node to several nodes at once, and pairs alone. Between nodes round trips of small messages and
bulk flows follow (``flow_session``).
"""

import os
import platform
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from topotune import __version__
from topotune.links.clock import SynchronizedClock
from topotune.links.flow_plan import FlowTime
from topotune.links.flow_session import run_flows
from topotune.links.flows import RoundTripTimes
from topotune.links.joined_stamps import join_exchanges, join_ping_pongs
from topotune.links.measurement import ExchangeTiming, Measurement, PairTiming
from topotune.links.messages import GroupLike, Messages
from topotune.links.ping_pong import Buffers, PingPong, exchange, follow_ping_pong, lead_ping_pong
from topotune.links.rounds import Pair
from topotune.links.same_node import NodeVerdict, same_node
from topotune.links.timing_plan import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    NUM_SWEEPS,
    SIZES,
    Kind,
    TimingPlan,
    first_groups,
    num_sharing_nodes,
    plan_timing,
    rounds_of_nodes,
)

DEFAULT_BUDGET_S = 5.0
_LOOK_SHARE = 0.01  # of the budget: a size whose single message takes longer ends the first look
_REDUCE_BYTES = 1024**2
_NUM_REDUCTIONS = 10
_SMALL_EXCHANGES_S = 0.02
_ROUND_TRIPS_SHARE = 0.2  # of the time for first flows, at most
_NUM_ROUND_TRIPS = 200  # of each two nodes: the fastest of so many met no other work on its way
_QUANTILES = 21  # of the round trips that are kept
_BEFORE_FLOWS = 0.4  # of the progress

Progress = Callable[[float], None]


def measure_links(
    group: GroupLike,
    *,
    budget_s: float = DEFAULT_BUDGET_S,
    sizes: Sequence[int] = SIZES,
    nodes: NodeVerdict | None = None,
    flow_time: FlowTime | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Measurement:
    """Time pairs of ranks each way, and what flows between nodes take from each other. Collective.

    Args:
        group: a private gloo group; its timeout bounds every wait.
        budget_s: about how long all but the flows may take; equal on all ranks. The least that is measured
            takes longer on slow links.
        sizes: message sizes to choose from, ascending, in bytes; equal on all ranks.
        nodes: who shares a node, if known from ``same_node``; equal on all ranks.
        flow_time: for flows and round trips between nodes, where there are several; equal on all ranks.
        seed: of what is drawn at random; equal on all ranks.
        progress: called on this rank with the share that is done, 0 to 1.

    Returns:
        the same measurement on every rank.

    Raises:
        RunError: a rank did not answer.
    """
    timing = _Timing(group, budget_s, sizes, nodes, progress or (lambda _: None))
    return timing.run(flow_time, seed)


class _Timing:
    """One measurement under way: the group, the clock, the buffers, and what this rank has timed so far."""

    def __init__(
        self,
        group: GroupLike,
        budget_s: float,
        sizes: Sequence[int],
        nodes: NodeVerdict | None,
        progress: Progress,
    ) -> None:
        self.start_s = time.perf_counter()
        self.messages = Messages(group)
        self.rank = self.messages.rank
        self.budget_s = budget_s
        self.sizes = tuple(sizes)
        self.nodes = nodes or same_node(group)
        self.clock = SynchronizedClock(group, node_of_rank=self.nodes.node_of_rank)
        self.progress = progress
        self.share_of_progress = 1.0
        self.buffers = Buffers(max(sizes))
        self.ping_pongs: list[dict[str, Any]] = []  # of this rank, with times on the common clock
        self.exchanges: list[dict[str, Any]] = []

    def run(self, flow_time: FlowTime | None, seed: int) -> Measurement:
        node_of_rank = self.nodes.node_of_rank
        flow_time = flow_time if max(node_of_rank) > 0 else None
        warnings = list(self.nodes.warnings)
        pairs: list[PairTiming] = []
        exchanges: list[ExchangeTiming] = []
        round_trips: list[RoundTripTimes] = []
        if self.messages.size > 1:
            self.share_of_progress = 1.0 if flow_time is None else _BEFORE_FLOWS
            first_look = self._first_look()
            left_s = max(0.0, self.budget_s - self._spent_s())
            plan = plan_timing(node_of_rank, first_look, left_s, self.sizes)
            warnings += plan.warnings
            self._time_pairs(plan)
            self._time_exchanges(plan)
            pairs, exchanges = self._assemble(plan)
            if flow_time is not None:
                round_trips = self._time_round_trips(pairs, _ROUND_TRIPS_SHARE * flow_time.first_s, seed)
        reduce_s_per_byte = [
            sample for samples in self.messages.gather(self._time_reduction()) for sample in samples
        ]
        created, facts = self.messages.gather((datetime.now(UTC).isoformat(timespec="seconds"), _facts()))[0]
        measurement = Measurement(
            num_ranks=self.messages.size,
            node_of_rank=node_of_rank,
            node_names=node_names(node_of_rank, self.messages.gather(socket.gethostname())),
            pairs=tuple(pairs),
            exchanges=tuple(exchanges),
            round_trips=tuple(round_trips),
            reduce_s_per_byte=tuple(reduce_s_per_byte),
            created=created,
            budget_s=self.budget_s + (0 if flow_time is None else flow_time.first_s + flow_time.fresh_s),
            facts=facts,
            warnings=tuple(warnings),
        )
        if flow_time is not None:
            measurement = run_flows(
                self.messages,
                self.clock,
                measurement,
                flow_time,
                seed=seed,
                progress=lambda done: self.progress(_BEFORE_FLOWS + (1 - _BEFORE_FLOWS) * done),
            )
        self.progress(1.0)
        return replace(measurement, elapsed_s=self._spent_s())

    def _spent_s(self) -> float:
        """Seconds since the start, the same on all ranks. Collective."""
        return max(spent for (spent,) in self.messages.gather_numbers(time.perf_counter() - self.start_s))

    def _report(self, done: float) -> None:
        """Of the pairs' own work."""
        self.progress(done * self.share_of_progress)

    def _first_look(self) -> dict[Kind, dict[int, float]]:
        """Rough one-way times of each kind of pair, by pairs alone on their nodes; also a warm-up."""
        groups = first_groups(self.nodes.node_of_rank)
        times: dict[Kind, dict[int, float]] = {kind: {} for kind in groups}
        for kind, pairs in groups.items():
            for size in self.sizes:
                mine = self._ping_pong(pairs, size, min_samples=1, max_samples=1, slice_s=0.0)
                took_s = 0.0
                if mine is not None and self.rank == mine[0][0]:
                    start_s, back_s = mine[1].stamps_s[-1]
                    took_s = (back_s - start_s) / 2
                times[kind][size] = max(took for (took,) in self.messages.gather_numbers(took_s))
                if times[kind][size] > self.budget_s * _LOOK_SHARE:
                    break
        return times

    def _ping_pong(
        self, pairs: Sequence[Pair], size: int, *, min_samples: int, max_samples: int, slice_s: float
    ) -> tuple[Pair, PingPong] | None:
        """This rank's part in a group of pairs that ping-pong together; None if it has none."""
        for low, high in pairs:
            if self.rank == low:
                return (low, high), lead_ping_pong(
                    self.messages,
                    self.buffers,
                    high,
                    size,
                    min_samples=min_samples,
                    max_samples=max_samples,
                    slice_s=slice_s,
                )
            if self.rank == high:
                return (low, high), follow_ping_pong(self.messages, self.buffers, low, size)
        return None

    def _time_pairs(self, plan: TimingPlan) -> None:
        """All ping-pongs: the groups forwards with sizes rising, then backwards with sizes falling."""
        start_s = time.perf_counter()
        num_steps = NUM_SWEEPS * len(plan.groups)
        for step in range(num_steps):
            sweep, index = divmod(step, len(plan.groups))
            order = 1 if sweep % 2 == 0 else -1
            if index == 0:
                self.clock.sync()
            else:
                self.messages.barrier()
            group = plan.groups[::order][index]
            for size in group.sizes[::order]:
                # How long it takes is the leader's own decision, so each can make up for lost time by itself.
                late = time.perf_counter() - start_s > plan.ping_pong_s * (step + 1) / num_steps
                mine = self._ping_pong(
                    group.pairs,
                    size,
                    min_samples=1 if late else -(-MIN_SAMPLES // NUM_SWEEPS),
                    max_samples=MAX_SAMPLES // NUM_SWEEPS,
                    slice_s=0.0 if late else plan.slice_s,
                )
                if mine is not None:
                    sharing = num_sharing_nodes(group.pairs, self.nodes.node_of_rank)
                    self._keep(mine, size, sharing[group.pairs.index(mine[0])])
            self._report(0.1 + 0.6 * (step + 1) / num_steps)

    def _keep(self, mine: tuple[Pair, PingPong], size: int, num_concurrent: int) -> None:
        (low, high), result = mine
        self.ping_pongs.append(
            {
                "pair": (low, high),
                "size": size,
                "stamps_s": [list(map(self.clock.global_s, stamps)) for stamps in result.stamps_s],
                "num_warmups": result.num_warmups,
                "num_concurrent": num_concurrent,
                "clock_error_s": self.clock.max_error_s,
            }
        )

    def _time_exchanges(self, plan: TimingPlan) -> None:
        smallest = plan.exchange_bytes[0]
        for index, group in enumerate(plan.exchanges):
            led = [high for low, high in group.pairs if low == self.rank]
            followed = [low for low, high in group.pairs if high == self.rank]
            for size in plan.exchange_bytes:
                self.messages.barrier()
                if led or followed:
                    stamps_s = exchange(
                        self.messages,
                        self.buffers,
                        led or followed,
                        size,
                        leads=bool(led),
                        min_samples=2,
                        slice_s=min(_SMALL_EXCHANGES_S, group.slice_s) if size == smallest else group.slice_s,
                    )
                    self.exchanges.append(
                        {
                            "group": index,
                            "size": size,
                            "led": led,
                            "stamps_s": [list(map(self.clock.global_s, stamps)) for stamps in stamps_s],
                        }
                    )
            self._report(0.7 + 0.25 * (index + 1) / len(plan.exchanges))

    def _time_round_trips(
        self, timings: Sequence[PairTiming], time_s: float, seed: int
    ) -> list[RoundTripTimes]:
        """Small messages back and forth between each two nodes, at two moments. Collective.

        One pair of nodes at a time where there is time for that: where nodes share cores, as emulated ones
        do, pairs that run together wait for each other's processes. Else in rounds of nodes.
        """
        groups = rounds_of_nodes(self.nodes.node_of_rank, seed=seed)
        size = self.sizes[0]
        fastest_s = statistics.median(
            2 * min(timing.half_round_trip_s)
            for timing in timings
            if timing.message_bytes == size
            and self.nodes.node_of_rank[timing.src] != self.nodes.node_of_rank[timing.dst]
        )
        alone = [[pair] for pairs in groups for pair in pairs]
        if len(alone) * _NUM_ROUND_TRIPS * fastest_s <= time_s:
            groups = alone
        mine: dict[Pair, list[float]] = {}
        for order in (1, -1):
            for pairs in groups[::order]:
                self.messages.barrier()
                result = self._ping_pong(
                    pairs,
                    size,
                    min_samples=MIN_SAMPLES,
                    max_samples=_NUM_ROUND_TRIPS // 2,
                    slice_s=time_s / len(groups) / 2,
                )
                if result is not None and self.rank == result[0][0]:
                    pair, ping_pong = result
                    steady = ping_pong.stamps_s[ping_pong.num_warmups :]
                    mine.setdefault(pair, []).extend(end - start for start, end in steady)
        kept = [
            (
                low,
                high,
                np.quantile(times_s, np.linspace(0, 1, _QUANTILES), method="nearest").round(9).tolist(),
            )
            for (low, high), times_s in mine.items()
        ]
        return [
            RoundTripTimes(a=low, b=high, min_s=quantiles_s[0], samples_s=tuple(quantiles_s))
            for low, high, quantiles_s in sorted(
                trips for of_rank in self.messages.gather(kept) for trips in of_rank
            )
        ]

    def _assemble(self, plan: TimingPlan) -> tuple[list[PairTiming], list[ExchangeTiming]]:
        """Every rank's time stamps, joined into timings. Collective."""
        by_rank = self.messages.gather({"ping_pongs": self.ping_pongs, "exchanges": self.exchanges})
        return (
            join_ping_pongs([reports["ping_pongs"] for reports in by_rank]),
            join_exchanges([reports["exchanges"] for reports in by_rank], plan),
        )

    def _time_reduction(self) -> list[float]:
        """Seconds per byte of adding one buffer to another while all ranks do so, as in an allreduce."""
        own = torch.ones(_REDUCE_BYTES // 4, dtype=torch.float32)
        received = torch.ones_like(own)
        self.messages.barrier()
        samples_s = []
        for _ in range(_NUM_REDUCTIONS + 1):
            start_s = time.perf_counter()
            own.add_(received)
            samples_s.append(time.perf_counter() - start_s)
        return [sample / _REDUCE_BYTES for sample in samples_s[1:]]


def node_names(node_of_rank: Sequence[int], host_of_rank: Sequence[str]) -> tuple[str, ...]:
    """A unique name for each node: its lowest rank's host name, with a number where two nodes share it."""
    names: list[str] = []
    for node in range(max(node_of_rank) + 1):
        host = host_of_rank[list(node_of_rank).index(node)]
        name, copy = host, 2
        while name in names:
            name, copy = f"{host}#{copy}", copy + 1
        names.append(name)
    return tuple(names)


def _facts() -> dict[str, str]:
    return {
        "topotune_version": __version__,
        "torch_version": torch.__version__,
        "backend": "gloo",
        "kernel": platform.release(),
        "num_cpus": str(len(os.sched_getaffinity(0))),
    }

"""Time the links between all ranks of a group: one-way times of every pair, and what pairs cost each other.

Theory of operation. After the handshake that says which ranks share a node, and a synchronisation of
clocks, a first look at each size tells what fits into the budget (``timing_plan``). Then pairs ping-pong in
rounds of disjoint pairs, split so that no node is in two pairs at once, since pairs of one node share its
memory and its link: what is fitted later is a link on an otherwise idle node. Each pair is visited in two
sweeps, the second in reverse order, so that a disturbance that passes is not taken for a property of a
pair. What pairs cost each other is then measured on its own: whole rounds that send both ways at once, one
rank of each node to several nodes at once, and pairs alone.
"""

import os
import platform
import socket
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import torch

from topotune import __version__
from topotune.links.clock import SynchronizedClock
from topotune.links.measurement import ExchangeTiming, Measurement, PairTiming
from topotune.links.messages import GroupLike, Messages
from topotune.links.ping_pong import Buffers, PingPong, exchange, follow_ping_pong, has_trend, lead_ping_pong
from topotune.links.rounds import Pair
from topotune.links.same_node import NodeVerdict, same_node
from topotune.links.timing_plan import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    NUM_SWEEPS,
    SIZES,
    Kind,
    TimingPlan,
    num_sharing_nodes,
    pairs_alone,
    plan_timing,
)

DEFAULT_BUDGET_S = 5.0
_LOOK_SHARE = 0.01  # of the budget: a size whose single message takes longer ends the first look
_REDUCE_BYTES = 1024**2
_NUM_REDUCTIONS = 10
_SMALL_EXCHANGES_S = 0.02

Progress = Callable[[float], None]


def measure_links(
    group: GroupLike,
    *,
    budget_s: float = DEFAULT_BUDGET_S,
    sizes: Sequence[int] = SIZES,
    nodes: NodeVerdict | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Time every pair of ranks each way. Collective over the group.

    Args:
        group: a private gloo group; its timeout bounds every wait.
        budget_s: about how long it may take; equal on all ranks. The least that is measured takes longer on
            slow links.
        sizes: message sizes to choose from, ascending, in bytes; equal on all ranks.
        nodes: who shares a node, if known from ``same_node``; equal on all ranks.
        progress: called on this rank with the share that is done, 0 to 1.

    Returns:
        the same measurement on every rank.

    Raises:
        RunError: a rank did not answer.
    """
    return _Timing(group, budget_s, sizes, nodes, progress or (lambda _: None)).run()


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
        self.buffers = Buffers(max(sizes))
        self.ping_pongs: list[dict[str, Any]] = []  # of this rank, with times on the common clock
        self.exchanges: list[dict[str, Any]] = []

    def run(self) -> Measurement:
        node_of_rank = self.nodes.node_of_rank
        warnings = list(self.nodes.warnings)
        pairs: list[PairTiming] = []
        exchanges: list[ExchangeTiming] = []
        if self.messages.size > 1:
            first_look = self._first_look()
            spent_s = max(
                spent for (spent,) in self.messages.gather_numbers(time.perf_counter() - self.start_s)
            )
            plan = plan_timing(node_of_rank, first_look, max(0.0, self.budget_s - spent_s), self.sizes)
            warnings += plan.warnings
            self._time_pairs(plan)
            self._time_exchanges(plan)
            pairs, exchanges = self._assemble(plan)
        reduce_s_per_byte = [
            sample for samples in self.messages.gather(self._time_reduction()) for sample in samples
        ]
        created, elapsed_s, facts = self.messages.gather(
            (datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter() - self.start_s, _facts())
        )[0]
        self.progress(1.0)
        return Measurement(
            num_ranks=self.messages.size,
            node_of_rank=node_of_rank,
            node_names=node_names(node_of_rank, self.messages.gather(socket.gethostname())),
            pairs=tuple(pairs),
            exchanges=tuple(exchanges),
            reduce_s_per_byte=tuple(reduce_s_per_byte),
            created=created,
            budget_s=self.budget_s,
            elapsed_s=elapsed_s,
            facts=facts,
            warnings=tuple(warnings),
        )

    def _first_look(self) -> dict[Kind, dict[int, float]]:
        """Rough one-way times of each kind of pair, by pairs alone on their nodes; also a warm-up."""
        node_of_rank = self.nodes.node_of_rank
        first_groups: dict[Kind, list[Pair]] = {}
        for pairs in pairs_alone(node_of_rank):
            first_groups.setdefault(node_of_rank[pairs[0][0]] == node_of_rank[pairs[0][1]], pairs)
        times: dict[Kind, dict[int, float]] = {kind: {} for kind in first_groups}
        for kind, pairs in first_groups.items():
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
                    sharing = num_sharing_nodes(mine[0], group.pairs, self.nodes.node_of_rank)
                    self._keep(mine, size, sharing)
            self.progress(0.1 + 0.6 * (step + 1) / num_steps)

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
            self.progress(0.7 + 0.25 * (index + 1) / len(plan.exchanges))

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


def join_ping_pongs(reports: Sequence[Sequence[dict[str, Any]]]) -> list[PairTiming]:
    """Put the two ranks' time stamps of each ping-pong together; the second sweep goes behind the first.

    Args:
        reports: by rank, what ``_Timing`` kept of each ping-pong, in the order taken; times on the common
            clock.
    """
    waiting: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for rank, of_rank in enumerate(reports):
        for report in of_rank:
            low, high = report["pair"]
            if rank == high:
                waiting.setdefault((low, high, report["size"]), []).append(report)
    columns: dict[tuple[int, int, int], dict[str, Any]] = {}
    for rank, of_rank in enumerate(reports):
        for leader in of_rank:
            low, high = leader["pair"]
            if rank != low:
                continue
            follower = waiting[low, high, leader["size"]].pop(0)
            there, back, halves = [], [], []
            for (start_s, end_s), (came_s,) in zip(leader["stamps_s"], follower["stamps_s"], strict=True):
                there.append(came_s - start_s)
                back.append(end_s - came_s)
                halves.append((end_s - start_s) / 2)
            cut = leader["num_warmups"]
            for src, dst, one_way in ((low, high, there), (high, low, back)):
                kept = columns.setdefault(
                    (src, dst, leader["size"]),
                    {
                        "one_way": [],
                        "halves": [],
                        "warmup": [],
                        "error": 0.0,
                        "concurrent": 1,
                        "steady": True,
                    },
                )
                kept["one_way"] += one_way[cut:]
                kept["halves"] += halves[cut:]
                kept["warmup"] += one_way[:cut]
                kept["error"] = max(kept["error"], leader["clock_error_s"] + follower["clock_error_s"])
                kept["concurrent"] = leader["num_concurrent"]
                kept["steady"] &= not has_trend(halves[cut:])
    return [
        PairTiming(
            src=src,
            dst=dst,
            message_bytes=size,
            one_way_s=_rounded(kept["one_way"]),
            half_round_trip_s=_rounded(kept["halves"]),
            warmup_s=_rounded(kept["warmup"]),
            clock_error_s=kept["error"],
            num_concurrent=kept["concurrent"],
            steady=kept["steady"],
        )
        for (src, dst, size), kept in sorted(columns.items())
    ]


def join_exchanges(reports: Sequence[Sequence[dict[str, Any]]], plan: TimingPlan) -> list[ExchangeTiming]:
    """The exchanges as their leaders saw them, without those during which a pair of the set was idle."""
    by_group: dict[tuple[int, int], list[tuple[int, dict[str, Any]]]] = {}
    for rank, of_rank in enumerate(reports):
        for report in of_rank:
            if report["led"]:
                by_group.setdefault((report["group"], report["size"]), []).append((rank, report))
    timings = []
    for number, ((group, size), leaders) in enumerate(sorted(by_group.items(), key=lambda item: item[0])):
        all_began_s = max(report["stamps_s"][0][0] for _, report in leaders)
        one_ended_s = min(report["stamps_s"][-1][1] for _, report in leaders)
        for rank, report in leaders:
            durations = [end - start for start, end in report["stamps_s"]]
            together = [
                end - start
                for start, end in report["stamps_s"][1:]
                if start >= all_began_s and end <= one_ended_s
            ]
            timings += [
                ExchangeTiming(
                    a=min(rank, peer),
                    b=max(rank, peer),
                    message_bytes=size,
                    group=number,
                    num_concurrent=len(plan.exchanges[group].pairs),
                    samples_s=_rounded(together or durations[-1:]),
                )
                for peer in report["led"]
            ]
    return timings


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


def _rounded(samples_s: Sequence[float]) -> tuple[float, ...]:
    """To the nanosecond: clocks say no more, and files grow with every digit."""
    return tuple(round(sample, 9) for sample in samples_s)


def _facts() -> dict[str, str]:
    return {
        "topotune_version": __version__,
        "torch_version": torch.__version__,
        "backend": "gloo",
        "kernel": platform.release(),
        "num_cpus": str(len(os.sched_getaffinity(0))),
    }

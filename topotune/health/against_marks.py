"""What was measured against the marks that a profile's machine is held to, and against published figures.

Theory of operation. A mark is the least that people who run such machines count as healthy: allreduce inside
a node or between two, one adapter port, copies between host and GPU. It is judged only by figures of the
same thing: an allreduce of all GPUs of so many nodes at its size or more, RDMA by perftest, copies of one
GPU while no other copies. Where a mark has figures of its kind and none that can judge it, that is said: a
table that ends at 128 MiB is no proof of health at 16 GiB. Nothing is said of marks that nobody measured.

What our own timings show of links went over the host's memory and sockets, and is no figure of any mark.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

from topotune.links.figures import CollectiveFigure, LinkFigure
from topotune.links.finding import Finding
from topotune.links.measurement import Measurement
from topotune.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from topotune.topology.profile import MachineProfile, PublishedAllreduce, Threshold

# A mark without a size is judged from here on: the published curves of all shipped machines are within 15 %
# of their top there, and far from it a factor of four below.
_LARGE: Final = 2**30
# Runs of one machine differ by some per cent; SuperBench fails one that is over 5 % below its baseline.
_NOISE: Final = 0.05
# Published runs differ in library, settings and placement: less than this says nothing.
_BELOW_PUBLISHED: Final = 0.2
_LARGE_VERB: Final = 65536  # perftest's own default
_SHOWN: Final = 8
_GROUPED_COPIES: Final = ("all_to_host", "host_to_all", "all_to_one", "one_to_all")
"""Beginnings of nvbandwidth's tests in which several GPUs copy at once."""


def mark_findings(measurement: Measurement, profile: "MachineProfile") -> tuple[Finding, ...]:
    """All findings of a measurement by a profile. Pure.

    Args:
        measurement: what tools measured on such machines; our own timings of links add nothing.
        profile: of the machine that each node is.
    """
    return tuple(
        [
            *_allreduce_marks(measurement.collectives, profile),
            *_copy_marks(measurement.link_figures, profile),
            *_port_marks(measurement, profile),
            *_published(measurement.collectives, profile),
        ]
    )


# -- allreduce


def _allreduce_marks(figures: Sequence[CollectiveFigure], profile: "MachineProfile") -> Iterator[Finding]:
    for mark in profile.thresholds:
        if mark.what != "allreduce_busbw":
            continue
        num_ranks = mark.num_nodes * profile.num_gpus
        of_shape = [
            each for each in figures if each.busbw and _is_allreduce_of(each, num_ranks, mark.num_nodes)
        ]
        if not of_shape:
            continue
        size = mark.message_bytes or _LARGE
        judging = [each for each in of_shape if each.message_bytes >= size]
        # Whoever reaches the mark with less has reached it.
        best = max(judging or of_shape, key=lambda each: each.busbw or 0.0)
        reached = best.busbw or 0.0
        if reached >= mark.min_bytes_per_s:
            continue
        if not judging:
            largest = max(of_shape, key=lambda each: each.message_bytes)
            yield Finding(
                code="mark-not-judged",
                severity="info",
                where="allreduce",
                evidence=(
                    f"{_run(best)} reaches {format_rate(reached)} of bus bandwidth, below the "
                    f"{format_rate(mark.min_bytes_per_s)} of a healthy {profile.name}; but the largest "
                    f"message is {format_bytes(largest.message_bytes)}, and the mark is one from "
                    f"{format_bytes(size)} on"
                ),
                advice=f"repeat it up to {format_bytes(size)}: all_reduce_perf -b 8 -e {size} -f 2",
            )
            continue
        yield Finding(
            code="allreduce-below-mark",
            severity=_severity(reached, mark),
            where="allreduce",
            evidence=(
                f"{_run(best)} reaches {format_rate(reached)} of bus bandwidth at "
                f"{format_bytes(best.message_bytes)}, and a healthy {profile.name} has at least "
                f"{format_rate(mark.min_bytes_per_s)} ({mark.source})"
            ),
            cost_percent=_lost(reached, mark.min_bytes_per_s),
            advice=_ALLREDUCE_ADVICE[min(mark.num_nodes, 2)],
        )


_ALLREDUCE_ADVICE: Final = {
    1: (
        "look at topotune check of the node itself: NVLinks that are down, an NCCL_TOPO_FILE that is missing "
        "or wrong, NCCL_P2P_DISABLE, MIG; then run it with NCCL_DEBUG=INFO and see what the rings run over"
    ),
    2: (
        "run it on each node alone first; then look at the ports of both, GPUDirect, and NCCL_DEBUG=INFO: "
        "all adapters must be in use, by the network that is meant"
    ),
}


def _is_allreduce_of(figure: CollectiveFigure, num_ranks: int, num_nodes: int) -> bool:
    """Whether it is one of so many ranks on so many nodes; of nodes that are not named the ranks decide."""
    return (
        figure.collective == "allreduce"
        and figure.num_ranks == num_ranks
        and figure.num_nodes in (None, num_nodes)
    )


def _run(figure: CollectiveFigure) -> str:
    if figure.num_nodes is None:
        return f"allreduce of {figure.num_ranks} ranks (on which nodes is not said)"
    plural = "" if figure.num_nodes == 1 else "s"
    return f"allreduce of {figure.num_ranks} ranks on {figure.num_nodes} node{plural}"


# -- copies between host and GPU


def _copy_marks(figures: Iterable[LinkFigure], profile: "MachineProfile") -> Iterator[Finding]:
    by_way: dict[tuple[str, int], float] = defaultdict(float)
    for figure in figures:
        way = _copy_way(figure)
        if way is not None and figure.bandwidth_bytes_per_s is not None:
            by_way[way] = max(by_way[way], figure.bandwidth_bytes_per_s)
    for mark in profile.thresholds:
        slow = {
            gpu: rate
            for (what, gpu), rate in sorted(by_way.items())
            if what == mark.what and rate < mark.min_bytes_per_s
        }
        if not slow:
            continue
        words = "from host to GPU" if mark.what == "host_to_device" else "from GPU to host"
        rates = ", ".join(f"GPU {gpu} {format_rate(rate)}" for gpu, rate in list(slow.items())[:_SHOWN]) + (
            f" and {len(slow) - _SHOWN} more" if len(slow) > _SHOWN else ""
        )
        yield Finding(
            code="copies-below-mark",
            severity=_severity(min(slow.values()), mark),
            where=f"copies {words}",
            evidence=(
                f"{rates}, and a healthy {profile.name} has at least {format_rate(mark.min_bytes_per_s)} "
                f"({mark.source}); cost not known: an allreduce between GPUs need not pass the host"
            ),
            advice=(
                "look at the width and rate of the GPU's PCI Express link under load (nvidia-smi -q), at "
                "the slot and riser, and whether the copying process runs on the GPU's NUMA node"
            ),
        )


def _copy_way(figure: LinkFigure) -> tuple[Literal["host_to_device", "device_to_host"], int] | None:
    """Which way a figure's copies go and of which GPU, where it copies alone."""
    if figure.duplex is not None or figure.method.startswith(_GROUPED_COPIES):
        return None
    if figure.src is None and figure.dst is not None:
        return "host_to_device", figure.dst
    if figure.dst is None and figure.src is not None:
        return "device_to_host", figure.src
    return None


# -- one port


def _port_marks(measurement: Measurement, profile: "MachineProfile") -> Iterator[Finding]:
    if profile.nic is None or _is_other_network(measurement.facts.get("link_type"), profile.nic.kind):
        return
    rates: dict[str, float] = defaultdict(float)
    for figure in measurement.link_figures:
        if figure.bandwidth_bytes_per_s is not None and _fills_a_port(figure):
            each_way = figure.bandwidth_bytes_per_s / (2 if figure.duplex == "sum" else 1)
            rates[figure.method] = max(rates[figure.method], each_way)
    device = measurement.facts.get("rdma_device")
    for mark in profile.thresholds:
        for method, rate in rates.items():
            if mark.what != "nic_rdma" or rate >= mark.min_bytes_per_s:
                continue
            yield Finding(
                code="port-below-mark",
                severity=_severity(rate, mark),
                where=f"port {device}" if device else "an RDMA port",
                evidence=(
                    f"{method} carries {format_rate(rate)} each way at best, and a port of a healthy "
                    f"{profile.name} at least {format_rate(mark.min_bytes_per_s)} ({mark.source}); the cost "
                    f"is that of one of the {profile.num_nics} ports which a node has for others"
                ),
                cost_percent=_lost(rate, mark.min_bytes_per_s) / profile.num_nics,
                advice=(
                    "look at the port's rate and errors (ibstat, perfquery), its PCI Express link, and "
                    "whether the test ran on the adapter's NUMA node; then test the other end"
                ),
            )


def _fills_a_port(figure: LinkFigure) -> bool:
    """Whether it is perftest's bandwidth, of messages large enough to be limited by nothing else."""
    large = figure.message_bytes is not None and figure.message_bytes >= _LARGE_VERB
    return large and figure.method.endswith(" BW Test") and not figure.method.startswith("Atomic")


def _is_other_network(link_type: str | None, kind: str) -> bool:
    """Whether a test went through a port of another kind than those of the mark."""
    if link_type == "Ethernet":
        return kind == "infiniband"
    return link_type == "IB" and kind != "infiniband"


# -- published figures


def _published(figures: Sequence[CollectiveFigure], profile: "MachineProfile") -> Iterator[Finding]:
    """At the largest size that both have: smaller ones depend on settings more than on the machine."""
    for run in profile.allreduce:
        ours: dict[int, CollectiveFigure] = {}
        for figure in figures:
            if figure.origin is None and _is_allreduce_of(figure, run.num_ranks, run.num_nodes):
                best = ours.get(figure.message_bytes)
                if best is None or figure.time_s < best.time_s:
                    ours[figure.message_bytes] = figure
        shared = [point for point in run.points if point.message_bytes in ours]
        if not shared or shared[-1].message_bytes < _LARGE:
            continue
        largest = shared[-1]
        time_s, published_s = ours[largest.message_bytes].time_s, run.time_s(largest)
        lost = 1 - published_s / time_s
        if lost <= _BELOW_PUBLISHED:
            continue
        yield Finding(
            code="slower-than-published",
            severity="warning",
            where="allreduce",
            evidence=(
                f"{_run(ours[largest.message_bytes])} takes {format_seconds(time_s)} at "
                f"{format_bytes(largest.message_bytes)}, and {format_seconds(published_s)} were published of "
                f"{_machines(run)}: {run.setting} ({run.source})"
            ),
            cost_percent=100 * lost,
            advice="compare library, settings and placement with those of the source before the machine",
        )


def _machines(run: "PublishedAllreduce") -> str:
    return "such a machine" if run.num_nodes == 1 else f"{run.num_nodes} such machines"


def _severity(rate: float, mark: "Threshold") -> Literal["warning", "error"]:
    return "warning" if rate >= (1 - _NOISE) * mark.min_bytes_per_s else "error"


def _lost(rate: float, wanted: float) -> float:
    """By how much less time it would take at the wanted rate, in percent."""
    return 100 * (1 - rate / wanted)

"""What NCCL would pick for an allreduce: its own cost model, evaluated without it. Pure.

Theory of operation. NCCL measures nothing. It searches the machine for rings and trees at a ladder of speeds
per channel, and prices every algorithm and protocol by ``latency + bytes / bandwidth`` with constants for
each generation of GPUs, kind of link, and one, two or more nodes; the cheapest that is allowed runs. Here the
prices are NCCL's. The search is not run: bandwidth inside a node is taken as the GPU's NVLinks (or its PCI
Express link) at NCCL's own rates, between nodes as the rates of the adapters at NCCL's steps. So a real
search on an odd machine may find less.

Where a topology does not name the processor, Intel's constants stand. Not modelled: SHARP (CollNet, and NVLS
between nodes), user settings, tuner plugins, and that small messages get fewer channels and threads.

Source: src/graph/tuning.cc and src/graph/search.cc of NCCL 2.30.7.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from topotune.errors import UsageError
from topotune.topology.gpu_generations import compute_capability
from topotune.topology.model import Topology, Vertex

Algorithm = Literal["tree", "ring", "nvls", "nvls_tree"]
Protocol = Literal["ll", "ll128", "simple"]

VERSION: Final = "2.30"
_PROTOCOLS: Final[tuple[Protocol, ...]] = ("ll", "ll128", "simple")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Generation:
    """Constants of one generation of GPUs. Gigabytes a second, as NCCL counts; by 1, 2, more nodes.

    Attributes:
        nvlink: one NVLink.
        ll_one_node: all channels of LL together, on one node.
        ring_ll128: one channel.
        tree_ll128, tree_simple: one channel.
        nvls_tree: one channel.
        nvls_efficiency: of multicast in NVSwitches; 0 where there is none.
        nvls_least_gpus: that NVLS is used from.
    """

    nvlink: float
    ll_one_node: float
    ring_ll128: float
    tree_ll128: tuple[float, float, float]
    tree_simple: tuple[float, float, float]
    nvls_tree: tuple[float, float, float]
    nvls_efficiency: float
    nvls_least_gpus: int = 0


_VOLTA: Final = _Generation(
    nvlink=20.0,
    ll_one_node=39.0,
    ring_ll128=20.0,
    tree_ll128=(20.0, 20.0, 20.0),
    tree_simple=(26.5, 18.5, 10.0),
    nvls_tree=(26.5, 18.5, 10.0),
    nvls_efficiency=0.0,
)
_AMPERE: Final = _Generation(
    nvlink=20.0,
    ll_one_node=87.7,
    ring_ll128=20.0,
    tree_ll128=(20.0, 20.0, 20.0),
    tree_simple=(24.0, 23.6, 17.8),
    nvls_tree=(24.0, 23.6, 17.8),
    nvls_efficiency=0.0,
)
_HOPPER: Final = _Generation(
    nvlink=20.6,
    ll_one_node=141.0,
    ring_ll128=36.7,
    tree_ll128=(36.7, 36.7, 29.0),
    tree_simple=(38.7, 41.4, 36.0),
    nvls_tree=(0.0, 57.7, 45.5),
    nvls_efficiency=0.85,
    nvls_least_gpus=5,
)
_BLACKWELL: Final = _Generation(
    nvlink=40.1,
    ll_one_node=282.0,
    ring_ll128=40.0,
    tree_ll128=(55.6, 31.67, 20.0),
    tree_simple=(70.0, 42.8, 24.0),
    nvls_tree=(0.0, 96.0, 80.0),
    nvls_efficiency=0.74,
    nvls_least_gpus=6,
)
_GENERATIONS: Final[Sequence[tuple[int, _Generation]]] = (
    (100, _BLACKWELL),
    (90, _HOPPER),
    (80, _AMPERE),
    (70, _VOLTA),
)

_BASE_US: Final[Mapping[str, tuple[float, float, float]]] = {
    "tree": (6.8, 14.0, 8.4),
    "ring": (6.6, 14.0, 8.4),
    "nvls": (0.0, 0.0, 0.0),
    "nvls_tree": (0.0, 0.0, 0.0),
}
_HOP_US: Final[Mapping[tuple[str, str], tuple[float, float, float]]] = {
    ("nvlink", "tree"): (0.6, 1.25, 4.0),
    ("nvlink", "ring"): (0.6, 1.9, 3.4),
    ("nvlink", "nvls"): (25.0, 25.0, 25.0),
    ("nvlink", "nvls_tree"): (25.0, 25.0, 25.0),
    ("pci", "tree"): (1.0, 1.9, 4.0),
    ("pci", "ring"): (1.0, 2.5, 5.7),
    ("net", "tree"): (5.0, 8.5, 14.0),
    ("net", "ring"): (2.7, 4.0, 14.0),
    ("net", "nvls"): (18.0, 18.0, 18.0),
    ("net", "nvls_tree"): (20.9, 20.9, 20.9),
}
_POST_US: Final[Mapping[str, float]] = {"intel": 1.0, "amd": 2.0}
_LL_SEVERAL_NODES: Final[Mapping[str, tuple[float, float]]] = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}
"""All channels of LL together, on 2 and on more nodes."""

# Powers of two from 64 bytes.
_TREE_CORRECTION: Final[Mapping[str, tuple[float, ...]]] = {
    "ll": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "ll128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 6, 0.8, *(0.9,) * 4, 1, 1),
    "simple": (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}
_LEAST_CORRECTED: Final = 64

# Gigabytes a second of a channel between nodes that the search tries.
_STEPS: Final = (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.4, 1.2)
_STEPS_SM90: Final = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2)
_STEP_INSIDE: Final = 20.0
_LEAST_DOUBLED: Final = 12.0
"""Channels are doubled, at half the speed, while each keeps this much."""

_MOST_CHANNELS: Final = 32
_PER_100_GBIT: Final = 12.0


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclMachine:
    """What NCCL's prices depend on.

    Attributes:
        compute_capability: × 10, of the GPUs (90 for 9.0).
        num_nodes, ranks_per_node: one rank for each GPU.
        link: inside a node.
        num_channels: of rings and trees.
        inside_gb_per_s: of one channel, inside a node.
        between_gb_per_s: of one channel, between nodes; 0 on one node.
        cpu: vendor, by which several nodes' LL and posting to the network are priced.
        has_nvls: whether GPUs of a node are joined by NVSwitches that can multicast.
    """

    compute_capability: int
    num_nodes: int
    ranks_per_node: int
    link: Literal["nvlink", "pci"]
    num_channels: int
    inside_gb_per_s: float
    between_gb_per_s: float
    cpu: Literal["intel", "amd"] = "intel"
    has_nvls: bool = False

    @property
    def num_ranks(self) -> int:
        """All ranks."""
        return self.num_nodes * self.ranks_per_node

    @property
    def generation(self) -> _Generation:
        """Constants of the GPUs; what is newer or between takes those below."""
        for least, generation in _GENERATIONS:
            if self.compute_capability >= least:
                return generation
        return _VOLTA


@dataclass(frozen=True, kw_only=True, slots=True)
class Pick:
    """One algorithm and protocol, and NCCL's price of it.

    Attributes:
        algorithm, protocol: in lower case.
        time_s: that NCCL expects.
    """

    algorithm: Algorithm
    protocol: Protocol
    time_s: float


def picks(machine: NcclMachine, message_bytes: int) -> list[Pick]:
    """Everything NCCL may run for an allreduce of this size, cheapest first; its choice is the first.

    Args:
        machine: of 2 ranks at least.
        message_bytes: of the whole buffer.
    """
    found = []
    for algorithm in _allowed(machine):
        for protocol in _PROTOCOLS:
            bandwidth = _bandwidth_gb_per_s(machine, algorithm, protocol)
            if bandwidth <= 0:
                continue
            latency_us = _latency_us(machine, algorithm, protocol)
            if algorithm == "tree" or (algorithm == "nvls_tree" and machine.compute_capability >= 100):
                bandwidth *= _correction(protocol, message_bytes)
            if algorithm == "ring" and protocol == "simple" and machine.num_nodes > 1:
                share = message_bytes / (machine.num_channels * machine.num_ranks)
                if share >= _LEAST_CORRECTED:
                    latency_us *= 1.9 if machine.compute_capability < 80 else 1.4
            time_us = latency_us + message_bytes / (1000.0 * bandwidth)
            found.append(Pick(algorithm=algorithm, protocol=protocol, time_s=time_us * 1e-6))
    return sorted(found, key=lambda pick: pick.time_s)


def _allowed(machine: NcclMachine) -> Sequence[Algorithm]:
    allowed: list[Algorithm] = ["tree", "ring"]
    if machine.has_nvls and machine.ranks_per_node >= machine.generation.nvls_least_gpus > 0:
        allowed.append("nvls" if machine.num_nodes == 1 else "nvls_tree")
    return allowed


def _bandwidth_gb_per_s(machine: NcclMachine, algorithm: Algorithm, protocol: Protocol) -> float:
    """Algorithm bandwidth: message over time; 0 where NCCL does not offer the pair."""
    generation, channels = machine.generation, machine.num_channels
    column = min(machine.num_nodes, 3) - 1
    num_ranks = machine.num_ranks
    if algorithm in ("nvls", "nvls_tree") and protocol != "simple":
        return 0.0
    inside, between = machine.inside_gb_per_s, machine.between_gb_per_s
    # On two nodes NCCL prices by the speed inside, which its search sets to that between for rings.
    bus = channels * (inside if machine.num_nodes == 1 else min(inside, between))
    if algorithm == "nvls":
        bus = 2 * inside * channels * generation.nvls_efficiency * (channels - 1) / channels
    elif algorithm == "nvls_tree":
        bus = channels * min(generation.nvls_tree[column], between * (2 if machine.num_nodes == 2 else 1))
    elif protocol == "ll":
        most = generation.ll_one_node if column == 0 else _LL_SEVERAL_NODES[machine.cpu][column - 1]
        bus = min(most, bus * 0.5) if algorithm == "ring" else min(most, bus * 0.92 / 3.8)
    elif protocol == "ll128":
        if machine.link != "nvlink":
            return 0.0
        if algorithm == "ring":
            bus = min(bus * 0.92, channels * generation.ring_ll128)
        else:
            share = 7 / 9 if machine.num_nodes == 1 else 120 / 128
            bus = min(bus * 0.92 * share, channels * generation.tree_ll128[column])
    elif algorithm == "tree":
        bus = min(bus * 0.92, channels * generation.tree_simple[column])
    if algorithm == "tree":
        return bus * 0.5
    return bus * num_ranks / (2 * (num_ranks - 1))


def _latency_us(machine: NcclMachine, algorithm: Algorithm, protocol: Protocol) -> float:
    at = _PROTOCOLS.index(protocol)
    num_nodes, per_node = machine.num_nodes, machine.ranks_per_node
    base = _BASE_US[algorithm][at]
    inside = _HOP_US[machine.link if algorithm in ("tree", "ring") else "nvlink", algorithm][at]
    # Where a node has one rank, a ring's hop is priced as a tree's.
    of_net = "tree" if per_node == 1 and algorithm == "ring" else algorithm
    between = _HOP_US["net", of_net][at]
    if algorithm == "ring":
        post = 0.0 if num_nodes == 1 else _POST_US[machine.cpu] * (3 if protocol == "simple" else 1)
        hops_between = 2 * (num_nodes - 1)
        hops_inside = 2 * (machine.num_ranks - 1) - hops_between
        return base + hops_inside * max(inside, post) + hops_between * between
    if algorithm == "tree":
        return base + 2 * ((per_node - 1) * inside + math.floor(math.log2(num_nodes)) * between)
    if algorithm == "nvls":
        return inside
    return base + inside + 2 * math.floor(math.log2(num_nodes)) * between


def _correction(protocol: Protocol, message_bytes: int) -> float:
    """What a tree's bandwidth is multiplied by: steps at powers of two, none beyond the table."""
    if message_bytes < _LEAST_CORRECTED:
        return 1.0
    place = (message_bytes // _LEAST_CORRECTED).bit_length() - 1
    table = _TREE_CORRECTION[protocol]
    return table[place] if place < len(table) else 1.0


def machine_of(topology: Topology) -> NcclMachine:
    """What NCCL would know of the machines of a topology.

    Raises:
        UsageError: no GPUs that NCCL runs on, unequal nodes, or links without rates.
    """
    gpus = [vertex for vertex in topology.vertices if vertex.kind == "gpu"]
    capability = _capability(gpus)
    nodes = sorted({gpu.node or "" for gpu in gpus})
    if _spans_nodes(topology, gpus):
        raise UsageError("NCCL's model here knows no NVLinks between nodes")
    per_node = {node: sum((gpu.node or "") == node for gpu in gpus) for node in nodes}
    if len(set(per_node.values())) != 1:
        raise UsageError(f"NCCL's model is for equal nodes; these have {sorted(set(per_node.values()))} GPUs")
    draft = NcclMachine(
        compute_capability=capability,
        num_nodes=len(nodes),
        ranks_per_node=per_node[nodes[0]],
        link="pci",
        num_channels=1,
        inside_gb_per_s=1.0,
        between_gb_per_s=0.0,
    )
    link, inside = _inside(topology, gpus[0], draft)
    if len(nodes) == 1:
        num_channels = max(1, min(_MOST_CHANNELS, round(inside / _STEP_INSIDE)))
        between = 0.0
    else:
        num_channels, each = _adapters(topology, nodes[0], capability)
        while num_channels * 2 <= _MOST_CHANNELS and each / 2 >= _LEAST_DOUBLED:
            num_channels, each = num_channels * 2, each / 2
        between = each
    return replace(
        draft,
        link=link,
        num_channels=num_channels,
        inside_gb_per_s=inside / num_channels,
        between_gb_per_s=between,
        cpu="amd" if "AMD" in str(topology.source.facts.get("cpu_model")).upper() else "intel",
        has_nvls=link == "nvlink"
        and draft.generation.nvls_efficiency > 0
        and any(vertex.kind == "nvswitch" for vertex in topology.vertices),
    )


def _spans_nodes(topology: Topology, gpus: Sequence[Vertex]) -> bool:
    """Whether an NVSwitch joins GPUs of several nodes."""
    node_of = {gpu.id: gpu.node for gpu in gpus}
    joined: dict[str, set[str | None]] = {}
    for link in topology.links:
        if link.kind == "nvlink" and link.src in node_of and link.dst not in node_of:
            joined.setdefault(link.dst, set()).add(node_of[link.src])
    return any(len(nodes) > 1 for nodes in joined.values())


def _capability(gpus: Sequence[Vertex]) -> int:
    models = sorted({gpu.model or "" for gpu in gpus})
    if not gpus or models == [""]:
        raise UsageError("NCCL's model needs the model of the GPUs, which this topology does not say")
    found = []
    for model in models:
        capability = compute_capability(model)
        if capability is None:
            raise UsageError(f"{model}: is no GPU that NCCL's model has constants for")
        found.append(capability)
    return min(found)


def _inside(topology: Topology, gpu: Vertex, draft: NcclMachine) -> tuple[Literal["nvlink", "pci"], float]:
    """Kind of link and gigabytes a second that a GPU has to those of its node."""
    nvlinks = sum(link.lanes or 1 for link in topology.links if link.src == gpu.id and link.kind == "nvlink")
    if nvlinks:
        return "nvlink", nvlinks * draft.generation.nvlink
    pcie = gpu.pcie
    if pcie is None or not (pcie.max_speed_gt_per_s and pcie.max_width):
        raise UsageError(f"{gpu.id}: neither NVLinks nor the rate of its PCI Express link are known")
    # NCCL counts 12 GB/s for sixteen lanes of generation 3, and others in proportion.
    return "pci", 12.0 * (pcie.max_speed_gt_per_s / 8.0) * (pcie.max_width / 16.0)


def _adapters(topology: Topology, node: str, capability: int) -> tuple[int, float]:
    """How many adapters a node has, and gigabytes a second of the slowest, at a step that NCCL knows."""
    rates = [
        vertex.speed
        for vertex in topology.vertices
        if vertex.kind == "nic" and (vertex.node or "") == node and vertex.speed
    ]
    if not rates:
        raise UsageError(f"{node}: no network adapter with a known rate joins it to other nodes")
    rate = min(rates) / 100e9 * _PER_100_GBIT
    steps = _STEPS_SM90 if capability >= 90 else _STEPS
    return min(len(rates), _MOST_CHANNELS), next((step for step in steps if step <= rate * 1.001), rate)

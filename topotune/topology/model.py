"""The topology of a machine or cluster: vertices and directed links, as found, each fact with its origin.

A fact that nobody established is ``None``; nothing is guessed. Everything else people ask (paths between
GPUs, counts, fingerprints) is derived from this in the modules beside it.
"""

import os
from dataclasses import dataclass, field
from typing import Final, Literal

SCHEMA = "topotune/topology"
SCHEMA_VERSION = 1

VertexKind = Literal[
    "gpu", "cpu", "numa", "pcie-switch", "pcie-root", "pci-device", "nvswitch", "nic", "switch"
]
LinkKind = Literal["nvlink", "pcie", "numa", "infiniband", "roce", "efa", "ethernet", "shm", "unknown"]
Origin = Literal["spec", "observed", "inferred", "measured"]
PairPath = Literal["PIX", "PXB", "PHB", "NODE", "SYS", "XGMI"]

PERFORMANCE_STATE: Final = "nvidia.performance_state"
"""Attribute of a GPU: ``P0`` (at work) to ``P15`` (at rest), as its driver says it."""
POWER_LIMIT_W: Final = "gpu.power_limit_w"
"""Attribute of a GPU: watts that it may draw now (``700``); with ``POWER_DEFAULT_W`` what it left the factory
with."""
POWER_DEFAULT_W: Final = "gpu.power_default_w"
PARTITION: Final = "amd.partition"
"""Attribute of a GPU: how AMD's driver divides it (``SPX``: not)."""
MAX_SM_CLOCK_MHZ: Final = "nvidia.max_sm_clock_mhz"
"""Attribute of a GPU: the highest clock of its multiprocessors."""
SM_CLOCK_MHZ: Final = "nvidia.sm_clock_mhz"
"""Attribute of a GPU: that clock when it was looked at; low at rest."""
CLOCK_LIMITS: Final = "nvidia.clock_limits"
"""Attribute of a GPU: what holds its clocks down, beside being at rest (``power cap, thermal``)."""
NVLINK_VERSION: Final = "nvidia.nvlink_version"
"""Attribute of a link: NVLink's generation as NVML numbers it (6 is NVLink 4.0)."""
NVLINK_ERRORS: Final = "nvidia.nvlink_errors"
"""Attribute of a link: errors that its source's driver counts, of all its lanes (``replay 3, crc_flit 12``);
absent where there are none."""
IP_NETWORKS: Final = "ip.networks"
"""Attribute of a NIC: IPv4 networks that its interface has an address in (``10.0.0.0/16 10.1.0.0/16``)."""
IPV6: Final = "ip.ipv6"
"""Attribute of a NIC whose interface has an IPv6 address beyond its own link: ``global``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PcieLink:
    """The PCI Express link above a device: as it runs now, and as both ends could run it.

    Rates in GT/s per lane (2.5, 5, 8, 16, 32, 64); widths in lanes. None where the kernel does not say.
    """

    speed_gt_per_s: float | None = None
    width: int | None = None
    max_speed_gt_per_s: float | None = None
    max_width: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvlinkPort:
    """One NVLink of a GPU, as its driver lists it, whatever is at the other end.

    Attributes:
        link: its number on the GPU.
        active: it carries traffic.
        bandwidth_bytes_per_s: in one direction; None where the driver does not say.
    """

    link: int
    active: bool
    bandwidth_bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Vertex:
    """One thing in the graph.

    Attributes:
        id: unique in the topology.
        kind: what it is. ``cpu`` is a socket, ``nic`` one port or network device, ``switch`` a fabric switch,
            ``pci-device`` a PCI function of which the source does not say what it is.
        node: the host it belongs to; None for fabric switches.
        index: its number in the space that its kind uses (NVML index, socket, NUMA node, NIC port).
        name: what the operating system calls it (``eth0``, ``mlx5_0``).
        pci_address: ``0000:17:00.0``.
        model: marketing or device name; ``vendor:device`` where only the identifiers are known.
        speed: line rate of a NIC port in bits/s, per direction.
        state: ``up``, ``down``, ``ACTIVE``, … in the source's own word.
        link_layer: of an RDMA port: ``InfiniBand`` or ``Ethernet``.
        numa: number of its NUMA node; None where the machine does not say (many VMs report −1).
        cpus: for ``numa`` and ``cpu``: its logical CPUs as the kernel lists them (``0-23,48-71``).
        memory_bytes: of a GPU or NUMA node.
        pcie: the PCI Express link above it.
        rdma_device: the RDMA device that belongs to a network device, or the reverse.
        uuid: of a GPU.
        guid: of a NIC port, or of a fabric switch, ``0x`` and hexadecimal digits; two ports of a card may
            share one.
        nvlink_ports: of a GPU: its NVLinks; empty where the driver lists none, None where nobody asked.
        cpu_affinity: of a GPU: the CPUs that its driver calls near. Inside a job's allocation these are the
            allocation's.
        numa_affinity: of a GPU: the NUMA nodes that its driver calls near, with the same reserve.
        mig: of a GPU: whether MIG is on; None where nobody asked or the GPU has none.
        mig_instances: of a GPU with MIG: its slices (``1g.10gb``).
        attributes: what a format says beyond all this, as ``format.element.name`` → text, so that it can be
            written again.
    """

    id: str
    kind: VertexKind
    node: str | None = None
    index: int | None = None
    name: str | None = None
    pci_address: str | None = None
    model: str | None = None
    speed: float | None = None
    state: str | None = None
    link_layer: str | None = None
    numa: int | None = None
    cpus: str | None = None
    memory_bytes: int | None = None
    pcie: PcieLink | None = None
    rdma_device: str | None = None
    uuid: str | None = None
    guid: str | None = None
    nvlink_ports: tuple[NvlinkPort, ...] | None = None
    cpu_affinity: str | None = None
    numa_affinity: str | None = None
    mig: bool | None = None
    mig_instances: tuple[str, ...] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One directed link ``src`` → ``dst``.

    Attributes:
        kind: ``nvlink`` stands for AMD's xGMI too, which takes its place between AMD's GPUs.
        lanes: parallel links folded into this one (NVLink count, PCIe width).
        bandwidth_bytes_per_s: in this direction, total over the lanes.
        bandwidth_ci_bytes_per_s: 95 % interval of a bandwidth that was measured or inferred.
        latency_s: one way.
        distance: between NUMA nodes, as the firmware rates it (ACPI SLIT: 10 is local).
        origin: how the figures became known.
        attributes: what a format says beyond all this, as of a vertex.
    """

    src: str
    dst: str
    kind: LinkKind
    lanes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    bandwidth_ci_bytes_per_s: tuple[float, float] | None = None
    latency_s: float | None = None
    distance: int | None = None
    origin: Origin = "observed"
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """What somebody's tool says about the way between two devices, in either direction, without showing it.

    Attributes:
        a, b: ids of the two.
        path: through PCI Express and the processors, in the words of ``nvidia-smi topo -m``; ``XGMI`` for
            AMD GPUs that such links join.
        nvlinks: NVLinks between them, straight or through switches; 0 where it was seen that there are none,
            None where nobody looked.
        p2p: capability (``read``, ``write``, ``nvlink``, ``atomics``, or ``any`` where the source does not
            say which) → status in nvidia-smi's words (``OK``, ``CNS``, ``GNS``, …).
    """

    a: str
    b: str
    path: PairPath | None = None
    nvlinks: int | None = None
    p2p: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a topology came from: a live probe, a captured tree, somebody's file.

    ``facts`` holds what describes the machine but is no vertex (kernel, driver, CPU model, memory, container
    or VM).
    """

    kind: str
    path: str | None = None
    created: str | None = None
    topotune_version: str | None = None
    facts: dict[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """A machine or cluster.

    Attributes:
        ranks: rank → vertex id; several ranks may share a vertex. Empty: not known. Compute vertices are
            those, else all ``gpu``, else all ``cpu``.
        warnings: what could not be read, one line each.
        pairs: what is known of two devices without the way between them; it comes before the graph.
        servers: vertices of processes that add for the ranks, one each, on nodes without ranks. Only what is
            named here serves.

    Raises:
        ValueError: two vertices with one id, a link, pair, rank or server that names no vertex, a link or
            pair of a vertex with itself, two links of one kind between the same two vertices, two pairs of
            the same two, a server that is no processor, is of no node or of one that holds ranks, a figure
            that is not positive.
    """

    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
    source: Source
    ranks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    servers: tuple[str, ...] = ()

    @property
    def compute(self) -> tuple[str, ...]:
        """The vertex of each rank: ``ranks``, else all GPUs, else all processors but on servers' nodes."""
        if self.ranks:
            return self.ranks
        servers = set(self.servers)
        serving = {vertex.node for vertex in self.vertices if vertex.id in servers}
        return tuple(vertex.id for vertex in self.vertices if vertex.kind == "gpu") or tuple(
            vertex.id for vertex in self.vertices if vertex.kind == "cpu" and vertex.node not in serving
        )

    @classmethod
    def from_file(cls, *paths: str | os.PathLike[str], format_name: str | None = None) -> "Topology":
        """Read a topology: topotune's own file, or what other tools say of a machine or cluster.

            topology = topotune.Topology.from_file("machine.json")  # of topotune probe -o
            topology = topotune.Topology.from_file("topo.xml", "smi-q.txt")  # as topotune import joins them

            >>> topology = Topology.from_file("machine.json")
            >>> len([vertex for vertex in topology.vertices if vertex.kind == "gpu"])
            8

        Args:
            paths: one or more; ``NODE=PATH`` says which node a file is of.
            format_name: what all of them are (``nccl-xml``, …), instead of recognising it.

        Raises:
            InputFileError: a file that cannot be read, is in no known format, or contradicts another.
            UsageError: no file, too many, or no such format.
        """
        from topotune.topology.formats.importing import read_files  # which makes topologies

        return read_files([os.fspath(path) for path in paths], format_name=format_name)

    def __post_init__(self) -> None:
        ids: set[str] = set()
        for vertex in self.vertices:
            if vertex.id in ids:
                raise ValueError(f"two vertices have the id {vertex.id!r}")
            ids.add(vertex.id)
        seen: set[tuple[str, str, str]] = set()
        for link in self.links:
            for end in (link.src, link.dst):
                if end not in ids:
                    raise ValueError(f"link {link.src!r} -> {link.dst!r} names {end!r}, which is no vertex")
            if link.src == link.dst:
                raise ValueError(f"link {link.src!r} -> {link.dst!r} joins a vertex to itself")
            key = (link.src, link.dst, link.kind)
            if key in seen:
                raise ValueError(f"two {link.kind} links run from {link.src!r} to {link.dst!r}")
            seen.add(key)
            if link.bandwidth_bytes_per_s is not None and not link.bandwidth_bytes_per_s > 0:
                rate = link.bandwidth_bytes_per_s
                raise ValueError(f"link {link.src!r} -> {link.dst!r} has a bandwidth of {rate} bytes/s")
            if link.bandwidth_ci_bytes_per_s is not None:
                low, high = link.bandwidth_ci_bytes_per_s
                if not 0 < low <= high:
                    raise ValueError(f"link {link.src!r} -> {link.dst!r} has an interval of {low} to {high}")
            if link.latency_s is not None and link.latency_s < 0:
                raise ValueError(f"link {link.src!r} -> {link.dst!r} has a latency of {link.latency_s} s")
            if link.lanes is not None and link.lanes < 1:
                raise ValueError(f"link {link.src!r} -> {link.dst!r} has {link.lanes} lanes")
        for rank, vertex_id in enumerate(self.ranks):
            if vertex_id not in ids:
                raise ValueError(f"rank {rank} is on {vertex_id!r}, which is no vertex")
        self._check_servers()
        joined: set[frozenset[str]] = set()
        for pair in self.pairs:
            for end in (pair.a, pair.b):
                if end not in ids:
                    raise ValueError(f"pair {pair.a!r}, {pair.b!r} names {end!r}, which is no vertex")
            both = frozenset((pair.a, pair.b))
            if len(both) < 2:
                raise ValueError(f"pair {pair.a!r}, {pair.b!r} joins a vertex to itself")
            if both in joined:
                raise ValueError(f"two pairs of {pair.a!r} and {pair.b!r}")
            joined.add(both)

    def _check_servers(self) -> None:
        if not self.servers:
            return
        node_of = {vertex.id: vertex.node for vertex in self.vertices}
        kinds = {vertex.id: vertex.kind for vertex in self.vertices}
        training = {node_of[vertex] for vertex in self.compute}
        seen: set[str] = set()
        for number, server in enumerate(self.servers):
            if server not in node_of:
                raise ValueError(f"server {number} is on {server!r}, which is no vertex")
            if server in seen:
                raise ValueError(f"two servers are on {server!r}")
            seen.add(server)
            if kinds[server] not in ("cpu", "gpu"):
                raise ValueError(f"server {number} is on {server!r}, a {kinds[server]}: processors add")
            if node_of[server] is None:
                raise ValueError(f"server {number} is on {server!r}, which is of no node")
            if node_of[server] in training:
                raise ValueError(f"server {number} is on node {node_of[server]!r}, which holds ranks")

"""The topology of a machine or cluster: vertices and directed links, as found, each fact with its origin.

A fact that nobody established is ``None``; nothing is guessed. Everything else people ask (paths between
GPUs, counts, fingerprints) is derived from this in the modules beside it.
"""

from dataclasses import dataclass, field
from typing import Literal

SCHEMA = "topotune/topology"
SCHEMA_VERSION = 1

VertexKind = Literal["gpu", "cpu", "numa", "pcie-switch", "pcie-root", "nvswitch", "nic", "switch"]
LinkKind = Literal["nvlink", "pcie", "numa", "infiniband", "roce", "efa", "ethernet", "shm", "unknown"]
Origin = Literal["spec", "observed", "inferred", "measured"]


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
class Vertex:
    """One thing in the graph.

    Attributes:
        id: unique in the topology.
        kind: what it is. ``cpu`` is a socket, ``nic`` one port or network device, ``switch`` a fabric switch.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One directed link ``src`` → ``dst``.

    Attributes:
        lanes: parallel links folded into this one (NVLink count, PCIe width).
        bandwidth_bytes_per_s: in this direction, total over the lanes.
        latency_s: one way.
        distance: between NUMA nodes, as the firmware rates it (ACPI SLIT: 10 is local).
        origin: how the figures became known.
    """

    src: str
    dst: str
    kind: LinkKind
    lanes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None
    distance: int | None = None
    origin: Origin = "observed"


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

    Raises:
        ValueError: two vertices with one id, a link or rank that names no vertex, a link from a vertex to
            itself, two links of one kind between the same two vertices, a figure that is not positive.
    """

    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
    source: Source
    ranks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

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
            if link.latency_s is not None and link.latency_s < 0:
                raise ValueError(f"link {link.src!r} -> {link.dst!r} has a latency of {link.latency_s} s")
            if link.lanes is not None and link.lanes < 1:
                raise ValueError(f"link {link.src!r} -> {link.dst!r} has {link.lanes} lanes")
        for rank, vertex_id in enumerate(self.ranks):
            if vertex_id not in ids:
                raise ValueError(f"rank {rank} is on {vertex_id!r}, which is no vertex")

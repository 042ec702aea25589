"""From the devices of one machine to its graph: the vertices between them, and the links.

Theory of operation. A PCI path alternates: root port, then for each switch its upstream port and one of its
downstream ports, then the device. A switch is one vertex, named by its upstream port (every second bridge of
the path); its downstream ports are its inner side. A root port is the end of the link below it and no
vertex, unless several devices share that link (the functions of one card): then it stands as a switch, so
that the shared link is one. A PCI Express link's figures are those of its lower end.

    gpu, nic, nvswitch - (pcie-switch)* - pcie-root - numa - cpu        numa - numa        gpu - nvswitch or
    gpu

A device whose place in the tree is hidden, but whose NUMA node is known, hangs on that node.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from topotune.probe.devices import Reading, find_gpus, find_nics, find_nvswitches, find_xgmi
from topotune.probe.faults import Faults
from topotune.probe.kernel_text import format_cpulist
from topotune.probe.nvml import ERROR_COUNTERS, NvlinkEnd, format_errors
from topotune.probe.pci import PciFunction
from topotune.topology.gpu_generations import compute_capability
from topotune.topology.model import NVLINK_ERRORS, NVLINK_VERSION, Link, Origin, PcieLink, Vertex
from topotune.topology.rates import (
    nvlink_bandwidth_bytes_per_s,
    nvlink_bandwidth_of_sm,
    pcie_bandwidth_bytes_per_s,
)

_NVSWITCH_UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class _Part:
    """Some vertices and links of the graph."""

    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]


def build_graph(reading: Reading, faults: Faults) -> tuple[tuple[Vertex, ...], tuple[Link, ...]]:
    """Vertices and links of one machine, in an order that depends on nothing but the reading."""
    gpus = find_gpus(reading, faults)
    nvswitches = find_nvswitches(reading)
    nics = find_nics(reading)
    devices = (*gpus, *nvswitches, *nics)
    _note_unplaced(reading, devices, faults)
    memory = _cpus_and_numa(reading)
    tree = _pci_tree(reading, devices)
    nvlinks = _nvlinks(reading, gpus, nvswitches, faults)
    vertices = (*memory.vertices, *tree.vertices, *gpus, *nvswitches, *nvlinks.vertices, *nics)
    return vertices, (*memory.links, *tree.links, *nvlinks.links, *find_xgmi(reading, gpus))


def _both_ways(
    a: str,
    b: str,
    *,
    lanes: int | None = None,
    bandwidth_bytes_per_s: float | None = None,
    origin: Origin = "observed",
) -> tuple[Link, Link]:
    forth, back = (
        Link(
            src=src,
            dst=dst,
            kind="pcie",
            lanes=lanes,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            origin=origin,
        )
        for src, dst in ((a, b), (b, a))
    )
    return forth, back


# -- CPUs and memory


def _cpus_and_numa(reading: Reading) -> _Part:
    vertices, links = [], []
    present = {numa.index for numa in reading.numa}
    for numa in reading.numa:
        here = reading.vertex_id("numa", numa.index)
        vertices.append(
            Vertex(
                id=here,
                kind="numa",
                node=reading.node,
                index=numa.index,
                cpus=None if numa.cpus is None else format_cpulist(numa.cpus),
                memory_bytes=numa.memory_bytes,
            )
        )
        links += [
            Link(src=here, dst=reading.vertex_id("numa", other), kind="numa", distance=distance)
            for other, distance in numa.distances.items()
            if other != numa.index and other in present
        ]
    for socket in reading.sockets:
        cpu = reading.vertex_id("cpu", 0 if socket.index is None else socket.index)
        local = [numa.index for numa in reading.numa if numa.cpus and numa.cpus & socket.cpus]
        vertices.append(
            Vertex(
                id=cpu,
                kind="cpu",
                node=reading.node,
                index=socket.index,
                model=reading.cpu_model,
                numa=local[0] if len(local) == 1 else None,
                cpus=format_cpulist(socket.cpus),
            )
        )
        for index in local:
            here = reading.vertex_id("numa", index)
            links += [Link(src=here, dst=cpu, kind="numa"), Link(src=cpu, dst=here, kind="numa")]
    return _Part(tuple(vertices), tuple(links))


# -- PCI Express


def _pci_tree(reading: Reading, devices: Iterable[Vertex]) -> _Part:
    bridges: dict[str, Vertex] = {}
    roots: dict[str, Vertex] = {}
    links: dict[tuple[str, str], Link] = {}
    placed = {
        device.id: function
        for device in devices
        if (function := reading.pci.get(device.pci_address or "")) is not None
        and function.host_bridge is not None
    }
    numa_of_root = _numa_of_roots(reading, placed.values())
    shared = _shared_root_ports(placed.values())

    def attach(lower: str, upper: str, pcie: PcieLink | None, *, is_gpu: bool = False) -> None:
        lanes, bandwidth, origin = _figures(pcie, is_gpu=is_gpu)
        for link in _both_ways(lower, upper, lanes=lanes, bandwidth_bytes_per_s=bandwidth, origin=origin):
            links.setdefault((link.src, link.dst), link)

    for device in devices:
        function = placed.get(device.id)
        is_gpu = device.kind == "gpu"
        if function is None or function.host_bridge is None:
            if device.numa in {numa.index for numa in reading.numa}:
                attach(device.id, reading.vertex_id("numa", str(device.numa)), device.pcie, is_gpu=is_gpu)
            continue
        root = reading.vertex_id("pcie-root", function.host_bridge)
        roots.setdefault(
            root,
            Vertex(
                id=root,
                kind="pcie-root",
                node=reading.node,
                name=function.host_bridge,
                numa=numa_of_root[function.host_bridge],
            ),
        )
        upper = root
        for address in _switches(function, shared):
            switch = reading.vertex_id("pcie-switch", address)
            bridge = reading.pci.get(address)
            if switch not in bridges:
                bridges[switch] = _switch_vertex(reading, switch, address, bridge)
            # A root port that stands as a switch has its link below it, which its own attributes describe.
            attach(switch, upper, bridges[switch].pcie)
            upper = switch
        attach(device.id, upper, device.pcie, is_gpu=is_gpu)
    vertices = (*sorted(roots.values(), key=_by_id), *sorted(bridges.values(), key=_by_id))
    return _Part(vertices, (*links.values(), *_root_links(reading, roots.values())))


def _switches(function: PciFunction, shared: frozenset[str]) -> tuple[str, ...]:
    """Bridges of a path that stand as vertices, from the root downwards."""
    first = function.parents[:1] if function.parents[:1] and function.parents[0] in shared else ()
    return (*first, *function.parents[1::2])


def _shared_root_ports(functions: Iterable[PciFunction]) -> frozenset[str]:
    """Root ports with several devices straight below them."""
    ports = Counter(function.parents[0] for function in functions if len(function.parents) == 1)
    return frozenset(port for port, num_functions in ports.items() if num_functions > 1)


def _switch_vertex(reading: Reading, vertex_id: str, address: str, bridge: PciFunction | None) -> Vertex:
    return Vertex(
        id=vertex_id,
        kind="pcie-switch",
        node=reading.node,
        pci_address=address,
        model=bridge.ids if bridge else None,
        numa=bridge.numa if bridge else None,
        pcie=None if bridge is None or bridge.pcie == PcieLink() else reading.link_above(bridge),
    )


def _figures(pcie: PcieLink | None, *, is_gpu: bool) -> tuple[int | None, float | None, Origin]:
    """Lanes, bytes/s, and how they are known.

    A GPU at rest lowers the rate of its link to save power and raises it again under load, so the rate that
    both ends can do counts; whether the link really reaches it, only a measurement shows.
    """
    if pcie is None:
        return None, None, "observed"
    speed, origin = pcie.speed_gt_per_s, "observed"
    if is_gpu and pcie.max_speed_gt_per_s is not None and pcie.max_speed_gt_per_s != speed:
        speed, origin = pcie.max_speed_gt_per_s, "spec"
    bandwidth = None if speed is None or pcie.width is None else pcie_bandwidth_bytes_per_s(speed, pcie.width)
    return pcie.width, bandwidth, "spec" if origin == "spec" else "observed"


def _numa_of_roots(reading: Reading, functions: Iterable[PciFunction]) -> dict[str, int | None]:
    """Each host bridge's NUMA node: what all that lies below it says, where it says one thing."""
    told: dict[str, set[int]] = {}
    for function in functions:
        if function.host_bridge is None:
            continue
        above = [reading.pci[address] for address in function.parents if address in reading.pci]
        told.setdefault(function.host_bridge, set()).update(
            each.numa for each in (function, *above) if each.numa is not None
        )
    return {root: next(iter(nodes)) if len(nodes) == 1 else None for root, nodes in told.items()}


def _root_links(reading: Reading, roots: Iterable[Vertex]) -> Iterable[Link]:
    """Host bridges to their NUMA nodes; where the machine does not say which, to the only one there is."""
    nodes = [numa.index for numa in reading.numa]
    for root in sorted(roots, key=_by_id):
        if root.numa in nodes:
            yield from _both_ways(root.id, reading.vertex_id("numa", str(root.numa)))
        elif len(nodes) == 1:
            yield from _both_ways(root.id, reading.vertex_id("numa", nodes[0]), origin="inferred")
        elif not nodes and len(reading.sockets) == 1:
            index = reading.sockets[0].index
            yield from _both_ways(root.id, reading.vertex_id("cpu", index or 0), origin="inferred")


def _by_id(vertex: Vertex) -> str:
    return vertex.id


def _note_unplaced(reading: Reading, devices: Iterable[Vertex], faults: Faults) -> None:
    for device in devices:
        if device.pci_address is None:
            continue
        label = device.name or device.pci_address
        function = reading.pci.get(device.pci_address)
        if function is None or function.host_bridge is None:
            faults.add("place in the PCI tree not known", label)
        if device.numa is None:
            faults.add("NUMA node not known (numa_node is -1 or absent)", label)


# -- NVLink


def _nvlinks(reading: Reading, gpus: Iterable[Vertex], nvswitches: Iterable[Vertex], faults: Faults) -> _Part:
    by_address = {vertex.pci_address: vertex for vertex in (*gpus, *nvswitches) if vertex.pci_address}
    hidden: dict[str, Vertex] = {}
    ends: dict[tuple[str, str], list[NvlinkEnd]] = {}
    for gpu in reading.nvml_gpus or ():
        here = reading.vertex_id("gpu", gpu.index)
        for end in gpu.nvlinks:
            there = by_address.get(end.remote_address or "")
            if there is None and end.remote == "nvswitch":
                name = end.remote_address or _NVSWITCH_UNSEEN
                there = hidden.setdefault(
                    name,
                    Vertex(
                        id=reading.vertex_id("nvswitch", name),
                        kind="nvswitch",
                        node=reading.node,
                        pci_address=end.remote_address,
                    ),
                )
            if there is None or there.id == here:
                faults.add(
                    "left out, an NVLink to a device that is not seen", f"GPU {gpu.index} link {end.link}"
                )
                continue
            ends.setdefault((here, there.id), []).append(end)
            if there.kind == "nvswitch":
                # Switches do not answer; their side of the cable is the same cable.
                ends.setdefault((there.id, here), []).append(end)
    generations = {
        reading.vertex_id("gpu", gpu.index): compute_capability(gpu.model or "")
        for gpu in reading.nvml_gpus or ()
    }
    links = tuple(
        _nvlink(src, dst, group, generations.get(src) or generations.get(dst))
        for (src, dst), group in ends.items()
    )
    for link in links:
        back = ends.get((link.dst, link.src), [])
        if len(back) != link.lanes and link.src < link.dst:
            faults.add(
                "NVLinks of two GPUs do not agree",
                f"{link.src} has {link.lanes} to {link.dst}, which has {len(back)} back",
            )
    return _Part(tuple(hidden.values()), links)


def _nvlink(src: str, dst: str, ends: list[NvlinkEnd], generation: int | None) -> Link:
    """Links of two devices as one; ``generation`` is the compute capability × 10 of a GPU among them."""
    reported = [end.bytes_per_s for end in ends]
    # The model goes before the version, which drivers misstate: A100 as 3.1 (hwloc issue 658), H100 as 5.0.
    by_model = nvlink_bandwidth_of_sm(generation)
    rates = [end.bytes_per_s or by_model or nvlink_bandwidth_bytes_per_s(end.version) for end in ends]
    known = [rate for rate in rates if rate is not None]
    return Link(
        src=src,
        dst=dst,
        kind="nvlink",
        lanes=len(ends),
        bandwidth_bytes_per_s=sum(known) if len(known) == len(ends) else None,
        origin="spec" if None in reported and None not in rates else "observed",
        attributes=_nvlink_attributes(ends),
    )


def _nvlink_attributes(ends: list[NvlinkEnd]) -> dict[str, str]:
    """Generation and errors of the lanes together."""
    versions = {end.version for end in ends}
    errors = {name: sum(end.errors.get(name, 0) for end in ends) for name in ERROR_COUNTERS}
    attributes = {NVLINK_VERSION: str(versions.pop())} if len(versions) == 1 and None not in versions else {}
    return attributes | ({NVLINK_ERRORS: format_errors(errors)} if any(errors.values()) else {})

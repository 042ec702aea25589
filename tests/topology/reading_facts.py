"""What a topology says, in the words in which fixtures and captures state what a correct reader finds."""

from collections import Counter, defaultdict

from topotune.topology import Paths, Topology, Vertex, summary
from topotune.topology.formats.ib_fabric import IDLE_PORTS
from topotune.topology.formats.nccl_attributes import ELSEWHERE, class_of
from topotune.topology.formats.rdma_ports import PHYSICAL_STATE, PORT_GUID
from topotune.topology.paths import nearest
from topotune.topology.tiers import switch_tiers


def facts_of(topology: Topology) -> dict[str, object]:
    gpus = [vertex for vertex in topology.vertices if vertex.kind == "gpu"]
    nics = [vertex for vertex in topology.vertices if vertex.kind == "nic"]
    asked = summary(topology)
    return {
        "nodes": sorted({vertex.node for vertex in topology.vertices if vertex.node is not None}),
        "num_gpus": len(gpus),
        "num_nics": len(nics),
        "kinds": dict(Counter(vertex.kind for vertex in topology.vertices)),
        "numa": [vertex.index for vertex in topology.vertices if vertex.kind == "numa"],
        "numa_cpus": [vertex.cpus for vertex in topology.vertices if vertex.kind == "numa"],
        "gpu_pairs": dict(Counter(str(pair["path"]) for pair in asked["gpu_pairs"])),
        "gpu_nic_paths": dict(Counter(str(pair["path"]) for pair in asked["gpu_nic_paths"])),
        "nearest": nearest_adapters(topology, gpus, nics),
        "gpu_index": [gpu.index for gpu in gpus],
        "gpu_numa": [gpu.numa for gpu in gpus],
        "affinity": [tail(gpu) for gpu in gpus],
        "models": dict(Counter(str(gpu.model) for gpu in gpus)),
        "uuids": [gpu.uuid for gpu in gpus],
        "gpu_addresses": [gpu.pci_address for gpu in gpus],
        "gpu_pcie": [
            gpu.pcie
            and [gpu.pcie.speed_gt_per_s, gpu.pcie.width, gpu.pcie.max_speed_gt_per_s, gpu.pcie.max_width]
            for gpu in gpus
        ],
        "memory_bytes": [gpu.memory_bytes for gpu in gpus],
        "ports": [ports(gpu) for gpu in gpus],
        "mig": [gpu.mig for gpu in gpus],
        "mig_instances": [gpu.mig_instances and list(gpu.mig_instances) for gpu in gpus],
        "nvlinks": [list(each) for each in nvlinks(topology, gpus)],
        "nvlink_gb_per_s": sorted(
            {round(link.bandwidth_bytes_per_s / link.lanes / 1e9, 4) for link in topology.links
             if link.kind == "nvlink" and link.bandwidth_bytes_per_s and link.lanes}
        ),
        "p2p": p2p(topology),
        "classes": classes(topology),
        "nic_names": [nic.name for nic in nics],
        "nic_gbit_per_s": dict(Counter("?" if nic.speed is None else f"{nic.speed / 1e9:g}" for nic in nics)),
        "nic_layers": [nic.link_layer for nic in nics],
        "nic_models": dict(Counter(str(nic.model) for nic in nics)),
        "nic_states": [f"{nic.state} {nic.attributes.get(PHYSICAL_STATE)}" for nic in nics],
        "port_guids": [nic.attributes.get(PORT_GUID) for nic in nics],
        "guids": [nic.guid for nic in nics],
        "ranks": len(topology.ranks),
        "depth": depth(topology),
        "pcie_gb_per_s": dict(
            Counter(f"{link.bandwidth_bytes_per_s / 1e9:g}" for link in topology.links
                    if link.kind == "pcie" and link.bandwidth_bytes_per_s and link.src < link.dst)
        ),
        "switches": hosts_on_switches(topology),
        "idle_ports": {
            vertex.name: vertex.attributes[IDLE_PORTS]
            for vertex in topology.vertices if IDLE_PORTS in vertex.attributes
        },
        "fabric_gb_per_s": cables(topology),
        "tiers": dict(Counter(str(tier) for tier in switch_tiers(topology).values())),
        "blocks": dict(
            Counter(nic.attributes["slurm.block"] for nic in nics if "slurm.block" in nic.attributes)
        ),
        "distances": dict(
            Counter(str(link.distance) for link in topology.links if link.distance is not None)
        ),
        "facts": topology.source.facts,
        "formats": topology.source.kind.removeprefix("import: ").split(", "),
    }  # fmt: skip


def nic_label(nic: Vertex) -> str:
    return nic.name or nic.pci_address or nic.id.rpartition("/")[2]


def nearest_adapters(topology: Topology, gpus: list[Vertex], nics: list[Vertex]) -> list[str]:
    paths = Paths(topology)
    found = []
    for gpu in gpus:
        own = [nic for nic in nics if nic.node == gpu.node]
        word, labels = nearest({nic_label(nic): paths.between(gpu.id, nic.id) for nic in own})
        found.append(" ".join([str(word), *labels]))
    return found


def tail(gpu: Vertex) -> str:
    """The columns behind a matrix, as far as they say anything."""
    parts = (gpu.cpu_affinity, gpu.numa_affinity, gpu.attributes.get("nvidia-smi.gpu_numa_id"))
    return " / ".join(part for part in parts if part is not None)


def ports(gpu: Vertex) -> str | None:
    """``4 of 6 at 25.781, down 3,5``; None where nobody asked."""
    if gpu.nvlink_ports is None:
        return None
    active = [port for port in gpu.nvlink_ports if port.active]
    rates = ",".join(sorted({f"{(port.bandwidth_bytes_per_s or 0) / 1e9:g}" for port in active}))
    down = ",".join(str(port.link) for port in gpu.nvlink_ports if not port.active)
    return f"{len(active)} of {len(gpu.nvlink_ports)} at {rates or '-'}" + (f", down {down}" if down else "")


def nvlinks(topology: Topology, gpus: list[Vertex]) -> list[tuple[int, int]]:
    """Of each GPU: to how many things its NVLinks lead, and how many they are."""
    count: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for link in topology.links:
        if link.kind == "nvlink":
            count[link.src][0] += 1
            count[link.src][1] += link.lanes or 0
    for gpu in gpus:
        for entry in filter(None, gpu.attributes.get(ELSEWHERE, "").split(";")):
            count[gpu.id][0] += 1
            count[gpu.id][1] += int(entry.split(" ")[2])
    return [(count[gpu.id][0], count[gpu.id][1]) for gpu in gpus]


def hosts_on_switches(topology: Topology) -> dict[str, int]:
    """Each fabric switch by name (or GUID), and to how many adapters of hosts it leads."""
    names = {v.id: v.name or str(v.guid) for v in topology.vertices if v.kind == "switch"}
    hosts = {vertex.id for vertex in topology.vertices if vertex.node is not None}
    found = {name: 0 for name in names.values()}
    for link in topology.links:
        if link.src in names and link.dst in hosts:
            found[names[link.src]] += 1
    return found


def cables(topology: Topology) -> dict[str, int]:
    """Links of fabric switches: kind, how many cables, GB/s together; each once."""
    switches = {vertex.id for vertex in topology.vertices if vertex.kind == "switch"}
    return dict(
        Counter(
            f"{link.kind} {link.lanes} "
            + ("?" if link.bandwidth_bytes_per_s is None else f"{link.bandwidth_bytes_per_s / 1e9:g}")
            for link in topology.links
            if {link.src, link.dst} & switches and link.src < link.dst
        )
    )


def p2p(topology: Topology) -> dict[str, int]:
    """Pairs by capability and status."""
    return dict(Counter(f"{what} {status}" for pair in topology.pairs for what, status in pair.p2p.items()))


def classes(topology: Topology) -> dict[str, int]:
    """PCI devices of the tree by class; ports of one card are one device."""
    placed = {link.src for link in topology.links if link.kind == "pcie"}
    devices = {
        (vertex.node, vertex.pci_address): class_of(vertex) or "(no class)"
        for vertex in topology.vertices
        if vertex.pci_address is not None and vertex.id in placed
    }
    return dict(Counter(devices.values()))


def depth(topology: Topology) -> int:
    """The most PCI devices, one below the other."""
    below: dict[str, list[str]] = defaultdict(list)
    for link in topology.links:
        if link.kind == "pcie":
            below[link.src].append(link.dst)
    level = {vertex.id for vertex in topology.vertices if vertex.kind == "numa"}
    seen, steps = set(level), 0
    while level := {there for here in level for there in below[here]} - seen:
        seen |= level
        steps += 1
    return steps

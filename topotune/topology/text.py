"""A topology as text for people: plain, no colour, as wide as it is told."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from topotune.topology.fabric_text import fabric_lines
from topotune.topology.folding import alike_nodes
from topotune.topology.model import PcieLink, Topology, Vertex, VertexKind
from topotune.topology.overview import by_node
from topotune.topology.paths import Paths, nearest
from topotune.topology.rates import pcie_generation
from topotune.units import format_bytes, format_line_rate

_KINDS: tuple[VertexKind, ...] = ("cpu", "numa", "gpu", "nvswitch", "pci-device", "nic")
_MAX_PAGES = 16
_MAX_COMPARED = 512
_MAX_DRAWN = 64
_MAX_NAMED = 8


def render(topology: Topology, width: int = 80) -> str:
    """A machine or cluster: processors, memory, GPUs, network, how near they are, what is not known.

    Nodes that look the same are drawn once.

    Args:
        topology: what to draw.
        width: of the page, in characters, at least 40.

    Returns:
        Lines without a newline at the end.
    """
    width = max(width, 40)
    groups = {kind: by_node(topology, kind) for kind in _KINDS}
    paths = Paths(topology)
    alike = alike_nodes(topology)
    pages: dict[str, list[str]] = {}
    for group in alike[:_MAX_COMPARED]:
        page = "\n".join(_node_lines({kind: groups[kind].get(group[0], []) for kind in _KINDS}, paths, width))
        pages.setdefault(page, []).extend(group)
    lines: list[str] = []
    machine = list(_machine_lines(topology))
    for page, same in list(pages.items())[:_MAX_PAGES]:
        title = f"node {same[0]}" if len(same) == 1 else f"{len(same)} nodes like this: {_names(same)}"
        lines += [title, *(f"  {line}" for line in machine), page, ""]
        machine = []
    if len(pages) > _MAX_PAGES:
        lines += [f"and {len(pages) - _MAX_PAGES} more kinds of node", ""]
    if len(alike) > _MAX_COMPARED:
        lines += [f"and {sum(map(len, alike[_MAX_COMPARED:]))} more nodes", ""]
    if not alike:
        lines += ["no node is known", ""]
    fabric = list(fabric_lines(topology))
    if fabric:
        lines += [*fabric, ""]
    if topology.ranks:
        lines += [_ranks_line(topology), ""]
    if topology.servers:
        lines += [f"servers that only add: {len(topology.servers)}", ""]
    if topology.warnings:
        lines.append("not known")
        lines += (wrapped for warning in topology.warnings for wrapped in _bullet(warning, width))
    return "\n".join(_cut(_printable(line), width) for line in "\n".join(lines).rstrip().split("\n"))


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _MAX_NAMED} more" if len(nodes) > _MAX_NAMED else ""
    return ", ".join(nodes[:_MAX_NAMED]) + more


def _ranks_line(topology: Topology) -> str:
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    on_node = Counter(node_of[vertex] for vertex in topology.ranks)
    least, most = min(on_node.values()), max(on_node.values())
    count = len(topology.ranks)
    if len(on_node) == 1:
        return f"ranks: {count}"
    return (
        f"ranks: {count}, {least if least == most else f'{least} to {most}'} on each of {len(on_node)} nodes"
    )


def _machine_lines(topology: Topology) -> Iterator[str]:
    """From the facts of the source, which describe one machine."""
    facts = topology.source.facts
    kernel, system = facts.get("kernel"), facts.get("os")
    if kernel or system:
        yield " · ".join(str(part) for part in (system, kernel and f"kernel {kernel}") if part)
    around = []
    if facts.get("virtual_machine"):
        hypervisor = facts.get("hypervisor")
        around.append(f"virtual machine ({hypervisor})" if hypervisor else "virtual machine")
    if facts.get("container"):
        around.append(f"container ({facts['container']}, by {facts.get('container_evidence')})")
    product = [str(facts[key]) for key in ("dmi_vendor", "dmi_product") if facts.get(key)]
    if product:
        around.append(" ".join(product))
    if around:
        yield " · ".join(around)
    memory, usable, total = facts.get("memory_bytes"), facts.get("num_usable_cpus"), facts.get("num_cpus")
    numbers = [f"memory {format_bytes(memory)}"] if isinstance(memory, int) else []
    if isinstance(usable, int) and isinstance(total, int) and usable < total:
        numbers.append(f"{usable} of {total} CPUs may be used")
    if numbers:
        yield " · ".join(numbers)
    driver, answer = facts.get("nvidia_driver"), facts.get("nvml")
    if driver or answer:
        cuda = f" · CUDA up to {facts['cuda_version']}" if facts.get("cuda_version") else ""
        yield f"NVIDIA driver {driver}{cuda}" if driver else f"NVIDIA driver: {answer}"


def _node_lines(found: dict[VertexKind, list[Vertex]], paths: Paths, width: int) -> Iterator[str]:
    for model, sockets in _by_model(found["cpu"]):
        times = f"{len(sockets)} × " if len(sockets) > 1 else ""
        yield f"  {times}{model}"
    if found["numa"]:
        yield "  NUMA"
        yield from _table(
            [
                (
                    "?" if numa.index is None else str(numa.index),
                    _cpus_label(numa),
                    "memory not known" if numa.memory_bytes is None else format_bytes(numa.memory_bytes),
                )
                for numa in found["numa"]
            ]
        )
    yield from _gpu_lines(found["gpu"], found["nvswitch"])
    if found["pci-device"]:
        yield f"  {len(found['pci-device'])} PCI devices, not known what they are"
    if found["nic"]:
        yield "  Network"
        yield from _table([_nic_row(nic) for nic in found["nic"]])
    else:
        yield "  Network: no adapters"
    if len(found["gpu"]) > _MAX_DRAWN:
        yield f"  {len(found['gpu'])} GPUs: too many to draw how near they are"
    elif len(found["gpu"]) > 1:
        yield "  GPU to GPU"
        yield from _matrix(found["gpu"], paths, width)
    if 0 < len(found["gpu"]) <= _MAX_DRAWN and found["nic"]:
        yield "  nearest adapters"
        yield from _table([_nearest_row(gpu, found["nic"], paths) for gpu in found["gpu"]])


def _cpus_label(numa: Vertex) -> str:
    if numa.cpus is None:
        return "CPUs not known"
    return f"CPUs {numa.cpus}" if numa.cpus else "no CPUs"


def _by_model(sockets: Sequence[Vertex]) -> Iterator[tuple[str, list[Vertex]]]:
    models: dict[str, list[Vertex]] = {}
    for socket in sockets:
        models.setdefault(socket.model or "CPU model not known", []).append(socket)
    yield from models.items()


def _gpu_lines(gpus: Sequence[Vertex], nvswitches: Sequence[Vertex]) -> Iterator[str]:
    """One line for each; what all have in common stands in the heading."""
    if not gpus:
        yield "  GPUs: none"
        return
    switches = f", {len(nvswitches)} NVSwitches" if nvswitches else ""
    kinds = {_gpu_kind(gpu) for gpu in gpus}
    yield f"  GPUs: {len(gpus)} × {kinds.pop()}{switches}" if len(kinds) == 1 else f"  GPUs{switches}"
    yield from _table(
        [
            (
                _gpu_label(gpu),
                _gpu_kind(gpu) if kinds else "",
                _short_address(gpu.pci_address) if gpu.index is not None else "",
                _numa_label(gpu),
                _pcie_label(gpu.pcie),
                _nvlink_label(gpu),
                _mig_label(gpu),
            )
            for gpu in gpus
        ]
    )


def _gpu_kind(gpu: Vertex) -> str:
    memory = f", {format_bytes(gpu.memory_bytes)}" if gpu.memory_bytes else ""
    return f"{gpu.model or 'model not known'}{memory}"


def _gpu_label(gpu: Vertex) -> str:
    if gpu.index is not None:
        return f"GPU{gpu.index}"
    return _short_address(gpu.pci_address) or f"gpu{gpu.id.rpartition('/')[2]}"


def _short_address(address: str | None) -> str:
    """Without the PCI domain where that is 0, as lspci writes it."""
    return (address or "").removeprefix("0000:")


def _nic_label(nic: Vertex) -> str:
    return nic.name or _short_address(nic.pci_address) or nic.id.rpartition("/")[2]


def _numa_label(vertex: Vertex) -> str:
    return "NUMA ?" if vertex.numa is None else f"NUMA {vertex.numa}"


def _pcie_label(pcie: PcieLink | None) -> str:
    """``gen 4 x16``, with what it could be where that is more."""
    if pcie is None:
        return ""
    now = _generation_and_width(pcie.speed_gt_per_s, pcie.width)
    able = _generation_and_width(pcie.max_speed_gt_per_s, pcie.max_width)
    if pcie.speed_gt_per_s is None and pcie.width is None:
        return f"up to {able}"
    return now if now == able or not pcie.max_speed_gt_per_s else f"{now} (of {able})"


def _nvlink_label(gpu: Vertex) -> str:
    """``12 NVLinks``, or how many of them run."""
    if gpu.nvlink_ports is None:
        return ""
    active = sum(port.active for port in gpu.nvlink_ports)
    of = "" if active == len(gpu.nvlink_ports) else f" of {len(gpu.nvlink_ports)}"
    return f"{active or 'no'}{of} NVLinks"


def _mig_label(gpu: Vertex) -> str:
    return f"MIG on, {len(gpu.mig_instances or ())} slices" if gpu.mig else ""


def _generation_and_width(speed_gt_per_s: float | None, width: int | None) -> str:
    generation = None if speed_gt_per_s is None else pcie_generation(speed_gt_per_s)
    return f"gen {generation or '?'} x{width or '?'}"


def _nic_row(nic: Vertex) -> tuple[str, ...]:
    rdma = nic.rdma_device if nic.rdma_device != nic.name else None
    layers = {"InfiniBand": "IB", "Ethernet": "RoCE"}
    layer = layers.get(nic.link_layer or "", "RDMA" if nic.rdma_device else "")
    return (
        _nic_label(nic),
        nic.state or "",
        "speed ?" if nic.speed is None else format_line_rate(nic.speed),
        " ".join(part for part in (rdma, layer) if part),
        _short_address(nic.pci_address),
        _numa_label(nic) if nic.pci_address else "",
        _pcie_label(nic.pcie) or nic.model or "",
    )


def _nearest_row(gpu: Vertex, nics: Sequence[Vertex], paths: Paths) -> tuple[str, ...]:
    word, labels = nearest({_nic_label(nic): paths.between(gpu.id, nic.id) for nic in nics})
    return (_gpu_label(gpu), "not known") if word is None else (_gpu_label(gpu), word, " ".join(labels))


def _matrix(gpus: Sequence[Vertex], paths: Paths, width: int) -> Iterator[str]:
    """All pairs; in blocks of columns where they do not fit side by side."""
    labels = [_gpu_label(gpu) for gpu in gpus]
    cells = [["X" if a.id == b.id else paths.between(a.id, b.id) or "?" for b in gpus] for a in gpus]
    label_width = max(map(len, labels)) + 4
    cell_width = max(len(text) for text in (*labels, *(cell for row in cells for cell in row))) + 2
    per_block = max(1, (width - label_width) // cell_width)
    for start in range(0, len(gpus), per_block):
        block = slice(start, start + per_block)
        yield " " * label_width + "".join(label.rjust(cell_width) for label in labels[block])
        for label, row in zip(labels, cells, strict=True):
            yield f"    {label}".ljust(label_width) + "".join(cell.rjust(cell_width) for cell in row[block])


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Left-aligned columns; columns that are empty throughout are left out."""
    columns = [
        column for column in range(max(map(len, rows))) if any(row[column:] and row[column] for row in rows)
    ]
    widths = {column: max(len(row[column]) for row in rows if len(row) > column) for column in columns}
    for row in rows:
        cells = [row[column].ljust(widths[column]) if len(row) > column else "" for column in columns]
        yield f"    {'  '.join(cells)}".rstrip()


def _bullet(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  - ", subsequent_indent="    ") or []


def _printable(line: str) -> str:
    """Without characters that a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in line)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1]}…"

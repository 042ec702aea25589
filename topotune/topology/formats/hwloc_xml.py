"""hwloc's XML (``lstopo machine.xml``), of versions 1 to 3: processors, memory, the PCI tree and its devices.

The file is read into the same values as a live machine's sysfs, and the graph is built from them by the same
rules (`topotune.probe.graph`). Two things are different. Of a PCI link, hwloc knows the product of rate and
width alone, as it was when the file was written; and a file without PCI devices was most likely exported
without them, which is no proof that there are none.

Source: hwloc, doc/hwloc.doxy and hwloc/topology-xml.c (1.11, 2.x, 3.0).
"""

import re
from dataclasses import dataclass, replace

from topotune.errors import InputFileError
from topotune.probe.devices import NvidiaCard
from topotune.probe.devices import Reading as Machine
from topotune.probe.faults import Faults
from topotune.probe.graph import build_graph
from topotune.topology.formats.devices import PCI_NAME
from topotune.topology.formats.hwloc_distances import nvlinks_and_pairs
from topotune.topology.formats.hwloc_objects import SPEED, MachineObjects, PciDetails
from topotune.topology.formats.reading import THIS_NODE, Reader, Reading
from topotune.topology.formats.xml_tree import XmlTree, parse_xml
from topotune.topology.model import Link, Vertex

_ROOT = re.compile(r"<topology(?=[\s>])")
_HOST = re.compile(r"[\w.-]{1,255}")
_FACTS = {
    "OSRelease": "kernel",
    "DMISysVendor": "dmi_vendor",
    "DMIProductName": "dmi_product",
    "hwlocVersion": "hwloc_version",
}


def _recognise(text: str) -> bool:
    start = _ROOT.search(text)
    return start is not None and '<object type="' in text[start.start() : start.start() + 4_000]


@dataclass(frozen=True, slots=True)
class _Graph:
    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]


def read(text: str, source: str) -> Reading:
    """An export → what it proves.

    Raises:
        InputFileError: no such file, several in one, no machine in it, or as `parse_xml`.
    """
    start = _ROOT.search(text)
    if start is None:
        raise InputFileError(source, "holds no <topology> element, which hwloc's files start with")
    first_line = text.count("\n", 0, start.start()) + 1
    end = text.find("</topology>", start.start())
    body = text[start.start() :] if end < 0 else text[start.start() : end + len("</topology>")]
    if end >= 0 and _ROOT.search(text, end) is not None:
        raise InputFileError(
            source,
            "holds more than one <topology>",
            place=f"line {first_line}",
            hint="give each machine's file on its own, with its name: import a=FILE b=FILE",
        )
    faults = Faults()
    tree = parse_xml(body, source, first_line=first_line)
    if tree.cut_at_line is not None:
        faults.add(f"the file ends early, in line {tree.cut_at_line}; what stands before was read")
    objects = _objects_of(tree, faults, source)
    host = objects.infos.get("HostName", "")
    machine = _machine(objects, host if _HOST.fullmatch(host) else THIS_NODE)
    vertices, links = build_graph(machine, faults)
    graph = _completed(_Graph(vertices, links), objects, machine, faults)
    nvlinks, pairs = nvlinks_and_pairs(tree.root, objects, graph.vertices, faults)
    if not objects.pci:
        faults.add("no PCI device in the file: GPUs and adapters are not known, no proof that there are none")
    return Reading(
        vertices=graph.vertices,
        links=(*graph.links, *nvlinks),
        pairs=pairs,
        facts=_facts(objects),
        warnings=faults.warnings(),
    )


def _objects_of(tree: XmlTree, faults: Faults, source: str) -> MachineObjects:
    objects = MachineObjects(faults, version=tree.root.attributes.get("version", "1"))
    objects.read(tree.root)
    if not objects.counts["Machine"]:
        raise InputFileError(source, "holds no object of type Machine", place=f"line {tree.root.line}")
    return objects


def _machine(objects: MachineObjects, node: str) -> Machine:
    models = {socket.model for socket in objects.sockets.values()}
    indices = [gpu for gpu in objects.nvml_gpus() if gpu is not None]
    return Machine(
        node=node,
        cpu_model=models.pop() if len(models) == 1 else None,
        sockets=tuple(each.socket for each in objects.sockets.values()),
        numa=tuple(objects.numa_nodes()),
        pci=objects.pci,
        nvml_gpus=tuple(indices) or None,
        cards={
            address: NvidiaCard(model=details.gpu_model, uuid=details.gpu_uuid)
            for address, details in objects.details.items()
        },
        interfaces=tuple(objects.interfaces.values()),
        rdma=tuple(objects.rdma),
    )


def _facts(objects: MachineObjects) -> dict[str, str | int | float | bool | None]:
    facts: dict[str, str | int | float | bool | None] = {
        fact: objects.infos[name].strip()
        for name, fact in _FACTS.items()
        if objects.infos.get(name, "").strip()
    }
    facts["hwloc_xml_version"] = objects.version
    for kind, fact in (
        ("Core", "num_cores"),
        ("PU", "num_cpus"),
        ("Bridge", "hwloc_bridges"),
        ("PCIDev", "hwloc_pci_devices"),
        ("OSDev", "hwloc_os_devices"),
    ):
        if objects.counts[kind]:
            facts[fact] = objects.counts[kind]
    return facts


# -- what hwloc says beyond sysfs


def _completed(graph: _Graph, objects: MachineObjects, machine: Machine, faults: Faults) -> _Graph:
    """With names by the list of PCI identifiers, AMD's numbers, and the links' rates."""
    vertices = tuple(
        _with_details(vertex, objects.details.get(vertex.pci_address or "")) for vertex in graph.vertices
    )
    by_id = {vertex.id: vertex for vertex in vertices}
    links = []
    for link in graph.links:
        speed = _speed_of(link, by_id, objects, machine, faults) if link.kind == "pcie" else None
        links.append(link if speed is None else replace(link, bandwidth_bytes_per_s=speed * 1e9))
    return _Graph(vertices, tuple(links))


def _with_details(vertex: Vertex, details: PciDetails | None) -> Vertex:
    if details is None:
        return vertex
    attributes = dict(vertex.attributes)
    if details.speed is not None:
        attributes[SPEED] = details.speed
    model = details.gpu_model if vertex.kind == "gpu" else None
    if model is None and details.pci_name is not None:
        attributes[PCI_NAME] = details.pci_name
        model = details.pci_name
    return replace(
        vertex,
        model=model or vertex.model,
        index=details.rsmi if vertex.kind == "gpu" and vertex.index is None else vertex.index,
        memory_bytes=vertex.memory_bytes or details.gpu_memory_bytes,
        attributes=attributes,
    )


def _speed_of(
    link: Link, by_id: dict[str, Vertex], objects: MachineObjects, machine: Machine, faults: Faults
) -> float | None:
    """GB/s of a PCI link: that of its lower end."""
    src, dst = by_id[link.src], by_id[link.dst]
    lower = dst if _is_above(src, dst, machine) else src
    function = machine.pci.get(lower.pci_address or "")
    details = objects.details.get(lower.pci_address or "")
    if (
        function is None
        or details is None
        or details.speed is None
        or (function.is_bridge and not function.parents)
    ):
        return None
    speed = float(details.speed)
    if lower.kind == "gpu" and not _is_third_generation(speed):
        faults.add(
            "rates of GPUs' links left out: at rest, a GPU slows its link down to what the file says",
            f"{lower.pci_address} ({speed:g} GB/s)",
        )
        return None
    return speed or None


def _is_above(one: Vertex, other: Vertex, machine: Machine) -> bool:
    if one.kind in ("pcie-root", "numa", "cpu"):
        return True
    function = machine.pci.get(other.pci_address or "")
    return function is not None and one.pci_address in function.parents


def _is_third_generation(gb_per_s: float) -> bool:
    """Of 3 to 5: their line code shows in the figure. The first two send 8 of 10 bits, these 128 of 130."""
    lanes = gb_per_s / (128 / 130)
    return lanes > 0.5 and abs(lanes - round(lanes)) < 0.001


READER = Reader("hwloc-xml", "hwloc XML (lstopo)", _recognise, read, whole=True)

"""A node's topology as XML that NCCL's own parser takes (``NCCL_TOPO_FILE``).

Theory of operation. NCCL's parser knows less than XML: no declaration, no entities, no tabs; attributes of
an element on one line, one space apart, at most 16, of at most 255 characters. What must be there is the tree
of bus ids below ``cpu`` elements; NCCL fills in the rest at run time and takes what is stated for true. So
only what the topology knows is stated: ``gpu`` where NVLinks or NCCL's own attributes are known, ``net``
where a name is. Links that were inferred are left for NCCL to find.

Source: NCCL, src/graph/xml.cc (parser, limits), topo.cc (what is read), 2.30.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from topotune.errors import UsageError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.nccl_attributes import (
    ELSEWHERE,
    PREFIX,
    attributes_to_write,
    class_of,
    in_order,
)
from topotune.topology.model import Link, Topology, Vertex

MAX_ATTRIBUTES: Final = 16
MAX_VALUE: Final = 255
MAX_CHILDREN: Final = 640
MAX_ELEMENTS: Final = 256
"""Of a file that every NCCL takes; more only with NCCL_TOPO_XML_MAX_NODES, which newer ones have."""

_UNNAMED_SWITCH = "fffffff:ffff:ff"
_NOT_NCCLS = frozenset("\"'<>&\t")
_RUNNING = ("up", "active", "linkup")
_PCI_KINDS = ("gpu", "pcie-switch", "pcie-root", "nvswitch", "pci-device", "nic")
_KEPT = f"{PREFIX}.nvlink."


@dataclass(slots=True)
class _Element:
    name: str
    attributes: dict[str, str]
    children: list["_Element"] = field(default_factory=list)


def write_nccl_xml(topology: Topology, node: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The text of the file, and what NCCL will have to find for itself.

    Args:
        topology: of one node, or of several of which ``node`` names one.
        node: which.

    Raises:
        UsageError: several nodes and none chosen, no such node, a GPU without a PCI address or a place, no
            PCI device at all, or a value that NCCL's parser cannot take.
    """
    return _Writing(topology, _chosen(topology, node)).text()


def _chosen(topology: Topology, node: str | None) -> str:
    names = list(dict.fromkeys(vertex.node for vertex in topology.vertices if vertex.node is not None))
    if node is not None:
        if node not in names:
            raise UsageError(f"--node {node}: no such node", hint=f"there are: {', '.join(names[:10])}")
        return node
    if len(names) != 1:
        raise UsageError(
            f"the topology has {len(names)} nodes; NCCL's file describes one",
            hint=f"--node {names[0]}" if names else "give a topology with GPUs",
        )
    return names[0]


class _Writing:
    """One node while it is written."""

    def __init__(self, topology: Topology, node: str) -> None:
        self._faults = Faults()
        self._version = topology.source.facts.get("nccl_xml_version")
        self._all = {vertex.id: vertex for vertex in topology.vertices}
        self._vertices = {vertex.id: vertex for vertex in topology.vertices if vertex.node == node}
        self._below: dict[str, dict[str, None]] = {here: {} for here in self._vertices}
        self._nvlinks: dict[str, list[Link]] = {}
        self._crosslinks: dict[str, list[Link]] = {}
        for link in topology.links:
            if link.src not in self._vertices:
                continue
            if link.kind == "nvlink":
                self._nvlinks.setdefault(link.src, []).append(link)
            elif f"{PREFIX}.pcilink" in link.attributes:
                self._crosslinks.setdefault(link.src, []).append(link)
            elif link.kind == "pcie" and link.dst in self._vertices:
                self._below[link.src][link.dst] = self._below[link.dst][link.src] = None
        self._seen: set[str] = set()
        self._num_elements = 0

    def text(self) -> tuple[str, tuple[str, ...]]:
        """The whole file, and warnings."""
        self._check_gpus()
        version = str(self._version) if self._version in ("1", "2") else "1"
        root = _Element("system", {"version": version})
        homes = {here: vertex for here, vertex in self._vertices.items() if vertex.kind == "numa"}
        elements: dict[str, _Element] = {}
        for here, vertex in homes.items():
            elements[here] = _Element("cpu", attributes_to_write("cpu", vertex))
        for here, element in elements.items():
            self._seen.add(here)
            element.children += self._children(here)
        self._unplaced(root, homes, elements)
        root.children = [*elements.values(), *root.children]
        if not any(child.children for child in root.children):
            raise UsageError(
                "the topology has no PCI device, of which NCCL's file is made",
                hint="join a file that has the bus ids: nvidia-smi -q, NCCL_TOPO_DUMP_FILE, topotune probe",
            )
        lines = list(self._lines(root, 0))
        if self._num_elements > MAX_ELEMENTS:
            self._faults.add(
                f"{self._num_elements} elements; before 2.20 NCCL takes {MAX_ELEMENTS}, "
                f"later ones with NCCL_TOPO_XML_MAX_NODES={self._num_elements}"
            )
        return "\n".join(lines) + "\n", self._faults.warnings()

    def _check_gpus(self) -> None:
        for vertex in self._vertices.values():
            if vertex.kind != "gpu":
                continue
            label = f"GPU {vertex.index}" if vertex.index is not None else vertex.id
            if vertex.pci_address is None:
                raise UsageError(
                    f"{label} has no PCI address, by which NCCL knows it",
                    hint="join nvidia-smi -q, which has it: topotune import FILE q.txt",
                )
            if not self._below[vertex.id] and vertex.numa is None:
                raise UsageError(
                    f"{label}: neither its place in the PCI tree nor its NUMA node is known",
                    hint="join a file that has them: NCCL_TOPO_DUMP_FILE, topotune probe, nvidia-smi topo -m",
                )

    # -- the tree

    def _children(self, here: str) -> list[_Element]:
        """Elements of what hangs below a vertex and was not met before; host bridges are not elements."""
        result: list[_Element] = []
        cards: dict[str, _Element] = {}
        for there in self._in_order(self._below[here]):
            if there in self._seen:
                continue
            self._seen.add(there)
            vertex = self._vertices[there]
            if vertex.kind == "pcie-root":
                result += self._children(there)
            elif vertex.kind == "nic":
                result += self._nic(vertex, self._vertices[here], cards)
            elif vertex.pci_address is not None:
                result.append(self._pci(vertex))
        return result

    def _in_order(self, ids: Iterable[str]) -> list[str]:
        wanted = set(ids)
        if len(wanted) == 1:
            return list(wanted)
        return [here for here in self._vertices if here in wanted]

    def _pci(self, vertex: Vertex) -> _Element:
        element = _Element("pci", attributes_to_write("pci", vertex))
        if vertex.kind == "gpu":
            gpu = self._gpu(vertex)
            if gpu is not None:
                element.children.append(gpu)
        for link in self._crosslinks.get(vertex.id, ()):
            target = self._vertices[link.dst].pci_address if link.dst in self._vertices else None
            if target is not None:
                element.children.append(_Element("pcilink", {"target": target}))
        element.children += self._children(vertex.id)
        return element

    def _nic(self, vertex: Vertex, above: Vertex, cards: dict[str, _Element]) -> Iterator[_Element]:
        """A port: a ``net``, in its card's ``nic``; cards with several ports have one."""
        net = self._net(vertex)
        if vertex.pci_address is None or vertex.pci_address == above.pci_address:
            if net is not None:
                if "" not in cards:
                    cards[""] = _Element("nic", {})
                    yield cards[""]
                cards[""].children.append(net)
            return
        card = cards.get(vertex.pci_address)
        if card is None:
            card = cards[vertex.pci_address] = _Element("pci", attributes_to_write("pci", vertex))
            yield card
        if net is not None:
            if not card.children:
                card.children.append(_Element("nic", {}))
            card.children[0].children.append(net)

    def _net(self, vertex: Vertex) -> _Element | None:
        imported = f"{PREFIX}.net.name" in vertex.attributes
        if not imported and vertex.rdma_device is None:
            return None
        attributes = attributes_to_write("net", vertex)
        if not imported and (vertex.state or "").split(" ")[-1].lower() not in _RUNNING:
            attributes.pop("speed", None)  # of a port that is down it is a placeholder
        return _Element("net", attributes)

    def _gpu(self, vertex: Vertex) -> _Element | None:
        links = [
            element
            for link in self._nvlinks.get(vertex.id, ())
            if link.origin != "inferred" and (element := self._nvlink(link)) is not None
        ]
        links += _elsewhere(vertex)
        attributes = attributes_to_write("gpu", vertex)
        if not links and not any(key.startswith(f"{PREFIX}.gpu.") for key in vertex.attributes):
            return None
        return _Element("gpu", attributes, links)

    def _nvlink(self, link: Link) -> _Element | None:
        target = self._all[link.dst]
        if link.lanes is None:
            self._faults.add("left out, NVLinks whose number is not known", f"{link.src} to {link.dst}")
            return None
        c2c = {
            key.removeprefix(f"{PREFIX}.c2c."): value
            for key, value in link.attributes.items()
            if key.startswith(f"{PREFIX}.c2c.")
        }
        if c2c:
            return _Element("c2c", in_order("c2c", {**c2c, "count": str(link.lanes)}))
        address = target.pci_address or link.attributes.get(f"{_KEPT}target")
        if address is None:
            if target.kind != "nvswitch":
                self._faults.add("left out, NVLinks to what has no PCI address", f"{link.src} to {link.dst}")
                return None
            address = _UNNAMED_SWITCH
        tclass = link.attributes.get(f"{_KEPT}tclass", class_of(target) or "")
        name = link.attributes.get(f"{_KEPT}element", "nvlink")
        return _Element(name, {"target": address, "count": str(link.lanes), "tclass": tclass})

    def _unplaced(self, root: _Element, homes: dict[str, Vertex], elements: dict[str, _Element]) -> None:
        """What no NUMA node leads to: below the NUMA node that it names itself, or one of number -1."""
        by_numa = {vertex.index: elements[here] for here, vertex in homes.items()}
        roots_first = sorted(self._vertices.values(), key=lambda vertex: vertex.kind != "pcie-root")
        for vertex in roots_first:
            if vertex.id in self._seen or vertex.kind not in _PCI_KINDS:
                continue
            if vertex.kind == "nvswitch" and not self._below[vertex.id]:
                continue  # known as the far end of NVLinks, which name it
            self._seen.add(vertex.id)
            if vertex.kind == "pcie-root":
                found = self._children(vertex.id)
            elif vertex.kind == "nic":
                found = list(self._nic(vertex, vertex, {})) if vertex.pci_address is None else []
                found = found or list(self._nic(vertex, Vertex(id="", kind="numa"), {}))
            elif vertex.pci_address is not None:
                found = [self._pci(vertex)]
            else:
                found = []
            if not found:
                continue
            if not self._below[vertex.id]:
                self._faults.add(
                    "place in the PCI tree not known, written straight below the processor",
                    vertex.name or vertex.pci_address or vertex.id,
                )
            cpu = by_numa.get(vertex.numa)
            if cpu is None:
                numaid = "-1" if vertex.numa is None else str(vertex.numa)
                cpu = by_numa[vertex.numa] = _Element("cpu", {"numaid": numaid})
                root.children.append(cpu)
            cpu.children += found

    # -- text

    def _lines(self, element: _Element, depth: int) -> Iterator[str]:
        self._num_elements += 1
        attributes = dict(element.attributes)
        while len(attributes) > MAX_ATTRIBUTES:
            name, _ = attributes.popitem()
            self._faults.add(f"left out, attributes beyond NCCL's {MAX_ATTRIBUTES} of an element", name)
        for name, value in attributes.items():
            if len(value) > MAX_VALUE or not _NOT_NCCLS.isdisjoint(value) or not value.isprintable():
                raise UsageError(
                    f"{name}={shown(value)}: NCCL's parser takes up to {MAX_VALUE} characters, "
                    "no quotes, angle brackets or ampersands"
                )
        if len(element.children) > MAX_CHILDREN:
            raise UsageError(f"<{element.name}> has {len(element.children)} parts, NCCL takes {MAX_CHILDREN}")
        words = " ".join([element.name, *(f'{name}="{value}"' for name, value in attributes.items())])
        start = f"{'  ' * depth}<{words}"
        if not element.children:
            yield f"{start}/>"
            return
        yield f"{start}>"
        for child in element.children:
            yield from self._lines(child, depth + 1)
        yield f"{'  ' * depth}</{element.name}>"


def _elsewhere(vertex: Vertex) -> Iterator[_Element]:
    """NVLinks that lead out of the file, as they stood in it."""
    for entry in vertex.attributes.get(ELSEWHERE, "").split(";"):
        words = [word if word != "-" else "" for word in entry.split(" ")]
        if len(words) == 4:
            name, target, count, tclass = words
            yield _Element(name, {"target": target, "count": count, "tclass": tclass})

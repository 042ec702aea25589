"""NCCL's topology XML (``NCCL_TOPO_FILE``, ``NCCL_TOPO_DUMP_FILE``) and RCCL's variant, read.

| element | becomes |
| --- | --- |
| ``cpu`` | ``numa``: NCCL's CPU is a NUMA node |
| ``pci`` | by class: ``pcie-switch``, ``gpu``, ``nic``, ``nvswitch``; ``pci-device`` where none is stated |
| ``net`` | ``nic``: one for each port, at its card's place |
| ``nvlink``, ``xgmi``, ``c2c`` | a link; to an NVSwitch that the file only names, with a vertex for it |

Link rates in such files are what both ends can do (NCCL reads ``max_link_speed``), not what runs now, and in
files written by hand what NCCL shall assume. Files that a cloud ships leave out ``gpu``, ``nvlink`` and
``net``, which NCCL then finds at run time; their absence says nothing.

Source: NCCL, src/graph/xml.cc and topo.cc (2.30); RCCL, the same files, for ``xgmi`` and version 2.
"""

import re
from collections import Counter
from dataclasses import replace
from typing import Final

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.probe.kernel_text import format_cpulist
from topotune.topology.formats.nccl_attributes import (
    MBIT,
    PREFIX,
    kind_of_class,
    net_mbit_per_s,
    stated_by_fields,
)
from topotune.topology.formats.nccl_xml_links import LINK_ELEMENTS, Links
from topotune.topology.formats.reading import THIS_NODE, Reader, Reading
from topotune.topology.formats.spelling import (
    cpus_of_mask,
    link_speed_gt_per_s,
    link_width,
    pci_address,
    whole,
)
from topotune.topology.formats.xml_tree import Element, parse_xml
from topotune.topology.model import PcieLink, Vertex, VertexKind

_ROOT = re.compile(r"<(system|graphs|groups?)(?=[\s/>])")
MAX_ELEMENTS: Final = 20_000
"""Of a file: a node has a few hundred, the dump of an NVLink domain some thousands."""

_VERSIONS = ("1", "2")
_MARKS = (("gpu", "dev"), ("net", "name"))  # kept in any case: the file had such an element
# Emulated switches of virtual machines (QEMU's TI XIO3130) claim 2.5 GT/s x1 and pass all that there is.
_EMULATED = {("0x104c", "0x8232"), ("0x104c", "0x8233")}


def _recognise(text: str) -> bool:
    start = _start(text)
    return start is not None and ("<cpu" in text or "version=" in text[start : start + 400])


def read(text: str, source: str) -> Reading:
    """A topology XML → what it proves.

    Raises:
        InputFileError: no such file, another of NCCL's kinds of XML, an unknown version, several machines'
            files in one, or as `parse_xml`.
    """
    start = _start(text)
    if start is None:
        raise InputFileError(source, "holds no <system> element, which NCCL's topology files start with")
    end = text.rfind("</system>")
    body = text[start:] if end < start else text[start : end + len("</system>")]
    first_line = text.count("\n", 0, start) + 1
    found = _ROOT.match(body)
    assert found is not None
    if found[1] != "system":
        raise _another_kind(source, found[1], first_line)
    if "</system>" in body[: -len("</system>")]:
        raise InputFileError(
            source,
            "holds more than one <system>",
            place=f"line {first_line}",
            hint="give each machine's file on its own, with its name: import a=FILE b=FILE",
        )
    tree = parse_xml(body, source, first_line=first_line, max_elements=MAX_ELEMENTS)
    version = tree.root.attributes.get("version")
    if version is not None and version not in _VERSIONS:
        raise InputFileError(
            source,
            f"is topology XML of version {shown(version)}; NCCL's is 1 and RCCL's 2",
            place=f"line {tree.root.line}",
        )
    document = _Document(source)
    if version is None:
        document.faults.add("<system> has no version, without which NCCL refuses the file")
    if tree.cut_at_line is not None:
        document.faults.add(f"the file ends early, in line {tree.cut_at_line}; what stands before was read")
    document.read(tree.root)
    return document.reading(version)


def _start(text: str) -> int | None:
    """Where the outermost element of a kind we know starts, comments left aside."""
    at = 0
    while (match := _ROOT.search(text, at)) is not None:
        comment = text.find("<!--", at, match.start())
        if comment < 0:
            return match.start()
        end = text.find("-->", comment)
        if end < 0:
            return None
        at = end + 3
    return None


def _another_kind(source: str, name: str, line: int) -> InputFileError:
    what = (
        "is an NCCL graph file (NCCL_GRAPH_FILE): the rings and trees that NCCL built, not the machine"
        if name == "graphs"
        else f"is a catalogue of several topologies (<{name}>), not the topology of one machine"
    )
    return InputFileError(
        source, what, place=f"line {line}", hint="NCCL_TOPO_DUMP_FILE=topo.xml makes NCCL write the topology"
    )


class _Document:
    """One file while it is read."""

    def __init__(self, source: str) -> None:
        self.faults = Faults()
        self._source = source
        self._vertices: dict[str, Vertex] = {}
        self._at_address: dict[tuple[str, str], str] = {}  # node, address -> id
        self._nvlinks: list[tuple[str, Element]] = []
        self._crosslinks: list[tuple[str, Element]] = []
        self._ranks: dict[int, str] = {}
        self._repeats: Counter[str] = Counter()
        self._links = Links(self._vertices, self._at_address, self.faults)

    def read(self, root: Element) -> None:
        cpus = [child for child in root.children if child.name == "cpu"]
        self._note_unknown(root, ("cpu",))
        hosts = {cpu.attributes.get("host_hash", THIS_NODE) for cpu in cpus}
        self._links.many_hosts = len(hosts) > 1
        for cpu in cpus:
            self._cpu(cpu, cpu.attributes.get("host_hash", "unnamed") if len(hosts) > 1 else THIS_NODE)
        for gpu, element in self._nvlinks:
            self._links.nvlink(gpu, element)
        for switch, element in self._crosslinks:
            self._links.crosslink(switch, element)
        self._links.note_asymmetry()
        self._note_missing()

    def reading(self, version: str | None) -> Reading:
        """All that was gathered."""
        complete = sorted(self._ranks) == list(range(len(self._ranks)))
        return Reading(
            vertices=tuple(self._vertices.values()),
            links=tuple(self._links.links.values()),
            ranks=tuple(self._ranks[rank] for rank in sorted(self._ranks)) if complete else (),
            facts={} if version is None else {"nccl_xml_version": version},
            warnings=self.faults.warnings(),
        )

    # -- vertices

    def _cpu(self, element: Element, node: str) -> None:
        stated = element.attributes
        index = whole(stated.get("numaid", ""))
        mask = stated.get("affinity")
        cpus = None if mask is None else cpus_of_mask(mask)
        if mask is not None and cpus is None:
            self.faults.add("left out, no mask of CPUs", f"line {element.line} says {shown(mask)}")
        here = self._add(
            "numa",
            str(stated.get("numaid", "-1")),
            Vertex(
                id="",
                kind="numa",
                node=node,
                index=index,
                cpus=None if cpus is None else format_cpulist(cpus),
            ),
            element,
        )
        self._below(element, here, here, index, node)
        self._note_unknown(element, ("pci", "nic"))

    def _below(self, element: Element, here: str, numa_id: str, numa: int | None, node: str) -> None:
        for child in element.children:
            if child.name == "pci":
                self._pci(child, here, numa_id, numa, node)
            elif child.name == "nic":
                for net in child.children:
                    if net.name == "net":
                        self._net(net, None, here, numa, node)

    def _pci(self, element: Element, above: str, numa_id: str, numa: int | None, node: str) -> None:
        stated = element.attributes
        address = pci_address(stated.get("busid", ""))
        if address is None or (node, address) in self._at_address:
            problem = "no bus id" if address is None else "a bus id that stands twice"
            value = shown(stated.get("busid", ""))
            self.faults.add(f"left out, a PCI device with {problem}", f"line {element.line}: {value}")
            self._below(element, above, numa_id, numa, node)
            return
        kind = self._kind(element)
        vertex = Vertex(
            id="",
            kind=kind,
            node=node,
            pci_address=address,
            model=_model(stated),
            numa=numa,
            pcie=self._pcie(element),
            link_layer="InfiniBand" if stated.get("class", "").startswith("0x0207") else None,
        )
        nets = [
            net for nic in element.children if nic.name == "nic" for net in nic.children if net.name == "net"
        ]
        gpu = next((child for child in element.children if child.name == "gpu"), None)
        self._note_unknown(element, ("pci", "nic", "gpu", "pcilink"))
        if kind == "nic" and nets:
            self._at_address[node, address] = self._net(nets[0], (element, vertex), above, numa, node)
            for net in nets[1:]:
                self._net(net, (element, vertex), above, numa, node)
            return
        here = self._add(kind, address, vertex, element, gpu)
        self._at_address[node, address] = here
        self._links.attach(here, above, vertex.pcie)
        if gpu is not None and kind == "gpu":
            self._gpu(here, gpu)
        for child in element.children:
            if child.name == "pcilink":
                self._crosslinks.append((here, child))
        for net in nets:
            self._net(net, None, here, numa, node)
        for child in element.children:
            if child.name == "pci":
                self._pci(child, here, numa_id, numa, node)

    def _kind(self, element: Element) -> VertexKind:
        """By class, as NCCL; what has devices below it is a switch whatever it is called."""
        below = {child.name for child in element.children}
        if "gpu" in below:
            return "gpu"
        if "pci" in below:
            return "pcie-switch"
        stated = kind_of_class(element.attributes.get("class", ""))
        return stated or ("nic" if "nic" in below else "pci-device")

    def _pcie(self, element: Element) -> PcieLink | None:
        stated = element.attributes
        if (stated.get("vendor"), stated.get("device")) in _EMULATED:
            self.faults.add(
                "an emulated switch of a virtual machine; its link rate says nothing", stated.get("busid")
            )
            return None
        speed = link_speed_gt_per_s(stated.get("link_speed", ""))
        width = link_width(stated.get("link_width", ""))
        if stated.get("link_speed") and speed is None:
            self.faults.add(
                "left out, no PCI Express rate", f"line {element.line} says {shown(stated['link_speed'])}"
            )
        if speed is None and width is None:
            return None
        return PcieLink(max_speed_gt_per_s=speed, max_width=width)

    def _gpu(self, here: str, element: Element) -> None:
        index = whole(element.attributes.get("dev", ""))
        if index is None:
            self.faults.add("left out, no GPU number", f"line {element.line}: dev")
        vertex = replace(self._vertices[here], index=index)
        self._vertices[here] = self._keep(vertex, "gpu", element)
        rank = whole(element.attributes.get("rank", ""))
        if rank is not None:
            self._ranks[rank] = here
        self._nvlinks += [(here, child) for child in element.children if child.name in LINK_ELEMENTS]
        self._note_unknown(element, LINK_ELEMENTS)

    def _net(
        self, net: Element, card: tuple[Element, Vertex] | None, above: str, numa: int | None, node: str
    ) -> str:
        """A port, on a card of its own, or at the place of what is above it."""
        stated = net.attributes
        name = stated.get("name") or None
        speed = net_mbit_per_s(stated.get("speed", ""))
        if speed is None and whole(stated.get("speed", "")):
            self.faults.add(
                "left out, a rate in Mbit/s that no port has",
                f"{name} (line {net.line}): {stated['speed'][:40]}",
            )
        element, at = card if card else (None, Vertex(id="", kind="nic", node=node, numa=numa))
        switch = self._vertices.get(above)
        if card is None and switch is not None and switch.kind != "numa":
            at = replace(at, pci_address=switch.pci_address)
        vertex = replace(
            at,
            index=whole(stated.get("port", "")),
            name=name,
            speed=None if speed is None else speed * MBIT,
            guid=stated.get("guid") or None,
        )
        here = self._add("nic", name or at.pci_address or "net", vertex, element)
        self._vertices[here] = self._keep(self._vertices[here], "net", net)
        self._links.attach(here, above, at.pcie)
        return here

    # -- bookkeeping

    def _add(
        self, kind: VertexKind, key: str, vertex: Vertex, element: Element | None, gpu: Element | None = None
    ) -> str:
        here = base = f"{vertex.node}/{kind}/{key}"
        while here in self._vertices:
            self._repeats[base] += 1
            here = f"{base}#{self._repeats[base] + 1}"
        if gpu is not None and kind != "gpu":
            self.faults.add("left out, <gpu> in a device that is none", f"line {gpu.line}")
        vertex = replace(vertex, id=here)
        name = "cpu" if kind == "numa" else "pci"
        self._vertices[here] = vertex if element is None else self._keep(vertex, name, element)
        return here

    def _keep(self, vertex: Vertex, name: str, element: Element) -> Vertex:
        """With those attributes that its fields do not give again."""
        given = stated_by_fields(name, vertex)
        if name == "pci" and given["busid"] != element.attributes["busid"]:
            self.faults.add("bus ids that sysfs, and so NCCL, spells differently", given["busid"])
        kept = {
            f"{PREFIX}.{name}.{key}": value
            for key, value in element.attributes.items()
            if (given.get(key) != value and key != "busid") or (name, key) in _MARKS
        }
        if name == "pci" and "class" in given and "class" not in element.attributes:
            kept[f"{PREFIX}.pci.class"] = ""
        return replace(vertex, attributes={**vertex.attributes, **kept})

    def _note_unknown(self, element: Element, known: tuple[str, ...]) -> None:
        for child in element.children:
            if child.name not in known:
                self.faults.add(
                    "left out, elements that NCCL does not read", f"<{child.name[:40]}> in line {child.line}"
                )

    def _note_missing(self) -> None:
        kinds = Counter(vertex.kind for vertex in self._vertices.values())
        gpus = [vertex for vertex in self._vertices.values() if vertex.kind == "gpu"]
        if gpus and not any(f"{PREFIX}.gpu.dev" in gpu.attributes for gpu in gpus):
            self.faults.add("no GPU numbers and NVLinks in the file; NCCL finds them at run time")
        elif gpus and not self._nvlinks:
            self.faults.add("no NVLink in the file, which is no proof that there is none")
        if kinds["pci-device"]:
            below = Counter(each.numa for each in self._vertices.values() if each.kind == "pci-device")
            where = ", ".join(
                f"{number} on NUMA node {'?' if numa is None else numa}" for numa, number in below.items()
            )
            self.faults.add(f"PCI devices of no stated class, which may be anything: {where}")
        if not self._vertices:
            raise InputFileError(self._source, "holds no <cpu>, without which there is no topology")


def _model(stated: dict[str, str]) -> str | None:
    """``vendor:device``; None where the file states neither."""
    parts = [stated.get(name, "").lower().removeprefix("0x") for name in ("vendor", "device")]
    return ":".join(parts) if all(re.fullmatch("[0-9a-f]{4}", part) for part in parts) else None


READER = Reader("nccl-xml", "NCCL or RCCL topology XML", _recognise, read, whole=True)

"""The links of an NCCL topology XML: the PCI tree's, NVLink, xGMI, C2C, and switches joined crosswise."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from topotune.probe.faults import Faults
from topotune.topology.formats.nccl_attributes import ELSEWHERE, PREFIX, class_of
from topotune.topology.formats.spelling import pci_address, whole
from topotune.topology.formats.xml_tree import MAX_VALUE, Element
from topotune.topology.model import Link, PcieLink, Vertex
from topotune.topology.rates import nvlink_bandwidth_of_sm, pcie_bandwidth_bytes_per_s

LINK_ELEMENTS: Final = ("nvlink", "xgmi", "c2c")

_UNNAMED_SWITCH = re.compile(r"f{5,8}:f{2,4}:ff?(?:\.0)?", re.IGNORECASE)


class Links:
    """The links of one file, as they are gathered.

    Args:
        vertices: the file's, by id; GPUs take what no link can hold, and switches that are only named are
            added.
        at_address: node and PCI address → id.
        faults: takes what had to be left out.
    """

    def __init__(
        self, vertices: dict[str, Vertex], at_address: Mapping[tuple[str, str], str], faults: Faults
    ) -> None:
        self.links: dict[tuple[str, str, str], Link] = {}
        self.many_hosts = False
        self._vertices = vertices
        self._at_address = at_address
        self._faults = faults

    def nvlink(self, gpu_id: str, element: Element) -> None:
        """An element of a GPU that leads to another device."""
        gpu = self._vertices[gpu_id]
        stated = element.attributes
        count = whole(stated.get("count", ""))
        if element.name == "c2c":
            self._c2c(gpu_id, element, count)
            return
        there = self._nvlink_target(gpu, element)
        if not count or there is None or there == gpu_id:
            if not count:
                problem = "no count"
            elif there == gpu_id:
                problem = "from a GPU to itself"
            else:
                problem = "to a device that is not in the file (which then shows a part of the machine)"
            self._faults.add(
                f"left out, an NVLink {problem}", f"line {element.line}: {stated.get('target', '?')[:40]}"
            )
            words = (element.name, *(stated.get(name, "") for name in ("target", "count", "tclass")))
            more = " ".join(word.replace(" ", "").replace(";", "") or "-" for word in words)
            kept = gpu.attributes.get(ELSEWHERE)
            longer = f"{kept};{more}" if kept else more
            if len(longer) <= MAX_VALUE:
                self._vertices[gpu_id] = replace(gpu, attributes={**gpu.attributes, ELSEWHERE: longer})
            return
        target = self._vertices[there]
        attributes = {}
        if element.name != "nvlink":
            attributes[f"{PREFIX}.nvlink.element"] = element.name
        if target.pci_address is None:
            attributes[f"{PREFIX}.nvlink.target"] = stated.get("target", "")
        if stated.get("tclass", "") != class_of(target):
            attributes[f"{PREFIX}.nvlink.tclass"] = stated.get("tclass", "")
        rate = nvlink_bandwidth_of_sm(self._sm(gpu)) if element.name == "nvlink" else None
        self._add_nvlink(gpu_id, there, count, rate, attributes)
        if target.kind != "gpu":
            # A switch has no element of its own; its side of the cable is the same cable.
            self._add_nvlink(there, gpu_id, count, rate, {})

    def _nvlink_target(self, gpu: Vertex, element: Element) -> str | None:
        text, tclass = element.attributes.get("target", ""), element.attributes.get("tclass", "").lower()
        address = pci_address(text)
        assert gpu.node is not None
        known = None if address is None else self._at_address.get((gpu.node, address))
        if known is not None:
            return known if self._vertices[known].kind in ("gpu", "nvswitch") else None
        unnamed = _UNNAMED_SWITCH.fullmatch(text) is not None
        if tclass.startswith("0x068001"):
            return next((link.dst for link in self.links.values() if self._is_numa_of(link, gpu)), None)
        if not unnamed and not tclass.startswith("0x0680"):
            return None
        if not unnamed and address is None:
            return None
        # The switch that several hosts of one dump share is named by none of them.
        node = None if unnamed and self.many_hosts else gpu.node
        key = "unnamed" if unnamed else address or ""
        here = f"{node or ''}/nvswitch/{key}"
        if here not in self._vertices:
            self._vertices[here] = Vertex(
                id=here, kind="nvswitch", node=node, pci_address=None if unnamed else address
            )
        return here

    def _is_numa_of(self, link: Link, gpu: Vertex) -> bool:
        return link.src == gpu.id and self._vertices[link.dst].kind == "numa"

    def _c2c(self, gpu_id: str, element: Element, count: int | None) -> None:
        """NVLink between a GPU and the processor beside it: ``bw`` in MB/s of each of ``count``."""
        gpu = self._vertices[gpu_id]
        numa = next((each for each in self._vertices.values() if _is_home(each, gpu)), None)
        rate = whole(element.attributes.get("bw", ""))
        if numa is None or not count:
            self._faults.add("left out, a C2C link without a count", f"line {element.line}")
            return
        kept = {
            f"{PREFIX}.c2c.{name}": value for name, value in element.attributes.items() if name != "count"
        }
        for src, dst in ((gpu_id, numa.id), (numa.id, gpu_id)):
            self._add_nvlink(src, dst, count, rate * 1e6 if rate else None, kept if src == gpu_id else {})

    def _add_nvlink(
        self, src: str, dst: str, count: int, rate: float | None, attributes: dict[str, str]
    ) -> None:
        before = self.links.get((src, dst, "nvlink"))
        lanes = count + (before.lanes or 0 if before else 0)
        self.links[src, dst, "nvlink"] = Link(
            src=src,
            dst=dst,
            kind="nvlink",
            lanes=lanes,
            bandwidth_bytes_per_s=None if rate is None else lanes * rate,
            origin="observed" if rate is None else "spec",
            attributes=attributes,
        )

    def crosslink(self, switch: str, element: Element) -> None:
        """Two switches that are joined beside the tree."""
        address = pci_address(element.attributes.get("target", ""))
        node = self._vertices[switch].node
        there = None if address is None or node is None else self._at_address.get((node, address))
        if there is None or there == switch or (switch, there, "pcie") in self.links:
            self._faults.add("left out, a link to a switch that is not in the file", f"line {element.line}")
            return
        self.links[switch, there, "pcie"] = Link(
            src=switch, dst=there, kind="pcie", attributes={f"{PREFIX}.pcilink": "peer"}
        )

    def attach(self, lower: str, upper: str, pcie: PcieLink | None) -> None:
        """The link above a device, both ways."""
        speed, width = (None, None) if pcie is None else (pcie.max_speed_gt_per_s, pcie.max_width)
        known = speed is not None and width is not None
        for src, dst in ((lower, upper), (upper, lower)):
            self.links[src, dst, "pcie"] = Link(
                src=src,
                dst=dst,
                kind="pcie",
                lanes=width,
                bandwidth_bytes_per_s=pcie_bandwidth_bytes_per_s(speed, width) if speed and width else None,
                origin="spec" if known else "observed",
            )

    def note_asymmetry(self) -> None:
        """Note GPUs that count the NVLinks between them differently."""
        for (src, dst, kind), link in self.links.items():
            both_gpus = self._vertices[src].kind == self._vertices[dst].kind == "gpu"
            if kind != "nvlink" or not both_gpus:
                continue
            back = self.links.get((dst, src, kind))
            if (back is None or back.lanes != link.lanes) and (src < dst or back is None):
                lanes = 0 if back is None else back.lanes
                self._faults.add(
                    "NVLinks of two GPUs do not agree",
                    f"{_address(self._vertices[src])} has {link.lanes} to {_address(self._vertices[dst])}, "
                    f"which has {lanes} back",
                )

    def _sm(self, gpu: Vertex) -> int | None:
        return whole(gpu.attributes.get(f"{PREFIX}.gpu.sm", ""), 10_000)


def _is_home(numa: Vertex, gpu: Vertex) -> bool:
    return numa.kind == "numa" and numa.node == gpu.node and numa.index == gpu.numa


def _address(vertex: Vertex) -> str:
    return vertex.pci_address or vertex.id

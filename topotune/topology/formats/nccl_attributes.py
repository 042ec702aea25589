"""What the elements of NCCL's topology XML say, beside what a vertex says of itself.

A vertex holds in its own fields what other parts of topotune use. What NCCL reads beyond that, or spells in
its own way, is kept in ``attributes`` as ``nccl.element.name``, and only that: an attribute which the fields
give again is not kept twice, so that a figure which somebody corrects in a topology is the one that is
written.

Source: NCCL, src/graph/xml.cc, xml.h and topo.cc (2.30): elements, attributes, prefixes of classes.
"""

from typing import Final

from topotune.probe.kernel_text import parse_cpulist
from topotune.topology.formats.spelling import (
    cpus_of_mask,
    link_speed_gt_per_s,
    link_width,
    mask_of_cpus,
)
from topotune.topology.model import Vertex, VertexKind

PREFIX: Final = "nccl"
ELSEWHERE: Final = f"{PREFIX}.gpu.nvlinks_elsewhere"
"""NVLinks of a GPU that lead to nothing in the file: ``element target count tclass``, joined by ``;``."""

MBIT: Final = 1e6
MAX_NET_MBIT_PER_S: Final = 3_200_000
"""More than any port that is built (1.6 Tbit/s in 2026): a slip of units."""

ORDER: Final = {
    "system": ("version", "name"),
    "cpu": ("host_hash", "numaid", "affinity", "arch", "vendor", "familyid", "modelid"),
    "pci": (
        "busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device",
        "link_speed", "link_width",
    ),
    "gpu": ("dev", "sm", "gcn", "arch", "rank", "gdr"),
    "nvlink": ("target", "count", "tclass"),
    "net": ("name", "dev", "latency", "speed", "port", "guid", "maxconn", "gdr"),
}  # fmt: skip
"""In which order attributes are written; others follow by name. NCCL finds them by name."""

_CLASS_OF_KIND: Final[dict[VertexKind, str]] = {
    "gpu": "0x030200",
    "nvswitch": "0x068000",
    "pcie-switch": "0x060400",
    "nic": "0x020000",
}
_AMD_GPU_CLASSES = ("0x1200", "0x0380")


def kind_of_class(pci_class: str) -> VertexKind | None:
    """What NCCL takes a PCI class for, by its prefix; None for a class that it does not name."""
    lower = pci_class.lower()
    if lower.startswith(("0x0604", "0x0801")):
        return "pcie-switch"
    if lower.startswith("0x0680"):
        return "nvswitch"
    if lower.startswith(("0x03", *_AMD_GPU_CLASSES)):
        return "gpu"
    if lower.startswith("0x02"):
        return "nic"
    return None


def class_of(vertex: Vertex) -> str | None:
    """The PCI class to write for a vertex: as it was read, else the usual one of its kind."""
    stated = vertex.attributes.get(f"{PREFIX}.pci.class")
    if stated is not None:
        return stated
    if vertex.kind == "nic" and vertex.link_layer == "InfiniBand":
        return "0x020700"
    return _CLASS_OF_KIND.get(vertex.kind)


def stated_by_fields(element: str, vertex: Vertex) -> dict[str, str]:
    """The attributes of an element that a vertex's own fields give."""
    found: dict[str, str | None] = {}
    match element:
        case "cpu":
            found["numaid"] = "-1" if vertex.index is None else str(vertex.index)
            found["affinity"] = mask_of_cpus(parse_cpulist(vertex.cpus)) if vertex.cpus else None
        case "pci":
            found["busid"] = vertex.pci_address
            found["class"] = class_of(vertex)
            if vertex.pcie is not None:
                found["link_speed"] = _format_speed(
                    vertex.pcie.max_speed_gt_per_s or vertex.pcie.speed_gt_per_s
                )
                width = vertex.pcie.max_width or vertex.pcie.width
                found["link_width"] = None if width is None else str(width)
        case "gpu":
            found["dev"] = None if vertex.index is None else str(vertex.index)
        case "net":
            found["name"] = vertex.rdma_device or vertex.name
            found["speed"] = None if vertex.speed is None else f"{vertex.speed / MBIT:.0f}"
            found["port"] = None if vertex.index is None else str(vertex.index)
            found["guid"] = vertex.guid
    return {name: value for name, value in found.items() if value is not None}


def attributes_to_write(element: str, vertex: Vertex) -> dict[str, str]:
    """All attributes of an element, in NCCL's order.

    A spelling that was kept stands while it still says what the field says.
    """
    stated = stated_by_fields(element, vertex)
    start = f"{PREFIX}.{element}."
    for key, text in vertex.attributes.items():
        if key.startswith(start) and key != ELSEWHERE:
            name = key.removeprefix(start)
            if name not in stated or _says(element, name, text) == _says(element, name, stated[name]):
                stated[name] = text
    if not stated.get("class", "0x"):
        del stated["class"]  # it was read without one
    return in_order(element, stated)


def in_order(element: str, attributes: dict[str, str]) -> dict[str, str]:
    """Attributes as NCCL writes them, others behind."""
    order = ORDER.get(element, ())
    known = {name: attributes[name] for name in order if name in attributes}
    return known | {name: attributes[name] for name in sorted(attributes) if name not in known}


def _says(element: str, name: str, text: str) -> object:
    """What a spelling means, where several mean the same."""
    match element, name:
        case "pci", "link_speed":
            return link_speed_gt_per_s(text)
        case "pci", "link_width":
            return link_width(text)
        case "cpu", "affinity":
            return cpus_of_mask(text)
        case "net", "speed":
            return net_mbit_per_s(text)
        case "pci", "class":
            return None  # the one that was read is `class_of`
        case _:
            return text


def net_mbit_per_s(text: str) -> float | None:
    """``"400000"`` → 400000.0; None for what is no rate that a port can have."""
    try:
        rate = float(text) if len(text) <= 30 else 0.0
    except ValueError:
        return None
    return rate if 0 < rate <= MAX_NET_MBIT_PER_S else None


def _format_speed(speed_gt_per_s: float | None) -> str | None:
    """As sysfs says it since Linux 4.13, which NCCL takes for every generation."""
    return None if speed_gt_per_s is None else f"{speed_gt_per_s:.1f} GT/s PCIe"

"""PCI functions of one machine, as ``lspci`` lists them → its graph.

The functions are made into what a live machine's sysfs gives, and the graph is built by the same rules
(`topotune.probe.graph`). What lspci does not say stays open: processors, which NUMA node a host bridge is on
where no function says, and of what is neither GPU, adapter, NVSwitch nor bridge, everything.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from topotune.errors import InputFileError
from topotune.probe.devices import Reading as Machine
from topotune.probe.faults import Faults
from topotune.probe.graph import build_graph
from topotune.probe.numa import NumaNode
from topotune.probe.pci import AMD, NVIDIA, PciFunction
from topotune.topology.formats.devices import PCI_NAME
from topotune.topology.formats.reading import THIS_NODE, Reading
from topotune.topology.model import PcieLink, Vertex

MAX_FUNCTIONS: Final = 16_384
MAX_DEPTH: Final = 32

_VENDOR = re.compile(
    r"(?:NVIDIA Corporation|Advanced Micro Devices, Inc\. \[AMD(?:/ATI)?\]|Mellanox Technologies"
    r"|Intel Corporation) (.+)"
)
PCI_IDS: Final = re.compile(r" \[([0-9a-f]{4}):([0-9a-f]{4})\]")
"""Vendor and device, as ``-nn`` puts them behind a name."""
_UNNAMED = re.compile(r"Device ([0-9a-f]{4})")
_VENDORS = (("NVIDIA", NVIDIA), ("Advanced Micro Devices", AMD), ("Mellanox", 0x15B3))


@dataclass(slots=True)
class ListedFunction:
    """One function while it is read.

    Attributes:
        pci_class: base class and sub-class; None where the listing does not tell.
        name: vendor and device in words.
        parents: bridges above it, the root port first; with ``host_bridge`` None, its place is not known.
    """

    address: str
    name: str = ""
    pci_class: int | None = None
    vendor: int | None = None
    device: int | None = None
    host_bridge: str | None = None
    parents: tuple[str, ...] = ()
    numa: int | None = None
    pcie: PcieLink = field(default_factory=PcieLink)

    def function(self) -> PciFunction:
        """As the probe has it."""
        return PciFunction(
            address=self.address,
            host_bridge=self.host_bridge,
            parents=self.parents,
            pci_class=self.pci_class,
            vendor=self.vendor,
            device=self.device,
            numa=self.numa,
            pcie=self.pcie,
        )


def check_number(functions: Sequence[ListedFunction], source: str) -> None:
    """Not more than a machine has.

    Raises:
        InputFileError: more than 16,384.
    """
    if len(functions) > MAX_FUNCTIONS:
        raise InputFileError(source, f"lists {len(functions)} PCI functions, more than {MAX_FUNCTIONS}")


def vendor_of(name: str) -> int | None:
    """The number of a vendor that matters here, by the start of a device's name."""
    return next((number for start, number in _VENDORS if name.startswith(start)), None)


def named_by(name: str, device: int | None) -> str:
    """``NVIDIA Corporation Device`` and 0x2330 → ``NVIDIA Corporation Device 2330``, as without ``-nn``."""
    return f"{name} {device:04x}" if device is not None and name.endswith(" Device") else name


def without_vendor(name: str) -> str:
    """``NVIDIA Corporation AD102GL [RTX 6000 Ada Generation]`` → ``AD102GL [RTX 6000 Ada Generation]``."""
    match = _VENDOR.match(name)
    return match[1] if match is not None else name


def reading_of(
    functions: Sequence[ListedFunction],
    faults: Faults,
    source: str,
    facts: dict[str, str | int | float | bool | None] | None = None,
) -> Reading:
    """All functions of a listing, by address.

    Raises:
        InputFileError: an address twice with different devices, more than 16,384 functions, or none that
            matters.
    """
    listed: dict[str, ListedFunction] = {}
    check_number(functions, source)
    for each in functions:
        before = listed.setdefault(each.address, each)
        if before is not each and before.name != each.name:
            raise InputFileError(
                source,
                f"shows {each.address} twice: {before.name[:60]!r}, {each.name[:60]!r}",
                hint="listings of two machines need a file each: import a=FILE b=FILE",
            )
    pci = {address: each.function() for address, each in sorted(listed.items())}
    relevant = {
        address: function
        for address, function in pci.items()
        if function.is_gpu or function.is_network or function.is_nvswitch or function.is_bridge
    }
    numa = sorted({function.numa for function in pci.values() if function.numa is not None})
    machine = Machine(
        node=THIS_NODE,
        cpu_model=None,
        sockets=(),
        numa=tuple(NumaNode(index=index, cpus=None, memory_bytes=None, distances={}) for index in numa),
        pci=relevant,
        nvml_gpus=None,
        cards={},
        interfaces=(),
        rdma=(),
    )
    vertices, links = build_graph(machine, faults)
    unknown = tuple(_unknown(each) for each in listed.values() if each.pci_class is None and _says_link(each))
    if not vertices and not unknown:
        raise InputFileError(source, "lists no GPU, network adapter, NVSwitch, and no link of a device")
    return Reading(
        vertices=(*(_named(vertex, listed) for vertex in vertices), *unknown),
        links=links,
        facts=facts or {},
        warnings=faults.warnings(),
    )


def _says_link(each: ListedFunction) -> bool:
    return each.pcie != PcieLink()


def _unknown(each: ListedFunction) -> Vertex:
    return Vertex(
        id=f"pci {each.address}",
        kind="pci-device",
        node=THIS_NODE,
        pci_address=each.address,
        numa=each.numa,
        pcie=each.pcie,
    )


def _named(vertex: Vertex, listed: dict[str, ListedFunction]) -> Vertex:
    each = listed.get(vertex.pci_address or "")
    if each is None or not each.name:
        return vertex
    name = without_vendor(each.name)
    unnamed = _UNNAMED.fullmatch(name)
    if unnamed is not None and each.vendor is not None:
        name = f"{each.vendor:04x}:{unnamed[1]}"
    layer = {0x0207: "InfiniBand"}.get(each.pci_class or 0) if vertex.kind == "nic" else None
    return replace(vertex, model=name, link_layer=layer, attributes={**vertex.attributes, PCI_NAME: name})


def with_ways(
    functions: Iterable[ListedFunction], buses: dict[str, tuple[int, int]], roots: set[str]
) -> None:
    """Each function's way up, by the buses behind bridges.

    Args:
        functions: to be given their ways.
        buses: of each bridge, by address, the first and the last bus behind it.
        roots: those of the bridges that are root ports: a way that does not end in one is not whole.
    """
    by_domain: dict[str, list[tuple[int, int, str]]] = {}
    for address, (first, last) in buses.items():
        by_domain.setdefault(address.partition(":")[0], []).append((first, last, address))
    for bridges in by_domain.values():
        bridges.sort(key=lambda bridge: (bridge[0], -bridge[1]))
    above: dict[tuple[str, int], tuple[str, ...]] = {}
    for function in functions:
        domain, bus, _ = function.address.split(":")
        key = (domain, int(bus, 16))
        if key not in above:
            around = (each for each in by_domain.get(domain, ()) if each[0] <= key[1] <= each[1])
            above[key] = tuple(address for _, _, address in around)[: MAX_DEPTH + 1]
        parents = tuple(address for address in above[key] if address != function.address)
        if not parents and function.address in roots:
            function.host_bridge = f"pci{domain}:{bus}"
        elif parents and parents[0] in roots and len(parents) <= MAX_DEPTH:
            function.host_bridge = f"pci{domain}:{parents[0].split(':')[1]}"
            function.parents = parents

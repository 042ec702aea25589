"""The PCI tree, from /sys/bus/pci/devices: where GPUs, network adapters and the bridges above them sit.

The kernel keeps one folder per function below its bridge
(``/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/…``), and the bus lists links to all of them, so the way
from the host bridge to a function is read off the path behind its link.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final

from topotune.probe.kernel_text import parse_hex, parse_index, parse_whole, says_unknown
from topotune.probe.tree import Tree
from topotune.topology.model import PcieLink
from topotune.topology.rates import PCIE_WIDTHS, pcie_generation

BUS: Final = "sys/bus/pci/devices"
NVIDIA: Final = 0x10DE
AMD: Final = 0x1002
_MAX_DEPTH = 32

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_NVML_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s(?: PCIe)?")

# PCI class codes (PCI-SIG, Code and ID Assignment), base class and sub-class.
_ETHERNET, _INFINIBAND, _OTHER_NETWORK = 0x0200, 0x0207, 0x0280
_VGA, _3D, _OTHER_DISPLAY, _ACCELERATOR = 0x0300, 0x0302, 0x0380, 0x1200
_PCI_BRIDGE, _OTHER_BRIDGE = 0x0604, 0x0680
# AMD's Instinct cards come as "other display controller" (MI100, MI200) and "processing accelerator" (MI300).
_GPU_CLASSES = {NVIDIA: {_VGA, _3D}, AMD: {_VGA, _3D, _OTHER_DISPLAY, _ACCELERATOR}}


@dataclass(frozen=True, kw_only=True, slots=True)
class PciFunction:
    """One function of a PCI device.

    Attributes:
        address: ``0000:17:00.0``.
        host_bridge: ``pci0000:15``, at the top of its way; None where the tree does not show it.
        parents: addresses of the bridges on the way, the root port first.
        pci_class: base class and sub-class, as 0x0302.
        vendor, device: identifiers.
        numa: of its NUMA node; None where the machine does not say.
        pcie: the link above it; the maxima are those of this end alone.
        memory_bytes: of an AMD GPU whose driver says so.
    """

    address: str
    host_bridge: str | None
    parents: tuple[str, ...]
    pci_class: int | None
    vendor: int | None
    device: int | None
    numa: int | None = None
    pcie: PcieLink = field(default_factory=PcieLink)
    memory_bytes: int | None = None

    @property
    def is_gpu(self) -> bool:
        """A GPU of NVIDIA or AMD."""
        return self.vendor is not None and self.pci_class in _GPU_CLASSES.get(self.vendor, ())

    @property
    def is_network(self) -> bool:
        """An Ethernet, InfiniBand or other network adapter."""
        return self.pci_class in (_ETHERNET, _INFINIBAND, _OTHER_NETWORK)

    @property
    def is_nvswitch(self) -> bool:
        """An NVSwitch (they show as NVIDIA bridges of class 0x0680)."""
        return self.vendor == NVIDIA and self.pci_class == _OTHER_BRIDGE

    @property
    def is_bridge(self) -> bool:
        """A port of a root complex or PCI Express switch."""
        return self.pci_class == _PCI_BRIDGE

    @property
    def ids(self) -> str | None:
        """``vendor:device`` in hexadecimal."""
        if self.vendor is None or self.device is None:
            return None
        return f"{self.vendor:04x}:{self.device:04x}"


def read_pci(tree: Tree, wanted: frozenset[str] = frozenset()) -> dict[str, PciFunction]:
    """All GPUs, network adapters, NVSwitches and bridges, by address.

    Args:
        tree: where to look.
        wanted: addresses of functions to read whatever their class (behind a network interface, say).
    """
    places = {name: f"{BUS}/{name}" for name in tree.children(BUS) if _ADDRESS.fullmatch(name)}
    if not places:
        places = _walk_devices(tree)
    functions = {}
    for address, place in sorted(places.items()):
        host_bridge, parents = parse_way(tree.resolve(place) or "", address)
        function = PciFunction(
            address=address,
            host_bridge=host_bridge,
            parents=parents,
            pci_class=tree.value(f"{place}/class", _parse_class),
            vendor=tree.value(f"{place}/vendor", parse_hex),
            device=tree.value(f"{place}/device", parse_hex),
        )
        relevant = function.is_gpu or function.is_network or function.is_nvswitch or function.is_bridge
        if relevant or address in wanted:
            functions[address] = _with_attributes(tree, place, function)
    return functions


def _with_attributes(tree: Tree, place: str, function: PciFunction) -> PciFunction:
    return replace(
        function,
        numa=tree.value(f"{place}/numa_node", parse_index),
        pcie=PcieLink(
            speed_gt_per_s=tree.value(f"{place}/current_link_speed", parse_link_speed),
            width=tree.value(f"{place}/current_link_width", parse_link_width),
            max_speed_gt_per_s=tree.value(f"{place}/max_link_speed", parse_link_speed),
            max_width=tree.value(f"{place}/max_link_width", parse_link_width),
        ),
        memory_bytes=tree.value(f"{place}/mem_info_vram_total", _parse_bytes)
        if function.vendor == AMD
        else None,
    )


def parse_way(real_path: str, address: str) -> tuple[str | None, tuple[str, ...]]:
    """The path behind a device's link → (host bridge, bridges from the root port downwards).

    A device whose path shows no host bridge (a tree copied without its links) gives (None, ()).
    """
    host_bridge: str | None = None
    parents: list[str] = []
    for part in real_path.split("/"):
        if _HOST_BRIDGE.fullmatch(part):
            # A host bridge below a device (Intel VMD, Hyper-V) starts a PCI tree of its own.
            host_bridge, parents = part, []
        elif part == address:
            break
        elif _ADDRESS.fullmatch(part):
            parents.append(part)
    return (host_bridge, tuple(parents)) if host_bridge is not None else (None, ())


def address_in_path(real_path: str) -> str | None:
    """The PCI function that a device folder lies below: the last address in its path."""
    addresses = [part for part in real_path.split("/") if _ADDRESS.fullmatch(part)]
    return addresses[-1] if addresses else None


def parse_slot(uevent: str) -> str | None:
    """``PCI_SLOT_NAME=…`` of a device's uevent, or None."""
    for line in uevent.splitlines():
        key, _, value = line.partition("=")
        if key == "PCI_SLOT_NAME" and _ADDRESS.fullmatch(value):
            return value
    return None


def pci_address_of(tree: Tree, device_folder: str) -> str | None:
    """The PCI function behind ``…/device`` of an interface or RDMA device; None on other buses."""
    address = address_in_path(tree.resolve(device_folder) or "")
    if address is None:
        uevent = tree.text(f"{device_folder}/uevent")
        address = None if uevent is None else parse_slot(uevent)
    return address


def normalise_address(text: str) -> str | None:
    """``00000000:17:00.0`` (as NVML writes it) → ``0000:17:00.0`` (as the kernel does), or None."""
    match = _NVML_ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    return f"{int(match[1], 16):04x}:{match[2].lower()}:{match[3].lower()}.{match[4]}"


def parse_link_speed(text: str) -> float | None:
    """``"16.0 GT/s PCIe"`` → 16.0; None for ``Unknown``.

    Raises:
        ValueError: the rate of no PCI Express generation.
    """
    if says_unknown(text) or text.lower() == "unknown speed":
        return None
    match = _SPEED.fullmatch(text)
    if match is None or pcie_generation(float(match[1])) is None:
        raise ValueError(f"{text!r} is no PCI Express rate")
    return float(match[1])


def parse_link_width(text: str) -> int | None:
    """``"16"`` → 16; None for 0 and 255, by which the kernel says that it does not know.

    Raises:
        ValueError: a width that PCI Express does not have.
    """
    width = parse_whole(text, maximum=255)
    if width in (None, 0, 255):
        return None
    if width not in PCIE_WIDTHS:
        raise ValueError(f"{text!r} is no PCI Express width")
    return width


def _parse_class(text: str) -> int | None:
    number = parse_hex(text)
    return None if number is None else number >> 8


def _parse_bytes(text: str) -> int | None:
    return parse_whole(text, maximum=2**50)


def _walk_devices(tree: Tree) -> dict[str, str]:
    """Where the bus is not listed: the functions found below the host bridges themselves."""
    places: dict[str, str] = {}
    pending = [
        (f"sys/devices/{name}", 0) for name in tree.children("sys/devices") if _HOST_BRIDGE.fullmatch(name)
    ]
    while pending:
        folder, depth = pending.pop()
        for name in tree.children(folder):
            if _ADDRESS.fullmatch(name) and name not in places and depth < _MAX_DEPTH:
                places[name] = f"{folder}/{name}"
                pending.append((f"{folder}/{name}", depth + 1))
    return places

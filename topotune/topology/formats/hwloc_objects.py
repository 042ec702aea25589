"""The objects of hwloc's XML as what a live machine's sysfs gives: sockets, NUMA nodes, PCI functions."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from topotune.probe.cpu import Socket
from topotune.probe.faults import Faults, shown
from topotune.probe.kernel_text import MAX_CPUS
from topotune.probe.netdev import Interface
from topotune.probe.numa import NumaNode
from topotune.probe.nvml import NvmlGpu
from topotune.probe.pci import AMD, NVIDIA, PciFunction
from topotune.probe.rdma import RdmaPort
from topotune.topology.formats.spelling import pci_address, whole
from topotune.topology.formats.xml_tree import Element
from topotune.topology.model import PcieLink

SPEED: Final = "hwloc.pci_link_speed"
"""Attribute of what sits on PCI: GB/s of its link as the file says it."""

_TYPE = re.compile(r"([0-9a-fA-F]{4}) \[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\].{0,60}")
_BUSES = re.compile(r"([0-9a-fA-F]{4,8}):\[([0-9a-fA-F]{2})-[0-9a-fA-F]{2}\]")
_SPEED = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,9})?")
_WORD = re.compile(r"0x[0-9a-fA-F]{1,8}|")
_NUMBERED = re.compile(r"(nvml|rsmi)([0-9]{1,4})")
_DEVICE = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_PORT_STATE = re.compile(r"Port([0-9]{1,3})State")
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,50}")
_STATES = {"1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE"}
_NETWORK, _OPENFABRICS = (2, 16), (3, 32)  # numbers of versions 1 and 2; bits of version 3
_VGA = 0x0300
_NVSWITCH = 0x0680
_KIB = 1024
_MAX_ALIKE = 1_024
_MAX_PORTS = 16


@dataclass(frozen=True, slots=True)
class Package:
    """A socket, and its model."""

    socket: Socket
    model: str | None


@dataclass(slots=True)
class PciDetails:
    """What hwloc says of a PCI function beyond what `PciFunction` holds.

    Attributes:
        speed: GB/s of its link, as text; None where hwloc does not know it.
        pci_name: by the list of PCI identifiers.
        nvml, rsmi: its number for the driver's library.
    """

    speed: str | None = None
    pci_name: str | None = None
    nvml: int | None = None
    rsmi: int | None = None
    gpu_model: str | None = None
    gpu_uuid: str | None = None
    gpu_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the tree an object stands."""

    numa: int | None = None
    host_bridge: str | None = None
    parents: tuple[str, ...] = ()
    function: str | None = None


class MachineObjects:
    """All objects of one file.

    Attributes:
        counts: objects by type.
        infos: of the machine and of the file.
        pci, details: by PCI address; functions that matter to nothing are left out of `pci`.
        places: (type, number) of an object, as distance matrices name it → PCI address or socket.
    """

    def __init__(self, faults: Faults, version: str) -> None:
        self.faults = faults
        self.version = version[:20]
        self.counts: Counter[str] = Counter()
        self.infos: dict[str, str] = {}
        self.sockets: dict[int, Package] = {}
        self.pci: dict[str, PciFunction] = {}
        self.details: dict[str, PciDetails] = {}
        self.interfaces: dict[str, Interface] = {}
        self.rdma: list[RdmaPort] = []
        self.places: dict[tuple[str, str], str | int] = {}
        self.numa: dict[int, NumaNode] = {}
        self._num_cpus = 0
        self._rdma_devices: set[str] = set()
        self._old: list[Element] = []  # distances of version 1, which stand before the nodes
        self._functions: dict[str, PciFunction] = {}  # all of them

    def read(self, root: Element) -> None:
        """Take in the file."""
        self._infos(root)
        for child in root.children:
            if child.name == "object":
                self._object(child, _Place())
            elif child.name == "distances2" and child.attributes.get("name") == "NUMALatency":
                self._numa_distances(child)
        for element in self._old:
            self._old_distances(element)

    def numa_nodes(self) -> Iterator[NumaNode]:
        """By number."""
        for index in sorted(self.numa):
            yield self.numa[index]

    def nvml_gpus(self) -> Iterator[NvmlGpu]:
        """The GPUs that NVIDIA's library lists, by its numbers."""
        seen: set[int] = set()
        for address, details in sorted(self.details.items(), key=lambda item: item[1].nvml or 0):
            if details.nvml is None or address not in self.pci:
                continue
            if details.nvml in seen:
                self.faults.add("left out, the number of two GPUs", f"nvml{details.nvml} at {address}")
                continue
            seen.add(details.nvml)
            yield NvmlGpu(
                index=details.nvml,
                pci_address=address,
                uuid=details.gpu_uuid,
                model=details.gpu_model,
                memory_bytes=details.gpu_memory_bytes,
                numa=None,
                pcie=PcieLink(),
                nvlinks=(),
                inactive_nvlinks=(),
            )

    # -- the tree

    def _object(self, element: Element, place: _Place) -> None:
        kind = element.attributes.get("type", "")
        self.counts[kind[:40]] += 1
        nodes = _set_as_number(element.attributes.get("nodeset", ""))
        if nodes:
            place = replace(place, numa=nodes.bit_length() - 1 if nodes.bit_count() == 1 else None)
        match kind:
            case "Machine":
                self._infos(element)
            case "Package" | "Socket":
                self._socket(element)
            case "NUMANode":
                self._numa_node(element)
            case "Bridge":
                place = self._bridge(element, place)
            case "PCIDev":
                place = self._function(element, place)
            case "OSDev":
                self._os_device(element, place)
        for child in element.children:
            if child.name == "object":
                self._object(child, place)
            elif child.name == "distances":
                self._old.append(child)

    def _infos(self, element: Element) -> None:
        for name, value in infos_of(element).items():
            self.infos.setdefault(name, value)

    def _socket(self, element: Element) -> None:
        index = whole(element.attributes.get("os_index", ""))
        cpus = self._cpus(element, len(self.sockets))
        number = len(self.sockets) if index is None else index
        if cpus is None or number in self.sockets:
            self.faults.add(
                "left out, a socket without CPUs or with another's number", f"line {element.line}"
            )
            return
        model = " ".join(infos_of(element).get("CPUModel", "").split()) or None
        self.sockets[number] = Package(Socket(index=number, cpus=cpus), model)
        self.places["Package", element.attributes.get("gp_index", "")] = number

    def _numa_node(self, element: Element) -> None:
        index = whole(element.attributes.get("os_index", ""))
        if index is None or index in self.numa or len(self.numa) >= _MAX_ALIKE:
            self.faults.add("left out, a NUMA node without a number of its own", f"line {element.line}")
            return
        self.numa[index] = NumaNode(
            index=index,
            cpus=self._cpus(element, len(self.numa)),
            memory_bytes=whole(element.attributes.get("local_memory", ""), 2**50) or None,
            distances={},
        )

    def _cpus(self, element: Element, num_alike: int) -> frozenset[int] | None:
        """The CPUs of a socket or node; in all not more than both could have."""
        if self._num_cpus > 2 * MAX_CPUS or num_alike >= _MAX_ALIKE:
            self.faults.add(
                "left out, CPUs of more sockets or nodes than a machine has", f"line {element.line}"
            )
            return None
        cpus = bits_of_set(element.attributes.get("cpuset", ""))
        self._num_cpus += len(cpus or ())
        return cpus

    def _bridge(self, element: Element, place: _Place) -> _Place:
        stated = element.attributes
        if "pci_busid" in stated:
            return self._function(element, place)
        buses = _BUSES.fullmatch(stated.get("bridge_pci", ""))
        if buses is None:
            self.faults.add("left out, a host bridge without buses", f"line {element.line}")
            return place
        # A host bridge below a device starts a PCI tree of its own.
        return replace(place, host_bridge=f"pci{int(buses[1], 16):04x}:{buses[2].lower()}", parents=())

    def _function(self, element: Element, place: _Place) -> _Place:
        stated = element.attributes
        address = pci_address(stated.get("pci_busid", ""))
        if address is None or address in self.details:
            value = shown(stated.get("pci_busid", ""))
            self.faults.add(
                "left out, a PCI device without an address of its own", f"line {element.line}: {value}"
            )
            return place
        ids = _TYPE.fullmatch(stated.get("pci_type", ""))
        function = PciFunction(
            address=address,
            host_bridge=place.host_bridge,
            parents=place.parents,
            pci_class=int(ids[1], 16) if ids else None,
            vendor=int(ids[2], 16) if ids else None,
            device=int(ids[3], 16) if ids else None,
            numa=place.numa,
        )
        if stated.get("subtype") == "NVSwitch":
            function = replace(function, pci_class=_NVSWITCH, vendor=NVIDIA, device=function.device or None)
        self._functions[address] = function
        details = self.details[address] = PciDetails(speed=self._speed(element), pci_name=_pci_name(element))
        if function.is_gpu or function.is_network or function.is_nvswitch or function.is_bridge:
            if function.vendor == AMD and function.pci_class == _VGA and _is_plain_pci(details.speed):
                self.faults.add("left out, a display adapter that is not on PCI Express", address)
            else:
                self.pci[address] = function
        self.places["PCIDev", stated.get("gp_index", "")] = address
        parents = (*place.parents, address) if function.is_bridge else place.parents
        return replace(place, parents=parents, function=address)

    def _speed(self, element: Element) -> str | None:
        text = element.attributes.get("pci_link_speed", "")
        if _SPEED.fullmatch(text) is None:
            return None
        return text if float(text) > 0 else None  # 0 says that hwloc does not know it

    def _os_device(self, element: Element, place: _Place) -> None:
        name = element.attributes.get("name", "")
        kind = whole(element.attributes.get("osdev_type", "")) or 0
        if not _DEVICE.fullmatch(name):
            return
        if place.function is not None:
            self.places["OSDev", element.attributes.get("gp_index", "")] = place.function
            self._gpu_names(self.details[place.function], name, infos_of(element))
        is_network, is_rdma = self._is(kind, _NETWORK), self._is(kind, _OPENFABRICS)
        if (is_network or is_rdma) and place.function is not None:  # old cards are of no network class
            self.pci.setdefault(place.function, self._functions[place.function])
        if is_rdma and name not in self._rdma_devices and len(self.rdma) < _MAX_ALIKE:
            self._rdma_devices.add(name)
            self._rdma(name, infos_of(element), place.function)
        elif is_network and not is_rdma and name not in self.interfaces and len(self.interfaces) < _MAX_ALIKE:
            self.interfaces[name] = Interface(
                name=name,
                virtual=None if place.function is not None else "not on PCI",
                state=None,
                speed_bits_per_s=None,
                pci_address=place.function,
                port=_less_one(whole(infos_of(element).get("Port", ""), 255)),
                enslaved=False,
            )

    def _is(self, kind: int, numbers: tuple[int, int]) -> bool:
        number, bit = numbers
        return bool(kind & bit) if self.version.startswith("3") else kind == number

    def _gpu_names(self, details: PciDetails, name: str, infos: dict[str, str]) -> None:
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None:
            setattr(details, numbered[1], int(numbered[2]))
        details.gpu_model = details.gpu_model or " ".join(infos.get("GPUModel", "").split()) or None
        if _UUID.fullmatch(infos.get("NVIDIAUUID", "")):
            details.gpu_uuid = infos["NVIDIAUUID"]
        for key in ("CUDAGlobalMemorySize", "RSMIVRAMSize"):
            size = whole(infos.get(key, ""), 2**40)
            if size:
                details.gpu_memory_bytes = size * _KIB

    def _rdma(self, name: str, infos: dict[str, str], function: str | None) -> None:
        states = {int(match[1]): infos[key] for key in infos if (match := _PORT_STATE.fullmatch(key))}
        ports = sorted(states)[:_MAX_PORTS] or [1]
        self.rdma += (
            RdmaPort(
                device=name,
                port=port,
                num_ports=len(ports),
                state=_STATES.get(states.get(port, "")),
                rate_bits_per_s=None,
                link_layer=None,
                pci_address=function,
                interface=None,
                model=None,
                software=False,
            )
            for port in ports
        )

    # -- distances between NUMA nodes

    def _numa_distances(self, element: Element) -> None:
        values = [whole(word, 10_000) for word in words_of(element, "u64values")]
        indices = [whole(word) for word in words_of(element, "indexes")]
        self._distances(indices, values, element)

    def _old_distances(self, element: Element) -> None:
        """Version 1: relative to a base, in the order of the tree."""
        base = _number(element.attributes.get("latency_base", ""))
        if base is None or whole(element.attributes.get("nbobjs", "")) != len(self.numa):
            return
        values = [
            _number(each.attributes.get("value", "")) for each in element.children if each.name == "latency"
        ]
        rounded = [None if value is None else round(base * value) for value in values]
        self._distances(list(self.numa), rounded, element)

    def _distances(
        self, indices: Sequence[int | None], values: Sequence[int | None], element: Element
    ) -> None:
        number = len(indices)
        if number * number != len(values) or None in values or not set(indices) <= set(self.numa):
            self.faults.add("left out, distances that do not fit the NUMA nodes", f"line {element.line}")
            return
        for row, index in enumerate(indices):
            assert index is not None
            found = {
                there: value
                for there, value in zip(indices, values[row * number : (row + 1) * number], strict=True)
                if there is not None and value is not None
            }
            self.numa[index] = replace(self.numa[index], distances=found)


def infos_of(element: Element) -> dict[str, str]:
    """Name → value, the first of each."""
    infos: dict[str, str] = {}
    for child in element.children:
        if child.name == "info":
            infos.setdefault(child.attributes.get("name", ""), child.attributes.get("value", ""))
    return infos


def words_of(element: Element, name: str) -> list[str]:
    """The words of all its parts of one name, in order."""
    return [word for child in element.children if child.name == name for word in child.text.split()]


def bits_of_set(text: str) -> frozenset[int] | None:
    """``0x0000ffff,,0x00000001`` (words of 32 bits, the highest first, empty ones 0) → numbers.

    None for what is no such set: nothing, or one that is endless (``0xf...f``).
    """
    bits = _set_as_number(text)
    if bits is None:
        return None
    digits = bin(bits)[:1:-1]
    return frozenset(number for number, digit in enumerate(digits) if digit == "1")


def _set_as_number(text: str) -> int | None:
    words = text.strip().split(",")
    if text.strip() == "" or len(words) > MAX_CPUS // 32 or not all(_WORD.fullmatch(word) for word in words):
        return None
    return int("".join(word.removeprefix("0x").rjust(8, "0") for word in words), 16)


def _pci_name(element: Element) -> str | None:
    return " ".join(infos_of(element).get("PCIDevice", "").split()) or None


def _is_plain_pci(speed: str | None) -> bool:
    """Slower than any PCI Express link: 33 and 66 MHz buses."""
    return speed is not None and float(speed) < 0.25


def _less_one(port: int | None) -> int | None:
    return None if not port else port - 1


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,9})?", text) else None

"""From what was read to the devices of one machine: GPUs, NVSwitches, network ports, each a vertex."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from topotune.probe.amd import AmdGpu, AmdReading
from topotune.probe.cpu import Socket
from topotune.probe.faults import Faults
from topotune.probe.kernel_text import format_cpulist
from topotune.probe.netdev import Interface
from topotune.probe.networks import Networks
from topotune.probe.numa import NumaNode
from topotune.probe.nvml import NvmlGpu, NvmlPeers
from topotune.probe.pci import NVIDIA, PciFunction
from topotune.probe.rdma import RdmaPort, interface_of
from topotune.topology.model import (
    CLOCK_LIMITS,
    IP_NETWORKS,
    IPV6,
    MAX_SM_CLOCK_MHZ,
    PARTITION,
    PERFORMANCE_STATE,
    POWER_DEFAULT_W,
    POWER_LIMIT_W,
    SM_CLOCK_MHZ,
    Link,
    NvlinkPort,
    Pair,
    PcieLink,
    Vertex,
    VertexKind,
)

Figure = TypeVar("Figure", int, float)


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaCard:
    """What the kernel module's own files say about a GPU (/proc/driver/nvidia), without NVML."""

    model: str | None
    uuid: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """All that was read of one machine, before any of it is joined.

    Attributes:
        nvml_gpus: of the driver; None where it could not be asked.
        pci, cards: by PCI address.
    """

    node: str
    cpu_model: str | None
    sockets: tuple[Socket, ...]
    numa: tuple[NumaNode, ...]
    pci: Mapping[str, PciFunction]
    nvml_gpus: tuple[NvmlGpu, ...] | None
    cards: Mapping[str, NvidiaCard]
    interfaces: tuple[Interface, ...]
    rdma: tuple[RdmaPort, ...]
    networks: Networks = field(default_factory=Networks)
    nvml_peers: tuple[NvmlPeers, ...] = ()
    amd: AmdReading = field(default_factory=AmdReading)

    def vertex_id(self, kind: VertexKind, name: str | int) -> str:
        """The id of a vertex of this machine."""
        return f"{self.node}/{kind}/{name}"

    def link_above(self, function: PciFunction) -> PcieLink:
        """The PCI Express link above a function: its maxima are what both ends can do, where both say so."""
        port = self.pci.get(function.parents[-1]) if function.parents else None
        if port is None:
            return function.pcie
        own, other = function.pcie, port.pcie
        return replace(
            own,
            max_speed_gt_per_s=_least(own.max_speed_gt_per_s, other.max_speed_gt_per_s),
            max_width=_least(own.max_width, other.max_width),
        )


def find_gpus(reading: Reading, faults: Faults) -> tuple[Vertex, ...]:
    """GPUs: those that the driver lists, and those that only the PCI bus shows (AMD, or no driver)."""
    on_bus = {address: function for address, function in reading.pci.items() if function.is_gpu}
    found = []
    for gpu in reading.nvml_gpus or ():
        function = on_bus.pop(gpu.pci_address, None) if gpu.pci_address else None
        found.append(
            Vertex(
                id=reading.vertex_id("gpu", gpu.index),
                kind="gpu",
                node=reading.node,
                index=gpu.index,
                pci_address=gpu.pci_address,
                model=gpu.model or (function.ids if function else None),
                numa=function.numa if function and function.numa is not None else gpu.numa,
                memory_bytes=gpu.memory_bytes,
                pcie=_known(_first(reading.link_above(function), gpu.pcie) if function else gpu.pcie),
                uuid=gpu.uuid,
                nvlink_ports=_nvlink_ports(gpu),
                mig=gpu.mig,
                cpu_affinity=format_cpulist(gpu.near_cpus) or None,
                numa_affinity=format_cpulist(gpu.near_numa) or None,
                attributes=_gpu_attributes(gpu),
            )
        )
    of_amd = {gpu.pci_address: gpu for gpu in reading.amd.gpus}
    number = max((gpu.index for gpu in reading.nvml_gpus or ()), default=-1)
    for function in on_bus.values():
        if reading.nvml_gpus is not None and function.vendor == NVIDIA:
            # A container sees every card on the bus and may use only those that its driver lists.
            faults.add("left out, NVIDIA GPUs on the PCI bus that NVML does not list", function.address)
            continue
        number += 1
        card = reading.cards.get(function.address)
        amd = of_amd.get(function.address, AmdGpu(pci_address=function.address))
        found.append(
            Vertex(
                id=reading.vertex_id("gpu", number),
                kind="gpu",
                node=reading.node,
                pci_address=function.address,
                model=(card.model if card else amd.model) or function.ids,
                numa=amd.numa if function.numa is None else function.numa,
                memory_bytes=function.memory_bytes,
                pcie=_known(reading.link_above(function)),
                uuid=card.uuid if card else amd.uuid,
                attributes=_known_texts(
                    {
                        POWER_LIMIT_W: _shown(amd.power_limit_w),
                        POWER_DEFAULT_W: _shown(amd.power_default_w),
                        PARTITION: amd.partition,
                    }
                ),
            )
        )
    return tuple(found)


def _gpu_attributes(gpu: NvmlGpu) -> dict[str, str]:
    """What NVIDIA's driver says of a GPU's power and clocks, as far as it does."""
    return _known_texts(
        {
            PERFORMANCE_STATE: None if gpu.performance_state is None else f"P{gpu.performance_state}",
            POWER_LIMIT_W: _shown(gpu.power_limit_w),
            POWER_DEFAULT_W: _shown(gpu.power_default_w),
            SM_CLOCK_MHZ: _shown(gpu.sm_clock_mhz),
            MAX_SM_CLOCK_MHZ: _shown(gpu.max_sm_clock_mhz),
            CLOCK_LIMITS: ", ".join(gpu.clock_limits or ()) or None,
        }
    )


def _known_texts(said: dict[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in said.items() if text is not None}


def _shown(number: float | None) -> str | None:
    return None if number is None else f"{number:g}"


def find_peers(reading: Reading, gpus: Iterable[Vertex]) -> tuple[Pair, ...]:
    """What the drivers say of two GPUs without showing the way between them."""
    by_address = {gpu.pci_address: gpu.id for gpu in gpus}
    nvidia = [
        Pair(a=reading.vertex_id("gpu", each.a), b=reading.vertex_id("gpu", each.b), p2p=dict(each.p2p))
        for each in reading.nvml_peers
    ]
    amd = [
        Pair(
            a=by_address[each.a],
            b=by_address[each.b],
            path="XGMI" if each.xgmi else None,
            p2p=dict(each.p2p),
        )
        for each in reading.amd.peers
        if each.a in by_address and each.b in by_address
    ]
    return (*nvidia, *amd)


def find_xgmi(reading: Reading, gpus: Iterable[Vertex]) -> tuple[Link, ...]:
    """AMD GPUs that xGMI joins directly; how many links run side by side, the driver does not say."""
    by_address = {gpu.pci_address: gpu.id for gpu in gpus}
    return tuple(
        Link(src=by_address[src], dst=by_address[dst], kind="nvlink")
        for each in reading.amd.peers
        if each.xgmi and each.hops == 1 and each.a in by_address and each.b in by_address
        for src, dst in ((each.a, each.b), (each.b, each.a))
    )


def _nvlink_ports(gpu: NvmlGpu) -> tuple[NvlinkPort, ...] | None:
    """All NVLinks that the driver lists, by number."""
    if not gpu.nvlinks_listed:
        return None
    up = [
        NvlinkPort(link=end.link, active=True, bandwidth_bytes_per_s=end.bytes_per_s) for end in gpu.nvlinks
    ]
    down = [NvlinkPort(link=link, active=False) for link in gpu.inactive_nvlinks]
    return tuple(sorted((*up, *down), key=lambda port: port.link))


def find_nvswitches(reading: Reading) -> tuple[Vertex, ...]:
    """NVSwitches that the PCI bus shows, by address."""
    return tuple(
        Vertex(
            id=reading.vertex_id("nvswitch", function.address),
            kind="nvswitch",
            node=reading.node,
            pci_address=function.address,
            model=function.ids,
            numa=function.numa,
            pcie=_known(reading.link_above(function)),
        )
        for function in reading.pci.values()
        if function.is_nvswitch
    )


def find_nics(reading: Reading) -> tuple[Vertex, ...]:
    """One vertex for each port: RDMA ports with their interfaces, other interfaces, adapters with neither."""
    found = list(_ports(reading))
    if not found:
        # A container's own way out is its end of a veth pair: no card, but all the network that there is.
        found = [_nic(reading, None, other, None) for other in reading.interfaces if other.carries_traffic]
    taken = {vertex.pci_address for vertex in found}
    found.extend(
        _nic(reading, address, None, None)
        for address, function in reading.pci.items()
        if function.is_network and address not in taken
    )
    return tuple(found)


def _ports(reading: Reading) -> Iterator[Vertex]:
    joined: set[str] = set()
    for port in reading.rdma:
        if port.software:
            continue
        interface = interface_of(
            port, tuple(other for other in reading.interfaces if other.name not in joined)
        )
        if interface is not None:
            joined.add(interface.name)
        yield _nic(reading, port.pci_address, interface, port)
    for interface in reading.interfaces:
        if interface.virtual is None and interface.name not in joined:
            yield _nic(reading, interface.pci_address, interface, None)


def _nic(reading: Reading, address: str | None, interface: Interface | None, port: RdmaPort | None) -> Vertex:
    function = reading.pci.get(address) if address else None
    if interface is not None:
        key = name = interface.name
    elif port is not None:
        # An RDMA device may have the name of an interface (rocep1s0f0 and such); the ids must differ all the
        # same.
        key, name = f"rdma:{port.name}", port.name
    else:
        key, name = f"pci:{address}", None
    model = (port.model if port else None) or (function.ids if function else None)
    if interface is not None and interface.virtual is not None:
        model = interface.virtual
    speed = port.rate_bits_per_s if port else None
    if speed is None and interface is not None:
        speed = interface.speed_bits_per_s
    return Vertex(
        id=reading.vertex_id("nic", key),
        kind="nic",
        node=reading.node,
        index=port.port if port else None,
        name=name,
        pci_address=address,
        model=model,
        speed=speed,
        state=(port.state if port else None) or (interface.state if interface else None),
        link_layer=port.link_layer if port else None,
        numa=function.numa if function else None,
        pcie=_known(reading.link_above(function)) if function else None,
        rdma_device=port.device if port else None,
        attributes=_addresses(reading.networks, interface),
    )


def _addresses(networks: Networks, interface: Interface | None) -> dict[str, str]:
    """The networks of an interface, which a bond or bridge above it may have in its place."""
    if interface is None:
        return {}
    found = {}
    if interface.name in networks.ipv4:
        found[IP_NETWORKS] = " ".join(map(str, networks.ipv4[interface.name]))
    if interface.name in networks.ipv6:
        found[IPV6] = "global"
    return found


def _known(link: PcieLink) -> PcieLink | None:
    return None if link == PcieLink() else link


def _first(first: PcieLink, second: PcieLink) -> PcieLink:
    """Each figure from the first that knows it."""
    return PcieLink(
        speed_gt_per_s=_or(first.speed_gt_per_s, second.speed_gt_per_s),
        width=_or(first.width, second.width),
        max_speed_gt_per_s=_or(first.max_speed_gt_per_s, second.max_speed_gt_per_s),
        max_width=_or(first.max_width, second.max_width),
    )


def _or(first: Figure | None, second: Figure | None) -> Figure | None:
    return second if first is None else first


def _least(first: Figure | None, second: Figure | None) -> Figure | None:
    return min((value for value in (first, second) if value is not None), default=None)

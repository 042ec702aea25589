"""RDMA devices (InfiniBand, RoCE, EFA), from /sys/class/infiniband: one entry for each port."""

import re
from dataclasses import dataclass
from typing import Final

from topotune.probe.kernel_text import parse_word, says_unknown
from topotune.probe.netdev import MAX_MBIT_PER_S, Interface
from topotune.probe.pci import pci_address_of
from topotune.probe.tree import Tree

DEVICES: Final = "sys/class/infiniband"

_DEVICE = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_PORT = re.compile(r"[1-9][0-9]{0,2}")
_STATE = re.compile(r"[0-9]: ([A-Z_]{2,20})")
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec(?: \([A-Za-z0-9 ]{1,20}\))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class RdmaPort:
    """One port of an RDMA device.

    Attributes:
        device: ``mlx5_0``.
        port: from 1.
        num_ports: of the device.
        state: ``ACTIVE``, ``DOWN``, ``INIT``, ``ARMED``.
        rate_bits_per_s: of the port.
        link_layer: ``InfiniBand``, ``Ethernet``; None where it is not said (EFA).
        pci_address: the PCI function behind the device.
        interface: name of the network interface that the port itself names.
        model: the device's type as it names it (``MT4129``).
        software: RDMA over an ordinary interface (Soft-RoCE, Soft-iWARP).
    """

    device: str
    port: int
    num_ports: int
    state: str | None
    rate_bits_per_s: float | None
    link_layer: str | None
    pci_address: str | None
    interface: str | None
    model: str | None
    software: bool

    @property
    def name(self) -> str:
        """``mlx5_0``, or ``mlx4_0:2`` where the device has several ports."""
        return self.device if self.num_ports == 1 else f"{self.device}:{self.port}"


def read_rdma(tree: Tree) -> tuple[RdmaPort, ...]:
    """All ports, by device and port number; devices without ports are noted and left out."""
    ports = []
    for device in tree.children(DEVICES):
        folder = f"{DEVICES}/{device}"
        if not _DEVICE.fullmatch(device):
            tree.faults.add("left out, no name of an RDMA device", f"/{folder}")
            continue
        numbers = sorted(int(name) for name in tree.children(f"{folder}/ports") if _PORT.fullmatch(name))
        if not numbers:
            tree.faults.add("left out, an RDMA device without ports", f"/{folder}")
        address = pci_address_of(tree, f"{folder}/device")
        software = address is None and (tree.resolve(folder) or "").startswith("sys/devices/virtual/")
        model = tree.value(f"{folder}/hca_type", parse_word)
        for number in numbers:
            place = f"{folder}/ports/{number}"
            ports.append(
                RdmaPort(
                    device=device,
                    port=number,
                    num_ports=len(numbers),
                    state=tree.value(f"{place}/state", parse_state),
                    rate_bits_per_s=tree.value(f"{place}/rate", parse_rate),
                    link_layer=tree.value(f"{place}/link_layer", parse_link_layer),
                    pci_address=address,
                    interface=tree.value(f"{place}/gid_attrs/ndevs/0", parse_word),
                    model=model,
                    software=software,
                )
            )
    return tuple(ports)


def interface_of(port: RdmaPort, interfaces: tuple[Interface, ...]) -> Interface | None:
    """The network interface on a port: the one that it names, else that with its number on its card."""
    hardware = [interface for interface in interfaces if interface.virtual is None]
    for interface in hardware:
        # A bonded port names the bond, which is no hardware and falls through to the card's own interface.
        if interface.name == port.interface:
            return interface
    behind = [
        interface for interface in hardware if port.pci_address and interface.pci_address == port.pci_address
    ]
    if len(behind) == 1 and port.num_ports == 1:
        return behind[0]
    return next((interface for interface in behind if interface.port == port.port - 1), None)


def parse_state(text: str) -> str | None:
    """``"4: ACTIVE"`` → ``"ACTIVE"``.

    Raises:
        ValueError: no number and word.
    """
    if says_unknown(text):
        return None
    match = _STATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no port state")
    return match[1]


def parse_rate(text: str) -> float | None:
    """``"400 Gb/sec (4X NDR)"`` → 4e11 bits/s; 0 is not known.

    Raises:
        ValueError: no such rate, or more than any port runs at.
    """
    if says_unknown(text):
        return None
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) * 1e3 > MAX_MBIT_PER_S:
        raise ValueError(f"{text!r} is no port rate")
    return float(match[1]) * 1e9 or None


def parse_link_layer(text: str) -> str | None:
    """``InfiniBand`` or ``Ethernet``; None for ``Unspecified``.

    Raises:
        ValueError: anything else.
    """
    if says_unknown(text):
        return None
    if text not in ("InfiniBand", "Ethernet"):
        raise ValueError(f"{text!r} is no link layer")
    return text

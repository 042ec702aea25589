"""Ports of RDMA devices, as the tools of one host list them: ``ibstat``, ``ibstatus``, ``ibv_devinfo``.

What the tools have in common is here: a port's vertex, and which of the figures mean nothing. A port that is
not active has no rate, whatever stands there; and drivers say 40 Gbit/s (4X QDR) of Ethernet ports whose rate
they do not know. Such rates are left out, and told.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.probe.netdev import MAX_MBIT_PER_S
from topotune.topology.formats.reading import THIS_NODE
from topotune.topology.model import Vertex

PORT_GUID: Final = "ib.port_guid"
NODE_GUID: Final = "ib.node_guid"
IMAGE_GUID: Final = "ib.system_image_guid"
PHYSICAL_STATE: Final = "ib.physical_state"
RATE_LEFT_OUT: Final = "ib.rate_left_out"
"""Attributes of a NIC: identifiers as ``0x`` and 16 digits, and what else the tools say of a port."""

DEVICE: Final = r"[A-Za-z0-9_.+-]{1,64}"
MAX_PORTS: Final = 16_384

_STATES = {"ACTIVE", "DOWN", "INIT", "ARMED", "NOP"}
_LONG_STATES = {"INITIALIZING": "INIT", "INITIALIZE": "INIT", "ACTIVE_DEFER": "ACTIVE"}
_LAYERS = ("InfiniBand", "Ethernet")
_PLACEHOLDER_BITS_PER_S = 40e9
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?)(?: ?Gb/sec)?(?: \([^()\n]{1,40}\))?")
_GUID = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_GUID_WORDS = re.compile(r"[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}")


@dataclass(slots=True)
class ListedPort:
    """One port while its part of an output is read.

    Attributes:
        line: where it starts.
        rate_bits_per_s: as the tool says it, placeholders included.
        complete: nothing of it was cut off.
        attributes: of the vertex.
    """

    device: str
    port: int
    line: int
    state: str | None = None
    rate_bits_per_s: float | None = None
    link_layer: str | None = None
    model: str | None = None
    pci_address: str | None = None
    interface: str | None = None
    complete: bool = True
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """As warnings call it."""
        return f"{self.device} port {self.port}"


def nic_vertices(ports: Iterable[ListedPort], source: str, faults: Faults) -> tuple[Vertex, ...]:
    """One vertex for each port, in the file's order.

    Raises:
        InputFileError: one port twice with different statements, or more than 16,384.
    """
    unique: dict[tuple[str, int], ListedPort] = {}
    for port in ports:
        before = unique.setdefault((port.device, port.port), port)
        if before is not port:
            _check_same(before, port, source)
            _fill(before, port)
    if len(unique) > MAX_PORTS:
        raise InputFileError(source, f"has {len(unique)} ports, more than {MAX_PORTS}")
    num_ports = Counter(device for device, _ in unique)
    return tuple(_vertex(port, num_ports[port.device], faults) for port in unique.values())


def _check_same(before: ListedPort, port: ListedPort, source: str) -> None:
    for what, there, here in (
        ("state", before.state, port.state),
        ("rate", before.rate_bits_per_s, port.rate_bits_per_s),
        ("port GUID", before.attributes.get(PORT_GUID), port.attributes.get(PORT_GUID)),
        ("node GUID", before.attributes.get(NODE_GUID), port.attributes.get(NODE_GUID)),
    ):
        if None not in (there, here) and there != here:
            raise InputFileError(
                source,
                f"shows {port.place} twice: its {what} is {here} here and {there} in line {before.line}",
                place=f"line {port.line}",
                hint="outputs of two nodes, or of two times, need a file each: import a=FILE b=FILE",
            )


def _fill(port: ListedPort, again: ListedPort) -> None:
    """What the first part on a port leaves open and the second says."""
    for name in ("state", "rate_bits_per_s", "link_layer", "model", "pci_address", "interface"):
        if getattr(port, name) is None:
            setattr(port, name, getattr(again, name))
    port.attributes = {**again.attributes, **port.attributes}
    port.complete = port.complete or again.complete


def _vertex(port: ListedPort, num_ports: int, faults: Faults) -> Vertex:
    if not port.complete:
        faults.add("ports of which the file does not say all, as if it were cut", port.place)
    speed = port.rate_bits_per_s
    attributes = dict(port.attributes)
    if speed is not None and (reason := _placeholder(port)) is not None:
        faults.add(f"left out, the rate of {reason}", f"{port.place} ({speed / 1e9:g} Gbit/s)")
        attributes[RATE_LEFT_OUT] = f"{speed / 1e9:g}"
        speed = None
    return Vertex(
        id=f"{port.device}:{port.port}",
        kind="nic",
        node=THIS_NODE,
        index=port.port,
        name=port.interface or (port.device if num_ports == 1 else f"{port.device}:{port.port}"),
        pci_address=port.pci_address,
        model=port.model,
        speed=speed,
        state=port.state,
        link_layer=port.link_layer,
        rdma_device=port.device,
        attributes=attributes,
    )


def _placeholder(port: ListedPort) -> str | None:
    if port.state not in (None, "ACTIVE"):
        return "a port that is not active"
    if port.link_layer == "Ethernet" and port.rate_bits_per_s == _PLACEHOLDER_BITS_PER_S:
        return "an Ethernet port, as drivers say 40 Gbit/s where they do not know it"
    return None


# -- words and figures


def state_of(text: str, place: str, faults: Faults) -> str | None:
    """``Active``, ``4: ACTIVE``, ``PORT_ACTIVE (4)`` → ``ACTIVE``, the kernel's own word."""
    word = re.sub(r"^[0-9]{1,3}: ?|^PORT_| ?\([0-9]{1,3}\)$", "", text.strip()[:60]).strip().upper()
    word = _LONG_STATES.get(word.replace(" ", "_"), word)
    if word in _STATES:
        return word
    faults.add("left out, no port state", f"{place}: {shown(text)}")
    return None


def rate_of(text: str, place: str, faults: Faults) -> float | None:
    """``400``, ``400 Gb/sec (4X NDR)`` → 4e11 bits/s; None for 0 and what is no rate of a port."""
    match = _RATE.fullmatch(text.strip())
    rate = 0.0 if match is None else float(match[1])
    if match is None or rate * 1e3 > MAX_MBIT_PER_S:
        faults.add("left out, no rate of a port", f"{place}: {shown(text)}")
        return None
    return rate * 1e9 or None


def link_layer_of(text: str) -> str | None:
    """``InfiniBand`` or ``Ethernet``; None for ``Unspecified`` (EFA) and all else."""
    return next((layer for layer in _LAYERS if layer.lower() == text.strip().lower()), None)


def guid_of(text: str) -> str | None:
    """``0x1f2e``, ``000102030405060708``'s usual spellings, ``0001:0203:0405:0607`` → ``0x0001020304050607``.

    None for 0, which stands for "none", and for anything else.
    """
    text = text.strip()
    if _GUID_WORDS.fullmatch(text):
        text = text.replace(":", "")
    match = _GUID.fullmatch(text)
    value = 0 if match is None else int(match[1], 16)
    return f"0x{value:016x}" if value else None

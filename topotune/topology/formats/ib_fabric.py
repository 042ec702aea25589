"""An InfiniBand fabric as its subnet's tools list it: switches, ports of adapters, the cables between them.

Every cable is usually told from both ends; in excerpts, from one. Adapters belong to hosts by what they call
themselves (``host HCA-1``, ``host mlx5_3``). A SHARP aggregation node shows as an adapter and is part of the
switch that it is on; it is noted there, and is no host.

Source: InfiniBand Architecture Specification 1.7, vol. 1, 14.2 (link speeds); rdma-core, infiniband-diags.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.rdma_ports import NODE_GUID, PORT_GUID
from topotune.topology.formats.reading import Reading
from topotune.topology.model import Link, Vertex

DESCRIPTION: Final = "ib.description"
SHARP: Final = "ib.aggregation_nodes"
IDLE_PORTS: Final = "ib.idle_ports"
"""Attributes of a NIC: what it calls itself; of a switch: how many of these it has, of ports that
lead nowhere."""

MAX_DEVICES: Final = 65_536
MAX_CABLES: Final = 400_000

# Speed -> Gbit/s of a lane: as the kernel reckons a port's rate, and what of it carries data.
_LANE_GBIT_PER_S: Final = {
    "SDR": (2.5, 2.0),
    "DDR": (5.0, 4.0),
    "QDR": (10.0, 8.0),
    "FDR10": (10.0, 10.0),
    "FDR": (14.0, 13.64),
    "EDR": (25.0, 25.0),
    "HDR": (50.0, 50.0),
    "NDR": (100.0, 100.0),
    "XDR": (200.0, 200.0),
}
_SPEED_OF_SIGNAL: Final = {
    "2.5": "SDR", "5.0": "DDR", "10.0": "QDR", "10.3125": "FDR10", "14.0625": "FDR",
    "25.78125": "EDR", "53.125": "HDR", "106.25": "NDR", "212.5": "XDR",
}  # fmt: skip
_WIDTHS = (1, 2, 4, 8, 12)

_AGGREGATION = re.compile(r".{0,80}\bAggregation Node\b.{0,80}")
_HOST_AND_DEVICE = re.compile(r"([A-Za-z0-9][\w.-]{0,254}) ([A-Za-z][\w.-]{0,63})")
_HCA = re.compile(r"HCA-[0-9]{1,4}", re.I)
_MANAGED = re.compile(r"MF0;([^:;/]{1,200}):([\w.-]{1,60})((?:/[\w-]{1,20}){0,6})")


@dataclass(slots=True)
class _Device:
    key: str
    is_switch: bool
    guid: str | None
    description: str
    idle_ports: int = 0
    aggregation_nodes: int = 0

    @property
    def is_aggregation(self) -> bool:
        """A SHARP node, which is part of a switch."""
        return not self.is_switch and _AGGREGATION.fullmatch(self.description) is not None


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one cable, in bits/s: as ports state it, and what of it carries data."""

    port_bits_per_s: float
    data_bits_per_s: float
    text: str


Port = tuple[str, int]  # a device's key, a port's number


class IbFabric:
    """Devices and cables as they are read."""

    def __init__(self, source: str, faults: Faults) -> None:
        self.faults = faults
        self._source = source
        self._devices: dict[str, _Device] = {}
        self._ends: dict[Port, Port] = {}
        self._cables: dict[tuple[Port, Port], Rate | None] = {}
        self._port_guids: dict[Port, str] = {}

    def __len__(self) -> int:
        return len(self._devices)

    def __contains__(self, key: str) -> bool:
        return key in self._devices

    def device(self, key: str, *, is_switch: bool, description: str = "", guid: str | None = None) -> str:
        """A device, described again or for the first time; its key."""
        device = self._devices.get(key)
        if device is None:
            if len(self._devices) >= MAX_DEVICES:
                raise InputFileError(self._source, f"has more than {MAX_DEVICES} devices")
            device = self._devices[key] = _Device(key, is_switch, guid, description[:300])
        device.description = device.description or description[:300]
        device.guid = device.guid or guid
        return key

    def cable(self, a: Port, b: Port, rate: Rate | None, place: str) -> None:
        """A cable between two ports, told by either end."""
        if a == b:
            self.faults.add("left out, a port that leads to itself", place)
            return
        for one, other in ((a, b), (b, a)):
            if self._ends.setdefault(one, other) != other:
                self.faults.add("left out, a second cable of one port", f"{place}: port {one[1]}")
                return
        first, second = sorted((a, b))
        known = self._cables.setdefault((first, second), rate)
        if known is None:
            self._cables[first, second] = rate
        elif rate is not None and rate != known:
            self.faults.add(
                "cables of which the two ends state different rates", f"{place}: {rate.text}, {known.text}"
            )
        if len(self._cables) > MAX_CABLES:
            raise InputFileError(self._source, f"has more than {MAX_CABLES} cables", place=place)

    def port_guid(self, port: Port, guid: str | None) -> None:
        """The GUID of an adapter's port."""
        if guid is not None:
            self._port_guids.setdefault(port, guid)

    def idle_port(self, key: str) -> None:
        """A port that leads nowhere."""
        self._devices[key].idle_ports += 1

    def reading(self) -> Reading:
        """All of it.

        Raises:
            InputFileError: no device.
        """
        if not self._devices:
            raise InputFileError(self._source, "shows no switch and no adapter")
        ends = [port for cable in self._cables for port in cable]
        for (key, _), (other, _) in [*self._cables, *(cable[::-1] for cable in self._cables)]:
            if self._devices[key].is_aggregation and self._devices[other].is_switch:
                self._devices[other].aggregation_nodes += 1
        ports: dict[Port, Vertex] = {}
        num_ports = Counter(key for key, _ in ends)
        nameless = 0
        for port in ends:
            device = self._devices[port[0]]
            if device.is_switch or device.is_aggregation or port in ports:
                continue
            vertex = self._adapter(device, port, num_ports[port[0]])
            if vertex is None:
                nameless += 1
            else:
                ports[port] = vertex
        if nameless:
            self.faults.add("left out, adapters that do not call themselves by a host's name", str(nameless))
        switches = [self._switch(device) for device in self._devices.values() if device.is_switch]
        return Reading(
            vertices=(*switches, *ports.values()),
            links=self._links(ports),
            warnings=self.faults.warnings(),
        )

    def _switch(self, device: _Device) -> Vertex:
        managed = _MANAGED.fullmatch(device.description)
        attributes = {DESCRIPTION: device.description} if device.description else {}
        if device.aggregation_nodes:
            attributes[SHARP] = str(device.aggregation_nodes)
        if device.idle_ports:
            attributes[IDLE_PORTS] = str(device.idle_ports)
        name = device.description or None
        if managed is not None:
            name = managed[1] + managed[3].removesuffix("/U1")
        return Vertex(
            id=f"switch {device.key}",
            kind="switch",
            name=name,
            guid=device.guid,
            model=None if managed is None else managed[2],
            attributes=attributes,
        )

    def _adapter(self, device: _Device, port: Port, num_ports: int) -> Vertex | None:
        named = _HOST_AND_DEVICE.fullmatch(device.description.strip())
        if named is None:
            return None
        rdma = None if _HCA.fullmatch(named[2]) else named[2]
        rate = self._cables.get(self._cable_of(port))
        attributes = {DESCRIPTION: device.description}
        if device.guid is not None:
            attributes[NODE_GUID] = device.guid
        if port in self._port_guids:
            attributes[PORT_GUID] = self._port_guids[port]
        label = named[2] if num_ports == 1 else f"{named[2]}:{port[1]}"
        return Vertex(
            id=f"adapter {device.key} {port[1]}/{label}",
            kind="nic",
            node=named[1],
            index=port[1],
            name=None if rdma is None else label,
            rdma_device=rdma,
            speed=None if rate is None else rate.port_bits_per_s,
            link_layer="InfiniBand",
            attributes=attributes,
        )

    def _cable_of(self, port: Port) -> tuple[Port, Port]:
        first, second = sorted((port, self._ends[port]))
        return first, second

    def _links(self, ports: dict[Port, Vertex]) -> tuple[Link, ...]:
        """Cables side by side as one link."""
        found: dict[tuple[str, str], list[Rate | None]] = {}
        for (a, b), rate in self._cables.items():
            ids = []
            for port in (a, b):
                if self._devices[port[0]].is_switch:
                    ids.append(f"switch {port[0]}")
                elif port in ports:
                    ids.append(ports[port].id)
            if len(ids) == 2 and ids[0] != ids[1]:
                found.setdefault((ids[0], ids[1]), []).append(rate)
        merged: dict[tuple[str, str], list[Rate | None]] = {}
        for (src, dst), rates in found.items():
            merged.setdefault((min(src, dst), max(src, dst)), []).extend(rates)
        links: list[Link] = []
        for (one, other), rates in merged.items():
            known = [rate for rate in rates if rate is not None]
            total = sum(rate.data_bits_per_s for rate in known) / 8 if len(known) == len(rates) else None
            links += (
                Link(src=src, dst=dst, kind="infiniband", lanes=len(rates), bandwidth_bytes_per_s=total)
                for src, dst in ((one, other), (other, one))
            )
        return tuple(links)


def rate_of_width_and_speed(width: str, speed: str) -> Rate | None:
    """``4`` and ``NDR``, or ``4`` and ``106.25`` (Gbit/s of a lane with its coding) → the rate; else None."""
    speed = _SPEED_OF_SIGNAL.get(speed, speed)
    lanes = int(width) if width.isascii() and width.isdigit() and len(width) <= 2 else 0
    if lanes not in _WIDTHS or speed not in _LANE_GBIT_PER_S:
        return None
    stated, data = _LANE_GBIT_PER_S[speed]
    return Rate(lanes * stated * 1e9, lanes * data * 1e9, f"{lanes}x{speed}")


def note_rate(rate: Rate | None, width: str, speed: str, place: str, faults: Faults) -> None:
    """A connected port whose rate is none that InfiniBand has."""
    if rate is None and speed not in ("???", ""):
        faults.add("left out, no rate of InfiniBand", f"{place}: {shown(f'{width}x {speed}')}")

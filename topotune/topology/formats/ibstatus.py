"""``ibstatus``: the RDMA ports of a host, as sysfs shows them. And ``ibdev2netdev``: their interfaces."""

import re
from collections.abc import Iterator, Sequence

from topotune.errors import InputFileError
from topotune.probe.faults import Faults
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.rdma_ports import (
    DEVICE,
    PHYSICAL_STATE,
    PORT_GUID,
    ListedPort,
    guid_of,
    link_layer_of,
    nic_vertices,
    rate_of,
    state_of,
)
from topotune.topology.formats.reading import Reader, Reading
from topotune.topology.formats.spelling import pci_address

NETDEV_STATE = "netdev.state"
"""Attribute of a NIC: ``Up`` or ``Down``, of its network interface."""

_DEVICE = re.compile(
    rf"^[ \t>]{{0,40}}Infiniband device '({DEVICE})' port ([0-9]{{1,3}}) status:[ \t]*$", re.MULTILINE
)
_VALUE = re.compile(r"[ \t>]{0,40}([a-z][a-z_ ]{1,30}):[ \t]{0,40}(.{0,200})")
_PHYSICAL = re.compile(r"[0-9]{1,3}: ?([\w.+/-]{1,60})")
_NETDEV = re.compile(
    rf"^[ \t>]{{0,40}}(?:([0-9a-f]{{4}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]) )?({DEVICE}) "
    rf"(?:\((MT[0-9]{{1,6}})[^\n]{{0,200}}? )?port ([0-9]{{1,3}}) (?:\(([A-Z_]{{2,12}}) {{0,8}}\) )?==> "
    rf"({DEVICE}) \((Up|Down)\)[ \t]*$",
    re.MULTILINE,
)


def _recognise(text: str) -> bool:
    return _DEVICE.search(text) is not None


def _recognise_netdev(text: str) -> bool:
    return "==>" in text and _NETDEV.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The output of ``ibstatus`` → what it proves.

    Raises:
        InputFileError: no port in it, one twice with different statements, or more than 16,384.
    """
    faults = Faults()
    vertices = nic_vertices(_ports(lines_of(text, source), faults), source, faults)
    if not vertices:
        raise InputFileError(source, "holds no line such as: Infiniband device 'mlx5_0' port 1 status:")
    return Reading(vertices=vertices, warnings=faults.warnings())


def read_netdev(text: str, source: str) -> Reading:
    """The output of ``ibdev2netdev``, plain or ``-v`` → what it proves.

    Raises:
        InputFileError: no line of it, one port twice with different statements, or more than 16,384.
    """
    faults = Faults()
    ports = []
    for number, line in enumerate(lines_of(text, source), start=1):
        match = _NETDEV.fullmatch(line)
        if match is None:
            if "==>" in line:
                faults.add("left out, a line that ends early", f"line {number}")
            continue
        address, device, model, port, state, interface, up = match.groups()
        ports.append(
            ListedPort(
                device,
                int(port),
                number,
                state=None if state is None else state_of(state, device, faults),
                model=model,
                pci_address=None if address is None else pci_address(address),
                interface=interface,
                attributes={NETDEV_STATE: up},
            )
        )
    vertices = nic_vertices(ports, source, faults)
    if not vertices:
        raise InputFileError(source, "holds no line such as: mlx5_0 port 1 ==> ib0 (Up)")
    return Reading(vertices=vertices, warnings=faults.warnings())


def _ports(lines: Sequence[str], faults: Faults) -> Iterator[ListedPort]:
    port: ListedPort | None = None
    for number, line in enumerate(lines, start=1):
        start = _DEVICE.fullmatch(line)
        if start is not None:
            if port is not None:
                yield _closed(port)
            port = ListedPort(start[1], int(start[2]), number)
            continue
        value = None if port is None else _VALUE.fullmatch(line)
        if port is None or value is None:
            continue
        text = value[2].strip()
        match value[1]:
            case "state":
                port.state = state_of(text, port.place, faults)
            case "phys state":
                physical = _PHYSICAL.fullmatch(text)
                if physical is not None:
                    port.attributes[PHYSICAL_STATE] = physical[1]
            case "rate":
                port.rate_bits_per_s = rate_of(text, port.place, faults)
            case "link_layer":
                port.link_layer = link_layer_of(text)
            case "default gid":
                port.attributes["ibstatus.gid"] = text[:60]
    if port is not None:
        yield _closed(port)


def _closed(port: ListedPort) -> ListedPort:
    port.complete = port.state is not None and port.rate_bits_per_s is not None
    gid = port.attributes.pop("ibstatus.gid", "")
    # The default address of an InfiniBand port ends in its GUID; that of an Ethernet port in its MAC address.
    guid = guid_of(gid[-19:]) if port.link_layer == "InfiniBand" else None
    if guid is not None:
        port.attributes[PORT_GUID] = guid
    return port


READER = Reader("ibstatus", "ibstatus", _recognise, read)
NETDEV_READER = Reader("ibdev2netdev", "ibdev2netdev", _recognise_netdev, read_netdev)

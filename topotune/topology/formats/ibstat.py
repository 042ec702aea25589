"""``ibstat``: the RDMA devices of a host and their ports, as InfiniBand's diagnostics list them."""

import re
from collections.abc import Iterator, Sequence

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.rdma_ports import (
    DEVICE,
    IMAGE_GUID,
    NODE_GUID,
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
from topotune.topology.formats.spelling import whole

_CA = re.compile(rf"^[ \t>]{{0,40}}CA:? '({DEVICE})'[ \t]*$", re.MULTILINE)
"""With a colon where one port was asked for: ``ibstat mlx5_0 1``."""
_PORT = re.compile(r"[ \t>]{0,40}Port ([0-9]{1,3}):[ \t]*")
_VALUE = re.compile(r"[ \t>]{0,40}([A-Z][A-Za-z ]{1,30}): ?(.{0,200})")
_PANIC = re.compile(r"[ \t>]{0,40}(ibpanic: .{1,200})")
_GUIDS = {"Node GUID": NODE_GUID, "System image GUID": IMAGE_GUID}
_WORD = re.compile(r"[\w.+/-]{1,60}")


def _recognise(text: str) -> bool:
    return _CA.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The output of the command → what it proves.

    Raises:
        InputFileError: no device in it, one port twice with different statements, or more than 16,384.
    """
    faults = Faults()
    lines = lines_of(text, source)
    vertices = nic_vertices(_ports(lines, faults), source, faults)
    if not vertices:
        said = faults.warnings()
        raise InputFileError(source, said[0] if said else "holds no line such as: CA 'mlx5_0'")
    return Reading(vertices=vertices, warnings=faults.warnings())


def _ports(lines: Sequence[str], faults: Faults) -> Iterator[ListedPort]:
    device: str | None = None
    shared: dict[str, str] = {}
    stated, shown_ports = 0, 0
    port: ListedPort | None = None
    for number, line in enumerate([*lines, "CA 'end'"], start=1):
        ca = _CA.fullmatch(line)
        if ca is not None:
            if port is not None:
                yield _closed(port, shared)
            if device is not None and shown_ports < stated:
                faults.add("ports of which the file does not say anything, as if it were cut", device)
            device, shared, stated, shown_ports, port = ca[1], {}, 1, 0, None
            continue
        panic = _PANIC.fullmatch(line)
        if panic is not None:
            faults.add(f"the output ends with an error of the tool: {panic[1]}")
            device = None if shown_ports >= stated else device
            continue
        if device is None:
            continue
        start = _PORT.fullmatch(line)
        if start is not None:
            if port is not None:
                yield _closed(port, shared)
            port = ListedPort(device, int(start[1]), number)
            shown_ports += 1
            continue
        value = _VALUE.fullmatch(line)
        if value is None:
            continue
        key, text = value[1].strip(), value[2].strip()
        if port is not None:
            _port_value(port, key, text, faults)
        elif key == "Number of ports":
            stated = whole(text, 255) or 0
        else:
            shared[key] = text


def _port_value(port: ListedPort, key: str, text: str, faults: Faults) -> None:
    match key:
        case "State":
            port.state = state_of(text, port.place, faults)
        case "Physical state":
            if _WORD.fullmatch(text):
                port.attributes[PHYSICAL_STATE] = text
        case "Rate":
            port.rate_bits_per_s = rate_of(text, port.place, faults)
        case "Port GUID":
            guid = guid_of(text)
            if guid is not None:
                port.attributes[PORT_GUID] = guid
        case "Link layer":
            port.link_layer = link_layer_of(text)
            if port.link_layer is None:
                faults.add("left out, no link layer", f"{port.place}: {shown(text)}")


def _closed(port: ListedPort, shared: dict[str, str]) -> ListedPort:
    port.complete = port.state is not None and port.rate_bits_per_s is not None
    model = shared.get("CA type", "")
    port.model = model if _WORD.fullmatch(model) else None
    firmware = shared.get("Firmware version", "")
    if _WORD.fullmatch(firmware):
        port.attributes["ib.firmware"] = firmware
    for key, name in _GUIDS.items():
        guid = guid_of(shared.get(key, ""))
        if guid is not None:
            port.attributes[name] = guid
    return port


READER = Reader("ibstat", "ibstat", _recognise, read)

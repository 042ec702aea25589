"""``/sys/class/infiniband``, flattened: one attribute a line, as path, tab, content.

``grep -rH . /sys/class/infiniband/*/`` gives the same with a colon, and is read as well. Counters are kept as
they stand: whether a port lost packets or its link is what a health check asks first.
"""

import re
from typing import Final

from topotune.errors import InputFileError
from topotune.probe.faults import Faults
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.rdma_ports import (
    DEVICE,
    IMAGE_GUID,
    MAX_PORTS,
    NODE_GUID,
    PHYSICAL_STATE,
    ListedPort,
    guid_of,
    link_layer_of,
    nic_vertices,
    rate_of,
    state_of,
)
from topotune.topology.formats.reading import Reader, Reading

COUNTER: Final = "ib.counter."
"""Start of the attributes of a NIC that are counters of its port: ``ib.counter.symbol_error``."""

_PATH: Final = rf"(?:[\w./-]{{0,200}}infiniband/|\./)?({DEVICE})"
_PORT_LINE = re.compile(
    rf"^{_PATH}/ports/([0-9]{{1,3}})/(?:state|rate|phys_state|link_layer)(?:\t|:)[^\n]{{1,100}}$",
    re.MULTILINE,
)
_LINE = re.compile(
    rf"{_PATH}/(?:ports/([0-9]{{1,3}})/)?((?:hw_)?counters/)?([a-z][a-z0-9_]{{1,60}})(?:\t|:)(.{{0,400}})"
)
_WORD = re.compile(r"[\w.+/-]{1,60}")
_COUNT = re.compile(r"[0-9]{1,20}")
_PHYSICAL = re.compile(r"[0-9]{1,3}: ?([\w.+/-]{1,60})")
_MAX_COUNTERS = 100
_OF_DEVICE: Final = {"fw_ver": "ib.firmware", "board_id": "ib.board_id"}
_GUIDS: Final = {"node_guid": NODE_GUID, "sys_image_guid": IMAGE_GUID}


def _recognise(text: str) -> bool:
    return _PORT_LINE.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The attributes of a host's RDMA devices → what they prove.

    Raises:
        InputFileError: no attribute of a port in it, one twice with different content, or more than 16,384
            ports.
    """
    faults = Faults()
    ports: dict[tuple[str, int], ListedPort] = {}
    shared: dict[str, dict[str, str]] = {}
    seen: dict[tuple[str, str | None, str], tuple[str, int]] = {}
    for number, line in enumerate(lines_of(text, source), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            if line.strip():
                faults.add("left out, lines that are no attribute: path, tab, content", f"line {number}")
            continue
        device, port, counters, name, content = match.groups()
        content = content.strip()
        key = (device, port, f"{counters or ''}{name}")
        before = seen.setdefault(key, (content, number))
        if before[0] != content:
            raise InputFileError(
                source,
                f"says {key[2]} of {device} twice: {content[:60]!r} here and {before[0][:60]!r} in line "
                f"{before[1]}",
                place=f"line {number}",
                hint="trees of two nodes, or of two times, need a file each: import a=FILE b=FILE",
            )
        if port is None:
            shared.setdefault(device, {})[name] = content
            continue
        listed = ports.setdefault((device, int(port)), ListedPort(device, int(port), number))
        if len(ports) > MAX_PORTS:
            raise InputFileError(source, f"has more than {MAX_PORTS} ports", place=f"line {number}")
        if counters:
            _count(listed, name, content, faults)
        else:
            _port_value(listed, name, content, faults)
    if not ports:
        raise InputFileError(source, "holds no line such as: mlx5_0/ports/1/state, a tab, 4: ACTIVE")
    for device in sorted(shared.keys() - {device for device, _ in ports}):
        faults.add("left out, devices of which no port is described", device)
    for (device, _), listed in ports.items():
        _close(listed, shared.get(device, {}))
    return Reading(
        vertices=nic_vertices(ports.values(), source, faults),
        facts={"sysfs_attributes": len(seen)},
        warnings=faults.warnings(),
    )


def _port_value(port: ListedPort, name: str, content: str, faults: Faults) -> None:
    match name:
        case "state":
            port.state = state_of(content, port.place, faults)
        case "rate":
            port.rate_bits_per_s = rate_of(content, port.place, faults)
        case "phys_state":
            physical = _PHYSICAL.fullmatch(content)
            if physical is not None:
                port.attributes[PHYSICAL_STATE] = physical[1]
        case "link_layer":
            port.link_layer = link_layer_of(content)


def _count(port: ListedPort, name: str, content: str, faults: Faults) -> None:
    if not _COUNT.fullmatch(content):
        faults.add("left out, counters that are no numbers", f"{port.place}: {name}")
    elif len(port.attributes) < _MAX_COUNTERS:
        port.attributes[f"{COUNTER}{name}"] = content


def _close(port: ListedPort, shared: dict[str, str]) -> None:
    port.complete = port.state is not None and port.rate_bits_per_s is not None
    port.model = _word(shared, "hca_type")
    for key, name in _OF_DEVICE.items():
        word = _word(shared, key)
        if word is not None:
            port.attributes[name] = word
    for key, name in _GUIDS.items():
        guid = guid_of(shared.get(key, ""))
        if guid is not None:
            port.attributes[name] = guid


def _word(shared: dict[str, str], key: str) -> str | None:
    word = shared.get(key, "")
    return word if _WORD.fullmatch(word) else None


READER = Reader("sysfs-infiniband", "/sys/class/infiniband, one attribute a line", _recognise, read)

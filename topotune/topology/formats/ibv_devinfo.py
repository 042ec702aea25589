"""``ibv_devinfo``, plain or ``-v``: the RDMA devices of a host and their ports, as programs see them."""

import re
from collections.abc import Iterator, Sequence

from topotune.errors import InputFileError
from topotune.probe.faults import Faults
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.rdma_ports import (
    DEVICE,
    IMAGE_GUID,
    NODE_GUID,
    ListedPort,
    guid_of,
    link_layer_of,
    nic_vertices,
    state_of,
)
from topotune.topology.formats.reading import Reader, Reading
from topotune.topology.formats.spelling import whole

_DEVICE = re.compile(rf"^[ \t>]{{0,40}}hca_id:[ \t]{{1,40}}({DEVICE})[ \t]*$", re.MULTILINE)
_VALUE = re.compile(r"[ \t>]{0,40}([a-z_]{2,40}):[ \t]{0,60}(.{0,200})")
_NUMBERED = re.compile(r"([0-9]{1,6}) \([0-9]{1,3}\)")
_LANES = re.compile(r"([0-9]{1,2})X \([0-9]{1,3}\)")
_LANE_RATE = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,2})?) Gbps \([0-9]{1,5}\)")
_WORD = re.compile(r"[\w.+/-]{1,60}")
_MELLANOX = 0x02C9


def _recognise(text: str) -> bool:
    return _DEVICE.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The output of the command → what it proves.

    Raises:
        InputFileError: no device in it, one port twice with different statements, or more than 16,384.
    """
    faults = Faults()
    vertices = nic_vertices(_ports(lines_of(text, source), faults), source, faults)
    if not vertices:
        said = faults.warnings()
        raise InputFileError(source, said[0] if said else "holds no line such as: hca_id: mlx5_0")
    return Reading(vertices=vertices, warnings=faults.warnings())


def _ports(lines: Sequence[str], faults: Faults) -> Iterator[ListedPort]:
    device: str | None = None
    shared: dict[str, str] = {}
    own: dict[str, str] = {}
    port: ListedPort | None = None
    num_shown = 0
    for number, line in enumerate([*lines, "hca_id: end"], start=1):
        start, value = _DEVICE.fullmatch(line), _VALUE.fullmatch(line)
        if port is not None and (start is not None or (value is not None and value[1] == "port")):
            yield _closed(port, shared, own, faults)
            port = None
        if start is not None:
            if device is not None and num_shown < (whole(shared.get("phys_port_cnt", ""), 255) or 1):
                faults.add("ports of which the file does not say anything, as if it were cut", device)
            device, shared, num_shown = start[1], {}, 0
        elif device is not None and value is not None:
            key, text = value[1], value[2].strip()
            if key == "port" and (number_of_port := whole(text, 255)) is not None:
                port, own = ListedPort(device, number_of_port, number), {}
                num_shown += 1
            elif port is not None:
                own.setdefault(key, text)
            else:
                shared.setdefault(key, text)


def _closed(port: ListedPort, shared: dict[str, str], own: dict[str, str], faults: Faults) -> ListedPort:
    if "state" in own:
        port.state = state_of(own["state"], port.place, faults)
    port.complete = port.state is not None
    port.link_layer = link_layer_of(own.get("link_layer", ""))
    lanes, rate = (
        _LANES.fullmatch(own.get("active_width", "")),
        _LANE_RATE.fullmatch(own.get("active_speed", "")),
    )
    if lanes is not None and rate is not None:
        port.rate_bits_per_s = int(lanes[1]) * float(rate[1]) * 1e9 or None
    mtu = _NUMBERED.fullmatch(own.get("active_mtu", ""))
    if mtu is not None:
        port.attributes["ib.active_mtu"] = mtu[1]
    for key, name in (("node_guid", NODE_GUID), ("sys_image_guid", IMAGE_GUID)):
        guid = guid_of(shared.get(key, ""))
        if guid is not None:
            port.attributes[name] = guid
    if _WORD.fullmatch(shared.get("fw_ver", "")):
        port.attributes["ib.firmware"] = shared["fw_ver"]
    part = whole(shared.get("vendor_part_id", ""), 65_535)
    # Mellanox' drivers call a device by its part number, and so do ibstat and sysfs.
    if part is not None and _hexadecimal(shared.get("vendor_id", "")) == _MELLANOX:
        port.model = f"MT{part}"
    return port


def _hexadecimal(text: str) -> int | None:
    match = re.fullmatch(r"0x([0-9a-fA-F]{1,8})", text)
    return None if match is None else int(match[1], 16)


READER = Reader("ibv-devinfo", "ibv_devinfo", _recognise, read)

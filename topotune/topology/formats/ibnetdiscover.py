"""``ibnetdiscover``, plain and ``-p``, and ibsim's files, which look the same: a whole InfiniBand fabric.

Plain, each device has a block: a line of its own, then one for each port that leads somewhere, with what it
leads to. With ``-p`` each port has one line with both ends, or one end where it leads nowhere.
"""

import re

from topotune.errors import InputFileError
from topotune.probe.faults import Faults
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.ib_fabric import IbFabric, note_rate, rate_of_width_and_speed
from topotune.topology.formats.rdma_ports import guid_of
from topotune.topology.formats.reading import Reader, Reading

_DEVICE = re.compile(
    r'^(Switch|Ca|Hca|Rt)[ \t]{1,20}([0-9]{1,3})[ \t]{1,20}"([^"\n]{1,100})"'
    r'(?:[ \t]{0,40}#[ \t]{0,20}"([^"\n]{0,300})")?[^\n]{0,200}$',
    re.MULTILINE,
)
_PORT = re.compile(
    r"\[([0-9]{1,3})\](?:\[ext [0-9]{1,3}\])?(?:\(([0-9a-fA-F]{1,16})\))?[ \t]{1,20}"
    r'"([^"]{1,100})"\[([0-9]{1,3})\](?:\[ext [0-9]{1,3}\])?(?:\(([0-9a-fA-F]{1,16})\))?(.{0,600})'
)
_QUOTED = re.compile(r'"([^"]{0,300})"')
_RATE = re.compile(r"[ \t]([0-9]{1,2})x([A-Z]{3}[0-9]{0,2}|\?\?\?)(?=[ \t]|$)")
_ID = re.compile(r"([SHR])-([0-9a-fA-F]{1,16})")
_LINE = re.compile(
    r"^(CA|SW|RT)[ \t]{1,20}([0-9]{1,6})[ \t]{1,20}([0-9]{1,3})[ \t]{1,20}(0x[0-9a-f]{1,16})[ \t]{1,20}"
    r"([0-9]{1,2})x[ \t]{1,20}(\S{1,8})[ \t]{1,60}"
    r"(?:-[ \t]{1,20}(CA|SW|RT)[ \t]{1,20}([0-9]{1,6})[ \t]{1,20}([0-9]{1,3})[ \t]{1,20}"
    r"(0x[0-9a-f]{1,16})[ \t]{1,20}"
    r"\([ \t]{0,20}'([^\n]{0,200}?)' - '([^\n]{0,200}?)'[ \t]{0,20}\)|'([^\n]{0,200})')[ \t]*$",
    re.MULTILINE,
)


def _recognise(text: str) -> bool:
    return _DEVICE.search(text) is not None or _LINE.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The output of the command, whole or in part → what it proves.

    Raises:
        InputFileError: no device in it, or too many of them or of their cables.
    """
    faults = Faults()
    fabric = IbFabric(source, faults)
    here: str | None = None
    for number, line in enumerate(lines_of(text, source), start=1):
        place = f"line {number}"
        device = _DEVICE.fullmatch(line)
        if device is not None:
            here = _device(fabric, device[3], device[1] == "Switch", device[4] or "")
        elif line.startswith("["):
            port = _PORT.fullmatch(line.rstrip())
            if port is None or here is None:
                faults.add("left out, a line that ends early or has no device above it", place)
            else:
                _port(fabric, here, port, place)
        elif line[:2] in ("CA", "SW", "RT"):
            both = _LINE.fullmatch(line)
            if both is None:
                faults.add("left out, a line that ends early or has no device above it", place)
            else:
                _one_line(fabric, both, place)
    if not len(fabric):
        raise InputFileError(source, 'holds no line such as: Switch 41 "S-0011223344556677" # "name"')
    return fabric.reading()


def _device(fabric: IbFabric, name: str, is_switch: bool, description: str) -> str:
    """A device by ``S-`` or ``H-`` and its GUID, or by a name as ibsim has it."""
    match = _ID.fullmatch(name)
    guid = None if match is None else guid_of(match[2])
    known = description or ("" if match is not None else name if is_switch else f"{name} HCA-1")
    return fabric.device(guid or name, is_switch=is_switch, description=known, guid=guid)


def _port(fabric: IbFabric, here: str, port: re.Match[str], place: str) -> None:
    number, own_guid, name, other_number, other_guid, tail = port.groups()
    quoted = _QUOTED.search(tail)
    match = _ID.fullmatch(name)
    is_switch = match[1] == "S" if match is not None else name.lower().startswith("sw")
    there = _device(fabric, name, is_switch, quoted[1] if quoted and match is not None else "")
    rates = _RATE.findall(_QUOTED.sub("", tail))
    width, speed = rates[-1] if rates else ("", "")
    rate = rate_of_width_and_speed(width, speed)
    note_rate(rate, width, speed, place, fabric.faults)
    own, other = (here, int(number)), (there, int(other_number))
    fabric.port_guid(own, guid_of(own_guid or ""))
    fabric.port_guid(other, guid_of(other_guid or ""))
    fabric.cable(own, other, rate, place)


def _one_line(fabric: IbFabric, line: re.Match[str], place: str) -> None:
    kind, _, number, guid, width, speed, other_kind, _, other_number, other_guid, a, b, alone = line.groups()
    key = _port_device(fabric, kind, guid, a if alone is None else alone)
    if alone is not None:
        fabric.idle_port(key)
        return
    there = _port_device(fabric, other_kind, other_guid, b)
    rate = rate_of_width_and_speed(width, speed)
    note_rate(rate, width, speed, place, fabric.faults)
    for end_kind, end, end_guid in (
        (kind, (key, int(number)), guid),
        (other_kind, (there, int(other_number)), other_guid),
    ):
        if end_kind != "SW":
            fabric.port_guid(end, guid_of(end_guid))
    fabric.cable((key, int(number)), (there, int(other_number)), rate, place)


def _port_device(fabric: IbFabric, kind: str, guid: str, description: str) -> str:
    """The GUID of a line is the port's; a switch has one for all its ports."""
    is_switch = kind == "SW"
    known = guid_of(guid)
    return fabric.device(
        known or guid, is_switch=is_switch, description=description, guid=known if is_switch else None
    )


READER = Reader("ibnetdiscover", "ibnetdiscover, ibsim", _recognise, read)

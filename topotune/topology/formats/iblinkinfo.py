"""``iblinkinfo``: every port of an InfiniBand fabric, its rate, and what it leads to.

In its usual form a heading says of a block of ports whether they are of a switch or an adapter. With
``--line`` each port stands by itself, and only numbers tell: no adapter has a fifth port.

Speeds are those of the signal on one lane: 53.125 Gbit/s and four lanes are HDR, 200 Gbit/s of data. Peers
are told by local identifiers (LIDs), which a device states in its own block.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError
from topotune.probe.faults import Faults
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.ib_fabric import IbFabric, Rate, note_rate, rate_of_width_and_speed
from topotune.topology.formats.rdma_ports import guid_of
from topotune.topology.formats.reading import Reader, Reading

_BLOCK = re.compile(r"^(CA|Switch|Router): (?:(0x[0-9a-f]{1,16}) )?([^\n]{1,300}?):[ \t]*$", re.MULTILINE)
_LINE = re.compile(
    r'[ \t]{0,40}(?:(0x[0-9a-f]{1,16})[ \t]{1,40})?(?:"([^"]{0,300})"[ \t]{1,40})?([0-9]{1,6})[ \t]{1,20}'
    r"([0-9]{1,3})\[[^\]]{0,4}\][ \t]{1,4}==\([ \t]{0,40}(?:([0-9]{1,2})X[ \t]{1,20})?"
    r"(?:([0-9]{1,4}(?:\.[0-9]{1,5})?) Gbps[ \t]{1,20})?([A-Za-z]{2,20})/[ \t]{0,20}([A-Za-z]{2,30})"
    r"[^)]{0,80}\)==>[ \t]{1,40}(?:(0x[0-9a-f]{1,16})[ \t]{1,40})?(?:([0-9]{1,6})[ \t]{1,20}([0-9]{1,3}))?"
    r'[ \t]{0,20}\[[^\]]{0,4}\][ \t]{1,4}"([^"]{0,300})".{0,200}'
)


# The specification allows an adapter more, but none was made with over four (ConnectX-8: planes of one port).
_MAX_ADAPTER_PORT: Final = 2
_MIN_SWITCH_PORT: Final = 5


@dataclass(frozen=True, slots=True)
class _Block:
    """A device whose ports follow."""

    is_switch: bool
    guid: str | None
    description: str


@dataclass(frozen=True, slots=True)
class _PortLine:
    """One port: where it is, and what it leads to."""

    key: str
    lid: int
    port: int
    rate: Rate | None
    peer_guid: str | None
    peer: tuple[int, int]  # LID and port
    place: str


def _recognise(text: str) -> bool:
    return "==(" in text and ")==>" in text and ("Gbps" in text or _BLOCK.search(text) is not None)


def read(text: str, source: str) -> Reading:
    """The output of the command → what it proves.

    Raises:
        InputFileError: no port in it, or too many devices or cables.
    """
    faults = Faults()
    fabric = IbFabric(source, faults)
    lines: list[_PortLine] = []
    block: _Block | None = None
    alone: list[tuple[re.Match[str], str]] = []
    for number, line in enumerate(lines_of(text, source), start=1):
        found = _BLOCK.fullmatch(line)
        if found is not None:
            block = _Block(found[1] == "Switch", guid_of(found[2] or ""), found[3].strip())
        elif "==(" in line:
            match = _LINE.fullmatch(line)
            if match is None:
                faults.add("left out, a line that ends early", f"line {number}")
            elif block is None:
                alone.append((match, f"line {number}"))
            else:
                _take(fabric, lines, block, match, f"line {number}")
    for own, match, place in _blocks_of(alone, faults):
        _take(fabric, lines, own, match, place)
    if not len(fabric):
        raise InputFileError(
            source, "holds no block that starts with a line such as: Switch: 0x0011223344556677 NAME:"
        )
    by_lid = {port.lid: port.key for port in lines}
    for port in lines:
        _cable(fabric, port, by_lid)
    return fabric.reading()


def _blocks_of(
    alone: Sequence[tuple[re.Match[str], str]], faults: Faults
) -> Iterator[tuple[_Block, re.Match[str], str]]:
    """Lines without a heading, and what their own device is, by the numbers of the ports it has."""
    highest: dict[str, int] = defaultdict(int)
    for match, _ in alone:
        for guid, port in ((match[1], match[4]), (match[9], match[11])):
            known = guid_of(guid or "")
            if known is not None and port is not None:
                highest[known] = max(highest[known], int(port))
    for match, place in alone:
        guid = guid_of(match[1] or "")
        number = highest[guid] if guid is not None else 0
        if guid is None or match[2] is None or _MAX_ADAPTER_PORT < number < _MIN_SWITCH_PORT:
            faults.add("left out, ports of which nothing says whether they are of a switch", place)
            continue
        yield _Block(number >= _MIN_SWITCH_PORT, guid, match[2].strip()), match, place


def _take(fabric: IbFabric, lines: list[_PortLine], block: _Block, match: re.Match[str], place: str) -> None:
    guid, _, lid, port, width, speed, _, _, peer_guid, peer_lid, peer_port, _ = match.groups()
    known = block.guid or guid_of(guid or "")
    key = fabric.device(
        known or f"lid {lid}",
        is_switch=block.is_switch,
        description=block.description,
        guid=known if block.is_switch else None,
    )
    if not block.is_switch:
        fabric.port_guid((key, int(port)), known)
    if peer_lid is None:
        fabric.idle_port(key)
        return
    rate = rate_of_width_and_speed(width or "", speed or "")
    note_rate(rate, width or "", speed or "", place, fabric.faults)
    lines.append(_PortLine(key, int(lid), int(port), rate, peer_guid, (int(peer_lid), int(peer_port)), place))


def _cable(fabric: IbFabric, line: _PortLine, by_lid: dict[int, str]) -> None:
    lid, port = line.peer
    key = by_lid.get(lid) or guid_of(line.peer_guid or "")
    if key is None or key not in fabric:
        fabric.faults.add(
            "left out, links to a device that the file does not show", f"{line.place}: LID {lid}"
        )
        return
    fabric.cable((line.key, line.port), (key, port), line.rate, line.place)


READER = Reader("iblinkinfo", "iblinkinfo", _recognise, read)

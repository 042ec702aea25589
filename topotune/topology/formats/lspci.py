"""``lspci``, plain, ``-nn``, ``-v`` to ``-vvv``: PCI functions, their links and, with ``-vvv``, their tree.

Each function starts a line with its address, class and name; with ``-v`` indented lines follow. Which bridge
is above which follows from the buses that bridges say to be behind them. Of a link, ``LnkCap`` is what this
end can do; what both can do is the lesser of the two, and only what is below that is slow. Lines of LnkCap
and LnkSta below bare addresses, as greps leave them, are read as links of devices that may be anything.
"""

import re
from dataclasses import replace

from topotune.errors import InputFileError
from topotune.probe.faults import Faults
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.pci_listing import (
    PCI_IDS,
    ListedFunction,
    check_number,
    named_by,
    reading_of,
    vendor_of,
    with_ways,
)
from topotune.topology.formats.reading import Reader, Reading
from topotune.topology.formats.spelling import link_speed_gt_per_s, link_width, pci_address, whole

_CLASSES = {
    "3D controller": 0x0302,
    "VGA compatible controller": 0x0300,
    "Display controller": 0x0380,
    "Processing accelerators": 0x1200,
    "Ethernet controller": 0x0200,
    "Infiniband controller": 0x0207,
    "InfiniBand controller": 0x0207,
    "Network controller": 0x0280,
    "PCI bridge": 0x0604,
    "Bridge": 0x0680,
}
_ADDRESS = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_HEADER = re.compile(
    rf"^({_ADDRESS}) ([A-Z0-9][A-Za-z0-9 /(),.-]{{1,60}}?)(?: \[([0-9a-f]{{4}})\])?: ([^\n]{{1,300}})$",
    re.MULTILINE,
)
_BARE = re.compile(rf"^({_ADDRESS})[ \t]*\n[ \t]*Lnk(?:Cap|Sta):", re.MULTILINE)
_BARE_LINE = re.compile(rf"({_ADDRESS})[ \t]*")
_TAIL = re.compile(r"(?: \(rev [0-9a-f]{2}\)| \(prog-if [^()]{0,60}\)| \[[0-9a-f]{4}:[0-9a-f]{4}\])+$")
_LINK = re.compile(
    r"[ \t]*Lnk(Cap|Sta):[ \t]+(?:Port #[0-9]{1,5}, )?Speed ([^,\s]{1,20})[^,]{0,40}, Width (x[0-9]{1,3})"
)
_BUSES = re.compile(r"[ \t]*Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})\b")
_NUMA = re.compile(r"[ \t]*NUMA node: ([0-9]{1,5})[ \t]*")
_ROOT_PORT = re.compile(r"[ \t]*Capabilities: \[[0-9a-f]{2,3}\] Express \(v[0-9]\) Root Port\b")
_ACS = re.compile(r"[ \t]*ACSCtl:[ \t]+(.{1,120})")


def _recognise(text: str) -> bool:
    return _HEADER.search(text) is not None or _BARE.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The output of the command → what it proves.

    Raises:
        InputFileError: no function in it that matters, or one twice with different devices.
    """
    faults = Faults()
    functions: list[ListedFunction] = []
    buses: dict[str, tuple[int, int]] = {}
    roots: set[str] = set()
    acs: dict[str, bool] = {}
    here: ListedFunction | None = None
    for padded in lines_of(text, source):
        line = padded.rstrip()
        header = _HEADER.fullmatch(line)
        bare = None if header is not None else _BARE_LINE.fullmatch(line)
        if header is not None or bare is not None:
            here = _function(header) if header is not None else ListedFunction(_full(line.strip()))
            functions.append(here)
        elif here is not None and line[:1] in ("\t", " "):
            _take(here, line, faults)
            behind = _BUSES.match(line)
            if behind is not None and int(behind[2], 16):
                buses[here.address] = (int(behind[2], 16), int(behind[3], 16))
            elif _ROOT_PORT.match(line):
                roots.add(here.address)
            elif (control := _ACS.fullmatch(line)) is not None:
                acs[here.address] = "ReqRedir+" in control[1] or "CmpltRedir+" in control[1]
    if not functions:
        raise InputFileError(source, "holds no line such as: 17:00.0 3D controller: NVIDIA Corporation …")
    check_number(functions, source)
    with_ways(functions, buses, roots)
    for function in functions:
        if "rev ff" in function.name:
            faults.add("functions that do not answer (rev ff)", function.address)
    facts: dict[str, str | int | float | bool | None] = {}
    if acs:
        facts["pci_bridges_with_acs"] = len(acs)
        facts["pci_bridges_acs_redirects"] = sum(acs.values())
    return reading_of(functions, faults, source, facts)


def _full(text: str) -> str:
    address = pci_address(text)
    assert address is not None
    return address


def _function(header: re.Match[str]) -> ListedFunction:
    address, what, number, rest = header.groups()
    ids = PCI_IDS.findall(rest)
    vendor, device = (int(text, 16) for text in ids[-1]) if ids else (None, None)
    name = rest if "rev ff" in rest else named_by(_TAIL.sub("", rest).strip(), device)
    return ListedFunction(
        _full(address),
        name=name,
        pci_class=int(number, 16) if number else _CLASSES.get(what, 0),
        vendor=vendor if vendor is not None else vendor_of(name),
        device=device,
    )


def _take(here: ListedFunction, line: str, faults: Faults) -> None:
    link, numa = _LINK.match(line), _NUMA.fullmatch(line)
    if numa is not None:
        here.numa = whole(numa[1])
    elif link is not None:
        speed, width = link_speed_gt_per_s(link[2]), link_width(link[3])
        if speed is None and link[2].lower() != "unknown":
            faults.add("left out, no PCI Express rate", f"{here.address}: {link[2]}")
        if link[1] == "Cap":
            here.pcie = replace(here.pcie, max_speed_gt_per_s=speed, max_width=width)
        else:
            here.pcie = replace(here.pcie, speed_gt_per_s=speed, width=width)


READER = Reader("lspci", "lspci, -nn, -vvv", _recognise, read)

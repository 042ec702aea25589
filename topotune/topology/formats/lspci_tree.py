r"""``lspci -tv``: the PCI tree, drawn with characters.

A branch starts at a ``+`` and goes on, in the lines below, at the same column, to the last at ``\``. Along a
line, a function is followed by the buses behind it in brackets, and so is a bridge, or by its name, and so is
not. The name alone tells what a function is; where it does not, the function is left out.
"""

import re
from dataclasses import dataclass

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.probe.pci import AMD, NVIDIA
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.pci_listing import (
    MAX_DEPTH,
    PCI_IDS,
    ListedFunction,
    named_by,
    reading_of,
    vendor_of,
)
from topotune.topology.formats.reading import Reader, Reading

_START = re.compile(r"^[ \t>]{0,20}-(?:\+-)?\[(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}\]-", re.MULTILINE)
_ROOT = re.compile(r"\[(?:([0-9a-f]{4,8}):)?([0-9a-f]{2})\]")
_BUS = re.compile(r"\[([0-9a-f]{2})(?:-[0-9a-f]{2})?\]")
_DEVICE = re.compile(r"([0-9a-f]{2})\.([0-7])")
_NO_GPU = re.compile(r"Audio|USB|UCSI|Type-C|Bridge|Switch|Device [0-9a-f]{4}\b|Root|SATA|Memory|SMBus|Host")
_AMD_GPU = re.compile(r"Instinct|Radeon|Vega|Navi|Aldebaran|Arcturus|\bMI[0-9]{2,3}")
_NETWORK = re.compile(
    r"ConnectX|BlueField.*(?:network|ConnectX)|Ethernet|Infini[Bb]and"
    r"|Network (?:Controller|Adapter|Connection)|Elastic (?:Fabric|Network) Adapter"
    r"|\bMT(?:27|28|29|41|42|43)[0-9]{2,3}\b|Omni-Path HFI|NetXtreme"
)
_NVSWITCH = re.compile(r"NVSwitch")


def _recognise(text: str) -> bool:
    return _START.search(text) is not None


@dataclass(frozen=True, slots=True)
class _Bus:
    """Where in the tree a line is: a bus, and the bridges above it."""

    domain: str = "0000"
    bus: str | None = None
    host_bridge: str | None = None
    parents: tuple[str, ...] = ()


def read(text: str, source: str) -> Reading:
    """The output of the command → what it proves.

    Raises:
        InputFileError: no tree, none of its functions matters, or more than one machine's.
    """
    faults = Faults()
    functions: list[ListedFunction] = []
    columns: dict[int, _Bus] = {}
    inside = False
    for number, line in enumerate(lines_of(text, source), start=1):
        if _START.match(line):
            columns, inside = {}, True
            _line(line, line.index("-"), _Bus(), columns, functions, faults)
            continue
        column = len(line) - len(line.lstrip(" |\t>"))
        if not inside or line[column : column + 1] not in ("+", "\\"):
            inside = inside and not line.strip(" |\t")
            continue
        around = columns.get(column)
        if around is None:
            faults.add("left out, a branch that starts nowhere (were leading blanks lost?)", f"line {number}")
            continue
        for further in [other for other in columns if other > column]:
            del columns[further]
        _line(line, column, around, columns, functions, faults)
    if not functions:
        raise InputFileError(source, "holds no tree that starts with a line such as: -[0000:00]-+-00.0  NAME")
    return reading_of(functions, faults, source)


def _line(
    line: str, at: int, bus: _Bus, columns: dict[int, _Bus], functions: list[ListedFunction], faults: Faults
) -> None:
    """One line, from a column on."""
    function: ListedFunction | None = None
    while at < len(line):
        character = line[at]
        if character in "+\\":
            columns[at] = bus
        if character in "+\\-":
            at += 1
        elif bus.bus is None and (root := _ROOT.match(line, at)):
            domain = f"{int(root[1] or '0', 16):04x}"
            bus = _Bus(domain, root[2], f"pci{domain}:{root[2]}")
            at = root.end()
        elif function is not None and (behind := _BUS.match(line, at)):
            function.pci_class = 0x0604
            if len(bus.parents) >= MAX_DEPTH:
                faults.add(f"left out, what is below more than {MAX_DEPTH} bridges", function.address)
                return
            bus = _Bus(bus.domain, behind[1], bus.host_bridge, (*bus.parents, function.address))
            function, at = None, behind.end()
        elif bus.bus is not None and (device := _DEVICE.match(line, at)):
            address = f"{bus.domain}:{bus.bus}:{device[0]}"
            function = ListedFunction(address, host_bridge=bus.host_bridge, parents=bus.parents, pci_class=0)
            functions.append(function)
            at = device.end()
        else:
            if function is not None:
                _name(function, line[at:].strip()[:300], faults)
            return


def _name(function: ListedFunction, name: str, faults: Faults) -> None:
    if ids := PCI_IDS.findall(name):
        function.vendor, function.device = (int(text, 16) for text in ids[-1])
        name = named_by(PCI_IDS.sub("", name).strip(), function.device)
    function.name = name
    function.vendor = function.vendor or vendor_of(name)
    if _NVSWITCH.search(name) and function.vendor == NVIDIA:
        function.pci_class = 0x0680
    elif _NETWORK.search(name):
        function.pci_class = 0x0200
    elif function.vendor == NVIDIA and re.search(r"Device [0-9a-f]{4}\b", name):
        faults.add("left out, NVIDIA devices of which the name does not tell what they are", shown(name))
    elif (function.vendor == NVIDIA and not _NO_GPU.search(name)) or (
        function.vendor == AMD and _AMD_GPU.search(name) and not _NO_GPU.search(name)
    ):
        function.pci_class = 0x0302


READER = Reader("lspci-tree", "lspci -tv", _recognise, read)

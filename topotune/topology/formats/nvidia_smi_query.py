"""``nvidia-smi -q``: each GPU's PCI address, PCI Express link, UUID, memory, MIG, NVLink fabric; the driver.

The output is an outline: names and values around a colon, each level indented further; with ``-x`` the same
as XML. Of a link, the current rate of a GPU at rest is that of its power saving; ``Max`` is what both ends
can do.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.reading import THIS_NODE, Reader, Reading
from topotune.topology.formats.spelling import link_width, pci_address, whole
from topotune.topology.formats.xml_tree import Element, parse_xml
from topotune.topology.model import PERFORMANCE_STATE, PcieLink, Vertex
from topotune.topology.rates import pcie_speed_gt_per_s
from topotune.units import MIB

_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])[ \t]*$", re.MULTILINE)
_LOG = re.compile(r"^=+NVSMI LOG=+[ \t]*$", re.MULTILINE)
_ATTACHED = re.compile(r"^Attached GPUs[ \t]{0,60}:[ \t]*([0-9]{1,4})[ \t]*$", re.MULTILINE)
_DRIVER = re.compile(r"^Driver Version[ \t]{0,60}:[ \t]*([\w.]{1,40})[ \t]*$", re.MULTILINE)
_CUDA = re.compile(r"^CUDA Version[ \t]{0,60}:[ \t]*([\w.]{1,40})[ \t]*$", re.MULTILINE)
_MEMORY = re.compile(r"([0-9]{1,12}) MiB")
_STATE = re.compile(r"P[0-9]{1,2}")
_MAX_GPUS = 1_024
_MAX_KEYS = 4_096
_MAX_ELEMENTS = 100_000
_MAX_SLICES = 64
_FABRIC = ("State", "Status", "CliqueId", "ClusterUUID")
_XML = re.compile(r"<nvidia_smi_log(?=[\s>])")
_LINK = "PCI/GPU Link Info"
_OF_XML = {
    "product_name": "Product Name",
    "uuid": "GPU UUID",
    "performance_state": "Performance State",
    "mig_mode/current_mig": "MIG Mode/Current",
    "fb_memory_usage/total": "FB Memory Usage/Total",
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": f"{_LINK}/PCIe Generation/Current",
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": f"{_LINK}/PCIe Generation/Max",
    "pci/pci_gpu_link_info/link_widths/current_link_width": f"{_LINK}/Link Width/Current",
    "pci/pci_gpu_link_info/link_widths/max_link_width": f"{_LINK}/Link Width/Max",
    "fabric/state": "Fabric/State",
    "fabric/status": "Fabric/Status",
    "fabric/cliqueId": "Fabric/CliqueId",
    "fabric/clusterUuid": "Fabric/ClusterUUID",
}
"""Path of elements below a ``<gpu>`` → path of names in the outline."""


def _recognise(text: str) -> bool:
    return _XML.search(text) is not None or (
        _GPU.search(text) is not None
        and (_LOG.search(text) or "Product Name" in text or "PCI" in text) is not None
    )


@dataclass(slots=True)
class _Block:
    """One GPU's part of the outline: path of names (``PCI/GPU Link Info/…``) → value."""

    address: str
    values: dict[str, str] = field(default_factory=dict)
    slices: list[str] = field(default_factory=list)


def read(text: str, source: str) -> Reading:
    """The output of the command, whole or cut → what it proves.

    Raises:
        InputFileError: no GPU in it, one twice, or more than 1,024.
    """
    faults = Faults()
    if (start := _XML.search(text)) is not None:
        text, blocks = _outline_of_xml(text, start.start(), source, faults)
    else:
        blocks = list(_blocks(lines_of(text, source), source))
    if not blocks:
        raise InputFileError(
            source, "holds no GPU, whose part starts with a line such as: GPU 00000000:01:00.0"
        )
    attached = _ATTACHED.search(text)
    num_attached = int(attached[1]) if attached else None
    if num_attached is not None and num_attached > len(blocks):
        faults.add(
            f"{num_attached} GPUs are attached, {len(blocks)} are shown: the output was cut, or of some"
        )
    whole_list = num_attached == len(blocks)
    facts: dict[str, str | int | float | bool | None] = {}
    for name, pattern in (("nvidia_driver", _DRIVER), ("cuda_version", _CUDA)):
        match = pattern.search(text)
        if match is not None and match[1] != "N":
            facts[name] = match[1]
    vertices = tuple(
        _vertex(block, number if whole_list else None, faults) for number, block in enumerate(blocks)
    )
    return Reading(
        vertices=vertices,
        facts=facts,
        warnings=faults.warnings(),
        num_gpus=num_attached if whole_list else None,
    )


def _blocks(lines: Sequence[str], source: str) -> Iterator[_Block]:
    """One for each GPU; names above a value are those that are indented less."""
    block: _Block | None = None
    seen: set[str] = set()
    above: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        start = _GPU.fullmatch(line)
        if start is not None:
            if block is not None:
                yield block
            address = pci_address(start[1])
            assert address is not None
            if address in seen:
                raise InputFileError(source, f"shows the GPU {address} twice", place=f"line {number}")
            if len(seen) >= _MAX_GPUS:
                raise InputFileError(source, f"has more than {_MAX_GPUS} GPUs", place=f"line {number}")
            seen.add(address)
            block, above = _Block(address), []
            continue
        name = line.strip()
        if block is None or not name:
            continue
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            continue  # a line of something else between the parts
        while above and above[-1][0] >= indent:
            above.pop()
        key, colon, value = name.partition(" : ")
        key = key.strip()
        path = "/".join([*(each for _, each in above), key])
        if colon and len(block.values) < _MAX_KEYS:
            if key == "MIG Profile" and len(block.slices) < _MAX_SLICES:
                block.slices.append(value.strip()[:100])
            block.values.setdefault(path, value.strip()[:200])
        elif not colon and len(above) < 16:
            above.append((indent, key[:60]))
    if block is not None:
        yield block


def _outline_of_xml(text: str, start: int, source: str, faults: Faults) -> tuple[str, list[_Block]]:
    """What ``-x`` writes, as the lines at the head of the outline, and its parts.

    Raises:
        InputFileError: as `parse_xml`, a GPU without an address or one twice, or more than 1,024.
    """
    end = text.find("</nvidia_smi_log>", start)
    body = text[start:] if end < 0 else text[start : end + len("</nvidia_smi_log>")]
    tree = parse_xml(body, source, first_line=text.count("\n", 0, start) + 1, max_elements=_MAX_ELEMENTS)
    if tree.cut_at_line is not None:
        faults.add(f"the file ends early, in line {tree.cut_at_line}; what stands before was read")
    head = {child.name: child.text.strip() for child in tree.root.children if not child.children}
    lines = [
        f"{name} : {head[element]}"
        for element, name in (
            ("attached_gpus", "Attached GPUs"),
            ("driver_version", "Driver Version"),
            ("cuda_version", "CUDA Version"),
        )
        if element in head
    ]
    blocks: dict[str, _Block] = {}
    for child in tree.root.children:
        if child.name != "gpu":
            continue
        address = pci_address(child.attributes.get("id", ""))
        if address is None or address in blocks:
            what = "has no PCI address" if address is None else f"{address} is shown twice"
            raise InputFileError(source, f"a GPU {what}", place=f"line {child.line}")
        if len(blocks) >= _MAX_GPUS:
            raise InputFileError(source, f"has more than {_MAX_GPUS} GPUs", place=f"line {child.line}")
        blocks[address] = _Block(address)
        for path, value in _leaves(child):
            if path in _OF_XML:
                blocks[address].values.setdefault(_OF_XML[path], value[:200])
    return "\n".join(lines), list(blocks.values())


def _leaves(element: Element) -> Iterator[tuple[str, str]]:
    """Path and text of each element without children, below one."""
    for child in element.children:
        if child.children:
            yield from ((f"{child.name}/{path}", value) for path, value in _leaves(child))
        else:
            yield child.name, " ".join(child.text.split())


def _vertex(block: _Block, index: int | None, faults: Faults) -> Vertex:
    values = block.values
    mode = values.get("MIG Mode/Current")
    attributes = {
        f"nvidia-smi.fabric.{name}": values[f"Fabric/{name}"]
        for name in _FABRIC
        if values.get(f"Fabric/{name}", "N/A") != "N/A"
    }
    state = values.get("Performance State", "")
    if _STATE.fullmatch(state):
        attributes[PERFORMANCE_STATE] = state
    memory = _MEMORY.fullmatch(values.get("FB Memory Usage/Total", ""))
    return Vertex(
        id=f"gpu {block.address}",
        kind="gpu",
        node=THIS_NODE,
        index=index,
        pci_address=block.address,
        model=_known(values.get("Product Name")),
        memory_bytes=None if memory is None else int(memory[1]) * MIB,
        pcie=_pcie(block, faults),
        uuid=_known(values.get("GPU UUID")),
        mig={"Enabled": True, "Disabled": False}.get(mode or ""),
        mig_instances=tuple(block.slices) or None,
        attributes=attributes,
    )


def _pcie(block: _Block, faults: Faults) -> PcieLink | None:
    """Generations and widths; ``N/A`` of a virtual machine leaves them open."""
    figures = {}
    for field_name, path in (
        ("speed_gt_per_s", f"{_LINK}/PCIe Generation/Current"),
        ("max_speed_gt_per_s", f"{_LINK}/PCIe Generation/Max"),
    ):
        text = _known(block.values.get(path))
        generation = None if text is None else whole(text, 9)
        figures[field_name] = None if generation is None else pcie_speed_gt_per_s(generation)
        if text is not None and figures[field_name] is None:
            faults.add("left out, no PCI Express generation", f"{block.address}: {shown(text)}")
    widths = {
        field_name: link_width(block.values.get(f"{_LINK}/Link Width/{name}", ""))
        for field_name, name in (("width", "Current"), ("max_width", "Max"))
    }
    if not any([*figures.values(), *widths.values()]):
        return None
    return PcieLink(
        speed_gt_per_s=figures["speed_gt_per_s"],
        width=widths["width"],
        max_speed_gt_per_s=figures["max_speed_gt_per_s"],
        max_width=widths["max_width"],
    )


def _known(text: str | None) -> str | None:
    return None if text is None or text in ("", "N/A", "[N/A]", "Unknown Error", "[Unknown Error]") else text


READER = Reader("nvidia-smi-q", "nvidia-smi -q, -q -x", _recognise, read)

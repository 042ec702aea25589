"""``nvidia-smi nvlink -s`` and ``nvidia-smi -L``: each GPU's name, UUID, NVLinks and MIG slices."""

import re
from dataclasses import replace

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.reading import THIS_NODE, Reader, Reading
from topotune.topology.model import NvlinkPort, Vertex

_GPU = re.compile(
    r"^[ \t>]*GPU ([0-9]{1,4}): ([^\n(]{1,100}?) \(UUID: ([^)\n]{1,100})\)[ \t]*$", re.MULTILINE
)
_LINK = re.compile(
    r"[ \t>]*Link ([0-9]{1,3}): (?:([0-9]{1,5}(?:\.[0-9]{1,6})?) GB/s|<?(inactive|N/A)>?)[ \t]*", re.I
)
_NO_LINKS = re.compile(r".*(?:all links are in-?active|NVLinks? (?:is|are) (?:not supported|inactive))", re.I)
_SLICE = re.compile(
    r"[ \t>]*MIG ([\w.+]{1,40})\s{1,20}Device\s{1,10}[0-9]{1,3}: \(UUID: [^)\n]{1,100}\)[ \t]*"
)
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,50}")
_MAX_GPUS = 1_024
_MAX_LINKS = 64


def _recognise(text: str) -> bool:
    return _GPU.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The output of the command → what it proves.

    Raises:
        InputFileError: no GPU in it, one twice with different statements, or more than 1,024.
    """
    faults = Faults()
    gpus: dict[int, Vertex] = {}
    here: Vertex | None = None
    for number, line in enumerate(lines_of(text, source), start=1):
        found = _GPU.fullmatch(line)
        if found is not None:
            here = _gpu(found)
            assert here.index is not None
            known = gpus.get(here.index)
            if known is not None and None not in (known.uuid, here.uuid) and known.uuid != here.uuid:
                raise InputFileError(
                    source,
                    f"GPU {here.index} has two UUIDs: {known.uuid}, {here.uuid}",
                    place=f"line {number}",
                )
            if len(gpus) >= _MAX_GPUS:
                raise InputFileError(source, f"has more than {_MAX_GPUS} GPUs", place=f"line {number}")
            here = here if known is None else known
            gpus[here.index if here.index is not None else 0] = here
        elif here is not None and here.index is not None:
            here = gpus[here.index] = _with_line(here, line, number, faults)
    if not gpus:
        raise InputFileError(source, "holds no line such as: GPU 0: NAME (UUID: …)")
    return Reading(vertices=tuple(gpus.values()), warnings=faults.warnings())


def _gpu(found: re.Match[str]) -> Vertex:
    uuid = found[3].strip()
    return Vertex(
        id=f"gpu{int(found[1])}",
        kind="gpu",
        node=THIS_NODE,
        index=int(found[1]),
        model=found[2].strip(),
        uuid=uuid if _UUID.fullmatch(uuid) else None,
    )


def _with_line(gpu: Vertex, line: str, number: int, faults: Faults) -> Vertex:
    """A GPU with what one of the lines below its own says."""
    link = _LINK.fullmatch(line)
    if link is not None:
        ports = gpu.nvlink_ports or ()
        rate = float(link[2]) * 1e9 if link[2] else 0.0
        port = NvlinkPort(link=int(link[1]), active=rate > 0, bandwidth_bytes_per_s=rate or None)
        if any(other.link == port.link for other in ports):
            if port not in ports:
                faults.add("left out, a second statement on a link", f"line {number}: {shown(line.strip())}")
            return gpu
        if len(ports) >= _MAX_LINKS:
            faults.add(f"left out, links beyond {_MAX_LINKS} of one GPU", f"line {number}")
            return gpu
        return replace(gpu, nvlink_ports=(*ports, port))
    if _NO_LINKS.match(line[:300]):
        return replace(gpu, nvlink_ports=gpu.nvlink_ports or ())
    mig = _SLICE.fullmatch(line)
    if mig is not None:
        return replace(gpu, mig=True, mig_instances=(*(gpu.mig_instances or ()), mig[1])[:_MAX_LINKS])
    return gpu


READER = Reader("nvidia-smi-nvlink", "nvidia-smi nvlink -s, nvidia-smi -L", _recognise, read)

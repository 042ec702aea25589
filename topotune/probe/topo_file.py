"""Whether the topology file that NCCL is told to use is of this machine.

NCCL believes the file over what the kernel says: an adapter with the wrong name is lost, one with the wrong
speed is used at that. Devices that the file does not name NCCL finds by itself; that is no fault.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from topotune.errors import InputFileError
from topotune.probe.tree import Tree
from topotune.topology.model import Vertex

_MAX_BYTES: Final = 4 * 2**20
_MOST_SAID: Final = 4
_KINDS: Final = {"gpu": "GPU", "nic": "network adapter"}


def topo_file_fault(tree: Tree, path: str, devices: Sequence[Vertex]) -> str | None:
    """What is wrong with the file, in words; None where nothing is.

    Args:
        tree: of the machine.
        path: of the file, as NCCL is told it; a relative one is looked for by nobody here.
        devices: GPUs and network adapters of the machine.
    """
    from topotune.topology.formats.nccl_xml import read

    if not path.startswith("/"):
        return None
    text = tree.text(path.lstrip("/"), max_bytes=_MAX_BYTES)
    if text is None:
        return "it is not there, or cannot be read"
    try:
        named = read(text, path).vertices
    except InputFileError as problem:
        return f"NCCL cannot use it: {problem.message}"
    found = list(_differences(named, devices))
    more = f" and {len(found) - _MOST_SAID} more" if len(found) > _MOST_SAID else ""
    return "; ".join(found[:_MOST_SAID]) + more or None


def _differences(named: Sequence[Vertex], devices: Sequence[Vertex]) -> Iterator[str]:
    addresses = {vertex.pci_address for vertex in devices if vertex.pci_address is not None}
    # The RDMA device is what NCCL knows an adapter by, or its interface.
    speeds = {
        name: vertex.speed
        for vertex in devices
        if vertex.kind == "nic"
        for name in (vertex.rdma_device, vertex.name)
        if name is not None
    }
    for vertex in named:
        if vertex.kind not in _KINDS:
            continue
        if vertex.pci_address is not None and vertex.pci_address not in addresses:
            yield f"no {_KINDS[vertex.kind]} is at {vertex.pci_address}, where it names one"
        elif vertex.kind == "nic" and vertex.name is not None and vertex.name not in speeds:
            yield f"no network adapter is called {vertex.name!r:.60}"
        elif vertex.kind == "nic" and vertex.name is not None and vertex.speed is not None:
            here = speeds[vertex.name]
            if here and abs(vertex.speed / here - 1) > 0.1:
                yield f"{vertex.name} has {here / 1e9:g} Gbit/s, the file says {vertex.speed / 1e9:g}"

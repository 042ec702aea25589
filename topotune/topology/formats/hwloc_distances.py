"""hwloc's matrices between GPUs: bandwidth of NVLinks, hops of xGMI.

A matrix names objects by type and number: a GPU by one of its OS devices or its PCI function, NVSwitches by
their PCI functions, processors of POWER machines by their sockets. Figures are MB/s in one direction, all
links between two objects together. What ROCm's library says of xGMI bandwidth is one constant for all pairs,
and so is left out; that the links are there is not.
"""

from itertools import combinations

from topotune.probe.faults import Faults
from topotune.topology.formats.hwloc_objects import MachineObjects, words_of
from topotune.topology.formats.spelling import whole
from topotune.topology.formats.xml_tree import Element
from topotune.topology.model import Link, Pair, Vertex

_MAX_OBJECTS = 512
_MB = 1e6
# By the GPU's name: MB/s of one NVLink in one direction, as hwloc reckons.
_LINK_MB_PER_S = {
    "P100": 20_000, "V100": 25_000, "A100": 25_000, "A800": 25_000,
    "H100": 25_000, "H800": 25_000, "H200": 25_000,
}  # fmt: skip
_MATRICES = ("NVLinkBandwidth", "XGMIHops", "XGMIBandwidth")


def nvlinks_and_pairs(
    root: Element, objects: MachineObjects, vertices: tuple[Vertex, ...], faults: Faults
) -> tuple[tuple[Link, ...], tuple[Pair, ...]]:
    """What the matrices of a file say of its devices."""
    at = {vertex.pci_address: vertex for vertex in vertices if vertex.pci_address and vertex.kind != "nic"}
    sockets = {vertex.index: vertex for vertex in vertices if vertex.kind == "cpu"}
    links: dict[tuple[str, str], Link] = {}
    pairs: dict[frozenset[str], Pair] = {}
    found: set[str] = set()
    for element in root.children:
        name = element.attributes.get("name", "")
        if not element.name.startswith("distances2") or name not in _MATRICES:
            continue
        matrix = _matrix(element, objects, at, sockets, faults)
        if matrix is None:
            continue
        found.add(name)
        ends, values = matrix
        for row, src in enumerate(ends):
            for column, dst in enumerate(ends):
                value = values[row * len(ends) + column]
                if src is None or dst is None or src.id == dst.id or not value:
                    continue
                if name == "NVLinkBandwidth":
                    links.setdefault((src.id, dst.id), _nvlink(src, dst, value))
                elif name == "XGMIHops" and value == 1:
                    pairs.setdefault(frozenset((src.id, dst.id)), Pair(a=src.id, b=dst.id, path="XGMI"))
    if "XGMIBandwidth" in found:
        faults.add("left out, bandwidth of xGMI, of which the driver says one figure for all pairs")
    kinds = {vertex.id: vertex.kind for vertex in vertices}
    joined = [src for src, dst in links if kinds[src] == kinds[dst] == "nvswitch"]
    if len({dst for _, dst in links if kinds[dst] == "nvswitch"}) > 1 and not joined:
        faults.add("NVLinks between NVSwitches are not in the file: GPUs may reach more than it shows")
    gpus = [vertex for vertex in vertices if vertex.kind == "gpu"]
    if len(gpus) > 1 and not found:
        faults.add("no NVLink matrix in the file, which is no proof that there is no NVLink")
    return tuple(links.values()), tuple(pairs.values())


def _nvlink(src: Vertex, dst: Vertex, mb_per_s: int) -> Link:
    model = " ".join(str(end.model) for end in (src, dst) if end.kind == "gpu")
    one = next((rate for name, rate in _LINK_MB_PER_S.items() if name in model), None)
    lanes = None if one is None or mb_per_s % one else mb_per_s // one
    return Link(src=src.id, dst=dst.id, kind="nvlink", lanes=lanes, bandwidth_bytes_per_s=mb_per_s * _MB)


def _matrix(
    element: Element,
    objects: MachineObjects,
    at: dict[str, Vertex],
    sockets: dict[int | None, Vertex],
    faults: Faults,
) -> tuple[list[Vertex | None], list[int]] | None:
    """Its objects as vertices, None for what is none here; and its values, row after row."""
    default = element.attributes.get("type", "")
    names = words_of(element, "indexes")
    values = [whole(word, 10**9) for word in words_of(element, "u64values")]
    number = len(names)
    if number > _MAX_OBJECTS or number * number != len(values) or None in values:
        faults.add("left out, a matrix that is not square", f"line {element.line}")
        return None
    ends: list[Vertex | None] = []
    for name in names:
        kind, colon, index = name.rpartition(":")
        place = objects.places.get((kind if colon else default, index))
        end = sockets.get(place) if isinstance(place, int) else at.get(place or "")
        if end is None:
            faults.add("left out, objects of a matrix that are no GPU, NVSwitch or socket", name[:60])
        ends.append(end)
    known = [end.id for end in ends if end is not None]
    if any(a == b for a, b in combinations(known, 2)):
        faults.add("left out, a matrix that names one device twice", f"line {element.line}")
        return None
    return ends, [value or 0 for value in values]

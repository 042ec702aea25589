"""The devices of one node, gathered from several readings: the same device is one vertex.

A vertex is looked for among those that are there already, by what identifies its kind (a GPU: its UUID, PCI
address or number; a NIC: its name, or its PCI address where only one port has it). Found, the two are merged
field by field: what one leaves open the other fills in, and two different statements are refused with both
values. Nothing is matched by likeness. Two names of one thing are no contradiction: an RDMA device's own name
gives way to that of its network interface, and what the list of PCI identifiers calls a device to what its
driver calls it. One rule goes beyond what files say, and is told as a warning: GPUs of
which one file knows only PCI addresses and another only numbers are matched in the order of addresses, in
which the driver numbers them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from topotune.errors import InputFileError
from topotune.probe.faults import shown
from topotune.topology.formats.fabric_tree import STANDS_FOR
from topotune.topology.formats.rdma_ports import PORT_GUID
from topotune.topology.formats.reading import Reading
from topotune.topology.model import PcieLink, Vertex

TWO_NODES: Final = "leave one of them out; files of two nodes need the nodes' names: import a=FILE b=FILE"

_NOT_MERGED = {"id", "kind", "node", "attributes", "pcie"}
_VERTEX_FIELDS = tuple(each.name for each in fields(Vertex) if each.name not in _NOT_MERGED)
_PCIE_FIELDS = tuple(each.name for each in fields(PcieLink))
_NAMES = {
    "gpu": ("uuid", "pci_address", "index"),
    "nic": ("name", "rdma_device", "port_guid"),
    "numa": ("index",),
    "cpu": ("index",),
    "switch": ("guid", "name"),
}
_BY_ADDRESS = ("pci_address",)
PCI_NAME: Final = "pci.name"
"""Attribute: what the list of PCI identifiers, which lspci and hwloc go by, calls the device."""
_MAX_KEY = 256
_MAX_CANDIDATES = 64  # no card has so many ports
_SEEN_BY_ORDER = "GPU numbers were given to PCI addresses in ascending order, as the driver numbers them"


@dataclass(frozen=True, slots=True)
class Part:
    """One file's reading.

    Attributes:
        source: names the file in messages.
        node: as the user named the node, or None.
        format: the reader's name.
        reading: what the file proves.
    """

    source: str
    node: str | None
    format: str
    reading: Reading


def contradiction(part: Part, other: str, what: str, here: object, there: object) -> InputFileError:
    """Two files that say different things."""
    return InputFileError(
        part.source,
        f"contradicts {other}: {what} is {_value(here)} here and {_value(there)} there",
        hint=TWO_NODES,
    )


class Devices:
    """The devices of one node, or (``name`` None) what stands between nodes, as they are gathered."""

    def __init__(self, name: str | None) -> None:
        self.warnings: list[str] = []
        self._name = name
        self._vertices: dict[str, Vertex] = {}
        self._from: dict[str, str] = {}  # id -> the file that told of it first
        self._known: dict[tuple[str, str, Any], dict[str, None]] = defaultdict(dict)
        self._nic_sources: set[str] = set()
        self._repeats: Counter[str] = Counter()
        self._listed: tuple[int, str] | None = None  # number of GPUs, the file that lists them all

    def vertices(self) -> Iterable[Vertex]:
        """All of them, in the order in which files tell of them."""
        return self._vertices.values()

    def take(self, vertices: list[Vertex], part: Part) -> dict[str, str]:
        """Merge in one reading's vertices of this node; their ids → ids here."""
        vertices = self._numbered_by_order(vertices, part)
        final: dict[str, str] = {}
        taken: set[str] = set()
        nameless: list[str] = []
        for vertex in vertices:
            here = self._find(vertex, taken)
            if here is None:
                if self._is_nameless_twin(vertex, part):
                    nameless.append(vertex.id.rpartition("/")[2])
                    continue
                here = self._new_id(vertex)
                self._vertices[here] = replace(vertex, id=here)
                self._from[here] = part.source
                if vertex.kind == "nic":
                    self._nic_sources.add(part.source)
            else:
                self._vertices[here] = self._merged(self._vertices[here], vertex, part)
            final[vertex.id] = here
            taken.add(here)
        for here in final.values():  # only now: two vertices of one reading are two devices
            self._index(self._vertices[here])
        if nameless:
            self.warnings.append(
                f"{part.source}: left out, adapters whose names the file does not tell, as they may be any "
                f"of those of other files: {', '.join(nameless[:3])}" + (" …" if len(nameless) > 3 else "")
            )
        self._check_count(part)
        return final

    def _find(self, vertex: Vertex, taken: set[str]) -> str | None:
        """The one that is the same device, by the first name that both have."""
        for name in (*_NAMES.get(vertex.kind, ()), *_BY_ADDRESS):
            value = _identity(vertex, name)
            if value is None:
                continue
            known = self._known.get((vertex.kind, _space(vertex, name), value), {})
            if len(known) > _MAX_CANDIDATES:
                continue
            candidates = [here for here in known if here not in taken]
            if len(candidates) == 1:
                other = self._vertices[candidates[0]]
                if name in _BY_ADDRESS and vertex.kind == "nic" and None not in (other.name, vertex.name):
                    continue  # two ports of one card
                return candidates[0]
        return None

    def _index(self, vertex: Vertex) -> None:
        for name in dict.fromkeys((*_NAMES.get(vertex.kind, ()), *_BY_ADDRESS)):
            value = _identity(vertex, name)
            if value is not None:
                self._known[vertex.kind, _space(vertex, name), value][vertex.id] = None

    def _is_nameless_twin(self, vertex: Vertex, part: Part) -> bool:
        nameless = (
            vertex.kind == "nic"
            and STANDS_FOR not in vertex.attributes
            and all(_identity(vertex, name) is None for name in (*_NAMES["nic"], *_BY_ADDRESS))
        )
        return nameless and bool(self._nic_sources - {part.source})

    def _merged(self, known: Vertex, new: Vertex, part: Part) -> Vertex:
        changes: dict[str, Any] = {}
        for name in _VERTEX_FIELDS:
            before, now = getattr(known, name), getattr(new, name)
            if now is None or before == now:
                continue
            if before is None or _gives_way(name, known, new):
                changes[name] = now
            elif not _gives_way(name, new, known):
                raise self._differ(known, part, name, before, now)
        pcie = known.pcie or new.pcie
        if known.pcie is not None and new.pcie is not None:
            both = {}
            for name in _PCIE_FIELDS:
                before, now = getattr(known.pcie, name), getattr(new.pcie, name)
                if None not in (before, now) and before != now and name.startswith("max_"):
                    raise self._differ(known, part, f"pcie.{name}", before, now)
                both[name] = now if before is None else before
            pcie = PcieLink(**both)
        for key, text in new.attributes.items():
            if known.attributes.get(key, text) != text:
                raise self._differ(known, part, key, known.attributes[key], text)
        return replace(known, **changes, pcie=pcie, attributes={**known.attributes, **new.attributes})

    def _differ(self, known: Vertex, part: Part, name: str, before: object, now: object) -> InputFileError:
        label = known.name or (known.index if known.index is not None else known.pci_address)
        return contradiction(part, self._from[known.id], f"{name} of {known.kind} {label}", now, before)

    def _check_count(self, part: Part) -> None:
        """A file that lists all GPUs of a node, against what others show."""
        stated = part.reading.num_gpus
        if stated is not None:
            if self._listed is not None and self._listed[0] != stated:
                raise contradiction(part, self._listed[1], "the number of GPUs", stated, self._listed[0])
            self._listed = (stated, part.source)
        if self._listed is None:
            return
        limit, lister = self._listed
        gpus = [vertex for vertex in self._vertices.values() if vertex.kind == "gpu"]
        beyond = [gpu for gpu in gpus if gpu.index is not None and gpu.index >= limit] or gpus[limit:]
        if beyond:
            other = self._from[beyond[0].id]
            raise InputFileError(
                part.source,
                f"does not fit the other files: {lister} lists {limit} GPUs, {other} shows "
                f"GPU {beyond[0].index if beyond[0].index is not None else beyond[0].pci_address}",
                hint=TWO_NODES,
            )

    def _numbered_by_order(self, vertices: list[Vertex], part: Part) -> list[Vertex]:
        """Numbers for GPUs that have only addresses, where all others have only numbers, or the reverse."""
        known = [vertex for vertex in self._vertices.values() if vertex.kind == "gpu"]
        new = [vertex for vertex in vertices if vertex.kind == "gpu"]
        if not known or len(known) != len(new):
            return vertices
        for unnumbered, numbered in ((known, new), (new, known)):
            bare = all(each.index is None and each.pci_address for each in unnumbered)
            blind = all(each.index is not None and not each.pci_address for each in numbered)
            if not bare or not blind:
                continue
            order = sorted(unnumbered, key=lambda each: each.pci_address or "")
            indices = {each.id: index for index, each in enumerate(order)}
            if sorted(each.index or 0 for each in numbered) != list(range(len(numbered))):
                continue
            self.warnings.append(f"{part.source}: {_SEEN_BY_ORDER}")
            if unnumbered is new:
                return [
                    replace(each, index=indices[each.id]) if each.id in indices else each for each in vertices
                ]
            for each in known:
                self._vertices[each.id] = replace(each, index=indices[each.id])
                self._index(self._vertices[each.id])
        return vertices

    def _new_id(self, vertex: Vertex) -> str:
        key: str | None
        if self._name is None and vertex.kind == "switch":
            key = vertex.guid or vertex.name or vertex.id.rpartition("/")[2]
        elif vertex.kind in ("gpu", "cpu", "numa"):
            key = vertex.pci_address if vertex.index is None else str(vertex.index)
        elif vertex.kind == "nic":
            key = vertex.name or (f"pci:{vertex.pci_address}" if vertex.pci_address else None)
        else:
            key = vertex.pci_address or vertex.name
        start = f"{'fabric' if self._name is None else self._name}/{vertex.kind}"
        words = " ".join((key or vertex.id.rpartition("/")[2]).split())
        here = base = f"{start}/{words[:_MAX_KEY]}"
        while here in self._vertices:
            self._repeats[base] += 1
            here = f"{base}#{self._repeats[base] + 1}"
        return here


def _identity(vertex: Vertex, name: str) -> Any:
    """What a vertex is told from others by; of a fabric's and a host's lists of ports, the port's GUID."""
    return vertex.attributes.get(PORT_GUID) if name == "port_guid" else getattr(vertex, name)


def _space(vertex: Vertex, name: str) -> str:
    """Where a name is looked up: one file's name of a NIC is another's of its RDMA device."""
    return "name" if vertex.kind == "nic" and name == "rdma_device" else name


def _gives_way(name: str, weaker: Vertex, other: Vertex) -> bool:
    """Whether a different name of the same device is the better one."""
    if name == "model":
        return _is_ids(weaker.model) or weaker.model == weaker.attributes.get(PCI_NAME)
    if name == "name" and weaker.kind == "nic" and weaker.name is not None:
        return weaker.name.partition(":")[0] in (weaker.rdma_device, other.rdma_device)
    return False


def _is_ids(model: object) -> bool:
    """``10de:20b0``: identifiers, which a name is better than."""
    return isinstance(model, str) and len(model) == 9 and model[4] == ":"


def _value(value: object) -> str:
    return shown(value) if isinstance(value, str) else str(value)

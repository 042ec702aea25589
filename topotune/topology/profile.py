"""Known machines: what a server or instance is made of (``topotune/profile``), each figure with its source.

A profile is written by people: short, and in the terms of a data sheet (so many GPUs below this switch, links
of that rate). `topotune.topology.profile_topology` makes a topology of it. The classes here are the one
definition of the file: its reader, its JSON Schema and its documentation come from them.

| schema_version | change |
| --- | --- |
| 1 | first |
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from topotune.documents import Value, document_of, parse_json
from topotune.topology.rates import pcie_bandwidth_bytes_per_s

SCHEMA: Final = "topotune/profile"
SCHEMA_VERSION: Final = 1
MAX_PROFILE_BYTES: Final = 2**20

MAX_GPUS: Final = 64
_NAME: Final = r"[a-z0-9][a-z0-9._-]{0,62}"
_BITS_PER_BYTE: Final = 8
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

Text = Annotated[str, Field(min_length=1, max_length=500)]
Name = Annotated[str, Field(pattern=f"^{_NAME}$")]
Source = Annotated[str, Field(min_length=10, max_length=500)]
Count = Annotated[int, Field(ge=1, le=4096)]
Index = Annotated[int, Field(ge=0, lt=MAX_GPUS)]
Rate = Annotated[float, Field(gt=0, le=1e15)]
Bytes = Annotated[int, Field(ge=1, le=2**50)]
GpuPair = tuple[Index, Index, Annotated[int, Field(ge=1, le=64)]]
NicKind = Literal["infiniband", "roce", "efa", "ethernet"]
PlacePath = Literal["PIX", "PXB", "PHB", "NODE"]
ThresholdKind = Literal["allreduce_busbw", "nic_rdma", "host_to_device", "device_to_host"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PcieRate:
    """What a PCI Express link can do.

    Attributes:
        gt_per_s: per lane: 2.5, 5, 8, 16, 32 or 64.
        width: lanes.
    """

    __pydantic_config__ = _STRICT

    gt_per_s: Annotated[float, Field(gt=0, le=64)]
    width: Annotated[int, Field(ge=1, le=32)]

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """In one direction, after line encoding."""
        return pcie_bandwidth_bytes_per_s(self.gt_per_s, self.width)


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuKind:
    """The GPUs of a machine, which are all alike.

    Attributes:
        models: names that drivers and other tools give it, and PCI identifiers (``10de:20b0``); matched
            without regard to case, as part of a name. The first stands for all.
        memory_bytes: of each, by its marketing name (40 GB is 40e9).
        pcie: the link above each, at its best; null where no source says.
        source: where these are from.
    """

    __pydantic_config__ = _STRICT

    models: Annotated[tuple[Text, ...], Field(min_length=1, max_length=16)]
    memory_bytes: Bytes
    pcie: PcieRate | None = None
    source: Source


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuKind:
    """The processors of a machine, which are all alike.

    Attributes:
        model: as ``/proc/cpuinfo`` names it, or the vendor and what it calls the generation.
        source: where this is from.
    """

    __pydantic_config__ = _STRICT

    model: Text
    source: Source


@dataclass(frozen=True, kw_only=True, slots=True)
class NicKindOfMachine:
    """The network adapters that carry collectives between nodes, which are all alike; one entry is one port.

    Attributes:
        kind: what its links are.
        bits_per_s: line rate of a port, in each direction; null where no source says.
        rdma: whether it reads and writes other nodes' memory. To pass the kernel by, as the first generation
            of EFA does, is less than that.
        pcie: the link above each, at its best; null where no source says.
        source: where these are from.
    """

    __pydantic_config__ = _STRICT

    kind: NicKind
    bits_per_s: Rate | None = None
    rdma: bool
    pcie: PcieRate | None = None
    source: Source

    @property
    def bytes_per_s(self) -> float | None:
        """What a port carries in each direction."""
        return None if self.bits_per_s is None else self.bits_per_s / _BITS_PER_BYTE


@dataclass(frozen=True, kw_only=True, slots=True)
class Nvlinks:
    """The links between GPUs: NVLink, or AMD's xGMI.

    Either ``num_switches`` switches join all GPUs, or ``pairs`` names those that are joined.

    Attributes:
        bytes_per_s_per_link: in each direction.
        links_per_gpu: to the switches; absent where ``pairs`` are given.
        num_switches: of one domain; the links of a GPU are spread over them evenly.
        pairs: ``[a, b, links]``, each two GPUs of a node once.
        nodes_per_domain: nodes that the switches of one domain join.
        source: where these are from.
    """

    __pydantic_config__ = _STRICT

    bytes_per_s_per_link: Rate
    links_per_gpu: Annotated[int, Field(ge=1, le=64)] | None = None
    num_switches: Annotated[int, Field(ge=0, le=64)] = 0
    pairs: Annotated[tuple[GpuPair, ...], Field(max_length=512)] = ()
    nodes_per_domain: Count = 1
    source: Source


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Devices that hang together in the PCI tree.

    Attributes:
        numa: number of the NUMA node; null where no source says.
        gpus: their indices.
        num_nics: ports of adapters among them; numbered on from the place before.
        path: the way from any one of them to any other, in nvidia-smi's words: ``PIX`` below one switch,
            ``PXB`` below switches that share one, ``PHB`` on one host bridge, ``NODE`` on host bridges of
            their own; null where no source says.
        uplink: the link from the switch to what is above it; null where no source says.
        upper_switch: number of the switch above; places with the same number share it.
        host_bridge: its number; places with the same number hang on one host bridge. Null: one of its own.
    """

    __pydantic_config__ = _STRICT

    numa: Annotated[int, Field(ge=0, lt=64)] | None = None
    gpus: Annotated[tuple[Index, ...], Field(max_length=MAX_GPUS)] = ()
    num_nics: Annotated[int, Field(ge=0, le=64)] = 0
    path: PlacePath | None = None
    uplink: PcieRate | None = None
    upper_switch: Annotated[int, Field(ge=0, lt=64)] | None = None
    host_bridge: Annotated[int, Field(ge=0, lt=64)] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What of a node sits where.

    Attributes:
        num_sockets: CPU packages; null where no source says.
        num_numa: NUMA nodes; null where no source says. Those of a socket are numbered one after the other.
        places: groups of devices; each GPU stands in one.
        source: where these are from.
    """

    __pydantic_config__ = _STRICT

    num_sockets: Annotated[int, Field(ge=1, le=8)] | None = None
    num_numa: Annotated[int, Field(ge=1, le=64)] | None = None
    places: Annotated[tuple[Place, ...], Field(min_length=1, max_length=64)]
    source: Source


@dataclass(frozen=True, kw_only=True, slots=True)
class DmiMark:
    """What the firmware's tables say of such a machine.

    Attributes:
        vendor: part of ``sys_vendor``, without regard to case.
        product: ``product_name``, or whole words at its beginning, without regard to case; null where it
            does not tell the machine from others of the vendor.
    """

    __pydantic_config__ = _STRICT

    vendor: Text
    product: Text | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """What names a machine of this kind, beside its shape.

    Attributes:
        instance_types: names under which clouds sell it, as metadata, variables and job files give them.
        dmi: what the firmware says. A product names the machine; one of another vendor is none of these.
        nccl_topo_files: ends of paths of the topology files that vendors' images set in NCCL_TOPO_FILE.
        source: where these are from.
    """

    __pydantic_config__ = _STRICT

    instance_types: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    dmi: Annotated[tuple[DmiMark, ...], Field(max_length=16)] = ()
    nccl_topo_files: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    source: Source


@dataclass(frozen=True, kw_only=True, slots=True)
class Threshold:
    """The least that somebody who runs such machines counts as healthy.

    Attributes:
        what: ``allreduce_busbw`` (as nccl-tests counts it), ``nic_rdma`` (one port, ib_write_bw or such),
            ``host_to_device`` and ``device_to_host`` (copies of one GPU).
        min_bytes_per_s: in one direction.
        message_bytes: the size at which it is judged; null where the source does not say.
        num_nodes: nodes of the run; of one machine 1.
        source: whose mark it is.
    """

    __pydantic_config__ = _STRICT

    what: ThresholdKind
    min_bytes_per_s: Rate
    message_bytes: Bytes | None = None
    num_nodes: Count = 1
    source: Source


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedPoint:
    """One row of a published table: the time or the bus bandwidth, whichever it gives.

    Attributes:
        message_bytes: on each rank.
        time_s: of one allreduce.
        busbw_bytes_per_s: time's other form: message / time × 2(n-1)/n.
    """

    __pydantic_config__ = _STRICT

    message_bytes: Bytes
    time_s: Annotated[float, Field(gt=0, le=1e4)] | None = None
    busbw_bytes_per_s: Rate | None = None

    def __post_init__(self) -> None:
        if (self.time_s is None) == (self.busbw_bytes_per_s is None):
            raise ValueError("give one of time_s and busbw_bytes_per_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedAllreduce:
    """Allreduce as somebody measured it on such machines.

    Attributes:
        num_nodes, num_ranks: of the run; one rank is one GPU.
        setting: library, its version, algorithm and tool, as far as the source says.
        points: by message size.
        source: where it was published.
    """

    __pydantic_config__ = _STRICT

    num_nodes: Count
    num_ranks: Annotated[int, Field(ge=2, le=2**20)]
    setting: Text
    points: Annotated[tuple[PublishedPoint, ...], Field(min_length=1, max_length=128)]
    source: Source

    def __post_init__(self) -> None:
        sizes = [point.message_bytes for point in self.points]
        if sorted(set(sizes)) != sizes:
            raise ValueError("message sizes must grow from point to point")

    def busbw_bytes_per_s(self, point: PublishedPoint) -> float:
        """Bus bandwidth of a point, given or worked out."""
        if point.busbw_bytes_per_s is not None:
            return point.busbw_bytes_per_s
        assert point.time_s is not None
        return point.message_bytes / point.time_s * 2 * (self.num_ranks - 1) / self.num_ranks

    def time_s(self, point: PublishedPoint) -> float:
        """Time of a point, given or worked out."""
        if point.time_s is not None:
            return point.time_s
        assert point.busbw_bytes_per_s is not None
        return point.message_bytes / point.busbw_bytes_per_s * 2 * (self.num_ranks - 1) / self.num_ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineProfile:
    """A model of server, cloud instance or rack.

    Attributes:
        name: by which it is asked for; its file is ``NAME.json``.
        title: what it is, in words.
        num_nodes: hosts of it: 1, or those of a rack.
        gpu: its GPUs.
        cpu: its processors; null where builders differ, or no source says.
        nic: its adapters; null where none joins such machines to others, or none is usual.
        nvlinks: links between GPUs; null where they have PCI Express alone.
        layout: what of a node sits where.
        marks: how it is recognised, beside its shape; null where only the shape tells.
        thresholds: what counts as healthy.
        allreduce: what was measured on such machines.
        unknown: what no source was found for, one line each.
    """

    __pydantic_config__ = _STRICT

    name: Name
    title: Text
    num_nodes: Count = 1
    gpu: GpuKind
    cpu: CpuKind | None = None
    nic: NicKindOfMachine | None = None
    nvlinks: Nvlinks | None = None
    layout: Layout
    marks: Marks | None = None
    thresholds: Annotated[tuple[Threshold, ...], Field(max_length=64)] = ()
    allreduce: Annotated[tuple[PublishedAllreduce, ...], Field(max_length=64)] = ()
    unknown: Annotated[tuple[Text, ...], Field(max_length=32)] = ()

    def __post_init__(self) -> None:
        for problem in _contradictions(self):
            raise ValueError(problem)

    @property
    def num_gpus(self) -> int:
        """Of one node."""
        return sum(len(place.gpus) for place in self.layout.places)

    @property
    def num_nics(self) -> int:
        """Ports of one node."""
        return sum(place.num_nics for place in self.layout.places)

    @property
    def nvlinks_per_gpu(self) -> tuple[int, ...]:
        """NVLinks (or xGMI links) of each GPU of a node, by its index; all 0 without any."""
        if self.nvlinks is None:
            return (0,) * self.num_gpus
        if self.nvlinks.links_per_gpu is not None:
            return (self.nvlinks.links_per_gpu,) * self.num_gpus
        counted: Counter[int] = Counter()
        for a, b, links in self.nvlinks.pairs:
            counted.update({a: links, b: links})
        return tuple(counted[gpu] for gpu in range(self.num_gpus))

    @property
    def nvlinks_join_all(self) -> bool:
        """Whether each GPU of a node reaches each other one over them, perhaps through others."""
        if self.nvlinks is None:
            return False
        if self.nvlinks.num_switches:
            return True
        reached, waiting = {0}, [0]
        while waiting:
            here = waiting.pop()
            for a, b, _ in self.nvlinks.pairs:
                there = b if a == here else a if b == here else here
                if there not in reached:
                    reached.add(there)
                    waiting.append(there)
        return len(reached) == self.num_gpus


def profile_from_bytes(data: bytes, source: str) -> MachineProfile:
    """JSON text → profile.

    Args:
        data: the document.
        source: its path, for errors.

    Raises:
        InputFileError: not JSON, not a profile, a newer one, a value of the wrong kind or out of bounds, or
            parts that contradict each other.
    """
    value = document_of(parse_json(data, source, max_bytes=MAX_PROFILE_BYTES), SCHEMA, SCHEMA_VERSION)
    for text in _texts(value):
        text.text()
    body = {key: item for key, item in value.raw.items() if key not in ("schema", "schema_version")}
    try:
        return _ADAPTER.validate_json(json.dumps(body))
    except ValidationError as problem:
        first = problem.errors()[0]
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]).lstrip(
            "."
        )
        words = first["msg"].removeprefix("Value error, ")
        raise value.error(
            source,
            words[:1].lower() + words[1:],
            place=place or None,
            hint="topotune schema profile prints what a profile may hold",
        ) from problem


def profile_to_document(profile: MachineProfile) -> dict[str, Any]:
    """A profile as a JSON document; what has its default is left out."""
    body = _ADAPTER.dump_python(profile, mode="json", exclude_defaults=True)
    return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **body}


def _contradictions(profile: MachineProfile) -> Iterator[str]:
    """What contradicts itself between the parts of a profile, in words; each part alone is right already."""
    gpus = sorted(gpu for place in profile.layout.places for gpu in place.gpus)
    if gpus != list(range(len(gpus))) or not gpus:
        yield f"the places hold the GPUs {gpus}, not each one from 0 on once"
    yield from _contradictions_of_places(profile.layout)
    if (profile.nic is None) != (profile.num_nics == 0):
        given = "absent" if profile.nic is None else "given"
        yield f"the places hold {profile.num_nics} adapter ports, and nic is {given}"
    links = profile.nvlinks
    if links is not None:
        if bool(links.num_switches) == bool(links.pairs):
            yield "nvlinks names switches and pairs, or neither: GPUs are joined by one of them"
        if bool(links.num_switches) != (links.links_per_gpu is not None):
            yield "nvlinks gives links_per_gpu where there are switches, and only there"
        if links.nodes_per_domain > 1 and links.pairs:
            yield "nvlinks of several nodes run through switches"
        seen = set()
        for a, b, _ in links.pairs:
            if a == b or max(a, b) >= len(gpus):
                yield f"nvlinks joins GPU {a} to GPU {b}, and the GPUs are 0 to {len(gpus) - 1}"
            if frozenset((a, b)) in seen:
                yield f"nvlinks joins GPU {a} to GPU {b} twice"
            seen.add(frozenset((a, b)))
    for run in profile.allreduce:
        if run.num_ranks > run.num_nodes * len(gpus):
            yield f"an allreduce of {run.num_ranks} ranks on {run.num_nodes} nodes of {len(gpus)} GPUs"


def _contradictions_of_places(layout: Layout) -> Iterator[str]:
    if layout.num_sockets and layout.num_numa and layout.num_numa % layout.num_sockets:
        yield f"{layout.num_numa} NUMA nodes do not belong to {layout.num_sockets} sockets"
    where: dict[tuple[str, int], tuple[int | None, int | None]] = {}
    for number, place in enumerate(layout.places):
        if place.numa is not None and (layout.num_numa is None or place.numa >= layout.num_numa):
            yield f"places[{number}] is on NUMA node {place.numa}, and there are {layout.num_numa}"
        switched = place.path in ("PIX", "PXB")
        if not switched and (place.uplink is not None or place.upper_switch is not None):
            yield f"places[{number}] has something above its switch, and no switch: its path is {place.path}"
        if place.host_bridge is not None and place.path in ("NODE", None):
            yield f"places[{number}] has one host bridge, and its devices one each: its path is {place.path}"
        for what, index in (("switch", place.upper_switch), ("host bridge", place.host_bridge)):
            here = (place.numa, place.host_bridge)
            if index is not None and where.setdefault((what, index), here) != here:
                yield f"places[{number}] shares {what} {index} with a place of another NUMA node or bridge"


def _texts(value: Value) -> Iterator[Value]:
    """All texts of a document, so that none can write over a reader's terminal."""
    if isinstance(value.raw, str):
        yield value
    elif isinstance(value.raw, dict):
        for key in value.raw:
            yield from _texts(value.member(key))
    elif isinstance(value.raw, list):
        for index in range(len(value.raw)):
            yield from _texts(value.item(index))


_ADAPTER: Final = TypeAdapter(MachineProfile)

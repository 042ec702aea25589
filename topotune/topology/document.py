"""Topology ↔ its JSON form ``topotune/topology``.

| schema_version | since | change |
| --- | --- | --- |
| 1 | 0.1.0 | first |

What is not known is left out of a vertex, link or source, rather than written as null; facts keep their
null, which says that somebody looked and the machine did not say.
"""

import contextlib
import gc
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, get_args

from topotune.document_fields import (
    RATE_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    Field,
    integer_or_null,
    members_of,
    one_of,
    or_null,
    texts,
)
from topotune.documents import MAX_MEASUREMENT_BYTES, MAX_RATE, MIN_RATE, Value, document_of, parse_json
from topotune.errors import InputFileError
from topotune.topology.model import (
    SCHEMA,
    SCHEMA_VERSION,
    Link,
    LinkKind,
    NvlinkPort,
    Origin,
    Pair,
    PairPath,
    PcieLink,
    Source,
    Topology,
    Vertex,
    VertexKind,
)

MAX_VERTICES: Final = 200_000
MAX_LINKS: Final = 1_000_000
MAX_RANKS: Final = 200_000
MAX_SERVERS: Final = 4096
MAX_WARNINGS: Final = 10_000
MAX_FACTS: Final = 1_000
MAX_PAIRS: Final = 1_000_000
MAX_ATTRIBUTES: Final = 256
_MAX_PORTS = 1_024
_MAX_INDEX = 2**31 - 1

_VERTEX_KEYS = tuple(each.name for each in fields(Vertex))
_LINK_KEYS = tuple(each.name for each in fields(Link))
_PCIE_KEYS = tuple(each.name for each in fields(PcieLink))
_PORT_KEYS = tuple(each.name for each in fields(NvlinkPort))
_PAIR_KEYS = tuple(each.name for each in fields(Pair))
_VERTEX_KINDS = get_args(VertexKind)
_LINK_KINDS = get_args(LinkKind)
_ORIGINS = get_args(Origin)
_PAIR_PATHS = get_args(PairPath)


def topology_to_document(topology: Topology) -> dict[str, Any]:
    """A topology as JSON values; equal topologies give equal documents, key for key."""
    source = _without_unknown({name: getattr(topology.source, name) for name in ("kind", "path", "created")})
    if topology.source.topotune_version is not None:
        source["topotune_version"] = topology.source.topotune_version
    source["facts"] = dict(sorted(topology.source.facts.items()))
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "source": source,
        "vertices": [_vertex_to_document(vertex) for vertex in topology.vertices],
        "links": [_link_to_document(link) for link in topology.links],
    }
    if topology.pairs:
        document["pairs"] = [_plain(pair, _PAIR_KEYS) for pair in topology.pairs]
    if topology.ranks:
        document["ranks"] = list(topology.ranks)
    if topology.servers:
        document["servers"] = list(topology.servers)
    document["warnings"] = list(topology.warnings)
    return document


def topology_from_bytes(data: bytes, source: str) -> Topology:
    """JSON text from outside → a topology.

    Args:
        data: the text.
        source: names it in errors.

    Raises:
        InputFileError: what is wrong, and where.
    """
    return _from_value(parse_json(data, source, max_bytes=MAX_MEASUREMENT_BYTES))  # 1,024 nodes take 60 MiB


def topology_from_document(document: Any, source: str) -> Topology:
    """A JSON document from outside → a topology.

    Args:
        document: as the JSON parser left it.
        source: names it in errors.

    Raises:
        InputFileError: another kind of document, a newer version, an unknown key, a value of the wrong kind
        or out of
            bounds, or vertices and links that do not fit together.
    """
    return _from_value(Value(document, "", source, InputFileError))


def _from_value(value: Value) -> Topology:
    header = ("schema", "schema_version")
    document = document_of(value, SCHEMA, SCHEMA_VERSION)
    parts = document.members(
        (*header, "vertices", "links", "source"), ("ranks", "warnings", "pairs", "servers")
    )
    ranks = parts["ranks"].items(MAX_RANKS, what="ranks") if "ranks" in parts else []
    warnings = parts["warnings"].items(MAX_WARNINGS, what="warnings") if "warnings" in parts else []
    pairs = parts["pairs"].items(MAX_PAIRS, what="pairs") if "pairs" in parts else []
    servers = parts["servers"].items(MAX_SERVERS, what="servers") if "servers" in parts else []
    with _collector_paused():
        vertices = tuple(_vertex(item) for item in parts["vertices"].items(MAX_VERTICES, what="vertices"))
        links = tuple(_link(item) for item in parts["links"].items(MAX_LINKS, what="links"))
    try:
        return Topology(
            vertices=vertices,
            links=links,
            source=_source(parts["source"]),
            ranks=tuple(item.text() for item in ranks),
            warnings=tuple(item.text() for item in warnings),
            pairs=tuple(_pair(item) for item in pairs),
            servers=tuple(item.text() for item in servers),
        )
    except InputFileError:
        raise
    except ValueError as problem:
        raise value.error(value.source, str(problem)) from problem


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Without the search for cycles, of which a topology has none: it takes a third of a large one's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _vertex_to_document(vertex: Vertex) -> dict[str, Any]:
    document = _plain(vertex, _VERTEX_KEYS)
    if vertex.pcie is not None:
        document["pcie"] = _plain(vertex.pcie, _PCIE_KEYS)
    if vertex.nvlink_ports is not None:
        document["nvlink_ports"] = [_plain(port, _PORT_KEYS) for port in vertex.nvlink_ports]
    if vertex.mig_instances is not None:
        document["mig_instances"] = list(vertex.mig_instances)
    return document


def _link_to_document(link: Link) -> dict[str, Any]:
    document = _plain(link, _LINK_KEYS)
    if link.bandwidth_ci_bytes_per_s is not None:
        document["bandwidth_ci_bytes_per_s"] = list(link.bandwidth_ci_bytes_per_s)
    return document


def _plain(value: Vertex | Link | Pair | PcieLink | NvlinkPort, keys: tuple[str, ...]) -> dict[str, Any]:
    """Fields as members, in order, without those that say nothing."""
    return _without_unknown({key: getattr(value, key) for key in keys})


def _without_unknown(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None and value != {}}


def _vertex(value: Value) -> Vertex:
    return Vertex(**members_of(value, _VERTEX_FIELDS, _VERTEX_REQUIRED))


def _pcie(value: Value) -> PcieLink:
    return PcieLink(**members_of(value, _PCIE_FIELDS, frozenset()))


def _link(value: Value) -> Link:
    return Link(**members_of(value, _LINK_FIELDS, _LINK_REQUIRED))


def _port(value: Value) -> NvlinkPort:
    return NvlinkPort(**members_of(value, _PORT_FIELDS, _PORT_REQUIRED))


def _pair(value: Value) -> Pair:
    return Pair(**members_of(value, _PAIR_FIELDS, _PAIR_REQUIRED))


def _source(value: Value) -> Source:
    found = value.members(("kind",), ("path", "created", "topotune_version", "facts"))
    texts = {key: item.optional(Value.text) for key, item in found.items() if key not in ("kind", "facts")}
    facts = found["facts"].mapping(MAX_FACTS) if "facts" in found else {}
    return Source(kind=found["kind"].text(), facts={key: _fact(item) for key, item in facts.items()}, **texts)


def _fact(value: Value) -> str | int | float | bool | None:
    match value.raw:
        case None | bool():
            return value.raw
        case int():
            return value.integer(minimum=-(2**63))
        case float():
            return value.number(minimum=-math.inf)
        case _:
            return value.text()


def _interval(value: Value) -> tuple[float, float]:
    low, high = value.items(2, min_items=2, what="ends")
    return low.number(MIN_RATE, MAX_RATE), high.number(MIN_RATE, MAX_RATE)


def _ports(value: Value) -> tuple[NvlinkPort, ...]:
    return tuple(_port(port) for port in value.items(_MAX_PORTS, what="NVLinks"))


def _slices(value: Value) -> tuple[str, ...]:
    return tuple(slice_.text() for slice_ in value.items(_MAX_PORTS, what="slices"))


_INDEX = integer_or_null(0, _MAX_INDEX)
_LANES = integer_or_null(1, _MAX_INDEX)

_VERTEX_FIELDS: Final[Mapping[str, Field]] = {
    **dict.fromkeys(_VERTEX_KEYS, TEXT_OR_NULL),
    "id": TEXT,
    "kind": one_of(_VERTEX_KINDS),
    "index": _INDEX,
    "numa": _INDEX,
    "memory_bytes": integer_or_null(),
    "speed": RATE_OR_NULL,
    "pcie": or_null(_pcie),
    "mig": or_null(Value.boolean),
    "nvlink_ports": or_null(_ports),
    "mig_instances": or_null(_slices),
    "attributes": texts(MAX_ATTRIBUTES),
}
_VERTEX_REQUIRED = frozenset(("id", "kind"))
_LINK_FIELDS: Final[Mapping[str, Field]] = {
    "src": TEXT,
    "dst": TEXT,
    "kind": one_of(_LINK_KINDS),
    "lanes": _LANES,
    "bandwidth_bytes_per_s": RATE_OR_NULL,
    "bandwidth_ci_bytes_per_s": or_null(_interval),
    "latency_s": or_null(Value.number),
    "distance": _INDEX,
    "origin": one_of(_ORIGINS),
    "attributes": texts(MAX_ATTRIBUTES),
}
_LINK_REQUIRED = frozenset(("src", "dst", "kind"))
_PCIE_FIELDS: Final[Mapping[str, Field]] = {
    key: RATE_OR_NULL if "speed" in key else _LANES for key in _PCIE_KEYS
}
_PORT_FIELDS: Final[Mapping[str, Field]] = {
    "link": Field(lambda value: value.integer(0, _MAX_INDEX)),
    "active": Field(Value.boolean),
    "bandwidth_bytes_per_s": RATE_OR_NULL,
}
_PORT_REQUIRED = frozenset(("link", "active"))
_PAIR_FIELDS: Final[Mapping[str, Field]] = {
    "a": TEXT,
    "b": TEXT,
    "path": or_null(lambda value: value.text(one_of=_PAIR_PATHS)),
    "nvlinks": _INDEX,
    "p2p": texts(MAX_ATTRIBUTES),
}
_PAIR_REQUIRED = frozenset(("a", "b"))

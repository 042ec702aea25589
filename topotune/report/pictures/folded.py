"""A cluster folded for drawing: nodes that would look the same become one, and so do switches.

Folding here asks what a drawing can show, and nothing more: kinds of vertices and links, rates to two digits,
what the links lead to, and whether one of them is slow. So equal machines with other serial numbers fold,
and one with a slow link stands apart. A link is slow where its rate is below nine tenths of the median rate
of its class (its kind, between these two kinds of vertices).
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from topotune.topology.model import Topology, Vertex
from topotune.topology.tiers import switch_tiers

SLOW_SHARE: Final = 0.9
LEFT_OUT: Final = frozenset({"pci-device"})
"""Kinds of vertices that are not drawn: nobody knows what they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """All links of one kind between two vertices, in both directions.

    Attributes:
        a, b: ids of the vertices.
        kind: of link.
        lanes: folded into one; None where nobody says.
        bandwidth_bytes_per_s: of the slower direction; None where nobody says.
        share: of the median of its class; None where there is nothing to compare.
    """

    a: str
    b: str
    kind: str
    lanes: int | None
    bandwidth_bytes_per_s: float | None
    share: float | None

    @property
    def is_slow(self) -> bool:
        """Whether it is slower than its class."""
        return self.share is not None and self.share < SLOW_SHARE

    @property
    def look(self) -> Hashable:
        """What of it can be seen."""
        rate = self.bandwidth_bytes_per_s
        return self.kind, None if rate is None else _two_digits(rate), self.is_slow


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeGroup:
    """Nodes that look the same.

    Attributes:
        nodes: their names, in the topology's order.
        vertices: of the first of them.
        wires: between these.
        num_left_out: vertices of the first that are not drawn.
    """

    nodes: tuple[str, ...]
    vertices: tuple[Vertex, ...]
    wires: tuple[Wire, ...]
    num_left_out: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchGroup:
    """Fabric switches that look the same.

    Attributes:
        names: their ids, in the topology's order.
        tier: links to the nearest host; None where no way leads to one.
    """

    names: tuple[str, ...]
    tier: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Trunk:
    """All wires between two groups, or among the members of one.

    Attributes:
        a, b: indices of the groups: nodes first, then switches.
        wires: one or more.
    """

    a: int
    b: int
    wires: tuple[Wire, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Folded:
    """A cluster, folded.

    Attributes:
        nodes: groups of nodes, the largest first.
        switches: groups of switches, by tier.
        trunks: what joins the groups.
    """

    nodes: tuple[NodeGroup, ...]
    switches: tuple[SwitchGroup, ...]
    trunks: tuple[Trunk, ...]


def fold(topology: Topology) -> Folded:
    """Fold a topology. O(vertices + links)."""
    vertices = {vertex.id: vertex for vertex in topology.vertices if vertex.kind not in LEFT_OUT}
    wires = _wires(topology, vertices)
    nodes = _node_groups(topology, vertices, wires)
    group_of_node = {node: number for number, group in enumerate(nodes) for node in group.nodes}
    switches = _switch_groups(topology, vertices, wires, group_of_node)
    group_of: dict[str, int] = {
        name: len(nodes) + number for number, group in enumerate(switches) for name in group.names
    }
    for vertex in vertices.values():
        if vertex.node is not None:
            group_of[vertex.id] = group_of_node[vertex.node]
    between: dict[tuple[int, int], list[Wire]] = defaultdict(list)
    for wire in wires:
        a, b = vertices[wire.a], vertices[wire.b]
        if a.node is None or a.node != b.node:
            low, high = sorted((group_of[wire.a], group_of[wire.b]))
            between[low, high].append(wire)
    return Folded(
        nodes=tuple(nodes),
        switches=tuple(switches),
        trunks=tuple(Trunk(a=a, b=b, wires=tuple(own)) for (a, b), own in sorted(between.items())),
    )


def _wires(topology: Topology, vertices: dict[str, Vertex]) -> list[Wire]:
    merged: dict[tuple[str, str, str], tuple[int | None, float | None]] = {}
    for link in topology.links:
        if link.src not in vertices or link.dst not in vertices:
            continue
        a, b = sorted((link.src, link.dst))
        lanes, rate = merged.get((a, b, link.kind), (link.lanes, link.bandwidth_bytes_per_s))
        rates = [one for one in (rate, link.bandwidth_bytes_per_s) if one is not None]
        merged[a, b, link.kind] = lanes, min(rates, default=None)
    rates_of: dict[Hashable, list[float]] = defaultdict(list)
    for (a, b, kind), (_, rate) in merged.items():
        if rate is not None:
            rates_of[_class(vertices, a, b, kind)].append(rate)
    medians = {one: statistics.median(rates) for one, rates in rates_of.items() if len(rates) > 1}
    return [
        Wire(
            a=a,
            b=b,
            kind=kind,
            lanes=lanes,
            bandwidth_bytes_per_s=rate,
            share=None
            if rate is None or (median := medians.get(_class(vertices, a, b, kind))) is None
            else rate / median,
        )
        for (a, b, kind), (lanes, rate) in merged.items()
    ]


def _class(vertices: dict[str, Vertex], a: str, b: str, kind: str) -> Hashable:
    kinds = sorted((vertices[a].kind, vertices[b].kind))
    return kind, *kinds, vertices[a].node is not None and vertices[a].node == vertices[b].node


def _node_groups(topology: Topology, vertices: dict[str, Vertex], wires: Iterable[Wire]) -> list[NodeGroup]:
    members: dict[str, list[Vertex]] = {}
    left_out: Counter[str] = Counter()
    for vertex in topology.vertices:
        if vertex.node is None:
            continue
        members.setdefault(vertex.node, [])
        if vertex.id in vertices:
            members[vertex.node].append(vertex)
        else:
            left_out[vertex.node] += 1
    place = {vertex.id: at for own in members.values() for at, vertex in enumerate(own)}
    inside: dict[str, list[Wire]] = defaultdict(list)
    looks: dict[str, list[Hashable]] = {
        node: [(vertex.kind, vertex.index) for vertex in own] for node, own in members.items()
    }
    leaving: dict[str, Counter[Hashable]] = defaultdict(Counter)
    for wire in wires:
        a, b = vertices[wire.a], vertices[wire.b]
        if a.node is not None and a.node == b.node:
            inside[a.node].append(wire)
            looks[a.node].append((*sorted((place[wire.a], place[wire.b])), wire.look))
        else:
            for end in (a, b):
                if end.node is not None:
                    leaving[end.node][(place[end.id], wire.look)] += 1
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for node, look in looks.items():
        head = len(members[node])
        parts = sorted(map(repr, look[head:])), sorted(map(repr, leaving[node].items()))
        groups[tuple(look[:head]), tuple(parts[0]), tuple(parts[1])].append(node)
    found = [
        NodeGroup(
            nodes=tuple(nodes),
            vertices=tuple(members[nodes[0]]),
            wires=tuple(inside[nodes[0]]),
            num_left_out=left_out[nodes[0]],
        )
        for nodes in groups.values()
    ]
    return sorted(found, key=lambda group: -len(group.nodes))


def _switch_groups(
    topology: Topology, vertices: dict[str, Vertex], wires: Iterable[Wire], group_of_node: dict[str, int]
) -> list[SwitchGroup]:
    tiers = switch_tiers(topology)
    neighbours: dict[str, set[Hashable]] = defaultdict(set)
    for wire in wires:
        for here, there in ((wire.a, wire.b), (wire.b, wire.a)):
            if vertices[here].node is None:
                node = vertices[there].node
                whom = ("tier", tiers.get(there)) if node is None else ("nodes", group_of_node[node])
                neighbours[here].add((whom, wire.look))
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for vertex in vertices.values():
        if vertex.node is None:
            look = (tiers.get(vertex.id), vertex.kind, tuple(sorted(map(repr, neighbours[vertex.id]))))
            groups[look].append(vertex.id)
    found = [SwitchGroup(names=tuple(names), tier=tiers.get(names[0])) for names in groups.values()]
    return sorted(found, key=lambda group: math.inf if group.tier is None else group.tier)


def _two_digits(value: float) -> float:
    return float(f"{value:.1e}")

"""What a defect costs: the provable optimum of the machine as it is, against that with the defect mended.

Theory of operation. Both optima are those of allreduce on the capacity graph of the node, once among its own
GPUs and once for two such nodes whose NICs meet in a switch that is no limit; the larger share of time lost
counts, since a job may do either. For the second the GPUs of a node are taken to be joined without limit:
what limits them is in the first, and would hide what leaves the node. So are the sockets of a node, which are
joined by something that nobody says. The graph then carries more than the machine, and no cost is made up.

Where links are alike, or few, this is exact. Elsewhere the linear programme is left off after about half a
second, with a bound that the machine may not reach.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from topotune.bounds.bound import Bound, NoBound, graph_allreduce_bound
from topotune.bounds.graph import CapacityGraph, graph_from_topology
from topotune.errors import UsageError
from topotune.health.node import Node, is_up
from topotune.links.finding import Finding
from topotune.topology.model import Link, Topology, Vertex
from topotune.topology.what_if import with_nodes

Mend = Callable[[Topology], Topology]

_MAX_CELLS = 1_000_000
"""Of the linear programmes for one optimum: about half a second."""

_MAX_COSTED = 64
"""Defects of one examination whose cost is worked out; each takes up to a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a defect costs.

    Attributes:
        percent: by how much less time the best allreduce would take without it; None: not known.
        reason: why it is not known.
    """

    percent: float | None
    reason: str | None = None


class Costs:
    """Works out costs, for so many defects as there is time for."""

    def __init__(self) -> None:
        self._num_left = _MAX_COSTED
        self._now: dict[int, tuple[Node, list[Bound | NoBound]]] = {}

    def of(self, node: Node, mend: Mend) -> Cost:
        """What a defect of a node costs.

        Args:
            node: as it is.
            mend: its topology → the same without the defect.
        """
        if self._num_left == 0:
            return Cost(percent=None, reason=f"{_MAX_COSTED} other defects were costed before it")
        self._num_left -= 1
        if id(node) not in self._now:
            self._now[id(node)] = (node, _bounds(node.topology))  # the node is kept, and with it its id
        _, now = self._now[id(node)]
        mended = _bounds(mend(node.topology))
        lost = [
            max(0.0, 100.0 * (1.0 - after.s_per_byte / before.s_per_byte))
            for before, after in zip(now, mended, strict=True)
            if isinstance(before, Bound) and isinstance(after, Bound)
        ]
        if lost:
            return Cost(percent=max(lost))
        reasons = [each.reason for each in (*now, *mended) if isinstance(each, NoBound)]
        return Cost(percent=None, reason=reasons[0])


def costed(finding: Finding, cost: Cost) -> Finding:
    """A finding with its cost, or with the reason why there is none."""
    if cost.percent is not None:
        return replace(finding, cost_percent=cost.percent)
    return replace(finding, evidence=f"{finding.evidence}; cost not known: {cost.reason}")


def raised_links(rates: Mapping[frozenset[str], float]) -> Mend:
    """Some links, by their two ends, at no less than these rates in bytes/s."""

    def mend(topology: Topology) -> Topology:
        def one(link: Link) -> Link:
            rate = rates.get(frozenset((link.src, link.dst)))
            if rate is None or link.bandwidth_bytes_per_s is None:
                return link
            return replace(link, bandwidth_bytes_per_s=max(rate, link.bandwidth_bytes_per_s))

        return replace(topology, links=tuple(one(link) for link in topology.links))

    return mend


def raised_ports(ports: Iterable[Vertex], rate_bits_per_s: float) -> Mend:
    """Some network ports up, and at this rate in bits/s."""
    ids = {port.id for port in ports}

    def mend(topology: Topology) -> Topology:
        return replace(
            topology,
            vertices=tuple(
                replace(vertex, speed=rate_bits_per_s, state="up") if vertex.id in ids else vertex
                for vertex in topology.vertices
            ),
        )

    return mend


def _bounds(topology: Topology) -> list[Bound | NoBound]:
    """Among the node's own GPUs (or sockets), and between two such nodes."""
    inside = _joined(topology, _tops(topology))
    return [_bound(inside), _bound_of_two(_joined(inside, _workers(inside)))]


def _bound_of_two(topology: Topology) -> Bound | NoBound:
    linked = {end for link in topology.links for end in (link.src, link.dst)}
    unusable = {
        vertex.id
        for vertex in topology.vertices
        if vertex.kind == "nic"
        and (vertex.speed is None or is_up(vertex) is False or vertex.id not in linked)
    }
    usable = replace(
        topology,
        vertices=tuple(vertex for vertex in topology.vertices if vertex.id not in unusable),
        links=tuple(link for link in topology.links if not {link.src, link.dst} & unusable),
        pairs=(),
    )
    if not any(vertex.kind == "nic" for vertex in usable.vertices):
        return NoBound(reason="no NIC of the node has a known rate and place")
    try:
        return _bound(with_nodes(usable, 2))
    except UsageError as problem:
        return NoBound(reason=problem.message)


def _bound(topology: Topology) -> Bound | NoBound:
    try:
        return graph_allreduce_bound(graph_from_topology(topology), max_cells=_MAX_CELLS)
    except ValueError as problem:  # no vertex holds ranks, or the source does not show how they are joined
        return NoBound(reason=str(problem))


def _tops(topology: Topology) -> list[str]:
    """NUMA nodes, or sockets where there are none: they are joined, by whatever it is."""
    numa = [vertex.id for vertex in topology.vertices if vertex.kind == "numa"]
    return numa or [vertex.id for vertex in topology.vertices if vertex.kind == "cpu"]


def _workers(topology: Topology) -> list[str]:
    gpus = [vertex.id for vertex in topology.vertices if vertex.kind == "gpu"]
    return gpus or [vertex.id for vertex in topology.vertices if vertex.kind == "cpu"]


def _joined(topology: Topology, ids: Sequence[str]) -> Topology:
    """With some vertices joined to the first of them by links of unknown bandwidth, as if without limit."""
    present = {(link.src, link.dst) for link in topology.links if link.kind == "unknown"}
    added = [
        Link(src=src, dst=dst, kind="unknown", origin="inferred")
        for other in ids[1:]
        for src, dst in ((ids[0], other), (other, ids[0]))
        if (src, dst) not in present
    ]
    return replace(topology, links=(*topology.links, *added))


def star_cost(rates: Mapping[str, float], mended: Mapping[str, float]) -> float:
    """By how much less time the best allreduce of hosts on one switch would take at other rates, in percent.

    Args:
        rates: of each of two or more hosts, bytes/s per direction.
        mended: the same hosts, without the defect.
    """
    before, after = (_star_s_per_byte(each) for each in (rates, mended))
    return max(0.0, 100.0 * (1.0 - after / before))


def _star_s_per_byte(rates: Mapping[str, float]) -> float:
    capacities = {}
    for host, rate in rates.items():
        capacities[host, "fabric"] = capacities["fabric", host] = max(1, round(rate))
    bound = graph_allreduce_bound(CapacityGraph(capacities=capacities, compute=tuple(rates)))
    assert isinstance(bound, Bound)  # every host has a limit
    return bound.s_per_byte

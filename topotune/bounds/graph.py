"""The capacity graph: what a network can carry, between ranks and the switches that join them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from topotune.links.limits import laminar, limits_by_set
from topotune.links.model import LinkModel, SharedCapacity
from topotune.topology.model import LinkKind, Topology
from topotune.topology.servers import server_vertices

Arc = tuple[str, str]
_FABRIC = "fabric"
_NETWORKS: Final[Mapping[LinkKind, str]] = {
    "infiniband": "InfiniBand",
    "roce": "RoCE",
    "efa": "EFA",
    "ethernet": "Ethernet",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacityGraph:
    """A directed graph with capacities; the ranks sit on some of its vertices.

    Attributes:
        capacities: bytes/s of each directed link, positive integers: figures are exact from here on.
        compute: the vertex of each rank; a vertex that holds several ranks stands there as often. Ranks on
            one vertex exchange without limit. All other vertices are switches: they forward, but neither
            add nor copy.
        names: of links, in words for reports; several links may share a name.
        adapters: links that are a network adapter's: its node, and what it is (``EFA NIC``).
        host_word: what reports call several vertices that hold ranks (``nodes``, ``GPUs``).
        unlimited: links without a known limit; their capacity exceeds that of all limited ones together.

    Raises:
        ValueError: no rank, a capacity that is no positive integer, a link from a vertex to itself, a rank
            on a vertex without a link while others have one.
    """

    capacities: Mapping[Arc, int]
    compute: tuple[str, ...]
    names: Mapping[Arc, str] = field(default_factory=dict)
    adapters: Mapping[Arc, tuple[str, str]] = field(default_factory=dict)
    unlimited: frozenset[Arc] = frozenset()
    host_word: str = "nodes"

    def __post_init__(self) -> None:
        if not self.compute:
            raise ValueError("a capacity graph without ranks")
        for (src, dst), capacity in self.capacities.items():
            if src == dst:
                raise ValueError(f"a link from {src!r} to itself")
            if not isinstance(capacity, int) or capacity <= 0:
                raise ValueError(
                    f"link {src!r} -> {dst!r} has a capacity of {capacity!r}: must be a positive integer"
                )
        lonely = self.hosts - {vertex for arc in self.capacities for vertex in arc}
        if lonely and len(self.hosts) > 1:
            raise ValueError(f"{sorted(lonely)[0]!r} holds a rank and has no link")

    @property
    def hosts(self) -> frozenset[str]:
        """The vertices that hold ranks."""
        return frozenset(self.compute)

    @property
    def vertices(self) -> tuple[str, ...]:
        """All vertices, sorted."""
        return tuple(sorted(self.hosts | {vertex for arc in self.capacities for vertex in arc}))

    def leaving(self, side: Iterable[str]) -> int:
        """Bytes/s that can leave a set of vertices."""
        inside = frozenset(side)
        return sum(c for (src, dst), c in self.capacities.items() if src in inside and dst not in inside)

    def entering(self, side: Iterable[str]) -> int:
        """Bytes/s that can enter a set of vertices."""
        inside = frozenset(side)
        return sum(c for (src, dst), c in self.capacities.items() if src not in inside and dst in inside)


def graph_from_links(model: LinkModel) -> CapacityGraph | None:
    """The tree of limits that a link model knows; None where it knows none.

    Each limit that all traffic out of (or into) a set of ranks must pass is an arc from (or to) that set:
    the link of a node, the uplink of a rack. Sets that contain each other become the levels of a tree with
    a switch above each set. Ranks that no limit tells apart share a vertex. A limit of any other shape, or
    on a set that crosses one taken before, is left out: the graph then carries more than the network, and
    bounds on it stay valid.
    """
    sending, receiving = limits_by_set(model)
    sets = laminar(sending.keys() | receiving.keys())
    if not sets:
        return None
    unlimited = 1 + sum(_whole(limit) for limit in (*sending.values(), *receiving.values()))
    hosts = [_FABRIC] * model.num_ranks
    capacities: dict[Arc, int] = {}
    names: dict[Arc, str] = {}
    open_arcs: set[Arc] = set()
    for members in sorted(sets, key=len, reverse=True):
        vertex = ranks_in_words(members)
        parent = hosts[
            min(members)
        ]  # the larger sets came first: the ranks still sit on the smallest around this one
        for rank in members:
            hosts[rank] = vertex
        for arc, limit in (
            ((vertex, parent), sending.get(members)),
            ((parent, vertex), receiving.get(members)),
        ):
            capacities[arc] = _whole(limit) if limit else unlimited
            if limit:
                names[arc] = limit.name
            else:
                open_arcs.add(arc)
    return CapacityGraph(
        capacities=capacities, compute=tuple(hosts), names=names, unlimited=frozenset(open_arcs)
    )


def is_balanced(graph: CapacityGraph) -> bool:
    """Whether as much enters every switch as leaves it, as a forest needs it."""
    net = dict.fromkeys(set(graph.vertices) - graph.hosts, 0)
    for arc, capacity in graph.capacities.items():
        for end, change in zip(arc, (-capacity, capacity), strict=True):
            if end in net:
                net[end] += change
    return not any(net.values())


def with_equal_ways(graph: CapacityGraph) -> CapacityGraph:
    """The same with as much one way as the other between any two vertices: the lesser of both.

    Measured rates of the two ways differ by noise, and a forest needs as much into a switch as out of it.
    """
    both = {
        (a, b): min(capacity, graph.capacities[b, a])
        for (a, b), capacity in graph.capacities.items()
        if (b, a) in graph.capacities
    }
    open_both_ways = {(a, b) for a, b in graph.unlimited & both.keys() if (b, a) in graph.unlimited}
    return replace(graph, capacities=both, unlimited=frozenset(open_both_ways))


def servers_of_graph(topology: Topology) -> tuple[str, ...]:
    """Vertices of `graph_from_topology` that add for the ranks: the servers of the topology, in order."""
    merged = _representatives(topology)
    return tuple(dict.fromkeys(merged[server] for server in server_vertices(topology)))


def graph_from_topology(topology: Topology) -> CapacityGraph:
    """The links of a topology whose bandwidth is known, between the vertices that hold its ranks.

    Vertices joined both ways by links of unknown bandwidth become one, as if nothing limited them: the
    graph then carries more than the machine, and bounds on it stay valid.

    Raises:
        ValueError: no vertex holds ranks, or one that does has no link.
    """
    gpus = {vertex.id for vertex in topology.vertices if vertex.kind == "gpu"}
    compute = topology.compute
    nic_nodes = {vertex.id: vertex.node for vertex in topology.vertices if vertex.kind == "nic"}
    known: dict[Arc, float] = {}
    names: dict[Arc, str] = {}
    adapters: dict[Arc, tuple[str, str]] = {}
    unknown: set[Arc] = set()
    merged = _representatives(topology)
    for link in topology.links:
        arc = (link.src, link.dst)
        if link.bandwidth_bytes_per_s is None:
            unknown.add(arc)
        else:
            known[arc] = known.get(arc, 0.0) + link.bandwidth_bytes_per_s
            names[arc] = f"{link.kind} link of {link.src} to {link.dst}"
            node = nic_nodes.get(link.src) or nic_nodes.get(link.dst)
            if link.kind in _NETWORKS and node is not None:
                adapters[arc] = (node, f"{_NETWORKS[link.kind]} NIC")
    unlimited = 1 + sum(max(1, round(bandwidth)) for bandwidth in known.values())
    capacities: dict[Arc, int] = {}
    for a, b in sorted({*known, *unknown}):  # forests follow this order: it is the same in every run
        arc = (merged[a], merged[b])
        if arc[0] != arc[1]:
            capacity = unlimited if (a, b) in unknown else max(1, round(known[a, b]))
            capacities[arc] = min(unlimited, capacities.get(arc, 0) + capacity)
    return CapacityGraph(
        capacities=capacities,
        compute=tuple(merged[vertex] for vertex in compute),
        names={(merged[a], merged[b]): name for (a, b), name in names.items() if merged[a] != merged[b]},
        adapters={(merged[a], merged[b]): one for (a, b), one in adapters.items() if merged[a] != merged[b]},
        unlimited=frozenset(arc for arc, capacity in capacities.items() if capacity == unlimited),
        host_word="GPUs" if set(compute) <= gpus else "vertices with ranks",
    )


def _representatives(topology: Topology) -> dict[str, str]:
    """Of each vertex the one that stands for it: links of unknown bandwidth both ways make vertices one."""
    unknown = {(link.src, link.dst) for link in topology.links if link.bandwidth_bytes_per_s is None}
    return _merge(
        {vertex.id for vertex in topology.vertices}, {(a, b) for a, b in unknown if (b, a) in unknown}
    )


def ranks_in_words(ranks: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-3``, ``ranks 0,2,5-7``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    return f"rank {text}" if text.isdigit() else f"ranks {text}"


def _merge(vertices: Iterable[str], pairs: Iterable[Arc]) -> dict[str, str]:
    """Each vertex's representative once the pairs are joined: the first by name."""
    representative = {vertex: vertex for vertex in vertices}

    def find(vertex: str) -> str:
        while representative[vertex] != vertex:
            representative[vertex] = vertex = representative[representative[vertex]]
        return vertex

    for a, b in pairs:
        first, second = sorted((find(a), find(b)))
        representative[second] = first
    return {vertex: find(vertex) for vertex in representative}


def _whole(limit: SharedCapacity) -> int:
    # Upwards: a graph that carries less than the network would give bounds that are too high.
    return max(1, ceil(limit.capacity_bytes_per_s))

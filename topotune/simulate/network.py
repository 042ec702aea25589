"""A network as the routed simulation sees it: directed links with rate and latency, ranks on vertices.

Where a topology does not say the latency of a link, one of its kind stands in. These are latencies of
messages as published for such links, shared out among the links of a usual way (two for a switched one):
NVSwitch 0.35 µs a link, InfiniBand 1.3 µs from NIC to NIC (the profiles that TE-CCL ships), EFA 20 µs (AWS's
tuner), TCP 10 to 30 µs one way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from topotune.bounds.graph import Arc, CapacityGraph
from topotune.topology.model import LinkKind, Topology
from topotune.topology.servers import server_vertices

if TYPE_CHECKING:
    from topotune.simulate.routes import Routes

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LATENCY_S: Final[Mapping[LinkKind, float]] = {
    "nvlink": 0.35e-6,
    "pcie": 0.3e-6,
    "numa": 0.1e-6,
    "shm": 0.5e-6,
    "infiniband": 0.65e-6,
    "roce": 1.0e-6,
    "efa": 10e-6,
    "ethernet": 10e-6,
    "unknown": 1e-6,
}

GPU_CALL_OVERHEAD_S: Final = 10e-6
"""Launch of a collective on GPUs (5 to 15 µs)."""
CPU_CALL_OVERHEAD_S: Final = 100e-6
"""Of one between processes on CPUs (gloo: 50 to 200 µs)."""
CPU_REDUCE_S_PER_BYTE: Final = 1 / 4e9
"""One core adding floats. GPUs add as they copy, and are taken to keep up with their links."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Directed links between vertices by number.

    Attributes:
        vertices: names, each once.
        tail, head: ends of each link, as numbers of vertices; no two links have the same. Shape (num_links,).
        bandwidth_bytes_per_s: of each link; infinite where no limit is known.
        latency_s: of each link, one way.
        vertex_of_rank: shape (num_ranks,); ranks on one vertex exchange without limit.
        node_of_rank: number of the host of each rank, 0-based.
        call_overhead_s: of one collective call.
        reduce_s_per_byte: of combining one received byte with one of one's own.
        own_routes: ranks that send, ranks that receive → their ways, where the network knows them by a
            formula; None: they are searched for.
        servers: numbers of vertices of processes that add for the ranks, and are none; one each.
        lines: (stride, length) of sets of ranks that are alike: those that differ in ``rank // stride %
            length`` alone are a line, and messages that stay within lines share no link with other lines'.
    """

    vertices: tuple[str, ...]
    tail: IntArray
    head: IntArray
    bandwidth_bytes_per_s: FloatArray
    latency_s: FloatArray
    vertex_of_rank: IntArray
    node_of_rank: tuple[int, ...]
    call_overhead_s: float = 0.0
    reduce_s_per_byte: float = 0.0
    own_routes: "Callable[[IntArray, IntArray], Routes] | None" = None
    servers: tuple[int, ...] = ()
    lines: tuple[tuple[int, int], ...] = ()

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.vertex_of_rank)

    def with_servers_as_ranks(self) -> "Network":
        """The same with its servers as ranks behind the others, each on a node of its own."""
        first = max(self.node_of_rank, default=-1) + 1
        return replace(
            self,
            vertex_of_rank=np.concatenate((self.vertex_of_rank, np.array(self.servers, dtype=np.int64))),
            node_of_rank=(*self.node_of_rank, *range(first, first + len(self.servers))),
            servers=(),
        )

    @cached_property
    def link_of_arc(self) -> dict[Arc, int]:
        """Number of the link between two vertices by name."""
        ends = zip(self.tail.tolist(), self.head.tolist(), strict=True)
        return {(self.vertices[a], self.vertices[b]): number for number, (a, b) in enumerate(ends)}


def network_of_topology(topology: Topology) -> Network:
    """All links of a topology; several between the same two vertices are one.

    Raises:
        ValueError: no vertex holds ranks.
    """
    ranks = topology.compute
    if not ranks:
        raise ValueError("no vertex of the topology holds ranks: it has neither GPU nor CPU")
    number = {vertex.id: index for index, vertex in enumerate(topology.vertices)}
    links: dict[tuple[int, int], tuple[float, float]] = {}
    for link in topology.links:
        arc = (number[link.src], number[link.dst])
        bandwidth, latency_s = links.get(arc, (0.0, np.inf))
        limit = np.inf if link.bandwidth_bytes_per_s is None else link.bandwidth_bytes_per_s
        own_latency_s = LATENCY_S[link.kind] if link.latency_s is None else link.latency_s
        links[arc] = (bandwidth + limit, min(latency_s, own_latency_s))
    node_of_vertex = {vertex.id: vertex.node or vertex.id for vertex in topology.vertices}
    on_gpus = set(ranks) <= {vertex.id for vertex in topology.vertices if vertex.kind == "gpu"}
    tail, head, bandwidth_bytes_per_s, link_latency_s = _columns(links)
    return Network(
        vertices=tuple(number),
        tail=tail,
        head=head,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        latency_s=link_latency_s,
        vertex_of_rank=np.array([number[vertex] for vertex in ranks], dtype=np.int64),
        node_of_rank=_numbered([node_of_vertex[vertex] for vertex in ranks]),
        call_overhead_s=GPU_CALL_OVERHEAD_S if on_gpus else CPU_CALL_OVERHEAD_S,
        reduce_s_per_byte=0.0 if on_gpus else CPU_REDUCE_S_PER_BYTE,
        servers=tuple(number[server] for server in server_vertices(topology)),
    )


def network_of_graph(
    graph: CapacityGraph,
    *,
    latency_s: float = 0.0,
    call_overhead_s: float = 0.0,
    reduce_s_per_byte: float = 0.0,
) -> Network:
    """A capacity graph as a network; its vertices that hold ranks are the nodes.

    Args:
        graph: in bytes/s.
        latency_s: of every link.
        call_overhead_s: as of `Network`.
        reduce_s_per_byte: as of `Network`.
    """
    number = {vertex: index for index, vertex in enumerate(graph.vertices)}
    links = {
        (number[a], number[b]): (np.inf if (a, b) in graph.unlimited else float(capacity), latency_s)
        for (a, b), capacity in graph.capacities.items()
    }
    tail, head, bandwidth_bytes_per_s, link_latency_s = _columns(links)
    return Network(
        vertices=graph.vertices,
        tail=tail,
        head=head,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        latency_s=link_latency_s,
        vertex_of_rank=np.array([number[vertex] for vertex in graph.compute], dtype=np.int64),
        node_of_rank=_numbered(graph.compute),
        call_overhead_s=call_overhead_s,
        reduce_s_per_byte=reduce_s_per_byte,
    )


def network_of_lab(graph: CapacityGraph) -> Network:
    """The links of a lab cluster between its nodes' ranks, which run on CPUs."""
    return network_of_graph(
        graph,
        latency_s=LATENCY_S["ethernet"],
        call_overhead_s=CPU_CALL_OVERHEAD_S,
        reduce_s_per_byte=CPU_REDUCE_S_PER_BYTE,
    )


def _columns(
    links: Mapping[tuple[int, int], tuple[float, float]],
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Tails, heads, bandwidths in bytes/s and latencies in seconds."""
    ends = np.array(list(links), dtype=np.int64).reshape(-1, 2)
    costs = np.array(list(links.values()), dtype=np.float64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1], costs[:, 0], costs[:, 1]


def _numbered(names: tuple[str, ...] | list[str]) -> tuple[int, ...]:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return tuple(numbers[name] for name in names)

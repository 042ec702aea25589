"""The optimum of all three collectives on one network, and how close a flat ring could come. Pure."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Any, Final

from topotune.bounds.bound import Bound, NoBound, crossing_in_words, graph_allreduce_bound, smaller_side
from topotune.bounds.cut import CutBound, allgather_bound, reduce_scatter_bound
from topotune.bounds.graph import CapacityGraph
from topotune.bounds.in_network import in_network_bound
from topotune.bounds.ring import ring_algbw_bytes_per_s
from topotune.bounds.servers import served_bound
from topotune.links.model import LinkModel

SCHEMA: Final = "topotune/optimum"
SCHEMA_VERSION: Final = 1
_TIE: Final = 1e-6  # relative: the linear programme's own accuracy


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimum:
    """The best that one collective can do, and what holds it back.

    Attributes:
        algbw_bytes_per_s: message size over time. The message of an all-gather or reduce-scatter is all
            ranks' parts together, that of an allreduce what each rank holds.
        busbw_bytes_per_s: what ranks of equal links would send each, as nccl-tests counts it: algbw times
            (N-1)/N, and twice that for an allreduce.
        text: the bottleneck, in words.
        cut: the vertices on one side of it; empty where no single cut sets it.
        exact: whether it is known to be reached; else only that nothing is faster.
    """

    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    text: str
    cut: tuple[str, ...]
    exact: bool

    def time_s(self, message_bytes: float) -> float:
        """Shortest time for a message."""
        return message_bytes / self.algbw_bytes_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Optima:
    """All collectives on one network.

    Attributes:
        num_ranks: N >= 2.
        allgather, reduce_scatter, allreduce: their optima.
        allreduce_in_network: where switches add; None where none does.
        allreduce_served: with the network's servers adding; None where there is none.
        ring_algbw_bytes_per_s: of an allreduce by flat rings in the order of the ranks, at best; None where
            the network is too large to say.
    """

    num_ranks: int
    allgather: Optimum
    reduce_scatter: Optimum
    allreduce: Optimum
    allreduce_in_network: Optimum | None
    ring_algbw_bytes_per_s: float | None
    allreduce_served: Optimum | None = None


def optima(
    graph: CapacityGraph,
    reducing: Set[str] = frozenset(),
    *,
    served: tuple[CapacityGraph, Set[str]] | None = None,
) -> Optima | NoBound:
    """The optimum of each collective on a capacity graph.

    Args:
        graph: what the network carries.
        reducing: switches that add and copy by themselves.
        served: the network with servers, and which of its vertices these are; None where there is none.

    Raises:
        ValueError: some ranks cannot reach others.
    """
    bound = graph_allreduce_bound(graph)
    if isinstance(bound, NoBound):
        return bound
    num_ranks = len(graph.compute)
    allgather, reduce_scatter = allgather_bound(graph), reduce_scatter_bound(graph)
    in_network = in_network_bound(graph, reducing) if reducing else None
    with_servers = None if served is None else served_bound(*served)
    both_s_per_byte = 1.0 / allgather.algbw_bytes_per_s + 1.0 / reduce_scatter.algbw_bytes_per_s
    return Optima(
        num_ranks=num_ranks,
        allgather=_of_cut(graph, allgather, reversed_arrows=False),
        reduce_scatter=_of_cut(graph, reduce_scatter, reversed_arrows=True),
        allreduce=_of_allreduce(
            replace(bound, exact=bound.exact or both_s_per_byte <= bound.s_per_byte * (1 + _TIE)),
            num_ranks,
        ),
        allreduce_in_network=_of_allreduce(in_network, num_ranks) if isinstance(in_network, Bound) else None,
        allreduce_served=_of_allreduce(with_servers, num_ranks) if isinstance(with_servers, Bound) else None,
        ring_algbw_bytes_per_s=ring_algbw_bytes_per_s(graph),
    )


def latency_s(model: LinkModel) -> float:
    """What the messages of any allreduce cost beside their bytes, with the fitted latencies.

    What one rank holds must reach all others, and a rank sends one message after the other: that takes
    log2 of the number of nodes steps between nodes and log2 of the ranks on the fullest node steps inside.
    """
    total_s = 0.0
    ranks_per_node = [model.node_of_rank.count(node) for node in set(model.node_of_rank)]
    for within, count in ((False, len(ranks_per_node)), (True, max(ranks_per_node))):
        latencies_s = [
            model.cost(src, dst).latency_s
            for src in range(model.num_ranks)
            for dst in range(model.num_ranks)
            if src != dst and (model.node_of_rank[src] == model.node_of_rank[dst]) == within
        ]
        if latencies_s:
            total_s += ceil(log2(count)) * min(latencies_s)
    return total_s


def optima_to_document(
    found: Optima, message_bytes: Sequence[int] = (), *, latency_s: float = 0.0, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """The optima as a JSON document; ``sizes`` gives the shortest times of an allreduce.

    Args:
        found: on one network.
        message_bytes: sizes to give times for.
        latency_s: what messages cost beside their bytes, in every allreduce; 0 where it is not known.
        warnings: one line each.
    """
    ring = found.ring_algbw_bytes_per_s
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "warnings": list(warnings),
        "num_ranks": found.num_ranks,
        "allgather": _to_json(found.allgather),
        "reduce_scatter": _to_json(found.reduce_scatter),
        "allreduce": _to_json(found.allreduce),
        "allreduce_in_network": None
        if found.allreduce_in_network is None
        else _to_json(found.allreduce_in_network),
        "allreduce_served": None if found.allreduce_served is None else _to_json(found.allreduce_served),
        "flat_ring": None
        if ring is None
        else {
            "algbw_bytes_per_s": ring,
            "busbw_bytes_per_s": ring * 2 * (found.num_ranks - 1) / found.num_ranks,
        },
        "latency_s": latency_s,
        "sizes": [
            {
                "message_bytes": size,
                "time_s": max(found.allreduce.time_s(size), latency_s),
                "flat_ring_time_s": None if ring is None else max(size / ring, latency_s),
            }
            for size in message_bytes
        ],
    }


def _of_allreduce(bound: Bound, num_ranks: int) -> Optimum:
    algbw = 1.0 / bound.s_per_byte
    return Optimum(
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=algbw * 2 * (num_ranks - 1) / num_ranks,
        text=bound.text,
        cut=bound.cut,
        exact=bound.exact,
    )


def _of_cut(graph: CapacityGraph, bound: CutBound, *, reversed_arrows: bool) -> Optimum:
    side = frozenset(graph.vertices) - bound.cut if reversed_arrows else bound.cut
    return Optimum(
        algbw_bytes_per_s=bound.algbw_bytes_per_s,
        busbw_bytes_per_s=bound.algbw_bytes_per_s * (bound.num_ranks - 1) / bound.num_ranks,
        text=crossing_in_words(graph, side),
        cut=smaller_side(graph, bound.cut),
        exact=True,
    )


def _to_json(optimum: Optimum) -> dict[str, Any]:
    return {
        "algbw_bytes_per_s": optimum.algbw_bytes_per_s,
        "busbw_bytes_per_s": optimum.busbw_bytes_per_s,
        "bottleneck": {"text": optimum.text, "cut": list(optimum.cut)},
        "exact": optimum.exact,
    }

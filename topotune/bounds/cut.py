"""The exact optimum of all-gather and reduce-scatter, and the cut of the network that sets it.

Theory. All ranks together hold M bytes, M/N each, and every rank wants all of it. Let S be a set of
vertices with at least one rank outside. What the ranks in S hold must leave S: |S| M/N bytes over B+(S)
bytes/s, so

    T >= M/N * max over S of |S|/B+(S)  =  M/N * 1/x*.

Spanning trees that reach this bound exist on every graph (with equal capacity in and out of each switch).
x* is the largest rate at which every rank can send to all others at once: with a super-source that feeds each
rank x, the flow from it to every rank must be N x. Newton's method on the ratio: start from a lower bound
lambda on 1/x*; look for a rank that the flow cannot reach in full at rate 1/lambda; the minimum cut is a set
S with a larger ratio; repeat. Each step is exact and strictly increases, so it ends at the maximum; in
practice after 2 to 4 steps.

Reduce-scatter is all-gather with all arrows turned round. Source: Zhao et al., ForestColl, arXiv
2402.06787, section 4.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from topotune.bounds.graph import CapacityGraph
from topotune.bounds.maxflow import min_cut
from topotune.bounds.symmetry import unlike_hosts


@dataclass(frozen=True, kw_only=True, slots=True)
class CutBound:
    """The optimum of one collective and what sets it.

    Attributes:
        inverse_rate: 1/x*: seconds per byte of one rank's part, exact. The time is ``M/N * inverse_rate``.
        num_ranks: N.
        cut: the vertices of S; what they hold must leave S (all-gather) or what they want must enter it.
    """

    inverse_rate: Fraction
    num_ranks: int
    cut: frozenset[str]

    @property
    def algbw_bytes_per_s(self) -> float:
        """All ranks' parts together, per second."""
        return float(self.num_ranks / self.inverse_rate)

    def time_s(self, total_bytes: float) -> float:
        """Shortest time for all ranks' parts together of ``total_bytes``."""
        return total_bytes / self.num_ranks * float(self.inverse_rate)


def allgather_bound(graph: CapacityGraph) -> CutBound:
    """The optimum of all-gather.

    Args:
        graph: ranks on at least two vertices.

    Raises:
        ValueError: some rank cannot be reached from some other, or all sit on one vertex.

    Complexity: a maximum flow a step for each host that is unlike the others.
    """
    ranks_at = Counter(graph.compute)
    if len(ranks_at) < 2:
        raise ValueError("all ranks sit on one vertex: no link bounds them")
    hosts = sorted(ranks_at)
    num_ranks = len(graph.compute)
    unlike = unlike_hosts(graph)
    index = {vertex: number for number, vertex in enumerate(graph.vertices, start=1)}
    inverse_rate, cut = Fraction(0), frozenset[str]()
    entering = Counter[str]()
    for (_, dst), capacity in graph.capacities.items():
        entering[dst] += capacity
    for host in hosts:
        inflow = entering[host]
        if inflow == 0:
            raise ValueError(f"nothing can reach the ranks at {host!r}")
        ratio = Fraction(num_ranks - ranks_at[host], inflow)
        if ratio > inverse_rate:
            inverse_rate, cut = ratio, frozenset(graph.vertices) - {host}
    while True:
        # At x = 1/lambda = q/p, capacities times p and feeds times q are integers.
        p, q = inverse_rate.numerator, inverse_rate.denominator
        arcs = {(index[src], index[dst]): capacity * p for (src, dst), capacity in graph.capacities.items()}
        arcs |= {(0, index[host]): count * q for host, count in ranks_at.items()}
        best, best_cut = inverse_rate, cut
        for host in unlike:
            value, reached = min_cut(len(index) + 1, arcs, 0, index[host])
            if value == num_ranks * q:
                continue
            side = frozenset(vertex for vertex in graph.vertices if index[vertex] in reached)
            leaving = graph.leaving(side)
            if leaving == 0:
                raise ValueError(f"nothing can reach the ranks at {host!r} from {sorted(side)[0]!r}")
            ratio = Fraction(sum(ranks_at[vertex] for vertex in side & graph.hosts), leaving)
            if ratio > best:
                best, best_cut = ratio, side
        if best == inverse_rate:
            return CutBound(inverse_rate=inverse_rate, num_ranks=num_ranks, cut=cut)
        inverse_rate, cut = best, best_cut


def reduce_scatter_bound(graph: CapacityGraph) -> CutBound:
    """The optimum of reduce-scatter: all-gather on the reversed graph. Raises as ``allgather_bound``."""
    return allgather_bound(
        CapacityGraph(
            capacities={(dst, src): capacity for (src, dst), capacity in graph.capacities.items()},
            compute=graph.compute,
            names={(dst, src): name for (src, dst), name in graph.names.items()},
        )
    )


def tightest_split(graph: CapacityGraph) -> tuple[int, frozenset[str]]:
    """The least min(B+(S), B-(S)) over all S that split the ranks, and such an S.

    A whole message must cross every such S both ways in an allreduce.

    Complexity: two maximum flows for each host that is unlike the others, seen from the first.
    """
    first = min(graph.hosts)
    others = unlike_hosts(graph, fixed={first})
    index = {vertex: number for number, vertex in enumerate(graph.vertices)}
    arcs = {(index[src], index[dst]): capacity for (src, dst), capacity in graph.capacities.items()}
    best: tuple[int, frozenset[str]] | None = None
    for other in others:
        for source, sink in ((first, other), (other, first)):
            value, reached = min_cut(len(index), arcs, index[source], index[sink])
            if best is None or value < best[0]:
                best = value, frozenset(vertex for vertex in graph.vertices if index[vertex] in reached)
    assert best is not None
    return best

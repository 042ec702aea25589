"""Maximum flow and minimum cut with exact integer capacities of any size."""

from collections import deque
from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np
import scipy

Arc = tuple[int, int]
_INT32_MAX = 2**31 - 1


def max_flow(num_vertices: int, arcs: Mapping[Arc, int], source: int, sink: int) -> int:
    """The value of a maximum flow between two vertices; arguments and cost as of ``min_cut``."""
    if sum(arcs.values()) <= _INT32_MAX:
        return int(scipy.sparse.csgraph.maximum_flow(_matrix(num_vertices, arcs), source, sink).flow_value)
    return min_cut(num_vertices, arcs, source, sink)[0]


def min_cut(num_vertices: int, arcs: Mapping[Arc, int], source: int, sink: int) -> tuple[int, frozenset[int]]:
    """The value of a minimum cut between two vertices, and the vertices on the source's side of it.

    Args:
        num_vertices: vertices are 0 ... num_vertices - 1.
        arcs: capacity of each directed arc, > 0.
        source: where the flow begins.
        sink: where it ends.

    Complexity: Dinic's, O(V^2 E) at worst; in compiled code where the capacities allow.
    """
    # scipy computes in 32 bits and cuts larger capacities off without a word (1.17): it gets what fits, only.
    divisor = gcd(*arcs.values()) if arcs else 1
    scaled = {arc: capacity // divisor for arc, capacity in arcs.items()}
    if sum(scaled.values()) <= _INT32_MAX:
        value, side = _by_scipy(num_vertices, scaled, source, sink)
    else:
        value, side = _by_dinic(num_vertices, scaled, source, sink)
    return value * divisor, side


def _by_scipy(
    num_vertices: int, arcs: Mapping[Arc, int], source: int, sink: int
) -> tuple[int, frozenset[int]]:
    graph = _matrix(num_vertices, arcs)
    result = scipy.sparse.csgraph.maximum_flow(graph, source, sink)
    residual = graph - result.flow
    residual.data = (residual.data > 0).astype(np.int32)
    residual.eliminate_zeros()
    reached = scipy.sparse.csgraph.breadth_first_order(residual, source, return_predecessors=False)
    return int(result.flow_value), frozenset(map(int, reached))


def _matrix(num_vertices: int, arcs: Mapping[Arc, int]) -> "scipy.sparse.csr_array":
    ends = np.array(list(arcs), dtype=np.int32).reshape(-1, 2)
    capacities = np.fromiter(arcs.values(), dtype=np.int32, count=len(arcs))
    return scipy.sparse.csr_array((capacities, (ends[:, 0], ends[:, 1])), shape=(num_vertices, num_vertices))


def _by_dinic(
    num_vertices: int, arcs: Mapping[Arc, int], source: int, sink: int
) -> tuple[int, frozenset[int]]:
    """Dinic's algorithm: augment along shortest paths, level graph by level graph."""
    heads: list[int] = []
    room: list[int] = []
    leaving: list[list[int]] = [[] for _ in range(num_vertices)]
    for (tail, head), capacity in arcs.items():  # an arc and its reverse stand beside each other: i and i ^ 1
        leaving[tail].append(len(heads))
        leaving[head].append(len(heads) + 1)
        heads += [head, tail]
        room += [capacity, 0]
    value = 0
    while True:
        level = _levels(leaving, heads, room, source)
        if level[sink] < 0:
            return value, frozenset(vertex for vertex in range(num_vertices) if level[vertex] >= 0)
        untried = [list(edges) for edges in leaving]
        while path := _augmenting_path(untried, heads, room, level, source, sink):
            pushed = min(room[edge] for edge in path)
            for edge in path:
                room[edge] -= pushed
                room[edge ^ 1] += pushed
            value += pushed


def _levels(
    leaving: Sequence[Sequence[int]], heads: Sequence[int], room: Sequence[int], source: int
) -> list[int]:
    """Distance of each vertex from the source over arcs with room; -1 where there is no way."""
    level = [-1] * len(leaving)
    level[source] = 0
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        for edge in leaving[vertex]:
            if room[edge] > 0 and level[heads[edge]] < 0:
                level[heads[edge]] = level[vertex] + 1
                queue.append(heads[edge])
    return level


def _augmenting_path(
    untried: list[list[int]],
    heads: Sequence[int],
    room: Sequence[int],
    level: Sequence[int],
    source: int,
    sink: int,
) -> list[int]:
    """A path of the level graph, as edges, or none; edges that lead nowhere leave ``untried``."""
    path: list[int] = []
    vertex = source
    while vertex != sink:
        while untried[vertex]:
            edge = untried[vertex][-1]
            if room[edge] > 0 and level[heads[edge]] == level[vertex] + 1:
                break
            untried[vertex].pop()
        if untried[vertex]:
            path.append(untried[vertex][-1])
            vertex = heads[path[-1]]
        elif path:
            vertex = heads[path.pop() ^ 1]
            untried[vertex].pop()
        else:
            return []
    return path

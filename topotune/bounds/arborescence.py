"""Cheapest spanning trees out of every vertex of a complete directed graph. Pure.

Theory of operation. Edmonds: let every vertex take its cheapest arc in; a circle of such arcs becomes one
vertex, into which an arc costs what it costs more than the arc of the circle that it would replace; go on.
Grown as one path backwards, all vertices end as one, whatever the root: that is done once. For each root the
circles are then opened from outside: the arc into a circle replaces the circle's own arc into that vertex.

Source: Edmonds, "Optimum branchings", 1967; Gabow, Galil, Spencer and Tarjan, "Efficient algorithms for
finding minimum spanning trees in undirected and directed graphs", 1986, section 3, for the path.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def cheapest_trees(costs: FloatArray) -> IntArray:
    """The parents of each vertex in a cheapest tree out of every root.

    Args:
        costs: of an arc from each vertex (row) to each other (column), finite; shape (n, n), n >= 2.

    Returns:
        Row r: the parent of each vertex in a tree out of r; -1 for r itself. Shape (n, n).

    Complexity: O(n^2) for the circles, in O(n) calls of numpy, and O(n) for each root.
    """
    size = len(costs)
    circles = _Circles(costs)
    parents = np.empty((size, size), dtype=np.int64)
    for root in range(size):
        parents[root] = circles.opened(root)
    return parents


class _Circles:
    """Vertices from ``size`` on are circles: of which vertices, and by which arc each of those is entered."""

    def __init__(self, costs: FloatArray) -> None:
        size = len(costs)
        self._size = size
        self._around = [-1] * size  # the circle that each vertex became part of
        self._within: list[list[int]] = [[] for _ in range(size)]
        self._arc: list[tuple[int, int]] = [(-1, -1)] * size
        into = [column.copy() for column in costs.T]  # of each vertex: cost of an arc from each original one
        heads = [np.full(size, vertex) for vertex in range(size)]  # and which original vertex it leads to
        members: list[IntArray] = [np.array([vertex]) for vertex in range(size)]
        on_top = np.arange(size)  # of each original vertex the outermost circle
        path: list[int] = []
        on_path = set[int]()
        vertex = 0
        price = [0.0] * size
        while len(members[vertex]) < size:
            into[vertex][members[vertex]] = np.inf
            tail = int(into[vertex].argmin())
            self._arc[vertex] = (tail, int(heads[vertex][tail]))
            price[vertex] = float(into[vertex][tail])
            path.append(vertex)
            on_path.add(vertex)
            before = int(on_top[tail])
            if before not in on_path:
                vertex = before
                continue
            circle = len(self._around)
            inside = path[path.index(before) :]
            del path[len(path) - len(inside) :]
            on_path.difference_update(inside)
            reduced = np.array([into[one] - price[one] for one in inside])
            best = reduced.argmin(axis=0)
            columns = np.arange(size)
            into.append(reduced[best, columns])
            heads.append(np.array([heads[one] for one in inside])[best, columns])
            members.append(np.concatenate([members[one] for one in inside]))
            on_top[members[circle]] = circle
            for one in inside:
                self._around[one] = circle
            self._around.append(-1)
            self._within.append(inside)
            self._arc.append((-1, -1))
            price.append(0.0)
            vertex = circle

    def opened(self, root: int) -> Sequence[int]:
        """Parents of the original vertices in a cheapest tree out of one."""
        arcs = list(self._arc)
        ahead: list[int] = []
        self._open(root, ahead)
        while ahead:
            circle = ahead.pop()
            tail, head = arcs[circle]
            arcs[head] = (tail, head)
            self._open(head, ahead, until=circle)
        arcs[root] = (-1, root)
        return [tail for tail, _ in arcs[: self._size]]

    def _open(self, vertex: int, ahead: list[int], until: int = -1) -> None:
        """Open all circles around a vertex, up to one; those beside it on the way are still to be opened."""
        while vertex != until and self._around[vertex] >= 0:
            circle = self._around[vertex]
            ahead += [one for one in self._within[circle] if one != vertex and self._within[one]]
            vertex = circle

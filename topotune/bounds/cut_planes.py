"""The optimum of allreduce on larger graphs: the same linear programme, cut by cut.

Theory. The programme of `topotune.bounds.lp` asks of every host that a flow from a super-source reaches it in
full; by the theorem of maximum flow and minimum cut that is to ask of every set S of vertices that what
leaves it in the part for copying, and what enters it in the part for adding, is at least what the hosts in S
root. There are too many sets to write down, and few that count: start with single hosts, solve, look for
sets that the solution breaks (a minimum cut for each host), add them, and solve again, until none is broken.
On the way each solution is a bound: with fewer conditions the rate is never too low.

Vertices without ranks that add and copy may be roots as well, and need not hand on what they take in. But
each way on from one of them leads to another host: of a byte that enters it no more copies leave than there
are hosts beside the root, which are all of them where the root is another such vertex; and likewise of what
it adds.

Where exchanges of vertices leave the graph as it is, the mean of a solution's images is a solution as good,
so one variable serves all hosts that are alike, and all links that are; and one host of each kind is asked.

All rates are in those of the tightest split of the ranks: the optimum is between half of it (an all-gather in
equal shares takes no longer than the message over that split) and all. Links may be millions of times as fast
as others: the solver's tolerance, 1e-7, is then of the rate and not of the fastest link. No link can carry
more than two trees over all roots do that cross it with every arc: it counts with that at most.

Source: Dantzig, Fulkerson and Johnson, 1954, for adding what is broken; Bödi, Herr and Joswig, "Algorithms
for highly symmetric linear and integer programs", 2013, for the means.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import scipy

from topotune.bounds.cut import tightest_split
from topotune.bounds.graph import Arc, CapacityGraph
from topotune.bounds.symmetry import Likeness

MAX_ROUNDS: Final = 60
MAX_WORK: Final = 40_000
"""Hosts that are unlike times links: beyond, it all takes longer than seconds."""

MAX_CELLS: Final = 25_000_000
"""Sets times columns of all programmes that are solved: as many took 10 to 20 s on a core, 2026-11."""

MAX_KINDS: Final = 2_000
"""Links that are unlike: rows are as long as twice that."""

_BROKEN: Final = 1e-7
"""Share of the rate by which a set must fall short to be added."""

_UNITS: Final = 2**28
"""That the rate is divided in for flows of whole units: all flows then fit 32 bits."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class CutPlanes:
    """What no allreduce exceeds.

    Attributes:
        algbw_bytes_per_s: message size over time.
        is_optimum: whether no set is broken, so that it is the value of the linear programme.
        prices: what a byte/s more of each link would add to the rate, in bytes/s: the dual solution. Links
            that are alike have the mean of theirs.
    """

    algbw_bytes_per_s: float
    is_optimum: bool
    prices: Mapping[Arc, float]


def allreduce_by_cuts(
    graph: CapacityGraph,
    alike: Likeness,
    *,
    adding: Set[str] = frozenset(),
    split_bytes_per_s: int | None = None,
    max_rounds: int = MAX_ROUNDS,
    max_cells: int = MAX_CELLS,
) -> CutPlanes | None:
    """The optimum of allreduce by adding cuts, or a bound of it where that takes too many.

    Args:
        graph: ranks on at least two vertices, which can all reach each other.
        alike: what is so in it, with the same vertices marked as are ``adding``.
        adding: vertices without ranks that add and copy.
        split_bytes_per_s: the tightest split of the ranks, where it is known.
        max_rounds: solutions that are looked at.
        max_cells: sets times columns of all programmes that are solved, but for the first, which always is.

    Returns:
        None where the graph is too large, or the solver finds nothing.
    """
    if len(alike.unlike(graph.hosts)) * len(graph.capacities) > MAX_WORK:
        return None
    if len(set(alike.arcs.values())) > MAX_KINDS:
        return None
    split_bytes_per_s = split_bytes_per_s or tightest_split(graph)[0]
    programme = _Programme(graph, alike, adding, float(split_bytes_per_s))
    found: CutPlanes | None = None
    left = max_cells
    for number in range(max_rounds):
        left -= programme.num_cells
        if left < 0 and number > 0:
            break
        solved = programme.solve()
        if solved is None:
            break
        is_optimum = not programme.add_broken(solved.roots, solved.parts)
        found = CutPlanes(
            algbw_bytes_per_s=solved.algbw_bytes_per_s,
            is_optimum=is_optimum,
            prices=dict(zip(graph.capacities, solved.prices.tolist(), strict=True)),
        )
        if is_optimum:
            break
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Solved:
    """A solution: of each kind of vertex what it roots, of each kind of link both parts; prices of links."""

    algbw_bytes_per_s: float
    roots: FloatArray
    parts: FloatArray
    prices: FloatArray


class _Programme:
    """Columns: what each kind of vertex roots, then of each kind of link what copies, and what adds."""

    def __init__(self, graph: CapacityGraph, alike: Likeness, adding: Set[str], scale: float) -> None:
        self._vertices = {vertex: number for number, vertex in enumerate(graph.vertices)}
        roots = [*sorted(graph.hosts), *sorted(adding)]
        kinds = {
            kind: number for number, kind in enumerate(dict.fromkeys(alike.vertices[root] for root in roots))
        }
        link_kinds = {kind: number for number, kind in enumerate(sorted(set(alike.arcs.values())))}
        self._num_roots, self._num_links = len(kinds), len(link_kinds)
        self.sinks = [self._vertices[host] for host in alike.unlike(graph.hosts)]
        self._root = np.array([self._vertices[root] for root in roots])
        self._root_kind = np.array([kinds[alike.vertices[root]] for root in roots])
        arcs = list(graph.capacities)
        self._tail = np.array([self._vertices[tail] for tail, _ in arcs])
        self._head = np.array([self._vertices[head] for _, head in arcs])
        self._link_kind = np.array([link_kinds[alike.arcs[arc]] for arc in arcs])
        self._scale, most = scale, 2.0 * len(roots)
        self._capacity = np.zeros(self._num_links)
        for arc, capacity in graph.capacities.items():
            self._capacity[link_kinds[alike.arcs[arc]]] = min(most, capacity / scale)
        self._balance = self._balanced(graph, alike.vertices, adding)
        self._rows: dict[bytes, FloatArray] = {}
        of_helpers = np.zeros(self._num_columns)
        for helper in adding:
            of_helpers[kinds[alike.vertices[helper]]] += 1
        for helper in alike.unlike(adding):
            for part in (0, 1):
                self._add_fan(self._vertices[helper], kinds[helper], part, len(graph.hosts), of_helpers)
        for vertex in self.sinks:
            alone = np.arange(len(self._vertices)) == vertex
            for part in (0, 1):
                self._add(alone, part)
                self._add(~alone, part)

    def _add_fan(self, vertex: int, kind: int, part: int, num_hosts: int, of_helpers: FloatArray) -> None:
        """What may leave a vertex that copies (part 0), or enter one that adds (part 1).

        A byte that it roots is copied to all hosts, one that enters it to all but the root if that is a host;
        so what others like it root may leave once more.
        """
        row = -of_helpers
        near, far = (self._tail, self._head) if part == 0 else (self._head, self._tail)
        many = np.bincount(self._link_kind[near == vertex], minlength=self._num_links)
        one = np.bincount(self._link_kind[far == vertex], minlength=self._num_links)
        row[self._of_part(part)] = many - (num_hosts - 1) * one
        row[kind] -= num_hosts - 1
        self._rows[row.tobytes()] = row

    @property
    def num_cells(self) -> int:
        """Sets times columns, as it stands."""
        return len(self._rows) * self._num_columns

    @property
    def _num_columns(self) -> int:
        return self._num_roots + 2 * self._num_links

    def _balanced(self, graph: CapacityGraph, kind: Mapping[str, str], adding: Set[str]) -> FloatArray:
        """Rows that say that as much enters a switch as leaves it, in each part."""
        rows = []
        for switch in sorted({kind[v] for v in graph.vertices if v not in graph.hosts and v not in adding}):
            vertex = self._vertices[switch]
            net = np.bincount(self._link_kind[self._head == vertex], minlength=self._num_links) - np.bincount(
                self._link_kind[self._tail == vertex], minlength=self._num_links
            )
            for part in (0, 1):
                row = np.zeros(self._num_columns)
                row[self._of_part(part)] = net
                rows.append(row)
        return np.array(rows).reshape(len(rows), self._num_columns)

    def _of_part(self, part: int) -> slice:
        first = self._num_roots + part * self._num_links
        return slice(first, first + self._num_links)

    def _add(self, side: npt.NDArray[np.bool_], part: int) -> None:
        """What is rooted on a side must leave it (part 0), or enter it (part 1)."""
        row = np.zeros(self._num_columns)
        row[: self._num_roots] = np.bincount(self._root_kind[side[self._root]], minlength=self._num_roots)
        near, far = (self._tail, self._head) if part == 0 else (self._head, self._tail)
        crossing = side[near] & ~side[far]
        row[self._of_part(part)] = -np.bincount(self._link_kind[crossing], minlength=self._num_links)
        self._rows.setdefault(row.tobytes(), row)

    def solve(self) -> _Solved | None:
        """The best rate with the sets that are known; None where the solver gives up."""
        num_columns = self._num_columns
        shared = np.zeros((self._num_links, num_columns))
        at = np.arange(self._num_links)
        shared[at, self._num_roots + at] = shared[at, self._num_roots + self._num_links + at] = 1.0
        rows = scipy.sparse.coo_array(np.vstack((shared, *self._rows.values())))
        objective = np.zeros(num_columns)
        objective[: self._num_roots] = -np.bincount(self._root_kind, minlength=self._num_roots)
        solution = scipy.optimize.linprog(
            objective,
            A_ub=rows,
            b_ub=np.concatenate((self._capacity, np.zeros(len(self._rows)))),
            A_eq=scipy.sparse.coo_array(self._balance) if len(self._balance) else None,
            b_eq=np.zeros(len(self._balance)) if len(self._balance) else None,
            method="highs",
        )
        if solution.status != 0 or solution.fun >= 0:
            return None
        found = np.maximum(solution.x, 0.0)
        of_kind = np.maximum(-solution.ineqlin.marginals[: self._num_links], 0.0)
        return _Solved(
            algbw_bytes_per_s=-float(solution.fun) * self._scale,
            roots=found[: self._num_roots],
            parts=found[self._num_roots :].reshape(2, self._num_links),
            prices=(of_kind / np.bincount(self._link_kind, minlength=self._num_links))[self._link_kind],
        )

    def add_broken(self, x: FloatArray, parts: FloatArray) -> bool:
        """Add the sets that a solution breaks; whether there are any."""
        known = len(self._rows)
        rooted = x[self._root_kind]
        rate = float(rooted.sum())
        source, size = len(self._vertices), len(self._vertices) + 1
        for part in (0, 1):
            near, far = (self._tail, self._head) if part == 0 else (self._head, self._tail)
            carried = parts[part][self._link_kind]
            amounts = np.minimum(np.concatenate((rooted, carried)) / rate, 1.0) * _UNITS
            ends = (
                np.concatenate((np.full(len(self._root), source), near)),
                np.concatenate((self._root, far)),
            )
            flows = scipy.sparse.csr_array((amounts.astype(np.int32), ends), shape=(size, size))
            for sink in self.sinks:
                flow = scipy.sparse.csgraph.maximum_flow(flows, source, sink).flow
                residual = flows - flow
                residual.data = (residual.data > 0).astype(np.int32)
                residual.eliminate_zeros()
                side = np.zeros(size, dtype=np.bool_)
                reached = scipy.sparse.csgraph.breadth_first_order(
                    residual, source, return_predecessors=False
                )
                side[reached] = True
                side = side[:source]
                needed = float(rooted[side[self._root]].sum())
                if needed - float(carried[side[near] & ~side[far]].sum()) > _BROKEN * rate:
                    self._add(side, part)
        return len(self._rows) > known

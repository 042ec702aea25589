"""The optimum of allreduce as a packing of pairs of trees, found a few trees at a time.

Theory. An allreduce adds each piece of the message along one tree over the hosts and copies it along another
with the same root. So the best rate is that of a fractional packing: the largest sum of y over pairs of trees
such that on no link the pairs that cross it, each as often as it does, take more than the link carries. This
is the linear programme of `topotune.bounds.lp` seen from the trees (Edmonds), and a solution says all at
once: what share each host owns, which trees, and which ways through the switches. There are far too many
trees to write down, but a basic solution uses no more of them than there are links. Which trees?

For any prices p of the links, no allreduce is faster than sum p b over the cost of the cheapest pair; and at
the dual solution of the programme by cuts (`topotune.bounds.cut_planes`) that is the optimum. So all trees of
an optimal packing are cheapest at these prices, but many are, and few go well together. They are taken one by
one: the cheapest pair at these prices is used for a while; the links that it crosses grow dearer the more
they are ahead of the others; and so on. Hosts' cheapest trees are found exactly, for all roots at once
(`topotune.bounds.arborescence`; between hosts an arc costs what the cheapest way through switches does). The
linear programme over the pairs seen then gives the amounts. Where that is not close enough, its own dual
solution prices the links for some more trees, until it is.

Source: Fulkerson, "Packing rooted directed cuts", 1974; Plotkin, Shmoys and Tardos, "Fast approximation
algorithms for fractional packing and covering problems", 1995; Dantzig and Wolfe, "Decomposition principle
for linear programs", 1960, for what follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import scipy

from topotune.bounds.arborescence import cheapest_trees
from topotune.bounds.cut_planes import CutPlanes
from topotune.bounds.graph import CapacityGraph

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Path = tuple[str, ...]

_TURNS_PER_HOST: Final = 4
_MIN_TURNS: Final = 40
_DEARER: Final = 10.0
"""Over the number of hosts: what a link's price grows by, as a power of e, for each turn that it is ahead.
By trial on 4 racks of 12 unlike hosts, 2026-11: of 1, 3, 5, 10 and 20 the first with 99 % after 100 turns."""

_FOR_ALL: Final = 0.05
"""Share of what the prices bring that all links have alike: those that are no limit alone may become one."""

_OFTEN: Final = 0.01
"""What a pair costs more whose root has had as many turns as the mean, over its cost."""

_DIRECT: Final = 0.005
"""What a pair may cost more in which all hosts exchange with the root itself, over its cost."""

_HOP: Final = 1e-7
"""Price of a link beside its own, where a pair costs about 1: of ways that cost the same the shorter."""

_GIVEN_UP: Final = 1e-3
"""Share of the rate that equal shares and low trees may cost."""

_HEIGHT: Final = 0.01
"""Weight of the trees' mean height beside the largest share."""

_UNUSED: Final = 1e-7
"""Of the rate: pairs of less are rounding errors of the solver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TreePair:
    """A tree to add along and one to copy along, of one root.

    Attributes:
        share: of the message, what takes it.
        up: whom each host sends its part to; -1 for the root.
        down: whom each host hears the sum from; -1 for the root.
        ways_up, ways_down: of each host but the root the way to, or from, its parent: vertices of the graph.
    """

    share: float
    up: tuple[int, ...]
    down: tuple[int, ...]
    ways_up: Mapping[int, Path]
    ways_down: Mapping[int, Path]

    @property
    def root(self) -> int:
        """Which host adds it up."""
        return self.up.index(-1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TreePairs:
    """A packing.

    Attributes:
        hosts: the vertices that hold ranks, by their first rank; trees number them so.
        pairs: that share the message.
        algbw_bytes_per_s: what all of them carry together, within the links.
    """

    hosts: tuple[str, ...]
    pairs: tuple[TreePair, ...]
    algbw_bytes_per_s: float


def pack_pairs(graph: CapacityGraph, optimum: CutPlanes, *, close: float, max_rounds: int) -> TreePairs:
    """Pairs of trees that come close to the optimum of an allreduce.

    Args:
        graph: ranks on at least two vertices, which can all reach each other. A switch may be entered by more
            than leaves it.
        optimum: of the same graph.
        close: share of it at which to stop.
        max_rounds: linear programmes after the first, at most.

    Complexity: cheapest trees, shortest ways between all hosts, 4 times a host; a linear programme of a row a
    link. 0.2 s for 16 hosts, 2 s for 48, on a core of 2026.
    """
    packing = _Packing(graph, optimum)
    packing.take_turns()
    rate = packing.solve()
    for _ in range(max_rounds):
        if rate >= close or not packing.add_cheapest():
            break
        rate = packing.solve()
    return packing.found()


class _Pair:
    """A column: both trees, the vertices of their ways, and how often they cross each link."""

    def __init__(self, up: IntArray, down: IntArray, ways: "_Ways") -> None:
        self.up, self.down = up, down
        others = np.flatnonzero(up >= 0).tolist()
        self.ways_up = {host: ways.between(host, int(up[host])) for host in others}
        self.ways_down = {host: ways.between(int(down[host]), host) for host in others}
        crossed = [
            ways.link[ends]
            for way in (*self.ways_up.values(), *self.ways_down.values())
            for ends in pairwise(way)
        ]
        self.load = np.bincount(crossed, minlength=len(ways.link)).astype(np.int16)

    @property
    def height(self) -> int:
        """Arcs between hosts from the farthest to the root, and from there to the farthest."""
        return _height(self.up) + _height(self.down)


def _height(parents: IntArray) -> int:
    at, arcs = np.arange(len(parents)), 0
    up = np.where(parents < 0, at, parents)
    while (parents[at] >= 0).any():
        at, arcs = up[at], arcs + 1
    return arcs


def _cost(parents: IntArray, costs: FloatArray) -> FloatArray:
    """Of each row's tree."""
    arcs = costs[parents, np.arange(len(costs))]
    total: FloatArray = np.where(parents < 0, 0.0, arcs).sum(axis=1)
    return total


class _Packing:
    """Rows are links, columns are pairs of trees; all rates in those of the optimum."""

    def __init__(self, graph: CapacityGraph, optimum: CutPlanes) -> None:
        self._graph = graph
        self._hosts = tuple(dict.fromkeys(graph.compute))
        self._names = [*self._hosts, *(v for v in graph.vertices if v not in graph.hosts)]
        number = {name: index for index, name in enumerate(self._names)}
        self._ends = [(number[tail], number[head]) for tail, head in graph.capacities]
        self._optimum = optimum.algbw_bytes_per_s
        # No pair crosses a link more often than its trees have arcs: more room would only blur the rest.
        most = 2.0 * len(self._hosts)
        self._room = np.array([min(most, rate / self._optimum) for rate in graph.capacities.values()])
        prices = np.array([optimum.prices[arc] for arc in graph.capacities])
        bring = float(prices @ self._room)
        self._prices = (1 - _FOR_ALL) * prices / (bring or 1.0) + _FOR_ALL / (self._room * len(self._room))
        self._pairs: dict[bytes, _Pair] = {}
        self._amounts: FloatArray = np.empty(0)
        self._dual = self._prices

    def take_turns(self) -> None:
        """Use the cheapest pair at prices that follow what is used."""
        num_hosts = len(self._hosts)
        turns = max(_MIN_TURNS, _TURNS_PER_HOST * num_hosts)
        used, rooted = np.zeros(len(self._room)), np.zeros(num_hosts)
        own = np.where(np.eye(num_hosts, dtype=np.bool_), -1, np.arange(num_hosts)[:, None])
        for turn in range(turns):
            ahead = used / self._room - turn
            prices = self._prices * np.exp(np.clip(_DEARER / num_hosts * ahead, -30.0, 30.0))
            prices /= prices @ self._room
            ways = _Ways(self._ends, num_hosts, prices)
            down, up = cheapest_trees(ways.costs), cheapest_trees(ways.costs.T)
            often = 1.0 + _OFTEN * rooted * num_hosts / (turn + 1)
            trees = often * (_cost(down, ways.costs) + _cost(up, ways.costs.T))
            stars = (1.0 - _DIRECT) * often * (_cost(own, ways.costs) + _cost(own, ways.costs.T))
            root = int(np.minimum(trees, stars).argmin())
            both = (own[root], own[root]) if stars[root] <= trees[root] else (up[root], down[root])
            pair = _Pair(*both, ways)
            self._add(pair)
            used += pair.load
            rooted[root] += 1.0

    def solve(self) -> float:
        """The best rate of the pairs that are known, if the solver finds it; prices of links follow."""
        loads = self._loads()
        solution = scipy.optimize.linprog(
            -np.ones(loads.shape[1]), A_ub=loads, b_ub=self._room, method="highs"
        )
        if solution.status == 0:
            self._amounts = np.maximum(solution.x, 0.0)
            self._dual = np.maximum(-solution.ineqlin.marginals, 0.0)
        elif not self._amounts.size:
            # The solver gave up: as much of all pairs as fits.
            self._amounts = np.full(loads.shape[1], 1.0 / float((loads.sum(axis=1) / self._room).max()))
        else:
            self._amounts = np.pad(self._amounts, (0, loads.shape[1] - len(self._amounts)))
        return float(self._amounts.sum())

    def add_cheapest(self) -> bool:
        """Add each root's cheapest pair at the solution's prices, and near them; whether any is new."""
        known = len(self._pairs)
        for share in (0.3, 1.0):
            prices = share * self._dual + (1 - share) * self._prices
            for pair in self._cheapest(prices):
                if float(pair.load @ self._dual) < 1.0 - 1e-6:
                    self._add(pair)
        return len(self._pairs) > known

    def found(self) -> TreePairs:
        """The last solution, with shares as equal and trees as low as the pairs that are known allow."""
        rate, columns = float(self._amounts.sum()), list(self._pairs.values())
        ranks_at = [self._graph.compute.count(host) for host in self._hosts]
        roots = np.array([int(np.flatnonzero(pair.up < 0)[0]) for pair in columns])
        rooted = scipy.sparse.coo_array(
            (np.ones(len(columns)), (roots, np.arange(len(columns)))),
            shape=(len(self._hosts), len(columns)),
        )
        largest = -np.array(ranks_at, dtype=np.float64)[:, None]
        solution = scipy.optimize.linprog(
            np.append([_HEIGHT * pair.height for pair in columns], float(sum(ranks_at))),
            A_ub=scipy.sparse.block_array(
                [[self._loads(), None], [rooted, largest], [-np.ones((1, len(columns))), None]]
            ),
            b_ub=np.concatenate((self._room, np.zeros(len(self._hosts)), [-rate * (1 - _GIVEN_UP)])),
            method="highs",
        )
        amounts = np.maximum(solution.x[:-1], 0.0) if solution.status == 0 else self._amounts
        total = float(amounts.sum())
        chosen = np.flatnonzero(amounts > _UNUSED * total).tolist()
        return TreePairs(
            hosts=self._hosts,
            pairs=tuple(self._named(columns[number], float(amounts[number]) / total) for number in chosen),
            algbw_bytes_per_s=total * self._optimum,
        )

    def _named(self, pair: _Pair, share: float) -> TreePair:
        up, down = (
            {host: tuple(self._names[vertex] for vertex in way) for host, way in ways.items()}
            for ways in (pair.ways_up, pair.ways_down)
        )
        return TreePair(
            share=share,
            up=tuple(pair.up.tolist()),
            down=tuple(pair.down.tolist()),
            ways_up=up,
            ways_down=down,
        )

    def _loads(self) -> "scipy.sparse.csc_array":
        return scipy.sparse.csc_array(
            np.array([pair.load for pair in self._pairs.values()]).T, dtype=np.float64
        )

    def _cheapest(self, prices: FloatArray) -> list[_Pair]:
        """A cheapest pair for each root."""
        ways = _Ways(self._ends, len(self._hosts), prices)
        down, up = cheapest_trees(ways.costs), cheapest_trees(ways.costs.T)
        return [_Pair(up[root], down[root], ways) for root in range(len(self._hosts))]

    def _add(self, pair: _Pair) -> None:
        key = np.concatenate((pair.up, pair.down)).tobytes() + pair.load.tobytes()
        self._pairs.setdefault(key, pair)


class _Ways:
    """Cheapest ways between hosts, through switches alone, at some prices."""

    def __init__(self, ends: Sequence[tuple[int, int]], num_hosts: int, prices: FloatArray) -> None:
        self.link = {pair: number for number, pair in enumerate(ends)}
        tail, head = np.array(ends, dtype=np.int64).T
        self._size = size = int(max(tail.max(), head.max())) + 1
        # A host that a way enters is another vertex than the one that it leaves: no way leads through it.
        net = scipy.sparse.csr_array(
            (prices + _HOP, (tail, np.where(head < num_hosts, head + size, head))),
            shape=(size + num_hosts, size + num_hosts),
        )
        costs, self._before = scipy.sparse.csgraph.dijkstra(
            net, indices=np.arange(num_hosts), return_predecessors=True
        )
        self.costs: FloatArray = costs[:, size:]
        np.fill_diagonal(self.costs, 0.0)
        lead = np.isfinite(self.costs)
        # So dear that no cheapest tree has such an arc: all hosts reach each other by others.
        self.costs[~lead] = 2.0 * num_hosts * float(self.costs[lead].max())
        self._known: dict[tuple[int, int], list[int]] = {}

    def between(self, src: int, dst: int) -> list[int]:
        """Vertices of the way, both hosts included."""
        way = self._known.get((src, dst))
        if way is None:
            way, vertex = [dst], int(self._before[src, dst + self._size])
            while vertex >= 0:
                way.append(vertex)
                vertex = int(self._before[src, vertex])
            self._known[src, dst] = way = way[::-1]
        return way

"""Which links a message takes: the fewest of them, of those ways the widest, shared where several are equal.

Theory of operation. Hops to each destination come from a search backwards through the network, of all
destinations at once. A way does not lead through a vertex that holds ranks where another does without (boxes
of directly linked GPUs know no other). From each source all shortest ways are then walked level by level,
which gives the width of the widest (that of its narrowest link); those as wide are kept, and at each vertex
they share in proportion to the links that go on, as equal-cost routing over many flows, or a message striped
over several adapters, would. Nothing depends on names or numbers, so renaming changes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import scipy

from topotune.simulate.network import FloatArray, IntArray, Network

_FAR: Final = np.iinfo(np.int16).max
_MAX_CELLS: Final = 2**25
_MAX_WALKED: Final = 2**21
"""Most (message, link) rows that one level of a walk may look at."""

BoolArray = npt.NDArray[np.bool_]
HopTable = npt.NDArray[np.int16]
Ways = Sequence[tuple[tuple[str, ...], int]]
"""Ways through the network by their vertices, and how many equal parts of the message take each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Routes:
    """The ways of some pairs of ranks.

    Attributes:
        pair, link: rows (pair, link) that say what loads what, by pair ascending.
        share: of a pair's bytes, what takes the link; shape as ``pair``.
        latency_s: of each pair, along the slowest of its ways; shape (num_pairs,).
    """

    pair: IntArray
    link: IntArray
    share: FloatArray
    latency_s: FloatArray

    def chosen(self, which: IntArray) -> "Routes":
        """Those of some pairs by number, in this order; a pair may come several times."""
        count = np.bincount(self.pair, minlength=len(self.latency_s))
        first = np.cumsum(count) - count
        mine = count[which]
        pair = np.repeat(np.arange(len(which)), mine)
        place = np.arange(len(pair)) - np.repeat(np.cumsum(mine) - mine, mine) + first[which][pair]
        return Routes(
            pair=pair, link=self.link[place], share=self.share[place], latency_s=self.latency_s[which]
        )


def shortest_routes(network: Network, src: IntArray, dst: IntArray) -> Routes:
    """Ways between pairs of ranks.

    Args:
        network: where.
        src: ranks that send; shape (num_pairs,).
        dst: ranks that receive, likewise.

    Raises:
        ValueError: a rank cannot reach another.

    Time O(destinations · links · hops).
    """
    if network.own_routes is not None:
        return network.own_routes(src, dst)
    start, end = network.vertex_of_rank[src], network.vertex_of_rank[dst]
    keys, pair_of_row = np.unique(start * len(network.vertices) + end, return_inverse=True)
    start, end = np.divmod(keys, len(network.vertices))
    found = join_routes(list(_routes_between(network, start, end)), len(keys))
    return found.chosen(pair_of_row)


def is_way_of(network: Network, src: int, dst: int, ways: Ways) -> bool:
    """Whether all of them lead from one rank to the other over links that there are."""
    begin, end = (network.vertices[network.vertex_of_rank[rank]] for rank in (src, dst))
    return all(
        (way[0], way[-1]) == (begin, end) and all(arc in network.link_of_arc for arc in pairwise(way))
        for way, _ in ways
    )


def given_routes(network: Network, src: Sequence[int], dst: Sequence[int], ways: Sequence[Ways]) -> Routes:
    """Ways that are laid down for each pair, as a forest lays them down.

    Raises:
        ValueError: a way over a link that does not exist, or that does not lead from the one to the other.
    """
    pairs: list[int] = []
    links: list[int] = []
    shares: list[float] = []
    latency_s = np.zeros(len(src))
    for number, (a, b, of_pair) in enumerate(zip(src, dst, ways, strict=True)):
        total = sum(units for _, units in of_pair)
        begin, end = (network.vertices[network.vertex_of_rank[rank]] for rank in (a, b))
        for way, units in of_pair:
            if (way[0], way[-1]) != (begin, end):
                raise ValueError(f"ranks {a} and {b} are on {begin!r} and {end!r}, and the way is {way}")
            for arc in pairwise(way):
                if arc not in network.link_of_arc:
                    raise ValueError(f"the network has no link {arc[0]!r} -> {arc[1]!r}")
                pairs.append(number)
                links.append(network.link_of_arc[arc])
                shares.append(units / total)
            along_s = sum(float(network.latency_s[network.link_of_arc[arc]]) for arc in pairwise(way))
            latency_s[number] = max(latency_s[number], along_s)
    return Routes(
        pair=np.array(pairs, dtype=np.int64),
        link=np.array(links, dtype=np.int64),
        share=np.array(shares, dtype=np.float64),
        latency_s=latency_s,
    )


def _routes_between(network: Network, start: IntArray, end: IntArray) -> Iterator[tuple[IntArray, Routes]]:
    """Blocks of pairs of vertices, by number, with their routes."""
    holds_ranks = np.zeros(len(network.vertices), dtype=np.bool_)
    holds_ranks[network.vertex_of_rank] = True
    links_of = Leaving(network)
    widest_fan = int(np.max(links_of.count, initial=1))
    destinations = np.unique(end[start != end])
    block = max(1, _MAX_CELLS // len(network.vertices))
    for first in range(0, len(destinations), block):
        chosen = destinations[first : first + block]
        mine = np.flatnonzero((start != end) & (end >= chosen[0]) & (end <= chosen[-1]))
        hops = _hops_to(network, chosen, ~holds_ranks)
        column = np.searchsorted(chosen, end[mine])
        through = np.flatnonzero(hops[start[mine], column] == _FAR)
        for pairs, blocked in (
            (np.setdiff1d(np.arange(len(mine)), through), holds_ranks),
            (through, np.zeros_like(holds_ranks)),
        ):
            if not len(pairs):
                continue
            if blocked is not holds_ranks:
                hops = _hops_to(network, chosen, np.ones_like(holds_ranks))
                lost = pairs[hops[start[mine[pairs]], column[pairs]] == _FAR]
                if len(lost):
                    a, b = (network.vertices[int(at[mine[lost[0]]])] for at in (start, end))
                    raise ValueError(f"no way leads from {a!r} to {b!r}")
            at_once = max(1, _MAX_WALKED // widest_fan)
            for begin in range(0, len(pairs), at_once):
                some = pairs[begin : begin + at_once]
                rows = mine[some]
                table, at = hops, column[some]

                def hops_to(
                    vertex: IntArray, pair: IntArray, table: HopTable = table, at: IntArray = at
                ) -> IntArray:
                    return table[vertex, at[pair]].astype(np.int64)

                walk = Walk(network, links_of, hops_to, blocked, end[rows])
                yield rows, walk.routes(start[rows])


def _hops_to(network: Network, destinations: IntArray, may_pass: BoolArray) -> HopTable:
    """Links from every vertex to each destination; shape (num_vertices, num_destinations)."""
    num_vertices, columns = len(network.vertices), np.arange(len(destinations))
    ones = np.ones(len(network.tail), dtype=np.float32)
    onwards = scipy.sparse.csr_array((ones, (network.tail, network.head)), shape=(num_vertices, num_vertices))
    hops = np.full((num_vertices, len(destinations)), _FAR, dtype=np.int16)
    hops[destinations, columns] = 0
    frontier = np.zeros(hops.shape, dtype=np.float32)
    frontier[destinations, columns] = 1.0
    distance = 0
    while True:
        distance += 1
        reached = (onwards @ frontier > 0) & (hops == _FAR)
        if not reached.any():
            return hops
        hops[reached] = distance
        frontier = (reached & may_pass[:, None]).astype(np.float32)


class Leaving:
    """The links out of each vertex."""

    def __init__(self, network: Network) -> None:
        self.order = np.argsort(network.tail, kind="stable")
        self.count = np.bincount(network.tail, minlength=len(network.vertices))
        self.first = np.cumsum(self.count) - self.count

    def of(self, vertex: IntArray) -> tuple[IntArray, IntArray]:
        """Rows (index into ``vertex``, link) of all links out of each of these vertices."""
        count = self.count[vertex]
        row = np.repeat(np.arange(len(vertex)), count)
        place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        return row, self.order[self.first[vertex][row] + place]


class Walk:
    """All shortest ways of some pairs at once; a row of a level is a pair and a vertex it may be at.

    Args:
        network: where.
        links_of: its links by tail.
        hops_to: (vertices, pairs) → links from each vertex to its pair's end.
        blocked: vertices that no way may lead through.
        end: of each pair.
    """

    def __init__(
        self,
        network: Network,
        links_of: Leaving,
        hops_to: Callable[[IntArray, IntArray], IntArray],
        blocked: BoolArray,
        end: IntArray,
    ) -> None:
        self.network = network
        self.links_of = links_of
        self.hops_to = hops_to
        self.blocked = blocked
        self.end = end

    def routes(self, start: IntArray) -> Routes:
        """Ways from these vertices; ``pair`` counts them."""
        bandwidth = self.network.bandwidth_bytes_per_s
        num_pairs = len(start)
        pair, vertex, width = np.arange(num_pairs), start, np.full(num_pairs, np.inf)
        widest = np.zeros(num_pairs)
        levels: list[tuple[IntArray, IntArray, FloatArray, IntArray, IntArray, IntArray]] = []
        while len(pair):
            row, link = self.links_of.of(vertex)
            head, of_row = self.network.head[link], pair[row]
            on_way = self.hops_to(head, of_row) == self.hops_to(vertex, pair)[row] - 1
            on_way &= ~self.blocked[head] | (head == self.end[of_row])
            row, link, head, of_row = row[on_way], link[on_way], head[on_way], of_row[on_way]
            keys, child = np.unique(of_row * len(self.network.vertices) + head, return_inverse=True)
            levels.append((pair, vertex, width, row, link, child))
            next_width = np.zeros(len(keys))
            np.maximum.at(next_width, child, np.minimum(width[row], bandwidth[link]))
            pair, vertex = np.divmod(keys, len(self.network.vertices))
            width = next_width
            arrived = vertex == self.end[pair]
            widest[pair[arrived]] = width[arrived]
            if arrived.all():
                break
        return self._shared(levels, pair, vertex, widest)

    def _shared(
        self,
        levels: list[tuple[IntArray, IntArray, FloatArray, IntArray, IntArray, IntArray]],
        last_pair: IntArray,
        last_vertex: IntArray,
        widest: FloatArray,
    ) -> Routes:
        bandwidth, link_latency_s = self.network.bandwidth_bytes_per_s, self.network.latency_s
        useful = last_vertex == self.end[last_pair]
        kept: list[BoolArray] = []
        for pair, vertex, width, row, link, child in reversed(levels):
            limit = widest[pair[row]]
            keep = useful[child] & (bandwidth[link] >= limit) & (width[row] >= limit)
            kept.append(keep)
            useful = vertex == self.end[pair]
            useful[row[keep]] = True
        num_pairs = len(widest)
        share: FloatArray = np.ones(num_pairs)
        latency_s: FloatArray = np.zeros(num_pairs)
        arrival_s = np.zeros(num_pairs)
        rows: list[tuple[IntArray, IntArray, FloatArray]] = []
        for (pair, _vertex, _width, row, link, child), keep in zip(levels, reversed(kept), strict=True):
            row, link, child = row[keep], link[keep], child[keep]
            weight = np.where(np.isinf(bandwidth[link]), 1.0, bandwidth[link])
            taken = share[row] * weight / np.bincount(row, weight, minlength=len(pair))[row]
            rows.append((pair[row], link, taken))
            num_children = int(child.max(initial=-1)) + 1
            so_far_s = latency_s[row] + link_latency_s[link]
            share = np.bincount(child, taken, minlength=num_children).astype(np.float64)
            latency_s = np.zeros(num_children)
            np.maximum.at(latency_s, child, so_far_s)
            np.maximum.at(arrival_s, pair[row], so_far_s)
        pairs, links, shares = (np.concatenate(column) for column in zip(*rows, strict=True))
        order = np.argsort(pairs, kind="stable")
        return Routes(pair=pairs[order], link=links[order], share=shares[order], latency_s=arrival_s)


def join_routes(blocks: Sequence[tuple[IntArray, Routes]], num_pairs: int) -> Routes:
    """Blocks of pairs, each with the numbers of its pairs, put together; pairs in none take no link."""
    latency_s = np.zeros(num_pairs)
    for rows, routes in blocks:
        latency_s[rows] = routes.latency_s
    pair = np.concatenate([rows[routes.pair] for rows, routes in blocks] or [np.empty(0, dtype=np.int64)])
    link = np.concatenate([routes.link for _, routes in blocks] or [np.empty(0, dtype=np.int64)])
    share = np.concatenate([routes.share for _, routes in blocks] or [np.empty(0)])
    order = np.argsort(pair, kind="stable")
    return Routes(pair=pair[order], link=link[order], share=share[order], latency_s=latency_s)

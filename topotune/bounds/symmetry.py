"""Hosts of a capacity graph that are alike: what holds for one of them holds for all. Pure.

Theory of operation. Two hosts are alike where some exchange of vertices that swaps them leaves the graph as
it is: same capacities, same ranks. Such an exchange is sought by walking out from both at once: neighbours
that both have stay where they are, the others are paired in order of name among those with links of equal
capacity. It is then checked on every link that it touches. What is not found, or does not hold, costs time
alone: hosts then count as different. All that one exchange swaps is alike, and so is what several lead to
one after the other.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from topotune.bounds.graph import Arc, CapacityGraph

_MOST_TRIED = 4
"""Representatives that a host is compared with."""

Neighbours = Mapping[str, Mapping[tuple[int, int], Sequence[str]]]
Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Likeness:
    """Which vertices and which links of a graph are alike.

    Attributes:
        vertices: of each vertex the first by name that is like it.
        arcs: of each link one that is like it.
    """

    vertices: Mapping[str, str]
    arcs: Mapping[Arc, Arc]

    def unlike(self, vertices: Iterable[str]) -> list[str]:
        """The first by name of each kind among these, which are all that are like one of them."""
        return sorted({self.vertices[vertex] for vertex in vertices})


def likeness(graph: CapacityGraph, marked: Set[str] = frozenset()) -> Likeness:
    """What the exchanges that are found make alike.

    Args:
        graph: any.
        marked: vertices that are only like each other.
    """
    vertices, exchanges = _alike(graph, frozenset(), marked)
    arcs = _Classes[Arc]()
    for swap in exchanges:
        for a, b in graph.capacities:
            if a in swap or b in swap:
                arcs.join((a, b), (swap.get(a, a), swap.get(b, b)))
    return Likeness(
        vertices={vertex: vertices.first(vertex) for vertex in graph.vertices},
        arcs={arc: arcs.first(arc) for arc in graph.capacities},
    )


def unlike_hosts(graph: CapacityGraph, fixed: Set[str] = frozenset()) -> list[str]:
    """One host of each kind, the first by name.

    Args:
        graph: any.
        fixed: vertices that an exchange may not move; hosts among them are left out.
    """
    classes, _ = _alike(graph, fixed, frozenset())
    return [host for host in sorted(graph.hosts - fixed) if classes.first(host) == host]


class _Classes(Generic[Item]):
    """Sets of things that are alike, by the least of each."""

    def __init__(self) -> None:
        self._towards: dict[Item, Item] = {}

    def first(self, one: Item) -> Item:
        while (nearer := self._towards.get(one, one)) != one:
            self._towards[one] = self._towards.get(nearer, nearer)
            one = nearer
        return one

    def join(self, one: Item, other: Item) -> None:
        low, high = sorted((self.first(one), self.first(other)))  # type: ignore[type-var]
        if low != high:
            self._towards[high] = low


def _alike(
    graph: CapacityGraph, fixed: Set[str], marked: Set[str]
) -> tuple[_Classes[str], list[dict[str, str]]]:
    """Classes of vertices that exchanges make alike, and these exchanges."""
    links = _links(graph)
    neighbours = _neighbours(links)
    ranks_at = Counter(graph.compute)
    label = {vertex: (ranks_at[vertex], vertex in marked) for vertex in links}
    classes, exchanges = _Classes[str](), list[dict[str, str]]()
    representatives: dict[tuple[object, ...], list[str]] = {}
    for host in sorted(graph.hosts - fixed):
        if classes.first(host) != host:
            continue
        # Hosts that differ here cannot be alike.
        looks = (label[host], tuple(sorted((kind, len(ends)) for kind, ends in neighbours[host].items())))
        like = representatives.setdefault(looks, [])
        for one in like[:_MOST_TRIED]:
            swap = _exchange(links, neighbours, label, one, host, fixed)
            if swap is not None:
                exchanges.append(swap)
                for vertex, other in swap.items():
                    classes.join(vertex, other)
                break
        else:
            like.append(host)
    return classes, exchanges


def _links(graph: CapacityGraph) -> dict[str, dict[str, tuple[int, int]]]:
    """Each vertex: its neighbours, with the capacity to and from them."""
    links: dict[str, dict[str, tuple[int, int]]] = {vertex: {} for vertex in graph.vertices}
    for (a, b), capacity in graph.capacities.items():
        links[a][b] = (capacity, links[a].get(b, (0, 0))[1])
        links[b][a] = (links[b].get(a, (0, 0))[0], capacity)
    return links


def _neighbours(links: Mapping[str, Mapping[str, tuple[int, int]]]) -> Neighbours:
    """Each vertex: its neighbours by the capacities of the links, sorted by name."""
    return {
        vertex: {
            kind: sorted(there for there, capacities in ends.items() if capacities == kind)
            for kind in sorted(set(ends.values()))
        }
        for vertex, ends in links.items()
    }


def _exchange(
    links: Mapping[str, Mapping[str, tuple[int, int]]],
    neighbours: Neighbours,
    label: Mapping[str, tuple[int, bool]],
    a: str,
    b: str,
    fixed: Set[str],
) -> dict[str, str] | None:
    """An exchange that swaps these two: of each vertex that it moves where to; None where none is found."""
    swap = {a: b, b: a}
    # Vertices with few neighbours first: they leave least to chance.
    ahead = [(len(links[a]), a, b)]
    while ahead:
        _, x, y = heappop(ahead)
        if neighbours[x].keys() != neighbours[y].keys():
            return None
        for kind, of_x in neighbours[x].items():
            of_y = neighbours[y][kind]
            common = set(of_x) & set(of_y)
            left = [vertex for vertex in of_x if vertex not in common and vertex not in swap]
            right = [vertex for vertex in of_y if vertex not in common and vertex not in swap]
            if len(left) != len(right):
                return None
            for pair in zip(left, right, strict=True):
                if pair[0] in swap or pair[1] in swap:
                    return None
                swap[pair[0]], swap[pair[1]] = pair[1], pair[0]
                heappush(ahead, (len(links[pair[0]]), *pair))
    if not fixed.isdisjoint(swap):
        return None
    holds = all(
        label[vertex] == label[other]
        and len(links[vertex]) == len(links[other])
        and all(
            links[other].get(swap.get(there, there)) == capacities
            for there, capacities in links[vertex].items()
        )
        for vertex, other in swap.items()
    )
    return swap if holds else None

"""Hosts of a capacity graph that are alike: what holds for one of them holds for all. Pure.

Theory of operation. Two hosts are alike where some exchange of vertices that swaps them leaves the graph as
it is: same capacities, same ranks. Such an exchange is sought by walking out from both at once: neighbours
that both have stay where they are, the others are paired in order of name among those with links of equal
capacity. It is then checked on every link that it touches. What is not found, or does not hold, costs time
alone: hosts then count as different.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from heapq import heappop, heappush

from topotune.bounds.graph import CapacityGraph

_MOST_TRIED = 4
"""Representatives that a host is compared with."""

Neighbours = Mapping[str, Mapping[tuple[int, int], Sequence[str]]]


def unlike_hosts(graph: CapacityGraph, fixed: Set[str] = frozenset()) -> list[str]:
    """One host of each kind, the first by name.

    Args:
        graph: any.
        fixed: vertices that an exchange may not move; hosts among them are left out.
    """
    links = _links(graph)
    neighbours = _neighbours(links)
    ranks_at = Counter(graph.compute)
    representatives: dict[tuple[object, ...], list[str]] = {}
    found = []
    for host in sorted(graph.hosts - fixed):
        # Hosts that differ here cannot be alike.
        looks = (ranks_at[host], tuple(sorted((kind, len(ends)) for kind, ends in neighbours[host].items())))
        like = representatives.setdefault(looks, [])
        if any(_can_swap(links, neighbours, ranks_at, one, host, fixed) for one in like[:_MOST_TRIED]):
            continue
        like.append(host)
        found.append(host)
    return found


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


def _can_swap(
    links: Mapping[str, Mapping[str, tuple[int, int]]],
    neighbours: Neighbours,
    ranks_at: Mapping[str, int],
    a: str,
    b: str,
    fixed: Set[str],
) -> bool:
    """Whether an exchange that swaps these two was found, and holds."""
    swap = {a: b, b: a}
    # Vertices with few neighbours first: they leave least to chance.
    ahead = [(len(links[a]), a, b)]
    while ahead:
        _, x, y = heappop(ahead)
        if neighbours[x].keys() != neighbours[y].keys():
            return False
        for kind, of_x in neighbours[x].items():
            of_y = neighbours[y][kind]
            common = set(of_x) & set(of_y)
            left = [vertex for vertex in of_x if vertex not in common and vertex not in swap]
            right = [vertex for vertex in of_y if vertex not in common and vertex not in swap]
            if len(left) != len(right):
                return False
            for pair in zip(left, right, strict=True):
                if pair[0] in swap or pair[1] in swap:
                    return False
                swap[pair[0]], swap[pair[1]] = pair[1], pair[0]
                heappush(ahead, (len(links[pair[0]]), *pair))
    if not fixed.isdisjoint(swap):
        return False
    return all(
        ranks_at.get(vertex, 0) == ranks_at.get(other, 0)
        and len(links[vertex]) == len(links[other])
        and all(
            links[other].get(swap.get(there, there)) == capacities
            for there, capacities in links[vertex].items()
        )
        for vertex, other in swap.items()
    )

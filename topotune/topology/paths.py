"""How near two devices are, in the words of ``nvidia-smi topo -m``, from the graph.

| word | the way between them |
| --- | --- |
| ``NV#`` | # NVLinks, straight or through NVSwitches; ``NV?`` as many as nobody counted |
| ``PIX`` | at most one PCI Express switch |
| ``PXB`` | several PCI Express switches, no host bridge |
| ``PHB`` | a PCI Express host bridge (usually inside the CPU) |
| ``NODE`` | two host bridges of one NUMA node |
| ``SYS`` | from one NUMA node to another |
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence

from topotune.topology.model import Topology, Vertex

# NUMA nodes, sockets, host bridges, switches on a way, in the order in which they count.
Cost = tuple[int, int, int, int]

# What entering a vertex adds. GPUs, adapters and NVSwitches are ends of a PCI way and never on it.
_STEP: dict[str, Cost] = {
    "numa": (1, 0, 0, 0),
    "cpu": (0, 1, 0, 0),
    "pcie-root": (0, 0, 1, 0),
    "pcie-switch": (0, 0, 0, 1),
}
_NOTHING: Cost = (0, 0, 0, 0)


class Paths:
    """Answers for one topology; what two answers share is worked out once.

    Beyond NVLink, only vertices of one node are told apart; a way between nodes has no word here. A link that
    is described in one direction alone is taken to run in both. What a tool said of two devices
    (`Topology.pairs`) comes before what the graph shows of them.
    """

    def __init__(self, topology: Topology) -> None:
        self._vertices: Mapping[str, Vertex] = {vertex.id: vertex for vertex in topology.vertices}
        self._pcie: dict[str, dict[str, None]] = defaultdict(dict)
        self._nvlinks: dict[str, dict[str, int | None]] = defaultdict(dict)
        self._ways: dict[str, dict[str, Cost]] = {}
        self._stated = {frozenset((pair.a, pair.b)): pair for pair in topology.pairs}
        for link in topology.links:
            if link.kind == "nvlink":
                # Where the ends do not agree on how many, those that both have are the usable ones.
                lanes = _fewer(link.lanes, self._nvlinks[link.dst].get(link.src, link.lanes))
                self._nvlinks[link.src][link.dst] = self._nvlinks[link.dst][link.src] = lanes
            elif link.kind in ("pcie", "numa"):
                self._pcie[link.src][link.dst] = self._pcie[link.dst][link.src] = None

    def between(self, a: str, b: str) -> str | None:
        """The word for the way between two devices, or None where the topology does not tell.

        ``NV4`` are four NVLinks; ``NV?`` are as many as nobody counted.

        Args:
            a: id of a GPU or network adapter.
            b: id of another.
        """
        stated = self._stated.get(frozenset((a, b)))
        if stated and stated.path == "XGMI" and stated.nvlinks is None:
            return stated.path
        nvlinks = stated.nvlinks if stated and stated.nvlinks is not None else self.num_nvlinks(a, b)
        if nvlinks is None:
            return "NV?"
        if nvlinks:
            return f"NV{nvlinks}"
        if stated and stated.path is not None:
            return stated.path
        return self.seen(a, b)

    def seen(self, a: str, b: str) -> str | None:
        """The word for the way through PCI Express and the processors, from the graph alone."""
        one, other = self._vertices[a], self._vertices[b]
        if one.node != other.node:
            return None
        cost = self._ways_from(a).get(b)
        if cost is not None:
            return _word(cost)
        if one.numa is None or other.numa is None:
            return None
        # One host bridge or two: where the tree between them is hidden, only the farther is certain to hold.
        return "NODE" if one.numa == other.numa else "SYS"

    def nvlink_peers(self, a: str) -> tuple[str, ...]:
        """GPUs that a GPU reaches over NVLink, straight or through one NVSwitch."""
        peers: dict[str, None] = {}
        for there in self._nvlinks.get(a, ()):
            if self._vertices[there].kind == "nvswitch":
                peers.update(dict.fromkeys(self._nvlinks[there]))
            else:
                peers[there] = None
        peers.pop(a, None)
        return tuple(peer for peer in peers if self._vertices[peer].kind == "gpu")

    def num_nvlinks(self, a: str, b: str) -> int | None:
        """NVLinks that links show between two devices, straight and through switches; None: not counted."""
        near, far = self._nvlinks.get(a, {}), self._nvlinks.get(b, {})
        ways = [near[b]] if b in near else []
        ways += [
            _fewer(lanes, far[there])
            for there, lanes in near.items()
            if there in far and self._vertices[there].kind == "nvswitch"
        ]
        return None if None in ways else sum(lanes for lanes in ways if lanes is not None)

    def _ways_from(self, start: str) -> dict[str, Cost]:
        """Dijkstra over one node's PCI and NUMA links; O(links log vertices)."""
        if start in self._ways:
            return self._ways[start]
        ways: dict[str, Cost] = {}
        queue: list[tuple[Cost, str]] = [(_NOTHING, start)]
        while queue:
            cost, here = heapq.heappop(queue)
            if here in ways:
                continue
            ways[here] = cost
            if here != start and self._vertices[here].kind not in _STEP:
                continue
            for there in self._pcie.get(here, ()):
                if there not in ways:
                    numa, sockets, roots, switches = _STEP.get(self._vertices[there].kind, _NOTHING)
                    further = (cost[0] + numa, cost[1] + sockets, cost[2] + roots, cost[3] + switches)
                    heapq.heappush(queue, (further, there))
        self._ways[start] = ways
        return ways


def _fewer(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


def _word(cost: Cost) -> str:
    numa, sockets, roots, switches = cost
    if numa > 1 or sockets > 1:
        return "SYS"
    if roots > 1:
        return "NODE"
    if numa or sockets or roots:
        return "PHB"
    return "PIX" if switches <= 1 else "PXB"


def nearest(words: Mapping[str, str | None]) -> tuple[str | None, Sequence[str]]:
    """The best word among devices, and the devices that have it; (None, ()) where no word is known."""
    known = {device: word for device, word in words.items() if word is not None}
    if not known:
        return None, ()
    best = min(known.values(), key=_rank)
    return best, [device for device, word in known.items() if word == best]


def _rank(word: str) -> int:
    closest_first = ("XGMI", "PIX", "PXB", "PHB", "NODE", "SYS")
    return closest_first.index(word) if word in closest_first else -1

"""The way from a device up to its processor, as a node's PCI Express links show it."""

from collections import deque
from functools import cached_property

from topotune.topology.model import Topology, Vertex

_TOPS = ("numa", "cpu", "pcie-root")


class PciTree:
    """Parents, and what the links to them carry."""

    def __init__(self, topology: Topology) -> None:
        self._vertices = {vertex.id: vertex for vertex in topology.vertices}
        self._around: dict[str, dict[str, float | None]] = {}
        for link in topology.links:
            if link.kind == "pcie":
                for here, there in ((link.src, link.dst), (link.dst, link.src)):
                    before = self._around.setdefault(here, {}).get(there)
                    known = [each for each in (before, link.bandwidth_bytes_per_s) if each is not None]
                    self._around[here][there] = min(known, default=None)

    @cached_property
    def parents(self) -> dict[str, str]:
        """What each vertex hangs on; those at the top are left out. O(links)."""
        tops = [name for name in self._around if self._vertices[name].kind in _TOPS]
        found: dict[str, str] = {}
        # A root complex below a NUMA node is reached from there; one that nothing holds is a top itself.
        for level in _TOPS:
            ahead = deque(name for name in tops if self._vertices[name].kind == level and name not in found)
            seen = {*found, *found.values(), *ahead}
            while ahead:
                here = ahead.popleft()
                for there in self._around[here]:
                    if there not in seen and self._vertices[there].kind not in ("numa", "cpu"):
                        seen.add(there)
                        found[there] = here
                        ahead.append(there)
        return found

    def carries(self, below: str, above: str) -> float | None:
        """Bytes/s of the link between two vertices, the lesser direction; None where it is not known."""
        return self._around.get(below, {}).get(above)

    def way(self, vertex: Vertex) -> tuple[tuple[str, str], ...]:
        """The steps from a device to the top, each as (below, above)."""
        steps = []
        here = vertex.id
        while (above := self.parents.get(here)) is not None:
            steps.append((here, above))
            here = above
        return tuple(steps)

    def narrowest(self, vertex: Vertex) -> tuple[float, tuple[str, str]] | None:
        """The least that a step of the way carries, in bytes/s, and the step; None where none is known."""
        known = [(rate, step) for step in self.way(vertex) if (rate := self.carries(*step)) is not None]
        return min(known, default=None)

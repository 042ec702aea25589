"""One node of a topology, as the checks look at it: its devices, its facts, how devices are called.

A topology of many nodes is taken apart once, so that looking at each of them costs no more than its size.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from topotune.errors import UsageError
from topotune.health.pci_tree import PciTree
from topotune.probe.kernel_text import parse_cpulist
from topotune.topology.model import Source, Topology, Vertex
from topotune.topology.paths import Paths

Fact = str | int | float | bool | None

_UP = {"up", "active", "linkup"}
_DOWN = {"down", "disabled", "polling", "lowerlayerdown", "init", "armed", "initializing"}
NETDEV_STATE = "netdev.state"
MAX_GPUS = 256
MAX_NICS = 1024


class Node:
    """What is known of one node.

    Attributes:
        name: as messages call it.
        topology: of this node alone, without ranks.
        facts: of it.
    """

    def __init__(self, name: str, topology: Topology) -> None:
        self.name = name
        self.topology = topology
        self.facts: Mapping[str, Fact] = topology.source.facts

    @cached_property
    def gpus(self) -> tuple[Vertex, ...]:
        """Its GPUs."""
        return tuple(vertex for vertex in self.topology.vertices if vertex.kind == "gpu")

    @cached_property
    def nics(self) -> tuple[Vertex, ...]:
        """Its network ports and devices."""
        return tuple(vertex for vertex in self.topology.vertices if vertex.kind == "nic")

    @cached_property
    def rdma_nics(self) -> tuple[Vertex, ...]:
        """Ports of RDMA devices: InfiniBand, RoCE, EFA."""
        return tuple(nic for nic in self.nics if is_rdma(nic))

    @cached_property
    def paths(self) -> Paths:
        """How near its devices are to each other."""
        return Paths(self.topology)

    @cached_property
    def vertices(self) -> dict[str, Vertex]:
        """All that the node has, by id."""
        return {vertex.id: vertex for vertex in self.topology.vertices}

    @cached_property
    def numa(self) -> dict[int, Vertex]:
        """Its NUMA nodes, by number."""
        return {
            vertex.index: vertex
            for vertex in self.topology.vertices
            if vertex.kind == "numa" and vertex.index is not None
        }

    @cached_property
    def tree(self) -> PciTree:
        """Its PCI Express links, as ways up to the processors."""
        return PciTree(self.topology)

    def flag(self, name: str) -> bool | None:
        """A fact that is true or false; None where nobody looked."""
        value = self.facts.get(name)
        return value if isinstance(value, bool) else None

    def count(self, name: str) -> int | None:
        """A fact that is a whole number; None where nobody looked."""
        value = self.facts.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, name: str) -> str | None:
        """A fact in words; None where nobody looked."""
        value = self.facts.get(name)
        return value if isinstance(value, str) else None

    def called(self, vertex: Vertex) -> str:
        """``GPU 3 (0000:17:00.0)``, ``mlx5_0``."""
        if vertex.kind == "gpu":
            number = "" if vertex.index is None else f" {vertex.index}"
            address = vertex.pci_address or ("" if number else vertex.id)
            return f"GPU{number}" + (f" ({address})" if address else "")
        name = vertex.rdma_device or vertex.name or vertex.pci_address
        return name or vertex.id.removeprefix(f"{self.name}/{vertex.kind}/")

    def where(self, vertices: Iterable[Vertex] = ()) -> str:
        """Devices and the node, as ``where`` of a finding: ``GPU 0, GPU 3 of node a``."""
        devices = listed([self.called(vertex) for vertex in vertices])
        return f"{devices} of node {self.name}" if devices else f"node {self.name}"


def cpus_in(text: str | None) -> frozenset[int]:
    """CPUs as the kernel lists them; none where a file says what is no such list."""
    try:
        return parse_cpulist(text or "")
    except ValueError:
        return frozenset()


def is_rdma(nic: Vertex) -> bool:
    """A port that RDMA goes through, as far as the source says."""
    model = (nic.model or "").lower()
    return (
        nic.link_layer is not None
        or nic.rdma_device is not None
        or "1d0f:efa" in model
        or "elastic fabric adapter" in model
        or (nic.name or "").startswith(("mlx5_", "mlx4_", "rdmap", "rocep", "ibp", "bnxt_re", "irdma"))
    )


def is_up(nic: Vertex) -> bool | None:
    """Whether a port carries traffic; None where its state is not known."""
    said = (nic.state or nic.attributes.get(NETDEV_STATE) or "").lower()
    if said in _UP:
        return True
    return False if said in _DOWN else None


def nodes_of(topology: Topology) -> tuple[Node, ...]:
    """The nodes of a topology, in its order; O(vertices + links + pairs + facts × nodes).

    Raises:
        UsageError: a node with more GPUs or network ports than a machine has: each is compared with each.
    """
    vertices: dict[str, list[Vertex]] = defaultdict(list)
    home: dict[str, str] = {}
    for vertex in topology.vertices:
        if vertex.node is not None:
            vertices[vertex.node].append(vertex)
            home[vertex.id] = vertex.node
    for name, members in vertices.items():
        for kind, limit in (("gpu", MAX_GPUS), ("nic", MAX_NICS)):
            number = sum(vertex.kind == kind for vertex in members)
            if number > limit:
                raise UsageError(
                    f"node {name:.60} has {number} vertices of kind {kind}, more than the {limit} of a "
                    "machine",
                    hint="give each host its own name in the field node",
                )
    if len(vertices) == 1:
        (name,) = vertices
        inside = replace(
            topology,
            vertices=tuple(vertices[name]),
            links=tuple(link for link in topology.links if link.src in home and link.dst in home),
            ranks=(),
            servers=(),
        )
        return (Node(name, inside),)
    links, pairs = defaultdict(list), defaultdict(list)
    for link in topology.links:
        here = home.get(link.src)
        if here is not None and here == home.get(link.dst):
            links[here].append(link)
    for pair in topology.pairs:
        here = home.get(pair.a)
        if here is not None and here == home.get(pair.b):
            pairs[here].append(pair)
    facts = _facts_by_node(topology.source.facts, list(vertices))
    return tuple(
        Node(
            name,
            Topology(
                vertices=tuple(members),
                links=tuple(links[name]),
                pairs=tuple(pairs[name]),
                source=Source(kind=topology.source.kind, facts=dict(facts[name])),
            ),
        )
        for name, members in vertices.items()
    )


def _facts_by_node(facts: Mapping[str, Fact], names: list[str]) -> dict[str, dict[str, Fact]]:
    """What `gather` wrote: a fact of all under its own name, one that differs as ``name of a, b``."""
    found: dict[str, dict[str, Fact]] = {name: {} for name in names}
    for key, value in facts.items():
        fact, of, holders = key.partition(" of ")
        if not of:
            for name in names:
                found[name].setdefault(key, value)
            continue
        for name in holders.split(" and ")[0].split(", "):
            if name in found:
                found[name][fact] = value
    return found


def listed(names: list[str], limit: int = 8) -> str:
    """``a, b, c``; beyond so many, ``… and 4 more``."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more

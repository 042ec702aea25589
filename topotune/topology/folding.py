"""Which nodes of a cluster look the same, so that one of them stands for all."""

from collections import defaultdict
from collections.abc import Hashable

from topotune.topology.model import Topology, Vertex


def alike_nodes(topology: Topology) -> list[list[str]]:
    """Nodes in groups that differ in nothing but names, identifiers and what a format adds, in their order.

    Two nodes are of one group where their vertices, taken in order, say the same, and have the same links and
    pairs between them. O(vertices + links + pairs).
    """
    members: dict[str, list[Hashable]] = defaultdict(list)
    place: dict[str, tuple[str, int]] = {}
    for vertex in topology.vertices:
        if vertex.node is not None:
            place[vertex.id] = (vertex.node, len(members[vertex.node]))
            members[vertex.node].append(_look(vertex))
    for link in topology.links:
        here, there = place.get(link.src), place.get(link.dst)
        if here is not None and there is not None and here[0] == there[0]:
            members[here[0]].append((here[1], there[1], link.kind, link.lanes, link.bandwidth_bytes_per_s))
    for pair in topology.pairs:
        here, there = place.get(pair.a), place.get(pair.b)
        if here is not None and there is not None and here[0] == there[0]:
            members[here[0]].append((here[1], there[1], pair.path, pair.nvlinks))
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for node, said in members.items():
        groups[tuple(said)].append(node)
    return list(groups.values())


def _look(vertex: Vertex) -> Hashable:
    return (
        vertex.kind, vertex.index, vertex.name, vertex.pci_address, vertex.model, vertex.speed, vertex.state,
        vertex.link_layer, vertex.numa, vertex.cpus, vertex.memory_bytes, vertex.pcie, vertex.rdma_device,
        vertex.nvlink_ports, vertex.mig, vertex.mig_instances,
        vertex.id.rpartition("/")[2] if vertex.name is None and vertex.pci_address is None else None,
    )  # fmt: skip

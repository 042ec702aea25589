"""Servers of a topology: machines beside those that train, whose processors can add for them. Pure.

A node that holds no rank, and a CPU, is one, as BytePS has them: it owns no part of what is added up, takes
other nodes' parts in and hands the sum out.

Source: Jiang et al. (BytePS), OSDI 2020.
"""

from dataclasses import replace

from topotune.errors import UsageError
from topotune.topology.model import Link, Topology, Vertex
from topotune.topology.what_if import MAX_NODES, MAX_VERTICES


def server_vertices(topology: Topology) -> tuple[str, ...]:
    """One CPU of each node without ranks that a link leads out of; in the order of the file."""
    ranks = set(_ranks(topology))
    with_ranks = {vertex.node for vertex in topology.vertices if vertex.id in ranks}
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    joined = {
        node_of[end]
        for link in topology.links
        for end, other in ((link.src, link.dst), (link.dst, link.src))
        if node_of[end] != node_of[other]
    }
    found: dict[str, str] = {}
    for vertex in topology.vertices:
        node = vertex.node
        if vertex.kind == "cpu" and node is not None and node in joined and node not in with_ranks:
            found.setdefault(node, vertex.id)
    return tuple(found.values())


def without_servers(topology: Topology) -> Topology:
    """The nodes that hold ranks, and what joins them."""
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    gone = {node_of[server] for server in server_vertices(topology)}
    if not gone:
        return topology
    return replace(
        topology,
        vertices=tuple(vertex for vertex in topology.vertices if vertex.node not in gone),
        pairs=tuple(
            pair for pair in topology.pairs if node_of[pair.a] not in gone and node_of[pair.b] not in gone
        ),
        links=tuple(
            link for link in topology.links if node_of[link.src] not in gone and node_of[link.dst] not in gone
        ),
        ranks=_ranks(topology),
    )


def with_servers(topology: Topology, num_servers: int) -> Topology:
    """So many servers more, called s0, s1, …, each with NICs like those of the first node that has some.

    Raises:
        UsageError: no such number, or no node whose NICs are joined to others.
    """
    if not 1 <= num_servers <= MAX_NODES:
        raise UsageError(f"{num_servers} servers: there can be 1 to {MAX_NODES}")
    taken = {vertex.node for vertex in topology.vertices}
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    ranks = _ranks(topology)
    with_ranks = {node_of[rank] for rank in ranks}
    ways: dict[str, list[Link]] = {}
    for vertex in topology.vertices:
        if vertex.kind == "nic" and vertex.node in with_ranks:
            out = [
                link
                for link in topology.links
                if vertex.id in (link.src, link.dst) and node_of[link.src] != node_of[link.dst]
            ]
            if out:
                ways[vertex.id] = out
    if not ways:
        raise UsageError(
            "--servers: no node has a NIC that is joined to others",
            hint="--nodes N, or a topology whose NICs are linked to a switch",
        )
    first = node_of[next(iter(ways))]
    like = {nic: out for nic, out in ways.items() if node_of[nic] == first}
    if len(topology.vertices) + num_servers * (1 + len(like)) > MAX_VERTICES:
        raise UsageError(f"{num_servers} servers are more than {MAX_VERTICES} vertices in all")
    kept = {vertex.id: vertex for vertex in topology.vertices}
    vertices, links = list(topology.vertices), list(topology.links)
    names = (f"s{number}" for number in range(num_servers + len(taken)))
    for name, _ in zip((name for name in names if name not in taken), range(num_servers), strict=False):
        cpu = f"{name}/cpu0"
        vertices.append(Vertex(id=cpu, kind="cpu", node=name, index=0))
        for number, (nic, out) in enumerate(like.items()):
            here = f"{name}/nic{number}"
            vertices.append(
                replace(kept[nic], id=here, node=name, index=number, pci_address=None, guid=None, name=None)
            )
            inside = Link(src=cpu, dst=here, kind="pcie", origin="spec")
            links += [inside, replace(inside, src=here, dst=cpu)]
            links += [
                replace(
                    link, src=here if link.src == nic else link.src, dst=here if link.dst == nic else link.dst
                )
                for link in out
            ]
    return replace(
        topology,
        vertices=tuple(vertices),
        links=tuple(links),
        ranks=ranks,
        warnings=(
            *topology.warnings,
            f"what if: {num_servers} servers that only add, with NICs like {first}'s",
        ),
    )


def _ranks(topology: Topology) -> tuple[str, ...]:
    by_kind = {kind: tuple(v.id for v in topology.vertices if v.kind == kind) for kind in ("gpu", "cpu")}
    return topology.ranks or by_kind["gpu"] or by_kind["cpu"]

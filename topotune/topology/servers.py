"""Servers of a topology: machines beside those that train, whose processors add for them. Pure.

A server is what the topology names as one, or ``--servers`` puts there: it owns no part of what is added up,
takes other nodes' parts in and hands the sum out, as BytePS has them. Any other machine without ranks, for
storage, say, or a gateway, does nothing for an allreduce but hand on what others exchange, and that only
where these have no other way.

Source: Jiang et al. (BytePS), OSDI 2020.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from topotune.errors import UsageError
from topotune.topology.model import Link, Topology, Vertex
from topotune.topology.what_if import MAX_NODES, MAX_VERTICES

_MAX_NAMED: Final = 3


def server_vertices(topology: Topology) -> tuple[str, ...]:
    """The servers that a link leads out of, in the order of the topology."""
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    joined = {
        node_of[end]
        for link in topology.links
        for end, other in ((link.src, link.dst), (link.dst, link.src))
        if node_of[end] != node_of[other]
    }
    return tuple(server for server in topology.servers if node_of[server] in joined)


def without_servers(topology: Topology) -> Topology:
    """The same without the nodes of its servers."""
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    return _without_nodes(topology, {node_of[server] for server in topology.servers})


def without_idle_nodes(topology: Topology) -> Topology:
    """The same without the machines that neither hold ranks nor serve, as far as the ranks do without them.

    Machines are nodes with a processor: switches may have nodes of their own. A warning names what is left
    out, and what only hands on.
    """
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    at_work = {node_of[vertex] for vertex in (*topology.compute, *topology.servers)}
    idle = {vertex.node: None for vertex in topology.vertices if vertex.kind == "cpu"}
    names = [node for node in idle if node is not None and node not in at_work]
    if not names:
        return topology
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    nodes = f"nodes without ranks ({', '.join(names[:_MAX_NAMED])}{more})"
    without = _without_nodes(topology, set(names))
    if _ranks_are_joined(topology) and not _ranks_are_joined(without):
        told = f"{nodes} only hand on what others exchange"
        return replace(topology, warnings=(*topology.warnings, told))
    told = f"{nodes} are left out: only what the file names in servers adds for the ranks"
    return replace(without, warnings=(*without.warnings, told))


def _without_nodes(topology: Topology, gone: Set[str | None]) -> Topology:
    if not gone:
        return topology
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    return replace(
        topology,
        vertices=tuple(vertex for vertex in topology.vertices if vertex.node not in gone),
        pairs=tuple(
            pair for pair in topology.pairs if node_of[pair.a] not in gone and node_of[pair.b] not in gone
        ),
        links=tuple(
            link for link in topology.links if node_of[link.src] not in gone and node_of[link.dst] not in gone
        ),
        ranks=topology.compute,
        servers=tuple(server for server in topology.servers if node_of[server] not in gone),
    )


def _ranks_are_joined(topology: Topology) -> bool:
    """Whether links lead from each rank to all others."""
    onwards: dict[str, list[str]] = {vertex.id: [] for vertex in topology.vertices}
    backwards: dict[str, list[str]] = {vertex.id: [] for vertex in topology.vertices}
    for link in topology.links:
        onwards[link.src].append(link.dst)
        backwards[link.dst].append(link.src)
    compute = topology.compute
    return all(set(compute) <= _reached(compute[:1], leads_to) for leads_to in (onwards, backwards))


def _reached(begin: Sequence[str], leads_to: Mapping[str, Sequence[str]]) -> set[str]:
    ahead, reached = list(begin), set(begin)
    while ahead:
        new = set(leads_to[ahead.pop()]) - reached
        reached |= new
        ahead += new
    return reached


def with_servers(topology: Topology, num_servers: int) -> Topology:
    """So many servers more, called s0, s1, …, each with NICs like those of the first node that has some.

    Raises:
        UsageError: no such number, or no node whose NICs are joined to others.
    """
    if not 1 <= num_servers <= MAX_NODES:
        raise UsageError(f"{num_servers} servers: there can be 1 to {MAX_NODES}")
    taken = {vertex.node for vertex in topology.vertices}
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    with_ranks = {node_of[rank] for rank in topology.compute}
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
    vertices, links, servers = list(topology.vertices), list(topology.links), list(topology.servers)
    names = (f"s{number}" for number in range(num_servers + len(taken)))
    for name, _ in zip((name for name in names if name not in taken), range(num_servers), strict=False):
        cpu = f"{name}/cpu0"
        vertices.append(Vertex(id=cpu, kind="cpu", node=name, index=0))
        servers.append(cpu)
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
        ranks=topology.compute,
        servers=tuple(servers),
        warnings=(
            *topology.warnings,
            f"what if: {num_servers} servers that only add, with NICs like {first}'s",
        ),
    )

"""Topologies that do not exist yet: with a link less, a slower one, another NIC, more nodes. Pure.

A place is a vertex (all links at it are meant) or two vertices with ``:`` between them (the links that join
them, both ways); ``n3.nic0`` serves for ``n3/nic0``. Each change says in ``warnings`` what it did,
so that no result can be taken for one of the machine as it is.
"""

import difflib
from collections.abc import Sequence
from dataclasses import replace

from topotune.errors import UsageError
from topotune.topology.model import Link, Topology, Vertex
from topotune.units import parse_bit_rate

_BITS_PER_BYTE = 8
_WORDS = {"half": 0.5, "quarter": 0.25, "double": 2.0}
MAX_NODES = 4096
MAX_VERTICES = 200_000


def without(topology: Topology, place: str) -> Topology:
    """The topology less the links of a place; vertices stay.

    Raises:
        UsageError: no such place, or no link there.
    """
    gone = _links_at(topology, place)
    return replace(
        topology,
        links=tuple(link for number, link in enumerate(topology.links) if number not in gone),
        warnings=(*topology.warnings, f"what if: without the links at {place}"),
    )


def with_rate(topology: Topology, change: str) -> Topology:
    """The topology with another rate at a place.

    Args:
        topology: to be changed.
        change: ``PLACE=half``, ``quarter``, ``double``, ``0.8`` (a factor) or ``100Gbit`` (a rate in each
            direction, of each link there). A factor leaves links alone whose bandwidth is not known.

    Raises:
        UsageError: no such place, no such rate, or a factor where no bandwidth is known.
    """
    place, equals, amount = change.rpartition("=")
    if not equals:
        raise UsageError(f"{change!r}: names no new rate", hint="write n3.nic0=half, or n3.nic0=100Gbit")
    chosen = _links_at(topology, place)
    factor = _WORDS.get(amount)
    if factor is None:
        try:
            factor = float(amount)
        except ValueError:
            factor = None
    rate = parse_bit_rate(amount) / _BITS_PER_BYTE if factor is None else None
    if factor is not None and not 0 < factor < float("inf"):
        raise UsageError(f"{change!r}: a factor is above 0", hint=f"--without {place} takes the links away")

    if factor is not None and all(topology.links[one].bandwidth_bytes_per_s is None for one in chosen):
        link = topology.links[min(chosen)]
        raise UsageError(
            f"{change!r}: the bandwidth of {link.src} to {link.dst} is not known",
            hint=f"give a rate: {place}=100Gbit",
        )

    def changed(link: Link) -> Link:
        if factor is None:
            return replace(link, bandwidth_bytes_per_s=rate, bandwidth_ci_bytes_per_s=None, origin="spec")
        if link.bandwidth_bytes_per_s is None:
            return link  # nothing is known to limit it, before and after
        bandwidth = link.bandwidth_bytes_per_s * factor
        return replace(link, bandwidth_bytes_per_s=bandwidth, bandwidth_ci_bytes_per_s=None)

    return replace(
        topology,
        links=tuple(
            changed(link) if number in chosen else link for number, link in enumerate(topology.links)
        ),
        warnings=(*topology.warnings, f"what if: {place} at {amount}"),
    )


def with_nic(topology: Topology) -> Topology:
    """The topology with one NIC more on each node: like its last one, in the same place.

    Raises:
        UsageError: a node without a NIC.
    """
    nodes = _nodes(topology)
    vertices, links, ids = list(topology.vertices), list(topology.links), {v.id for v in topology.vertices}
    for node in nodes:
        nics = [vertex for vertex in topology.vertices if vertex.kind == "nic" and vertex.node == node]
        if not nics:
            raise UsageError(f"node {node} has no NIC that another could be like")
        like = nics[-1]
        new_id = next(
            name for name in (f"{like.id}+{count}" for count in range(1, MAX_NODES)) if name not in ids
        )
        ids.add(new_id)
        vertices.append(replace(like, id=new_id, index=None, pci_address=None, guid=None, name=None))
        for link in topology.links:
            if link.src == like.id:
                links.append(replace(link, src=new_id))
            elif link.dst == like.id:
                links.append(replace(link, dst=new_id))
    return replace(
        topology,
        vertices=tuple(vertices),
        links=tuple(links),
        warnings=(*topology.warnings, "what if: one NIC more on each node"),
    )


def with_nodes(topology: Topology, num_nodes: int) -> Topology:
    """So many copies of a node; their NICs joined by one switch that is no limit itself.

    The copies are called n0, n1, …, and so begin the ids of their vertices.

    Args:
        topology: of a single node; fabric switches that it may name are left out.
        num_nodes: 1 to 4096.

    Raises:
        UsageError: several nodes, a NIC without a known line rate, or too many vertices.
    """
    if not 1 <= num_nodes <= MAX_NODES:
        raise UsageError(f"{num_nodes} nodes: there can be 1 to {MAX_NODES}", hint="--nodes says how many")
    nodes = _nodes(topology)
    if len(nodes) != 1:
        raise UsageError(
            f"--nodes takes a topology of one node, and this one has {len(nodes)}",
            hint="give the topology of a single node",
        )
    inside = [vertex for vertex in topology.vertices if vertex.node is not None]
    if len(inside) * num_nodes > MAX_VERTICES:
        raise UsageError(f"{num_nodes} nodes of {len(inside)} vertices are more than {MAX_VERTICES}")
    known = {vertex.id for vertex in inside}
    own_links = [link for link in topology.links if link.src in known and link.dst in known]
    nics = [vertex for vertex in inside if vertex.kind == "nic"]
    for nic in nics:
        if nic.speed is None:
            raise UsageError(
                f"the line rate of {nic.id} is not known, so nothing is known of {num_nodes} nodes",
                hint="a profile of the machine says it, or its nic's speed in bits/s in the file",
            )
    if not nics and num_nodes > 1:
        raise UsageError("the node has no NIC that could join it to others")
    vertices: list[Vertex] = []
    links: list[Link] = []
    fabric = "fabric"
    for number in range(num_nodes):
        name = f"n{number}"
        vertices += [replace(vertex, id=f"{name}/{vertex.id}", node=name) for vertex in inside]
        links += [replace(link, src=f"{name}/{link.src}", dst=f"{name}/{link.dst}") for link in own_links]
        for nic in nics if num_nodes > 1 else ():
            assert nic.speed is not None
            out = Link(
                src=f"{name}/{nic.id}",
                dst=fabric,
                kind="infiniband" if nic.link_layer == "InfiniBand" else "ethernet",
                bandwidth_bytes_per_s=nic.speed / _BITS_PER_BYTE,
                origin="spec",
            )
            links += [out, replace(out, src=out.dst, dst=out.src)]
    if num_nodes > 1:
        vertices.append(Vertex(id=fabric, kind="switch", name="a switch that is no limit"))
    return replace(
        topology,
        vertices=tuple(vertices),
        links=tuple(links),
        ranks=tuple(f"n{number}/{rank}" for number in range(num_nodes) for rank in topology.ranks),
        pairs=(),
        servers=(),
        warnings=(*topology.warnings, f"what if: {num_nodes} such nodes on one switch that is no limit"),
    )


def _nodes(topology: Topology) -> list[str]:
    return list(dict.fromkeys(vertex.node for vertex in topology.vertices if vertex.node is not None))


def _meant(name: str, ids: Sequence[str]) -> str:
    """``n3.nic0`` is ``n3/nic0`` where there is no vertex of the first name."""
    with_slash = name.replace(".", "/", 1)
    return with_slash if name not in ids and with_slash in ids else name


def _links_at(topology: Topology, place: str) -> set[int]:
    """The numbers of the links of a place, at least one.

    Raises:
        UsageError: no such place, or no link there.
    """
    ids = [vertex.id for vertex in topology.vertices]
    ends = [place] if place in ids else [_meant(end, ids) for end in place.split(":")]
    if len(ends) > 2:
        # Ids may have colons in them, as PCI addresses do.
        splits = [(place[:at], place[at + 1 :]) for at, sign in enumerate(place) if sign == ":"]
        ends = next(([a, b] for a, b in splits if a in ids and b in ids), ends)
    for end in ends:
        if end not in ids:
            near = difflib.get_close_matches(end[:100], ids, n=1)
            raise UsageError(
                f"{place!r:.200}: there is no vertex {end!r:.100}",
                hint=f"did you mean {near[0]}?" if near else "topotune show --json lists the vertices",
            )
    if len(ends) == 1:
        found = {i for i, link in enumerate(topology.links) if ends[0] in (link.src, link.dst)}
    else:
        found = {i for i, link in enumerate(topology.links) if {link.src, link.dst} == set(ends)}
    if not found:
        raise UsageError(f"{place!r:.200}: there is no link", hint="topotune show --json lists the links")
    return found

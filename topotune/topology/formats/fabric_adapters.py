"""A fabric's adapters and a node's own: which are the same, and one node's description for many.

A fabric file tells of a host only what its switches see: adapters by the names that they give themselves, or
by no more than a number, or just that the host is there. A file of the node tells the adapters themselves.
Names join the two. Where the fabric has only numbers, adapters are taken in the order of those numbers and
of their PCI addresses; where it has only the host, all adapters that can RDMA (else all) are taken to lead to
the same switch. Both go beyond what the files say, and are told as warnings. A link whose rate nobody states
gets that of the adapter on it, as more cannot pass.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from topotune.errors import UsageError
from topotune.topology.document import MAX_LINKS, MAX_PAIRS, MAX_VERTICES
from topotune.topology.formats.fabric_tree import STANDS_FOR
from topotune.topology.formats.rdma_ports import IMAGE_GUID, NODE_GUID, PORT_GUID
from topotune.topology.model import Link, LinkKind, Pair, Topology, Vertex

_OF_ONE_MACHINE = (PORT_GUID, NODE_GUID, IMAGE_GUID, "nccl.cpu.host_hash")
_KINDS: Mapping[str | None, LinkKind] = {"InfiniBand": "infiniband", "Ethernet": "roce"}


def with_own_adapters(topology: Topology) -> Topology:
    """Hosts' own adapters in the place of those that stood for whichever there are."""
    changes = _Changes()
    for host, vertices in _by_host(topology).items():
        stand_ins = [vertex for vertex in vertices if STANDS_FOR in vertex.attributes]
        own = [vertex for vertex in vertices if vertex.kind == "nic" and STANDS_FOR not in vertex.attributes]
        if stand_ins and own:
            changes.match(host, stand_ins, own)
    return changes.applied(topology)


def with_templates(topology: Topology, templates: Mapping[str, Topology]) -> Topology:
    """A fabric's hosts, each as a node that stands for it.

    Args:
        topology: the fabric, and nodes that have files of their own, which are left as they are.
        templates: pattern of host names (``*``, ``dgx-?``) → a topology of one node.

    Raises:
        UsageError: a pattern that no host matches, a template of several nodes, more than a topology holds.
    """
    hosts = _by_host(topology)
    bare = [host for host, vertices in hosts.items() if all(vertex.kind == "nic" for vertex in vertices)]
    changes = _Changes()
    vertices: list[Vertex] = []
    links: list[Link] = []
    pairs: list[Pair] = []
    taken: set[str] = set()
    for pattern, template in templates.items():
        found = [host for host in bare if fnmatchcase(host, pattern) and host not in taken]
        if not found:
            raise UsageError(
                f"{pattern}=…: no host without a file of its own has such a name",
                hint=f"there are: {', '.join(list(hosts)[:5]) or 'none'}",
            )
        node = _one_node(template, pattern)
        taken |= set(found)
        for name, size, limit in (
            (
                "vertices",
                len(topology.vertices) + len(vertices) + len(template.vertices) * len(found),
                MAX_VERTICES,
            ),
            ("links", len(topology.links) + len(links) + len(template.links) * len(found), MAX_LINKS),
            ("pairs", len(pairs) + len(template.pairs) * len(found), MAX_PAIRS),
        ):
            if size > limit:
                raise UsageError(f"{pattern}=… makes up {size} {name}, more than the {limit} of a topology")
        for host in found:
            copy = list(_copied(template, node, host))
            changes.match(host, hosts[host], [vertex for vertex in copy if vertex.kind == "nic"])
            vertices += copy
            ids = {old.id: new.id for old, new in zip(template.vertices, copy, strict=True)}
            links += (replace(link, src=ids[link.src], dst=ids[link.dst]) for link in template.links)
            pairs += (replace(pair, a=ids[pair.a], b=ids[pair.b]) for pair in template.pairs)
        changes.warnings += (f"{pattern}=…: {warning}" for warning in template.warnings)
        kept = len(bare) - len(taken)
        if kept and pattern == list(templates)[-1]:
            changes.warnings.append(f"{kept} hosts match no pattern; of them only the fabric is known")
    return changes.applied(topology, vertices, links, pairs)


def _by_host(topology: Topology) -> dict[str, list[Vertex]]:
    hosts: dict[str, list[Vertex]] = defaultdict(list)
    for vertex in topology.vertices:
        if vertex.node is not None:
            hosts[vertex.node].append(vertex)
    return hosts


def _one_node(template: Topology, pattern: str) -> str:
    nodes = {vertex.node for vertex in template.vertices}
    if len(nodes) != 1 or None in nodes:
        names = ", ".join(sorted(str(node) for node in nodes)[:5])
        raise UsageError(f"{pattern}=…: must be one node, and not: {names}")
    return str(nodes.pop())


def _copied(template: Topology, node: str, host: str) -> Iterator[Vertex]:
    """The node under another name, without what identifies one machine among others of its kind."""
    for vertex in template.vertices:
        attributes = vertex.attributes
        if any(name in attributes for name in _OF_ONE_MACHINE):
            attributes = {key: text for key, text in attributes.items() if key not in _OF_ONE_MACHINE}
        yield replace(
            vertex,
            id=f"{host}/{vertex.id.removeprefix(f'{node}/')}",
            node=host,
            uuid=None,
            guid=None,
            attributes=attributes,
        )


class _Changes:
    """Which adapters of a fabric are which of a node's, as it is found out host by host."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._own: dict[str, list[Vertex]] = {}  # id of the fabric's adapter -> the node's own
        self._merged: dict[str, Vertex] = {}  # id of the node's own -> the fabric's
        self._spread: set[str] = set()
        self._counted: dict[str, list[str]] = defaultdict(list)

    def match(self, host: str, of_fabric: list[Vertex], own: list[Vertex]) -> None:
        """One host's."""
        names = {
            name: vertex for vertex in own for name in (vertex.rdma_device, vertex.name) if name is not None
        }
        numbered: list[Vertex] = []
        free = {vertex.id: vertex for vertex in own}
        for adapter in of_fabric:
            if STANDS_FOR in adapter.attributes:
                able = [each for each in own if each.rdma_device or each.link_layer] or own
                self._own[adapter.id] = able
                self._spread.add(adapter.id)
                if len(able) > 1:
                    self._counted[f"all {len(able)} adapters are taken to lead to the node's switch"].append(
                        host
                    )
            elif adapter.name in names and names[str(adapter.name)].id in free:
                self._same(adapter, names[str(adapter.name)], free)
            elif adapter.name is None:
                numbered.append(adapter)
            else:
                self._counted[f"has no adapter {adapter.name}, which the fabric shows"].append(host)
        able = sorted(
            (each for each in free.values() if each.rdma_device or each.link_layer),
            key=lambda each: each.pci_address or each.name or "",
        )
        if not numbered:
            return
        if len(able) != len(numbered):
            what = (
                f"has {len(able)} adapters for the {len(numbered)} of the fabric, which are left as they are"
            )
            self._counted[what].append(host)
            return
        self._counted["adapters are taken in the order of their numbers and PCI addresses"].append(host)
        for adapter, vertex in zip(sorted(numbered, key=_number), able, strict=True):
            self._same(adapter, vertex, free)

    def _same(self, adapter: Vertex, own: Vertex, free: dict[str, Vertex]) -> None:
        self._own[adapter.id] = [own]
        self._merged[own.id] = adapter
        del free[own.id]

    def applied(
        self,
        topology: Topology,
        vertices: Iterable[Vertex] = (),
        links: Iterable[Link] = (),
        pairs: Iterable[Pair] = (),
    ) -> Topology:
        """The topology, and what is added to it, with each adapter once."""
        if not self._own and not self._counted and not self.warnings:
            return topology
        kept = (vertex for vertex in topology.vertices if vertex.id not in self._own)
        all_vertices = tuple(self._with_fabric(vertex) for vertex in (*kept, *vertices))
        by_id = {vertex.id: vertex for vertex in all_vertices}
        relinked = {(link.src, link.dst, link.kind): link for link in self._relinked(topology.links, by_id)}
        told = [
            f"{hosts[0] if len(hosts) == 1 else f'{hosts[0]} and {len(hosts) - 1} more hosts'}: {what}"
            for what, hosts in self._counted.items()
        ]
        return replace(
            topology,
            vertices=all_vertices,
            links=(*relinked.values(), *links),
            pairs=(*topology.pairs, *pairs),
            warnings=(*topology.warnings, *self.warnings, *told),
        )

    def _with_fabric(self, vertex: Vertex) -> Vertex:
        """A node's adapter with what the fabric says of it and the node does not."""
        adapter = self._merged.get(vertex.id)
        if adapter is None:
            return vertex
        return replace(
            vertex,
            speed=vertex.speed or adapter.speed,
            link_layer=vertex.link_layer or adapter.link_layer,
            attributes={**adapter.attributes, **vertex.attributes},
        )

    def _relinked(self, links: Iterable[Link], by_id: Mapping[str, Vertex]) -> Iterator[Link]:
        for link in links:
            if link.src not in self._own and link.dst not in self._own:
                yield link
                continue
            for src in self._own.get(link.src, [None]):
                for dst in self._own.get(link.dst, [None]):
                    ends = (src.id if src else link.src, dst.id if dst else link.dst)
                    if ends[0] == ends[1]:
                        continue
                    spread = bool({link.src, link.dst} & self._spread)
                    adapter = by_id[(src or dst).id]  # type: ignore[union-attr]
                    rate = link.bandwidth_bytes_per_s
                    if rate is None and adapter.speed is not None:
                        rate = adapter.speed / 8
                    yield replace(
                        link,
                        src=ends[0],
                        dst=ends[1],
                        kind=_KINDS.get(adapter.link_layer, link.kind)
                        if link.kind == "unknown"
                        else link.kind,
                        bandwidth_bytes_per_s=rate,
                        origin="inferred" if spread or link.bandwidth_bytes_per_s is None else link.origin,
                    )


def _number(adapter: Vertex) -> tuple[int, str]:
    """``HCA-12`` comes after ``HCA-2``."""
    label = adapter.id.rpartition("/")[2]
    digits = "".join(character for character in label if character.isascii() and character.isdigit())
    return (int(digits[:9]) if digits else 0, label)

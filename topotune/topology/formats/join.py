"""Several readings as one topology: what two files say of one device goes together, or is refused.

Theory of operation. Readings are sorted into nodes: a file is of the node that the user or the file itself
names; files that name none are all of one node. Inside a node, `Devices` makes one vertex of each device;
links and pairs follow their ends. Then what pairs of devices are said to have between them is held against
the graph, and becomes links as far as it proves any.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from topotune.errors import InputFileError, UsageError
from topotune.probe.faults import shown
from topotune.topology.document import MAX_LINKS, MAX_PAIRS, MAX_VERTICES
from topotune.topology.formats.devices import TWO_NODES, Devices, Part, contradiction
from topotune.topology.formats.nvlink_pairs import nvlinks_of_pairs, with_port_rates
from topotune.topology.formats.reading import THIS_NODE
from topotune.topology.model import Link, Pair, Source, Topology, Vertex
from topotune.topology.paths import Paths

UNNAMED: Final = "node0"
"""The node of files that name none."""


def join(parts: Sequence[Part]) -> Topology:
    """All that some files prove, together.

    Raises:
        InputFileError: two files contradict each other.
        UsageError: it cannot be told which node a file is of.
    """
    parts = _with_nodes(parts)
    nodes: dict[str | None, Devices] = {}
    ranks: set[tuple[str, ...]] = set()
    servers: list[str] = []
    warnings: list[str] = []
    links: list[tuple[Link, Part]] = []
    pairs: list[tuple[Pair, Part]] = []
    for part in parts:
        reading = part.reading
        groups: dict[str | None, list[Vertex]] = defaultdict(list)
        for vertex in reading.vertices:
            groups[vertex.node].append(vertex)
        final: dict[str, str] = {}
        for name, group in groups.items():
            final |= nodes.setdefault(name, Devices(name)).take(group, part)
        warnings += (f"{part.source}: {line}" if len(parts) > 1 else line for line in reading.warnings)
        if reading.ranks:
            ranks.add(tuple(final[each] for each in reading.ranks))
        servers += (final[each] for each in reading.servers)
        links += (
            (replace(link, src=final[link.src], dst=final[link.dst]), part)
            for link in reading.links
            if link.src in final and link.dst in final
        )
        pairs += (
            (replace(pair, a=final[pair.a], b=final[pair.b]), part)
            for pair in reading.pairs
            if pair.a in final and pair.b in final
        )
    joined_links, joined_pairs = _joined_links(links), _joined_pairs(pairs)
    for node in nodes.values():
        warnings += node.warnings
    vertices = tuple(vertex for node in nodes.values() for vertex in node.vertices())
    _check_size(vertices, joined_links, joined_pairs)
    topology = Topology(
        vertices=vertices,
        links=tuple(joined_links.values()),
        source=Source(
            kind="import: " + ", ".join(dict.fromkeys(part.format for part in parts)),
            path=", ".join(dict.fromkeys(part.source for part in parts))[:1000],
            facts=_joined_facts(parts),
        ),
        ranks=ranks.pop() if len(ranks) == 1 else (),
        servers=tuple(dict.fromkeys(servers)),
        warnings=tuple(dict.fromkeys(warnings)),
        pairs=tuple(pair for pair, _ in joined_pairs.values()),
    )
    _check_pairs(topology, joined_pairs.values())
    return with_port_rates(nvlinks_of_pairs(topology))


# -- nodes


def _with_nodes(parts: Sequence[Part]) -> list[Part]:
    """Each part with the name of its machine, and so its vertices."""
    own = [
        sorted(
            {vertex.node for vertex in part.reading.vertices if vertex.node not in (None, THIS_NODE)}, key=str
        )
        for part in parts
    ]
    named = {name for names in own for name in names if name is not None}
    given = {part.node for part in parts if part.node is not None}
    result = []
    for part, hosts in zip(parts, own, strict=True):
        nameless = any(vertex.node == THIS_NODE for vertex in part.reading.vertices)
        if part.node is not None and len(hosts) == 1 and hosts[0] != part.node:
            raise InputFileError(
                part.source,
                f"is of the host {shown(hosts[0] or '')}, not of {shown(part.node)} as it was called",
            )
        name = part.node
        if nameless and name is None:
            known = named | given
            if len(known) > 1:
                raise UsageError(
                    f"{part.source}: does not say which node it is of: {', '.join(sorted(known)[:5])}",
                    hint=f"write {sorted(known)[0]}={part.source}",
                )
            name = next(iter(known), UNNAMED)
        vertices = tuple(
            replace(vertex, node=name) if vertex.node == THIS_NODE else vertex
            for vertex in part.reading.vertices
        )
        result.append(replace(part, node=name, reading=replace(part.reading, vertices=vertices)))
    return result


# -- links, pairs, facts


def _joined_links(found: Iterable[tuple[Link, Part]]) -> dict[tuple[str, str, str], Link]:
    links: dict[tuple[str, str, str], tuple[Link, Part]] = {}
    for link, part in found:
        key = (link.src, link.dst, link.kind)
        if key not in links:
            links[key] = (link, part)
            continue
        before, first = links[key]
        if None not in (before.lanes, link.lanes) and before.lanes != link.lanes:
            what = f"the number of {link.kind} lanes from {link.src} to {link.dst}"
            raise contradiction(part, first.source, what, link.lanes, before.lanes)
        rates = before.bandwidth_bytes_per_s, link.bandwidth_bytes_per_s
        better = link if rates[0] is None and rates[1] is not None else before
        merged = replace(
            better,
            lanes=link.lanes if before.lanes is None else before.lanes,
            attributes={**before.attributes, **link.attributes},
        )
        links[key] = (merged, first)
    return {key: link for key, (link, _) in links.items()}


def _joined_pairs(found: Iterable[tuple[Pair, Part]]) -> dict[frozenset[str], tuple[Pair, Part]]:
    pairs: dict[frozenset[str], tuple[Pair, Part]] = {}
    for pair, part in found:
        key = frozenset((pair.a, pair.b))
        if key not in pairs:
            pairs[key] = (pair, part)
            continue
        before, first = pairs[key]
        statements: list[tuple[str, object, object]] = [
            ("path", before.path, pair.path),
            ("NVLinks", before.nvlinks, pair.nvlinks),
        ]
        statements += [(f"p2p {name}", before.p2p.get(name), status) for name, status in pair.p2p.items()]
        for what, there, here in statements:
            if None not in (there, here) and there != here:
                raise contradiction(part, first.source, f"{what} of {pair.a} and {pair.b}", here, there)
        merged = replace(
            before,
            path=before.path or pair.path,
            nvlinks=pair.nvlinks if before.nvlinks is None else before.nvlinks,
            p2p={**before.p2p, **pair.p2p},
        )
        pairs[key] = (merged, first)
    return pairs


def _check_pairs(topology: Topology, pairs: Iterable[tuple[Pair, Part]]) -> None:
    """What tools say of two devices, against what the links show of them.

    Trees that NCCL wrote, or that were made for it, leave out switches and host bridges between devices, so
    only the processor counts: through it or not, and through one NUMA node or several.
    """
    graph = Paths(replace(topology, pairs=()))
    numa = {vertex.id for vertex in topology.vertices if vertex.kind == "numa"}
    flat = {link.src for link in topology.links if link.kind == "pcie" and link.dst in numa}
    placed = {link.src for link in topology.links if link.kind == "pcie"}
    linked = {link.src for link in topology.links if link.kind == "nvlink"}
    for pair, part in pairs:
        problem: tuple[str, str] | None = None
        if pair.a in linked and pair.b in linked and pair.nvlinks is not None:
            nvlinks = graph.num_nvlinks(pair.a, pair.b)
            if nvlinks != pair.nvlinks and (nvlinks is not None or not pair.nvlinks):
                problem = (f"{pair.nvlinks} NVLinks", "some" if nvlinks is None else f"{nvlinks}")
        elif pair.path is not None and pair.path != "XGMI" and {pair.a, pair.b} <= placed:
            seen = graph.seen(pair.a, pair.b)
            level = {"PIX": 0, "PXB": 0, "PHB": 1, "NODE": 1, "SYS": 2}
            both_flat = pair.a in flat or pair.b in flat
            if seen is not None and not both_flat and level[seen] != level[pair.path]:
                problem = (pair.path, seen)
        if problem:
            raise InputFileError(
                part.source,
                f"says {problem[0]} between {pair.a} and {pair.b}; the other files show {problem[1]}",
                hint=TWO_NODES,
            )


def _joined_facts(parts: Sequence[Part]) -> dict[str, str | int | float | bool | None]:
    """What all parts agree on; parts of one node must."""
    facts: dict[str, tuple[Any, Part]] = {}
    differing: set[str] = set()
    for part in parts:
        for key, value in part.reading.facts.items():
            before, first = facts.setdefault(key, (value, part))
            if before == value:
                continue
            if first.node == part.node:
                raise contradiction(part, first.source, key, value, before)
            differing.add(key)
    return {key: value for key, (value, _) in facts.items() if key not in differing}


def _check_size(vertices: Sequence[Vertex], links: dict[Any, Any], pairs: dict[Any, Any]) -> None:
    for what, number, limit in (
        ("vertices", len(vertices), MAX_VERTICES),
        ("links", len(links), MAX_LINKS),
        ("pairs", len(pairs), MAX_PAIRS),
    ):
        if number > limit:
            raise UsageError(f"the files make up {number} {what}, more than the {limit} of a topology")

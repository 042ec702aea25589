"""A short hash of a topology's structure, to tell whether two results come from the same kind of machine."""

import hashlib
from collections import defaultdict

from topotune.topology.model import Link, Topology, Vertex

# Machines settle within their diameter, some ten rounds; a chain of a hundred thousand vertices would not.
_MAX_ROUNDS = 64


def structure_hash(topology: Topology) -> str:
    """16 hexadecimal digits that depend on what is joined to what, and on nothing else.

    Counted in: kinds, models, rates of network ports, link layers, what PCI Express links could do, and
    kinds, lanes and NUMA distances of links, and what is said of pairs. Left out: names, addresses,
    numbering and order (a renamed or renumbered machine is the same), memory sizes, states, and anything
    measured.

    The method is colour refinement: each vertex starts with a colour of its own properties and takes in its
    neighbours' colours until no two vertices of one colour come apart any more. Equal structures give equal
    hashes; regular graphs that refinement cannot tell apart (one ring of 6 GPUs, two rings of 3) share one.
    O(rounds × links).

    Source: B. Weisfeiler and A. Leman, "The reduction of a graph to canonical form", 1968.
    """
    colours = {vertex.id: _digest(*_properties(vertex)) for vertex in topology.vertices}
    neighbours: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for link in topology.links:
        label = _label(link)
        neighbours[link.src].append((f"to {label}", link.dst))
        neighbours[link.dst].append((f"from {label}", link.src))
    for pair in topology.pairs:
        if pair.path is None and pair.nvlinks is None:
            continue  # what may be reached, not what is there
        said = f"said {pair.path} {pair.nvlinks}"
        neighbours[pair.a].append((said, pair.b))
        neighbours[pair.b].append((said, pair.a))
    num_classes = 0
    for _ in range(_MAX_ROUNDS):
        if len(set(colours.values())) == num_classes:
            break
        num_classes = len(set(colours.values()))
        colours = {
            vertex: _digest(
                colour, *sorted(f"{label} {colours[other]}" for label, other in neighbours[vertex])
            )
            for vertex, colour in colours.items()
        }
    return _digest(*sorted(colours.values()))[:16]


def _properties(vertex: Vertex) -> tuple[str, ...]:
    pcie = vertex.pcie
    able = (pcie.max_speed_gt_per_s, pcie.max_width) if pcie else (None, None)
    return (vertex.kind, repr(vertex.model), repr(vertex.speed), repr(vertex.link_layer), repr(able))


def _label(link: Link) -> str:
    return f"{link.kind} {link.lanes} {link.distance}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()

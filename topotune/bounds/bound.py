"""How fast an allreduce could be at best on a cluster, and what holds it back, in words.

What is bounded is the time that data needs to cross the network's limits; latency is left out. Every
latency that topotune measures is one of this software, and another could be faster, so it proves nothing.
The bound is therefore loose for small messages, and never above what the network allows, given that

- each limit of the link model is one: no more than the best rate that was measured over a node's link (one
  pair, and several at once) fits through it;
- nothing in the network adds or copies by itself, and messages are sent whole and uncompressed;
- on graphs other than a star, where the optimum comes from the linear programme: each piece is added along
  one tree.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from topotune.bounds.cut import allgather_bound, tightest_split
from topotune.bounds.cut_planes import MAX_CELLS, allreduce_by_cuts
from topotune.bounds.graph import Arc, CapacityGraph, graph_from_links
from topotune.bounds.star import star_bound
from topotune.bounds.symmetry import likeness
from topotune.links.model import LinkModel
from topotune.units import format_bit_rate

TIE = 1e-6  # relative: the linear programme's own accuracy


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The provable optimum of a collective.

    Attributes:
        s_per_byte: shortest time per byte of the message on each rank.
        text: what sets it, in words (``link of node b, 200 Mbit/s``).
        cut: the vertices on one side of what sets it; empty where no single cut does.
        exact: whether some algorithm is known to reach it; else only that none is faster.
    """

    s_per_byte: float
    text: str
    cut: tuple[str, ...]
    exact: bool = False

    def time_s(self, message_bytes: float) -> float:
        """Shortest time for a message of so many bytes on each rank."""
        return message_bytes * self.s_per_byte

    def percent_of_optimum(self, message_bytes: float, time_s: float) -> float:
        """Share of the optimum that a time reaches; above 100 only where a limit was measured too low."""
        return 100.0 * self.time_s(message_bytes) / time_s


@dataclass(frozen=True, kw_only=True, slots=True)
class NoBound:
    """There is no bound, and why, in words."""

    reason: str


def allreduce_bound(model: LinkModel) -> Bound | NoBound:
    """The bound of allreduce among the ranks of a link model. Pure."""
    if model.num_ranks == 1:
        return NoBound(reason="a single rank exchanges nothing")
    if len(set(model.node_of_rank)) == 1:
        return NoBound(reason="all ranks share one machine's memory, where no link bounds them")
    graph = graph_from_links(model)
    if graph is None:
        return NoBound(reason="no limit of the links between the nodes is known")
    return graph_allreduce_bound(graph)


def graph_allreduce_bound(graph: CapacityGraph, *, max_cells: int = MAX_CELLS) -> Bound | NoBound:
    """The bound of allreduce on a capacity graph: exact but where a large one has hardly two hosts alike.

    Args:
        graph: what the network carries.
        max_cells: as of `allreduce_by_cuts`: how far to go where it takes long.

    Raises:
        ValueError: some ranks cannot reach others.
    """
    if len(graph.hosts) == 1:
        return NoBound(reason="all ranks sit on one vertex, where no link bounds them")
    star = star_center(graph)
    if star is not None:
        return _bound_of_star(graph, star)
    capacity, side = tightest_split(graph)
    if capacity == 0:
        raise ValueError("the ranks cannot all reach each other")
    if is_open(graph, [arc for arc in graph.capacities if arc[0] in side and arc[1] not in side]):
        return NoBound(reason="no links with a known limit separate the ranks")
    facts = [
        Bound(s_per_byte=1.0 / capacity, text=crossing_in_words(graph, side), cut=smaller_side(graph, side)),
        *together(graph, [frozenset({host}) for host in sorted(graph.hosts)]),
    ]
    alike = likeness(graph)
    for switch in alike.unlike(set(graph.vertices) - graph.hosts):
        facts += together(graph, parts_around(graph, switch))
    best = max(facts, key=lambda fact: fact.s_per_byte)
    found = allreduce_by_cuts(graph, alike, split_bytes_per_s=capacity, max_cells=max_cells)
    if found is None:
        return best
    s_per_byte = 1.0 / found.algbw_bytes_per_s
    if s_per_byte <= best.s_per_byte * (1 + TIE):
        return replace(best, exact=found.is_optimum)
    allgather = allgather_bound(graph)
    if s_per_byte <= 2 * float(allgather.inverse_rate) / allgather.num_ranks * (1 + TIE):
        side = allgather.cut
        text, cut = crossing_in_words(graph, side), smaller_side(graph, side)
    else:
        text, cut = "several links together, no single cut", ()
    return Bound(s_per_byte=s_per_byte, text=text, cut=cut, exact=found.is_optimum)


def together(graph: CapacityGraph, parts: Sequence[frozenset[str]]) -> list[Bound]:
    """What k >= 2 disjoint parts of the network with ranks in each must move together: 2(k-1) messages.

    Parts without ranks may be among them, where something adds in them: they can take some of it.
    """
    facts: list[Bound] = []
    with_ranks = [part for part in parts if part & graph.hosts]
    if len(with_ranks) < 2:
        return facts
    part_of = {vertex: number for number, part in enumerate(parts) for vertex in part}
    for outwards in (True, False):
        arcs = [arc for arc in graph.capacities if _crosses(part_of, arc if outwards else arc[::-1])]
        facts.append(
            Bound(
                s_per_byte=2 * (len(with_ranks) - 1) / sum(graph.capacities[arc] for arc in arcs),
                text=together_in_words(graph, arcs),
                cut=tuple(sorted(vertex for part in parts for vertex in part & graph.hosts)),
            )
        )
    return facts


def _crosses(part_of: Mapping[str, int], arc: Arc) -> bool:
    """Whether a link leaves the part that it begins in."""
    begins = part_of.get(arc[0])
    return begins is not None and begins != part_of.get(arc[1])


def parts_around(graph: CapacityGraph, switch: str, adding: Set[str] = frozenset()) -> list[frozenset[str]]:
    """What falls apart without a switch, as far as there are ranks in it, or vertices that add for them."""
    neighbours: dict[str, set[str]] = {vertex: set() for vertex in graph.vertices}
    for a, b in graph.capacities:
        if switch not in (a, b):
            neighbours[a].add(b)
            neighbours[b].add(a)
    parts: list[frozenset[str]] = []
    unseen = set(graph.vertices) - {switch}
    while unseen:
        part, ahead = set[str](), [min(unseen)]
        while ahead:
            vertex = ahead.pop()
            if vertex not in part:
                part.add(vertex)
                ahead += neighbours[vertex]
        unseen -= part
        if part & (graph.hosts | adding):
            parts.append(frozenset(part))
    return parts


def smaller_side(graph: CapacityGraph, side: frozenset[str]) -> tuple[str, ...]:
    """The smaller side of a cut, sorted."""
    sides = (side, frozenset(graph.vertices) - side)
    return min((tuple(sorted(vertices)) for vertices in sides), key=lambda names: (len(names), names))


def star_center(graph: CapacityGraph, servers: Set[str] = frozenset()) -> str | None:
    """The one switch that every host, and every server, is linked to both ways, and to nothing else."""
    ends = graph.hosts | servers
    switches = set(graph.vertices) - ends
    if len(switches) != 1:
        return None
    (center,) = switches
    arcs = {(end, center) for end in ends} | {(center, end) for end in ends}
    return center if arcs == set(graph.capacities) else None


def _bound_of_star(graph: CapacityGraph, center: str) -> Bound | NoBound:
    hosts = sorted(graph.hosts)
    sending, receiving = [(host, center) for host in hosts], [(center, host) for host in hosts]
    bound = star_bound(
        [None if arc in graph.unlimited else graph.capacities[arc] for arc in sending],
        [None if arc in graph.unlimited else graph.capacities[arc] for arc in receiving],
    )
    if bound is None:
        return NoBound(reason="no link has a known limit")
    arcs = sending if bound.sending else receiving
    if bound.slowest is None:
        text, cut = together_in_words(graph, arcs), tuple(hosts)
    else:
        text, cut = arcs_in_words(graph, [arcs[bound.slowest]]), (hosts[bound.slowest],)
    alike = all(graph.capacities[arc] == graph.capacities[arc[::-1]] for arc in sending)
    return Bound(s_per_byte=float(bound.s_per_byte), text=text, cut=cut, exact=alike)


def is_open(graph: CapacityGraph, arcs: Iterable[Arc]) -> bool:
    """Whether one of these links has no known limit."""
    return not graph.unlimited.isdisjoint(arcs)


def crossing_in_words(graph: CapacityGraph, side: frozenset[str]) -> str:
    """The links that leave one side of a cut, by name, and what they carry."""
    return arcs_in_words(graph, [arc for arc in graph.capacities if arc[0] in side and arc[1] not in side])


def together_in_words(graph: CapacityGraph, arcs: Sequence[Arc]) -> str:
    """Links that set a bound together: adapters, the hosts' own if they are alike, or others by name."""
    if in_words := _adapters_in_words(graph, arcs):
        return in_words
    rates = [graph.capacities[arc] for arc in arcs]
    if any(graph.hosts.isdisjoint(arc) for arc in arcs):
        return arcs_in_words(graph, arcs)
    if max(rates) <= 1.1 * min(rates):
        rate = format_bit_rate(sum(rates) / len(graph.hosts))
        return f"link of each of the {len(graph.hosts)} {graph.host_word}, {rate}"
    return f"links of all {len(graph.hosts)} {graph.host_word} together, {format_bit_rate(sum(rates))}"


def arcs_in_words(graph: CapacityGraph, arcs: Iterable[Arc]) -> str:
    """The links of a cut by name, without direction where the other is as narrow, and what they carry."""
    arcs = list(arcs)
    if in_words := _adapters_in_words(graph, arcs):
        return in_words
    names: list[str] = []
    total = 0
    for arc in sorted(arcs):
        capacity = graph.capacities[arc]
        total += capacity
        name = graph.names.get(arc, f"link {arc[0]} to {arc[1]}")
        back = (arc[1], arc[0])
        thing, _, direction = name.rpartition(", ")
        if direction and thing and graph.names.get(back, "").startswith(f"{thing}, "):
            alike = abs(graph.capacities[back] / capacity - 1) < 0.1
            name = thing if alike else name
        if name not in names:
            names.append(name)
    shown = " and ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
    return f"{shown}, {format_bit_rate(total)}"


def _adapters_in_words(graph: CapacityGraph, arcs: Sequence[Arc]) -> str | None:
    """Links of network adapters, by node, where they are one node's or all alike; None for others."""
    here = [graph.adapters.get(arc) for arc in arcs]
    rates = [graph.capacities[arc] for arc in arcs]
    if not arcs or None in here:
        return None
    of_node = Counter(adapter for adapter in here if adapter is not None)
    (_, word), count = of_node.most_common(1)[0]
    nodes = sorted({node for node, _ in of_node})
    if len(of_node) != len(nodes) or set(of_node.values()) != {count}:
        return None
    if len(nodes) > 1 and max(rates) > 1.1 * min(rates):
        return None
    # Each adapter has a link in either direction.
    every = Counter(graph.adapters.values())
    all_nodes = {node for node, _ in every}
    all_rates = [graph.capacities[arc] for arc in graph.adapters]
    are_alike = set(every.values()) == {every[nodes[0], word]} and max(all_rates) <= 1.1 * min(all_rates)
    whole = every[nodes[0], word] // 2
    which = f"the {count} {word}s" if count == whole else f"{count} of the {whole} {word}s"
    if count == 1:
        which = f"the {word}" if whole == 1 else f"1 of the {whole} {word}s"
    if (are_alike and count == whole) or len(nodes) == len(all_nodes):
        whose = "of each node"
    else:
        whose = f"of {nodes[0]}" if len(nodes) == 1 else f"of each of {len(nodes)} nodes"
    return f"{which} {whose}, {format_bit_rate(sum(rates) / len(nodes))}"

"""Several nodes' topologies as one: each node as it was found, apart from the others. Pure.

What joins the nodes is not known from looking at each of them, so no link is made up between them.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from topotune.topology.model import Source, Topology, Vertex
from topotune.topology.overview import by_node

MAX_VALUES_OF_FACT: Final = 8
"""Of a fact that nodes differ in; what more there are is left out."""
_NAMES_SHOWN: Final = 8

Fact = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlace:
    """Where a rank runs, as far as it can tell.

    Attributes:
        node: index of its node.
        local_rank: among the ranks of its node, from 0.
        visible_gpus: what CUDA_VISIBLE_DEVICES leaves it, in order: indices or UUIDs; None for all.
        socket: index of the socket to which it is bound, among those of its node; None where it is to none.
    """

    node: int
    local_rank: int
    visible_gpus: tuple[str, ...] | None = None
    socket: int | None = None


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of nodes, with a number where two nodes share one (``node#2``)."""
    taken: set[str] = set()
    unique = []
    for name in names:
        candidate, copy = name, 2
        while candidate in taken:
            candidate, copy = f"{name}#{copy}", copy + 1
        taken.add(candidate)
        unique.append(candidate)
    return tuple(unique)


def gather_topologies(topologies: Sequence[Topology], ranks: Sequence[RankPlace] = ()) -> Topology:
    """One topology of several nodes.

    Args:
        topologies: of one node each, in the order in which the nodes shall stand; at least one.
        ranks: rank → where it runs.

    Returns:
        All vertices and links, ids beginning with the node's name. A fact that all nodes share stands under
        its own name; where they differ there is one for each value (``kernel of a, b``). A rank is on its GPU
        where its node has one for each of its ranks, else on the socket to which it is bound, else on one of
        the sockets in turn; ``ranks`` is empty where a node shows neither. Equal warnings of several nodes
        stand once, with their names.
    """
    names = unique_names([_name(topology) for topology in topologies])
    nodes = [_renamed(topology, name) for topology, name in zip(topologies, names, strict=True)]
    first = topologies[0].source
    gathered = Topology(
        vertices=tuple(vertex for node in nodes for vertex in node.vertices),
        links=tuple(link for node in nodes for link in node.links),
        pairs=tuple(pair for node in nodes for pair in node.pairs),
        servers=tuple(server for node in nodes for server in node.servers),
        source=Source(
            kind=first.kind if len(nodes) == 1 else f"{first.kind}, {len(nodes)} nodes",
            path=first.path,
            created=max((node.source.created or "" for node in nodes), default="") or None,
            topotune_version=first.topotune_version,
            facts=_facts([topology.source.facts for topology in topologies], names),
        ),
        warnings=_warnings([topology.warnings for topology in topologies], names),
    )
    placed, bare = _placed(gathered, names, ranks)
    if not bare:
        return replace(gathered, ranks=placed)
    problem = f"where ranks run is not known: {_listed(bare)} shows neither GPUs nor processors"
    return replace(gathered, warnings=(*gathered.warnings, problem))


def _name(topology: Topology) -> str:
    return next((vertex.node for vertex in topology.vertices if vertex.node is not None), "localhost")


def _renamed(topology: Topology, name: str) -> Topology:
    """The same node under another name, all ids beginning with it."""
    prefix = f"{_name(topology)}/"
    ids = {vertex.id: f"{name}/{vertex.id.removeprefix(prefix)}" for vertex in topology.vertices}
    return replace(
        topology,
        vertices=tuple(
            replace(vertex, id=ids[vertex.id], node=None if vertex.node is None else name)
            for vertex in topology.vertices
        ),
        links=tuple(replace(link, src=ids[link.src], dst=ids[link.dst]) for link in topology.links),
        ranks=tuple(ids[vertex] for vertex in topology.ranks),
        servers=tuple(ids[vertex] for vertex in topology.servers),
        pairs=tuple(replace(pair, a=ids[pair.a], b=ids[pair.b]) for pair in topology.pairs),
    )


def _facts(facts: Sequence[Mapping[str, Fact]], names: Sequence[str]) -> dict[str, Fact]:
    found: dict[str, Fact] = {}
    for key in dict.fromkeys(key for each in facts for key in each):
        owners: dict[tuple[type, Fact], list[str]] = defaultdict(list)  # 1, 1.0 and True are three values
        for name, each in zip(names, facts, strict=True):
            if key in each:
                owners[type(each[key]), each[key]].append(name)
        for (_, value), holders in list(owners.items())[:MAX_VALUES_OF_FACT]:
            shared = len(holders) == len(names)
            found[key if shared else f"{key} of {_listed(holders)}"] = value
    return found


def _warnings(warnings: Sequence[Sequence[str]], names: Sequence[str]) -> tuple[str, ...]:
    owners: dict[str, list[str]] = defaultdict(list)
    for name, each in zip(names, warnings, strict=True):
        for warning in dict.fromkeys(each):
            owners[warning].append(name)
    alone = len(names) == 1
    return tuple(
        warning if alone else f"{_listed(holders)}: {warning}" for warning, holders in owners.items()
    )


def _placed(
    gathered: Topology, names: Sequence[str], ranks: Sequence[RankPlace]
) -> tuple[tuple[str, ...], list[str]]:
    """The vertex of each rank; and nodes that have none for theirs."""
    gpus, sockets = by_node(gathered, "gpu"), by_node(gathered, "cpu")
    num_local = Counter(rank.node for rank in ranks)
    placed: list[str] = []
    bare: dict[str, None] = {}
    for rank in ranks:
        name = names[rank.node]
        of_node = sockets.get(name, [])
        gpu = _gpu_of(rank, gpus.get(name, []), num_local[rank.node])
        if gpu is not None:
            placed.append(gpu.id)
        elif of_node:
            number = rank.socket if rank.socket is not None else rank.local_rank
            placed.append(of_node[number % len(of_node)].id)
        else:
            bare[name] = None
    return tuple(placed), list(bare)


def _gpu_of(rank: RankPlace, gpus: Sequence[Vertex], num_local: int) -> Vertex | None:
    """The GPU that a rank of a usual script drives: that of its local rank, or the only one it is shown."""
    if rank.visible_gpus is None:
        return gpus[rank.local_rank] if max(num_local, rank.local_rank + 1) <= len(gpus) else None
    shown = rank.visible_gpus
    number = 0 if len(shown) == 1 else rank.local_rank
    if number >= len(shown):
        return None
    word = shown[number]
    if word.isdecimal():
        return next((gpu for gpu in gpus if str(gpu.index) == word), None)
    # The runtime takes a UUID cut short where it fits one GPU alone.
    matching = [gpu for gpu in gpus if gpu.uuid is not None and gpu.uuid.startswith(word)]
    return matching[0] if len(matching) == 1 else None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more

"""What people ask of a topology first: how many of what, and how near they are to each other."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from topotune.errors import UsageError
from topotune.topology.model import Topology, Vertex, VertexKind
from topotune.topology.paths import Paths

MAX_PAIRS: Final = 1_000_000


def by_node(topology: Topology, kind: VertexKind) -> dict[str | None, list[Vertex]]:
    """Vertices of a kind, by the node that they belong to, in the topology's order."""
    found: dict[str | None, list[Vertex]] = defaultdict(list)
    for vertex in topology.vertices:
        if vertex.kind == kind:
            found[vertex.node].append(vertex)
    return dict(found)


def summary(topology: Topology) -> dict[str, Any]:
    """What ``show --json`` adds to a topology.

    Returns:
        ``num_nodes``, ``num_gpus``, ``num_nics``, ``num_numa``; ``gpu_pairs``: each pair of GPUs of a node,
        and each that NVLink joins across nodes, once, as ``a``, ``b`` (vertex ids), ``path``;
        ``gpu_nic_paths``: each GPU with each adapter of its node, as ``gpu``, ``nic``, ``path``. A path is
        null where the topology does not tell it.

    Raises:
        UsageError: more than 1,000,000 of either.
    """
    paths = Paths(topology)
    kinds = [vertex.kind for vertex in topology.vertices]
    gpu_pairs = _bounded("pairs of GPUs", _gpu_pairs(topology, paths))
    gpu_nics = _bounded("pairs of a GPU and an adapter", _gpu_nics(topology))
    return {
        "num_nodes": len({vertex.node for vertex in topology.vertices} - {None}),
        "num_gpus": kinds.count("gpu"),
        "num_nics": kinds.count("nic"),
        "num_numa": kinds.count("numa"),
        "gpu_pairs": [{"a": a, "b": b, "path": paths.between(a, b)} for a, b in gpu_pairs],
        "gpu_nic_paths": [{"gpu": gpu, "nic": nic, "path": paths.between(gpu, nic)} for gpu, nic in gpu_nics],
    }


def _bounded(what: str, pairs: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    found = list(islice(pairs, MAX_PAIRS + 1))
    if len(found) > MAX_PAIRS:
        raise UsageError(f"the topology has more than {MAX_PAIRS} {what}", hint="look at a part of it")
    return found


def _gpu_nics(topology: Topology) -> Iterator[tuple[str, str]]:
    nics = by_node(topology, "nic")
    for node, gpus in by_node(topology, "gpu").items():
        for gpu in gpus:
            yield from ((gpu.id, nic.id) for nic in nics.get(node, ()))


def _gpu_pairs(topology: Topology, paths: Paths) -> Iterator[tuple[str, str]]:
    groups = by_node(topology, "gpu")
    position = {gpu.id: at for at, gpu in enumerate(gpu for group in groups.values() for gpu in group)}
    for group in groups.values():
        local = {gpu.id for gpu in group}
        for at, gpu in enumerate(group):
            yield from ((gpu.id, other.id) for other in group[at + 1 :])
            far = [peer for peer in paths.nvlink_peers(gpu.id) if peer not in local]
            yield from (
                (gpu.id, peer)
                for peer in sorted(far, key=position.__getitem__)
                if position[peer] > position[gpu.id]
            )

"""GPUs among themselves: peer access that is refused, slices, mixed models, pairs chosen across sockets."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from topotune.health.node import Node, listed
from topotune.links.finding import Finding
from topotune.topology.model import Topology, Vertex
from topotune.topology.overview import by_node
from topotune.topology.paths import Paths

# In nvidia-smi's words (nvidia-smi topo -p2p, legend).
_REFUSALS: Final = {
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by regkey",
}
_NEEDED = ("read", "write", "any")
_THROUGH_HOST: Final = "each message is copied into host memory and out again"
_MAX_RANKS_COMPARED = 256


def peer_findings(node: Node) -> Iterator[Finding]:
    """All findings about how the GPUs of a node reach each other."""
    yield from _refused(node)
    yield from _slices(node)
    models = Counter(gpu.model for gpu in node.gpus if gpu.model is not None)
    if len(models) > 1:
        said = listed([f"{number} × {model}" for model, number in models.most_common()])
        yield Finding(
            code="mixed-gpu-models",
            severity="info",
            where=node.where(),
            evidence=(
                f"{said}: all wait for the slowest at every step; cost not known: it is one of computing"
            ),
            advice=(
                "leave one model to a job (CUDA_VISIBLE_DEVICES), or give the faster GPUs more of the batch"
            ),
        )


def _refused(node: Node) -> Iterator[Finding]:
    """Pairs between which the driver lets no GPU read or write the other's memory, one finding a reason."""
    pairs: dict[str, list[str]] = defaultdict(list)
    for pair in node.topology.pairs:
        statuses = [pair.p2p[name] for name in _NEEDED if pair.p2p.get(name) in _REFUSALS]
        if statuses:
            a, b = (node.called(node.vertices[end]) for end in (pair.a, pair.b))
            pairs[statuses[0]].append(f"{a} and {b}")
    for status, members in pairs.items():
        yield Finding(
            code="p2p-disabled",
            severity="warning",
            where=f"{listed(members, 4)} of node {node.name}",
            evidence=(
                f"{_tool(node)} says {status} ({_REFUSALS[status]}) of {len(members)} "
                f"pair{'s' if len(members) > 1 else ''}: {_THROUGH_HOST}; cost not known: what host memory "
                "carries is not"
            ),
            advice=(
                "look for the driver's registry keys, ACS and IOMMU, a BIOS that splits the slots over "
                "chipsets; "
                "GeForce drivers refuse it as such: then NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=0 spare "
                "the try"
            ),
        )


def _tool(node: Node) -> str:
    """Which command shows the refusal again."""
    return "amd-smi topology" if "amd-smi" in node.topology.source.kind else "nvidia-smi topo -p2p"


def _slices(node: Node) -> Iterator[Finding]:
    sliced = [gpu for gpu in node.gpus if gpu.mig]
    if not sliced:
        return
    kinds = listed(sorted({kind for gpu in sliced for kind in gpu.mig_instances or ()}))
    yield Finding(
        code="mig-on",
        severity="warning",
        where=node.where(sliced),
        evidence=(
            f"MIG is on{f' ({kinds})' if kinds else ''}: slices have neither NVLink nor peer access, so "
            f"{_THROUGH_HOST}, and NCCL refuses two slices of one GPU; cost not known: what host memory "
            "carries "
            "is not"
        ),
        advice="nvidia-smi -mig 0 on the GPUs that train together, or one slice a job",
    )


def rank_order_findings(topology: Topology) -> Iterator[Finding]:
    """Ranks on GPUs across sockets though nearer GPUs exist, or in an order that crosses more than it must.

    Without ranks in the topology, each node's GPUs in their own order are what a launcher's ranks get.
    """
    paths = Paths(topology)
    vertices = {vertex.id: vertex for vertex in topology.vertices}
    of_ranks: dict[str | None, list[Vertex]] = defaultdict(list)
    for name in dict.fromkeys(topology.ranks):
        if vertices[name].kind == "gpu":
            of_ranks[vertices[name].node].append(vertices[name])
    for host, gpus in by_node(topology, "gpu").items():
        used = of_ranks.get(host) or ([] if topology.ranks else gpus)
        if host is None or not 2 <= len(used) <= _MAX_RANKS_COMPARED:
            continue
        node = Node(host, topology)
        finding = _spread(node, used, gpus, paths) or _order(node, used, paths)
        if finding is not None:
            yield finding


def _spread(node: Node, used: Sequence[Vertex], gpus: Sequence[Vertex], paths: Paths) -> Finding | None:
    """Ranks on GPUs of several sockets, though so many GPUs of one socket would do."""
    far = _crossing(used, paths, ring=False)
    if not far or len(used) == len(gpus):
        return None
    for start in gpus:
        near = [gpu for gpu in gpus if gpu is start or paths.between(start.id, gpu.id) not in ("SYS", None)]
        chosen = near[: len(used)]
        if len(chosen) == len(used) and not _crossing(chosen, paths, ring=False):
            numbers = ",".join(str(gpu.index) for gpu in chosen if gpu.index is not None)
            return Finding(
                code="gpus-across-sockets",
                severity="warning",
                where=f"{far[0][0]} and {far[0][1]} of node {node.name}",
                evidence=(
                    f"the {len(used)} ranks' GPUs are joined by SYS, across sockets, though "
                    f"{listed([node.called(gpu) for gpu in chosen])} are nearer to each other; cost not "
                    "known: "
                    "what the way between sockets carries is not"
                ),
                advice=f"CUDA_VISIBLE_DEVICES={numbers}" if numbers else "give the job those GPUs",
            )
    return None


def _order(node: Node, used: Sequence[Vertex], paths: Paths) -> Finding | None:
    """Neighbours in rank order that cross sockets more often than another order would."""
    crossings = len(_crossing(used, paths, ring=True))
    sides: list[list[Vertex]] = []
    for gpu in used:
        words = [paths.between(side[0].id, gpu.id) for side in sides]
        if None in words:
            return None
        home = next((side for side, word in zip(sides, words, strict=True) if word != "SYS"), None)
        if home is None:
            sides.append([gpu])
        else:
            home.append(gpu)
    better = [gpu for side in sides for gpu in side]
    least = len(_crossing(better, paths, ring=True))
    if crossings <= least:
        return None
    numbers = ",".join(str(gpu.index) for gpu in better if gpu.index is not None)
    return Finding(
        code="gpu-order-crosses-sockets",
        severity="info",
        where=node.where(used),
        evidence=(
            f"in the order of ranks, {crossings} of {len(used)} neighbours are joined by SYS, across "
            "sockets; "
            f"another order has {least}. NCCL finds its own rings; what follows the rank order does not"
        ),
        advice=f"CUDA_VISIBLE_DEVICES={numbers}" if numbers else "reorder the ranks",
    )


def _crossing(gpus: Sequence[Vertex], paths: Paths, *, ring: bool) -> list[tuple[str, str]]:
    """Pairs joined by SYS: neighbours in a ring, or all of them."""
    number = len(gpus)
    if ring:
        pairs = [(gpus[at], gpus[(at + 1) % number]) for at in range(number if number > 2 else 1)]
    else:
        pairs = [(gpus[a], gpus[b]) for a in range(number) for b in range(a + 1, number)]
    return [(a.name or a.id, b.name or b.id) for a, b in pairs if paths.between(a.id, b.id) == "SYS"]

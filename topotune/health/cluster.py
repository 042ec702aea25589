"""Nodes of a cluster against each other: what one has less of, and what differs."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from topotune.health.costs import star_cost
from topotune.health.node import Node, is_up, listed
from topotune.links.finding import Finding
from topotune.topology.model import Vertex
from topotune.units import format_bit_rate

_BITS_PER_BYTE: Final = 8
_MAX_COSTED_NODES = 256
_SHOULD_AGREE: Final = (
    ("kernel", "kernel"),
    ("nvidia_driver", "NVIDIA driver"),
    ("nvidia_module", "kind of NVIDIA kernel modules"),
    ("iommu", "IOMMU"),
    ("cpu_model", "CPU model"),
)
_SHAPES: Final[tuple[tuple[str, Callable[[Node], object]], ...]] = (
    ("GPUs", lambda node: len(node.gpus)),
    ("GPU models", lambda node: listed(sorted({gpu.model or "" for gpu in node.gpus}))),
    ("NUMA nodes", lambda node: sum(vertex.kind == "numa" for vertex in node.topology.vertices)),
    ("RDMA ports that are up", lambda node: len(_up(node))),
    (
        "names of RDMA devices",
        lambda node: listed(sorted(nic.rdma_device or nic.name or "" for nic in _up(node)), 16),
    ),
    ("link layers of RDMA ports", lambda node: listed(sorted({nic.link_layer or "" for nic in _up(node)}))),
)
_HARDWARE: Final = {"GPUs", "GPU models", "RDMA ports that are up", "link layers of RDMA ports"}


def cluster_findings(nodes: Sequence[Node], *, is_fabric: bool) -> Iterator[Finding]:
    """What makes nodes unequal.

    Args:
        nodes: to be compared; where some have GPUs, those alone.
        is_fabric: they were seen through a fabric, where there are hosts for storage and logins as well, that
            no job runs on: then unequal nodes without GPUs may be meant.
    """
    with_gpus = [node for node in nodes if node.gpus]
    nodes = with_gpus or nodes
    if len(nodes) < 2:
        return
    may_be_meant = is_fabric and not with_gpus
    yield from _rates(nodes, may_be_meant)
    for what, ask in _SHAPES:
        yield from _odd_ones(nodes, what, ask, may_be_meant)
    for name, words in _SHOULD_AGREE:
        yield from _differing(nodes, name, words)


def _up(node: Node) -> list[Vertex]:
    return [nic for nic in node.rdma_nics if is_up(nic) is not False]


def _rates(nodes: Sequence[Node], may_be_meant: bool) -> Iterator[Finding]:
    """Nodes whose ports together are slower than those of most: all wait for them."""
    rates: dict[str, float] = {}
    for node in nodes:
        ports = [nic for nic in node.rdma_nics or node.nics if is_up(nic) is not False]
        if not ports or any(nic.speed is None for nic in ports):
            return
        rates[node.name] = sum(nic.speed or 0 for nic in ports) / _BITS_PER_BYTE
    usual, number = Counter(rates.values()).most_common(1)[0]
    slow = [name for name, rate in rates.items() if rate < usual]
    if not slow or 2 * number < len(nodes):
        return
    least = min(rates[name] for name in slow)
    cost = None
    words = f"; cost not known: more than {_MAX_COSTED_NODES} nodes"
    if len(nodes) <= _MAX_COSTED_NODES:
        cost, words = star_cost(rates, {name: max(rate, usual) for name, rate in rates.items()}), ""
    yield Finding(
        code="unequal-nodes",
        severity="info" if may_be_meant else "warning",
        where=f"node {listed(slow)}" if len(slow) == 1 else f"nodes {listed(slow)}",
        evidence=(
            f"network ports of {format_bit_rate(least)} together where {number} of {len(nodes)} nodes have "
            f"{format_bit_rate(usual)}{words}"
        ),
        advice="look for ports that are missing, down or slow there, or leave the node out",
        cost_percent=cost,
    )


def _odd_ones(
    nodes: Sequence[Node], what: str, ask: Callable[[Node], object], may_be_meant: bool
) -> Iterator[Finding]:
    said = {node.name: ask(node) for node in nodes}
    counts = Counter(said.values())
    if len(counts) == 1:
        return
    usual, number = counts.most_common(1)[0]
    odd = [name for name, value in said.items() if value != usual]
    examples = listed([f"{name} {said[name] or 'none'}" for name in odd], 4)
    hardware = what in _HARDWARE and 2 * number > len(nodes) and not may_be_meant
    yield Finding(
        code="unequal-nodes",
        severity="warning" if hardware else "info",
        where=f"node{'s' if len(odd) > 1 else ''} {listed(odd)}",
        evidence=(
            f"{what}: {examples}; {number} of {len(nodes)} nodes: {usual or 'none'}; cost not known: what "
            "differs has no "
            "rate of its own"
        ),
        advice="compare the nodes (topotune probe on each), mend or leave out the odd ones",
    )


def _differing(nodes: Sequence[Node], name: str, words: str) -> Iterator[Finding]:
    said = {node.name: node.facts[name] for node in nodes if node.facts.get(name) is not None}
    values = Counter(said.values())
    if len(values) < 2:
        return
    usual, number = values.most_common(1)[0]
    odd = [node for node, value in said.items() if value != usual]
    yield Finding(
        code="nodes-differ",
        severity="info",
        where=f"node{'s' if len(odd) > 1 else ''} {listed(odd)}",
        evidence=(
            f"{words}: {listed([f'{node} {said[node]}' for node in odd], 4)}; {number} of {len(said)}: "
            f"{usual}"
        ),
        advice="run one version on all nodes of a job",
    )

"""NVLinks that are down or missing: a GPU against its product, and against its peers.

How many links a GPU should have depends on the product: modules (SXM) have all of them joined, cards have
those of their bridge, if there is one. So inactive links are a fault of modules; of cards only a count that
differs from that of peers which are joined as well. A card without a bridge beside a bridged pair is none.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from topotune.health.costs import Costs, Mend, costed
from topotune.health.node import Node, listed
from topotune.links.finding import Finding
from topotune.topology.model import Link, Topology, Vertex

# Modules by the name their driver gives them → NVLinks of each, all of which are joined in every machine.
# Source: NVIDIA's architecture papers (P100 4, V100 6, A100 12, H100 and H200 18, B200 18); the export models
# A800 and H800 have 8.
_MODULES: Final = (
    (re.compile(r"P100-SXM2"), 4),
    (re.compile(r"V100-SXM[23]"), 6),
    (re.compile(r"A100-SXM"), 12),
    (re.compile(r"A800-SXM"), 8),
    (re.compile(r"H800(?!.*(?:PCIe|NVL))"), 8),
    (re.compile(r"H100 80GB HBM3$|H100.*SXM|H200(?!.*NVL)"), 18),
    (re.compile(r"G?B[23]00"), 18),
)
_ELSEWHERE: Final = "nccl.gpu.nvlinks_elsewhere"
_ADVICE: Final = (
    "look at nvidia-smi nvlink -s and -e, dmesg (Xid 74) and the fabric manager's log; reset the GPU or "
    "reboot, "
    "then have the module or baseboard seen to"
)


def module_nvlinks(model: str | None) -> int | None:
    """NVLinks of a GPU module, by its model; None for cards, and for what is not known."""
    return next((number for pattern, number in _MODULES if pattern.search(model or "")), None)


def nvlink_findings(node: Node, costs: Costs) -> Iterator[Finding]:
    """All findings about a node's NVLinks (and xGMI links, which stand in their place)."""
    lanes = _lanes(node)
    told: set[str] = set()
    for gpu in node.gpus:
        finding = _inactive(node, gpu, lanes, costs)
        if finding is not None:
            told.add(gpu.id)
            yield finding
    alike: dict[str | None, list[Vertex]] = defaultdict(list)
    for gpu in node.gpus:
        if gpu.id in lanes:
            alike[gpu.model].append(gpu)
    for members in alike.values():
        yield from _unequal(node, members, lanes, told, costs)


def _lanes(node: Node) -> dict[str, int]:
    """NVLinks of each GPU that carry traffic; GPUs of which nobody says are left out."""
    found: dict[str, int] = {}
    of_links: Counter[str] = Counter()
    for link in node.topology.links:
        # NVLink-C2C, which joins GPU and processor, is none of the links that a product is said to have.
        if link.kind == "nvlink" and node.vertices[link.dst].kind not in ("numa", "cpu"):
            of_links[link.src] += link.lanes or 1
    for gpu in node.gpus:
        if gpu.nvlink_ports is not None:
            found[gpu.id] = sum(port.active for port in gpu.nvlink_ports)
        elif of_links:
            # Where a source shows NVLinks at all, a GPU without one has none that it knows of.
            found[gpu.id] = of_links[gpu.id] + _elsewhere(gpu)
    return found


def _elsewhere(gpu: Vertex) -> int:
    """NVLinks that NCCL wrote of this GPU to devices that its file leaves out."""
    words = gpu.attributes.get(_ELSEWHERE, "").split()
    return sum(int(count) for count in words[2::4] if count.isdecimal())


def _inactive(node: Node, gpu: Vertex, lanes: dict[str, int], costs: Costs) -> Finding | None:
    """A module with links that carry nothing."""
    ports = gpu.nvlink_ports
    down = [port.link for port in ports or () if not port.active]
    expected = module_nvlinks(gpu.model)
    active = lanes.get(gpu.id)
    if expected is None or active is None or ports is None or active >= expected or gpu.mig:
        return None
    peers = [lanes.get(other.id) for other in node.gpus if other is not gpu]
    if active == 0 and not peers:
        return None  # a machine with one of the modules of a board: there is nothing to be joined with
    # A part of a board, as clouds lend it, has all links that lead out of it down, on each GPU as many.
    part = active > 0 and len(peers) > 0 and set(peers) == {active}
    numbers = f" (down: {listed([str(link) for link in down], 18)})" if down else ""
    finding = Finding(
        code="nvlink-down",
        severity="info" if part else "error",
        where=node.where([gpu]),
        evidence=(
            f"{active} of {expected} NVLinks are active{numbers}; a {gpu.model} has {expected}"
            + ("; all GPUs here have as many, as where a part of a board is lent" if part else "")
        ),
        advice=_ADVICE,
    )
    if part:
        return finding
    return costed(finding, costs.of(node, _with_lanes({gpu.id: expected / active if active else None})))


def _unequal(
    node: Node, members: list[Vertex], lanes: dict[str, int], told: set[str], costs: Costs
) -> Iterator[Finding]:
    """GPUs with fewer links than nearly all of their kind."""
    counts = Counter(lanes[gpu.id] for gpu in members)
    usual, number = counts.most_common(1)[0]
    # Of a mesh, a job's allocation may show three GPUs that differ by nature; of a switched fabric it cannot.
    switched = any(vertex.kind == "nvswitch" for vertex in node.topology.vertices)
    if usual == 0 or 2 * number <= len(members) or len(members) < (3 if switched else 4):
        return
    group = _joined_group(node)
    for gpu in members:
        count = lanes[gpu.id]
        # A card that nothing joins is whole by itself, unless its peers are one fabric of modules.
        alone = count == 0 and len(group) <= 2 and module_nvlinks(gpu.model) is None
        if gpu.id in told or count >= usual or alone:
            continue
        finding = Finding(
            code="nvlink-missing" if count == 0 else "nvlink-unequal",
            severity="error",
            where=node.where([gpu]),
            evidence=f"{count} NVLinks where {number} of {len(members)} GPUs of its kind have {usual}",
            advice=_ADVICE,
        )
        yield costed(finding, costs.of(node, _with_lanes({gpu.id: usual / count if count else None})))


def _joined_group(node: Node) -> set[str]:
    """The largest set of GPUs that NVLinks join."""
    largest: set[str] = set()
    seen: set[str] = set()
    for gpu in node.gpus:
        if gpu.id in seen:
            continue
        group, ahead = set[str](), [gpu.id]
        while ahead:
            here = ahead.pop()
            if here not in group:
                group.add(here)
                ahead += node.paths.nvlink_peers(here)
        seen |= group
        largest = max(largest, group, key=len)
    return largest


def _with_lanes(factors: dict[str, float | None]) -> Mend:
    """Some GPUs' NVLinks wider by a factor; one that has none gets those of a peer that hangs on switches."""

    def mend(topology: Topology) -> Topology:
        def one(link: Link) -> Link:
            factor = factors.get(link.src) or factors.get(link.dst)
            if link.kind != "nvlink" or factor is None or link.bandwidth_bytes_per_s is None:
                return link
            return replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)

        links = [one(link) for link in topology.links]
        for gpu, factor in factors.items():
            if factor is None:
                links += _links_like_a_peer(topology, gpu)
        return replace(topology, links=tuple(links))

    return mend


def _links_like_a_peer(topology: Topology, gpu: str) -> list[Link]:
    kinds = {vertex.id: vertex.kind for vertex in topology.vertices}
    to_switches = [
        link
        for link in topology.links
        if link.kind == "nvlink" and kinds[link.src] == "gpu" and kinds[link.dst] == "nvswitch"
    ]
    if not to_switches:
        return []
    peer = to_switches[0].src
    there = {(link.src, link.dst) for link in topology.links if link.kind == "nvlink"}
    return [
        new
        for link in to_switches
        if link.src == peer
        for new in (replace(link, src=gpu), replace(link, src=link.dst, dst=gpu))
        if (new.src, new.dst) not in there
    ]

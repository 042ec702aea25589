"""From "so many NVLinks between these two" to links, as far as that can be proven.

``nvidia-smi topo -m`` counts the NVLinks between two GPUs without saying whether they run straight or through
NVSwitches, where each GPU's links serve all its peers at once. A GPU cannot have more links than its driver
lists, nor than any GPU has; where the counts to its peers add up to more, they are the same links, and only
a switch makes that possible.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Final

from topotune.topology.model import Link, Topology, Vertex

MAX_NVLINKS_OF_A_GPU: Final = 18
"""Of Hopper and Blackwell; no GPU has more. Source: NVIDIA, H100 and B200 architecture papers."""


def nvlinks_of_pairs(topology: Topology) -> Topology:
    """Add the NVLinks that pairs tell of, where no link tells of them yet.

    Pairs of GPUs whose counts cannot all be links of their own are joined through one vertex that stands for
    their NVSwitches; its origin, like theirs, is ``inferred``.
    """
    linked = {end for link in topology.links if link.kind == "nvlink" for end in (link.src, link.dst)}
    gpus = {vertex.id: vertex for vertex in topology.vertices if vertex.kind == "gpu"}
    peers: dict[str, dict[str, int]] = defaultdict(dict)
    for pair in topology.pairs:
        if pair.nvlinks and pair.a in gpus and pair.b in gpus and not {pair.a, pair.b} & linked:
            peers[pair.a][pair.b] = peers[pair.b][pair.a] = pair.nvlinks
    switched = {
        gpu
        for gpu, others in peers.items()
        if sum(others.values()) > max(_num_ports(gpus[gpu]), *others.values())
    }
    links: list[Link] = []
    switches: list[Vertex] = []
    left_out: list[str] = []
    for group in _groups(switched, peers):
        node = gpus[group[0]].node
        lanes = {gpu: max(peers[gpu].values()) for gpu in group}
        if any(peers[a].get(b) != min(lanes[a], lanes[b]) for a in group for b in group if a != b):
            left_out.append(f"{group[0]} and {len(group) - 1} more")
            continue
        switch = Vertex(id=f"{node}/nvswitch/inferred", kind="nvswitch", node=node, name="NVSwitches")
        if any(other.id == switch.id for other in switches):
            switch = replace(switch, id=f"{switch.id}#{len(switches) + 1}")
        switches.append(switch)
        for gpu in group:
            links += (
                Link(src=src, dst=dst, kind="nvlink", lanes=lanes[gpu], origin="inferred")
                for src, dst in ((gpu, switch.id), (switch.id, gpu))
            )
    for gpu, others in peers.items():
        links += (
            Link(src=gpu, dst=other, kind="nvlink", lanes=lanes_between)
            for other, lanes_between in others.items()
            if gpu not in switched and other not in switched
        )
    warnings = topology.warnings
    if switches:
        warnings += ("NVSwitches were inferred: GPUs have more NVLinks to their peers than a GPU has",)
    if left_out:
        warnings += (f"how NVLinks join GPUs is not known: {', '.join(left_out[:3])}",)
    return replace(
        topology,
        vertices=(*topology.vertices, *switches),
        links=(*topology.links, *links),
        warnings=warnings,
    )


def with_port_rates(topology: Topology) -> Topology:
    """Give NVLinks without a rate that of the GPU's active links, where they all run at one."""
    rates = {}
    for vertex in topology.vertices:
        found = {port.bandwidth_bytes_per_s for port in vertex.nvlink_ports or () if port.active}
        if len(found) == 1 and None not in found:
            rates[vertex.id] = found.pop()
    return replace(
        topology,
        links=tuple(
            replace(link, bandwidth_bytes_per_s=link.lanes * rate)
            if link.kind == "nvlink"
            and link.lanes
            and link.bandwidth_bytes_per_s is None
            and (rate := rates.get(link.src) or rates.get(link.dst)) is not None
            else link
            for link in topology.links
        ),
    )


def _num_ports(gpu: Vertex) -> int:
    if gpu.nvlink_ports:
        return len(gpu.nvlink_ports)
    return MAX_NVLINKS_OF_A_GPU


def _groups(switched: set[str], peers: dict[str, dict[str, int]]) -> list[list[str]]:
    """GPUs behind switches, as they hang together, in a settled order."""
    groups, seen = [], set()
    for start in sorted(switched):
        if start in seen:
            continue
        group, pending = [], [start]
        seen.add(start)
        while pending:
            here = pending.pop()
            group.append(here)
            further = [other for other in peers[here] if other in switched and other not in seen]
            seen.update(further)
            pending += further
        groups.append(sorted(group))
    return groups

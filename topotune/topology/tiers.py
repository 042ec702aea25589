"""Fabric switches by how far they are from the hosts: leaves, spines, cores."""

from collections import defaultdict
from collections.abc import Mapping

from topotune.topology.model import Topology


def switch_tiers(topology: Topology) -> dict[str, int | None]:
    """Each fabric switch's distance to the nearest adapter of a host, in links: 1 where hosts are.

    None for those that no way leads to from a host. O(vertices + links).
    """
    kinds = {vertex.id: vertex.kind for vertex in topology.vertices}
    hosts = {vertex.id for vertex in topology.vertices if vertex.node is not None}
    around: Mapping[str, list[str]] = _around(topology, kinds)
    tiers: dict[str, int | None] = {here: None for here, kind in kinds.items() if kind == "switch"}
    level = [here for here in tiers if any(there in hosts for there in around.get(here, ()))]
    number = 1
    while level:
        for here in level:
            tiers[here] = number
        number += 1
        further = {there: None for here in level for there in around[here]}
        level = [there for there in further if there in tiers and tiers[there] is None]
    return tiers


def _around(topology: Topology, kinds: Mapping[str, str]) -> dict[str, list[str]]:
    """What each switch has a link with, in either direction."""
    around: dict[str, list[str]] = defaultdict(list)
    for link in topology.links:
        if kinds[link.src] == "switch":
            around[link.src].append(link.dst)
        if kinds[link.dst] == "switch":
            around[link.dst].append(link.src)
    return around

"""What the network of a lab cluster can carry at line rate: the yardstick of benchmarks."""

from topotune.bounds import CapacityGraph
from topotune.lab.profile import LabProfile

_BITS_PER_BYTE = 8


def line_rate_graph(profile: LabProfile) -> CapacityGraph | None:
    """The links of a lab cluster at their configured rates; None for a single node, which has none.

    Ranks sit on the vertex of their node. Packet headers and what a transport needs for itself are not
    taken off: a transfer's goodput stays a few per cent below these rates.
    """
    if len(profile.nodes) < 2:
        return None
    capacities: dict[tuple[str, str], int] = {}
    names: dict[tuple[str, str], str] = {}

    def join(below: str, above: str, bits_per_s: int, name: str) -> None:
        for arc, direction in (((below, above), "sending"), ((above, below), "receiving")):
            capacities[arc] = bits_per_s // _BITS_PER_BYTE
            names[arc] = f"{name}, {direction}"

    for node in profile.nodes:
        join(node.name, _switch(node.rack), node.bits_per_s, f"link of node {node.name}")
    for rack in profile.racks:
        join(_switch(rack.name), _switch(None), rack.uplink_bits_per_s, f"uplink of rack {rack.name}")
    node_of_rank = sorted(
        (rank, node.name)
        for node, ranks in zip(profile.nodes, profile.ranks_of_nodes(), strict=True)
        for rank in ranks
    )
    return CapacityGraph(capacities=capacities, compute=tuple(name for _, name in node_of_rank), names=names)


def _switch(rack: str | None) -> str:
    """The switch of a rack, or the one that joins all; no host name has a space in it."""
    return "switch" if rack is None else f"switch of rack {rack}"

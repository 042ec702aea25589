"""A topology of the network between the nodes, from what flows say of it. Pure."""

from topotune.links.inference import Group, Structure, Uplink
from topotune.links.measurement import Measurement
from topotune.links.model import LinkModel
from topotune.topology.model import Link, Source, Topology, Vertex

SPINE = "spine"


def inferred_topology(measurement: Measurement, structure: Structure, model: LinkModel) -> Topology:
    """Nodes, and the switches that their traffic behaves as if there were.

    A node is one ``cpu`` vertex that holds all its ranks. Each group has a switch, whose uplink leads to the
    switch of the group around it or to the spine; nodes in no group hang on the spine. Node links are
    measured; uplinks are inferred, with their intervals, and without a bandwidth where nothing filled them.

    Args:
        measurement: of two nodes or more.
        structure: inferred from it.
        model: fitted to it.
    """
    names = measurement.node_names
    cpus = [f"{name}/cpu" for name in names]
    switches = [f"switch of {group.name}" for group in structure.groups]
    vertices = [
        *(Vertex(id=cpu, kind="cpu", node=name) for cpu, name in zip(cpus, names, strict=True)),
        *(
            Vertex(id=switch, kind="switch", name=group.name)
            for switch, group in zip(switches, structure.groups, strict=True)
        ),
        Vertex(id=SPINE, kind="switch", name=SPINE),
    ]
    half_latency_s = _latency_between_nodes_s(model) / 2
    links = []
    for node, cpu in enumerate(cpus):
        around = [index for index, group in enumerate(structure.groups) if node in group.nodes]
        above = switches[around[-1]] if around else SPINE  # the smallest comes last
        for src, dst, rate in (
            (cpu, above, structure.sending_bytes_per_s[node]),
            (above, cpu, structure.receiving_bytes_per_s[node]),
        ):
            links.append(
                Link(
                    src=src,
                    dst=dst,
                    kind="unknown",
                    bandwidth_bytes_per_s=rate,
                    latency_s=half_latency_s,
                    origin="inferred" if rate is None else "measured",
                )
            )
    for group, switch in zip(structure.groups, switches, strict=True):
        links += _uplinks(group, switch, SPINE if group.parent is None else switches[group.parent])
    return Topology(
        vertices=tuple(vertices),
        links=tuple(links),
        source=Source(
            kind="inferred",
            created=measurement.created,
            facts={"structure": structure.no_groups or f"{len(structure.groups)} groups of nodes"},
        ),
        ranks=tuple(cpus[node] for node in measurement.node_of_rank),
        warnings=tuple(
            f"it is not known which group node {names[node]} is in" for node in structure.unplaced
        ),
    )


def _uplinks(group: Group, switch: str, above: str) -> list[Link]:
    def link(src: str, dst: str, uplink: Uplink | None) -> Link:
        return Link(
            src=src,
            dst=dst,
            kind="unknown",
            bandwidth_bytes_per_s=None if uplink is None else uplink.capacity_bytes_per_s,
            bandwidth_ci_bytes_per_s=None if uplink is None else uplink.capacity_ci_bytes_per_s,
            origin="inferred",
        )

    return [link(switch, above, group.sending), link(above, switch, group.receiving)]


def _latency_between_nodes_s(model: LinkModel) -> float:
    """Of the quickest class between nodes; 0 where there is none."""
    pairs = ((src, dst) for src in range(model.num_ranks) for dst in range(model.num_ranks))
    between = {
        model.pair_class[src][dst] for src, dst in pairs if model.node_of_rank[src] != model.node_of_rank[dst]
    }
    return min((model.classes[index].latency_s for index in between), default=0.0)

"""Links as documents describe them, with what could be changed of them: what optimum bounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from topotune.cli.machines import machine_profile
from topotune.errors import InputFileError, UsageError

if TYPE_CHECKING:
    from topotune.bounds import CapacityGraph
    from topotune.links import LinkModel, Measurement


@dataclass(frozen=True, kw_only=True)
class DescribedLinks:
    """What a document describes for bounds.

    Attributes:
        graph: what the links carry; None where nothing limits them.
        latency_s: what messages cost beside their bytes, where that was measured.
        reducing: switches that add by themselves.
        served: the links with servers, and the vertices that these are; None where there is none.
        warnings: of the document.
    """

    graph: "CapacityGraph | None"
    latency_s: float = 0.0
    reducing: frozenset[str] = frozenset()
    served: "tuple[CapacityGraph, frozenset[str]] | None" = None
    warnings: tuple[str, ...] = ()


def links_of(
    file: Path | None,
    profile: str | None,
    nodes: int | None,
    add_nic: bool,
    without: Sequence[str],
    changes: Sequence[str],
    num_servers: int | None = None,
) -> DescribedLinks:
    """The links that a document describes.

    Changes are for topologies alone: NICs first, then nodes, servers, and single links. A known machine
    has its nodes from the first.
    """
    from topotune.bounds import graph_from_links, graph_from_topology
    from topotune.bounds.graph import servers_of_graph
    from topotune.bounds.in_network import reducing_switches
    from topotune.bounds.optimum import latency_s
    from topotune.documents import read_document

    document = None if file is None else read_document(file)
    kind = "topotune/profile" if document is None else document["schema"]
    if kind in ("topotune/topology", "topotune/profile"):
        from topotune.topology import topology_from_document, what_if
        from topotune.topology.servers import with_servers, without_idle_nodes, without_servers

        if kind == "topotune/profile":
            from topotune.topology.profile_topology import machine_network

            name = profile if file is None else str(file.absolute())
            assert name is not None
            topology, nodes = machine_network(machine_profile(name), nodes), None
        else:
            topology = topology_from_document(document, str(file))
        if add_nic:
            topology = what_if.with_nic(topology)
        if nodes is not None:
            topology = what_if.with_nodes(topology, nodes)
        if num_servers is not None:
            topology = with_servers(topology, num_servers)
        for place in without:
            topology = what_if.without(topology, place)
        for change in changes:
            topology = what_if.with_rate(topology, change)
        topology = without_idle_nodes(topology)
        graph = graph_from_topology(without_servers(topology))
        servers = frozenset(servers_of_graph(topology))
        return DescribedLinks(
            graph=graph,
            served=(graph_from_topology(topology), servers) if servers else None,
            reducing=reducing_switches(topology) & (frozenset(graph.vertices) - graph.hosts),
            warnings=topology.warnings,
        )
    assert file is not None
    assert document is not None
    if nodes is not None or add_nic or without or changes or num_servers is not None:
        raise UsageError(
            f"{file}: is a {kind}; what if is asked of a topology",
            hint="topotune probe -o machine.json gives one, and topotune measure --topology FILE",
        )
    if kind == "topotune/measurement":
        from topotune.links import measurement_from_document

        measurement = measurement_from_document(document, str(file))
        model = fitted(measurement, str(file))
        return DescribedLinks(
            graph=graph_from_links(model), latency_s=latency_s(model), warnings=measurement.warnings
        )
    if kind == "topotune/lab":
        from topotune.lab import read_profile
        from topotune.lab.limit import line_rate_graph

        return DescribedLinks(graph=line_rate_graph(read_profile(file.resolve())))
    raise UsageError(
        f"{file}: is a {kind}, which describes no links",
        hint="optimum reads topologies, measurements, lab and machine profiles",
    )


def fitted(measurement: "Measurement", source: str) -> "LinkModel":
    """The costs of a file's links; refuses a file that holds no times of links by its name."""
    from topotune.links import fit_links

    try:
        return fit_links(measurement)
    except UsageError as problem:
        raise InputFileError(source, problem.message, hint=problem.hint) from problem

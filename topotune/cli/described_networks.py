"""Networks that are described in some way, as they are simulated."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topotune.cli.machines import machine_profile
from topotune.errors import UsageError

if TYPE_CHECKING:
    from topotune.bounds import CapacityGraph
    from topotune.bounds.bound import Bound, NoBound
    from topotune.simulate.nccl import NcclMachine
    from topotune.simulate.network import Network


@dataclass(frozen=True, kw_only=True)
class DescribedNetwork:
    """Links that are only described, and how fast allreduce can be on them.

    Attributes:
        name: of them, in words.
        network: as it is simulated.
        graph: the same, where forests are to be found on it.
        bound: of allreduce.
        served: the links with servers, and the vertices that these are; None where there is none.
        nccl: what NCCL would know of it; None where it does not run there.
        warnings: of the description.
    """

    name: str
    network: "Network"
    graph: "CapacityGraph | None"
    bound: "Bound | NoBound"
    served: "tuple[CapacityGraph, tuple[str, ...]] | None" = None
    nccl: "NcclMachine | None" = None
    warnings: tuple[str, ...] = ()


def network_of_document(
    document: dict[str, Any] | None,
    file: Path | None,
    profile: str | None,
    nodes: int | None,
    servers: int | None = None,
) -> DescribedNetwork:
    """The links that a topology, lab profile or known machine describes."""
    from topotune.bounds import Bound, NoBound, graph_from_topology
    from topotune.bounds.bound import graph_allreduce_bound
    from topotune.bounds.graph import servers_of_graph
    from topotune.bounds.servers import served_bound
    from topotune.simulate.nccl import machine_of
    from topotune.simulate.network import network_of_lab, network_of_topology
    from topotune.topology import topology_from_document, what_if
    from topotune.topology.servers import with_servers, without_idle_nodes, without_servers

    if document is not None and document["schema"] == "topotune/lab":
        from topotune.lab import read_profile
        from topotune.lab.limit import line_rate_graph

        assert file is not None
        if nodes is not None:
            raise UsageError(f"{file}: says itself how many nodes it has", hint="leave out --nodes")
        if servers is not None:
            raise UsageError(f"{file}: all nodes of a lab train", hint="leave out --servers")
        graph = line_rate_graph(read_profile(file.resolve()))
        if graph is None:
            raise UsageError(f"{file}: all ranks share one machine, where no link is described")
        network = network_of_lab(graph)
        return DescribedNetwork(
            name=str(file), network=network, graph=graph, bound=graph_allreduce_bound(graph)
        )
    if profile is not None:
        from topotune.topology.profile_topology import machine_network

        topology = machine_network(machine_profile(profile), nodes)
        name = profile if nodes is None else f"{nodes} x {profile}"
    elif document is not None and document["schema"] == "topotune/topology":
        topology = topology_from_document(document, str(file))
        name = str(file) if nodes is None else f"{nodes} x {file}"
        if nodes is not None:
            topology = what_if.with_nodes(topology, nodes)
    else:
        assert document is not None
        raise UsageError(
            f"{file}: is a {document['schema']}, which describes no links",
            hint="simulate reads topologies, measurements and lab profiles",
        )
    if servers is not None:
        topology = with_servers(topology, servers)
        name = f"{name} and {servers} servers"
    topology = without_idle_nodes(topology)
    try:
        network = network_of_topology(topology)
        graph = graph_from_topology(without_servers(topology))
        helping = servers_of_graph(topology)
        served = (graph_from_topology(topology), helping) if helping else None
        bound: Bound | NoBound = NoBound(reason="no link limits it")
        if len(graph.hosts) > 1:
            bound = graph_allreduce_bound(graph) if served is None else served_bound(served[0], set(helping))
    except ValueError as problem:
        raise UsageError(
            f"{name}: {problem}", hint="topotune probe -o machine.json maps a machine"
        ) from problem
    try:
        nccl = machine_of(topology) if network.num_ranks > 1 else None
    except UsageError:  # no machine that NCCL's model is for
        nccl = None
    return DescribedNetwork(
        name=name,
        network=network,
        graph=graph if len(graph.hosts) > 1 else None,
        bound=bound,
        served=served,
        nccl=nccl,
        warnings=topology.warnings,
    )


def machine_fabric_network(
    profile: str | None,
    nodes: int | None,
    nodes_per_leaf: int | None,
    oversubscription: float | None,
    rails: bool,
) -> DescribedNetwork:
    """Many of a known machine under leaf switches and a spine."""
    from dataclasses import replace

    from topotune.simulate.machine_fabric import machine_fabric
    from topotune.simulate.nccl import machine_of
    from topotune.topology.profile_topology import machine_network

    if profile is None or nodes is None:
        raise UsageError(
            "--nodes-per-leaf, --oversubscription and --rails lay out a fabric of known machines",
            hint="topotune simulate --profile dgx-h100 --nodes 512 --oversubscription 2",
        )
    machine = machine_profile(profile)
    network, bound = machine_fabric(
        machine,
        nodes,
        nodes_per_leaf=nodes_per_leaf,
        oversubscription=1.0 if oversubscription is None else oversubscription,
        rails=rails,
    )
    return DescribedNetwork(
        name=f"{nodes} x {machine.name} on {'rails' if rails else 'a fat tree'}",
        network=network,
        graph=None,
        bound=bound,
        nccl=replace(machine_of(machine_network(machine, 2)), num_nodes=nodes),
    )


def torus_network(sides: str, link_rate: str | None) -> DescribedNetwork:
    """Ranks on a torus, which is written ``16x64x64``."""
    from topotune.simulate.direct_fabric import MAX_DIMENSIONS, parse_counts, parse_link_rates, torus_cluster

    counts = parse_counts(sides, "--torus", 1, MAX_DIMENSIONS)
    (rate,) = parse_link_rates(link_rate, "--torus", 1)
    network, bound = torus_cluster(counts, rate)
    return DescribedNetwork(name=f"a torus of {sides}", network=network, graph=None, bound=bound)


def dragonfly_network(counts: str, link_rate: str | None) -> DescribedNetwork:
    """Ranks on a dragonfly, which is written ``GROUPSxROUTERSxRANKS``."""
    from topotune.simulate.direct_fabric import dragonfly_cluster, parse_counts, parse_link_rates

    groups_routers_ranks = parse_counts(counts, "--dragonfly", 3, 3)
    rates = parse_link_rates(link_rate, "--dragonfly", 3)
    network, bound = dragonfly_cluster(groups_routers_ranks, rates)
    return DescribedNetwork(name=f"a dragonfly of {counts}", network=network, graph=None, bound=bound)

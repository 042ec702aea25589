"""Verbs about links as they could be: optimum, simulate."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topotune import units
from topotune.cli.app import app
from topotune.cli.machines import machine_profile, one_of
from topotune.cli.options import Force, Json, KnownMachine, Output, Sizes
from topotune.cli.output import check_output, deliver, say
from topotune.errors import InputFileError, TopotuneError, UsageError

if TYPE_CHECKING:
    from topotune.bounds import CapacityGraph
    from topotune.bounds.bound import Bound, NoBound
    from topotune.links import LinkModel, Measurement
    from topotune.simulate.nccl import NcclMachine
    from topotune.simulate.network import Network


@app.command()
def optimum(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A topology, measurement or lab or machine profile (.json)."),
    ] = None,
    profile: KnownMachine = None,
    sizes: Sizes = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", help="What if there were N such nodes.")
    ] = None,
    add_nic: Annotated[
        bool, typer.Option("--add-nic", help="What if each node had one NIC more, like its last one.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="PLACE", help="What if these links were not there: ID or ID:ID."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PLACE=RATE", help="What if they were faster or slower: half, 0.8, 100Gbit."
        ),
    ] = None,
    switches_reduce: Annotated[
        bool,
        typer.Option("--switches-reduce", help="What if all switches added (SHARP), not only NVSwitches."),
    ] = False,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say how fast each collective could be on these links. And what holds it back.

    Example: topotune optimum machine.json --nodes 4 --set n3/nic0=half --sizes 1M,64M
    """
    from topotune.bounds import NoBound, optima, optima_to_document
    from topotune.report.text import describe_optimum

    name = one_of(file, profile)
    check_output(output, force, schema="topotune/optimum")
    message_bytes = () if sizes is None else units.parse_sizes(sizes)
    try:
        described = _network_of(file, profile, nodes, add_nic, without or (), changes or ())
        graph = described.graph
        reducing = described.reducing
        if graph is not None and switches_reduce:
            reducing = frozenset(graph.vertices) - graph.hosts
        found = NoBound(reason="no link limits it") if graph is None else optima(graph, reducing)
    except TopotuneError:
        raise
    except ValueError as problem:
        found = NoBound(reason=str(problem))
    if isinstance(found, NoBound):
        raise UsageError(f"{name}: {found.reason}", hint="a bound needs links with known rates between ranks")
    document = optima_to_document(
        found, message_bytes, latency_s=described.latency_s, warnings=described.warnings
    )
    deliver(document, describe_optimum(document), output, force, as_json, schema="topotune/optimum")


@dataclass(frozen=True, kw_only=True)
class _Links:
    """What a document describes for bounds.

    Attributes:
        graph: what the links carry; None where nothing limits them.
        latency_s: what messages cost beside their bytes, where that was measured.
        reducing: switches that add by themselves.
        warnings: of the document.
    """

    graph: "CapacityGraph | None"
    latency_s: float = 0.0
    reducing: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


def _network_of(
    file: Path | None,
    profile: str | None,
    nodes: int | None,
    add_nic: bool,
    without: Sequence[str],
    changes: Sequence[str],
) -> _Links:
    """The links that a document describes.

    Changes are for topologies alone: NICs first, then nodes, then single links. A known machine has its
    nodes from the first.
    """
    from topotune.bounds import graph_from_links, graph_from_topology
    from topotune.bounds.in_network import reducing_switches
    from topotune.bounds.optimum import latency_s
    from topotune.documents import read_document

    document = None if file is None else read_document(file)
    kind = "topotune/profile" if document is None else document["schema"]
    if kind in ("topotune/topology", "topotune/profile"):
        from topotune.topology import topology_from_document, what_if

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
        for place in without:
            topology = what_if.without(topology, place)
        for change in changes:
            topology = what_if.with_rate(topology, change)
        graph = graph_from_topology(topology)
        return _Links(
            graph=graph,
            reducing=reducing_switches(topology) & (frozenset(graph.vertices) - graph.hosts),
            warnings=topology.warnings,
        )
    assert file is not None
    assert document is not None
    if nodes is not None or add_nic or without or changes:
        raise UsageError(
            f"{file}: is a {kind}; what if is asked of a topology",
            hint="topotune probe -o machine.json gives one, and topotune measure --topology FILE",
        )
    if kind == "topotune/measurement":
        from topotune.links import measurement_from_document

        measurement = measurement_from_document(document, str(file))
        model = _fitted(measurement, str(file))
        return _Links(
            graph=graph_from_links(model), latency_s=latency_s(model), warnings=measurement.warnings
        )
    if kind == "topotune/lab":
        from topotune.lab import read_profile
        from topotune.lab.limit import line_rate_graph

        return _Links(graph=line_rate_graph(read_profile(file.resolve())))
    raise UsageError(
        f"{file}: is a {kind}, which describes no links",
        hint="optimum reads topologies, measurements, lab and machine profiles",
    )


@app.command()
def simulate(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="A topology, measurement or lab profile (.json).", show_default=False
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="A known machine instead, or a .json file of one."),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", help="So many of it, on one switch that is no limit."),
    ] = None,
    nodes_per_leaf: Annotated[
        int | None,
        typer.Option(
            "--nodes-per-leaf", metavar="N", help="On a fat tree instead, so many under each leaf switch."
        ),
    ] = None,
    oversubscription: Annotated[
        float | None,
        typer.Option(
            "--oversubscription",
            metavar="X",
            help="What adapters below a leaf carry, over what its uplink does.",
        ),
    ] = None,
    rails: Annotated[
        bool, typer.Option("--rails", help="Adapters of one place of all nodes share a leaf switch.")
    ] = False,
    sizes: Sizes = None,
    algorithm: Annotated[
        str | None,
        typer.Option("--algorithm", metavar="NAME", help="This one alone, whatever building it takes."),
    ] = None,
    schedule: Annotated[
        Path | None,
        typer.Option("--schedule", metavar="FILE", help="The schedule in FILE (.json), and no other."),
    ] = None,
    emit: Annotated[
        Path | None,
        typer.Option(
            "--emit",
            metavar="FILE",
            help="Write the transfers of --algorithm to FILE (.json), cut as is best at the largest size.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict each algorithm's time on links. Measured, described, or such as do not exist yet.

    Example: topotune simulate --profile aws-p4d.24xlarge --nodes 4 --sizes 1K:1G:32
    """
    from topotune.documents import read_document

    message_bytes = units.parse_sizes("1K:64M:4" if sizes is None else sizes)
    if (file is None) == (profile is None):
        raise UsageError(
            "simulate takes a FILE or --profile NAME" + (", not both" if file else ""),
            hint="topotune simulate --profile aws-p4d.24xlarge --nodes 4",
        )
    if schedule is not None and (algorithm is not None or emit is not None):
        raise UsageError("--schedule times what is in its file: it goes with neither --algorithm nor --emit")
    if emit is not None and algorithm is None:
        raise UsageError("--emit writes one schedule: say which", hint="--algorithm ring")
    check_output(emit, force, schema="topotune/schedule")
    document = None if file is None else read_document(file)
    if document is not None and document["schema"] == "topotune/measurement":
        if nodes is not None or algorithm is not None:
            raise UsageError(
                f"{file}: is a measurement, of which all algorithms are predicted as it stands",
                hint="--nodes, --algorithm and --emit are for topologies, lab profiles and --profile",
            )
        _simulate_measured(document, str(file), message_bytes, schedule, as_json)
        return
    if oversubscription is not None or nodes_per_leaf is not None or rails:
        described = _described_fabric(profile, nodes, nodes_per_leaf, oversubscription, rails)
    else:
        described = _described_network(document, file, profile, nodes)
    _simulate_network(described, message_bytes, algorithm, schedule, emit, force, as_json)


def _simulate_measured(
    document: dict[str, Any], source: str, sizes: Sequence[int], schedule: Path | None, as_json: bool
) -> None:
    """All algorithms, or one schedule, on measured links."""
    from topotune.links import measurement_from_document
    from topotune.report.text import describe_predictions
    from topotune.schedule.document import read_schedule
    from topotune.simulate.survey import survey, survey_schedule

    model = _fitted(measurement_from_document(document, source), source)
    found = (
        survey(model, sizes) if schedule is None else survey_schedule(model, read_schedule(schedule), sizes)
    )
    say(found if as_json else describe_predictions(found), as_json)


@dataclass(frozen=True, kw_only=True)
class _Described:
    """Links that are only described, and how fast allreduce can be on them.

    Attributes:
        name: of them, in words.
        network: as it is simulated.
        graph: the same, where forests are to be found on it.
        bound: of allreduce.
        nccl: what NCCL would know of it; None where it does not run there.
        warnings: of the description.
    """

    name: str
    network: "Network"
    graph: "CapacityGraph | None"
    bound: "Bound | NoBound"
    nccl: "NcclMachine | None" = None
    warnings: tuple[str, ...] = ()


def _simulate_network(
    described: _Described,
    sizes: Sequence[int],
    algorithm: str | None,
    schedule: Path | None,
    emit: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """All algorithms, one, or one schedule, on the links of a description."""
    from topotune.files import write_whole
    from topotune.report.simulation import describe_simulation
    from topotune.schedule.document import document_blocks, read_schedule
    from topotune.simulate.contenders import contender_of, contenders
    from topotune.simulate.routed_survey import curves, survey_network

    network, name = described.network, described.name
    if network.num_ranks < 2:
        raise UsageError(f"{name}: a single rank exchanges nothing", hint="--nodes 2")
    try:
        if schedule is not None:
            chosen = [contender_of(read_schedule(schedule), network)]
        else:
            chosen = list(contenders(network, described.graph, algorithm))
        found = curves(network, chosen, sizes)
        result = survey_network(
            network,
            described.bound,
            found,
            sizes,
            name=name,
            nccl=described.nccl,
            warnings=described.warnings,
        )
    except TopotuneError:
        raise
    except ValueError as problem:
        raise UsageError(f"{name}: {problem}", hint="every rank needs links to all others") from problem
    if emit is not None:
        best = min(found, key=lambda curve: float(curve.time_s[-1])).contender
        if best.schedule is None:
            raise UsageError(
                f"--emit: {algorithm} on {network.num_ranks} ranks has too many transfers to write"
            )
        write_whole(emit, document_blocks(best.schedule), force=force, renews="topotune/schedule")
        print(f"written to {emit}", file=sys.stderr)
    say(result if as_json else describe_simulation(result), as_json)


def _described_network(
    document: dict[str, Any] | None, file: Path | None, profile: str | None, nodes: int | None
) -> _Described:
    """The links that a topology, lab profile or known machine describes."""
    from topotune.bounds import NoBound, graph_from_topology
    from topotune.bounds.bound import graph_allreduce_bound
    from topotune.simulate.nccl import machine_of
    from topotune.simulate.network import network_of_lab, network_of_topology
    from topotune.topology import topology_from_document, what_if

    if document is not None and document["schema"] == "topotune/lab":
        from topotune.lab import read_profile
        from topotune.lab.limit import line_rate_graph

        assert file is not None
        if nodes is not None:
            raise UsageError(f"{file}: says itself how many nodes it has", hint="leave out --nodes")
        graph = line_rate_graph(read_profile(file.resolve()))
        if graph is None:
            raise UsageError(f"{file}: all ranks share one machine, where no link is described")
        network = network_of_lab(graph)
        return _Described(name=str(file), network=network, graph=graph, bound=graph_allreduce_bound(graph))
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
    try:
        network = network_of_topology(topology)
        graph = graph_from_topology(topology)
        bound = graph_allreduce_bound(graph) if len(graph.hosts) > 1 else NoBound(reason="no link limits it")
    except ValueError as problem:
        raise UsageError(
            f"{name}: {problem}", hint="topotune probe -o machine.json maps a machine"
        ) from problem
    try:
        nccl = machine_of(topology) if network.num_ranks > 1 else None
    except UsageError:  # no machine that NCCL's model is for
        nccl = None
    return _Described(
        name=name,
        network=network,
        graph=graph if len(graph.hosts) > 1 else None,
        bound=bound,
        nccl=nccl,
        warnings=topology.warnings,
    )


def _described_fabric(
    profile: str | None,
    nodes: int | None,
    nodes_per_leaf: int | None,
    oversubscription: float | None,
    rails: bool,
) -> _Described:
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
    return _Described(
        name=f"{nodes} x {machine.name} on {'rails' if rails else 'a fat tree'}",
        network=network,
        graph=None,
        bound=bound,
        nccl=replace(machine_of(machine_network(machine, 2)), num_nodes=nodes),
    )


def _fitted(measurement: "Measurement", source: str) -> "LinkModel":
    """The costs of a file's links; refuses a file that holds no times of links by its name."""
    from topotune.links import fit_links

    try:
        return fit_links(measurement)
    except UsageError as problem:
        raise InputFileError(source, problem.message, hint=problem.hint) from problem

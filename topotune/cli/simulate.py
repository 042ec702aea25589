"""The verb simulate: predicted times of algorithms on links that are measured, described, or do not exist."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from topotune import units
from topotune.cli.app import app
from topotune.cli.described_links import fitted
from topotune.cli.described_networks import (
    DescribedNetwork,
    dragonfly_network,
    machine_fabric_network,
    network_of_document,
    torus_network,
)
from topotune.cli.options import Force, Json, Sizes
from topotune.cli.output import check_output, say
from topotune.errors import TopotuneError, UsageError


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
    servers: Annotated[
        int | None,
        typer.Option("--servers", metavar="N", help="N machines more that only add, with NICs alike."),
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
    torus: Annotated[
        str | None,
        typer.Option("--torus", metavar="AxB…", help="Ranks on a torus of these sides; with --link-rate."),
    ] = None,
    dragonfly: Annotated[
        str | None,
        typer.Option(
            "--dragonfly", metavar="GxRxN", help="G groups of R routers of N ranks; with --link-rate."
        ),
    ] = None,
    link_rate: Annotated[
        str | None,
        typer.Option(
            "--link-rate",
            metavar="RATE",
            help="Of their links, each way; of a dragonfly's also three: to ranks, in groups, between them.",
        ),
    ] = None,
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
    given = {"FILE": file, "--profile": profile, "--torus": torus, "--dragonfly": dragonfly}
    networks = [name for name, value in given.items() if value is not None]
    if len(networks) != 1:
        raise UsageError(
            "simulate takes a FILE or --profile NAME, --torus or --dragonfly"
            + (f", not {' and '.join(networks)}" if networks else ""),
            hint="topotune simulate --profile aws-p4d.24xlarge --nodes 4",
        )
    is_direct = torus is not None or dragonfly is not None
    if link_rate is not None and not is_direct:
        raise UsageError(
            "--link-rate is for --torus and --dragonfly", hint="topotune optimum --set PLACE=RATE"
        )
    of_machines = (nodes, nodes_per_leaf, oversubscription)
    if is_direct and (rails or any(value is not None for value in of_machines)):
        raise UsageError(
            f"{networks[0]} lays out ranks by itself",
            hint="leave out --nodes, --nodes-per-leaf, --oversubscription and --rails",
        )
    is_fabric = oversubscription is not None or nodes_per_leaf is not None or rails
    if servers is not None and (is_direct or is_fabric):
        raise UsageError(
            "--servers stand on one switch with the nodes", hint="leave out the options of fabrics"
        )
    if schedule is not None and (algorithm is not None or emit is not None):
        raise UsageError("--schedule times what is in its file: it goes with neither --algorithm nor --emit")
    if emit is not None and algorithm is None:
        raise UsageError("--emit writes one schedule: say which", hint="--algorithm ring")
    check_output(emit, force, schema="topotune/schedule")
    document = None if file is None else read_document(file)
    if document is not None and document["schema"] == "topotune/measurement":
        if nodes is not None or algorithm is not None or servers is not None:
            raise UsageError(
                f"{file}: is a measurement, of which all algorithms are predicted as it stands",
                hint="--nodes, --algorithm and --emit are for topologies, lab profiles and --profile",
            )
        _simulate_measured(document, str(file), message_bytes, schedule, as_json)
        return
    if torus is not None:
        described = torus_network(torus, link_rate)
    elif dragonfly is not None:
        described = dragonfly_network(dragonfly, link_rate)
    elif is_fabric:
        described = machine_fabric_network(profile, nodes, nodes_per_leaf, oversubscription, rails)
    else:
        described = network_of_document(document, file, profile, nodes, servers)
    _simulate_network(described, message_bytes, algorithm, schedule, emit, force, as_json)


def _simulate_measured(
    document: dict[str, Any], source: str, sizes: Sequence[int], schedule: Path | None, as_json: bool
) -> None:
    """All algorithms, or one schedule, on measured links."""
    from topotune.links import measurement_from_document
    from topotune.report.text import describe_predictions
    from topotune.schedule.document import read_schedule
    from topotune.simulate.survey import survey, survey_schedule

    model = fitted(measurement_from_document(document, source), source)
    found = (
        survey(model, sizes) if schedule is None else survey_schedule(model, read_schedule(schedule), sizes)
    )
    say(found if as_json else describe_predictions(found), as_json)


def _simulate_network(
    described: DescribedNetwork,
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
            chosen = list(contenders(network, described.graph, algorithm, served=described.served))
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

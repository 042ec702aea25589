"""The verb optimum: how fast collectives could be at best on links as they are, or as they could be."""

from pathlib import Path
from typing import Annotated

import typer

from topotune import units
from topotune.cli.app import app
from topotune.cli.described_links import links_of
from topotune.cli.machines import one_of
from topotune.cli.options import Force, Json, KnownMachine, Output, Sizes
from topotune.cli.output import check_output, deliver
from topotune.errors import TopotuneError, UsageError


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
    servers: Annotated[
        int | None,
        typer.Option("--servers", metavar="N", help="What if N machines more only added, with NICs alike."),
    ] = None,
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
        described = links_of(file, profile, nodes, add_nic, without or (), changes or (), servers)
        graph = described.graph
        reducing = described.reducing
        if graph is not None and switches_reduce:
            reducing = frozenset(graph.vertices) - graph.hosts
        found = (
            NoBound(reason="no link limits it")
            if graph is None
            else (optima(graph, reducing, served=described.served))
        )
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

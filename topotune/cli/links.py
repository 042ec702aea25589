"""Verbs about links as they are: measure, check."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topotune import units
from topotune.cli import completion
from topotune.cli.app import FINDINGS, app
from topotune.cli.options import Backend, Force, Interface, Json, NumLocalRanks, Output, Seed
from topotune.cli.output import check_output, deliver
from topotune.cli.progress import progress
from topotune.cli.ranks import (
    check_backend,
    find_launcher,
    force_interface,
    on_ranks,
    say_loss,
    say_network,
)
from topotune.errors import UsageError
from topotune.launch.default_ranks import default_ranks

if TYPE_CHECKING:
    from topotune.links import LinkModel, Measurement
    from topotune.probe.membership import Membership


@app.command()
def measure(
    nproc_per_node: NumLocalRanks = None,
    interface: Interface = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time to spend.")] = "20s",
    backend: Backend = "gloo",
    seed: Seed = 0,
    output: Output = None,
    topology_output: Annotated[
        Path | None,
        typer.Option("--topology", metavar="FILE", help="Write the inferred network between nodes to FILE."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Measure latency and bandwidth between ranks. And what flows share, and copies of GPUs.

    Example: topotune measure --nproc-per-node 4 -o links.json
    """
    from topotune.links import fit_links, measurement_from_document
    from topotune.report.text import describe_measurement

    payload = {
        "budget_s": units.parse_seconds(budget),
        "backend": check_backend(backend),
        "seed": seed,
        "shows_lines": not as_json,
    }
    force_interface(interface)
    launcher = find_launcher(nproc_per_node)
    if launcher.speaks:
        check_output(output, force, schema="topotune/measurement")
        check_output(topology_output, force, schema="topotune/topology")
    document = on_ranks(measure_rank, payload, launcher, nproc_per_node, default_ranks=default_ranks(backend))
    if not launcher.speaks:
        return
    measurement = measurement_from_document(document, "measurement")
    model = fit_links(measurement)
    text = describe_measurement(measurement, model)
    deliver(document, text, output, force, as_json, schema="topotune/measurement")
    if topology_output is not None:
        _write_inferred(measurement, model, topology_output, force)


def _write_inferred(measurement: "Measurement", model: "LinkModel", path: Path, force: bool) -> None:
    """The network between the nodes, as a topology."""
    from topotune.documents import document_text
    from topotune.files import write_whole
    from topotune.links import infer_structure, inferred_topology
    from topotune.topology import topology_to_document

    if len(measurement.node_names) == 1:
        raise UsageError(
            f"--topology {path}: all ranks are on one node, and there is no network between nodes to write",
            hint="topotune probe maps a single machine",
        )
    topology = inferred_topology(measurement, infer_structure(measurement), model)
    data = document_text(topology_to_document(topology)).encode()
    write_whole(path, data, force=force, renews="topotune/topology")
    print(f"written to {path}", file=sys.stderr)


@app.command()
def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE…]",
            help="A topology, a measurement, captures as import takes them; none: look and measure now.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="What each node should be: a known machine, a .json file of one, auto.",
            autocompletion=completion.MACHINES,
        ),
    ] = None,
    measures: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Time the links too, or only look at the nodes.")
    ] = True,
    nproc_per_node: NumLocalRanks = None,
    interface: Interface = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time to measure for.")] = "30s",
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            help="Exit code 3 from here on: info, warning, error.",
            autocompletion=completion.SEVERITIES,
        ),
    ] = "warning",
    seed: Seed = 0,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find what is wrong with nodes and the network between them. Exit code 3 if anything is.

    Example: topotune check --no-measure --fail-on error
    """
    from topotune.links.check import SCHEMA, SEVERITIES, reaches
    from topotune.links.finding import Finding
    from topotune.report.text import describe_check

    if fail_on not in SEVERITIES:
        raise UsageError(f"--fail-on {fail_on}: is none of {', '.join(SEVERITIES)}")
    payload = {
        "budget_s": units.parse_seconds(budget),
        "seed": seed,
        "profile": profile,
        "measure": measures,
        "shows_lines": not as_json,
    }
    if profile not in (None, "auto"):
        from topotune.topology.catalog import load_profile

        load_profile(profile)  # before the work that needs it
    speaks = True
    if files:
        check_output(output, force, schema=SCHEMA)
        document = _check_files(files, profile)
    else:
        force_interface(interface)
        launcher = find_launcher(nproc_per_node)
        speaks = launcher.speaks
        if speaks:
            check_output(output, force, schema=SCHEMA)
        found = _check_here(payload, launcher, nproc_per_node)
        if found is None:
            return
        document = found
    if speaks:
        deliver(document, describe_check(document), output, force, as_json, schema=SCHEMA)
    if reaches([Finding(**finding) for finding in document["findings"]], fail_on):
        raise typer.Exit(FINDINGS)


def _check_files(files: Sequence[str], profile: str | None) -> dict[str, Any]:
    """What is wrong by a measurement or benchmarks' outputs, by files that make up a topology, or by both."""
    from topotune.documents import holds, read_document
    from topotune.health.checked import check_measured, check_topology
    from topotune.links import measurement_from_document
    from topotune.links.check import check_to_document
    from topotune.links.foreign import benchmarks_among, read_measurement
    from topotune.topology.formats import read_files
    from topotune.topology.formats.importing import node_and_path

    own = [file for file in files if holds(node_and_path(file)[1], "topotune/measurement")]
    benchmarks = [file for file in benchmarks_among(files) if file not in own]
    described = [file for file in files if file not in own and file not in benchmarks]
    if len(own) > 1 or (own and benchmarks):
        raise UsageError(
            f"{own[0]} and {(own[1:] or benchmarks)[0]} are two measurements: check takes one at a time",
            hint="topotune import joins benchmarks' outputs of one run of a cluster",
        )
    topology = read_files(described) if described else None
    if own:
        document = read_document(own[0], "topotune/measurement")
        measurement = measurement_from_document(document, own[0])
    elif benchmarks:
        measurement = read_measurement(benchmarks)
    else:
        assert topology is not None
        return check_to_document(check_topology(topology, profile=profile))
    return check_to_document(check_measured(measurement, profile, topology))


def _check_here(
    payload: dict[str, Any], launcher: "Membership", num_local_ranks: int | None
) -> dict[str, Any] | None:
    """What is wrong with this machine, or all nodes of a launcher; None in processes that do not speak."""
    from topotune.probe.membership import Alone

    if isinstance(launcher, Alone) and not payload["measure"]:
        from topotune.health.checked import check_topology
        from topotune.links.check import check_to_document
        from topotune.probe import probe as look
        from topotune.probe.instance_type import read_hints

        hints = read_hints(os.environ, Path("/"))
        return check_to_document(check_topology(look(), profile=payload["profile"], hints=hints))
    found: dict[str, Any] | None = on_ranks(check_rank, payload, launcher, num_local_ranks, share_result=True)
    return found


def measure_rank(payload: dict[str, Any]) -> Any:
    """`measure` on one rank; the measurement's document on rank 0, which also shows the progress."""
    from topotune.links.session import measure_worker

    with _links_progress(payload, "measure") as show:
        return measure_worker(payload, show, say_network, say_loss)


def check_rank(payload: dict[str, Any]) -> Any:
    """`check` on one rank; the document of what was found on rank 0, which also shows the progress."""
    from topotune.links.check_session import check_worker

    with _links_progress(payload, "check") as show:
        return check_worker(payload, show, say_network, say_loss)


@contextmanager
def _links_progress(payload: dict[str, Any], verb: str) -> Iterator[Callable[[float], None]]:
    """What takes the share of the budget that is done."""
    from topotune.tune.progress import share_of_budget

    budget_s = payload["budget_s"]
    with progress(payload, verb) as show:
        yield lambda done: show(share_of_budget("links", done * budget_s, budget_s))

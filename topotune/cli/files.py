"""Verbs about descriptions of machines: probe, import, export, show, schema."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from topotune.cli import completion
from topotune.cli.app import app
from topotune.cli.machines import machine_profile, one_of
from topotune.cli.options import Force, Json, KnownMachine, Output
from topotune.cli.output import check_output, deliver, print_json, say, width
from topotune.cli.ranks import on_ranks
from topotune.errors import InputFileError, UsageError


@app.command()
def probe(
    root: Annotated[
        Path,
        typer.Option("--root", metavar="DIR", help="Read a captured tree of /sys, /proc, /etc instead of /."),
    ] = Path("/"),
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Map this machine: GPUs, links, NUMA nodes, network. Under a launcher, all its nodes.

    Example: topotune probe -o machine.json
    """
    from topotune.probe import probe as look
    from topotune.probe.launcher import read_launcher
    from topotune.probe.membership import Alone
    from topotune.topology import render, topology_from_document, topology_to_document

    launcher = read_launcher(os.environ, num_local_ranks=1)
    if launcher.speaks:
        check_output(output, force, schema=None)
    if isinstance(launcher, Alone):
        topology = look(root)
        document = topology_to_document(topology)
    else:
        document = on_ranks(probe_rank, {"root": str(root.absolute())}, launcher, 1)
        if not launcher.speaks:
            return
        topology = topology_from_document(document, "the nodes' topology")
    deliver(document, render(topology, width=width()), output, force, as_json, schema=None)


@app.command(name="import")
def import_(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", help="Captured output or files; NODE=FILE says which node one is of."
        ),
    ],
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="What the files are, instead of recognising it.",
            autocompletion=completion.CAPTURES,
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Read other tools' files as a topology or a measurement. NCCL XML, nvidia-smi, nccl-tests, ….

    Example: topotune import topo.xml topo-m.txt smi-q.txt -o machine.json
    """
    from topotune.links.foreign import benchmarks_among
    from topotune.topology import render, topology_to_document
    from topotune.topology.formats import read_files

    check_output(output, force, schema=None)
    benchmarks = benchmarks_among(files, format_name=format_name)
    if benchmarks:
        _import_benchmarks(files, benchmarks, format_name, output, force, as_json)
        return
    topology = read_files(files, format_name=format_name)
    document = topology_to_document(topology)
    deliver(document, render(topology, width=width()), output, force, as_json, schema=None)


def _import_benchmarks(
    files: list[str],
    benchmarks: Sequence[str],
    format_name: str | None,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Benchmarks' output to a measurement; all of the files, or none."""
    from topotune.links import fit_links
    from topotune.links.document import to_document
    from topotune.links.foreign import read_measurement
    from topotune.report.text import describe_measurement

    others = [file for file in files if file not in benchmarks]
    if others:
        raise UsageError(
            f"{benchmarks[0]} is a benchmark's output and {others[0]} is not: they make no document together",
            hint="import each kind by itself: a measurement, and a topology",
        )
    measurement = read_measurement(files, format_name=format_name)
    model = fit_links(measurement) if measurement.times_links else None
    text = describe_measurement(measurement, model)
    deliver(to_document(measurement), text, output, force, as_json, schema=None)


@app.command()
def show(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A topology, measurement, plan, gradients, machine profile, journal of a tuning run, or a "
            "capture that import takes.",
        ),
    ] = None,
    profile: KnownMachine = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", help="So many of the known machine.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", metavar="FILE", help="Write a journal's search to FILE, as a database of Optuna's."
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show a result file or a known machine for people.

    Example: topotune show plan.json
    """
    from topotune.documents import read_document
    from topotune.tune.journal import is_journal

    one_of(file, profile)
    if nodes is not None and profile is None:
        raise UsageError(
            f"--nodes {nodes}: counts known machines, and {file} is a file",
            hint="topotune show --profile NAME --nodes 2",
        )
    if file is None:
        assert profile is not None
        if export is not None:
            raise UsageError("--export: is for the journal of a tuning run")
        _show_profile(profile, nodes, as_json)
        return
    if is_journal(file):
        _show_journal(file, export, force, as_json)
        return
    try:
        document = read_document(file)
    except InputFileError:
        if export is None and _show_capture(str(file), as_json):
            return
        raise
    kind = document["schema"]
    if export is not None:
        raise UsageError(
            f"--export: {file} is a {kind}; what can be exported so is a tuning run's journal",
            hint="topotune show plan.journal.jsonl --export study.db",
        )
    if kind == "topotune/profile":
        _show_profile(str(file.absolute()), None, as_json)
    elif kind == "topotune/topology":
        from topotune.topology import render, summary, topology_from_document

        topology = topology_from_document(document, str(file))
        say(document | summary(topology) if as_json else render(topology, width=width()), as_json)
    elif kind == "topotune/measurement":
        from topotune.links import fit_links, measurement_from_document
        from topotune.report.text import describe_measurement

        measurement = measurement_from_document(document, str(file))
        model = fit_links(measurement) if measurement.times_links else None
        say(document if as_json else describe_measurement(measurement, model), as_json)
    elif kind == "topotune/plan":
        from topotune.plan import load_plan, plan_to_document
        from topotune.report.text import describe_plan

        plan = load_plan(file)
        say(plan_to_document(plan) if as_json else describe_plan(plan), as_json)
    elif kind == "topotune/gradients":
        from topotune.report.step import describe_gradients
        from topotune.step.gradients import gradients_from_document, gradients_to_document

        gradients = gradients_from_document(document, str(file))
        say(gradients_to_document(gradients) if as_json else describe_gradients(gradients), as_json)
    else:
        from topotune.results import KINDS

        raise UsageError(
            f"{file}: is a {kind}, which show does not know",
            hint=f"topotune report {file} --format md shows it"
            if kind.removeprefix("topotune/") in KINDS
            else "show reads topologies, measurements, plans, gradients, machine profiles, journals",
        )


def _show_capture(file: str, as_json: bool) -> bool:
    """A file of another tool, as `import` reads it; False where it is none."""
    from topotune.links import fit_links
    from topotune.links.document import to_document
    from topotune.links.foreign import benchmarks_among, read_measurement
    from topotune.report.text import describe_measurement
    from topotune.topology import render, summary, topology_to_document
    from topotune.topology.formats import is_capture, read_files

    if benchmarks_among([file]):
        measurement = read_measurement([file])
        model = fit_links(measurement) if measurement.times_links else None
        say(to_document(measurement) if as_json else describe_measurement(measurement, model), as_json)
        return True
    if not is_capture(file):
        return False
    topology = read_files([file])
    document = topology_to_document(topology) | summary(topology) if as_json else None
    say(document if document is not None else render(topology, width=width()), as_json)
    return True


def _show_journal(file: Path, export: Path | None, force: bool, as_json: bool) -> None:
    from topotune.report.tuning import describe_tuning_run, tuning_run_to_document
    from topotune.results.tuning import tuning_run_of
    from topotune.tune.journal import read_journal

    run = tuning_run_of(read_journal(file), str(file))
    if export is not None:
        from topotune.results.study import write_studies

        num_studies = write_studies(run, str(file), export, force=force)
        note = f"{num_studies} studies written to {export}: optuna-dashboard sqlite:///{export}"
        print(note, file=sys.stderr)
    say(tuning_run_to_document(run) if as_json else describe_tuning_run(run), as_json)


def _show_profile(name: str, nodes: int | None, as_json: bool) -> None:
    from topotune.report.machine import describe_profile
    from topotune.topology import render, summary, topology_to_document
    from topotune.topology.profile import profile_to_document
    from topotune.topology.profile_topology import machine_topology

    profile = machine_profile(name)
    topology = machine_topology(profile, nodes)
    if as_json:
        document = topology_to_document(topology) | summary(topology)
        print_json(document | {"profile": profile_to_document(profile)})
    else:
        print(describe_profile(profile, width=width()), render(topology, width=width()), sep="\n\n")


@app.command()
def schema(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="plan, topology, measurement, check, schedule, lab, prediction, profile, gradients, "
            "comparison, optimum.",
            autocompletion=completion.KINDS,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Print the JSON Schema of a kind of document.

    Example: topotune schema plan
    """
    from topotune.documents import json_schema

    del as_json  # a schema is JSON either way
    print_json(json_schema(name))


def probe_rank(payload: dict[str, Any]) -> Any:
    """`probe` on one rank; the document of all nodes on rank 0."""
    from topotune.launch.cluster_probe import probe_all_nodes
    from topotune.topology import topology_to_document

    topology = probe_all_nodes(Path(payload["root"]))
    return None if topology is None else topology_to_document(topology)

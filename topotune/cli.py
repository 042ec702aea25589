"""The command line: parse, call, print, exit. The only module that prints.

Exit codes: 0 done · 1 failed · 2 wrong use or bad input · 3 findings · 130 interrupted. With ``--json``
stdout holds exactly one JSON document; all else then goes to stderr.
"""

import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from topotune import __version__, units
from topotune.errors import InputFileError, RankFailedError, RunError, TopotuneError, UsageError

if TYPE_CHECKING:
    from topotune.bounds import CapacityGraph
    from topotune.links import LinkModel, Measurement
    from topotune.probe.membership import Membership
    from topotune.simulate.network import Network
    from topotune.topology.profile import MachineProfile

FINDINGS = 3
INTERRUPTED = 130
_DEFAULT_RANKS = 2

app = typer.Typer(
    name="topotune",
    help="Find out what your cluster is, and write the allreduce plan that trains fastest on it.",
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout; all else goes to stderr.")
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the result to FILE.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite FILE whatever it is.")]
NumLocalRanks = Annotated[
    int | None,
    typer.Option(
        "--nproc-per-node",
        metavar="N",
        help="Ranks to start on this machine, or on each node; not under launchers that start ranks.  "
        "[default: 2]",
    ),
]
Interface = Annotated[
    str | None,
    typer.Option(
        "--interface",
        metavar="NAME",
        help="Network interface between nodes, or several: eth0,eth1.  [default: the fastest that all reach]",
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option(
        "--sizes", metavar="LIST", help="Message sizes in bytes: 256K,8M or 1K:64M (doubling) or 1K:64M:4."
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend", metavar="NAME", help="Collective library of the job: gloo (CPU) or nccl (GPU)."
    ),
]
KnownMachine = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A known machine instead of a file: its name, a .json file of one, or auto for this machine.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything that is drawn at random.")]


def main() -> None:
    """Run the command line and leave with its exit code."""
    arguments = sys.argv[1:]
    own = arguments.index("--") if "--" in arguments else len(arguments)  # behind it stands the job's command
    debug = "--debug" in arguments[:own]
    arguments = [argument for argument in arguments[:own] if argument != "--debug"] + arguments[own:]
    try:
        code = app(arguments, standalone_mode=False)
    except TopotuneError as error:
        if debug:
            raise
        _print_error(error)
        if isinstance(error, RankFailedError):
            # Not by the interpreter's way: destructors of process groups may wait for the rank that is gone.
            _leave_at_once(error.exit_code)
        _leave(error.exit_code)
    except TyperException as error:
        _print_error(UsageError(error.format_message(), hint="topotune --help, or topotune VERB --help"))
        _leave(UsageError.exit_code)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has left; what is still buffered has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(1)
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    _leave(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks.")
    ] = False,  # taken out before parsing
) -> None:
    if version:
        print(f"topotune {__version__}")
        raise typer.Exit


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
    """Map this machine: GPUs, NVLink, PCIe, NUMA, network and RDMA devices. Under a launcher, all its nodes.

    Example: topotune probe -o machine.json
    """
    from topotune.probe import probe as look
    from topotune.probe.launcher import read_launcher
    from topotune.probe.membership import Alone
    from topotune.topology import render, topology_from_document, topology_to_document

    launcher = read_launcher(os.environ, num_local_ranks=1)
    if launcher.speaks:
        _check_output(output, force, schema=None)
    if isinstance(launcher, Alone):
        topology = look(root)
        document = topology_to_document(topology)
    else:
        document = _on_ranks(probe_rank, {"root": str(root.absolute())}, launcher, 1)
        if not launcher.speaks:
            return
        topology = topology_from_document(document, "the nodes' topology")
    _deliver(document, render(topology, width=_width()), output, force, as_json, schema=None)


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
        typer.Option("--format", metavar="NAME", help="What the files are, instead of recognising it."),
    ] = None,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Read other tools' files (NCCL XML, nvidia-smi, nccl-tests, …): one topology, or one measurement.

    Example: topotune import topo.xml topo-m.txt smi-q.txt -o machine.json
    """
    from topotune.links.foreign import benchmarks_among
    from topotune.topology import render, topology_to_document
    from topotune.topology.formats import read_files

    _check_output(output, force, schema=None)
    benchmarks = benchmarks_among(files, format_name=format_name)
    if benchmarks:
        _import_benchmarks(files, benchmarks, format_name, output, force, as_json)
        return
    topology = read_files(files, format_name=format_name)
    document = topology_to_document(topology)
    _deliver(document, render(topology, width=_width()), output, force, as_json, schema=None)


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
    _deliver(to_document(measurement), text, output, force, as_json, schema=None)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A topology, or a file that import reads.")],
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="nccl-xml (NCCL_TOPO_FILE), json, dot, graphml.")
    ],
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Which node, where the format holds one.")
    ] = None,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a topology for other programs.

    Example: topotune export machine.json --to nccl-xml -o topo.xml
    """
    from topotune.files import write_whole
    from topotune.topology.formats import export_topology, read_files

    _check_output(output, force, schema=None)
    exported = export_topology(read_files([str(file)]), to, node=node)
    for warning in exported.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if output is not None:
        write_whole(output, exported.text.encode(), force=force)
    if as_json:
        head = {"schema": "topotune/export", "schema_version": 1}
        _print_json(head | {"format": to, "text": exported.text, "warnings": list(exported.warnings)})
    elif output is None:
        print(exported.text, end="")
    else:
        print(f"written to {output}", file=sys.stderr)


@app.command()
def show(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A topology, measurement, plan or machine profile."),
    ] = None,
    profile: KnownMachine = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", help="So many of the known machine.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a topology, measurement, plan or known machine for people.

    Example: topotune show plan.json
    """
    from topotune.documents import read_document

    _one_of(file, profile)
    if nodes is not None and profile is None:
        raise UsageError("--nodes: counts known machines", hint="topotune show --profile NAME --nodes 2")
    if file is None:
        assert profile is not None
        _show_profile(profile, nodes, as_json)
        return
    document = read_document(file)
    kind = document["schema"]
    if kind == "topotune/profile":
        _show_profile(str(file.absolute()), None, as_json)
    elif kind == "topotune/topology":
        from topotune.topology import render, summary, topology_from_document

        topology = topology_from_document(document, str(file))
        _say(document | summary(topology) if as_json else render(topology, width=_width()), as_json)
    elif kind == "topotune/measurement":
        from topotune.links import fit_links, measurement_from_document
        from topotune.report.text import describe_measurement

        measurement = measurement_from_document(document, str(file))
        model = fit_links(measurement) if measurement.times_links else None
        _say(document if as_json else describe_measurement(measurement, model), as_json)
    elif kind == "topotune/plan":
        from topotune.plan import load_plan, plan_to_document
        from topotune.report.text import describe_plan

        plan = load_plan(file)
        _say(plan_to_document(plan) if as_json else describe_plan(plan), as_json)
    else:
        raise UsageError(
            f"{file}: is a {kind}, which show does not know",
            hint="show reads topologies, measurements, plans, machine profiles",
        )


@app.command()
def schema(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="plan, topology, measurement, check, schedule, lab, prediction, profile."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Print the JSON Schema of a kind of document.

    Example: topotune schema plan
    """
    from topotune.documents import json_schema

    del as_json  # a schema is JSON either way
    _print_json(json_schema(name))


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
    """Measure latency and bandwidth between ranks, and what flows between nodes share.

    Example: topotune measure --nproc-per-node 4 -o links.json
    """
    from topotune.links import fit_links, measurement_from_document
    from topotune.report.text import describe_measurement

    payload = {"budget_s": units.parse_seconds(budget), "backend": _check_backend(backend), "seed": seed}
    _force_interface(interface)
    launcher = _launcher(nproc_per_node)
    if launcher.speaks:
        _check_output(output, force, schema="topotune/measurement")
        _check_output(topology_output, force, schema="topotune/topology")
    document = _on_ranks(measure_rank, payload, launcher, nproc_per_node)
    if not launcher.speaks:
        return
    measurement = measurement_from_document(document, "measurement")
    model = fit_links(measurement)
    text = describe_measurement(measurement, model)
    _deliver(document, text, output, force, as_json, schema="topotune/measurement")
    if topology_output is not None:
        _write_inferred(measurement, model, topology_output, force)


@app.command()
def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE…]",
            help="A topology, captures as import takes them, or a measurement; none: look and measure now.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="What each node should be: a known machine, a .json file of one, auto.",
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
        typer.Option("--fail-on", metavar="SEVERITY", help="Exit code 3 from here on: info, warning, error."),
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
    payload = {"budget_s": units.parse_seconds(budget), "seed": seed, "profile": profile, "measure": measures}
    if profile not in (None, "auto"):
        from topotune.topology.catalog import load_profile

        load_profile(profile)  # before the work that needs it
    speaks = True
    if files:
        _check_output(output, force, schema=SCHEMA)
        document = _check_files(files, profile)
    else:
        _force_interface(interface)
        launcher = _launcher(nproc_per_node)
        speaks = launcher.speaks
        if speaks:
            _check_output(output, force, schema=SCHEMA)
        found = _check_here(payload, launcher, nproc_per_node)
        if found is None:
            return
        document = found
    if speaks:
        _deliver(document, describe_check(document), output, force, as_json, schema=SCHEMA)
    if reaches([Finding(**finding) for finding in document["findings"]], fail_on):
        raise typer.Exit(FINDINGS)


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
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say how fast each collective could be at best on these links, and what holds it back.

    Example: topotune optimum machine.json --nodes 4 --set n3/nic0=half --sizes 1M,64M
    """
    from topotune.bounds import NoBound, optima, optima_to_document
    from topotune.report.text import describe_optimum

    name = _one_of(file, profile)
    _check_output(output, force, schema="topotune/optimum")
    message_bytes = () if sizes is None else units.parse_sizes(sizes)
    try:
        graph, latency_s, warnings = _network_of(file, profile, nodes, add_nic, without or (), changes or ())
        found = NoBound(reason="no link limits it") if graph is None else optima(graph)
    except TopotuneError:
        raise
    except ValueError as problem:
        found = NoBound(reason=str(problem))
    if isinstance(found, NoBound):
        raise UsageError(f"{name}: {found.reason}", hint="a bound needs links with known rates between ranks")
    document = optima_to_document(found, message_bytes, latency_s=latency_s, warnings=warnings)
    _deliver(document, describe_optimum(document), output, force, as_json, schema="topotune/optimum")


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
    """Predict each algorithm's time on links that were measured, described, or do not exist yet.

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
    _check_output(emit, force, schema="topotune/schedule")
    document = None if file is None else read_document(file)
    if document is not None and document["schema"] == "topotune/measurement":
        if nodes is not None or algorithm is not None:
            raise UsageError(
                f"{file}: is a measurement, of which all algorithms are predicted as it stands",
                hint="--nodes, --algorithm and --emit are for topologies, lab profiles and --profile",
            )
        _simulate_measured(document, str(file), message_bytes, schedule, as_json)
        return
    described = _described_network(document, file, profile, nodes)
    _simulate_network(*described, message_bytes, algorithm, schedule, emit, force, as_json)


@app.command()
def tune(
    nproc_per_node: NumLocalRanks = None,
    interface: Interface = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the plan to FILE.")
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="Time from ranks joined to plan written.")
    ] = "60s",
    sizes: Sizes = None,
    min_gain: Annotated[
        float,
        typer.Option(
            "--min-gain", metavar="PERCENT", help="Gain that a row must prove to leave the default, in %."
        ),
    ] = 2.0,
    backend: Backend = "gloo",
    seed: Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was cut short, by its journal.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Probe, measure, search, confirm, and write the plan. The main job.

    Example: topotune tune --nproc-per-node 4 -o plan.json
    """
    from topotune.plan import SCHEMA as PLAN_SCHEMA
    from topotune.plan import plan_from_document
    from topotune.report.text import describe_plan
    from topotune.tune.journal import check_replaceable, kept_path, num_unfinished
    from topotune.tune.options import TuneOptions

    journal_path = None if output is None else _journal_path(output)
    if not 0 <= min_gain <= 1000:
        raise UsageError(f"--min-gain {min_gain:g}: a gain lies between 0 and 1000 %")
    payload = {
        "budget_s": units.parse_seconds(budget),
        "sizes": list(units.parse_sizes(sizes)) if sizes is not None else None,
        "min_gain": min_gain / 100,
        "backend": _check_backend(backend),
        "seed": seed,
        "journal_path": None if journal_path is None else str(journal_path),
        "resume": resume,
    }
    TuneOptions.from_payload(payload)
    _force_interface(interface)
    launcher = _launcher(nproc_per_node)
    if launcher.speaks:
        _check_output(output, force, schema=PLAN_SCHEMA)
        if journal_path is not None:
            check_replaceable(journal_path)
            if not resume and (num_finished := num_unfinished(journal_path)):
                print(
                    f"note: {journal_path} holds {num_finished} finished trials of a run that was cut short, "
                    f"which --resume would go on with; it is kept as {kept_path(journal_path).name}",
                    file=sys.stderr,
                )
    if not as_json and launcher.speaks:
        from topotune.probe import probe as look
        from topotune.topology import render

        print(render(look(), width=_width()), flush=True)
    with _resumable(output):
        document = _on_ranks(tune_rank, payload, launcher, nproc_per_node)
    if not launcher.speaks:
        return
    plan = plan_from_document(document, "the new plan")
    text = describe_plan(plan)
    if output:
        text += "\n" + _how_to_use(output, plan.fingerprint.hard.ranks_per_node)
    _deliver(document, text, output, force, as_json, schema=PLAN_SCHEMA)


@app.command()
def compare(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, from topotune tune -o.")],
    sizes: Sizes = None,
    nproc_per_node: NumLocalRanks = None,
    interface: Interface = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time to spend.")] = "30s",
    seed: Seed = 0,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Measure the plan against the default, paired, now. Exit code 3 where the plan is slower anywhere.

    Example: topotune compare plan.json --sizes 256K,8M
    """
    from topotune.plan import load_plan
    from topotune.report.text import describe_comparison
    from topotune.tune.options import CompareOptions

    plan = load_plan(plan_file)
    payload = {
        "plan_path": str(plan_file.resolve()),
        "sizes": list(units.parse_sizes(sizes)) if sizes is not None else None,
        "budget_s": units.parse_seconds(budget),
        "seed": seed,
    }
    CompareOptions.from_payload(payload)
    _force_interface(interface)
    launcher = _launcher(nproc_per_node)
    if launcher.speaks:
        _check_output(output, force, schema="topotune/comparison")
    num_local_ranks = nproc_per_node or plan.fingerprint.hard.ranks_per_node[0]
    document = _on_ranks(compare_rank, payload, launcher, num_local_ranks, share_result=True)
    if document is None:
        return
    if launcher.speaks:
        text = describe_comparison(document)
        _deliver(document, text, output, force, as_json, schema="topotune/comparison")
    if any(row["verdict"] == "slower" for row in document["rows"]):
        raise typer.Exit(FINDINGS)


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD…", help="The job's command line.")],
    plan_file: Annotated[Path, typer.Option("--plan", metavar="FILE", help="The plan.")],
) -> NoReturn:
    """Run CMD with all that the plan can set from outside: TOPOTUNE_PLAN, and the network interface.

    Example: topotune run --plan plan.json -- torchrun --nproc-per-node 4 train.py
    """
    from topotune.plan import load_plan

    plan = load_plan(plan_file)  # a job must not start on a plan that cannot be read
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(
            f"{command[0]!r}: no such command", hint="topotune run --plan plan.json -- torchrun … train.py"
        )
    os.environ["TOPOTUNE_PLAN"] = str(plan_file.resolve())
    if plan.context.interface is not None and not os.environ.get("GLOO_SOCKET_IFNAME"):
        missing = set(plan.context.interface.split(",")) - {name for _, name in socket.if_nameindex()}
        if missing:
            print(f"warning: no network interface {min(missing)!r} here, as in the plan", file=sys.stderr)
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = plan.context.interface
    sys.stdout.flush()
    try:
        os.execv(program, command)
    except OSError as problem:
        raise UsageError(
            f"{command[0]!r}: cannot be run: {problem.strerror}",
            hint="a script needs a first line such as #!/bin/sh",
        ) from problem


@app.command()
def lab(
    profile: Annotated[
        str | None,
        typer.Argument(metavar="PROFILE", help="A profile's name or file; none lists those that ship."),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD…", help="What runs on each rank.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Run CMD once per node, without a launcher.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up when CMD has ended.")] = False,
    down: Annotated[bool, typer.Option("--down", help="Remove what ended labs have left over.")] = False,
    no_latency: Annotated[
        bool, typer.Option("--no-latency", help="Skip the profile's latencies where the kernel has no netem.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run CMD on every rank of an emulated cluster of network namespaces (Linux, root).

    Example: topotune lab 2x4 -- topotune tune -o plan.json
    """
    from topotune import lab as labs

    if down:
        removed = labs.down()
        document: dict[str, Any] = {
            "removed": [{"id": record.id, "profile": record.profile} for record in removed]
        }
        _say_lab(document, [f"removed {record.id} ({record.profile})" for record in removed], as_json)
        return
    if profile is None:
        profiles = labs.list_profiles()
        document = {
            "profiles": [{"name": one.name, "ranks": [node.ranks for node in one.nodes]} for one in profiles]
        }
        lines = [f"{one.name:16} {len(one.nodes)} nodes of {one.nodes[0].ranks} ranks" for one in profiles]
        _say_lab(document, lines, as_json)
        return
    if not command:
        raise UsageError(
            f"lab {profile}: no command was given", hint="topotune lab 2x4 -- topotune tune -o plan.json"
        )
    code = labs.run(
        profile,
        command,
        once=once,
        keep=keep,
        no_latency=no_latency,
        report=lambda line: print(line, file=sys.stderr),
    )
    raise typer.Exit(code)


# What runs on the ranks: started by `topotune.launch.on_ranks`, or called directly in a rank of torchrun.


def probe_rank(payload: dict[str, Any]) -> Any:
    """`probe` on one rank; the document of all nodes on rank 0."""
    from topotune.launch.cluster_probe import probe_all_nodes
    from topotune.topology import topology_to_document

    topology = probe_all_nodes(Path(payload["root"]))
    return None if topology is None else topology_to_document(topology)


def measure_rank(payload: dict[str, Any]) -> Any:
    """`measure` on one rank; the measurement's document on rank 0."""
    from topotune.links.session import measure_worker

    with _progress_bar() as report:
        return measure_worker(
            payload,
            lambda done: report("links", done, (1 - done) * payload["budget_s"]),
            _say_network,
            _print_error,
        )


def check_rank(payload: dict[str, Any]) -> Any:
    """`check` on one rank; the document of what was found on rank 0."""
    from topotune.links.check_session import check_worker

    with _progress_bar() as report:
        return check_worker(
            payload,
            lambda done: report("links", done, (1 - done) * payload["budget_s"]),
            _say_network,
            _print_error,
        )


def tune_rank(payload: dict[str, Any]) -> Any:
    """`tune` on one rank; the plan's document on rank 0, which also shows the progress."""
    from topotune.tune.session import tune_worker

    with _progress_bar() as report:
        return tune_worker(
            payload,
            lambda now: report(now.phase, now.done, now.seconds_left),
            _say_network,
            _print_error,
        )


def compare_rank(payload: dict[str, Any]) -> Any:
    """`compare` on one rank; the comparison's document on rank 0."""
    from topotune.tune.session import compare_worker

    return compare_worker(payload, _say_network, _print_error)


def _say_network(line: str) -> None:
    print(f"network: {line}", file=sys.stderr)


def _force_interface(names: str | None) -> None:
    """Have the ranks use what the user named, wherever they are started."""
    if names is not None:
        from topotune.interfaces.own import force

        force(names)


def _launcher(num_local_ranks: int | None = None) -> "Membership":
    """What started this process; refuses a number of ranks that cannot be, or is the launcher's to say."""
    from topotune.launch import launcher_here

    return launcher_here(num_local_ranks)


def _on_ranks(
    work: Callable[[dict[str, Any]], Any],
    payload: dict[str, Any],
    launcher: "Membership",
    num_local_ranks: int | None,
    *,
    share_result: bool = False,
) -> Any:
    """Run one of the functions above on all ranks; rank 0's result, None in processes that do not speak.

    Args:
        work: the function.
        payload: what it is called with.
        launcher: what started this process.
        num_local_ranks: to start on each node, where no launcher starts them; None: what the platform says,
            or else 2.
        share_result: where a launcher starts one process on each node, all of them get the result, so that
            exit codes which follow from it are the same on all.
    """
    from topotune.launch import run_on_ranks

    return run_on_ranks(
        work,
        payload,
        launcher,
        num_local_ranks=num_local_ranks,
        default_ranks=_DEFAULT_RANKS,
        share_result=share_result,
        report=lambda line: print(line, file=sys.stderr),
    )


@contextlib.contextmanager
def _progress_bar() -> Iterator[Callable[[str, float, float], None]]:
    """A bar with the time left on rank 0's stderr; nothing where that is no terminal.

    What it yields takes the phase, the share done and the seconds left.
    """
    if not sys.stderr.isatty() or not _launcher().speaks:
        yield lambda phase, done, seconds_left: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:12}"), BarColumn(), TextColumn("{task.fields[left]:>12}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0, left="")

        def report(phase: str, done: float, seconds_left: float) -> None:
            bar.update(task, description=phase, completed=done, left=f"{seconds_left:.0f} s left")

        yield report


# What goes in and out.


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


def _one_of(file: Path | None, profile: str | None) -> str:
    """What to call the one thing that the user gave, a file or a known machine."""
    if (file is None) == (profile is None):
        problem = "neither a file nor --profile" if file is None else f"{file} and --profile {profile}"
        raise UsageError(f"{problem}: give one", hint="--profile dgx-h100 is a known machine")
    return str(file or profile)


def _machine_profile(name: str) -> "MachineProfile":
    """A known machine by name or file; ``auto``: the one that this is, which is said on stderr."""
    from topotune.topology.catalog import load_profile

    if name != "auto":
        return load_profile(name)
    from topotune.probe import probe as look
    from topotune.probe.instance_type import read_hints
    from topotune.topology.recognition import recognise

    found = recognise(look(), read_hints(os.environ))
    if found.profile is None:
        raise UsageError(f"--profile auto: {found.text}", hint="name the machine: --profile NAME")
    print(f"recognised {found.text}", file=sys.stderr)
    return found.profile


def _show_profile(name: str, nodes: int | None, as_json: bool) -> None:
    from topotune.report.machine import describe_profile
    from topotune.topology import render, summary, topology_to_document
    from topotune.topology.profile import profile_to_document
    from topotune.topology.profile_topology import machine_topology

    profile = _machine_profile(name)
    topology = machine_topology(profile, nodes)
    if as_json:
        document = topology_to_document(topology) | summary(topology)
        _print_json(document | {"profile": profile_to_document(profile)})
    else:
        print(describe_profile(profile, width=_width()), render(topology, width=_width()), sep="\n\n")


def _network_of(
    file: Path | None,
    profile: str | None,
    nodes: int | None,
    add_nic: bool,
    without: Sequence[str],
    changes: Sequence[str],
) -> "tuple[CapacityGraph | None, float, tuple[str, ...]]":
    """The links that a document describes (None: nothing limits them), their latency, and its warnings.

    Changes are for topologies alone: NICs first, then nodes, then single links. A known machine has its
    nodes from the first.
    """
    from topotune.bounds import graph_from_links, graph_from_topology
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
            topology, nodes = machine_network(_machine_profile(name), nodes), None
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
        return graph_from_topology(topology), 0.0, topology.warnings
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
        return graph_from_links(model), latency_s(model), measurement.warnings
    if kind == "topotune/lab":
        from topotune.lab import read_profile
        from topotune.lab.limit import line_rate_graph

        return line_rate_graph(read_profile(file.resolve())), 0.0, ()
    raise UsageError(
        f"{file}: is a {kind}, which describes no links",
        hint="optimum reads topologies, measurements, lab and machine profiles",
    )


def _fitted(measurement: "Measurement", source: str) -> "LinkModel":
    """The costs of a file's links; refuses a file that holds no times of links by its name."""
    from topotune.links import fit_links

    try:
        return fit_links(measurement)
    except UsageError as problem:
        raise InputFileError(source, problem.message, hint=problem.hint) from problem


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
    _say(found if as_json else describe_predictions(found), as_json)


def _simulate_network(
    network: "Network",
    graph: "CapacityGraph | None",
    name: str,
    warnings: Sequence[str],
    sizes: Sequence[int],
    algorithm: str | None,
    schedule: Path | None,
    emit: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """All algorithms, one, or one schedule, on the links of a description."""
    from topotune.documents import document_text
    from topotune.files import write_whole
    from topotune.report.simulation import describe_simulation
    from topotune.schedule.document import read_schedule, to_document
    from topotune.simulate.contenders import contender_of, contenders
    from topotune.simulate.routed_survey import curves, survey_network

    if network.num_ranks < 2:
        raise UsageError(f"{name}: a single rank exchanges nothing", hint="--nodes 2")
    try:
        if schedule is not None:
            chosen = [contender_of(read_schedule(schedule), network)]
        else:
            chosen = list(contenders(network, graph, algorithm))
        found = curves(network, chosen, sizes)
        result = survey_network(network, graph, found, sizes, name=name, warnings=warnings)
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
        data = document_text(to_document(best.schedule)).encode()
        write_whole(emit, data, force=force, renews="topotune/schedule")
        print(f"written to {emit}", file=sys.stderr)
    _say(result if as_json else describe_simulation(result), as_json)


def _described_network(
    document: dict[str, Any] | None, file: Path | None, profile: str | None, nodes: int | None
) -> "tuple[Network, CapacityGraph | None, str, tuple[str, ...]]":
    """The links that a topology, lab profile or known machine describes; with what they are called."""
    from topotune.bounds import graph_from_topology
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
        return network_of_lab(graph), graph, str(file), ()
    if profile is not None:
        from topotune.topology.catalog import load_profile
        from topotune.topology.profile_topology import machine_network

        topology = machine_network(load_profile(profile), nodes)
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
    except ValueError as problem:
        raise UsageError(
            f"{name}: {problem}", hint="topotune probe -o machine.json maps a machine"
        ) from problem
    return network, graph if len(graph.hosts) > 1 else None, name, topology.warnings


def _check_files(files: Sequence[str], profile: str | None) -> dict[str, Any]:
    """What is wrong by a measurement, or by files that make up a topology."""
    from topotune.documents import MAX_MEASUREMENT_BYTES, read_bytes, read_document
    from topotune.health.checked import check_topology
    from topotune.links import measurement_from_document
    from topotune.links.check import check_measurement, check_to_document
    from topotune.topology.formats import read_files

    if len(files) == 1 and b'"topotune/measurement"' in read_bytes(files[0], max_bytes=MAX_MEASUREMENT_BYTES):
        document = read_document(files[0], "topotune/measurement")
        return check_to_document(check_measurement(measurement_from_document(document, files[0])))
    return check_to_document(check_topology(read_files(files), profile=profile))


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
    found: dict[str, Any] | None = _on_ranks(
        check_rank, payload, launcher, num_local_ranks, share_result=True
    )
    return found


def _check_backend(name: str) -> str:
    if name == "gloo":
        return name
    if name == "nccl":
        from topotune.probe.faults import Faults
        from topotune.probe.nvml import load_nvml, read_nvml

        reading = read_nvml(load_nvml(), Faults())
        if not reading.gpus:
            raise UsageError(
                "--backend nccl: no GPU was found on this machine: "
                + (reading.absent or "the driver knows none"),
                hint="--backend gloo tunes gradient exchange between CPUs",
            )
        raise UsageError(
            f"--backend nccl: topotune {__version__} passes NCCL's calls through and does not tune them yet",
            hint="--backend gloo",
        )
    raise UsageError(f"--backend {name}: is neither gloo nor nccl")


def _check_output(output: Path | None, force: bool, schema: str | None) -> None:
    """Refuse a place that cannot be written, before the work whose result it is."""
    if output is not None:
        from topotune.files import check_writable

        check_writable(output, force=force, renews=schema)


def _deliver(
    document: dict[str, Any], text: str, output: Path | None, force: bool, as_json: bool, schema: str | None
) -> None:
    """Write the document if asked to, then print it, or its text."""
    if output is not None:
        from topotune.documents import document_text
        from topotune.files import write_whole

        write_whole(output, document_text(document).encode(), force=force, renews=schema)
    if as_json:
        _print_json(document)
    else:
        print(text)
        if output is not None:
            print(f"written to {output}", file=sys.stderr)


def _say(what: dict[str, Any] | str, as_json: bool) -> None:
    if as_json:
        assert isinstance(what, dict)
        _print_json(what)
    else:
        print(what)


def _say_lab(document: dict[str, Any], lines: list[str], as_json: bool) -> None:
    head = {"schema": "topotune/labs", "schema_version": 1, "warnings": []}
    _say(head | document if as_json else "\n".join(lines) or "nothing was left over", as_json)


def _print_json(document: dict[str, Any]) -> None:
    from topotune.documents import document_text

    print(document_text(document), end="")


def _journal_path(plan: Path) -> Path:
    """Beside the plan: ``plan.json`` → ``plan.journal.jsonl``."""
    return plan.with_name(f"{plan.stem}.journal.jsonl")


@contextlib.contextmanager
def _resumable(output: Path | None) -> Iterator[None]:
    """Where a run fails that has left a journal, say that it can be resumed."""
    try:
        yield
    except RunError as error:
        if output is not None and error.hint is None and _journal_path(output).exists():
            error.hint = f"topotune tune --resume -o {output} goes on from what was measured so far"
        raise


def _how_to_use(plan: Path, ranks_per_node: Sequence[int]) -> str:
    torchrun = f"torchrun --nproc-per-node {ranks_per_node[0]}"
    if len(ranks_per_node) > 1:
        torchrun += f" --nnodes {len(ranks_per_node)} …"
    return (
        "use it\n"
        f"  topotune run --plan {plan} -- {torchrun} train.py\n"
        '  where train.py says dist.init_process_group("topotune"); or, with the backend it has,\n'
        f'  model.register_comm_hook(None, topotune.ddp_comm_hook("{plan}"))'
    )


def _width() -> int:
    return shutil.get_terminal_size().columns


def _print_error(error: TopotuneError) -> None:
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)


def _leave_at_once(code: int) -> NoReturn:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _leave(code: int) -> NoReturn:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.exit(code)

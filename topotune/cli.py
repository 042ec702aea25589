"""The command line: parse, call, print, exit. The only module that prints.

Exit codes: 0 done · 1 failed · 2 wrong use or bad input · 3 findings · 130 interrupted. With ``--json``
stdout holds exactly one JSON document; all else then goes to stderr.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from topotune import __version__, units
from topotune.errors import TopotuneError, UsageError

if TYPE_CHECKING:
    from topotune.bounds import CapacityGraph

FINDINGS = 3
INTERRUPTED = 130

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
        help="Ranks to start on this machine; not under torchrun, whose ranks are joined.  [default: 2]",
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
        _fail(error.message, error.hint, error.exit_code)
    except TyperException as error:
        _fail(error.format_message(), "topotune --help, or topotune VERB --help", UsageError.exit_code)
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
    """Map this machine: GPUs, NVLink, PCIe, NUMA, network and RDMA devices.

    Example: topotune probe -o machine.json
    """
    from topotune.probe import probe as look
    from topotune.topology import render, topology_to_document

    _check_output(output, force, schema=None)
    topology = look(root)
    document = topology_to_document(topology)
    _deliver(document, render(topology, width=_width()), output, force, as_json, schema=None)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A topology, measurement or plan.")],
    as_json: Json = False,
) -> None:
    """Show a topology, measurement or plan for people.

    Example: topotune show plan.json
    """
    from topotune.documents import read_document

    document = read_document(file)
    kind = document["schema"]
    if kind == "topotune/topology":
        from topotune.topology import render, summary, topology_from_document

        topology = topology_from_document(document, str(file))
        _say(document | summary(topology) if as_json else render(topology, width=_width()), as_json)
    elif kind == "topotune/measurement":
        from topotune.links import fit_links, measurement_from_document
        from topotune.report.text import describe_measurement

        measurement = measurement_from_document(document, str(file))
        _say(document if as_json else describe_measurement(measurement, fit_links(measurement)), as_json)
    elif kind == "topotune/plan":
        from topotune.plan import load_plan, plan_to_document
        from topotune.report.text import describe_plan

        plan = load_plan(file)
        _say(plan_to_document(plan) if as_json else describe_plan(plan), as_json)
    else:
        raise UsageError(
            f"{file}: is a {kind}, which show does not know",
            hint="show reads topologies, measurements, plans",
        )


@app.command()
def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help="plan, topology, measurement, schedule, lab.")],
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
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time to spend.")] = "10s",
    backend: Backend = "gloo",
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Measure latency and bandwidth between every two ranks.

    Example: topotune measure --nproc-per-node 4 -o links.json
    """
    from topotune.links import fit_links, measurement_from_document
    from topotune.report.text import describe_measurement

    payload = {"budget_s": units.parse_seconds(budget), "backend": _check_backend(backend)}
    _check_output(output, force, schema="topotune/measurement")
    document = _on_ranks(measure_rank, payload, nproc_per_node, default_ranks=2)
    if document is None:
        return
    measurement = measurement_from_document(document, "measurement")
    text = describe_measurement(measurement, fit_links(measurement))
    _deliver(document, text, output, force, as_json, schema="topotune/measurement")


@app.command()
def optimum(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A topology, measurement or lab profile (.json).")
    ],
    sizes: Sizes = None,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say how fast each collective could be at best on these links, and what holds it back.

    Example: topotune optimum links.json --sizes 1M,64M
    """
    from topotune.bounds import NoBound, optima, optima_to_document
    from topotune.report.text import describe_optimum

    _check_output(output, force, schema="topotune/optimum")
    message_bytes = () if sizes is None else units.parse_sizes(sizes)
    try:
        graph, latency_s, warnings = _network_of(file)
        found = NoBound(reason="no link limits it") if graph is None else optima(graph)
    except TopotuneError:
        raise
    except ValueError as problem:
        found = NoBound(reason=str(problem))
    if isinstance(found, NoBound):
        raise UsageError(f"{file}: {found.reason}", hint="a bound needs links with known rates between ranks")
    document = optima_to_document(found, message_bytes, latency_s=latency_s, warnings=warnings)
    _deliver(document, describe_optimum(document), output, force, as_json, schema="topotune/optimum")


@app.command()
def simulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A measurement, from topotune measure -o.")],
    sizes: Sizes = None,
    as_json: Json = False,
) -> None:
    """Predict each algorithm's time on measured links.

    Example: topotune simulate links.json --sizes 1K:64M:4
    """
    from topotune.documents import read_document
    from topotune.links import fit_links, measurement_from_document
    from topotune.report.text import describe_predictions
    from topotune.simulate.survey import survey

    measurement = measurement_from_document(read_document(file, "topotune/measurement"), str(file))
    predictions = survey(fit_links(measurement), units.parse_sizes("1K:64M:4" if sizes is None else sizes))
    _say(predictions if as_json else describe_predictions(predictions), as_json)


@app.command()
def tune(
    nproc_per_node: NumLocalRanks = None,
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
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Probe, measure, search, confirm, and write the plan. The main job.

    Example: topotune tune --nproc-per-node 4 -o plan.json
    """
    from topotune.plan import SCHEMA as PLAN_SCHEMA
    from topotune.plan import plan_from_document
    from topotune.report.text import describe_plan
    from topotune.tune.journal import check_replaceable
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
    }
    TuneOptions.from_payload(payload)
    _check_output(output, force, schema=PLAN_SCHEMA)
    if journal_path is not None:
        check_replaceable(journal_path)
    _check_ranks(nproc_per_node)
    if not as_json and _is_rank_0():
        from topotune.probe import probe as look
        from topotune.topology import render

        print(render(look(), width=_width()), flush=True)
    document = _on_ranks(tune_rank, payload, nproc_per_node, default_ranks=2)
    if document is None:
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
    _check_output(output, force, schema="topotune/comparison")
    default_ranks = plan.fingerprint.hard.ranks_per_node[0]
    document = _on_ranks(compare_rank, payload, nproc_per_node, default_ranks=default_ranks)
    if document is None:
        return
    _deliver(document, describe_comparison(document), output, force, as_json, schema="topotune/comparison")
    if any(row["verdict"] == "slower" for row in document["rows"]):
        raise typer.Exit(FINDINGS)


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD…", help="The job's command line.")],
    plan_file: Annotated[Path, typer.Option("--plan", metavar="FILE", help="The plan.")],
) -> NoReturn:
    """Run CMD with all that the plan can set from outside: TOPOTUNE_PLAN for the "topotune" backend.

    Example: topotune run --plan plan.json -- torchrun --nproc-per-node 4 train.py
    """
    from topotune.plan import load_plan

    load_plan(plan_file)  # a job must not start on a plan that cannot be read
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(
            f"{command[0]!r}: no such command", hint="topotune run --plan plan.json -- torchrun … train.py"
        )
    os.environ["TOPOTUNE_PLAN"] = str(plan_file.resolve())
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


# What runs on the ranks: started by `topotune.execute.launch`, or called directly in a rank of torchrun.


def measure_rank(payload: dict[str, Any]) -> Any:
    """`measure` on one rank; the measurement's document on rank 0."""
    from topotune.links.session import measure_worker

    with _progress_bar() as report:
        return measure_worker(payload, lambda done: report("links", done, (1 - done) * payload["budget_s"]))


def tune_rank(payload: dict[str, Any]) -> Any:
    """`tune` on one rank; the plan's document on rank 0, which also shows the progress."""
    from topotune.tune.session import tune_worker

    with _progress_bar() as report:
        return tune_worker(payload, lambda now: report(now.phase, now.done, now.seconds_left))


def compare_rank(payload: dict[str, Any]) -> Any:
    """`compare` on one rank; the comparison's document on rank 0."""
    from topotune.tune.session import compare_worker

    return compare_worker(payload)


def _check_ranks(num_local_ranks: int | None) -> None:
    """Refuse a number of ranks that cannot be started, or that a launcher has already decided."""
    from topotune.execute.launch import check_num_ranks, joined

    if num_local_ranks is None:
        return
    if joined():
        raise UsageError(
            f"--nproc-per-node {num_local_ranks} under a launcher with {os.environ['WORLD_SIZE']} ranks",
            hint="leave --nproc-per-node out, or run topotune without the launcher",
        )
    check_num_ranks(num_local_ranks)


def _is_rank_0() -> bool:
    """Whether this process is the one that speaks to people: rank 0 of a launcher, or alone."""
    from topotune.execute.launch import joined

    return not joined() or os.environ["RANK"] == "0"


def _on_ranks(
    work: Callable[[dict[str, Any]], Any],
    payload: dict[str, Any],
    num_local_ranks: int | None,
    default_ranks: int,
) -> Any:
    """Run one of the functions above on all ranks; rank 0's result, None on other ranks of torchrun."""
    from topotune.execute.launch import joined, run_local

    _check_ranks(num_local_ranks)
    if joined():
        return work(payload)
    num_ranks = default_ranks if num_local_ranks is None else num_local_ranks
    return run_local(num_ranks, f"{__name__}:{work.__name__}", payload)


@contextlib.contextmanager
def _progress_bar() -> Iterator[Callable[[str, float, float], None]]:
    """A bar with the time left on rank 0's stderr; nothing where that is no terminal.

    What it yields takes the phase, the share done and the seconds left.
    """
    if not sys.stderr.isatty() or not _is_rank_0():
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


def _network_of(file: Path) -> "tuple[CapacityGraph | None, float, tuple[str, ...]]":
    """The links that a document describes (None: nothing limits them), their latency, and its warnings."""
    from topotune.bounds import graph_from_links, graph_from_topology
    from topotune.bounds.optimum import latency_s
    from topotune.documents import read_document

    document = read_document(file)
    kind = document["schema"]
    if kind == "topotune/topology":
        from topotune.topology import topology_from_document

        topology = topology_from_document(document, str(file))
        return graph_from_topology(topology), 0.0, topology.warnings
    if kind == "topotune/measurement":
        from topotune.links import fit_links, measurement_from_document

        measurement = measurement_from_document(document, str(file))
        model = fit_links(measurement)
        return graph_from_links(model), latency_s(model), measurement.warnings
    if kind == "topotune/lab":
        from topotune.lab import read_profile
        from topotune.lab.limit import line_rate_graph

        return line_rate_graph(read_profile(file.resolve())), 0.0, ()
    raise UsageError(
        f"{file}: is a {kind}, which describes no links",
        hint="optimum reads topologies, measurements and lab profiles",
    )


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


def _fail(message: str, hint: str | None, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    _leave(code)


def _leave(code: int) -> NoReturn:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.exit(code)

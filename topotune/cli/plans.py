"""Verbs about plans: tune, compare, run."""

import contextlib
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from topotune import units
from topotune.cli.app import FINDINGS, Interrupted, app
from topotune.cli.narration import is_narrated
from topotune.cli.options import (
    Backend,
    BackwardTime,
    Collectives,
    Compute,
    Force,
    GradientsFile,
    Groups,
    Interface,
    Json,
    Launches,
    NumLocalRanks,
    Output,
    Parameters,
    Seed,
    Sizes,
    collectives_payload,
    step_payload,
)
from topotune.cli.output import check_output, deliver, width
from topotune.cli.progress import progress
from topotune.cli.ranks import (
    check_backend,
    find_launcher,
    force_interface,
    on_launches,
    on_ranks,
    say_loss,
    say_network,
    say_note,
)
from topotune.errors import RunError, TopotuneError, UsageError
from topotune.launch.default_ranks import default_ranks

if TYPE_CHECKING:
    from topotune.plan.exports.job_environment import Translation
    from topotune.probe.membership import Membership


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
    gradients: GradientsFile = None,
    params: Parameters = None,
    backward: BackwardTime = None,
    compute: Compute = None,
    groups: Groups = None,
    collectives: Collectives = None,
    seed: Seed = 0,
    launches: Launches = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was cut short, by its journal.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Tune even where TOPOTUNE_HOME holds a plan for this cluster.")
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
    from topotune.tune.journal import check_replaceable, journal_path_of, kept_path, num_unfinished
    from topotune.tune.options import TuneOptions

    journal_path = None if output is None else journal_path_of(output)
    if launches > 1 and resume:
        raise UsageError(
            "--launches and --resume: only a run in one launch can be resumed", hint="leave one of them out"
        )
    if not 0 <= min_gain <= 1000:
        raise UsageError(f"--min-gain {min_gain:g}: a gain lies between 0 and 1000 %")
    payload = {
        "budget_s": units.parse_seconds(budget),
        "sizes": list(units.parse_sizes(sizes)) if sizes is not None else None,
        "min_gain": min_gain / 100,
        "backend": check_backend(backend),
        "seed": seed,
        "journal_path": None if journal_path is None else str(journal_path),
        "resume": resume,
        "fresh": fresh,
        "step": step_payload(gradients, params, backward, compute, asked=False),
        "groups": groups,
        "collectives": collectives_payload(collectives),
    }
    TuneOptions.from_payload(payload)
    force_interface(interface)
    launcher = find_launcher(nproc_per_node)
    if launcher.speaks:
        check_output(output, force, schema=PLAN_SCHEMA)
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

        print(render(look(), width=width()), flush=True)
    with _resumable(output):
        resumes = None if output is None else _how_to_resume(output)
        told = payload | {"shows_lines": not as_json, "resumes": resumes}
        if launches == 1:
            document = on_ranks(
                tune_rank, told, launcher, nproc_per_node, default_ranks=default_ranks(backend)
            )
        else:
            document = _tuned_in_launches(told, launcher, launches, nproc_per_node, default_ranks(backend))
    if not launcher.speaks:
        return
    plan = plan_from_document(document, "the new plan")
    text = describe_plan(plan)
    if output:
        text += "\n" + _how_to_use(output, plan.fingerprint.hard.ranks_per_node)
    deliver(document, text, output, force, as_json, schema=PLAN_SCHEMA)


def _tuned_in_launches(
    payload: dict[str, Any],
    launcher: "Membership",
    num_launches: int,
    num_local_ranks: int | None,
    default_ranks: int,
) -> dict[str, Any]:
    """The plan of several launches; {} in processes that do not speak."""
    from topotune.tune.launch_session import tune_payload, tuned_document

    options = {name: value for name, value in payload.items() if name not in ("shows_lines", "resumes")}

    def given(number: int, so_far: list[Any]) -> dict[str, Any] | None:
        own = tune_payload(options, num_launches, number, so_far)
        return None if own is None else own | {"shows_lines": payload["shows_lines"]}

    results = on_launches(
        tune_launch_rank,
        given,
        launcher,
        num_launches,
        num_local_ranks,
        default_ranks=default_ranks,
    )
    if not launcher.speaks:
        return {}
    document, notes = tuned_document(options, results)
    for note in notes:
        say_note(note)
    return document


@contextlib.contextmanager
def _resumable(output: Path | None) -> Iterator[None]:
    """Where a run that has left a journal fails or is interrupted, say that it can be resumed."""
    from topotune.tune.journal import journal_path_of

    try:
        yield
    except RunError as error:
        if output is not None and error.hint is None and journal_path_of(output).exists():
            error.hint = _how_to_resume(output)
        raise
    except KeyboardInterrupt:
        if output is not None and journal_path_of(output).exists():
            raise Interrupted(_how_to_resume(output)) from None
        raise


def _how_to_resume(plan: Path) -> str:
    """The command that goes on: with the options of this one, as a run is resumed with the same."""
    words = sys.argv[1:]
    if "tune" not in words:  # the function was called, not the command
        words = ["tune", "-o", str(plan)]
    own = [word for word in words[words.index("tune") + 1 :] if word not in ("--resume", "--force")]
    return f"topotune tune --resume {shlex.join(own)} goes on from what was measured so far"


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


@app.command()
def compare(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, from topotune tune -o.")],
    sizes: Sizes = None,
    step: Annotated[
        bool,
        typer.Option(
            "--step",
            help="A training step, too: of --gradients or --params, else with ResNet-50's gradients.",
        ),
    ] = False,
    gradients: GradientsFile = None,
    params: Parameters = None,
    backward: BackwardTime = None,
    compute: Compute = None,
    groups: Groups = None,
    collectives: Collectives = None,
    nproc_per_node: NumLocalRanks = None,
    interface: Interface = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time to spend.")] = "30s",
    seed: Seed = 0,
    launches: Launches = 1,
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
        "step": step_payload(gradients, params, backward, compute, asked=step),
        "groups": groups,
        "collectives": collectives_payload(collectives),
        "backend": plan.fingerprint.hard.backend,
    }
    CompareOptions.from_payload(payload)
    check_backend(plan.fingerprint.hard.backend, asked_by=f"{plan_file} is for nccl")
    force_interface(interface)
    launcher = find_launcher(nproc_per_node)
    if launcher.speaks:
        check_output(output, force, schema="topotune/comparison")
    num_local_ranks = nproc_per_node or plan.fingerprint.hard.ranks_per_node[0]
    payload["shows_lines"] = not as_json
    if launches == 1:
        document = on_ranks(compare_rank, payload, launcher, num_local_ranks, share_result=True)
    else:
        document = _compared_in_launches(payload, launcher, launches, num_local_ranks)
    if document is None:
        return
    if launcher.speaks:
        text = describe_comparison(document)
        deliver(document, text, output, force, as_json, schema="topotune/comparison")
    rows = [*document["rows"], *(row for table in document.get("tables", ()) for row in table["rows"])]
    if any(row["verdict"] == "slower" for row in [*rows, *filter(None, [document.get("step")])]):
        raise typer.Exit(FINDINGS)


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD…", help="The job's command line.")],
    plan_file: Annotated[Path, typer.Option("--plan", metavar="FILE", help="The plan.")],
) -> NoReturn:
    """Run CMD with all that a plan can set from outside. TOPOTUNE_PLAN, network, other programs.

    Example: topotune run --plan plan.json -- torchrun --nproc-per-node 4 train.py
    """
    from topotune.plan import load_plan
    from topotune.plan.exports.job_environment import PLAN_VARIABLE, translate

    plan = load_plan(plan_file)  # a job must not start on a plan that cannot be read
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(
            f"{command[0]!r}: no such command", hint="topotune run --plan plan.json -- torchrun … train.py"
        )
    found = dict(os.environ)
    os.environ[PLAN_VARIABLE] = str(plan_file.resolve())
    if plan.context.interface is not None and not os.environ.get("GLOO_SOCKET_IFNAME"):
        missing = set(plan.context.interface.split(",")) - {name for _, name in socket.if_nameindex()}
        if missing:
            print(f"warning: no network interface {min(missing)!r} here, as in the plan", file=sys.stderr)
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = plan.context.interface
    translation = translate(plan)
    os.environ.update(
        {variable.name: variable.value for variable in translation.variables if variable.is_free(found)}
    )
    if is_narrated():
        _say_environment(found, translation)
    sys.stdout.flush()
    try:
        os.execv(program, command)
    except OSError as problem:
        raise UsageError(
            f"{command[0]!r}: cannot be run: {problem.strerror}",
            hint="a script needs a first line such as #!/bin/sh",
        ) from problem


def _say_environment(found: Mapping[str, str], translation: "Translation") -> None:
    """Say in one line what is set for the job, and in another each what is not, and why."""
    changed = {name: value for name, value in os.environ.items() if found.get(name) != value}
    print(
        "set for the job: " + " ".join(f"{name}={shlex.quote(value)}" for name, value in changed.items()),
        file=sys.stderr,
    )
    kept = [variable.name for variable in translation.variables if not variable.is_free(found)]
    if kept:
        print(f"left as the user has it: {' '.join(kept)}", file=sys.stderr)
    for refusal in translation.refusals:
        print(f"note: {refusal}", file=sys.stderr)


def _compared_in_launches(
    payload: dict[str, Any], launcher: "Membership", num_launches: int, num_local_ranks: int | None
) -> dict[str, Any] | None:
    """The comparison of several launches; None in processes that do not speak."""
    from topotune.tune.launch_session import compare_payload, compared_document

    results = on_launches(
        compare_launch_rank,
        lambda number, _so_far: compare_payload(payload, num_launches, number),
        launcher,
        num_launches,
        num_local_ranks,
    )
    return compared_document(payload, results) if launcher.speaks else None


def tune_launch_rank(payload: dict[str, Any]) -> Any:
    """One launch of `tune` on one rank."""
    from topotune.tune.launch_session import tune_launch

    with progress(payload, "tune") as show:
        return tune_launch(payload, show, say_network, say_loss, say_note)


def compare_launch_rank(payload: dict[str, Any]) -> Any:
    """One launch of `compare` on one rank."""
    from topotune.tune.launch_session import compare_launch

    with progress(payload, "compare") as show:
        return compare_launch(payload, show, say_network, say_loss)


def tune_rank(payload: dict[str, Any]) -> Any:
    """`tune` on one rank; the plan's document on rank 0, which also shows the progress."""
    from topotune.tune.session import tune_worker

    resumes = payload.pop("resumes")

    def say(error: TopotuneError) -> None:
        error.hint = resumes
        say_loss(error)

    with progress(payload, "tune") as show:
        return tune_worker(payload, show, say_network, say, say_note)


def compare_rank(payload: dict[str, Any]) -> Any:
    """`compare` on one rank; the comparison's document on rank 0, which also shows the progress."""
    from topotune.tune.session import compare_worker

    with progress(payload, "compare") as show:
        return compare_worker(payload, say_network, say_loss, show)

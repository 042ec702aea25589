"""The verb lab: emulated clusters."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topotune.cli import completion
from topotune.cli.app import app
from topotune.cli.options import Json
from topotune.cli.output import say
from topotune.errors import UsageError

if TYPE_CHECKING:
    from topotune.lab.profile import LabNode


@app.command()
def lab(
    profile: Annotated[
        str | None,
        typer.Argument(
            metavar="PROFILE",
            help="A profile's name or file; none lists those that ship.",
            autocompletion=completion.LABS,
        ),
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
    """Run CMD on every rank of an emulated cluster. Of network namespaces (Linux, root).

    Example: topotune lab 2x4 -- topotune tune -o plan.json
    """
    from topotune import lab as labs

    flags = {"--once": once, "--keep": keep, "--no-latency": no_latency}
    flag = next((name for name, is_given in flags.items() if is_given), None)
    if down and (flag or profile is not None):
        raise UsageError(
            f"lab --down removes every lab whose owner is gone, and takes no {flag or 'profile'}",
            hint="topotune lab --down",
        )
    if flag and profile is None:
        raise UsageError(
            f"lab {flag}: no profile and no command were given",
            hint=f"topotune lab {flag} 2x4 -- hostname; `topotune lab` lists the profiles",
        )
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
        lines = [f"{one.name:16} {_in_words(one.nodes)}" for one in profiles]
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


def _in_words(nodes: "Sequence[LabNode]") -> str:
    """As many nodes with as many ranks as the first has: shipped profiles have the same on each."""
    num_nodes, num_ranks = len(nodes), nodes[0].ranks
    return f"{num_nodes} node{'s' * (num_nodes != 1)} of {num_ranks} rank{'s' * (num_ranks != 1)}"


def _say_lab(document: dict[str, Any], lines: list[str], as_json: bool) -> None:
    head = {"schema": "topotune/labs", "schema_version": 1, "warnings": []}
    say(head | document if as_json else "\n".join(lines) or "nothing was left over", as_json)

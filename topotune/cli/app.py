"""The command line's root, on which each verb's module registers its verbs."""

from pathlib import Path
from typing import Annotated

import typer

from topotune import __version__

FINDINGS = 3


INTERRUPTED = 130


class Interrupted(Exception):
    """Ctrl-C ended work that can be gone on with; says how."""

    def __init__(self, hint: str) -> None:
        super().__init__(hint)
        self.hint = hint


app = typer.Typer(
    name="topotune",
    help="Find out what your cluster is, and write the allreduce plan that trains fastest on it.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Say on stderr what is done.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    del verbose, debug  # taken out before parsing, as they may stand behind the verb, too
    if version:
        print(f"topotune {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(_first_steps(), context.get_help().partition("\n\n")[2], sep="\n\n")


def _first_steps() -> str:
    """What to do first, where there is no plan yet, and where there is one."""
    if Path("plan.json").is_file():
        return (
            "plan.json is here. What next?\n"
            "  topotune show plan.json         what it says\n"
            "  topotune compare plan.json      whether it is still faster than the default\n"
            "  topotune run --plan plan.json -- torchrun --nproc-per-node 4 train.py\n"
            '                                  a job under it: init_process_group("topotune")'
        )
    return (
        "Where to begin:\n"
        "  topotune probe                  what this machine is\n"
        "  topotune check --no-measure     what is wrong with it\n"
        "  topotune tune --nproc-per-node 4 -o plan.json\n"
        "                                  a plan for 4 ranks here, in a minute;\n"
        "                                  on a cluster: srun topotune tune -o plan.json\n"
        "  topotune run --plan plan.json -- torchrun --nproc-per-node 4 train.py\n"
        '                                  a job under it: init_process_group("topotune")'
    )

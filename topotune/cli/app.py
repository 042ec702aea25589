"""The command line's root, on which each verb's module registers its verbs."""

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
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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

"""The verb record: what a job exchanges in a step."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from topotune.cli.app import app
from topotune.cli.options import Force
from topotune.cli.output import check_output
from topotune.errors import UsageError

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@app.command()
def record(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD…", help="The job's command line.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Write the gradients to FILE.")
    ] = Path("gradients.json"),
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=1, help="Steps to record, after three of warming up.")
    ] = 10,
    force: Force = False,
) -> None:
    """Run CMD and record its model's gradients. Sizes, order, times; no weights. For tune --gradients.

    Example: topotune record -o gradients.json -- python train.py
    """
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]!r}: no such command", hint="topotune record -- python train.py")
    check_output(output, force, schema="topotune/gradients")
    before = _identity(output)
    environment = os.environ | {
        "TOPOTUNE_RECORD": str(output.absolute()),
        "TOPOTUNE_RECORD_STEPS": str(steps),
        "TOPOTUNE_RECORD_FORCE": "1" if force else "0",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",  # it is at "import torch" that recording begins
    }
    code = _run(program, command, environment)
    if _identity(output) == before:
        print(
            "warning: no gradients were recorded: no model was trained in a process that has this topotune "
            "installed, or the job ended before its first backward did",
            file=sys.stderr,
        )
    raise typer.Exit(code)


def _identity(path: Path) -> tuple[int, int] | None:
    """Tells a file from one that was written in its place."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _run(program: str, command: list[str], environment: dict[str, str]) -> int:
    """Run a command; signals meant for us reach it. Its exit code, or 128 + the signal that ended it."""
    sys.stdout.flush()
    try:
        job = subprocess.Popen(command, executable=program, env=environment)
    except OSError as problem:
        raise UsageError(
            f"{command[0]!r}: cannot be run: {problem.strerror}",
            hint="a script needs a first line such as #!/bin/sh",
        ) from problem

    def pass_on(number: int, _frame: Any) -> None:
        job.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    # The terminal sends it to the job, too, which may want to end in its own way.
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = job.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code

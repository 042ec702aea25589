"""The command line: parse, call, print, exit. Only this room prints.

Exit codes: 0 done · 1 failed · 2 wrong use or bad input · 3 findings · 130 interrupted. With ``--json``
stdout holds exactly one JSON document; all else then goes to stderr.
"""

import contextlib
import importlib
import os
import sys
from typing import NoReturn

from typer.exceptions import TyperException

from topotune.cli.app import INTERRUPTED, app
from topotune.cli.output import print_error
from topotune.errors import RankFailedError, TopotuneError, UsageError

# Each registers its verbs, in the order of --help.
for _verbs in ("files", "exports", "links", "optimum", "simulate", "plans", "steps", "report", "labs"):
    importlib.import_module(f"topotune.cli.{_verbs}")


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
        print_error(error)
        if isinstance(error, RankFailedError):
            # Not by the interpreter's way: destructors of process groups may wait for the rank that is gone.
            _leave_at_once(error.exit_code)
        _leave(error.exit_code)
    except TyperException as error:
        print_error(UsageError(error.format_message(), hint="topotune --help, or topotune VERB --help"))
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


def _leave_at_once(code: int) -> NoReturn:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _leave(code: int) -> NoReturn:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.exit(code)

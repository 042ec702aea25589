"""The command line: parse, call, print, exit. Only this room prints.

Exit codes: 0 done · 1 failed · 2 wrong use or bad input · 3 findings · 130 interrupted. With ``--json``
stdout holds exactly one JSON document; all else then goes to stderr.
"""

import contextlib
import importlib
import os
import shutil
import sys
from typing import Final, NoReturn

from typer.exceptions import TyperException

from topotune.cli.app import INTERRUPTED, Interrupted, app
from topotune.cli.narration import narrate
from topotune.cli.output import print_error
from topotune.cli.wrong_use import usual_hint, wrong_use
from topotune.errors import RankFailedError, TopotuneError, UsageError
from topotune.report.columns import shown_on

# Each registers its verbs, in the order of --help.
for _verbs in ("files", "exports", "links", "optimum", "simulate", "plans", "steps", "report", "labs"):
    importlib.import_module(f"topotune.cli.{_verbs}")


EVERYWHERE: Final = ("--debug", "-v", "--verbose")
"""Options that may stand before and behind a verb; they are taken out before it is parsed."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    arguments = sys.argv[1:]
    own = arguments.index("--") if "--" in arguments else len(arguments)  # behind it stands the job's command
    debug = "--debug" in arguments[:own]
    if not {"-v", "--verbose"}.isdisjoint(arguments[:own]):
        narrate()
    arguments = [one for one in arguments[:own] if one not in EVERYWHERE] + arguments[own:]
    hint = ""
    try:
        with shown_on(shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
            # The name also where it is started as python -m topotune: completion is installed under it.
            code = app(arguments, standalone_mode=False, prog_name="topotune")
    except TopotuneError as error:
        if debug:
            raise
        if error.hint is None:
            error.hint = usual_hint(error, arguments)
        print_error(error)
        if isinstance(error, RankFailedError):
            # Not by the interpreter's way: destructors of process groups may wait for the rank that is gone.
            _leave_at_once(error.exit_code)
        _leave(error.exit_code)
    except TyperException as error:
        print_error(wrong_use(error, arguments))
        _leave(UsageError.exit_code)
    except Interrupted as interruption:
        code, hint = INTERRUPTED, interruption.hint
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has left; what is still buffered has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(1)
    except Exception as problem:
        if debug:
            raise
        cause = f"{type(problem).__name__}: {problem}".strip(": ")
        hint = "topotune … --debug prints where; please report it with that"
        print_error(TopotuneError(f"this should not have happened, {cause}", hint=hint))
        _leave(TopotuneError.exit_code)
    if code == INTERRUPTED:
        if sys.stderr.isatty():
            from topotune.cli.live import is_live

            # It may have shown the "^C" that was typed; and a rank may have been ended while it drew.
            print("\x1b[J" if is_live(sys.stderr) else "", file=sys.stderr)
        print("interrupted", file=sys.stderr)
        if hint:
            print(f"hint: {hint}", file=sys.stderr)
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

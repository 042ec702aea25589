"""torchrun, with an exit code that says how the command ended: a script, started as ``python -P agent.py``.

    agent.py OUTCOME_FILE TORCHRUN_ARGUMENT…

torchrun itself exits 1 whatever its ranks exited with, and shows a traceback of its own. This runs the same
launcher in the same way, and if a rank fails, writes which and how to OUTCOME_FILE and exits as that rank did
(128 + the signal's number if it was killed). It is the first that torch saw fail, and of several seen at once
the lowest; the node's other ranks get SIGTERM from torch, and how they end says nothing.

When the first node's launcher ends, those of other nodes lose its store, and torch logs a page of addresses
for each. The lab says in a line what failed, so this process keeps torch's log to itself, unless the user
asked for it (LOGLEVEL, TORCH_CPP_LOG_LEVEL); the ranks' own is as they set it.
"""

import json
import logging
import os
import sys
from pathlib import Path

INTERRUPTED = 130

_LOG_LEVEL = "LOGLEVEL"
_NATIVE_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"


def exit_status(exit_code: int) -> int:
    """The shell's exit status for the exit code of a Python subprocess."""
    return 128 - exit_code if exit_code < 0 else exit_code


def _main(outcome_file: Path, arguments: list[str]) -> int:
    is_quiet = _LOG_LEVEL not in os.environ and _NATIVE_LOG_LEVEL not in os.environ
    if is_quiet:
        logging.disable(logging.ERROR)
        os.environ[_NATIVE_LOG_LEVEL] = "FATAL"  # read when torch is loaded
    # Here, not above: a Ctrl-C while torch is loaded shall end without a traceback.
    from torch.distributed import run  # noqa: TID251 -- torch's launcher is what this script is
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: TID251
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: TID251

    if is_quiet:
        del os.environ[_NATIVE_LOG_LEVEL]  # the ranks inherit the environment

    try:
        run.main(arguments)
    except ChildFailedError as error:
        _, first = error.get_first_failure()
        outcome = {"local_rank": first.local_rank, "exit_code": first.exitcode}
        outcome_file.write_text(json.dumps(outcome), encoding="ascii")
        return exit_status(first.exitcode)
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(_main(Path(sys.argv[1]), sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)

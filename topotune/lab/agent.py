"""torchrun, with an exit code that says how the command ended: a script, started as ``python -P agent.py``.

    agent.py OUTCOME_FILE TORCHRUN_ARGUMENT…

torchrun itself exits 1 whatever its ranks exited with, and shows a traceback of its own. This runs the same
launcher in the same way, and if a rank fails, writes which and how to OUTCOME_FILE and exits as that rank did
(128 + the signal's number if it was killed). It is the first that torch saw fail, and of several seen at once
the lowest; the node's other ranks get SIGTERM from torch, and how they end says nothing.
"""

import json
import sys
from pathlib import Path

INTERRUPTED = 130


def exit_status(exit_code: int) -> int:
    """The shell's exit status for the exit code of a Python subprocess."""
    return 128 - exit_code if exit_code < 0 else exit_code


def _main(outcome_file: Path, arguments: list[str]) -> int:
    # Here, not above: a Ctrl-C while torch is loaded shall end without a traceback.
    from torch.distributed import run  # noqa: TID251 -- torch's launcher is what this script is
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: TID251
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: TID251

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

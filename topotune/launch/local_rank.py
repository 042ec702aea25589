"""What runs in each local rank: ``python -P local_rank.py JOB``, started by `topotune.launch.local_ranks`.

It is started as a file, so that it needs no more than the standard library until it has taken over the import
path of the process that started it. The entry then finds the environment that torchrun gives.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topotune import errors

RUN_ID = "topotune"
"""TORCHELASTIC_RUN_ID of the ranks that topotune starts itself."""

_PR_SET_PDEATHSIG = 1


def main(job_path: str) -> None:
    """Run the entry of a job, and leave its result, or the report of its failure, beside the job.

    Args:
        job_path: JSON: ``entry`` ("module:function"), ``payload``, ``launcher_pid``, ``sys_path``.
    """
    job = json.loads(Path(job_path).read_bytes())
    _die_with(job["launcher_pid"])
    # The launcher alone answers Ctrl-C: it ends the ranks, so that none of them prints a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:] = job["sys_path"]
    rank = int(os.environ["RANK"])
    folder = Path(job_path).parent
    if rank > 0:
        _print_into(folder / f"output-{rank}")
    try:
        module, _, function = job["entry"].partition(":")
        result = getattr(importlib.import_module(module), function)(job["payload"])
        if rank == 0:
            _write(folder / "result.json", result)
        # An interpreter that ends looks through all objects once more: 0.3 s where torch has been imported.
        gc.freeze()
    except Exception as problem:
        _write(folder / f"failure-{rank}.json", _report(problem))
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # closed by the entry, or nobody reads it any more
                stream.flush()
        # Not sys.exit: the destructors of process groups may wait for ranks that wait for this one.
        os._exit(1)


def _die_with(launcher_pid: int) -> None:
    """Have the kernel kill this process when the launcher dies, however that happens."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != launcher_pid:  # it died before it was asked to be watched
        os._exit(1)


def _print_into(path: Path) -> None:
    """Have all that this process and its children print go to a file, in the order in which they print it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def _report(problem: Exception) -> dict[str, Any]:
    """A failure as JSON: when (CLOCK_MONOTONIC, common to all processes), what, which error of topotune."""
    from topotune import errors  # the import path is the launcher's by now

    words = (str(problem).strip().splitlines() or [""])[0]
    return {
        "time_s": time.monotonic(),
        "cause": f"{type(problem).__name__}: {words}" if words else type(problem).__name__,
        "error": _same_error(problem) if isinstance(problem, errors.TopotuneError) else None,
        "traceback": "".join(traceback.format_exception(problem)),
    }


def _same_error(problem: "errors.TopotuneError") -> dict[str, Any]:
    """Class and arguments from which the launcher makes the error again."""
    cls = next(cls for cls in type(problem).__mro__ if cls.__module__ == "topotune.errors")
    positional, keywords = problem.arguments
    return {"class": cls.__name__, "positional": positional, "keywords": keywords}


def _write(path: Path, value: Any) -> None:
    """Write JSON so that the launcher sees all of it or nothing."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


if __name__ == "__main__":
    main(sys.argv[1])

"""A function on all ranks of a job that runs already: each rank starts a process that does its part.

A process of its own, because what joins ranks changes the process that it runs in: the plan in use, gloo's
threads, the line at exit. So a job may call this before it makes its process group, or after. The processes
meet at the job's own store; rank 0 hands the result to all through it.

Where no launcher serves that store (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, set by hand), rank 0's job
serves it from now on: if it ended with this, others could reach the old one when they make their group.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist

from topotune.errors import RunError, TopotuneError
from topotune.launch import local_rank
from topotune.launch.join import joined
from topotune.launch.local_ranks import job_folder, read_result
from topotune.launch.rank_failure import find_failures
from topotune.probe.membership import PerRank

_TIMEOUT: Final = timedelta(seconds=120)
_SERVED: list[Any] = []
"""Stores that this process serves, kept for its groups to come."""


def run_beside(member: PerRank, entry: str, payload: dict[str, Any]) -> Any:
    """Run a function in a process beside each rank; to be called on all of them.

    Args:
        member: what the launcher says of this rank.
        entry: ``"package.module:function"``; called in each process, in the environment that torchrun gives.
        payload: JSON.

    Returns:
        What the function returned on rank 0, as JSON keeps it, on every rank.

    Raises:
        TopotuneError: of the class and with the message of what this rank's process raised.
        RankFailedError: this rank's process ended in any other way.
        RunError: ranks did not find each other, or rank 0 failed.
    """
    with _job_store(member) as store:
        number = (store.add("topotune results", 1) - 1) // member.world_size
        place = f"topotune result {number}"
        try:
            result = _own_part(member.rank, entry, payload)
        except TopotuneError as error:
            if member.rank == 0:
                store.set(place, json.dumps({"failed": error.message}))
            raise
        if member.rank == 0:
            store.set(place, json.dumps({"result": result}))
            return result
        return _result_of_rank_0(store, place)


@contextmanager
def _job_store(member: PerRank) -> Iterator[Any]:
    """The store of all ranks; inside, the environment leads a new process to it. It is restored afterwards.

    Raises:
        UsageError: the launcher does not say where rank 0 is.
        RunError: the ranks did not meet.
    """
    former = dict(os.environ)
    try:
        with joined(member):
            try:
                store = next(dist.rendezvous("env://", timeout=_TIMEOUT))[0]  # type: ignore[attr-defined]
            except (RuntimeError, ValueError) as problem:
                where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
                raise RunError(
                    f"rank {member.rank} did not reach the store of all ranks at {where}: {problem}",
                    hint="MASTER_ADDR and MASTER_PORT must name the node of rank 0",
                ) from problem
            store.set_timeout(_TIMEOUT)
            if member.launcher == "environment" and not _SERVED:
                _SERVED.append(store)
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
            os.environ.setdefault("TORCHELASTIC_RESTART_COUNT", "0")
            yield store
    finally:
        for name in os.environ.keys() - former.keys():
            del os.environ[name]
        os.environ.update(former)


def _own_part(rank: int, entry: str, payload: dict[str, Any]) -> Any:
    """Run the function in a process beside this rank; what it returned on rank 0, None on others."""
    with job_folder(entry, payload) as folder:
        code = _ended(folder)
        if not code and rank:
            return None
        if not code and (folder / "result.json").exists():
            return read_result(folder)
        failures = find_failures(folder, [rank], {rank: (time.monotonic(), _cause(code))})
    raise failures[0].error()


def _ended(folder: Path) -> int:
    """Start the process of a job folder and wait; its exit code, or minus the signal that ended it."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", local_rank.__file__, str(folder / "job.json")],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C is for the job, which ends the process
        )
    except OSError as problem:
        raise RunError(f"a process beside this rank could not be started: {problem}") from problem
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}" if code else "it ended without a result"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-code}"


def _result_of_rank_0(store: Any, place: str) -> Any:
    try:
        said = json.loads(store.get(place))
    except dist.DistError as problem:
        raise RunError("rank 0 gave no result: its process is gone") from problem
    if "failed" in said:
        raise RunError(f"rank 0 failed: {said['failed']}")
    return said["result"]

"""Ranks of this machine: starting them through torch's launcher, watching them, and ending them.

Theory of operation. The ranks are started with ``start_processes``, the layer of torchrun's agent that makes
processes, in the environment that torchrun gives; the store that they meet at is served by this process on a
loopback port which the kernel chose, or by node 0's (`topotune.launch.nodes`). So a rank's code is the same
as under torchrun. What the agent does beyond that is done here, because a person sits in front of it:

* Rank 0 writes to the terminal; what other ranks print is kept, and shown if they fail.
* The rank that failed *first* is named. One failing rank makes the others fail within milliseconds, often
  sooner than it has itself come to its end. Hence each rank reports an exception with its time before
  anything is torn down; a rank that ends without a report (a signal, ``os._exit``) is dated by its end.
* Signals are only noted. No exception can arise between two statements that start or end processes.
* The ranks are in sessions of their own (a terminal's Ctrl-C does not reach them) and are killed by the
  kernel if this process dies (see `topotune.launch.local_rank`).
"""

import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext, start_processes

from topotune.errors import RunError
from topotune.launch import local_rank, meeting
from topotune.launch.noted_signals import SIGNALS, NotedSignals, noted_signals
from topotune.launch.rank_failure import RankFailure, find_failures
from topotune.probe.launcher import check_num_local_ranks

_POLL_S: Final = 0.05
_GRACE_S: Final = 3
"""How long ranks have to end after SIGTERM, before SIGKILL."""
_TORCHELASTIC_SIGNALS: Final = "TORCHELASTIC_SIGNALS_TO_HANDLE"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where this machine's ranks stand in the world.

    Attributes:
        num_ranks: on this machine.
        node_index: of this machine.
        num_nodes: in all.
        first_rank: the number of local rank 0 in the world.
        world_size: ranks of all machines.
        master_address: where the ranks' store is.
        master_port: of it.
    """

    num_ranks: int
    node_index: int = 0
    num_nodes: int = 1
    first_rank: int = 0
    world_size: int
    master_address: str = "127.0.0.1"
    master_port: int

    @property
    def ranks(self) -> range:
        """Numbers of this machine's ranks in the world."""
        return range(self.first_rank, self.first_rank + self.num_ranks)


def run_local(num_ranks: int, entry: str, payload: dict[str, Any]) -> Any:
    """Run a function on local ranks, and return what it returned on rank 0.

    Args:
        num_ranks: 1 to 1024.
        entry: ``"package.module:function"``; called on each rank with the payload, in torchrun's environment.
        payload: JSON.

    Returns:
        The result of rank 0, as JSON keeps it.

    Raises:
        UsageError: no such number of ranks.
        TopotuneError: of the class and with the message of what the first failing rank raised.
        RankFailedError: a rank ended in any other way; it names the first.
        KeyboardInterrupt: SIGINT came; all ranks have ended.
        SystemExit: SIGTERM, SIGHUP or SIGQUIT came; all ranks have ended. The code is 128 + its number.
    """
    check_num_local_ranks(num_ranks)
    with noted_signals() as noted, job_folder(entry, payload) as folder:
        # Given its socket, the store listens on loopback alone; by itself it would listen on every interface.
        store = meeting.serve(0, "topotune", interface="127.0.0.1")
        place = Place(num_ranks=num_ranks, world_size=num_ranks, master_port=store.port)
        with started_ranks(place, folder) as context:
            failures = watch(context, place, folder, noted)
        del store
        if not noted.signals and not failures:
            return read_result(folder)
    noted.act()
    raise failures[0].error()


@contextmanager
def job_folder(entry: str, payload: dict[str, Any]) -> Iterator[Path]:
    """A folder with the job of this machine's ranks, which goes when the block ends.

    Args:
        entry: ``"package.module:function"``.
        payload: JSON.

    Raises:
        RunError: there is no place for it.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="topotune-"))
    except OSError as problem:
        raise RunError(f"no folder for temporary files: {problem}", hint="set TMPDIR to one") from problem
    try:
        job = {"entry": entry, "payload": payload, "launcher_pid": os.getpid(), "sys_path": sys.path}
        (folder / "job.json").write_text(json.dumps(job))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_result(folder: Path) -> Any:
    """What rank 0 returned; it runs on this machine and has ended well."""
    return json.loads((folder / "result.json").read_bytes())


@contextmanager
def started_ranks(place: Place, folder: Path) -> Iterator[PContext]:
    """Start this machine's ranks; those that still run when the block ends are ended.

    Raises:
        RunError: they could not be started.
    """
    with _torch_launcher_quiet():
        try:
            context = start_processes(
                name="topotune",
                entrypoint=sys.executable,
                args={
                    index: ("-P", local_rank.__file__, str(folder / "job.json"))
                    for index in range(place.num_ranks)
                },
                envs={index: _environment(place, index) for index in range(place.num_ranks)},
                # Ranks turn their output away themselves: torch's launcher leaves files of ended ranks open.
                logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
            )
        except OSError as problem:
            raise RunError(f"{place.num_ranks} ranks could not be started: {problem}") from problem
        try:
            yield context
        finally:
            context.close(signal.SIGTERM, timeout=_GRACE_S)


def watch(
    context: PContext,
    place: Place,
    folder: Path,
    noted: NotedSignals,
    over: Callable[[], bool] = lambda: False,
) -> list[RankFailure]:
    """Wait until this machine's ranks have all ended well, one has failed, a signal came, or it is over.

    Args:
        context: the ranks.
        place: where they stand in the world.
        folder: of their job.
        noted: signals that came.
        over: True as soon as the run has ended for a reason that lies elsewhere.

    Returns:
        What failed until the others would have to be ended, the first first; nothing if all ended well.
    """
    running = {place.first_rank + index: pid for index, pid in context.pids().items()}
    ended: dict[int, tuple[float, str]] = {}
    while running and not noted.signals and not over():
        causes = {rank: cause for rank, pid in running.items() if (cause := _end(pid)) is not None}
        for rank, cause in causes.items():
            del running[rank]
            if cause:
                ended[rank] = (time.monotonic(), cause)
        failing_since_s = min((at_s for at_s, _ in ended.values()), default=None)
        if failing_since_s is not None and (not running or time.monotonic() - failing_since_s > _POLL_S):
            break  # one more look after the first: the rank that caused it may be seen dead only now
        if running:
            time.sleep(_POLL_S)
    if not running and not ended and 0 in place.ranks and not (folder / "result.json").exists():
        ended[0] = (time.monotonic(), "it ended without a result")
    return find_failures(folder, place.ranks, ended)


@contextmanager
def _torch_launcher_quiet() -> Iterator[None]:
    """Keep torch's launcher from handling signals and from writing its log over the user's terminal.

    It takes the signals' names from the environment; an empty one makes it handle none, and log that.
    """
    logger = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
    level, former = logger.level, os.environ.get(_TORCHELASTIC_SIGNALS)
    logger.setLevel(logging.CRITICAL)
    os.environ[_TORCHELASTIC_SIGNALS] = ""
    try:
        yield
    finally:
        logger.setLevel(level)
        if former is None:
            del os.environ[_TORCHELASTIC_SIGNALS]
        else:
            os.environ[_TORCHELASTIC_SIGNALS] = former


def _environment(place: Place, index: int) -> dict[str, str]:
    """What torchrun sets for a rank."""
    rank = place.first_rank + index
    environment = {
        "RANK": str(rank),
        "LOCAL_RANK": str(index),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": str(place.node_index),
        "ROLE_NAME": "topotune",
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_WORLD_SIZE": str(place.num_ranks),
        "ROLE_WORLD_SIZE": str(place.world_size),
        "GROUP_WORLD_SIZE": str(place.num_nodes),
        "MASTER_ADDR": place.master_address,
        "MASTER_PORT": str(place.master_port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": local_rank.RUN_ID,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        _TORCHELASTIC_SIGNALS: ",".join(number.name for number in SIGNALS),
    }
    if place.num_ranks > 1 and "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = "1"  # as torchrun does, so that both measure the same
    if rank > 0:
        environment["PYTHONUNBUFFERED"] = "1"  # what it printed last must not die with it
    return environment


def _end(pid: int) -> str | None:
    """None while a process runs, "" if it ended well, else how it ended. Its owner is left to reap it."""
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is None:
        return None
    if status.si_code == os.CLD_EXITED:
        return f"exit code {status.si_status}" if status.si_status else ""
    try:
        return f"killed by {signal.Signals(status.si_status).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {status.si_status}"

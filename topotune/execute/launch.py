"""Local ranks: starting them through torch's launcher, watching them, and ending them.

Theory of operation. The ranks are started with ``start_processes``, the layer of torchrun's agent that makes
processes, in the environment that torchrun gives; the store that they meet at is served by this process on a
loopback port which the kernel chose. So a rank's code is the same as under torchrun. What the agent does
beyond that is done here, because a person sits in front of it:

* Rank 0 writes to the terminal; what other ranks print is kept, and shown if they fail.
* The rank that failed *first* is named. One failing rank makes the others fail within milliseconds, often
  sooner than it has itself come to its end. Hence each rank reports an exception with its time before
  anything is torn down; a rank that ends without a report (a signal, ``os._exit``) is dated by its end.
* Signals are only noted. No exception can arise between two statements that start or end processes.
* The ranks are in sessions of their own (a terminal's Ctrl-C does not reach them) and are killed by the
  kernel if this process dies (see `topotune.execute.local_rank`).
"""

import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext, start_processes

from topotune import errors
from topotune.errors import RankFailedError, RunError, TopotuneError, UsageError
from topotune.execute import local_rank

MAX_LOCAL_RANKS: Final = 1024
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_POLL_S: Final = 0.05
_GRACE_S: Final = 3
"""How long ranks have to end after SIGTERM, before SIGKILL."""
_REPORT_FIRST_S: Final = 0.5
"""By how much an exception's report must precede the end of a rank without one, to count as the cause: ends
are seen up to one poll late, and a killed rank's peers may fail before it is seen dead."""
_TAIL_BYTES: Final = 2**16
_TORCHELASTIC_SIGNALS: Final = "TORCHELASTIC_SIGNALS_TO_HANDLE"


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
    check_num_ranks(num_ranks)
    with _noted_signals() as noted, _temporary_folder() as folder:
        job = {"entry": entry, "payload": payload, "launcher_pid": os.getpid(), "sys_path": sys.path}
        (folder / "job.json").write_text(json.dumps(job))
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        # Given its socket, the store listens on loopback alone; by itself it would listen on every interface.
        store = dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        failures = _run(num_ranks, port, folder, noted)
        del store
        if not noted.signals and not failures:
            return json.loads((folder / "result.json").read_bytes())
    if noted.signals:
        if noted.signals[0] == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + noted.signals[0])
    raise _first_error(failures)


def check_num_ranks(num_ranks: int) -> None:
    """Whether `run_local` starts so many ranks.

    Raises:
        UsageError: it does not.
    """
    if not 1 <= num_ranks <= MAX_LOCAL_RANKS:
        raise UsageError(
            f"--nproc-per-node {num_ranks}: a node has 1 to {MAX_LOCAL_RANKS} ranks",
            hint="--nproc-per-node 4 starts four ranks on this machine",
        )


def joined() -> bool:
    """Whether this process is a rank of torchrun, or of a launcher that speaks as it does.

    RANK alone says nothing: batch systems and containers set it for their own ends.
    """
    return all(name in os.environ for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"))


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """How one rank failed.

    Attributes:
        happened_s: CLOCK_MONOTONIC, comparable between ranks.
        cause: in words.
        report: what the rank itself left, or None where it had no time to.
        last_output: the end of what it printed.
    """

    rank: int
    happened_s: float
    cause: str
    report: dict[str, Any] | None
    last_output: str


class _NotedSignals:
    """Signals that came while the ranks ran, in their order."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def note(self, number: int, frame: object) -> None:
        self.signals.append(number)


@contextmanager
def _noted_signals() -> Iterator[_NotedSignals]:
    """Note signals instead of being interrupted by them; those that are ignored (nohup) stay so.

    Only the main thread can do this; elsewhere signals do what they did before.
    """
    noted = _NotedSignals()
    former = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):
                former[number] = signal.signal(number, noted.note)
    try:
        yield noted
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        folder = Path(tempfile.mkdtemp(prefix="topotune-"))
    except OSError as problem:
        raise RunError(f"no folder for temporary files: {problem}", hint="set TMPDIR to one") from problem
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def _run(num_ranks: int, port: int, folder: Path, noted: _NotedSignals) -> list[_Failure]:
    """Start the ranks, wait until all have ended well, one has failed or a signal came, and end the rest."""
    with _torch_launcher_quiet():
        try:
            context = start_processes(
                name="topotune",
                entrypoint=sys.executable,
                args={
                    rank: ("-P", local_rank.__file__, str(folder / "job.json")) for rank in range(num_ranks)
                },
                envs={rank: _environment(rank, num_ranks, port) for rank in range(num_ranks)},
                # Ranks turn their output away themselves: torch's launcher leaves files of ended ranks open.
                logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
            )
        except OSError as problem:
            raise RunError(f"{num_ranks} ranks could not be started: {problem}") from problem
        try:
            return _watch(context, folder, noted)
        finally:
            context.close(signal.SIGTERM, timeout=_GRACE_S)


def _environment(rank: int, num_ranks: int, port: int) -> dict[str, str]:
    """What torchrun sets for a rank of one node."""
    environment = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": "0",
        "ROLE_NAME": "topotune",
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "ROLE_WORLD_SIZE": str(num_ranks),
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": "topotune",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        _TORCHELASTIC_SIGNALS: ",".join(number.name for number in _SIGNALS),
    }
    if num_ranks > 1 and "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = "1"  # as torchrun does, so that both measure the same
    if rank > 0:
        environment["PYTHONUNBUFFERED"] = "1"  # what it printed last must not die with it
    return environment


def _watch(context: PContext, folder: Path, noted: _NotedSignals) -> list[_Failure]:
    """Wait for the ranks; what failed until the others would have to be ended (nothing: all ended well)."""
    running = context.pids()
    ended: dict[int, tuple[float, str]] = {}
    while running and not noted.signals:
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
    if not ended and not noted.signals and not (folder / "result.json").exists():
        ended[0] = (time.monotonic(), "it ended without a result")
    return _failures(context, folder, ended)


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


def _failures(context: PContext, folder: Path, ended: dict[int, tuple[float, str]]) -> list[_Failure]:
    """Failures of the ranks that ended or left a report, in the order in which they happened."""
    failures = []
    for rank in context.pids():
        try:
            report = json.loads((folder / f"failure-{rank}.json").read_bytes())
        except FileNotFoundError:
            report = None
        if report is not None:
            happened_s, cause = report["time_s"] + _REPORT_FIRST_S, report["cause"]
        elif rank in ended:
            happened_s, cause = ended[rank]
        else:
            continue
        last_output = _last_output(folder / f"output-{rank}")
        failures.append(
            _Failure(rank=rank, happened_s=happened_s, cause=cause, report=report, last_output=last_output)
        )
    return sorted(failures, key=lambda failure: failure.happened_s)


def _last_output(path: Path) -> str:
    """The end of what a rank printed; "" for rank 0, whose output stands on the terminal."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def _first_error(failures: list[_Failure]) -> TopotuneError:
    first = failures[0]
    failed = RankFailedError(first.rank, first.cause, first.last_output)
    if first.report is None:
        return failed
    failed.add_note(f"on rank {first.rank}:\n{first.report['traceback']}")
    same = first.report["error"]
    if same is None:
        return failed
    error: TopotuneError = getattr(errors, same["class"])(*same["positional"], **same["keywords"])
    error.__cause__ = failed  # with its note: where on the rank it was raised
    return error

"""`topotune lab`: a command on every rank of an emulated cluster, and removing what is left of dead ones.

On each node torch's own launcher starts the profile's ranks, with a static rendezvous on the first node.
torchrun numbers ranks node by node; before each becomes the command it gets the number that the profile's
placement gives it, and all but rank 0 lose their standard output.

When the launcher of one node ends in failure, the others (whose ranks may wait for the dead one for minutes)
get a moment to end by themselves, then SIGTERM, then are killed with the cluster.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from topotune.errors import UsageError
from topotune.lab import agent, network, registry
from topotune.lab.cluster import Cluster, enter_command, place_command, require_root
from topotune.lab.profile import LabProfile, read_profile

Report = Callable[[str], None]

_AGENT: Final = Path(agent.__file__)
_MASTER_PORT: Final = 29500
_POLL_INTERVAL_S: Final = 0.05
_GRACE_S: Final = 3.0
_STOP_TIMEOUT_S: Final = 10.0
_INTERFACE_VARIABLES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def run(
    profile: str | os.PathLike[str] | LabProfile,
    command: Sequence[str],
    *,
    once: bool = False,
    keep: bool = False,
    no_latency: bool = False,
    report: Report = lambda line: None,
    root: Path = registry.ROOT,
) -> int:
    """Run a command on every rank of an emulated cluster, and take the cluster down.

    Labs whose owners are gone are removed first. Standard output of rank 0 (with ``once``: of the first node)
    and standard error of all go where this process's go; standard input is empty. SIGTERM and SIGHUP end the
    command and take the cluster down as Ctrl-C does.

    Args:
        profile: a shipped profile's name, a file, or a profile.
        command: the command line; it runs in this process's working directory.
        once: once per node and without a launcher; TOPOTUNE_LAB_NODES (names, in order, with commas) and
            TOPOTUNE_LAB_NODE_INDEX tell the nodes apart.
        keep: leave the cluster up when the command has ended by itself.
        no_latency: leave out the delays of the profile.
        report: takes lines for the user: what was left out, which rank failed, how to enter what is kept.
        root: where labs are registered.

    Returns:
        0, or how the first failing rank of the first node ended (with ``once``: the first node's command); if
        that node did not fail by itself, the same of the node that failed first. 128 + the signal's number
        stands for a process that was killed.

    Raises:
        UsageError: no root, no such profile or command, or a latency on a kernel without netem.
        RunError: the kernel lacks something, or a process cannot be killed.
        KeyboardInterrupt: Ctrl-C; SystemExit: SIGTERM or SIGHUP; both after the cluster is down.
    """
    lab = profile if isinstance(profile, LabProfile) else read_profile(profile)
    require_root()
    _require_command(command)
    if no_latency and lab.has_latency:
        report(f"lab profile {lab.name}: its latency is left out (--no-latency)")
    with _ending_on_signals():
        for removed in registry.remove_ownerless(kept_too=False, root=root):
            report(f"removed {removed.id} ({removed.profile}), whose process {removed.owner_pid} is gone")
        with Cluster(lab, latency=not no_latency, root=root) as cluster:
            exit_code = (_run_once if once else _run_ranks)(cluster, command, report)
            if keep:
                cluster.keep()
                report(
                    f"{cluster.record.id} ({lab.name}) stays up until `topotune lab --down`; to enter a node:"
                )
                for node in lab.nodes:
                    report(f"  {node.name}: {enter_command(cluster.record.holders, node.name)}")
            return exit_code


def down(root: Path = registry.ROOT) -> tuple[registry.LabRecord, ...]:
    """Remove every lab whose owner is gone, kept ones too.

    Returns:
        What was removed.

    Raises:
        UsageError: no root.
        RunError: a process in one of them cannot be killed.
    """
    require_root()
    return registry.remove_ownerless(kept_too=True, root=root)


def _require_command(command: Sequence[str]) -> None:
    if not command:
        raise UsageError("topotune lab has no command to run", hint="topotune lab 2x4 -- hostname")
    if shutil.which(command[0], path=_search_path()) is None:
        raise UsageError(
            f"there is no command {command[0]!r} to run on the nodes",
            hint="they see this shell's files and PATH; a script may need its interpreter: python train.py",
        )


def _search_path() -> str:
    """PATH, and behind it the commands of this environment, so that a CMD ``topotune`` is this topotune."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))


def _run_once(cluster: Cluster, command: Sequence[str], report: Report) -> int:
    launchers = [
        cluster.popen(
            index,
            command,
            env=_environment(cluster.profile, index),
            stdin=subprocess.DEVNULL,
            stdout=None if index == 0 else subprocess.DEVNULL,
        )
        for index in range(len(cluster.profile.nodes))
    ]
    return _wait(launchers, lambda index: _report_node(cluster, index, launchers[index].returncode, report))


def _run_ranks(cluster: Cluster, command: Sequence[str], report: Report) -> int:
    profile = cluster.profile
    ranks_of_nodes = profile.ranks_of_nodes()
    launchers = []
    for index, ranks in enumerate(ranks_of_nodes):
        folder = cluster.folder / f"node{index}"
        arguments = [
            "--no-python",
            f"--nnodes={len(profile.nodes)}",
            f"--node-rank={index}",
            f"--nproc-per-node={len(ranks)}",
            f"--master-addr={network.address_of(0)}",
            f"--master-port={_MASTER_PORT}",
            f"--log-dir={folder}",  # torchrun's own choice is a folder in /tmp, and it stays there
        ]
        program, *words = place_command(ranks, command)
        launchers.append(
            cluster.popen(
                index,
                # -P: a torch.py in the user's folder is not the one that launches
                [
                    *(sys.executable, "-P", str(_AGENT), _outcome_file(cluster, index)),
                    *arguments,
                    program,
                    *map(_torchrun_literal, words),
                ],
                env=_environment(profile, index),
                stdin=subprocess.DEVNULL,
            )
        )

    def report_failure(index: int) -> None:
        outcome_file = Path(_outcome_file(cluster, index))
        if not outcome_file.exists():
            _report_node(cluster, index, launchers[index].returncode, report)
            return
        failure = json.loads(outcome_file.read_text(encoding="ascii"))
        rank = ranks_of_nodes[index][failure["local_rank"]]
        report(f"rank {rank} on node {profile.nodes[index].name} {_ending(failure['exit_code'])}")

    return _wait(launchers, report_failure)


def _torchrun_literal(word: str) -> str:
    """Escape what torchrun would replace in an argument: ``${local_rank}``, and ``$$`` by ``$``."""
    return word.replace("$", "$$")


def _outcome_file(cluster: Cluster, index: int) -> str:
    return str(cluster.folder / f"outcome{index}.json")


def _environment(profile: LabProfile, index: int) -> dict[str, str]:
    """What a node's processes find in their environment beside what stands in this one's."""
    return {
        # As torchrun sets it, but for one rank per node too: all nodes share one machine's cores.
        "OMP_NUM_THREADS": "1",
        **os.environ,
        "PATH": _search_path(),
        **dict.fromkeys(_INTERFACE_VARIABLES, network.INTERFACE),
        "TOPOTUNE_LAB_NODES": ",".join(node.name for node in profile.nodes),
        "TOPOTUNE_LAB_NODE_INDEX": str(index),
    }


def _wait(launchers: Sequence[subprocess.Popen[Any]], report_failure: Callable[[int], None]) -> int:
    """Wait for one launcher per node, and end the others soon after one fails.

    Args:
        launchers: by node.
        report_failure: told the node of each launcher that failed by itself.

    Returns:
        The exit status of the first node if that failed by itself, else of the one that failed first, else 0.
    """
    failed: dict[int, int] = {}  # node → exit status, in the order of failing
    running = set(range(len(launchers)))
    deadline: float | None = None
    try:
        while running and (deadline is None or time.monotonic() < deadline):
            for index in sorted(running):
                exit_code = launchers[index].poll()
                if exit_code is None:
                    continue
                running.discard(index)
                if exit_code != 0:
                    failed[index] = agent.exit_status(exit_code)
                    report_failure(index)
                    deadline = deadline or time.monotonic() + _GRACE_S
            time.sleep(_POLL_INTERVAL_S)
    except KeyboardInterrupt:
        _stop(launchers, signal.SIGINT)
        raise
    except SystemExit:
        _stop(launchers, signal.SIGTERM)
        raise
    _stop([launchers[index] for index in running], signal.SIGTERM)
    return failed.get(0) or next(iter(failed.values()), 0)


def _stop(launchers: Sequence[subprocess.Popen[Any]], number: signal.Signals) -> None:
    """Ask launchers to end their ranks, and wait a while; those that do not are killed with the cluster."""
    for launcher in launchers:
        launcher.send_signal(number)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while time.monotonic() < deadline and any(launcher.poll() is None for launcher in launchers):
        time.sleep(_POLL_INTERVAL_S)


def _report_node(cluster: Cluster, index: int, exit_code: int, report: Report) -> None:
    report(f"node {cluster.profile.nodes[index].name} {_ending(exit_code)}")


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    return f"was killed by {signal.Signals(-exit_code).name}"


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that ``with`` blocks take down what they made."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

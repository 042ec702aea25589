"""Running a function several times, each time on fresh processes of all ranks.

Theory of operation. What differs between launches of a job (where the kernel puts memory and threads, which
ports and paths connections get) stays the same as long as a process lives, so it is seen only by starting
processes anew. Local ranks are started by this process anyway. Under a launcher that starts ranks this
process is one of them: it stays what it is, and for each launch starts one process of its own as the rank,
in the environment that torchrun gives. For each launch rank 0 serves a store of its own, and tells the others
its port through the store that they have from the launcher; so no launch meets what another has left.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from topotune.errors import UsageError
from topotune.probe.membership import Membership, PerNode, PerRank

_WAIT: Final = timedelta(minutes=20)
"""How long a rank waits for rank 0 to begin the next launch: all ranks end a launch within seconds."""

_POLL_S: Final = 0.05
_LEAVE_S: Final = 30.0
_GRACE_S: Final = 3.0

Payload = Callable[[int, list[Any]], dict[str, Any] | None]
"""From the number of a launch and the results so far, what it is called with; None ends the launches. On
ranks other than 0 results are None, and what this gives may differ only in what rank 0 alone uses."""


def run_launches(
    work: Callable[[dict[str, Any]], Any],
    payload: Payload,
    launcher: Membership,
    *,
    num_launches: int,
    num_local_ranks: int | None,
    default_ranks: int,
) -> list[Any]:
    """Run a function on all ranks several times, on fresh processes each time.

    Args:
        work: of a module, so that ranks of their own can import it.
        payload: see `Payload`; JSON.
        launcher: from `launcher_here`.
        num_launches: at most.
        num_local_ranks: to start on this machine; None takes the default.
        default_ranks: how many that is.

    Returns:
        Of each launch what the function returned on rank 0; None in processes that are not rank 0.

    Raises:
        UsageError: started once on each of several nodes: nodes meet once only.
        TopotuneError: as `run_on_ranks`.
    """
    if isinstance(launcher, PerNode) and launcher.num_nodes > 1:
        raise UsageError(
            f"--launches {num_launches}: {launcher.num_nodes} nodes that are started once each meet once",
            hint="start one process a rank (torchrun, srun, mpirun), or leave --launches out",
        )
    if isinstance(launcher, PerRank):
        return _as_one_rank(work, payload, launcher, num_launches)
    from topotune.launch.on_ranks import run_on_ranks

    results: list[Any] = []
    for number in range(num_launches):
        given = payload(number, results)
        if given is None:
            break
        results.append(
            run_on_ranks(work, given, launcher, num_local_ranks=num_local_ranks, default_ranks=default_ranks)
        )
    return results


def _as_one_rank(
    work: Callable[[dict[str, Any]], Any], payload: Payload, launcher: PerRank, num_launches: int
) -> list[Any]:
    import torch.distributed as dist

    from topotune.launch.join import joined
    from topotune.launch.local_ranks import job_folder
    from topotune.launch.meeting import serve

    entry = f"{work.__module__}:{work.__name__}"
    results: list[Any] = []
    with joined(launcher):
        common, rank, _ = next(dist.rendezvous("env://", timeout=_WAIT))  # type: ignore[attr-defined]
        common.set_timeout(_WAIT)
        for number in range(num_launches):
            key = f"topotune launch {number}"
            given = payload(number, results)
            own = None
            if rank == 0:
                own = None if given is None else serve(0, "topotune")
                common.set(key, "end" if own is None else str(own.port))
            said = bytes(common.get(key)).decode()
            goes_on = given is not None and said != "end"
            if given is not None and goes_on:
                with job_folder(entry, given) as folder:
                    _run_rank(folder, rank, int(said))
                    results.append(json.loads((folder / "result.json").read_bytes()) if rank == 0 else None)
            # Both stores may be rank 0's: they go when all ranks have left them.
            common.add(f"{key} left", 1)
            deadline_s = time.monotonic() + _LEAVE_S
            while rank == 0 and common.add(f"{key} left", 0) < launcher.world_size:
                if time.monotonic() > deadline_s:
                    break  # who has not left by now failed, and needs no store any more
                time.sleep(_POLL_S)
            del own
            if not goes_on:
                break
    return results


def _run_rank(folder: Path, rank: int, port: int) -> None:
    """Run the job of a folder as this rank in a process of its own, until that has ended.

    Raises:
        TopotuneError: what it raised.
        RankFailedError: it ended in another way.
    """
    from topotune.launch import local_rank
    from topotune.launch.rank_failure import find_failures

    environment = os.environ | {"MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    process = subprocess.Popen(
        [sys.executable, "-P", local_rank.__file__, str(folder / "job.json")], env=environment
    )
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    if code != 0:
        cause = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise find_failures(folder, [rank], {rank: (time.monotonic(), cause)})[0].error()

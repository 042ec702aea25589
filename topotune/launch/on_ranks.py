"""Running a function on all ranks, whoever starts them: the one place that decides how.

    alone      local ranks are started on this machine
    per rank   this process is a rank: it joins the others, and runs the function itself
    per node   local ranks are started on each node, and form one world over all nodes

Inside the function the environment is the one that torchrun gives (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT, …), so that ``dist.init_process_group(…)`` and ``rendezvous("env://")`` work as they stand.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from topotune.errors import UsageError
from topotune.probe.launcher import check_num_local_ranks, read_launcher
from topotune.probe.membership import TITLES, Membership, PerNode, PerRank

_LOG: Final = logging.getLogger(__name__)
_TORCH_LEVEL: Final = "TORCH_CPP_LOG_LEVEL"
_INTERFACE: Final = "SM_NETWORK_INTERFACE_NAME"
"""Where ranks look for the interface that the platform names; it may stand in SageMaker's file alone."""


def launcher_here(num_local_ranks: int | None = None) -> Membership:
    """Which launcher started this process.

    Args:
        num_local_ranks: what the user asked for on each node (``--nproc-per-node``), or None.

    Raises:
        UsageError: the environment is half-set, contradictory or ambiguous, or the number of ranks cannot be
            started, or is the launcher's to decide.
    """
    found = read_launcher(os.environ, num_local_ranks=num_local_ranks)
    if num_local_ranks is None:
        return found
    if isinstance(found, PerRank):
        raise UsageError(
            f"--nproc-per-node {num_local_ranks} under a launcher with {found.world_size} ranks "
            f"({TITLES[found.launcher]})",
            hint="leave --nproc-per-node out, or run topotune without the launcher",
        )
    check_num_local_ranks(num_local_ranks)
    return found


def run_on_ranks(
    work: Callable[[dict[str, Any]], Any],
    payload: dict[str, Any],
    launcher: Membership,
    *,
    num_local_ranks: int | None,
    default_ranks: int,
    share_result: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Any:
    """Run a function on all ranks.

    Args:
        work: of a module, so that ranks of their own can import it.
        payload: JSON; what the function is called with. Under a per-node launcher node 0's counts.
        launcher: from `launcher_here`.
        num_local_ranks: to start on each node, or None: what the platform says, or else the default.
        default_ranks: how many that is.
        share_result: under a per-node launcher, all nodes get the result.
        report: takes lines for the user, while nodes wait for each other.

    Returns:
        What the function returned on rank 0, if this process is alone, rank 0, or node 0, or shares it;
        under a per-rank launcher what it returned here.

    Raises:
        UsageError: the launcher does not say where rank 0 is, or the platform asks for ranks that cannot be.
        TopotuneError: of the class and with the message of what the first failing rank raised.
        RankFailedError: a rank ended in any other way; it names the first.
        RunError: ranks or nodes did not find each other, or a node is gone.
    """
    if launcher.interface is not None:
        os.environ.setdefault(_INTERFACE, launcher.interface)
    if isinstance(launcher, PerRank):
        _LOG.info(
            "joins as rank %d of %d of %s", launcher.rank, launcher.world_size, TITLES[launcher.launcher]
        )
        from topotune.launch.join import joined

        with joined(launcher):
            result = work(payload)
        # As JSON keeps it, as from ranks that were started here: NumPy's numbers become plain ones.
        return json.loads(json.dumps(result))
    with _torch_says_errors_alone():
        from topotune.launch.local_ranks import run_local
        from topotune.launch.nodes import run_on_nodes

        num_ranks = num_local_ranks or _ranks_of_platform(launcher) or default_ranks
    _LOG.info("starts %d ranks on this machine", num_ranks)
    entry = f"{work.__module__}:{work.__name__}"
    if isinstance(launcher, PerNode) and launcher.num_nodes > 1:
        return run_on_nodes(launcher, num_ranks, entry, payload, share_result=share_result, report=report)
    return run_local(num_ranks, entry, payload)


@contextmanager
def _torch_says_errors_alone() -> Iterator[None]:
    """Have a torch that is imported inside not warn of broken connections: what is lost is said by name.

    It reads its level once, then. The ranks that this process starts keep theirs.
    """
    if _TORCH_LEVEL in os.environ:
        yield
        return
    os.environ[_TORCH_LEVEL] = "ERROR"
    try:
        yield
    finally:
        del os.environ[_TORCH_LEVEL]


def _ranks_of_platform(launcher: Membership) -> int | None:
    """How many ranks a per-node launcher's platform would start here; None where it does not say.

    Raises:
        UsageError: more than can be, or GPUs where there are none.
    """
    if not isinstance(launcher, PerNode) or launcher.ranks_per_node is None:
        return None
    from torch.distributed.run import determine_local_world_size

    try:
        # Of torchrun: what it makes of "auto", "gpu" and "cpu".
        num_ranks = int(determine_local_world_size(str(launcher.ranks_per_node)))
    except ValueError as problem:
        raise UsageError(
            f"{TITLES[launcher.launcher]}: {launcher.ranks_per_node} ranks on a node: {problem}",
            hint="--nproc-per-node N starts N",
        ) from problem
    check_num_local_ranks(num_ranks)
    return num_ranks

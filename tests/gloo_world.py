"""Real worlds of processes for tests: ``run_world`` starts ranks, collects results, leaves none behind.

The function that every rank runs must be importable (module level) and is called as
``function(rank, num_ranks, store, *args)``. The store is served by the test's own process, so that it
outlives any rank, and the environment is that of torchrun: ``dist.init_process_group("gloo")`` works as it
stands. Ranks are forked from a server that has imported torch once, so a world of 8 starts in well under a
second. Warnings are errors in ranks, as they are in tests.
"""

import multiprocessing
import os
import pickle
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Collection
from datetime import timedelta
from multiprocessing import connection
from typing import Any

import torch
import torch.distributed as dist

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo", "topotune.train.world"])


class RankError(AssertionError):
    """A rank raised, died or did not end in time; the message carries its traceback."""


def run_world(
    num_ranks: int,
    function: Callable[..., Any],
    *args: Any,
    timeout_s: float = 120.0,
    deaths: Collection[int] = (),
) -> list[Any]:
    """Run ``function(rank, num_ranks, store, *args)`` on ``num_ranks`` processes.

    Args:
        num_ranks: how many.
        function: module-level function; what it returns must pickle.
        args: passed on to every rank; must pickle.
        timeout_s: wall time for the whole world; then all ranks are killed and the test fails.
        deaths: ranks that may end without returning anything (the test kills them); their result is None.

    Returns:
        What each rank returned, by rank.

    Raises:
        RankError: a rank raised (with its traceback), died or ran out of time. All ranks are killed first.
    """
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks, pipes = [], []
    try:
        for rank in range(num_ranks):
            ours, theirs = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(
                target=_run_rank,
                args=(rank, num_ranks, server.port, theirs, function, args),
                name=f"rank {rank}",
            )
            process.start()
            theirs.close()
            ranks.append(process)
            pipes.append(ours)
        return _collect(ranks, pipes, time.monotonic() + timeout_s, timeout_s, deaths)
    finally:
        for process in ranks:
            process.kill()
        for process in ranks:
            process.join()
            process.close()
        for pipe in pipes:
            pipe.close()


def _collect(
    ranks: list[Any], pipes: list[Any], deadline: float, timeout_s: float, deaths: Collection[int]
) -> list[Any]:
    results: list[Any] = [None] * len(pipes)
    rank_of_pipe = {pipe: rank for rank, pipe in enumerate(pipes)}
    while rank_of_pipe:
        ready = connection.wait(list(rank_of_pipe), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            late = sorted(rank_of_pipe.values())
            raise RankError(f"ranks {late} of {len(pipes)} had not ended after {timeout_s} s")
        for pipe in ready:
            rank = rank_of_pipe.pop(pipe)
            try:
                succeeded, payload = pickle.loads(pipe.recv_bytes())
            except EOFError:
                ranks[rank].join()
                if rank not in deaths:
                    raise RankError(f"rank {rank} died with exit code {ranks[rank].exitcode}") from None
                continue
            if not succeeded:
                raise RankError(f"rank {rank} raised:\n{payload}")
            results[rank] = payload
    return results


def _run_rank(
    rank: int, num_ranks: int, port: int, pipe: Any, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(num_ranks),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(num_ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=60))
        message = pickle.dumps((True, function(rank, num_ranks, store, *args)))
    except BaseException:
        message = pickle.dumps((False, traceback.format_exc()))
    pipe.send_bytes(message)
    sys.stdout.flush()
    # A failed rank may have native threads that wait for ranks that never come: nothing joins them.
    os._exit(0)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

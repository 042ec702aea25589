"""Timing NCCL's point-to-point between nodes, alone and beside copies of the receiving GPU to its host.

Theory of operation. One rank of each node stands for it, the one of the lowest number; each two of them send
each other, one way at a time. The receiver's device times it by events: a send on the other side may end
before anything has arrived. A GPU that receives from a network adapter and copies to the host's memory at the
same time shows what both share: a PCI Express switch, a root port, the way between sockets.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any, Final

import torch

from topotune.execute.nccl_communicator import NcclCommunicator
from topotune.links.device_copy import ALONE, CopyTiming
from topotune.links.messages import Messages

MESSAGE_BYTES: Final = 32 * 2**20
BESIDE: Final = "beside copies of the receiving GPU to its host"
_NUM_WARMUPS: Final = 2
_NUM_SAMPLES: Final = 12
_MAX_PAIRS: Final = 128


def pairs_between(node_of_rank: Sequence[int]) -> list[tuple[int, int]]:
    """(sender, receiver) for each two nodes, both ways; of many nodes, neighbours alone."""
    first: dict[int, int] = {}
    for rank, node in enumerate(node_of_rank):
        first.setdefault(node, rank)
    found = list(combinations(sorted(first.values()), 2))
    if 2 * len(found) > _MAX_PAIRS:
        found = list(pairwise(sorted(first.values())))[: _MAX_PAIRS // 2]
    return [way for pair in found for way in (pair, pair[::-1])]


def time_nccl_pairs(
    nccl: NcclCommunicator, messages: Messages, node_of_rank: Sequence[int], names: Sequence[str]
) -> list[CopyTiming]:
    """Time all pairs, one after the other. Collective.

    Args:
        nccl: of all ranks.
        messages: of the same ranks, on gloo.
        node_of_rank: verified node numbers.
        names: of the nodes.

    Returns:
        on all ranks the same timings.

    Raises:
        RunError: a rank did not answer.
    """
    found: list[CopyTiming] = []
    buffer = torch.zeros(MESSAGE_BYTES, dtype=torch.uint8, device=nccl.device)
    host = torch.zeros(MESSAGE_BYTES, dtype=torch.uint8, pin_memory=True)
    for src, dst in pairs_between(node_of_rank):
        for purpose in (ALONE, BESIDE):
            messages.barrier()
            own: list[dict[str, Any]] = []
            if nccl.rank == src:
                for _ in range(_NUM_WARMUPS + _NUM_SAMPLES):
                    nccl.exchange([(buffer, dst)], [])
                torch.cuda.current_stream(nccl.device).synchronize()
            elif nccl.rank == dst:
                samples_s = _received(nccl, buffer, src, host if purpose == BESIDE else None)
                own.append({"samples_s": samples_s})
            for heard in messages.gather(own):
                found += [
                    CopyTiming(
                        node=names[node_of_rank[dst]],
                        kind="nccl",
                        src=f"rank {src}",
                        dst=f"rank {dst}",
                        message_bytes=MESSAGE_BYTES,
                        samples_s=tuple(one["samples_s"]),
                        purpose=purpose,
                        num_concurrent=1 if purpose == ALONE else 2,
                    )
                    for one in heard
                ]
    return found


def _received(
    nccl: NcclCommunicator, buffer: torch.Tensor, src: int, host: torch.Tensor | None
) -> list[float]:
    """Seconds of each receive; meanwhile another stream copies to the host, if there is memory for it."""
    other = torch.cuda.Stream(nccl.device)  # type: ignore[no-untyped-call]
    stream = torch.cuda.current_stream(nccl.device)
    marks: list[Any] = []
    source = torch.zeros_like(buffer) if host is not None else None
    for repetition in range(_NUM_WARMUPS + _NUM_SAMPLES + 1):
        mark = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        mark.record(stream)
        marks.append(mark)
        if repetition == _NUM_WARMUPS + _NUM_SAMPLES:
            break
        if host is not None and source is not None:
            with torch.cuda.stream(other):
                host.copy_(source, non_blocking=True)
        nccl.exchange([], [(buffer, src)])
    stream.synchronize()
    other.synchronize()
    return [before.elapsed_time(after) / 1e3 for before, after in pairwise(marks[_NUM_WARMUPS:])]

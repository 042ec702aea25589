"""What is worth considering for given ranks: schedules, library compositions, shared memory."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from topotune.schedule.catalog import build
from topotune.schedule.hierarchical import ACROSS
from topotune.schedule.model import Params, ParamValue, Schedule

RING_CHANNELS: Final = (1, 2)
RING_PIECES: Final = (1, 2, 4)
TREE_PIECES: Final = (1, 2, 4, 8, 16)
HIERARCHICAL_PIECES: Final = (1, 2, 4)

Named = tuple[str, Params]
"""An algorithm and its params, as plans name them."""


def candidates(num_ranks: int, node_of_rank: Sequence[int]) -> tuple[Named, ...]:
    """All of them, without the default; none for a single rank.

    Args:
        num_ranks: n, 1 to 512.
        node_of_rank: node number of each rank, by verified handshake; length n.
    """
    if num_ranks == 1:
        return ()
    return (
        *schedule_candidates(num_ranks, node_of_rank),
        *native_candidates(num_ranks, node_of_rank),
        *shared_memory_candidates(num_ranks, node_of_rank),
    )


def schedule_candidates(num_ranks: int, node_of_rank: Sequence[int]) -> tuple[Named, ...]:
    """All schedules worth considering, no two of them equal; none for a single rank.

    Args:
        num_ranks: n, 1 to 512.
        node_of_rank: node number of each rank; length n.
    """
    if num_ranks == 1:
        return ()
    seen: set[bytes] = set()
    found = []
    for algorithm, params in _grid(num_ranks, node_of_rank):
        identity = _identity(build(algorithm, params, num_ranks))
        if identity not in seen:
            seen.add(identity)
            found.append((algorithm, params))
    return tuple(found)


def _grid(num_ranks: int, node_of_rank: Sequence[int]) -> Iterator[Named]:
    for channels in RING_CHANNELS:
        for pieces in RING_PIECES:
            yield "ring", {"channels": channels, "pieces": pieces}
    yield "recursive_doubling", {}
    yield "halving_doubling", {}
    for pieces in TREE_PIECES:
        yield "double_binary_tree", {"pieces": pieces}
    for groups in groupings(num_ranks, node_of_rank):
        as_value: ParamValue = [list(group) for group in groups]
        for across in ACROSS:
            for pieces in HIERARCHICAL_PIECES:
                yield "hierarchical", {"groups": as_value, "across": across, "pieces": pieces}


def native_candidates(num_ranks: int, node_of_rank: Sequence[int]) -> tuple[Named, ...]:
    """All compositions of the library's own collectives; none for a single rank."""
    if num_ranks == 1:
        return ()
    two_level: list[Named] = [
        ("native_hierarchical", {"groups": [list(group) for group in groups]})
        for groups in groupings(num_ranks, node_of_rank)
    ]
    return (
        ("native_reduce_broadcast", {}),
        ("native_reduce_scatter_allgather", {}),
        ("native_allgather_reduce", {}),
        *two_level,
    )


def shared_memory_candidates(num_ranks: int, node_of_rank: Sequence[int]) -> tuple[Named, ...]:
    """Where ranks share nodes: ``shm`` if all are on one, ``shm_hierarchical`` over the nodes otherwise."""
    num_nodes = len(set(node_of_rank))
    if num_nodes == num_ranks:
        return ()
    if num_nodes == 1:
        return (("shm", {}),)
    groups = [[rank for rank in range(num_ranks) if node_of_rank[rank] == node] for node in range(num_nodes)]
    return (("shm_hierarchical", {"groups": groups}),)


def groupings(num_ranks: int, node_of_rank: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The partitions of the ranks that a two-level algorithm may follow.

    By node, where some node has several ranks and there are several nodes. Otherwise (one node, or one rank a
    node) nothing is known below or above it, and every cut in equal blocks of neighbouring ranks is offered:
    sockets, racks.
    """
    if len(node_of_rank) != num_ranks:
        raise ValueError(f"node_of_rank names {len(node_of_rank)} ranks, not {num_ranks}")
    ranks_of_node: dict[int, list[int]] = {}
    for rank, node in enumerate(node_of_rank):
        ranks_of_node.setdefault(node, []).append(rank)
    if 1 < len(ranks_of_node) < num_ranks:
        return (tuple(tuple(ranks) for ranks in ranks_of_node.values()),)
    return tuple(
        tuple(tuple(range(first, first + size)) for first in range(0, num_ranks, size))
        for size in range(2, num_ranks)
        if num_ranks % size == 0
    )


def _identity(schedule: Schedule) -> bytes:
    """Digest of what the schedule does, whatever it is called."""
    digest = hashlib.sha256(repr((schedule.num_ranks, schedule.chunk_bounds)).encode())
    rows = np.stack(
        (schedule.step, schedule.channel, schedule.src, schedule.dst, schedule.chunk, schedule.op), axis=1
    )
    digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.digest()

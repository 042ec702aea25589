"""What is worth considering for given ranks: schedules, library compositions, shared memory.

Ranks are numbered by position here: where a rank order is in use, it has been applied to the placement.
"""

import hashlib
import math
from collections.abc import Iterator
from itertools import combinations, islice
from typing import Final

import numpy as np

from topotune.links.placement import Partition, Placement, nest
from topotune.plan.algorithms import MAX_SCHEDULE_RANKS, MAX_TRANSFERS, check_params
from topotune.plan.grouping import ACROSS, Nested
from topotune.schedule.blueconnect import factorisations
from topotune.schedule.catalog import build
from topotune.schedule.hierarchical import as_lists
from topotune.schedule.model import Params, Schedule

RING_CHANNELS: Final = (1, 2)
RING_PIECES: Final = (1, 2, 4)
TREE_PIECES: Final = (1, 2, 4, 8, 16)
HIERARCHICAL_PIECES: Final = (1, 2, 4)
THREE_LEVEL_PIECES: Final = (1, 2, 4, 8)
"""Two levels overlap two stages, three levels three: what fills and drains them is a larger share."""

MOST_FACTORISATIONS: Final = 8
"""Orders of levels that are offered, those of few levels first."""

MOST_TRANSFERS: Final = 2**17
"""Longest schedule that is offered cut in pieces or channels: a longer one takes seconds to build, prove and
predict, and its chunks are so small that cutting them finer gains nothing."""

_COMPARED_RANKS: Final = 32
"""Up to here schedules are built to leave out those that equal another one; later few coincide."""

_MOST_BLOCKS: Final = 6
"""Of the sizes of blocks where nothing is known of the ranks: those near the root of their number."""

Named = tuple[str, Params]
"""An algorithm and its params, as plans name them."""


def candidates(placement: Placement, *, is_reordered: bool = False) -> tuple[Named, ...]:
    """All of them, without the default; none for a single rank.

    Args:
        placement: how the ranks lie.
        is_reordered: whether their numbers are positions of a rank order; the library's own allreduce in
            that order is then another candidate.
    """
    if placement.num_ranks == 1:
        return ()
    return (
        *schedule_candidates(placement),
        *((("native_allreduce", {}),) if is_reordered else ()),
        *native_candidates(placement),
        *shared_memory_candidates(placement),
    )


def schedule_candidates(placement: Placement) -> tuple[Named, ...]:
    """All schedules worth considering; none for a single rank, or for more than can be materialised.

    No two of them are equal up to 32 ranks.
    """
    num_ranks = placement.num_ranks
    if not 1 < num_ranks <= MAX_SCHEDULE_RANKS:
        return ()
    seen: set[bytes] = set()
    found = []
    for algorithm, params in _grid(placement):
        if not _is_affordable(algorithm, params, num_ranks):
            continue
        if num_ranks <= _COMPARED_RANKS:
            identity = _identity(build(algorithm, params, num_ranks))
            if identity in seen:
                continue
            seen.add(identity)
        found.append((algorithm, params))
    return tuple(found)


def _is_affordable(algorithm: str, params: Params, num_ranks: int) -> bool:
    is_plain = all(params.get(name, 1) == 1 for name in ("channels", "pieces"))
    most = MAX_TRANSFERS if is_plain else MOST_TRANSFERS
    return check_params(algorithm, params, num_ranks, most_transfers=most) is None


def _grid(placement: Placement) -> Iterator[Named]:
    for channels in RING_CHANNELS:
        for pieces in RING_PIECES:
            yield "ring", {"channels": channels, "pieces": pieces}
    yield "recursive_doubling", {}
    yield "halving_doubling", {}
    yield "swing", {}
    yield "bine", {}
    yield "parameter_server", {}
    for rows in _torus_rows(placement.num_ranks):
        yield "torus", {"rows": rows}
    for pieces in TREE_PIECES:
        yield "double_binary_tree", {"pieces": pieces}
    for groups in groupings(placement):
        for across in ACROSS:
            if across == "halving_doubling" and len(groups) == 2:
                continue  # the ring between two does the same
            is_flat = all(len(outer) == 1 for outer in groups)
            for pieces in HIERARCHICAL_PIECES if is_flat else THREE_LEVEL_PIECES:
                yield "hierarchical", {"groups": as_lists(groups), "across": across, "pieces": pieces}
    offered = islice(factorisations(_levels(placement), placement.num_ranks), MOST_FACTORISATIONS)
    for factors, order in offered:
        yield "blueconnect", {"factors": factors, "order": order}


def _torus_rows(num_ranks: int) -> list[int]:
    """The shape nearest to a square, if there is any that is no ring."""
    rows = [rows for rows in range(2, math.isqrt(num_ranks) + 1) if num_ranks % rows == 0]
    return rows[-1:]


def native_candidates(placement: Placement) -> tuple[Named, ...]:
    """All compositions of the library's own collectives; none for a single rank.

    Groupings of two levels alone: gloo reduces and scatters by an allreduce of the whole, so a third level
    costs the links below it more than it saves above.
    """
    if placement.num_ranks == 1:
        return ()
    two_level: list[Named] = [
        ("native_hierarchical", {"groups": as_lists(groups)})
        for groups in groupings(placement)
        if all(len(outer) == 1 for outer in groups)
    ]
    return (
        ("native_reduce_broadcast", {}),
        ("native_reduce_scatter_allgather", {}),
        ("native_allgather_reduce", {}),
        *two_level,
    )


def shared_memory_candidates(placement: Placement) -> tuple[Named, ...]:
    """Where ranks share nodes: ``shm`` if all are on one, ``shm_hierarchical`` over the nodes otherwise.

    Where nodes lie in racks, also over the nodes in each kind of rack.
    """
    nodes = placement.nodes
    if len(nodes) == placement.num_ranks:
        return ()
    if len(nodes) == 1:
        return (("shm", {}),)
    in_racks: list[Named] = [
        ("shm_hierarchical", {"groups": as_lists(nest(nodes, racks)), "pieces": pieces})
        for racks in placement.racks
        for pieces in THREE_LEVEL_PIECES
    ]
    return (
        ("shm_hierarchical", {"groups": [list(node) for node in nodes]}),
        *(one for one in in_racks if _is_affordable(*one, placement.num_ranks)),
    )


def groupings(placement: Placement) -> tuple[Nested, ...]:
    """The partitions of the ranks that an algorithm of two or three levels may follow, in the nested form.

    The levels are, from the finest: NUMA nodes, or the halves of each node where these are not known; nodes;
    groups of nodes. Each one makes a grouping of two levels, each two of them one of three. A level with
    single ranks or with one group of all is none. Where there is no level (one node, or one rank a node), the
    numbers alone are left to go by, and cuts in equal blocks of neighbours are offered: sockets, racks.
    """
    levels = _levels(placement)
    if not levels:
        return tuple(_flat(blocks) for blocks in _equal_blocks(placement.num_ranks))
    return (
        *(_flat(level) for level in levels),
        *(nest(fine, coarse) for fine, coarse in combinations(levels, 2)),
    )


def _levels(placement: Placement) -> list[Partition]:
    """All partitions that are known, finest first, each coarser than the one before."""
    levels: list[Partition] = []
    for level in (*_below_nodes(placement), placement.nodes, *placement.racks):
        if 1 < len(level) < placement.num_ranks and (not levels or len(level) < len(levels[-1])):
            levels.append(level)
    return levels


def _below_nodes(placement: Placement) -> tuple[Partition, ...]:
    """NUMA nodes; or, of several nodes, the halves of each, as two sockets have them in block placement."""
    nodes = placement.nodes
    if placement.numa_of_rank is not None:
        numa = placement.numa_of_rank
        return (tuple(part for node in nodes for part in _parts_by(node, numa)),)
    if len(nodes) > 1 and all(len(node) >= 4 and len(node) % 2 == 0 for node in nodes):
        return (tuple(half for node in nodes for half in (node[: len(node) // 2], node[len(node) // 2 :])),)
    return ()


def _parts_by(ranks: tuple[int, ...], key_of_rank: tuple[int, ...]) -> Partition:
    keys = dict.fromkeys(key_of_rank[rank] for rank in ranks)
    return tuple(tuple(rank for rank in ranks if key_of_rank[rank] == key) for key in keys)


def _equal_blocks(num_ranks: int) -> list[Partition]:
    """Cuts in equal blocks of neighbours, small blocks first."""
    sizes = [size for size in range(2, num_ranks) if num_ranks % size == 0]
    near_root = sorted(sizes, key=lambda size: abs(math.log(size * size / num_ranks)))[:_MOST_BLOCKS]
    return [
        tuple(tuple(range(first, first + size)) for first in range(0, num_ranks, size))
        for size in sorted(near_root)
    ]


def _flat(level: Partition) -> Nested:
    return tuple((group,) for group in level)


def _identity(schedule: Schedule) -> bytes:
    """Digest of what the schedule does, whatever it is called."""
    digest = hashlib.sha256(repr((schedule.num_ranks, schedule.chunk_bounds)).encode())
    rows = np.stack(
        (schedule.step, schedule.channel, schedule.src, schedule.dst, schedule.chunk, schedule.op), axis=1
    )
    digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.digest()

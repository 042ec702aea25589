"""The algorithms by name: building a verified schedule, and listing those worth considering."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from topotune.errors import UsageError, WrongResultError
from topotune.schedule.doubling import halving_doubling, recursive_doubling
from topotune.schedule.hierarchical import ACROSS, check_groups, hierarchical
from topotune.schedule.model import Params, ParamValue, Schedule
from topotune.schedule.ring import ring
from topotune.schedule.tree import double_binary_tree
from topotune.schedule.verify import verify

MAX_MATERIALIZED_RANKS = 512

PARAMS_OF_ALGORITHM: Final[dict[str, frozenset[str]]] = {
    "ring": frozenset({"channels", "pieces"}),
    "double_binary_tree": frozenset({"pieces"}),
    "recursive_doubling": frozenset(),
    "halving_doubling": frozenset(),
    "hierarchical": frozenset({"groups", "across", "pieces"}),
}

RING_CHANNELS: Final = (1, 2)
RING_PIECES: Final = (1, 2, 4)
TREE_PIECES: Final = (1, 2, 4, 8, 16)
HIERARCHICAL_PIECES: Final = (1, 2, 4)


def build(algorithm: str, params: Params, num_ranks: int) -> Schedule:
    """The schedule of that name, verified; equal calls get the same object.

    Args:
        algorithm: a key of ``PARAMS_OF_ALGORITHM``.
        params: those of its generator; one that is absent has the generator's default.
        num_ranks: 1 to 512.

    Raises:
        UsageError: no such algorithm, a param it does not take, or a value out of range.
        WrongResultError: the schedule does not pass ``verify``.
    """
    if algorithm not in PARAMS_OF_ALGORITHM:
        raise UsageError(f"{algorithm!r:.100} is no schedule; there are {', '.join(PARAMS_OF_ALGORITHM)}")
    unknown = sorted(set(params) - PARAMS_OF_ALGORITHM[algorithm])
    if unknown:
        takes = ", ".join(sorted(PARAMS_OF_ALGORITHM[algorithm])) or "none"
        raise UsageError(f"{algorithm} takes no param {unknown[0]!r:.100}; it takes {takes}")
    if (
        not isinstance(num_ranks, int)
        or isinstance(num_ranks, bool)
        or not 1 <= num_ranks <= MAX_MATERIALIZED_RANKS
    ):
        raise UsageError(
            f"schedules are built for 1 to {MAX_MATERIALIZED_RANKS} ranks, not {num_ranks!r:.100}"
        )
    try:
        key = json.dumps(dict(params), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{algorithm}: params cannot be read: {error}") from error
    return _build_verified(algorithm, key, num_ranks)


@lru_cache(maxsize=64)
def _build_verified(algorithm: str, params_text: str, num_ranks: int) -> Schedule:
    schedule = _generate(algorithm, json.loads(params_text), num_ranks)
    violations = verify(schedule)
    if violations:
        text = "; ".join(violation.message for violation in violations)
        raise WrongResultError(f"{algorithm} {params_text} for {num_ranks} ranks is no allreduce: {text}")
    return schedule


def _generate(algorithm: str, params: dict[str, Any], num_ranks: int) -> Schedule:
    if algorithm == "ring":
        return ring(num_ranks, **params)
    if algorithm == "double_binary_tree":
        return double_binary_tree(num_ranks, **params)
    if algorithm == "recursive_doubling":
        return recursive_doubling(num_ranks)
    if algorithm == "halving_doubling":
        return halving_doubling(num_ranks)
    groups = check_groups(params.get("groups"))
    named = sum(map(len, groups))
    if named != num_ranks:
        raise UsageError(f"hierarchical: groups names {named} ranks, the schedule is for {num_ranks}")
    return hierarchical(**params)


def schedule_candidates(num_ranks: int, node_of_rank: Sequence[int]) -> tuple[tuple[str, Params], ...]:
    """All schedules worth considering, no two of them equal; none for a single rank.

    Args:
        num_ranks: n, 1 to 512.
        node_of_rank: node number of each rank; length n.
    """
    if num_ranks == 1:
        return ()
    seen: set[bytes] = set()
    candidates = []
    for algorithm, params in _grid(num_ranks, node_of_rank):
        identity = _identity(build(algorithm, params, num_ranks))
        if identity not in seen:
            seen.add(identity)
            candidates.append((algorithm, params))
    return tuple(candidates)


def _grid(num_ranks: int, node_of_rank: Sequence[int]) -> Iterator[tuple[str, Params]]:
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

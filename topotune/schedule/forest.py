"""Allreduce along a forest: each share of the message is added up along one tree and copied along another.

Theory of operation. Tree t owns a share of the message in proportion to its weight, cut in pieces. Its pieces
go up to the root one behind the other, added on the way, and come down again; each tree is a channel of its
own. Two children never deliver the same piece to their parent in one step. Where the trees are those of a
network's optimal packing (`topotune.bounds.forest`), large messages fill its bottleneck.

Source: Zhao et al., "ForestColl", arXiv 2402.06787; BytePS (Jiang et al., OSDI 2020) for shares in proportion
to what a host can send.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from topotune.errors import UsageError
from topotune.plan.algorithms import MAX_TREES, MAX_WEIGHT, tree_problem
from topotune.schedule.assemble import (
    MAX_PIECES,
    MAX_RANKS,
    Transfers,
    assemble,
    check_count,
    check_num_transfers,
)
from topotune.schedule.model import COPY, REDUCE, Params, Schedule
from topotune.schedule.tree import receive_steps, send_steps


def forest(
    weights: Sequence[int],
    down: Sequence[Sequence[int]],
    up: Sequence[Sequence[int]] | None = None,
    *,
    pieces: int = 1,
) -> Schedule:
    """One channel a tree.

    Args:
        weights: share of the message of each tree, over the sum of all; 1 to 1024 trees.
        down: of each tree, each rank's parent on the way down (whom it hears the sum from); -1 for the root.
        up: likewise on the way up (whom it sends its part to), with the same roots; None for the same trees.
        pieces: of each tree's share, 1 to 1024.

    Raises:
        UsageError: a parent list that is no spanning tree, roots that differ, a count out of range, or too
            many transfers.
    """
    num_trees = len(weights)
    check_count("forest: the number of trees", num_trees, MAX_TREES)
    for weight in weights:
        check_count("forest: a weight", weight, MAX_WEIGHT)
    check_count("pieces", pieces, MAX_PIECES)
    ways_down = [_checked_tree("down", index, parents) for index, parents in enumerate(down)]
    ways_up = ways_down if up is None else [_checked_tree("up", i, parents) for i, parents in enumerate(up)]
    if not len(ways_down) == len(ways_up) == num_trees:
        raise UsageError(
            f"forest: {num_trees} weights, {len(ways_down)} trees down and {len(ways_up)} trees up"
        )
    num_ranks = len(ways_down[0])
    if any(len(parents) != num_ranks for parents in (*ways_down, *ways_up)):
        raise UsageError("forest: the trees are for different numbers of ranks")
    check_num_transfers(2 * (num_ranks - 1) * num_trees * pieces, "forest", num_ranks)
    parts = []
    piece = np.arange(pieces)
    for tree, (way_down, way_up) in enumerate(zip(ways_down, ways_up, strict=True)):
        root = int(np.flatnonzero(way_down < 0)[0])
        if way_up[root] >= 0:
            raise UsageError(f"forest: tree {tree} comes down from rank {root} and goes up to another")
        sends = send_steps(way_up)
        receives = receive_steps(way_down, int(sends[root]))
        others = np.flatnonzero(np.arange(num_ranks) != root)[:, None]
        chunk = piece + tree * pieces
        parts += [
            Transfers(sends[others] + piece, others, way_up[others], chunk, REDUCE, tree),
            Transfers(receives[others] + piece, way_down[others], others, chunk, COPY, tree),
        ]
    bounds = [0, *accumulate(weight for weight in weights for _ in range(pieces))]
    params: Params = {"weights": list(weights), "down": [list(parents) for parents in down], "pieces": pieces}
    if up is not None:
        params = {**params, "up": [list(parents) for parents in up]}
    return assemble("forest", params, num_ranks, bounds, parts)


def _checked_tree(way: str, index: int, parents: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The parents as an array, if they make one tree over all ranks."""
    check_count("forest: the number of ranks", len(parents), MAX_RANKS)
    problem = tree_problem(list(parents), len(parents))
    if problem:
        raise UsageError(f"forest: {way}[{index}] {problem}")
    return np.asarray(parents, dtype=np.int64)

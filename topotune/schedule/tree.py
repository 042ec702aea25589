"""Double binary tree allreduce: two complementary trees, each for half the message, pipelined in pieces.

Theory of operation. Number the ranks 1 … n. In the in-order binary tree the parent of x is reached by moving
its lowest set bit one place up (clearing it where that would leave the tree), so odd numbers are leaves. The
second tree is the first one mirrored (n even) or shifted by one (n odd): odd and even change places, so a
rank is an inner vertex of at most one tree, and both together keep every rank's link busy in both directions.

In each tree piece p moves one step behind piece p - 1. A vertex sends a piece up one step after the later of
its two children's arrived; two children never deliver the same piece in one step, so the second waits a step
where both would. From the root the piece goes down one level a step. Reduction of later pieces and broadcast
of earlier ones overlap.

Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
"""

import numpy as np

from topotune.schedule.assemble import (
    MAX_PIECES,
    MAX_RANKS,
    IntArray,
    Transfers,
    assemble,
    check_count,
    check_num_transfers,
)
from topotune.schedule.model import COPY, REDUCE, Schedule


def double_binary_tree(num_ranks: int, *, pieces: int = 1) -> Schedule:
    """Two trees in two channels; each rank is an inner vertex of at most one.

    Args:
        num_ranks: 1 to 4096.
        pieces: of each half of the message, 1 to 1024.

    Raises:
        UsageError: a count out of range, or too many transfers.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    check_count("pieces", pieces, MAX_PIECES)
    check_num_transfers(4 * (num_ranks - 1) * pieces, "double_binary_tree", num_ranks)
    parts = []
    for channel, parent in enumerate((in_order_parents(num_ranks), complementary_parents(num_ranks))):
        send_up = send_steps(parent)
        receive_down = receive_steps(parent, int(send_up[np.flatnonzero(parent < 0)[0]]))
        child = np.flatnonzero(parent >= 0)[:, None]
        piece = np.arange(pieces)
        chunk = piece + channel * pieces
        up = Transfers(send_up[child] + piece, child, parent[child], chunk, REDUCE, channel)
        down = Transfers(receive_down[child] + piece, parent[child], child, chunk, COPY, channel)
        parts += [up, down]
    return assemble("double_binary_tree", {"pieces": pieces}, num_ranks, range(2 * pieces + 1), parts)


def in_order_parents(num_ranks: int) -> IntArray:
    """Parent of each rank in the in-order binary tree; -1 for the root. Shape (num_ranks,)."""
    number = np.arange(1, num_ranks + 1)
    lowest = number & -number
    up = (number ^ lowest) | (lowest << 1)
    return np.where(up <= num_ranks, up, number ^ lowest) - 1


def complementary_parents(num_ranks: int) -> IntArray:
    """Parents in the second tree: the first one mirrored for even n, shifted by one for odd n."""
    rank = np.arange(num_ranks)
    image = num_ranks - 1 - rank if num_ranks % 2 == 0 else (rank + 1) % num_ranks
    first = in_order_parents(num_ranks)
    parents = np.full(num_ranks, -1, dtype=np.int64)
    parents[image] = np.where(first >= 0, image[first], -1)
    return parents


def send_steps(parent: IntArray) -> IntArray:
    """Steps at which piece 0 leaves each vertex on the way up; of the root, at which it is complete.

    Args:
        parent: of each vertex; -1 for the root.
    """
    children, downwards = _downwards(parent)
    send_up = np.zeros(len(parent), dtype=np.int64)
    for vertex in reversed(downwards):
        arrives = -1
        # Of children that are ready together the next in number goes first: no child is first everywhere.
        turn = {child: (send_up[child], (child - vertex) % len(parent)) for child in children[vertex]}
        for child in sorted(turn, key=turn.__getitem__):
            arrives = send_up[child] = max(int(send_up[child]), arrives + 1)
        send_up[vertex] = arrives + 1
    return send_up


def receive_steps(parent: IntArray, first_step: int) -> IntArray:
    """Steps at which piece 0 reaches each vertex on the way down.

    Args:
        parent: of each vertex; -1 for the root, whose entry means nothing.
        first_step: at which the root sends it.
    """
    _, downwards = _downwards(parent)
    receive_down = np.zeros(len(parent), dtype=np.int64)
    receive_down[downwards[0]] = first_step - 1
    for vertex in downwards[1:]:
        receive_down[vertex] = receive_down[parent[vertex]] + 1
    return receive_down


def _downwards(parent: IntArray) -> tuple[list[list[int]], list[int]]:
    """The children of each vertex, and all vertices, each behind its parent."""
    children: list[list[int]] = [[] for _ in parent]
    for child, up in enumerate(parent.tolist()):
        if up >= 0:
            children[up].append(child)
    order = [int(np.flatnonzero(parent < 0)[0])]
    for vertex in order:
        order += children[vertex]
    return children, order

"""Allreduce in any number of levels, each a ring of its own, in any order of the levels.

Theory of operation. Let n = p_1 p_2 … p_k, and write ranks and the n chunks of a message in that mixed radix,
the first digit counting fastest: with 8 ranks a node, 4 nodes a rack and 2 racks, factors 8, 4, 2. At stage i
the ranks that differ in digit o_i alone form a ring, and reduce-scatter among them what they still hold, so
that each keeps the chunks whose digit is its own. After k stages rank r holds chunk r, reduced; the
all-gathers lead back the same way. In the order 0, 1, 2, … most bytes stay inside; the wider the network
between nodes and the narrower that inside (PCI Express below fast adapters), the sooner another order wins.

With two or three levels in the order 0, 1, 2 this is `hierarchical` across a ring.

Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network
hierarchy", 2019.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations

import numpy as np

from topotune.errors import UsageError
from topotune.links.placement import Partition
from topotune.plan.algorithms import check_params
from topotune.schedule.assemble import MAX_RANKS, MAX_TRANSFERS, IntArray, Transfers, assemble
from topotune.schedule.model import Params, Schedule
from topotune.schedule.phases import allgather_ring, reduce_scatter_ring


def blueconnect(
    num_ranks: int, factors: Sequence[int], *, order: Sequence[int] | None = None, pieces: int = 1
) -> Schedule:
    """A ring for each factor of the number of ranks.

    Args:
        num_ranks: the product of all factors.
        factors: of the levels, innermost first; each at least 2.
        order: in which levels reduce-scatter, by their place in ``factors``; None: as they stand.
        pieces: that the message is cut in, 1 to 1024; they go through the stages one behind the other.

    Raises:
        UsageError: factors that are none, an order that names a level twice or not, a count out of range, or
            too many transfers.
    """
    chosen = list(range(len(factors))) if order is None else list(order)
    params: Params = {"factors": list(factors), "order": chosen, "pieces": pieces}
    problem = check_params(
        "blueconnect", params, num_ranks, most_transfers=MAX_TRANSFERS, most_ranks=MAX_RANKS
    )
    if problem:
        raise UsageError(f"blueconnect: {problem}")
    strides = [math.prod(factors[:level]) for level in range(len(factors))]
    piece, owner = (column.reshape(-1) for column in np.divmod(np.arange(pieces * num_ranks), num_ranks))
    last = sum(factor - 1 for factor in factors)
    begins = piece * max(factor - 1 for factor in factors)
    at, parts = 0, list[Transfers]()
    for done, level in enumerate(chosen):
        size, stride = factors[level], strides[level]
        members = _rings(owner, [(factors[one], strides[one]) for one in chosen[done + 1 :]])
        members -= members // stride % size * stride
        members = members[None] + (np.arange(size) * stride)[:, None, None]
        free = members.shape[2]
        rings = members.reshape(size, -1)
        digit, chunk = (np.repeat(one, free) for one in (owner // stride % size, np.arange(len(owner))))
        first = np.repeat(begins, free)
        back = 2 * last - at - (size - 1)
        parts += [
            reduce_scatter_ring(rings, digit, chunk, first_step=first + at),
            allgather_ring(rings, digit, chunk, first_step=first + back),
        ]
        at += size - 1
    return assemble("blueconnect", params, num_ranks, range(pieces * num_ranks + 1), parts)


def _rings(owner: IntArray, free: Sequence[tuple[int, int]]) -> IntArray:
    """Ranks whose digits are the owner's but for some, (size, stride) each, that take all values.

    Shape (num_chunks, product of the sizes).
    """
    ranks = owner[:, None].copy()
    for size, stride in free:
        ranks -= ranks // stride % size * stride
        ranks = (ranks[:, :, None] + np.arange(size) * stride).reshape(len(owner), -1)
    return ranks


def factorisations(levels: Sequence[Partition], num_ranks: int) -> Iterator[tuple[list[int], list[int]]]:
    """Factors and orders that levels of groups offer, but for those that `hierarchical` has.

    Args:
        levels: finest first; those that are no equal runs of neighbours offer nothing.
        num_ranks: n.

    Yields:
        Factors, innermost first, and the order of the levels.
    """
    sizes = [size for size in (_run_length(level) for level in levels) if size is not None]
    for count in range(1, len(sizes) + 1):
        for chosen in combinations(sizes, count):
            spans = [1, *chosen, num_ranks]
            if any(b % a or b == a for a, b in pairwise(spans)):
                continue
            factors = [b // a for a, b in pairwise(spans)]
            for order in permutations(range(len(factors))):
                if len(factors) > 3 or list(order) != sorted(order):
                    yield factors, list(order)


def _run_length(level: Partition) -> int | None:
    """How many neighbours each group is; None where groups differ or ranks do not follow one another."""
    size = len(level[0])
    runs = [tuple(range(first, first + size)) for first in range(0, size * len(level), size)]
    return size if sorted(tuple(sorted(group)) for group in level) == runs else None

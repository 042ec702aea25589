"""Rings that use every adapter of a node: as many as it has ranks, each entering nodes at another rank.

Theory of operation. One ring through all ranks leaves each node over the adapter of one rank. With one ring a
local rank, each over its own part of the message, all adapters carry the same. Ring c goes through even nodes
upwards from rank c and through odd ones downwards to it, so that it leaves a node and enters the next at the
same place: on fabrics with a switch for each place (rails) no ring changes switches, but for one link around
an odd number of nodes.

Source: Patarasuk and Yuan 2009 for the ring; NCCL builds its rings so.
"""

from collections.abc import Sequence

import numpy as np

from topotune.errors import UsageError
from topotune.schedule.assemble import IntArray, Transfers, assemble, check_num_transfers
from topotune.schedule.model import Params, Schedule
from topotune.schedule.phases import allgather_ring, reduce_scatter_ring


def rail_orders(nodes: Sequence[Sequence[int]]) -> IntArray:
    """Ranks in the order of each ring; shape (ranks of a node, num_ranks).

    Raises:
        UsageError: nodes of different sizes.
    """
    sizes = {len(node) for node in nodes}
    if len(sizes) != 1:
        raise UsageError(
            f"ring_per_rail: nodes of {' and '.join(map(str, sorted(sizes)))} ranks have no rails in common"
        )
    size = sizes.pop()
    place, rail = np.arange(size), np.arange(size)[:, None]
    upwards = (rail + place) % size
    ranks = np.asarray(nodes, dtype=np.int64)
    order = np.empty((size, len(nodes), size), dtype=np.int64)
    order[:, ::2] = ranks[::2][:, upwards].swapaxes(0, 1)
    order[:, 1::2] = ranks[1::2][:, upwards[:, ::-1]].swapaxes(0, 1)
    return order.reshape(size, -1)


def ring_per_rail(nodes: Sequence[Sequence[int]]) -> Schedule:
    """One channel a rail.

    Args:
        nodes: ranks of each node, as many on each.

    Raises:
        UsageError: nodes of different sizes, or too many transfers.
    """
    orders = rail_orders(nodes)
    num_rails, num_ranks = orders.shape
    check_num_transfers(2 * (num_ranks - 1) * num_ranks * num_rails, "ring_per_rail", num_ranks)
    parts: list[Transfers] = []
    for rail, order in enumerate(orders):
        members, owners = order[:, None], np.arange(num_ranks)
        chunks = owners + rail * num_ranks
        scatter = reduce_scatter_ring(members, owners, chunks)
        gather = allgather_ring(members, owners, chunks, first_step=num_ranks - 1)
        parts += [scatter._replace(channel=rail), gather._replace(channel=rail)]
    params: Params = {"groups": [list(node) for node in nodes]}
    return assemble("ring_per_rail", params, num_ranks, range(num_rails * num_ranks + 1), parts)

"""Which ranks of a network belong together, at every distance: nodes, racks of nodes, pods of racks.

Theory of operation. Nodes fall into groups by how many links apart they are. In a tree of switches the nodes
within d links of each other make up whole groups for every d, each group of one level within one of the next;
where they do not (rings, tori, dragonflies' shortcuts), that d is no level.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import scipy

from topotune.links.placement import Partition, partition_by
from topotune.simulate.network import Network

MAX_NODES: Final = 256
"""Most nodes whose distances are asked for: beyond, that takes longer than the simulation."""


def levels_of(network: Network) -> list[Partition]:
    """Partitions of the ranks, finest first: nodes, then groups of nodes; none of single ranks or of all.

    Above `MAX_NODES` nodes only the nodes are a level.
    """
    nodes = partition_by(network.node_of_rank)
    found = [nodes]
    if 3 <= len(nodes) <= MAX_NODES:
        at = network.vertex_of_rank[[node[0] for node in nodes]]
        shape = (len(network.vertices), len(network.vertices))
        links = scipy.sparse.csr_array(
            (np.ones(len(network.tail)), (network.tail, network.head)), shape=shape
        )
        apart = scipy.sparse.csgraph.dijkstra(links, unweighted=True, indices=at)[:, at]
        for distance in np.unique(apart[~np.eye(len(nodes), dtype=bool)]).tolist():
            near = (apart <= distance) & (distance >= apart.T) | np.eye(len(nodes), dtype=bool)
            count, group = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(near))
            if 1 < count < len(found[-1]) and np.array_equal(near, group[:, None] == group[None, :]):
                found.append(_of_ranks(nodes, group.tolist()))
    return [level for level in found if 1 < len(level) < network.num_ranks]


def _of_ranks(nodes: Partition, group_of_node: Sequence[int]) -> Partition:
    groups: dict[int, list[int]] = {}
    for node, group in zip(nodes, group_of_node, strict=True):
        groups.setdefault(group, []).extend(node)
    return tuple(map(tuple, groups.values()))


def sides_of(network: Network) -> list[int] | None:
    """Lengths of the dimensions that ranks are counted through, fastest first; None where there are none."""
    strides = [stride for stride, _ in network.lines]
    sides = [length for _, length in network.lines]
    counted = [math.prod(sides[:place]) for place in range(len(sides))]
    return sides if len(sides) > 1 and strides == counted and math.prod(sides) == network.num_ranks else None

"""The algorithms that are predicted side by side on a network, each with what it can be cut in."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from topotune.bounds.allreduce_forest import allreduce_forest, forest_params
from topotune.bounds.graph import CapacityGraph
from topotune.errors import UsageError
from topotune.links.placement import partition_by
from topotune.plan.algorithms import SCHEDULE_ALGORITHMS, check_params
from topotune.plan.grouping import ACROSS
from topotune.schedule.assemble import MAX_TRANSFERS, MAX_WRITTEN_RANKS
from topotune.schedule.catalog import build
from topotune.schedule.model import Params, Schedule
from topotune.simulate.network import Network
from topotune.simulate.patterns import patterns
from topotune.simulate.rails import ring_per_rail
from topotune.simulate.routed import Flow, forest_ways
from topotune.simulate.routes import Ways
from topotune.simulate.steps import Step, steps_of

TREE_PIECES: Final = (1, 4, 16, 64)
HIERARCHICAL_PIECES: Final = (1, 4, 16)
FOREST_PIECES: Final = (1, 8, 64)
MOST_TRANSFERS: Final = 2**20
"""Longest schedule that is offered unasked: longer ones take seconds to build and to prove."""
MAX_FOREST_HOSTS: Final = 8
"""Up to here a forest is sought unasked; with more vertices that takes ten seconds and more."""

_MAX_NODES_IN_RACKS: Final = 256

ALGORITHMS: Final = (*SCHEDULE_ALGORITHMS, "ring_per_rail")


@dataclass(frozen=True, kw_only=True, eq=False)
class Contender:
    """One algorithm as it would run.

    Attributes:
        algorithm, params: its name and what its generator was given.
        steps: what runs together.
        ways: of messages that bring their own.
        schedule: all transfers; None where there are too many to write down.
    """

    algorithm: str
    params: Params
    steps: Sequence[Step]
    ways: Mapping[Flow, Ways] = field(default_factory=dict)
    schedule: Schedule | None = None


def contenders(
    network: Network, graph: CapacityGraph | None, algorithm: str | None = None
) -> Iterator[Contender]:
    """All that make sense on a network, or those of one name.

    Args:
        network: of 2 ranks at least.
        graph: the same network, for forests; None: there are none.
        algorithm: one of ``ALGORITHMS``; it is then tried whatever it takes.

    Raises:
        UsageError: no such algorithm, or one that these ranks do not allow.
    """
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise UsageError(
            f"--algorithm {algorithm!r:.100}: there is no such schedule",
            hint=f"one of {', '.join(ALGORITHMS)}",
        )
    known = _known_by_steps(network)
    if network.num_ranks > MAX_WRITTEN_RANKS:
        if network.own_routes is None or (algorithm is not None and algorithm not in known):
            raise UsageError(
                f"{network.num_ranks} ranks: up to {MAX_WRITTEN_RANKS} every algorithm is simulated, above"
                f" {', '.join(known)}, on a fabric",
                hint="fewer --nodes; or a fabric, of up to 131,072 ranks: --oversubscription 1",
            )
        for name, steps in known.items():
            if algorithm in (None, name):
                yield Contender(algorithm=name, params={}, steps=steps(network.num_ranks))
        return
    found = False
    for name, params in _grid(network):
        if algorithm is not None and name != algorithm:
            continue
        # Of what was asked for the first is taken whatever it takes.
        most = MAX_TRANSFERS if not found and name == algorithm else MOST_TRANSFERS
        if name == "ring_per_rail":
            schedule = ring_per_rail(_nodes(network))
        elif check_params(name, params, network.num_ranks, most_transfers=most, most_ranks=MAX_WRITTEN_RANKS):
            if algorithm is None and name in known:
                yield Contender(algorithm=name, params={}, steps=known.pop(name)(network.num_ranks))
            continue
        else:
            schedule = build(name, params, network.num_ranks)
        found = True
        yield Contender(algorithm=name, params=params, steps=steps_of(schedule), schedule=schedule)
    if graph is not None and (
        algorithm == "forest" or (algorithm is None and len(graph.hosts) <= MAX_FOREST_HOSTS)
    ):
        for contender in _forests(graph):
            found = True
            yield contender
    if not found:
        raise UsageError(f"--algorithm {algorithm}: does not fit {network.num_ranks} ranks as they lie")


def contender_of(schedule: Schedule, network: Network) -> Contender:
    """A schedule that came from somewhere.

    Raises:
        UsageError: it is for another number of ranks.
    """
    if schedule.num_ranks != network.num_ranks:
        raise UsageError(
            f"the schedule is for {schedule.num_ranks} ranks, the network has {network.num_ranks}",
            hint=f"--algorithm {schedule.algorithm} --emit FILE writes one for this network",
        )
    return Contender(
        algorithm=schedule.algorithm, params=schedule.params, steps=steps_of(schedule), schedule=schedule
    )


def _grid(network: Network) -> Iterator[tuple[str, Params]]:
    nodes = _nodes(network)
    size, num_ranks = len(nodes[0]), network.num_ranks
    alike = all(len(node) == size for node in nodes)
    yield "ring", {"channels": 1, "pieces": 1}
    if network.reduce_s_per_byte > 0:
        yield "ring", {"channels": 1, "pieces": 2}
    if alike and len(nodes) > 1 and size > 1:
        if 2 * (num_ranks - 1) * num_ranks * size <= MOST_TRANSFERS:
            yield "ring_per_rail", {"groups": nodes}
        for across in ACROSS:
            for pieces in HIERARCHICAL_PIECES:
                yield "hierarchical", {"groups": nodes, "across": across, "pieces": pieces}
    racks = racks_of(network) if alike else None
    if racks is not None:
        for pieces in HIERARCHICAL_PIECES:
            yield "hierarchical", {"groups": racks, "across": "ring", "pieces": pieces}
    for pieces in TREE_PIECES:
        yield "double_binary_tree", {"pieces": pieces}
    for name in ("recursive_doubling", "halving_doubling", "swing", "bine", "parameter_server"):
        yield name, {}
    rows = [rows for rows in range(2, math.isqrt(num_ranks) + 1) if num_ranks % rows == 0]
    if rows:
        yield "torus", {"rows": rows[-1]}


def _known_by_steps(network: Network) -> dict[str, Callable[[int], list[Step]]]:
    """Algorithms whose steps are known without their transfers, on nodes that are runs of neighbours."""
    nodes = _nodes(network)
    size = len(nodes[0])
    in_runs = nodes == [list(range(first, first + size)) for first in range(0, network.num_ranks, size)]
    known = dict(patterns(size))
    if not in_runs or size == 1:
        del known["hierarchical"]
    return known


def _forests(graph: CapacityGraph) -> Iterator[Contender]:
    found = allreduce_forest(graph)
    ways = forest_ways(found)
    for pieces in FOREST_PIECES:
        params: Params = {**forest_params(found), "pieces": pieces}
        schedule = build("forest", params, len(graph.compute))
        yield Contender(
            algorithm="forest", params=params, steps=steps_of(schedule), ways=ways, schedule=schedule
        )


def racks_of(network: Network) -> list[list[list[int]]] | None:
    """Racks of nodes of ranks, where nodes fall into groups of those that are fewest links apart.

    Returns:
        Two or more racks, at least one of several nodes; None where nodes are all as far from each other, or
            have no such groups, or are too many to ask of each.
    """
    nodes = _nodes(network)
    if not 3 <= len(nodes) <= _MAX_NODES_IN_RACKS:
        return None
    at = network.vertex_of_rank[[node[0] for node in nodes]]
    shape = (len(network.vertices), len(network.vertices))
    links = csr_array((np.ones(len(network.tail)), (network.tail, network.head)), shape=shape)
    apart = dijkstra(links, unweighted=True, indices=at)[:, at]
    others = ~np.eye(len(nodes), dtype=bool)
    near = (apart <= apart[others].min()) | ~others
    count, rack = connected_components(csr_array(near))
    if not 1 < count < len(nodes) or not np.array_equal(near, rack[:, None] == rack[None, :]):
        return None
    return [[nodes[number] for number in np.flatnonzero(rack == one)] for one in range(count)]


def _nodes(network: Network) -> list[list[int]]:
    return [list(node) for node in partition_by(network.node_of_rank)]

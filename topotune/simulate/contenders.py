"""The algorithms that are predicted side by side on a network, each with what it can be cut in."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations, product
from typing import Final

from topotune.bounds.allreduce_forest import allreduce_forest, forest_params, is_limited, is_quick
from topotune.bounds.graph import CapacityGraph
from topotune.bounds.servers import dedicated_shares, server_params
from topotune.errors import UsageError, WrongResultError
from topotune.links.placement import Partition, nest, partition_by
from topotune.plan.algorithms import SCHEDULE_ALGORITHMS, check_params
from topotune.plan.grouping import ACROSS
from topotune.schedule.assemble import MAX_TRANSFERS, MAX_WRITTEN_RANKS
from topotune.schedule.blueconnect import factorisations
from topotune.schedule.catalog import build
from topotune.schedule.hierarchical import as_lists
from topotune.schedule.model import Params, Schedule
from topotune.schedule.parameter_server import dedicated_servers, dedicated_servers_of_nodes
from topotune.schedule.verify import verify
from topotune.simulate.levels import levels_of, sides_of
from topotune.simulate.network import Network
from topotune.simulate.patterns import patterns
from topotune.simulate.rails import ring_per_rail
from topotune.simulate.routed import Flow, forest_ways
from topotune.simulate.routes import Ways, is_way_of
from topotune.simulate.steps import Step, steps_of

TREE_PIECES: Final = (1, 4, 16, 64)
HIERARCHICAL_PIECES: Final = (1, 4, 16)
BLUECONNECT_PIECES: Final = (1, 4)
FOREST_PIECES: Final = (1, 8, 64)
MOST_TRANSFERS: Final = 2**20
"""Longest schedule that is offered unasked: longer ones take seconds to build and to prove."""
MOST_TRANSFERS_OF_MANY: Final = 2**18
"""Likewise of an algorithm that comes in many forms."""

ALGORITHMS: Final = (*SCHEDULE_ALGORITHMS, "ring_per_rail", "dedicated_servers")


@dataclass(frozen=True, kw_only=True, eq=False)
class Contender:
    """One algorithm as it would run.

    Attributes:
        algorithm, params: its name and what its generator was given.
        steps: what runs together.
        ways: of messages that bring their own.
        schedule: all transfers; None where there are too many to write down.
        with_servers: whether the network's servers are ranks of it, behind the others.
    """

    algorithm: str
    params: Params
    steps: Sequence[Step]
    ways: Mapping[Flow, Ways] = field(default_factory=dict)
    schedule: Schedule | None = None
    with_servers: bool = False


def contenders(
    network: Network,
    graph: CapacityGraph | None,
    algorithm: str | None = None,
    *,
    served: tuple[CapacityGraph, Sequence[str]] | None = None,
) -> Iterator[Contender]:
    """All that make sense on a network, or those of one name.

    Args:
        network: of 2 ranks at least.
        graph: the same network, for forests; None: there are none.
        algorithm: one of ``ALGORITHMS``; it is then tried whatever it takes.
        served: the same network with its servers, and which vertices these are; None: no shares are known.

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
    for name, params in (*_grid(network), *_servers(graph)):
        if algorithm is not None and name != algorithm:
            continue
        # Of what was asked for the first is taken whatever it takes.
        most = MAX_TRANSFERS if not found and name == algorithm else MOST_TRANSFERS
        if name == "blueconnect" and algorithm is None:
            most = MOST_TRANSFERS_OF_MANY
        if name == "ring_per_rail":
            schedule = ring_per_rail(_nodes(network))
        elif check_params(name, params, network.num_ranks, most_transfers=most, most_ranks=MAX_WRITTEN_RANKS):
            if algorithm is None and name in known:
                found = True
                yield Contender(algorithm=name, params={}, steps=known.pop(name)(network.num_ranks))
            continue
        else:
            schedule = build(name, params, network.num_ranks)
        found = True
        yield Contender(algorithm=name, params=params, steps=steps_of(schedule), schedule=schedule)
    if graph is not None and (algorithm == "forest" or (algorithm is None and is_quick(graph))):
        for contender in _forests(network, graph, is_asked=algorithm is not None):
            found = True
            yield contender
    if network.servers and algorithm in (None, "dedicated_servers"):
        for contender in _dedicated(network, served, is_asked=algorithm is not None):
            found = True
            yield contender
    if not found:
        raise UsageError(
            f"--algorithm {algorithm}: does not fit {network.num_ranks} ranks as they lie",
            hint="--servers N puts machines beside them" if algorithm == "dedicated_servers" else None,
        )


def contender_of(schedule: Schedule, network: Network) -> Contender:
    """A schedule that came from somewhere.

    Raises:
        UsageError: it is for another number of ranks.
    """
    owners, behind = network.num_ranks, tuple(range(network.num_ranks, schedule.num_ranks))
    if schedule.num_owners != owners or (schedule.servers and len(network.servers) != len(behind)):
        raise UsageError(
            f"the schedule is for {_counted(schedule.num_owners, len(schedule.servers))},"
            f" the network has {_counted(owners, len(network.servers))}",
            hint=f"--algorithm {schedule.algorithm} --emit FILE writes one for this network",
        )
    if schedule.servers not in ((), behind):
        raise UsageError(
            "the schedule's servers are not its last ranks", hint="number them behind the others"
        )
    return Contender(
        algorithm=schedule.algorithm,
        params=schedule.params,
        steps=steps_of(schedule),
        schedule=schedule,
        with_servers=bool(schedule.servers),
    )


def _counted(num_owners: int, num_servers: int) -> str:
    return f"{num_owners} ranks" + (f" and {num_servers} servers" if num_servers else "")


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
    levels = levels_of(network)
    for level in levels:
        if list(map(list, level)) != nodes:
            for across, pieces in product(ACROSS, HIERARCHICAL_PIECES):
                groups = [list(group) for group in level]
                yield "hierarchical", {"groups": groups, "across": across, "pieces": pieces}
    for fine, coarse in combinations(levels, 2):
        for pieces in HIERARCHICAL_PIECES:
            yield "hierarchical", {"groups": as_lists(nest(fine, coarse)), "across": "ring", "pieces": pieces}
    for factors, order in _factorisations(network, levels):
        for pieces in BLUECONNECT_PIECES:
            yield "blueconnect", {"factors": factors, "order": order, "pieces": pieces}
    for pieces in TREE_PIECES:
        yield "double_binary_tree", {"pieces": pieces}
    for name in ("recursive_doubling", "halving_doubling", "swing", "bine", "parameter_server"):
        yield name, {}
    rows = [rows for rows in range(2, math.isqrt(num_ranks) + 1) if num_ranks % rows == 0]
    if rows:
        yield "torus", {"rows": rows[-1]}


def _factorisations(network: Network, levels: Sequence[Partition]) -> Iterator[tuple[list[int], list[int]]]:
    """Of levels, or of the sides of a torus, whose order counts only by their lengths."""
    sides = sides_of(network)
    if sides is None:
        yield from factorisations(levels, network.num_ranks)
        return
    seen = set()
    for order in permutations(range(len(sides))):
        lengths = tuple(sides[place] for place in order)
        if lengths not in seen:
            seen.add(lengths)
            yield sides, list(order)


def _known_by_steps(network: Network) -> dict[str, Callable[[int], list[Step]]]:
    """Algorithms whose steps are known without their transfers, on nodes that are runs of neighbours."""
    nodes = _nodes(network)
    size = len(nodes[0])
    in_runs = nodes == [list(range(first, first + size)) for first in range(0, network.num_ranks, size)]
    known = dict(patterns(size))
    if not in_runs or size == 1:
        del known["hierarchical"]
    return known


def _servers(graph: CapacityGraph | None) -> Iterator[tuple[str, Params]]:
    params = None if graph is None else server_params(graph)
    if params is not None:
        for pieces in FOREST_PIECES:
            yield "parameter_server", {**params, "pieces": pieces}


def _dedicated(
    network: Network, served: tuple[CapacityGraph, Sequence[str]] | None, *, is_asked: bool
) -> Iterator[Contender]:
    num_owners, num_servers = network.num_ranks, len(network.servers)
    shares = None if served is None else dedicated_shares(*served)
    nodes = _nodes(network)
    size = max(map(len, nodes))
    serving = num_servers * size if shares is None else sum(share > 0 for share in shares)
    if num_owners + num_servers > MAX_WRITTEN_RANKS:
        return
    for pieces in FOREST_PIECES:
        if 2 * num_owners * serving * pieces > (
            MAX_TRANSFERS if is_asked and pieces == 1 else MOST_TRANSFERS
        ):
            continue
        if size > 1:
            schedule = dedicated_servers_of_nodes(nodes, num_servers, pieces=pieces)
        else:
            schedule = dedicated_servers(num_owners, num_servers, shares=shares, pieces=pieces)
        if problems := verify(schedule):
            raise WrongResultError(f"dedicated_servers is no allreduce: {problems[0].message}")
        yield Contender(
            algorithm=schedule.algorithm,
            params=schedule.params,
            steps=steps_of(schedule),
            schedule=schedule,
            with_servers=True,
        )


def _forests(network: Network, graph: CapacityGraph, *, is_asked: bool) -> Iterator[Contender]:
    if not is_limited(graph):
        return
    found = allreduce_forest(graph)
    # Where links of unknown rate make several vertices one in the graph, its ways are none of the network.
    ways = {flow: way for flow, way in forest_ways(found).items() if is_way_of(network, *flow[1:], way)}
    num_ranks, trees = network.num_ranks, forest_params(found)
    for pieces in FOREST_PIECES:
        params: Params = {**trees, "pieces": pieces}
        most = MAX_TRANSFERS if is_asked and pieces == 1 else MOST_TRANSFERS
        if check_params("forest", params, num_ranks, most_transfers=most, most_ranks=MAX_WRITTEN_RANKS):
            continue
        schedule = build("forest", params, num_ranks)
        yield Contender(
            algorithm="forest", params=params, steps=steps_of(schedule), ways=ways, schedule=schedule
        )


def _nodes(network: Network) -> list[list[int]]:
    return [list(node) for node in partition_by(network.node_of_rank)]

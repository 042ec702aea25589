import itertools

import networks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from topotune.bounds import CapacityGraph, allgather_bound, allreduce_lp, graph_allreduce_bound
from topotune.bounds.cut_planes import allreduce_by_cuts
from topotune.bounds.symmetry import likeness


@st.composite
def graphs(draw):
    """Two to four hosts, up to two switches, joined in a line and by some more links, one way or both."""
    hosts = [f"h{number}" for number in range(draw(st.integers(2, 4)))]
    vertices = [*hosts, *(f"s{number}" for number in range(draw(st.integers(0, 2))))]
    order = draw(st.permutations(vertices))
    rate = st.integers(1, 9)
    capacities = {}
    for a, b in itertools.pairwise(order):
        capacities[a, b], capacities[b, a] = draw(rate), draw(rate)
    pairs = st.tuples(st.sampled_from(vertices), st.sampled_from(vertices))
    for a, b in draw(st.lists(pairs.filter(lambda pair: pair[0] != pair[1]), max_size=5)):
        capacities[a, b] = draw(rate)
    return CapacityGraph(capacities=capacities, compute=tuple(hosts))


def by_all_cuts(graph, adding):
    """The programme with a condition for every set of vertices, written down from its definition."""
    hosts = [*sorted(graph.hosts), *sorted(adding)]
    arcs, vertices = list(graph.capacities), graph.vertices
    num_columns = len(hosts) + 2 * len(arcs)
    at_most, limits, equal = [], [], []
    for number, arc in enumerate(arcs):
        row = np.zeros(num_columns)
        row[len(hosts) + number] = row[len(hosts) + len(arcs) + number] = 1
        at_most.append(row)
        limits.append(graph.capacities[arc])
    for part in (0, 1):
        first = len(hosts) + part * len(arcs)
        for size in range(1, len(vertices)):
            for side in itertools.combinations(vertices, size):
                if graph.hosts <= set(side):
                    continue
                row = np.zeros(num_columns)
                row[: len(hosts)] = [host in side for host in hosts]
                for number, arc in enumerate(arcs):
                    a, b = arc if part == 0 else arc[::-1]
                    row[first + number] = -float(a in side and b not in side)
                at_most.append(row)
                limits.append(0)
        for vertex in adding:
            row = np.zeros(num_columns)
            for number, arc in enumerate(arcs):
                a, b = arc if part == 0 else arc[::-1]
                row[first + number] = float(a == vertex) - (len(graph.hosts) - 1) * float(b == vertex)
            for root in adding:
                row[hosts.index(root)] = -len(graph.hosts) if root == vertex else -1
            at_most.append(row)
            limits.append(0)
        for switch in set(vertices) - graph.hosts - adding:
            row = np.zeros(num_columns)
            row[first : first + len(arcs)] = [(b == switch) - (a == switch) for a, b in arcs]
            equal.append(row)
    objective = np.zeros(num_columns)
    objective[: len(hosts)] = -1
    found = linprog(
        objective, A_ub=at_most, b_ub=limits, A_eq=equal or None, b_eq=[0] * len(equal) if equal else None
    )
    return -found.fun


@settings(max_examples=25, deadline=None)
@given(graphs(), st.booleans())
def test_both_programmes_give_what_all_cuts_together_give(graph, adds):
    adding = frozenset(graph.vertices) - graph.hosts if adds else frozenset()
    expected = by_all_cuts(graph, adding)
    found = allreduce_by_cuts(graph, likeness(graph, adding), adding=adding)
    assert found.is_optimum
    assert found.algbw_bytes_per_s == pytest.approx(expected, rel=1e-5)
    if expected > 1e-9 and not adding:
        assert allreduce_lp(graph).algbw_bytes_per_s == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("graph", "optimum"),
    [
        pytest.param(networks.grid(3, 3, 25), 37.5, id="3x3 mesh"),
        pytest.param(networks.grid(5, 5, 25), 41.667, id="5x5 mesh"),
        pytest.param(networks.star([2500] * 20 + [1250] * 20), 20 * 3750 / 78, id="20 + 20 hosts"),
        pytest.param(networks.racks(4, 16, 3125, 9000), 64 * 3125 / 126, id="4 racks x 16"),
    ],
)
def test_optimum_is_the_known_one(graph, optimum):
    found = allreduce_by_cuts(graph, likeness(graph))
    assert found.is_optimum
    assert found.algbw_bytes_per_s == pytest.approx(optimum, rel=1e-4)


def test_a_bound_on_the_way_is_never_below_the_optimum():
    graph = networks.grid(4, 4, 25)
    graph = CapacityGraph(
        capacities={
            arc: 1000 * rate + 7 * number for number, (arc, rate) in enumerate(graph.capacities.items())
        },
        compute=graph.compute,
    )
    best = allreduce_by_cuts(graph, likeness(graph)).algbw_bytes_per_s
    alike = likeness(graph)
    early = [
        *(allreduce_by_cuts(graph, alike, max_rounds=rounds) for rounds in (1, 2, 4)),
        *(allreduce_by_cuts(graph, alike, max_cells=cells) for cells in (1, 10_000)),
    ]
    assert all(found.algbw_bytes_per_s >= best * (1 - 1e-9) for found in early)
    assert not any(found.is_optimum for found in early)


def test_optimum_of_forty_unequal_hosts_in_racks_is_exact():
    graph = networks.racks(4, 10, 3000, 9000)
    capacities = dict(graph.capacities)
    for number, host in enumerate(sorted(graph.hosts)):
        for a, b in list(graph.capacities):
            if host in (a, b):
                capacities[a, b] = 3000 + 10 * number
    uneven = CapacityGraph(capacities=capacities, compute=graph.compute)
    bound = graph_allreduce_bound(uneven)
    assert bound.exact
    assert bound.s_per_byte <= 2 * float(allgather_bound(uneven).inverse_rate) / 40 * (1 + 1e-6)


def test_a_graph_that_is_too_large_is_left_to_its_tightest_cuts():
    graph = networks.racks(8, 30, 3000, 9000)
    capacities = {arc: rate + number for number, (arc, rate) in enumerate(graph.capacities.items())}
    uneven = CapacityGraph(capacities=capacities, compute=graph.compute)
    assert allreduce_by_cuts(uneven, likeness(uneven)) is None
    bound = graph_allreduce_bound(uneven)
    assert not bound.exact
    assert bound.s_per_byte > 0


@pytest.mark.parametrize("num_hosts", [2, 3, 4])
def test_what_one_vertex_adds_another_may_copy_to_all_hosts(num_hosts):
    """Hosts send to a, which adds; b copies the sum to all: each link carries the message once."""
    hosts = tuple(f"h{number}" for number in range(num_hosts))
    capacities = {("a", "b"): 10} | {(host, "a"): 10 for host in hosts} | {("b", host): 10 for host in hosts}
    graph = CapacityGraph(capacities=capacities, compute=hosts)
    adding = frozenset("ab")
    found = allreduce_by_cuts(graph, likeness(graph, adding), adding=adding)
    assert found.algbw_bytes_per_s == pytest.approx(10)

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import DGX1V, MI250, grid, meshed_boxes, ndv2, racks, star, switched_boxes

from topotune.bounds import (
    CapacityGraph,
    allgather_bound,
    allreduce_forest,
    forest_params,
    graph_allreduce_bound,
    spanning_forest,
)
from topotune.schedule.forest import forest
from topotune.schedule.verify import verify


def check_fits(found, graph):
    """Spanning trees, as many out of each host as it wants, over ways that exist and carry them."""
    load = Counter()
    per_pair = Counter()
    for tree in found.trees:
        assert tree.height < len(found.hosts), "a tree has no circle"
        for host, parent in enumerate(tree.parents):
            if parent >= 0:
                per_pair[parent, host] += tree.multiplicity
    assert {pair: sum(units for _, units in ways) for pair, ways in found.routes.items()} == per_pair
    for (src, dst), ways in found.routes.items():
        for way, units in ways:
            assert (way[0], way[-1]) == (found.hosts[src], found.hosts[dst])
            for arc in pairwise(way):
                load[arc] += units
    for arc, units in load.items():
        assert units <= found.units_per_byte_per_s * graph.capacities[arc]


NETWORKS = {
    "DGX-1V": meshed_boxes(DGX1V, 25),
    "DGX-1V 0 1 4 5": meshed_boxes(DGX1V, 25, subset={0, 1, 4, 5}),
    "DGX-1V 0 1 2 4": meshed_boxes(DGX1V, 25, subset={0, 1, 2, 4}),
    "DGX-1V 1 4 5 7": meshed_boxes(DGX1V, 25, subset={1, 4, 5, 7}),
    "A100 2x8": switched_boxes(2, 8, 300, 25, rails=2),
    "MI250 1x16": meshed_boxes(MI250, 50),
    "NDv2 2x8": ndv2(2),
    "racks 8:1": racks(2, 4, 25, 12),
    "torus": grid(4, 4, 25, wrap=True),
    "one slow host": star([20, 20, 5, 20]),
}


@pytest.mark.parametrize("graph", NETWORKS.values(), ids=NETWORKS)
def test_the_exact_forest_reaches_the_optimum_and_fits_the_network(graph):
    found = spanning_forest(graph)
    check_fits(found, graph)
    assert found.algbw_bytes_per_s == pytest.approx(allgather_bound(graph).algbw_bytes_per_s, rel=1e-12)
    roots = Counter()
    for tree in found.trees:
        roots[tree.root] += tree.multiplicity
    assert len(set(roots.values())) == 1
    assert len(roots) == len(graph.compute)


@pytest.mark.parametrize(
    ("graph", "trees_per_rank", "algbw"),
    [
        pytest.param(meshed_boxes(MI250, 50, num_boxes=2, nic_rate=16), 1, 320, id="MI250 2x16"),
        pytest.param(switched_boxes(2, 8, 300, 25, rails=2), 1, 342.86, id="A100 2x8"),
        pytest.param(meshed_boxes(DGX1V, 25), 2, 160, id="DGX-1V"),
    ],
)
def test_with_few_trees_the_forest_is_the_best_for_their_number(graph, trees_per_rank, algbw):
    found = spanning_forest(graph, trees_per_rank=trees_per_rank)
    check_fits(found, graph)
    assert found.algbw_bytes_per_s == pytest.approx(algbw, rel=1e-4)


@pytest.mark.slow
def test_the_exact_forest_of_two_mi250_boxes():
    graph = meshed_boxes(MI250, 50, num_boxes=2, nic_rate=16)
    found = spanning_forest(graph)
    check_fits(found, graph)
    assert found.algbw_bytes_per_s == pytest.approx(354.13, abs=0.005)
    assert found.num_trees == 32 * 83


@st.composite
def random_networks(draw):
    """Strongly connected, with as much in as out at the switch."""
    num_hosts = draw(st.integers(2, 5))
    hosts = [f"h{i}" for i in range(num_hosts)]
    capacities = {}
    for host in hosts:
        rate = draw(st.integers(1, 6))
        capacities[host, "switch"] = capacities["switch", host] = rate
    for _ in range(draw(st.integers(0, 4))):
        a, b = draw(st.sampled_from(hosts)), draw(st.sampled_from(hosts))
        if a != b:
            capacities[a, b] = draw(st.integers(1, 6))
    compute = hosts + draw(st.lists(st.sampled_from(hosts), max_size=3))
    return CapacityGraph(capacities=capacities, compute=tuple(compute))


@settings(max_examples=60, deadline=None)
@given(random_networks())
def test_any_network_has_a_forest_that_reaches_its_optimum(graph):
    found = spanning_forest(graph)
    check_fits(found, graph)
    assert found.algbw_bytes_per_s == pytest.approx(allgather_bound(graph).algbw_bytes_per_s, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(random_networks())
def test_any_network_has_an_allreduce_forest_within_its_links_and_its_bound(graph):
    found = allreduce_forest(graph)
    check_fits(found.copying, graph)
    check_fits(found.adding, reverse(graph))
    both = Counter()
    for part, turn in ((found.copying, 1), (found.adding, -1)):
        for ways in part.routes.values():
            for way, units in ways:
                for arc in pairwise(way[::turn]):
                    both[arc] += units
    assert all(units <= found.copying.units_per_byte_per_s * graph.capacities[a] for a, units in both.items())
    bound = graph_allreduce_bound(graph)
    assert found.algbw_bytes_per_s <= (1 + 1e-6) / bound.s_per_byte
    assert not verify(forest(**forest_params(found)))


def reverse(graph):
    return CapacityGraph(
        capacities={(b, a): c for (a, b), c in graph.capacities.items()}, compute=graph.compute
    )


@pytest.mark.parametrize(
    ("graph", "share"),
    [
        pytest.param(star([10] * 7 + [5]), 0.99, id="one at half of 8"),
        pytest.param(star([20] * 4 + [10] * 4), 0.99, id="two kinds of hosts"),
        pytest.param(star([20, 20, 5, 20]), 0.99, id="one at a quarter of 4"),
        pytest.param(grid(3, 3, 25), 0.98, id="mesh"),
        pytest.param(meshed_boxes(DGX1V, 25), 0.99, id="DGX-1V"),
        pytest.param(racks(2, 4, 25, 12), 0.98, id="racks 8:1"),
        pytest.param(switched_boxes(2, 8, 300, 25, rails=2), 0.98, id="A100 2x8"),
    ],
)
def test_the_allreduce_forest_comes_close_to_the_optimum_where_hosts_differ(graph, share):
    found = allreduce_forest(graph)
    optimum = 1.0 / graph_allreduce_bound(graph).s_per_byte
    assert share * optimum <= found.algbw_bytes_per_s <= optimum * (1 + 1e-6)


def test_where_hosts_differ_the_forest_beats_twice_the_allgather():
    graph = star([20, 20, 5, 20])
    halves = spanning_forest(graph).algbw_bytes_per_s / 2
    assert allreduce_forest(graph).algbw_bytes_per_s >= 1.45 * halves


def test_ranks_of_a_host_take_turns_at_speaking_for_it():
    graph = CapacityGraph(
        capacities={("a", "s"): 10, ("s", "a"): 10, ("b", "s"): 10, ("s", "b"): 10},
        compute=("a", "a", "b", "b"),
    )
    params = forest_params(allreduce_forest(graph))
    schedule = forest(**params)
    assert not verify(schedule)
    roots = [parents.index(-1) for parents in params["down"]]
    assert sorted(set(roots)) == [0, 1, 2, 3]
    crossing = sum(
        1 for parents in params["down"] for r, p in enumerate(parents) if p >= 0 and (r < 2) != (p < 2)
    )
    assert crossing == len(roots), "each tree crosses between the hosts once"


def test_a_switch_out_of_balance_is_refused_by_name():
    graph = CapacityGraph(
        capacities={("a", "s"): 10, ("s", "a"): 9, ("b", "s"): 10, ("s", "b"): 10}, compute=("a", "b")
    )
    with pytest.raises(ValueError, match="20 bytes/s enter 's' and 19 leave it"):
        spanning_forest(graph)


def test_units_are_the_fewest_for_the_number_of_trees():
    found = spanning_forest(star([10, 10, 10]), trees_per_rank=1)
    assert found.units_per_byte_per_s == Fraction(2, 10)

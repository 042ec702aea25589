"""Pairs of trees against all trees there are, in whole fractions, and links that are far from alike."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import scipy
from exact_packing import exact_algbw, leads_to
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Net, grid, ndv2, racks, star, unlike_boxes, unlike_racks

from topotune.bounds import CapacityGraph, allreduce_forest, allreduce_lp, graph_allreduce_bound
from topotune.bounds.allreduce_forest import MAX_LINKS, is_limited, is_quick
from topotune.bounds.arborescence import cheapest_trees
from topotune.bounds.cut import tightest_split
from topotune.bounds.cut_planes import CutPlanes, allreduce_by_cuts
from topotune.bounds.symmetry import likeness
from topotune.bounds.tree_pairs import pack_pairs
from topotune.errors import UsageError


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), st.data())
def test_no_tree_out_of_any_root_is_cheaper(size, data):
    costs = np.array(data.draw(st.lists(st.integers(0, 5), min_size=size**2, max_size=size**2)), dtype=float)
    costs = costs.reshape(size, size)
    found = cheapest_trees(costs)
    for root in range(size):
        others = [vertex for vertex in range(size) if vertex != root]
        assert found[root, root] == -1
        assert all(leads_to(one, root, {v: int(found[root, v]) for v in others}) for one in others)
        cheapest = min(
            sum(costs[parent, vertex] for vertex, parent in above.items())
            for above in (
                dict(zip(others, parents, strict=True)) for parents in product(range(size), repeat=size - 1)
            )
            if all(leads_to(one, root, above) for one in others)
        )
        assert sum(costs[found[root, vertex], vertex] for vertex in others) == cheapest


def test_circles_within_circles_are_opened_for_every_root():
    """Costs fall along a line: each vertex's cheapest arc leads into the circle of all before it."""
    size = 40
    out, enter = np.arange(size, 0, -1.0), np.linspace(0.0, 1.0, size)
    found = cheapest_trees(out[:, None] + enter[None, :])
    for root in range(size - 1):
        assert found[root, size - 1] == root
        assert all(found[root, v] == size - 1 for v in range(size - 1) if v != root)
    assert all(found[size - 1, v] == size - 1 for v in range(size - 1))


RATE = st.builds(lambda digits, zeros: digits * 10**zeros, st.integers(1, 99), st.integers(0, 8))


@st.composite
def far_from_alike(draw):
    """Three hosts on one switch or in two racks, with rates up to a thousand million times apart."""
    hosts = ("a", "b", "c")
    rack = dict.fromkeys(hosts, "s") if draw(st.booleans()) else {"a": "s", "b": "s", "c": "t"}
    pairs = [(host, rack[host]) for host in hosts] + ([("s", "t")] if rack["c"] == "t" else [])
    alike = draw(st.booleans())
    capacities = {}
    for a, b in pairs:
        capacities[a, b] = draw(RATE)
        capacities[b, a] = capacities[a, b] if alike else draw(RATE)
    return CapacityGraph(capacities=capacities, compute=hosts)


@settings(max_examples=30, deadline=None)
@given(far_from_alike())
def test_the_optimum_is_right_however_far_rates_are_apart(graph):
    exact = exact_algbw(graph)
    cuts = allreduce_by_cuts(graph, likeness(graph))
    assert cuts.is_optimum
    assert cuts.algbw_bytes_per_s == pytest.approx(float(exact), rel=1e-6)
    assert allreduce_lp(graph).algbw_bytes_per_s == pytest.approx(float(exact), rel=1e-6)
    bound = graph_allreduce_bound(graph)
    assert bound.s_per_byte <= float(1 / exact) * (1 + 1e-6)
    if bound.exact:
        assert bound.s_per_byte == pytest.approx(float(1 / exact), rel=1e-6)
    found = allreduce_forest(graph)
    assert 0.98 * float(exact) <= found.algbw_bytes_per_s <= float(exact) * (1 + 1e-9)


def test_four_hosts_ten_million_times_apart_have_their_exact_optimum():
    net = Net()
    for host, rack, rate in (("a", "s", 7), ("b", "s", 5 * 10**7), ("c", "t", 3), ("d", "t", 9 * 10**7)):
        net.compute.append(host)
        net.join(host, rack, rate)
    net.join("s", "t", 4)
    graph = net.graph()
    assert 1 / graph_allreduce_bound(graph).s_per_byte == pytest.approx(float(exact_algbw(graph)), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(far_from_alike())
def test_prices_prove_the_optimum(graph):
    """What the links bring at the prices is the rate: no other prices prove a lower one."""
    cuts = allreduce_by_cuts(graph, likeness(graph))
    most = 2 * len(graph.hosts) * cuts.algbw_bytes_per_s
    brings = sum(price * min(most, graph.capacities[arc]) for arc, price in cuts.prices.items())
    assert brings == pytest.approx(cuts.algbw_bytes_per_s, rel=1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(star([10] * 7 + [5]), id="one at half of 8"),
        pytest.param(racks(2, 4, 25, 12), id="racks 8:1"),
        pytest.param(grid(3, 3, 25), id="mesh"),
        pytest.param(ndv2(2), id="one-way links"),
    ],
)
def test_pairs_keep_within_the_links_and_share_the_whole_message(graph):
    cuts = allreduce_by_cuts(graph, likeness(graph))
    found = pack_pairs(graph, cuts, close=0.995, max_rounds=20)
    assert sum(pair.share for pair in found.pairs) == pytest.approx(1)
    assert 0.99 * cuts.algbw_bytes_per_s <= found.algbw_bytes_per_s
    load = dict.fromkeys(graph.capacities, 0.0)
    for pair in found.pairs:
        for ways, parents, is_up in ((pair.ways_up, pair.up, True), (pair.ways_down, pair.down, False)):
            for host, way in ways.items():
                ends = (found.hosts[host], found.hosts[parents[host]])
                assert (way[0], way[-1]) == (ends if is_up else ends[::-1])
                assert not graph.hosts & set(way[1:-1]), "ways lead through switches alone"
                for arc in pairwise(way):
                    load[arc] += pair.share * found.algbw_bytes_per_s
    assert all(load[arc] <= capacity * (1 + 1e-6) for arc, capacity in graph.capacities.items())


def test_where_all_hosts_are_alike_each_owns_its_part_of_a_low_tree():
    graph = star([10] * 8)
    found = pack_pairs(graph, allreduce_by_cuts(graph, likeness(graph)), close=0.995, max_rounds=20)
    assert sorted(pair.root for pair in found.pairs) == list(range(8))
    assert all(pair.share == pytest.approx(1 / 8) for pair in found.pairs)
    assert all(set(pair.up) == {-1, pair.root} for pair in found.pairs)


def test_without_prices_to_begin_with_pairs_come_close_as_well():
    graph = unlike_racks([[100, 25, 25], [50, 50, 25]], 60)
    optimum = allreduce_by_cuts(graph, likeness(graph)).algbw_bytes_per_s
    blind = CutPlanes(
        algbw_bytes_per_s=float(tightest_split(graph)[0]),
        is_optimum=False,
        prices=dict.fromkeys(graph.capacities, 0.0),
    )
    found = pack_pairs(graph, blind, close=0.998, max_rounds=20)
    assert 0.98 * optimum <= found.algbw_bytes_per_s <= optimum * (1 + 1e-9)


def test_shares_are_cut_fine_enough_for_thin_links_beside_wide_ones():
    """What a rail of 2 in 1,000 of the other's rate carries is no whole number of the first units tried."""
    found = allreduce_forest(unlike_boxes([[10000, 20]] * 3, 2, 400_000))
    assert found.algbw_bytes_per_s >= 0.995 * found.optimum_algbw_bytes_per_s


def test_too_many_hosts_are_refused_with_the_limit():
    with pytest.raises(UsageError, match="a forest for 97 nodes: there can be 96 of them"):
        allreduce_forest(star([10] * 97))


def test_where_a_few_equal_trees_do_not_fit_shares_are_finer():
    """Of two ways, one carries an eighth of the other: no whole number of up to 8 trees fills both."""
    net = Net()
    net.compute += ["a", "b"]
    net.join("a", "b", 1000)
    net.join("a", "s", 130)
    net.join("s", "b", 130)
    found = allreduce_forest(net.graph())
    assert found.algbw_bytes_per_s >= 0.99 * found.optimum_algbw_bytes_per_s


@pytest.mark.parametrize("calls_that_solve", [0, 1])
def test_where_the_solver_gives_up_pairs_fit_the_links_all_the_same(monkeypatch, calls_that_solve):
    graph = grid(3, 3, 25)
    optimum = allreduce_by_cuts(graph, likeness(graph))
    blind = replace(optimum, prices=dict.fromkeys(graph.capacities, 0.0))
    solve, calls = scipy.optimize.linprog, []

    def gives_up(*args, **kwargs):
        calls.append(args)
        solution = solve(*args, **kwargs)
        if len(calls) > calls_that_solve:
            solution.status = 4
        return solution

    monkeypatch.setattr(scipy.optimize, "linprog", gives_up)
    found = pack_pairs(graph, blind, close=1.1, max_rounds=2)
    assert 0 < found.algbw_bytes_per_s <= optimum.algbw_bytes_per_s * (1 + 1e-6)
    assert sum(pair.share for pair in found.pairs) == pytest.approx(1)


def test_too_many_links_are_refused_and_not_tried_unasked():
    net = Net()
    net.compute += ["a", "b"]
    for number in range(MAX_LINKS // 4 + 1):
        net.join("a", f"s{number}", 10)
        net.join(f"s{number}", "b", 10)
    graph = net.graph()
    assert not is_quick(graph)
    with pytest.raises(
        UsageError, match=f"a forest for {len(graph.capacities)} links: there can be {MAX_LINKS}"
    ):
        allreduce_forest(graph)


def test_ranks_apart_have_no_forest():
    net = Net()
    net.compute += ["a", "b"]
    net.join("a", "s", 10)
    net.join("b", "t", 10)
    assert not is_limited(net.graph())
    assert is_limited(star([10] * 2))
    with pytest.raises(ValueError, match="cannot all reach each other"):
        allreduce_forest(net.graph())

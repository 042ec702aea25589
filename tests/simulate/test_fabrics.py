"""Fabrics with routes by formula, algorithms that are steps alone: the same as when searched and written."""

from dataclasses import replace

import numpy as np
import pytest

from topotune.errors import UsageError
from topotune.schedule.catalog import build
from topotune.simulate.fabrics import dragonfly, switched_nodes, torus
from topotune.simulate.patterns import hierarchical_steps, patterns
from topotune.simulate.routed import predict_routed, predict_steps
from topotune.simulate.routes import shortest_routes

SIZES = (0, 1000, 2**20, 2**30)
COSTS = {"call_overhead_s": 1e-5, "reduce_s_per_byte": 1e-11}
FABRICS = {
    "fat tree 4:1": switched_nodes(
        8,
        4,
        inside_bytes_per_s=300e9,
        nic_bytes_per_s=25e9,
        nodes_per_leaf=2,
        oversubscription=4,
        **COSTS,
    ),
    "rails": switched_nodes(
        8, 4, inside_bytes_per_s=300e9, nic_bytes_per_s=25e9, nodes_per_leaf=4, rails=True, **COSTS
    ),
    "torus 8x4": torus((8, 4), link_bytes_per_s=25e9, **COSTS),
    "torus 4x4x4": torus((4, 4, 4), link_bytes_per_s=25e9, **COSTS),
    "dragonfly": dragonfly(
        4, 4, 4, rank_bytes_per_s=25e9, local_bytes_per_s=20e9, global_bytes_per_s=50e9, **COSTS
    ),
}
SEARCHED = [name for name in FABRICS if name != "dragonfly"]


def loads(routes, num_pairs):
    """{(pair, link): share}, and latencies."""
    rows = zip(routes.pair.tolist(), routes.link.tolist(), routes.share.tolist(), strict=True)
    return {(pair, link): pytest.approx(share) for pair, link, share in rows}, routes.latency_s.tolist()


@pytest.mark.parametrize("name", SEARCHED)
def test_routes_by_formula_are_those_that_a_search_finds(name):
    network = FABRICS[name]
    src, dst = np.divmod(np.arange(network.num_ranks**2), network.num_ranks)
    by_formula, latency_s = loads(shortest_routes(network, src, dst), len(src))
    searched, again_s = loads(shortest_routes(replace(network, own_routes=None), src, dst), len(src))
    assert by_formula == searched
    assert latency_s == pytest.approx(again_s)


def test_minimal_ways_of_a_dragonfly_lead_from_end_to_end():
    network = FABRICS["dragonfly"]
    src, dst = np.divmod(np.arange(network.num_ranks**2), network.num_ranks)
    routes = shortest_routes(network, src, dst)
    at = src.copy()
    for pair, link in zip(routes.pair.tolist(), routes.link.tolist(), strict=True):
        assert network.tail[link] == at[pair]
        at[pair] = network.head[link]
    assert (at == dst).all()
    assert np.bincount(routes.pair).max() <= 5


@pytest.mark.parametrize("algorithm", patterns(1))
@pytest.mark.parametrize("name", FABRICS)
def test_steps_alone_take_exactly_what_the_written_schedule_takes(name, algorithm):
    network = FABRICS[name]
    n, size = network.num_ranks, 4
    nodes = [list(range(first, first + size)) for first in range(0, n, size)]
    params = {"groups": nodes} if algorithm == "hierarchical" else {}
    # Written out, routes searched where they can be, and no use made of symmetry.
    plain = replace(network, lines=(), own_routes=network.own_routes if name == "dragonfly" else None)
    written = predict_routed(build(algorithm, params, n), plain, SIZES)
    assert predict_steps(patterns(size)[algorithm](n), network, SIZES) == pytest.approx(written, rel=1e-9)


@pytest.mark.parametrize("num_nodes", [3, 5, 6])
@pytest.mark.parametrize("algorithm", patterns(1))
def test_steps_alone_fold_numbers_that_are_no_power_of_two_alike(num_nodes, algorithm):
    network = switched_nodes(
        num_nodes, 3, inside_bytes_per_s=3e9, nic_bytes_per_s=1e9, nodes_per_leaf=num_nodes, **COSTS
    )
    n = network.num_ranks
    nodes = [list(range(first, first + 3)) for first in range(0, n, 3)]
    params = {"groups": nodes} if algorithm == "hierarchical" else {}
    written = predict_routed(build(algorithm, params, n), network, SIZES)
    assert predict_steps(patterns(3)[algorithm](n), network, SIZES) == pytest.approx(written, rel=1e-9)


@pytest.mark.parametrize("across", ["recursive_doubling", "halving_doubling"])
def test_hierarchies_across_by_doubling_agree_too(across):
    network = FABRICS["fat tree 4:1"]
    groups = [list(range(first, first + 4)) for first in range(0, 32, 4)]
    written = predict_routed(build("hierarchical", {"groups": groups, "across": across}, 32), network, SIZES)
    assert predict_steps(hierarchical_steps(32, 4, across), network, SIZES) == pytest.approx(
        written, rel=1e-9
    )


def test_65536_ranks_are_simulated_and_oversubscription_shows():
    def time_s(oversubscription):
        network = switched_nodes(
            8192,
            8,
            inside_bytes_per_s=450e9,
            nic_bytes_per_s=50e9,
            nodes_per_leaf=32,
            oversubscription=oversubscription,
        )
        return [
            float(predict_steps(patterns(8)[name](65536), network, [2**30])[0])
            for name in ("ring", "recursive_doubling")
        ]

    free, narrow = time_s(1), time_s(4)
    assert narrow[0] == pytest.approx(free[0])  # one flow leaves each leaf
    assert narrow[1] > 2 * free[1]  # all flows do, in 8 of 16 steps


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: torus((2, 4), link_bytes_per_s=1e9), "sides are at least 3"),
        (
            lambda: switched_nodes(3, 2, inside_bytes_per_s=1, nic_bytes_per_s=1, nodes_per_leaf=2),
            "3 nodes do not fill leaves of 2",
        ),
        (
            lambda: switched_nodes(2, 0, inside_bytes_per_s=1, nic_bytes_per_s=1, nodes_per_leaf=2),
            "ranks per node is 0",
        ),
        (
            lambda: dragonfly(1, 2, 2, rank_bytes_per_s=1, local_bytes_per_s=1, global_bytes_per_s=1),
            "a dragonfly of 1 groups",
        ),
        (lambda: hierarchical_steps(10, 4), "10 ranks are no whole number of nodes of 4"),
    ],
)
def test_fabrics_that_cannot_be_are_refused(make, says):
    with pytest.raises(UsageError, match=says):
        make()

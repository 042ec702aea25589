"""Forests reach their rate in the simulation, where all their messages share the network's links."""

import pytest
from networks import (
    DGX1V,
    MI250,
    grid,
    meshed_boxes,
    ndv2,
    racks,
    star,
    switched_boxes,
    unlike_boxes,
    unlike_racks,
)

from topotune.bounds import allreduce_forest, forest_params
from topotune.schedule.forest import forest
from topotune.simulate.network import network_of_graph
from topotune.simulate.routed import forest_ways, predict_routed

LARGE_BYTES = 2**30
PIECES, MORE_PIECES = 512, 1024

NETWORKS = {
    "DGX-1V": meshed_boxes(DGX1V, 25),
    "DGX-1V 0 1 4 5": meshed_boxes(DGX1V, 25, subset={0, 1, 4, 5}),
    "DGX-1V 0 1 2 4": meshed_boxes(DGX1V, 25, subset={0, 1, 2, 4}),
    "DGX-1V 1 4 5 7": meshed_boxes(DGX1V, 25, subset={1, 4, 5, 7}),
    "racks 8:1": racks(2, 4, 25, 12),
    "one degraded host": star([40, 40, 10, 40]),
    "NDv2 2x8": ndv2(2),
    "racks, one degraded host": unlike_racks([[12, 25, 25, 25], [25] * 4], 40),
    "racks, thin uplinks, one degraded host": unlike_racks([[6, 25], [25, 25]], 12),
    "racks, hosts of three rates": unlike_racks([[100, 25, 25, 25], [50, 50, 25, 25]], 60),
    "boxes, one NIC at half": unlike_boxes([[25, 25], [25, 12], [25, 25]], 2, 100),
}
LARGER = {
    "DGX A100 2x8": switched_boxes(2, 8, 300, 25, rails=2),
    "MI250 1x16": meshed_boxes(MI250, 50),
    "torus 4x4": grid(4, 4, 25, wrap=True),
    "racks 4x6, hosts of three rates": unlike_racks([[100, 50, 50, 25, 25, 25]] * 3 + [[50] * 6], 150),
    "boxes of 4, one NIC at half": unlike_boxes([[25, 25], [25, 12], [25, 25], [25, 25]], 4, 100),
}


def simulated_share(graph, pieces):
    """Of the optimum, and of what the forest's own number of trees allows."""
    found = allreduce_forest(graph)
    schedule = forest(pieces=pieces, **forest_params(found))
    network = network_of_graph(graph, latency_s=1e-9)
    (time_s,) = predict_routed(schedule, network, [LARGE_BYTES], ways=forest_ways(found))
    return LARGE_BYTES / time_s / found.optimum_algbw_bytes_per_s


@pytest.mark.parametrize("graph", NETWORKS.values(), ids=NETWORKS)
def test_a_forest_comes_within_two_per_cent_of_the_optimum(graph):
    assert 0.98 <= simulated_share(graph, PIECES) <= 1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("graph", LARGER.values(), ids=LARGER)
def test_a_forest_of_many_trees_comes_within_two_per_cent_of_the_optimum(graph):
    assert 0.98 <= simulated_share(graph, MORE_PIECES) <= 1 + 1e-6

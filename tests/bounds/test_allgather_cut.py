from fractions import Fraction

import networks
import pytest

from topotune.bounds import CapacityGraph, allgather_bound, reduce_scatter_bound, tightest_split

# Published or independently solved optima to all printed digits, GB/s: all ranks' parts together, per second.
OPTIMA = [
    pytest.param(networks.switched_boxes(1, 8, 300, 0), 1, "342.86", id="DGX A100 1x8"),
    pytest.param(networks.switched_boxes(2, 8, 300, 25, rails=2), 1, "346.67", id="DGX A100 2x8"),
    pytest.param(networks.switched_boxes(4, 8, 300, 25, rails=2), 1, "266.67", id="DGX A100 4x8"),
    pytest.param(networks.switched_boxes(8, 8, 300, 25, rails=2), 1, "228.57", id="DGX A100 8x8"),
    pytest.param(networks.switched_boxes(2, 8, 300, 25, rails=8), 1, "346.67", id="DGX A100 2x8, 8 rails"),
    pytest.param(networks.switched_boxes(2, 8, 600, 25, gpus_per_nic=2), 2, "100.0", id="p4d 2x8"),
    pytest.param(networks.switched_boxes(4, 8, 600, 25, gpus_per_nic=2), 2, "66.67", id="p4d 4x8"),
    pytest.param(networks.switched_boxes(1, 8, 450, 0), 1, "514.3", id="DGX H100 1x8"),
    pytest.param(networks.switched_boxes(4, 8, 450, 50), 1, "516.1", id="DGX H100 4x8"),
    pytest.param(networks.switched_boxes(4, 8, 900, 50), 1, "533.3", id="B200 4x8"),
    pytest.param(networks.meshed_boxes(networks.DGX1V, 25), 1, "171.43", id="DGX-1V"),
    pytest.param(
        networks.meshed_boxes(networks.DGX1V, 25, subset={0, 1, 4, 5}), 1, "100.0", id="DGX-1V {0,1,4,5}"
    ),
    pytest.param(
        networks.meshed_boxes(networks.DGX1V, 25, subset={0, 1, 2, 4}), 1, "66.7", id="DGX-1V {0,1,2,4}"
    ),
    pytest.param(
        networks.meshed_boxes(networks.DGX1V, 25, subset={1, 4, 5, 7}), 1, "33.3", id="DGX-1V {1,4,5,7}"
    ),
    pytest.param(networks.ndv2(2), 2, "25.0", id="NDv2 2x8"),
    pytest.param(networks.ndv2(4), 2, "16.67", id="NDv2 4x8"),
    pytest.param(networks.meshed_boxes(networks.MI250, 50), 1, "342.86", id="MI250 1x16"),
    pytest.param(networks.meshed_boxes(networks.MI250, 50, subset=set(range(8))), 1, "200.0", id="MI250 1x8"),
    pytest.param(
        networks.meshed_boxes(networks.MI250, 50, num_boxes=2, nic_rate=16), 1, "354.13", id="MI250 2x16"
    ),
    pytest.param(networks.switched_boxes(16, 8, 300, 25, rails=2), 1, "213.33", id="DGX A100 16x8"),
    pytest.param(networks.switched_boxes(2, 8, 300, 25), 1, "346.67", id="DGX A100 2x8, 1 switch"),
    pytest.param(networks.switched_boxes(8, 8, 600, 25, gpus_per_nic=2), 2, "57.14", id="p4d 8x8"),
    pytest.param(networks.switched_boxes(2, 8, 450, 50), 1, "533.3", id="DGX H100 2x8"),
    pytest.param(networks.switched_boxes(8, 8, 450, 50), 1, "457.1", id="DGX H100 8x8"),
    pytest.param(networks.switched_boxes(1, 8, 900, 0), 1, "1028.6", id="B200 1x8"),
    pytest.param(networks.switched_boxes(2, 8, 900, 50), 1, "800.0", id="B200 2x8"),
    pytest.param(networks.switched_boxes(2, 8, 900, 100), 1, "1066.7", id="B300 2x8"),
    pytest.param(networks.switched_boxes(4, 8, 900, 100), 1, "1032.3", id="B300 4x8"),
    pytest.param(
        networks.switched_boxes(2, 16, 250, 25, gpus_per_nic=2, to_nic=1000),
        2,
        "200.0",
        id="DGX-2-like 2x16, adapters within reach",
    ),
    pytest.param(networks.switched_boxes(4, 16, 250, 25, gpus_per_nic=2), 2, "133.3", id="DGX-2-like 4x16"),
    pytest.param(networks.dgx2_of_te_ccl(), 2, "129.03", id="TE-CCL DGX-2 2x16"),
    pytest.param(
        networks.meshed_boxes(networks.MI250, 50, num_boxes=4, nic_rate=16), 1, "341.33", id="MI250 4x16"
    ),
    pytest.param(
        networks.meshed_boxes(networks.MI250, 50, num_boxes=2, nic_rate=16, subset=set(range(8))),
        1,
        "208.0",
        id="MI250 2x8",
    ),
    pytest.param(
        networks.meshed_boxes(networks.MI250, 50, num_boxes=2, nic_rate=25, gpus_per_nic=2),
        1,
        "346.67",
        id="MI250 2x16, an adapter for two",
    ),
    pytest.param(networks.full_mesh(8, 64), 1, "512.0", id="MI300X 8"),
    pytest.param(networks.full_mesh(4, 64), 1, "256.0", id="MI300X 4"),
    pytest.param(networks.full_mesh(2, 64), 1, "128.0", id="MI300X 2"),
    pytest.param(
        networks.meshed_boxes(networks.DGX1V, 25, subset={0, 1, 2, 3}), 1, "133.3", id="DGX-1V {0,1,2,3}"
    ),
    pytest.param(networks.grid(8, 8, 25, wrap=True), 1, "101.6", id="torus 8x8"),
    pytest.param(networks.pcie_box(), 1, "13.71", id="8 GPUs on PCI Express"),
    pytest.param(networks.racks(2, 4, 3125, 6250), 1000, "3.57", id="2 racks x 4, 2:1"),
    pytest.param(networks.grid(4, 4, 25, wrap=True), 1, "106.7", id="torus 4x4"),
    pytest.param(networks.grid(4, 4, 25), 1, "53.3", id="mesh 4x4"),
    pytest.param(networks.racks(2, 4, 3125, 12500), 1000, "3.57", id="2 racks x 4, 1:1"),
    pytest.param(networks.racks(2, 4, 3125, 3125), 1000, "3.57", id="2 racks x 4, 4:1"),
]


@pytest.mark.parametrize(("graph", "unit", "algbw"), OPTIMA)
def test_optimum_of_allgather_is_the_known_one(graph, unit, algbw):
    digits = len(algbw.partition(".")[2])
    assert f"{allgather_bound(graph).algbw_bytes_per_s / unit:.{digits}f}" == algbw


@pytest.mark.parametrize(("graph", "unit", "algbw"), OPTIMA[:6])
def test_reduce_scatter_equals_allgather_where_links_are_alike_both_ways(graph, unit, algbw):
    assert reduce_scatter_bound(graph).inverse_rate == allgather_bound(graph).inverse_rate


def test_the_cut_that_is_named_sets_the_bound():
    graph = networks.meshed_boxes(networks.MI250, 50, num_boxes=2, nic_rate=16)
    bound = allgather_bound(graph)
    held = sum(vertex in bound.cut for vertex in graph.compute)
    assert held == 30
    assert bound.inverse_rate == Fraction(held, graph.leaving(bound.cut))


def test_one_way_bottleneck_counts_for_allgather_in_its_direction_only():
    capacities = {("a", "s"): 10, ("s", "a"): 1, ("b", "s"): 10, ("s", "b"): 10}
    graph = CapacityGraph(capacities=capacities, compute=("a", "b"))
    assert allgather_bound(graph).inverse_rate == 1  # b's part must reach a over the link of 1
    assert reduce_scatter_bound(graph).inverse_rate == 1
    three = CapacityGraph(capacities={**capacities, ("c", "s"): 10, ("s", "c"): 10}, compute=("a", "b", "c"))
    assert allgather_bound(three).inverse_rate == 2  # two parts must reach a
    assert reduce_scatter_bound(three).inverse_rate == 1  # one part, already added, must


def test_ranks_on_one_vertex_count_one_by_one():
    graph = CapacityGraph(
        capacities={(a, b): 100 for a, b in (("x", "s"), ("s", "x"), ("y", "s"), ("s", "y"))},
        compute=("x", "x", "x", "y"),
    )
    bound = allgather_bound(graph)
    assert bound.inverse_rate == Fraction(3, 100)
    assert bound.time_s(400) == pytest.approx(3.0)  # three parts of 100 bytes over 100 bytes/s


def test_capacities_beyond_32_bits_are_exact():
    big = 400 * 10**9 + 1
    graph = networks.star([big, big + 2, big + 4])
    assert allgather_bound(graph).inverse_rate == Fraction(2, big)


def test_tightest_split_is_the_uplink_of_a_narrow_rack():
    capacity, side = tightest_split(networks.racks(2, 4, 3125, 1562))
    assert capacity == 1562
    assert {vertex for vertex in side if "h" in vertex} in (
        {f"r0h{i}" for i in range(4)},
        {f"r1h{i}" for i in range(4)},
    )


def test_unreachable_ranks_are_refused_by_name():
    capacities = {("a", "s"): 1, ("s", "a"): 1, ("b", "t"): 1, ("t", "b"): 1}
    with pytest.raises(ValueError, match="nothing can reach the ranks at 'a' from 'b'"):
        allgather_bound(CapacityGraph(capacities=capacities, compute=("a", "b")))

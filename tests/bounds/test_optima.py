import pytest
from networks import DGX1V, grid, meshed_boxes, racks, star, switched_boxes

from topotune.bounds import NoBound, optima, optima_to_document, ring_algbw_bytes_per_s
from topotune.bounds.graph import CapacityGraph


@pytest.mark.parametrize(
    ("graph", "allgather", "allreduce_busbw", "ring_busbw"),
    [
        pytest.param(switched_boxes(2, 8, 300, 25, rails=2), 346.67, 325, 200, id="A100 2x8"),
        pytest.param(switched_boxes(4, 8, 900, 50), 533.33, 516.67, 400, id="B200 4x8"),
        pytest.param(meshed_boxes(DGX1V, 25), 171.43, 150, None, id="DGX-1V"),
        pytest.param(racks(2, 4, 25, 25), 28.57, 25, 25, id="racks, oversubscribed 4:1"),
        pytest.param(racks(2, 4, 25, 12), 24, None, 12, id="racks, oversubscribed 8:1"),
        pytest.param(star([10] * 8), 11.43, 10, 10, id="equal hosts"),
    ],
)
def test_optima_and_the_ceiling_of_rings_are_the_known_ones(graph, allgather, allreduce_busbw, ring_busbw):
    found = optima(graph)
    ranks = found.num_ranks
    assert found.allgather.algbw_bytes_per_s == pytest.approx(allgather, rel=1e-3)
    assert found.reduce_scatter.algbw_bytes_per_s == pytest.approx(allgather, rel=1e-3)
    assert found.allgather.busbw_bytes_per_s == pytest.approx(allgather * (ranks - 1) / ranks, rel=1e-3)
    if allreduce_busbw is not None:
        assert found.allreduce.busbw_bytes_per_s == pytest.approx(allreduce_busbw, rel=1e-3)
    if ring_busbw is not None:
        busbw = found.ring_algbw_bytes_per_s * 2 * (ranks - 1) / ranks
        assert busbw == pytest.approx(ring_busbw, rel=1e-3)


@pytest.mark.parametrize("graph", [star([10] * 7 + [5]), grid(3, 3, 25), racks(2, 3, 25, 10)])
def test_nothing_beats_the_optimum_and_two_halves_reach_it_at_most(graph):
    found = optima(graph)
    halves = 1 / (1 / found.allgather.algbw_bytes_per_s + 1 / found.reduce_scatter.algbw_bytes_per_s)
    assert found.ring_algbw_bytes_per_s <= found.allreduce.algbw_bytes_per_s * (1 + 1e-6)
    assert halves <= found.allreduce.algbw_bytes_per_s * (1 + 1e-6)
    assert found.allreduce.exact


def test_a_ring_whose_ranks_alternate_between_racks_pays_for_every_crossing():
    block = racks(2, 4, 25, 25)
    scattered = CapacityGraph(
        capacities=block.capacities, compute=tuple(block.compute[i] for i in (0, 4, 1, 5, 2, 6, 3, 7))
    )
    assert ring_algbw_bytes_per_s(scattered) == pytest.approx(ring_algbw_bytes_per_s(block) / 4)


@pytest.mark.parametrize("fast", [10**9, 10**13, 10**18])
def test_rings_are_right_however_far_rates_are_apart(fast):
    """The slow host's link carries the ring in, and out again, whatever the others could."""
    graph = star([fast, 7, fast, fast])
    assert ring_algbw_bytes_per_s(graph) == pytest.approx(7 * 4 / 6)
    assert optima(graph).ring_algbw_bytes_per_s == pytest.approx(7 * 4 / 6)


def test_a_network_too_large_for_the_programme_has_no_ring_ceiling_but_an_optimum():
    found = optima(star([10] * 500))
    assert found.ring_algbw_bytes_per_s is None
    assert found.allreduce.busbw_bytes_per_s == pytest.approx(10)
    assert found.allreduce.exact


def test_links_without_a_known_limit_give_no_ring_ceiling():
    graph = CapacityGraph(
        capacities={("a", "s"): 100, ("s", "a"): 100, ("b", "s"): 100, ("s", "b"): 100},
        compute=("a", "b"),
        unlimited=frozenset({("a", "s"), ("s", "a"), ("b", "s"), ("s", "b")}),
    )
    assert isinstance(optima(graph), NoBound)
    assert ring_algbw_bytes_per_s(graph) is None


def test_no_size_takes_less_than_its_messages_cost():
    found = optima(star([1000] * 4))
    document = optima_to_document(found, [4, 4_000_000], latency_s=0.5)
    small, large = document["sizes"]
    assert small["time_s"] == 0.5
    assert large["time_s"] == pytest.approx(2 * 3 / 4 * 4_000_000 / 1000)

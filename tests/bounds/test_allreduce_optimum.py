import networks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.bounds import CapacityGraph, allgather_bound, allreduce_lp, graph_allreduce_bound, star_bound
from topotune.bounds.cut_planes import allreduce_by_cuts
from topotune.bounds.symmetry import likeness

HUB = CapacityGraph(
    capacities={arc: 10 for leaf in range(5) for arc in (("hub", f"l{leaf}"), (f"l{leaf}", "hub"))},
    compute=("hub", *(f"l{leaf}" for leaf in range(5))),
)


@pytest.mark.parametrize(
    ("graph", "twice_allgather", "optimum", "with_smart_switches"),
    [
        pytest.param(networks.star([1250] * 8), 714.29, 714.29, 1250, id="8 hosts"),
        pytest.param(networks.star([1250] * 7 + [625]), 357.14, 625, 625, id="8 hosts, one at half"),
        pytest.param(networks.star([1250] * 7 + [1000]), 571.43, 696.43, 1000, id="8 hosts, one at 0.8"),
        pytest.param(networks.star([2500] * 4 + [1250] * 4), 714.29, 1071.43, 1250, id="4 + 4 hosts"),
        pytest.param(networks.star([1250] * 8 + [12500]), 703.125, 1250, 1250, id="8 hosts and a server"),
        pytest.param(HUB, 6, 10, 10, id="star of 5 leaves round a compute hub"),
        pytest.param(networks.grid(3, 3, 25), 28.125, 37.5, 37.5, id="3x3 mesh"),
        pytest.param(networks.racks(2, 4, 3125, 1562), 1562, 1562, 1562, id="2 racks x 4, 8:1"),
        pytest.param(networks.meshed_boxes(networks.DGX1V, 25), 85.714, 85.714, 85.714, id="DGX-1V"),
    ],
)
def test_optimum_is_the_known_one(graph, twice_allgather, optimum, with_smart_switches):
    assert allgather_bound(graph).algbw_bytes_per_s / 2 == pytest.approx(twice_allgather, rel=1e-4)
    assert allreduce_lp(graph).algbw_bytes_per_s == pytest.approx(optimum, rel=1e-4)
    switches = set(graph.vertices) - graph.hosts
    with_smart = allreduce_by_cuts(graph, likeness(graph, switches), adding=switches)
    assert with_smart.algbw_bytes_per_s == pytest.approx(with_smart_switches, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(100, 10_000), min_size=2, max_size=7))
def test_closed_form_of_a_star_equals_the_linear_programme(rates):
    bound = star_bound(rates, rates)
    assert 1 / allreduce_lp(networks.star(rates)).algbw_bytes_per_s == pytest.approx(
        float(bound.s_per_byte), rel=1e-6
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(100, 900), st.integers(100, 900)), min_size=3, max_size=5))
def test_closed_form_of_a_star_with_unequal_directions_is_never_above_the_optimum(rates):
    sending, receiving = zip(*rates, strict=True)
    capacities = {}
    for host, (out, into) in enumerate(rates):
        capacities[f"h{host}", "switch"], capacities["switch", f"h{host}"] = out, into
    graph = CapacityGraph(capacities=capacities, compute=tuple(f"h{host}" for host in range(len(rates))))
    bound = star_bound(sending, receiving)
    assert float(bound.s_per_byte) <= 1 / allreduce_lp(graph).algbw_bytes_per_s * (1 + 1e-7)


def test_shares_leave_a_slow_host_out():
    shares = allreduce_lp(networks.star([1250] * 7 + [625])).shares
    assert shares["h7"] == pytest.approx(0, abs=1e-9)
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("rates", "limits", "slowest"),
    [
        ([10, 10, 10, 10], 6 / 40, None),
        ([10, 10], 1 / 10, None),
        ([10, 10, 10, 2], 1 / 2, 3),
        ([None, 10, 10], 1 / 10, 1),
    ],
)
def test_star_says_which_host_holds_it_back(rates, limits, slowest):
    bound = star_bound(rates, rates)
    assert float(bound.s_per_byte) == pytest.approx(limits)
    assert bound.slowest == slowest


def test_star_without_any_limit_has_no_bound():
    assert star_bound([None, None], [None, None]) is None


@pytest.mark.parametrize("uplink", [1000, 2000, 40_000])
def test_bound_of_a_large_graph_is_not_above_its_linear_programme(uplink):
    graph = networks.racks(3, 9, 3125, uplink)
    bound = graph_allreduce_bound(graph)
    assert 0.9 / allreduce_lp(graph).algbw_bytes_per_s < bound.s_per_byte
    assert bound.s_per_byte <= (1 + 1e-6) / allreduce_lp(graph).algbw_bytes_per_s


def test_narrow_racks_hold_back_together():
    bound = graph_allreduce_bound(networks.racks(3, 9, 3125, 1000))
    assert bound.s_per_byte == pytest.approx(2 * 2 / 3000)
    assert bound.text.startswith("link rack0 to spine and link rack1 to spine and link rack2 to spine, ")


def test_the_cut_of_a_meshed_box_is_named():
    bound = graph_allreduce_bound(networks.meshed_boxes(networks.MI250, 50))
    assert 2 / bound.s_per_byte == pytest.approx(342.86, rel=1e-4)
    assert len(bound.cut) == 2  # all but two of its 16 GPUs must send to these


@pytest.mark.parametrize("compute", [("a",), ("a", "a")])
def test_ranks_on_one_vertex_have_no_optimum(compute):
    with pytest.raises(ValueError, match="all ranks sit on one vertex"):
        allreduce_lp(CapacityGraph(capacities={("a", "s"): 1, ("s", "a"): 1}, compute=compute))


def test_unreachable_ranks_are_refused():
    capacities = {("a", "s"): 1, ("s", "a"): 1, ("b", "t"): 1, ("t", "b"): 1}
    graph = CapacityGraph(capacities=capacities, compute=("a", "b"))
    with pytest.raises(ValueError, match="cannot all reach each other"):
        allreduce_lp(graph)
    with pytest.raises(ValueError, match="cannot all reach each other"):
        graph_allreduce_bound(graph)

"""Allreduce where switches add: once through every cut, no more, and only where switches can."""

import pytest

from topotune.bounds import CapacityGraph, graph_allreduce_bound, graph_from_topology, optima
from topotune.bounds.in_network import in_network_bound, reducing_switches
from topotune.topology.catalog import load_profile
from topotune.topology.profile_topology import machine_network


def star(rates):
    """Hosts on one switch, with these rates each way."""
    both = {(f"h{n}", "switch"): rate for n, rate in enumerate(rates)}
    return CapacityGraph(
        capacities=both | {(b, a): rate for (a, b), rate in both.items()},
        compute=tuple(f"h{n}" for n in range(len(rates))),
    )


def network(name, num_nodes):
    topology = machine_network(load_profile(name), num_nodes)
    return topology, graph_from_topology(topology)


@pytest.mark.parametrize("rates", [[8, 8], [8] * 5, [8, 3, 8, 8]])
def test_on_a_switch_that_adds_the_slowest_host_sends_the_message_once(rates):
    bound = in_network_bound(star(rates), {"switch"})
    assert bound.s_per_byte == pytest.approx(1 / min(rates))
    assert bound.exact


def test_a_host_that_is_slower_than_the_others_is_named():
    bound = in_network_bound(star([8, 3, 8]), {"switch"})
    assert bound.cut == ("h1",)


def test_where_no_switch_adds_the_bound_is_the_usual_one():
    for rates in ([8] * 4, [8, 3, 8, 8]):
        graph = star(rates)
        usual = graph_allreduce_bound(graph)
        assert in_network_bound(graph, set()).s_per_byte == pytest.approx(usual.s_per_byte)


def test_nvswitches_add_from_hopper_on():
    assert reducing_switches(network("dgx-h100", 2)[0]) == {"n0/nvswitch0", "n1/nvswitch0"}
    assert reducing_switches(network("dgx-a100", 2)[0]) == frozenset()
    assert reducing_switches(network("mi300x-8gpu", 1)[0]) == frozenset()


def test_a_box_of_hoppers_reaches_what_each_gpu_can_send():
    topology, graph = network("dgx-h100", 1)
    found = optima(graph, reducing_switches(topology))
    assert found.allreduce.algbw_bytes_per_s == pytest.approx(450e9 * 8 / 14)
    assert found.allreduce_in_network.algbw_bytes_per_s == pytest.approx(450e9)
    assert found.allreduce_in_network.text == "link of each of the 8 GPUs, 3600 Gbit/s"


def test_between_nodes_the_message_crosses_each_cut_once_if_the_fabric_forwards_two_nodes_alone():
    topology, graph = network("dgx-h100", 2)
    found = optima(graph, reducing_switches(topology))
    # eight adapters of 50 GB/s; without: links of all GPUs together
    assert found.allreduce_in_network.algbw_bytes_per_s == pytest.approx(400e9)
    assert found.allreduce_in_network.algbw_bytes_per_s > found.allreduce.algbw_bytes_per_s


def test_many_nodes_on_a_fabric_that_does_not_add_move_twice_what_they_hold():
    topology, graph = network("dgx-h100", 64)
    reducing = reducing_switches(topology)
    assert in_network_bound(graph, reducing).s_per_byte == pytest.approx(2 * 63 / 64 / 400e9)
    everywhere = in_network_bound(graph, set(graph.vertices) - graph.hosts)
    assert everywhere.s_per_byte == pytest.approx(1 / 400e9)


def test_it_is_never_slower_than_without():
    for name, num_nodes in (("dgx-h100", 1), ("dgx-h100", 2), ("dgx-a100", 2), ("azure-nd40rs_v2", 2)):
        _, graph = network(name, num_nodes)
        every = set(graph.vertices) - graph.hosts
        assert in_network_bound(graph, every).s_per_byte <= graph_allreduce_bound(graph).s_per_byte * (
            1 + 1e-6
        )


def test_ranks_that_cannot_reach_each_other_have_no_bound():
    graph = CapacityGraph(capacities={("a", "s"): 1, ("s", "b"): 1}, compute=("a", "b"))
    with pytest.raises(ValueError, match="cannot all reach"):
        in_network_bound(graph, {"s"})

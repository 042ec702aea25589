"""Hosts that count as alike are alike; regular clusters have few kinds."""

import networks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.bounds import CapacityGraph, graph_from_topology
from topotune.bounds.maxflow import max_flow
from topotune.bounds.symmetry import unlike_hosts
from topotune.topology.catalog import load_profile
from topotune.topology.profile_topology import machine_network


def inflows(graph, fixed=None):
    """Host → the most that flows to it from all hosts together, or from one of them."""
    index = {vertex: number for number, vertex in enumerate(graph.vertices, start=1)}
    arcs = {(index[a], index[b]): capacity for (a, b), capacity in graph.capacities.items()}
    sources = sorted(graph.hosts) if fixed is None else [fixed]
    arcs |= {(0, index[host]): 10**6 for host in sources}
    hosts = graph.hosts - {fixed}
    return {
        host: max_flow(
            len(index) + 1, {a: c for a, c in arcs.items() if a != (0, index[host])}, 0, index[host]
        )
        for host in hosts
    }


@st.composite
def graphs(draw):
    """Hosts on switches, switches on each other, of few different capacities: symmetry is likely."""
    num_switches = draw(st.integers(1, 4))
    hosts = [(f"h{n}", f"s{draw(st.integers(0, num_switches - 1))}") for n in range(draw(st.integers(2, 7)))]
    capacities = {}
    for host, switch in hosts:
        capacities[host, switch] = draw(st.sampled_from([2, 3]))
        capacities[switch, host] = draw(st.sampled_from([2, 3]))
    for a in range(num_switches):
        for b in range(num_switches):
            if a != b and draw(st.booleans()):
                capacities[f"s{a}", f"s{b}"] = draw(st.sampled_from([2, 5]))
    for a, b in draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=5)):
        if a != b and max(a, b) < len(hosts):
            capacities[f"h{a}", f"h{b}"] = 1
    compute = [host for host, _ in hosts] + draw(
        st.lists(st.sampled_from([hosts[0][0], hosts[1][0]]), max_size=2)
    )
    return CapacityGraph(capacities=capacities, compute=tuple(compute))


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_what_flows_to_a_host_flows_to_one_that_stands_for_it(graph):
    flows = inflows(graph)
    kinds = unlike_hosts(graph)
    assert set(flows.values()) == {flows[host] for host in kinds}
    first = min(graph.hosts)
    seen = inflows(graph, fixed=first)
    assert set(seen.values()) == {seen[host] for host in unlike_hosts(graph, fixed={first})}


@pytest.mark.parametrize(
    ("graph", "kinds"),
    [
        (networks.star([5] * 9), 1),
        (networks.star([5] * 7 + [4]), 2),
        (networks.racks(4, 3, 10, 5), 1),
    ],
)
def test_regular_networks_have_few_kinds(graph, kinds):
    assert len(unlike_hosts(graph)) == kinds


@pytest.mark.parametrize(
    ("name", "kinds", "from_the_first"), [("dgx-h100", 1, 2), ("aws-p4d.24xlarge", 1, 3)]
)
def test_a_cluster_of_known_machines_has_one_kind_of_gpu(name, kinds, from_the_first):
    graph = graph_from_topology(machine_network(load_profile(name), 8))
    assert len(unlike_hosts(graph)) == kinds
    assert len(unlike_hosts(graph, fixed={min(graph.hosts)})) == from_the_first


def test_ranks_tell_hosts_apart():
    graph = networks.star([5] * 3)
    crowded = CapacityGraph(capacities=graph.capacities, compute=(*graph.compute, graph.compute[0]))
    assert len(unlike_hosts(crowded)) == 2

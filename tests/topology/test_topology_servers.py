from dataclasses import replace

import pytest

from topotune.bounds import graph_from_topology
from topotune.bounds.graph import servers_of_graph
from topotune.errors import UsageError
from topotune.topology.catalog import load_profile
from topotune.topology.model import Link, Pair, Source, Topology, Vertex
from topotune.topology.profile_topology import machine_network
from topotune.topology.servers import server_vertices, with_servers, without_servers
from topotune.topology.what_if import without


def cluster(num_nodes=2):
    return machine_network(load_profile("dgx-h100"), num_nodes)


def test_servers_are_machines_with_the_nics_of_a_node():
    plain, found = cluster(), with_servers(cluster(), 3)
    assert server_vertices(found) == ("s0/cpu0", "s1/cpu0", "s2/cpu0")
    assert server_vertices(plain) == ()
    assert sum(vertex.kind == "nic" for vertex in found.vertices if vertex.node == "s1") == 8
    assert found.ranks == plain.ranks
    graph = graph_from_topology(found)
    (server, *_) = servers_of_graph(found)
    assert graph.leaving({server}) == 8 * 50_000_000_000
    assert "3 servers" in found.warnings[-1]


def test_without_its_servers_a_topology_is_as_before():
    plain = cluster()
    again = without_servers(with_servers(plain, 2))
    assert (again.vertices, again.links) == (plain.vertices, plain.links)
    assert without_servers(plain) is plain


def test_a_machine_that_nothing_joins_is_no_server():
    found = with_servers(cluster(), 1)
    for nic in range(8):
        found = without(found, f"s0/nic{nic}:fabric")
    assert server_vertices(found) == ()


def test_more_servers_get_other_names():
    found = with_servers(with_servers(cluster(), 1), 2)
    assert server_vertices(found) == ("s0/cpu0", "s1/cpu0", "s2/cpu0")


@pytest.mark.parametrize(("nodes", "servers", "says"), [(1, 1, "no node has a NIC"), (2, 0, "0 servers")])
def test_what_cannot_be_is_refused(nodes, servers, says):
    with pytest.raises(UsageError, match=says):
        with_servers(cluster(nodes), servers)


def test_what_is_known_of_two_devices_of_a_server_goes_with_it():
    found = with_servers(cluster(), 1)
    pairs = (Pair(a="s0/nic0", b="s0/nic1", path="PHB"), Pair(a="n0/nic0", b="n0/nic1", path="PXB"))
    again = without_servers(replace(found, pairs=pairs))
    assert again.pairs == pairs[1:]


def test_a_processor_of_no_node_is_no_server():
    """It would take the switches with it, which are of no node either."""
    links = tuple(
        Link(src=a, dst=b, kind="ethernet", bandwidth_bytes_per_s=1e9)
        for one in ("n0/gpu0", "n1/gpu0", "cpu")
        for a, b in ((one, "switch"), ("switch", one))
    )
    gpus = (Vertex(id=f"{node}/gpu0", kind="gpu", node=node) for node in ("n0", "n1"))
    vertices = (*gpus, Vertex(id="cpu", kind="cpu"), Vertex(id="switch", kind="switch"))
    topology = Topology(source=Source(kind="probe"), vertices=vertices, links=links)
    assert server_vertices(topology) == ()
    assert without_servers(topology) is topology

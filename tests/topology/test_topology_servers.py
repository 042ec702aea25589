from dataclasses import replace

import pytest

from topotune.bounds import graph_from_topology
from topotune.bounds.graph import servers_of_graph
from topotune.errors import InputFileError, UsageError
from topotune.topology import topology_from_document, topology_to_document
from topotune.topology.catalog import load_profile
from topotune.topology.model import Link, Pair, Source, Topology, Vertex
from topotune.topology.profile_topology import machine_network
from topotune.topology.servers import server_vertices, with_servers, without_idle_nodes, without_servers
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


def star_of(*nodes, servers=(), cpus=()):
    """GPUs of these nodes on one switch, and beside them nodes with a processor alone."""
    ids = [*(f"{node}/gpu0" for node in nodes), *(f"{node}/cpu0" for node in cpus)]
    return Topology(
        source=Source(kind="probe"),
        vertices=(
            *(Vertex(id=one, kind=one.split("/")[1][:3], node=one.split("/")[0]) for one in ids),
            Vertex(id="switch", kind="switch"),
        ),
        links=both_ways(*((one, "switch") for one in ids)),
        servers=servers,
    )


def both_ways(*ends):
    return tuple(
        Link(src=src, dst=dst, kind="ethernet", bandwidth_bytes_per_s=1e9)
        for a, b in ends
        for src, dst in ((a, b), (b, a))
    )


def test_only_what_is_named_serves():
    topology = star_of("n0", "n1", cpus=("store", "helper"), servers=("helper/cpu0",))
    assert server_vertices(topology) == ("helper/cpu0",)
    left = without_idle_nodes(topology)
    assert {vertex.node for vertex in left.vertices} == {"n0", "n1", "helper", None}
    assert left.warnings == (
        "nodes without ranks (store) are left out: only what the file names in servers adds for the ranks",
    )
    assert {vertex.node for vertex in without_servers(left).vertices} == {"n0", "n1", None}


def test_where_all_work_nothing_is_left_out():
    topology = star_of("n0", "n1", cpus=("helper",), servers=("helper/cpu0",))
    assert without_idle_nodes(topology) is topology
    assert without_servers(star_of("n0", "n1")).vertices == star_of("n0", "n1").vertices


def test_a_gateway_hands_on_what_has_no_other_way():
    topology = replace(
        star_of("n0", "n1", cpus=("gate",)),
        links=both_ways(("n0/gpu0", "gate/cpu0"), ("gate/cpu0", "n1/gpu0")),
    )
    left = without_idle_nodes(topology)
    assert left.links == topology.links
    assert left.warnings == ("nodes without ranks (gate) only hand on what others exchange",)
    assert server_vertices(left) == ()
    one_way = replace(topology, links=(*topology.links, *both_ways(("n0/gpu0", "n1/gpu0"))[:1]))
    assert without_idle_nodes(one_way).links == one_way.links
    apart = replace(topology, links=())
    assert "left out" in without_idle_nodes(apart).warnings[0]


def test_many_idle_nodes_are_named_in_short():
    left = without_idle_nodes(star_of("n0", "n1", cpus=[f"store{number}" for number in range(5)]))
    assert "(store0, store1, store2 and 2 more)" in left.warnings[0]


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        (("n9/cpu0",), "server 0 is on 'n9/cpu0', which is no vertex"),
        (("helper/cpu0", "helper/cpu0"), "two servers are on 'helper/cpu0'"),
        (("switch",), "server 0 is on 'switch', a switch: processors add"),
        (("n0/gpu0",), "server 0 is on node 'n0', which holds ranks"),
    ],
)
def test_what_cannot_serve_is_refused(servers, says):
    with pytest.raises(ValueError, match=says):
        star_of("n0", "n1", cpus=("helper",), servers=servers)


def test_processors_of_servers_hold_no_rank():
    topology = star_of(cpus=("n0", "n1", "helper"), servers=("helper/cpu0",))
    assert topology.compute == ("n0/cpu0", "n1/cpu0")


def test_servers_are_kept_in_the_file():
    topology = star_of("n0", "n1", cpus=("helper",), servers=("helper/cpu0",))
    document = topology_to_document(topology)
    assert document["servers"] == ["helper/cpu0"]
    assert topology_from_document(document, "t.json") == topology
    assert "servers" not in topology_to_document(star_of("n0", "n1"))
    with pytest.raises(InputFileError, match=r"t.json: server 0 is on 'n0/gpu0'|which holds ranks"):
        topology_from_document({**document, "servers": ["n0/gpu0"]}, "t.json")

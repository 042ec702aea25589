import numpy as np
import pytest
from made_up_graphs import boxes, graph_of, star

from topotune.simulate.network import network_of_graph, network_of_topology
from topotune.simulate.routes import given_routes, shortest_routes
from topotune.topology.model import Link, Source, Topology, Vertex


def ways(network, src, dst):
    """{(tail, head): share} and latency of one pair."""
    routes = shortest_routes(network, np.array([src]), np.array([dst]))
    names = network.vertices
    links = {
        (names[network.tail[link]], names[network.head[link]]): pytest.approx(share)
        for link, share in zip(routes.link, routes.share, strict=True)
    }
    return links, float(routes.latency_s[0])


def test_a_message_takes_the_fewest_links_and_pays_each_ones_latency():
    network = network_of_graph(star([10, 20, 30]), latency_s=2e-6)
    assert ways(network, 0, 2) == ({("h0", "switch"): 1, ("switch", "h2"): 1}, pytest.approx(4e-6))


def test_of_ways_with_as_few_links_the_widest_is_taken():
    links = [("a", "s", 10), ("a", "t", 20), ("s", "b", 90), ("t", "b", 15)]
    network = network_of_graph(graph_of(links, ["a", "b"]))
    assert ways(network, 0, 1)[0] == {("a", "t"): 1, ("t", "b"): 1}


def test_equal_ways_share_in_proportion_to_their_links():
    links = [("a", "x", 30), ("x", "s", 20), ("x", "t", 10), ("s", "b", 10), ("t", "b", 10)]
    network = network_of_graph(graph_of(links, ["a", "b"]))
    assert ways(network, 0, 1)[0] == {
        ("a", "x"): 1,
        ("x", "s"): 2 / 3,
        ("x", "t"): 1 / 3,
        ("s", "b"): 2 / 3,
        ("t", "b"): 1 / 3,
    }


def test_a_way_through_a_rank_is_taken_only_where_there_is_no_other():
    links = [("a", "b", 10), ("b", "c", 10), ("a", "s", 10), ("s", "t", 10), ("t", "c", 10)]
    assert set(ways(network_of_graph(graph_of(links, "abc")), 0, 2)[0]) == {
        ("a", "s"),
        ("s", "t"),
        ("t", "c"),
    }
    assert set(ways(network_of_graph(graph_of(links[:2], "abc")), 0, 2)[0]) == {("a", "b"), ("b", "c")}


def test_ranks_on_one_vertex_need_no_link():
    graph = graph_of([("a", "b", 10)], ["a", "a", "b"])
    assert ways(network_of_graph(graph, latency_s=1.0), 0, 1) == ({}, 0.0)


def test_ranks_that_nothing_joins_are_named():
    graph = graph_of([("a", "b", 10), ("c", "d", 10)], "abcd")
    with pytest.raises(ValueError, match="no way leads from 'a' to 'c'"):
        shortest_routes(network_of_graph(graph), np.array([0]), np.array([2]))


def test_pairs_of_different_length_are_routed_at_once():
    network = network_of_graph(boxes(3, 2, 100, 10), latency_s=1.0)
    src, dst = np.array([0, 0, 5, 0]), np.array([1, 2, 0, 0])
    routes = shortest_routes(network, src, dst)
    assert routes.latency_s.tolist() == [2, 4, 4, 0]
    assert np.bincount(routes.pair, minlength=4).tolist() == [2, 4, 4, 0]


def test_ways_that_are_laid_down_are_kept_and_checked():
    network = network_of_graph(star([10, 20, 30]), latency_s=1.0)
    routes = given_routes(network, [0], [1], [((("h0", "switch", "h1"), 3),)])
    assert routes.share.tolist() == [1, 1]
    assert routes.latency_s.tolist() == [2]
    with pytest.raises(ValueError, match="no link 'h0' -> 'h1'"):
        given_routes(network, [0], [1], [((("h0", "h1"), 1),)])
    with pytest.raises(ValueError, match="ranks 0 and 1 are on 'h0' and 'h1'"):
        given_routes(network, [0], [1], [((("h0", "switch", "h2"), 1),)])


def test_links_of_a_topology_are_summed_and_have_the_latency_of_their_kind():
    vertices = tuple(Vertex(id=f"g{i}", kind="gpu", node="n") for i in range(2))
    links = (
        Link(src="g0", dst="g1", kind="nvlink", bandwidth_bytes_per_s=50e9),
        Link(src="g0", dst="g1", kind="pcie", bandwidth_bytes_per_s=10e9, latency_s=9e-6),
        Link(src="g1", dst="g0", kind="pcie"),
    )
    network = network_of_topology(Topology(vertices=vertices, links=links, source=Source(kind="test")))
    assert network.bandwidth_bytes_per_s.tolist() == [60e9, np.inf]
    assert network.latency_s.tolist() == [0.35e-6, 0.3e-6]
    assert network.node_of_rank == (0, 0)


def test_a_topology_without_ranks_is_refused():
    topology = Topology(vertices=(Vertex(id="s", kind="switch"),), links=(), source=Source(kind="test"))
    with pytest.raises(ValueError, match="no vertex of the topology holds ranks"):
        network_of_topology(topology)

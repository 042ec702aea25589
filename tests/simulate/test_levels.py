import pytest
from made_up_graphs import graph_of

from topotune.errors import UsageError
from topotune.simulate.contenders import contenders
from topotune.simulate.fabrics import dragonfly, switched_nodes, torus
from topotune.simulate.levels import levels_of, sides_of
from topotune.simulate.network import network_of_graph


def pods(num_pods, racks, hosts):
    """Hosts on switches of racks, these on switches of pods, these on a spine."""
    links, names = [], []
    for pod in range(num_pods):
        links.append((f"pod{pod}", "spine", 4))
        for rack in range(racks):
            links.append((f"pod{pod}rack{rack}", f"pod{pod}", 8))
            for host in range(hosts):
                names.append(f"pod{pod}rack{rack}host{host}")
                links.append((names[-1], f"pod{pod}rack{rack}", 10))
    return network_of_graph(graph_of(links, names))


def sizes(network):
    return [[len(group) for group in level] for level in levels_of(network)]


def test_each_tier_of_switches_is_a_level():
    assert sizes(pods(2, 3, 4)) == [[4] * 6, [12] * 2]
    assert sizes(pods(2, 1, 4)) == [[4] * 2]


def test_nodes_below_leaves_are_two_levels_and_rails_that_hold_all_are_none():
    rates = {"inside_bytes_per_s": 400, "nic_bytes_per_s": 50}
    assert sizes(switched_nodes(8, 2, nodes_per_leaf=2, **rates)) == [[2] * 8, [4] * 4]
    assert sizes(switched_nodes(4, 2, nodes_per_leaf=4, rails=True, **rates)) == [[2] * 4]


def test_a_torus_has_sides_and_no_levels():
    cluster = torus([3, 4, 5], link_bytes_per_s=1)
    assert levels_of(cluster) == []
    assert sides_of(cluster) == [5, 4, 3]


def test_what_is_no_torus_has_no_sides():
    assert sides_of(pods(2, 2, 2)) is None
    assert sides_of(switched_nodes(4, 2, inside_bytes_per_s=4, nic_bytes_per_s=1, nodes_per_leaf=2)) is None
    rates = {"rank_bytes_per_s": 1, "local_bytes_per_s": 1, "global_bytes_per_s": 1}
    assert sides_of(dragonfly(3, 2, 2, **rates)) is None


def test_pods_are_offered_as_levels_of_two_of_three_and_of_four():
    found = {
        (one.algorithm, str(one.params.get("groups", one.params.get("factors"))))
        for one in contenders(pods(2, 2, 2), None)
    }
    racks = [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert ("hierarchical", str(racks)) in found
    assert ("hierarchical", str([[0, 1, 2, 3], [4, 5, 6, 7]])) in found
    assert ("hierarchical", str([racks[:2], racks[2:]])) in found
    assert ("blueconnect", str([2, 2, 2])) in found


@pytest.mark.parametrize(("sides", "orders"), [([3, 3, 3], 1), ([3, 4, 5], 6), ([3, 3, 4], 3)])
def test_sides_of_a_torus_are_taken_in_every_order_that_differs(sides, orders):
    found = list(contenders(torus(sides, link_bytes_per_s=1), None, "blueconnect"))
    assert len({tuple(one.params["order"]) for one in found}) == orders
    assert all(one.params["factors"] == sides[::-1] for one in found)


def test_more_ranks_than_are_written_out_need_a_fabric():
    network = network_of_graph(
        graph_of([(f"h{i}", "switch", 1) for i in range(2049)], [f"h{i}" for i in range(2049)])
    )
    with pytest.raises(
        UsageError, match=r"2049 ranks: up to 2048 every algorithm is simulated, above .*, on a fabric"
    ):
        list(contenders(network, None))


@pytest.mark.slow
def test_unasked_only_short_schedules_are_written_out_and_others_are_known_by_their_steps():
    found = list(contenders(torus([24, 24], link_bytes_per_s=1), None))
    written = {one.algorithm for one in found if one.schedule is not None}
    assert {one.algorithm for one in found} - written == set()
    assert "blueconnect" not in written
    more = list(contenders(torus([32, 32], link_bytes_per_s=1), None))
    assert {one.algorithm for one in more if one.schedule is None} == {"ring", "halving_doubling"}

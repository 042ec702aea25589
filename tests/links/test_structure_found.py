import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_network import LINE, Network, racks

from topotune.links.inference import confirming_tests, infer_structure, suspected_groups

PODS = (
    *((tuple(range(4 * rack, 4 * rack + 4)), 2 * LINE) for rack in range(4)),
    *((tuple(range(8 * pod, 8 * pod + 8)), 2 * LINE) for pod in range(2)),
)
PLANTED = {
    "thin uplinks that a single flow feels": racks(2, 2, uplink=LINE / 2, ranks_per_node=2),
    "uplinks of one node's rate, which only concurrent flows show": racks(4, 4, uplink=LINE),
    "unequal racks": racks(3, 5, uplink=LINE),
    "three racks": racks(4, 4, 4, uplink=LINE),
    "an odd number of nodes": racks(3, 4, uplink=LINE),
    "three small racks of an odd number of nodes": racks(2, 3, 2, uplink=LINE),
    "scattered numbering": Network(num_nodes=8, groups=(((0, 2, 5, 7), LINE), ((1, 3, 4, 6), LINE))),
    "larger racks": racks(16, 16, uplink=4 * LINE),
    "software that is slow both ways at once": racks(4, 4, uplink=LINE, duplex_share=0.6),
    "racks in pods, both oversubscribed": Network(num_nodes=16, groups=PODS),
}


def found(structure):
    return sorted(group.nodes for group in structure.groups)


def planted(network):
    return sorted(nodes for nodes, _ in network.groups)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PLANTED)
def test_racks_are_found_where_they_are_with_their_uplinks(name, seed):
    network = dataclasses.replace(PLANTED[name], seed=seed)
    structure = infer_structure(network.explored())
    assert found(structure) == planted(network)
    assert structure.faults == ()
    assert structure.no_groups == ""
    capacity = dict(network.groups)
    for group in structure.groups:
        assert [uplink.direction for uplink in group.uplinks] == ["sending", "receiving"]
        for uplink in group.uplinks:
            assert uplink.capacity_bytes_per_s == pytest.approx(capacity[group.nodes], rel=0.15)
            low, high = uplink.capacity_ci_bytes_per_s
            assert low <= uplink.capacity_bytes_per_s <= high <= uplink.most_bytes_per_s
            expected = len(group.nodes) * LINE / capacity[group.nodes]
            assert uplink.oversubscription == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_healthy_networks_of_any_shape_have_no_findings(start):
    for seed in range(start, start + 50):
        network = Network(
            num_nodes=(2, 3, 4, 5, 6, 8, 9)[seed % 7],
            seed=seed,
            noise=(0.02, 0.05, 0.08)[seed % 3],
            slow_flows=(0.02, 0.05, 0.1)[seed // 3 % 3],
            duplex_share=(0.6, 0.95)[seed % 2],
        )
        structure = infer_structure(network.explored(num_samples=1 + seed % 3, max_alone=12))
        assert (structure.groups, structure.faults) == ((), ()), f"seed {seed}"
        assert structure.no_groups.startswith("flat, or hidden: ")


@pytest.mark.parametrize("seed", range(40))
def test_a_suspicion_that_fresh_runs_do_not_bear_out_is_dropped(seed):
    """The test holds its rate even where the first look was as misleading as can be."""
    suspicious = racks(4, 4, uplink=LINE, seed=seed).first_look()
    structure = infer_structure(
        Network(num_nodes=8, noise=0.08, slow_flows=0.1, seed=seed).look_again(suspicious)
    )
    assert structure.groups == ()
    assert structure.no_groups == ("flat, or hidden: fresh runs did not bear out what first ones suggested")


def test_nothing_is_believed_without_fresh_runs():
    measurement = racks(4, 4, uplink=LINE).first_look()
    assert [group.nodes for group in suspected_groups(measurement).groups] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    structure = infer_structure(measurement)
    assert structure.groups == ()
    assert structure.no_groups == "flat, or hidden: a suspicion was not put to the test by fresh runs"


def test_too_few_fresh_runs_are_said_to_be_too_few():
    network = racks(4, 4, uplink=LINE)
    structure = infer_structure(network.look_again(network.first_look(), num_sweeps=1))
    assert structure.groups == ()
    assert structure.no_groups.endswith("were too few to be sure")


def test_fresh_runs_do_not_change_the_suspicion_that_they_test():
    network = racks(3, 5, uplink=LINE)
    measurement = network.first_look()
    assert suspected_groups(network.look_again(measurement)) == suspected_groups(measurement)


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_node_is_blamed_and_is_no_rack(seed):
    network = Network(
        num_nodes=4, sending={2: LINE / 4}, receiving={2: LINE / 4}, ranks_per_node=2, seed=seed
    )
    structure = infer_structure(network.explored())
    assert structure.groups == ()
    assert {(fault.source, fault.sink) for fault in structure.faults} == {(2, None), (None, 2)}
    for fault in structure.faults:
        assert fault.rate_bytes_per_s == pytest.approx(LINE / 4, rel=0.15)
        assert fault.class_bytes_per_s == pytest.approx(LINE, rel=0.15)
        assert fault.num_slow == fault.num_runs >= 4


@pytest.mark.parametrize(
    ("network", "faults"),
    [
        (Network(num_nodes=8, receiving={5: LINE / 2}), {(None, 5)}),
        (Network(num_nodes=8, sending={0: LINE / 2}), {(0, None)}),
        (Network(num_nodes=6, paths={(1, 3): LINE / 3}), {(1, 3)}),
        (Network(num_nodes=6, paths={(1, 3): LINE / 3, (3, 1): LINE / 3}), {(1, 3), (3, 1)}),
        (Network(num_nodes=6, sending={4: LINE / 2}, paths={(1, 3): LINE / 3}), {(4, None), (1, 3)}),
    ],
    ids=["receiving only", "sending only", "a path", "a path both ways", "a node and a path"],
)
@pytest.mark.parametrize("seed", range(3))
def test_blame_falls_on_what_is_slow(network, faults, seed):
    structure = infer_structure(dataclasses.replace(network, seed=seed).explored())
    assert structure.groups == ()
    assert {(fault.source, fault.sink) for fault in structure.faults} == faults


@pytest.mark.parametrize("seed", range(3))
def test_two_kinds_of_nodes_are_no_fault(seed):
    slower = dict.fromkeys(range(0, 8, 2), LINE / 2)
    structure = infer_structure(Network(num_nodes=8, sending=slower, receiving=slower, seed=seed).explored())
    assert (structure.groups, structure.faults) == ((), ())


@pytest.mark.parametrize("unevenness", [0.1, 0.25])
@pytest.mark.parametrize("seed", range(5))
def test_a_slow_node_in_a_rack_is_put_where_it_belongs(seed, unevenness):
    """It never falls short for others' sake; that fair shares explain the sums tells its place."""
    slow = {seed: LINE / 4}
    network = racks(4, 4, uplink=LINE, sending=slow, receiving=slow, seed=seed, unevenness=unevenness)
    structure = infer_structure(network.explored())
    assert found(structure) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert {(fault.source, fault.sink) for fault in structure.faults} == {(seed, None), (None, seed)}


def test_a_node_that_cannot_be_placed_is_in_no_group_and_widens_what_the_uplinks_may_carry():
    slow = {3: LINE / 8}
    network = racks(4, 4, 4, uplink=LINE, sending=slow, receiving=slow, seed=3)
    structure = infer_structure(network.explored())
    assert structure.unplaced == (3,)
    assert {(fault.source, fault.sink) for fault in structure.faults} == {(3, None), (None, 3)}
    assert all(3 not in group.nodes for group in structure.groups)
    (rack,) = [group for group in structure.groups if group.nodes == (4, 5, 6, 7)]
    for uplink in rack.uplinks:
        assert uplink.most_bytes_per_s >= uplink.capacity_bytes_per_s + 0.9 * LINE / 8


def test_an_uplink_is_not_blamed_for_what_the_others_hold_back():
    """Of two narrow uplinks and one with plenty: what leaves that one is held back where it arrives."""
    groups = (((0, 1, 2, 3), LINE), ((4, 5, 6, 7), LINE), ((8, 9, 10, 11), 100 * LINE))
    structure = infer_structure(Network(num_nodes=12, groups=groups).explored())
    assert {(0, 1, 2, 3), (4, 5, 6, 7)} <= set(found(structure))
    assert not any(group.uplinks for group in structure.groups if group.nodes == (8, 9, 10, 11))


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(8)), seed=st.integers(0, 1000))
def test_groups_do_not_depend_on_how_nodes_are_numbered(order, seed):
    groups = tuple((tuple(sorted(order[start : start + 4])), LINE) for start in (0, 4))
    structure = infer_structure(Network(num_nodes=8, groups=groups, seed=seed).explored())
    assert found(structure) == sorted(nodes for nodes, _ in groups)


def test_few_nodes_say_why_they_show_nothing():
    for num_nodes, why in ((1, "there is one node"), (3, "3 nodes are too few to tell a shared link")):
        assert why in infer_structure(Network(num_nodes=num_nodes).first_look()).no_groups


def test_nothing_measured_is_said_to_be_nothing_measured():
    structure = infer_structure(Network(num_nodes=5).measurement())
    assert structure.no_groups == "flat, or hidden: no rounds of concurrent flows were measured"


class TestAThousandNodes:
    """8 random peers of each node: a linear budget."""

    def test_two_halves_are_found_with_their_uplinks(self):
        network = racks(512, 512, uplink=128 * LINE, unevenness=0.2)
        structure = infer_structure(network.explored(num_samples=2))
        assert len(structure.groups) == 2
        for group in structure.groups:
            sides = {node < 512 for node in group.nodes}
            assert len(sides) == 1
            assert len(group.nodes) >= 500
            for uplink in group.uplinks:
                assert uplink.capacity_bytes_per_s == pytest.approx(128 * LINE, rel=0.15)

    def test_many_small_racks_are_said_to_be_hidden(self):
        structure = infer_structure(racks(*[32] * 32, uplink=8 * LINE).explored(num_samples=2))
        assert structure.groups == ()
        assert "of 523776 pairs measured no groups can be told apart" in structure.no_groups

    def test_a_flat_network_is_flat(self):
        structure = infer_structure(Network(num_nodes=1024, slow_flows=0.005).explored(num_samples=2))
        assert (structure.groups, structure.faults) == ((), ())


def test_plans_between_ranks_load_no_node_twice_and_compare_like_with_like():
    network = racks(3, 5, uplink=LINE, ranks_per_node=2, slow_flows=0.0)
    measurement = network.first_look()
    plans = confirming_tests(suspected_groups(measurement), measurement)
    racks_of_nodes = [0, 0, 0, 1, 1, 1, 1, 1]
    assert {plan.purpose for plan in plans} == {"boundary", "control"}
    assert max(len(plan.flows) for plan in plans if plan.purpose == "boundary") == 3
    for plan in plans:
        nodes = [(src // 2, dst // 2) for src, dst in plan.flows]
        ends = [node for flow in nodes for node in flow]
        assert len(set(ends)) == len(ends)
        crossing = {racks_of_nodes[src] != racks_of_nodes[dst] for src, dst in nodes}
        assert crossing == {plan.purpose == "boundary"}
    first, *_ = plans
    assert first.purpose == "boundary"
    assert plans == tuple(dict.fromkeys(plans))

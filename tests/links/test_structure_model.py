import dataclasses
import itertools

import pytest
from made_up_network import LINE, Network, racks

from topotune.bounds import allreduce_bound, graph_from_topology
from topotune.bounds.bound import graph_allreduce_bound
from topotune.links import find, fit_links, infer_structure, inferred_topology
from topotune.report.text import describe_measurement, describe_network
from topotune.topology import topology_from_document, topology_to_document

MIB_8 = 8 * 2**20
QUIET = {"noise": 0.0, "unevenness": 0.0, "slow_flows": 0.0}
TWO_BY_TWO = racks(2, 2, uplink=LINE / 2, ranks_per_node=2, **QUIET)
TWO_BY_FOUR = racks(4, 4, uplink=LINE, **QUIET)
SLOW_NODE = Network(num_nodes=4, sending={2: LINE / 4}, receiving={2: LINE / 4}, ranks_per_node=2, **QUIET)
FLAT = Network(num_nodes=4, **QUIET)


def codes(measurement):
    return [finding.code for finding in find(measurement, fit_links(measurement))]


@pytest.mark.parametrize(
    ("network", "milliseconds"), [(TWO_BY_TWO, 671), (TWO_BY_FOUR, 587)], ids=["racks-2x2x2", "racks-2x4x1"]
)
def test_the_bound_counts_with_the_uplinks(network, milliseconds):
    bound = allreduce_bound(fit_links(network.explored()))
    assert 1000 * bound.time_s(MIB_8) == pytest.approx(milliseconds, abs=1)


def test_the_bottleneck_is_named_as_the_uplink():
    bound = allreduce_bound(fit_links(TWO_BY_TWO.explored()))
    assert bound.text == "uplink of rack 1 (nodes a, b), 100 Mbit/s"


def test_uplinks_are_limits_of_all_pairs_across_in_each_direction():
    limits = {shared.name: shared for shared in fit_links(TWO_BY_TWO.explored()).shared}
    sending = limits["uplink of rack 1 (nodes a, b), sending"]
    receiving = limits["uplink of rack 1 (nodes a, b), receiving"]
    assert set(sending.pairs) == set(itertools.product(range(4), range(4, 8)))
    assert set(receiving.pairs) == set(itertools.product(range(4, 8), range(4)))
    for limit in (sending, receiving):
        assert limit.is_limit
        assert limit.capacity_bytes_per_s == pytest.approx(LINE / 2)


@pytest.mark.parametrize("seed", range(5))
def test_no_limit_lies_below_what_was_reached(seed):
    network = dataclasses.replace(TWO_BY_FOUR, noise=0.03, unevenness=0.25, seed=seed)
    for shared in fit_links(network.explored()).shared:
        if shared.name.startswith("uplink"):
            assert shared.capacity_bytes_per_s >= 0.99 * LINE


def slowed_in_rounds(network):
    """A measurement whose ping-pongs between racks ran while others did, and took each other's uplink."""
    measurement = network.explored()
    rack_of_node = {node: nodes for nodes, _ in network.groups for node in nodes}

    def slowed(pair):
        src, dst = (measurement.node_of_rank[rank] for rank in (pair.src, pair.dst))
        factor = 1.0 if rack_of_node[src] == rack_of_node[dst] or pair.message_bytes < 1024 else 3.0
        times = tuple(factor * time_s for time_s in pair.one_way_s)
        return dataclasses.replace(pair, one_way_s=times, half_round_trip_s=times)

    return dataclasses.replace(measurement, pairs=tuple(map(slowed, measurement.pairs)))


def test_pairs_that_only_the_rounds_slowed_cost_what_pairs_inside_racks_cost():
    model = fit_links(slowed_in_rounds(TWO_BY_FOUR))
    assert model.class_names == ("between nodes",)
    assert model.cost(0, 5).bandwidth_bytes_per_s == pytest.approx(LINE, rel=0.02)


def test_pairs_across_thin_uplinks_cost_what_single_flows_say():
    model = fit_links(slowed_in_rounds(TWO_BY_TWO))
    assert model.cost(0, 2).bandwidth_bytes_per_s == pytest.approx(LINE, rel=0.02)
    assert model.cost(0, 4).bandwidth_bytes_per_s == pytest.approx(LINE / 2, rel=0.02)


def test_flows_show_what_a_link_carries_where_only_bursts_were_timed():
    """Small messages pass at thrice the rate; large ones were too dear to time, and exchanges were small."""
    measurement = FLAT.explored()
    small = FLAT.measurement(sizes=(8, 2**16))
    pairs = tuple(
        dataclasses.replace(pair, one_way_s=fast, half_round_trip_s=fast)
        for pair in small.pairs
        for fast in (tuple(time_s / (3 if pair.message_bytes > 8 else 1) for time_s in pair.one_way_s),)
    )
    exchanges = tuple(
        dataclasses.replace(
            one, message_bytes=2**16, samples_s=tuple(t * 2**16 / 2**22 / 3 for t in one.samples_s)
        )
        for one in measurement.exchanges
    )
    model = fit_links(dataclasses.replace(measurement, pairs=pairs, exchanges=exchanges))
    assert {shared.is_limit for shared in model.shared} == {True}
    for shared in model.shared:
        assert shared.capacity_bytes_per_s == pytest.approx(LINE, rel=0.01)
    assert model.cost(0, 1).time_s(2**24) == pytest.approx(2**24 / LINE, rel=0.05)
    assert model.cost(0, 1).time_s(2**16) == pytest.approx(2**16 / LINE / 3, rel=0.1)


def test_the_topology_has_a_switch_for_each_rack_and_a_spine():
    measurement = TWO_BY_TWO.explored()
    structure, model = infer_structure(measurement), fit_links(measurement)
    topology = inferred_topology(measurement, structure, model)
    assert [(vertex.id, vertex.kind) for vertex in topology.vertices] == [
        *((f"{name}/cpu", "cpu") for name in "abcd"),
        ("switch of rack 1", "switch"),
        ("switch of rack 2", "switch"),
        ("spine", "switch"),
    ]
    assert topology.ranks == ("a/cpu", "a/cpu", "b/cpu", "b/cpu", "c/cpu", "c/cpu", "d/cpu", "d/cpu")
    links = {(link.src, link.dst): link for link in topology.links}
    assert len(links) == 12
    node_link, uplink = links["c/cpu", "switch of rack 2"], links["switch of rack 1", "spine"]
    assert (node_link.origin, uplink.origin) == ("measured", "inferred")
    assert node_link.bandwidth_bytes_per_s == pytest.approx(LINE)
    assert node_link.latency_s == pytest.approx(5e-5, rel=0.01)
    assert uplink.bandwidth_bytes_per_s == pytest.approx(LINE / 2)
    assert uplink.bandwidth_ci_bytes_per_s == pytest.approx((LINE / 2, LINE / 2))
    bound = graph_allreduce_bound(graph_from_topology(topology))
    assert 1000 * bound.time_s(MIB_8) == pytest.approx(671, abs=1)


def test_the_topology_survives_its_document():
    measurement = racks(4, 4, uplink=LINE).explored()
    topology = inferred_topology(measurement, infer_structure(measurement), fit_links(measurement))
    assert topology_from_document(topology_to_document(topology), "x.json") == topology


def test_a_flat_network_is_a_star():
    measurement = FLAT.explored()
    topology = inferred_topology(measurement, infer_structure(measurement), fit_links(measurement))
    assert {(link.src, link.dst) for link in topology.links} == {
        ends for name in "abcd" for ends in ((f"{name}/cpu", "spine"), ("spine", f"{name}/cpu"))
    }
    assert topology.source.facts["structure"].startswith("flat, or hidden: ")


def test_nested_groups_hang_below_each_other():
    pods = (
        *((tuple(range(4 * rack, 4 * rack + 4)), 2 * LINE) for rack in range(4)),
        *((tuple(range(8 * pod, 8 * pod + 8)), 2 * LINE) for pod in range(2)),
    )
    measurement = Network(num_nodes=16, groups=pods).explored()
    topology = inferred_topology(measurement, infer_structure(measurement), fit_links(measurement))
    joined = {(link.src, link.dst) for link in topology.links}
    for below, above in (
        ("f/cpu", "switch of rack 2"),
        ("switch of rack 2", "switch of group of racks 1"),
        ("switch of rack 3", "switch of group of racks 2"),
        ("switch of group of racks 2", "spine"),
    ):
        assert {(below, above), (above, below)} <= joined
    assert len(joined) == 2 * (16 + 4 + 2)


def test_racks_are_found_and_what_their_uplinks_cost():
    measurement = TWO_BY_TWO.explored()
    by_code = {finding.code: finding for finding in find(measurement, fit_links(measurement))}
    assert "slow-links" not in by_code  # the racks explain them
    assert by_code["racks"].severity == "info"
    assert by_code["racks"].where == "rack 1 (nodes a, b), rack 2 (nodes c, d)"
    uplink = by_code["oversubscribed-uplink"]
    assert (uplink.severity, uplink.where) == ("warning", "uplink of rack 1 (nodes a, b)")
    assert uplink.evidence.startswith(
        "sending 100 Mbit/s (95 % interval 100 Mbit/s to 100 Mbit/s, 8 fresh runs)"
    )
    assert uplink.evidence.count("for nodes that reach 400 Mbit/s, 4.0 times as much") == 2
    assert uplink.cost_percent == pytest.approx(25, abs=0.1)  # 671 ms, and 503 without


def test_an_uplink_that_costs_the_optimum_nothing_is_no_warning():
    measurement = TWO_BY_FOUR.explored()
    by_code = {finding.code: finding for finding in find(measurement, fit_links(measurement))}
    assert by_code["oversubscribed-uplink"].severity == "info"
    assert by_code["oversubscribed-uplink"].cost_percent == pytest.approx(0, abs=0.1)


def test_a_slow_node_is_named_with_its_rate_and_its_cost():
    measurement = SLOW_NODE.explored()
    findings = find(measurement, fit_links(measurement))
    (slow,) = [finding for finding in findings if finding.code == "slow-node"]
    assert slow.evidence == (
        "node c sends at 50 Mbit/s where its class has 200 Mbit/s (8 of 8 runs) and "
        "receives at 50 Mbit/s where its class has 200 Mbit/s (8 of 8 runs)"
    )
    assert (slow.severity, slow.where) == ("warning", "node c")
    assert slow.cost_percent == pytest.approx(62.5, abs=0.5)  # 1,342 ms, and 503 if it were like the others
    assert "slow-links" not in [finding.code for finding in findings]


def test_a_slow_path_is_named():
    network = Network(num_nodes=6, paths={(1, 3): LINE / 4}, **QUIET)
    measurement = network.explored()
    (slow,) = [one for one in find(measurement, fit_links(measurement)) if one.code == "slow-path"]
    assert slow.where == "path from node b to node d"
    assert slow.evidence == "50 Mbit/s where both its ends reach 200 Mbit/s with others (4 of 4 runs)"


def test_no_racks_is_said_only_if_they_were_looked_for():
    assert codes(FLAT.explored()) == ["no-racks"]
    assert codes(FLAT.measurement()) == []
    (finding,) = find(FLAT.explored(), fit_links(FLAT.explored()))
    assert finding.severity == "info"
    assert finding.evidence == (
        "flat, or hidden: in 3 rounds of up to 4 flows at once each flow kept at least 100 % of what its "
        "nodes reach"
    )


def test_reports_show_the_network():
    measurement = TWO_BY_TWO.explored()
    assert describe_network(infer_structure(measurement), measurement.node_names) == (
        "network\n"
        "  uplink of          nodes    capacity            95 % interval  oversubscribed\n"
        "  rack 1, sending    a, b   100 Mbit/s  100 Mbit/s … 100 Mbit/s             4.0\n"
        "  rack 1, receiving  a, b   100 Mbit/s  100 Mbit/s … 100 Mbit/s             4.0\n"
        "  rack 2, sending    c, d   100 Mbit/s  100 Mbit/s … 100 Mbit/s             4.0\n"
        "  rack 2, receiving  c, d   100 Mbit/s  100 Mbit/s … 100 Mbit/s             4.0"
    )
    assert "\nnetwork\n  uplink of " in describe_measurement(measurement, fit_links(measurement))


def test_reports_show_what_is_slow_and_why_there_are_no_racks():
    measurement = SLOW_NODE.explored()
    lines = describe_network(infer_structure(measurement), measurement.node_names).splitlines()
    assert lines[1].startswith("  flat, or hidden: ")
    assert "  slow: node c, sending, 50 Mbit/s where its class has 200 Mbit/s (8 of 8 runs)" in lines

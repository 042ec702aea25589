import itertools
import json

import link_workers
import pytest
from gloo_world import run_world

from topotune.links import fit_links, measurement_from_document, measurement_to_document

SIZES = (8, 1024, 65536, 2**20)


@pytest.mark.gloo
@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_every_pair_is_timed_each_way_at_every_size(num_ranks):
    results = run_world(num_ranks, link_workers.measure, 1.0, SIZES)
    measurements = [measurement for measurement, _ in results]
    assert all(measurement == measurements[0] for measurement in measurements)
    measurement = measurements[0]
    assert measurement.node_of_rank == (0,) * num_ranks
    timed = {(pair.src, pair.dst, pair.message_bytes) for pair in measurement.pairs}
    sizes = sorted({size for _, _, size in timed})
    assert set(sizes) <= set(SIZES)
    assert {8, 1024, 65536} <= set(sizes)
    assert timed == {(a, b, size) for a, b in itertools.permutations(range(num_ranks), 2) for size in sizes}
    for pair in measurement.pairs:
        assert pair.num_concurrent in (1, num_ranks // 2)
        assert len(pair.warmup_s) >= 2  # one a sweep
        assert pair.ci_s[0] <= pair.median_s <= pair.ci_s[1]
    groups = {(e.group, e.num_concurrent) for e in measurement.exchanges}
    assert {number for _, number in groups} == ({1} if num_ranks < 4 else {1, 2})
    assert len(measurement.reduce_s_per_byte) == 10 * num_ranks
    for _, done in results:
        assert done == sorted(done)
        assert done[-1] == 1.0
    model = fit_links(measurement)
    assert model.class_names[0].startswith("within a node")


@pytest.mark.gloo
@pytest.mark.parametrize("node_of_rank", [[0, 0, 1, 1], [0, 1, 2]], ids=["two nodes", "three nodes"])
def test_nodes_get_links_and_each_two_of_them_a_large_message(node_of_rank):
    measurement, _ = run_world(len(node_of_rank), link_workers.measure, 4.0, SIZES, node_of_rank)[0]
    assert measurement.node_of_rank == tuple(node_of_rank)
    num_nodes = max(node_of_rank) + 1
    assert len(measurement.node_names) == num_nodes
    across = [pair for pair in measurement.pairs if not measurement.is_within_node(pair.src, pair.dst)]
    assert all(pair.clock_error_s > 0 for pair in across)
    if num_nodes > 2:  # a fan: one rank and all others at once
        meetings = {}
        for timing in measurement.exchanges:
            meetings.setdefault(timing.group, []).append({timing.a, timing.b})
        assert any(len(pairs) == 2 and pairs[0] & pairs[1] for pairs in meetings.values())
    names = {shared.name for shared in fit_links(measurement).shared if shared.name.startswith("link")}
    assert len(names) == 2 * num_nodes


@pytest.mark.gloo
def test_flows_and_round_trips_join_each_two_nodes():
    nodes = [0, 0, 1, 2]
    results = run_world(4, link_workers.measure, 1.0, SIZES, nodes, 2.0)
    measurement, done = results[0]
    assert all(other == measurement for other, _ in results)
    assert done == sorted(done)
    assert done[-1] == 1.0
    met = {
        (nodes[src], nodes[dst])
        for test in measurement.flow_tests
        if test.purpose == "round"
        for src, dst in test.flows
    }
    assert met == set(itertools.permutations(range(3), 2))
    assert {rank for test in measurement.flow_tests for flow in test.flows for rank in flow} == {0, 2, 3}
    trips = [(nodes[trips.a], nodes[trips.b]) for trips in measurement.round_trips]
    assert sorted(map(sorted, trips)) == [[0, 1], [0, 2], [1, 2]]
    assert all(trips.min_s == trips.samples_s[0] for trips in measurement.round_trips)
    assert measurement.budget_s == 5.0
    document = json.loads(json.dumps(measurement_to_document(measurement)))
    assert measurement_from_document(document, "links.json") == measurement


@pytest.mark.gloo
def test_without_time_for_a_round_no_flow_is_run_and_it_is_said():
    measurement, _ = run_world(2, link_workers.measure, 0.5, SIZES, [0, 1], 0.01)[0]
    assert measurement.flow_tests == ()
    assert any("too short for flows between 2 nodes" in warning for warning in measurement.warnings)


@pytest.mark.gloo
def test_a_single_rank_measures_only_its_reduction():
    ((measurement, done),) = run_world(1, link_workers.measure, 1.0, SIZES)
    assert measurement.pairs == measurement.exchanges == ()
    assert len(measurement.reduce_s_per_byte) == 10
    assert done == [1.0]


@pytest.mark.gloo
def test_the_verb_hands_rank_0_a_document_that_reads_back():
    first, second = run_world(2, link_workers.run_session, 0.5)
    assert second is None
    document = json.loads(json.dumps(first))
    measurement = measurement_from_document(document, "links.json")
    assert measurement.num_ranks == 2
    for pair in document["pairs"]:
        assert pair["num_samples"] == len(pair["half_round_trip_s"])
        assert pair["ci_s"][0] <= pair["median_s"] <= pair["ci_s"][1]
    assert [fit["num_pairs"] for fit in document["fits"]] == [2]


@pytest.mark.gloo
def test_a_lost_rank_ends_the_measurement_with_a_clear_error():
    results = run_world(3, link_workers.lose_a_rank, 2, deaths=[2])
    for rank in (0, 1):
        kind, message, has_cause = results[rank]
        assert kind == "RunError"
        assert message.startswith(f"rank {rank}: ")
        assert has_cause


@pytest.mark.gloo
def test_gathered_values_are_whole_and_in_order():
    for numbers, values, empty in run_world(3, link_workers.gather_values):
        assert numbers == [[rank, 2**53 - 1 - rank] for rank in range(3)]
        assert values == [{"rank": rank, "text": "µ" * rank} for rank in range(3)]
        assert empty == [[], [], []]

import itertools
from collections import Counter

import pytest

from topotune.links.flow_plan import (
    EVERY_NODE_PAIR_UP_TO,
    NUM_PEERS,
    FlowPlan,
    alone_plans,
    first_flows,
    fitting_plans,
    flow_span,
    matchings,
    more_peers,
    round_plans,
    split_budget,
)

SPAN = flow_span(25e6)


@pytest.mark.parametrize("num_nodes", [2, 3, 4, 7, 8, 64])
def test_up_to_64_nodes_every_two_nodes_meet_once_each_way(num_nodes):
    nodes = [node for node in range(num_nodes) for _ in range(2)]
    flows = [(nodes[src], nodes[dst]) for plan in round_plans(nodes) for src, dst in plan.flows]
    assert sorted(flows) == list(itertools.permutations(range(num_nodes), 2))
    assert {rank % 2 for plan in round_plans(nodes) for flow in plan.flows for rank in flow} == {0}


@pytest.mark.timeout(60)
def test_a_thousand_nodes_meet_eight_others_each_whatever_their_number():
    nodes = [rank // 8 for rank in range(1024 * 8)]
    plans = round_plans(nodes, seed=3)
    assert len(plans) == NUM_PEERS
    peers = {node: set() for node in range(1024)}
    for number, plan in enumerate(plans):
        senders, receivers = zip(*plan.flows, strict=True)
        assert len(set(senders)) == len(set(receivers)) == 1024
        for src, dst in plan.flows:
            assert src % 8 == dst % 8 == number % 8  # one rail
            peers[nodes[src]].add(nodes[dst])
    assert {len(met) for met in peers.values()} == {NUM_PEERS}
    assert round_plans(nodes, seed=3) == plans
    assert round_plans(nodes, seed=4) != plans


@pytest.mark.parametrize("num_nodes", [EVERY_NODE_PAIR_UP_TO + 1, 100, 101])
def test_peers_drawn_at_random_are_disjoint_pairs_and_none_twice(num_nodes):
    drawn = matchings(num_nodes, NUM_PEERS, seed=0)
    for pairs in drawn:
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs) == num_nodes - num_nodes % 2
    assert max(Counter(pair for pairs in drawn for pair in pairs).values()) == 1


def test_no_node_sends_or_receives_twice_at_a_time():
    for num_nodes in (2, 5, 8, 65):
        for plan in round_plans(list(range(num_nodes))):
            senders, receivers = zip(*plan.flows, strict=True)
            assert len(set(senders)) == len(senders)
            assert len(set(receivers)) == len(receivers)


def test_nodes_in_doubt_meet_eight_more_that_they_have_not_met():
    nodes = [rank // 2 for rank in range(200)]
    met = {frozenset((7, peer)) for peer in range(50)}
    plans = more_peers(nodes, [7, 30], met, seed=1)
    assert len(plans) == NUM_PEERS
    seen = []
    for plan in plans:
        pairs = {frozenset(nodes[rank] for rank in flow) for flow in plan.flows}
        assert {(dst, src) for src, dst in plan.flows} == set(plan.flows)
        assert len(pairs) == 2
        assert len(frozenset().union(*pairs)) == 4
        seen += pairs
    assert len(set(seen)) == len(seen)
    assert not met & set(seen)
    assert {len(pair & {7, 30}) for pair in seen} == {1}


def test_where_all_have_met_there_is_nobody_more_to_meet():
    met = {frozenset(pair) for pair in itertools.combinations(range(5), 2)}
    assert more_peers([0, 1, 2, 3, 4], [1, 2], met) == []
    assert more_peers([0, 1, 2, 3, 4], [], set()) == []


def test_flows_by_themselves_favour_no_node():
    nodes = [0, 0, 1, 1, 2, 2, 3, 3]
    plans = alone_plans(nodes, 8)
    assert all(plan.purpose == "alone" and len(plan.flows) == 1 for plan in plans)
    flows = [plan.flows[0] for plan in plans]
    assert len(set(flows)) == 8
    assert set(Counter(src for src, _ in flows).values()) == {2}
    assert set(Counter(dst for _, dst in flows).values()) == {2}
    assert len(alone_plans(nodes, 1000)) == 4 * 3


@pytest.mark.parametrize(
    ("time_s", "num_sweeps", "num_alone"),
    [(0.5, 0, 0), (0.7, 1, 0), (1.3, 1, 3), (3.0, 3, 5), (60.0, 3, 12)],
)
def test_rounds_come_before_flows_by_themselves_and_those_before_a_second_sweep(
    time_s, num_sweeps, num_alone
):
    first = first_flows([0, 1, 2, 3], SPAN, time_s)
    assert (len(first.rounds), first.num_sweeps, len(first.alone)) == (3, num_sweeps, num_alone)
    assert first.needed_s == pytest.approx(3 * SPAN.run_s)


def test_what_is_run_first_takes_no_longer_than_it_may():
    for num_nodes, time_s in itertools.product((2, 3, 8, 64, 500), (1.0, 5.0, 30.0)):
        first = first_flows(list(range(num_nodes)), SPAN, time_s)
        num_runs = first.num_sweeps * len(first.rounds) + len(first.alone)
        assert num_runs * SPAN.run_s <= time_s


def test_fresh_tests_are_left_out_rather_than_run_once():
    plans = [FlowPlan(purpose="isolated", flows=((0, peer),)) for peer in range(1, 11)]
    assert fitting_plans(plans, SPAN, 100.0) == plans
    assert fitting_plans(plans, SPAN, 3 * 4 * SPAN.run_s + 0.01) == plans[:4]
    assert fitting_plans(plans, SPAN, SPAN.run_s) == []


@pytest.mark.parametrize(
    ("bytes_per_s", "message_bytes"), [(1e3, 16384), (25e6, 32768), (1.25e9, 2**21), (1e12, 2**23)]
)
def test_messages_and_spans_follow_the_rate_within_bounds(bytes_per_s, message_bytes):
    span = flow_span(bytes_per_s)
    assert span.message_bytes == message_bytes
    assert 0.1 <= span.measured_s <= 2.0


def test_a_budget_is_split_without_rest():
    assert split_budget(20.0, 1) == (20.0, None)
    for num_nodes in (2, 3, 1024):
        pairs_s, flow_time = split_budget(20.0, num_nodes)
        assert pairs_s + flow_time.first_s + flow_time.fresh_s == pytest.approx(20.0)

import itertools
import math

import pytest

from topotune.links.rounds import rounds
from topotune.links.timing_plan import SIZES, first_groups, num_sharing_nodes, plan_timing


def look(one_way_s, bytes_per_s, *, kinds=(True,), sizes=SIZES):
    return {kind: {size: one_way_s + size / bytes_per_s for size in sizes} for kind in kinds}


def pairs_of(plan):
    """Every pair that is timed with the smallest message."""
    return sorted(pair for group in plan.groups if SIZES[0] in group.sizes for pair in group.pairs)


def sizes_of(plan):
    return sorted({size for group in plan.groups for size in group.sizes})


def test_a_small_fast_node_gets_every_size_with_each_pair_alone():
    plan = plan_timing([0] * 4, look(40e-6, 2e9), 4.0)
    assert all(group.sizes == SIZES for group in plan.groups)
    assert pairs_of(plan) == list(itertools.combinations(range(4), 2))
    assert all(len(group.pairs) == 1 for group in plan.groups)
    assert plan.slice_s > 0
    assert plan.exchange_bytes == (8, 4 * 2**20)
    assert plan.warnings == ()


def test_between_nodes_one_pair_of_ranks_stands_for_two_nodes():
    nodes = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    plan = plan_timing(nodes, look(1e-4, 1e9, kinds=(True, False)), 10.0)
    between = [(nodes[a], nodes[b]) for a, b in pairs_of(plan) if nodes[a] != nodes[b]]
    assert sorted(between) == [(0, 1), (0, 2), (1, 2)]
    assert sum(nodes[a] == nodes[b] for a, b in pairs_of(plan)) == 9
    assert all(2**20 in group.sizes for group in plan.groups)
    for group in plan.groups:  # no node is in two pairs at once
        touched = [node for a, b in group.pairs for node in {nodes[a], nodes[b]}]
        assert len(set(touched)) == len(touched)
        assert all(a < b for a, b in group.pairs)


def test_slow_links_lose_the_sizes_that_tell_least_first():
    budgets = (0.1, 3.0, 6.0, 120.0)
    chosen = [
        sizes_of(plan_timing([0, 1, 2], look(2e-4, 25e6, kinds=(False,)), budget)) for budget in budgets
    ]
    assert [len(sizes) for sizes in chosen] == sorted(len(sizes) for sizes in chosen)
    assert chosen[0] == [8, 1024, 65536]
    assert 2**20 in chosen[1]
    assert chosen[-1] == list(SIZES)


def test_many_ranks_on_a_node_share_it_while_they_are_timed():
    nodes = [0] * 24
    plan = plan_timing(nodes, look(40e-6, 2e9), 0.5)
    assert [list(group.pairs) for group in plan.groups] == rounds(24)
    first = plan.groups[0].pairs
    assert num_sharing_nodes(first, nodes) == [12] * 12


def test_very_many_ranks_lose_pairs_and_say_so():
    nodes = [rank // 8 for rank in range(128)]
    plan = plan_timing(nodes, look(1e-3, 1e9, kinds=(True, False)), 0.5)
    assert {nodes[a] == nodes[b] for a, b in pairs_of(plan)} == {True, False}
    num_pairs, num_all = len(pairs_of(plan)), 16 * math.comb(8, 2) + math.comb(16, 2)
    assert num_pairs < num_all
    assert plan.warnings == (f"the budget allowed {num_pairs} of {num_all} pairs of ranks to be timed",)


def test_up_to_32_ranks_every_pair_is_timed_whatever_the_budget():
    plan = plan_timing(list(range(32)), look(1e-3, 1e8, kinds=(False,)), 0.0)
    assert pairs_of(plan) == list(itertools.combinations(range(32), 2))
    assert plan.slice_s == 0


def test_sizes_that_the_first_look_did_not_reach_are_left_out():
    plan = plan_timing([0, 0], look(1e-3, 1e8, sizes=SIZES[:5]), 10.0)
    assert sizes_of(plan) == list(SIZES[:5])


def test_sizes_of_one_s_own_are_taken():
    plan = plan_timing([0, 0], look(1e-5, 1e9, sizes=(100, 3000)), 10.0, sizes=(100, 3000))
    assert sizes_of(plan) == [100, 3000]
    assert plan.exchange_bytes == (100, 3000)


@pytest.mark.parametrize("nodes", [[0, 1, 2, 3], [0, 0, 1, 1, 2, 2]])
def test_exchanges_hold_whole_rounds_a_fan_from_each_node_and_a_pair_of_each_kind(nodes):
    kinds = {nodes[a] == nodes[b] for a, b in itertools.combinations(range(len(nodes)), 2)}
    plan = plan_timing(nodes, look(1e-4, 1e9, kinds=kinds), 5.0)
    groups = [group.pairs for group in plan.exchanges]
    for pairs in rounds(len(nodes)):
        assert tuple(pairs) in groups
    for node in set(nodes):
        leader = nodes.index(node)
        others = {nodes.index(other) for other in set(nodes) - {node}}
        assert any({a for a, _ in pairs} == {leader} and {b for _, b in pairs} == others for pairs in groups)
    assert {nodes[a] == nodes[b] for ((a, b),) in (pairs for pairs in groups if len(pairs) == 1)} == kinds
    for pairs in groups:  # nobody leads and follows in one group, nobody follows twice
        followers = [b for _, b in pairs]
        assert len(set(followers)) == len(followers)
        assert not {a for a, _ in pairs} & set(followers)


def test_pairs_that_share_a_link_get_longer_to_exchange():
    nodes = [0, 0, 0, 1, 1, 1]
    plan = plan_timing(nodes, look(1e-4, 25e6, kinds=(True, False)), 20.0)
    slices_s = {len(group.pairs): group.slice_s for group in plan.exchanges}
    assert slices_s[3] > slices_s[1]
    assert plan.exchange_bytes[-1] >= 2**20  # rounds are given up before the size


@pytest.mark.timeout(60)
def test_beyond_64_nodes_the_work_does_not_grow_with_them():
    nodes = [rank // 8 for rank in range(1024 * 8)]
    plan = plan_timing(nodes, look(1e-4, 1e9, kinds=(True, False)), 60.0)
    timed = pairs_of(plan)
    assert len(set(timed)) == len(timed)
    within = [pair for pair in timed if nodes[pair[0]] == nodes[pair[1]]]
    assert len(within) == 1024 * math.comb(8, 2)
    peers = {node: set() for node in range(1024)}
    for a, b in set(timed) - set(within):
        peers[nodes[a]].add(nodes[b])
        peers[nodes[b]].add(nodes[a])
    assert {len(of_node) for of_node in peers.values()} == {8}
    # Groups run one after another: their number is what time grows with.
    assert len(plan.groups) <= 2 + math.comb(8, 2) + 8
    few = [group for group in plan.groups if len(group.sizes) > 2]
    assert all(group.sizes == SIZES and len(group.pairs) == 8 for group in few)
    assert {nodes[a] == nodes[b] for group in few for a, b in group.pairs} == {True, False}
    assert {group.sizes for group in plan.groups if group not in few} == {(8, 2**20)}
    assert len(plan.exchanges) <= 8 + 1 + 64 + 2
    assert plan.warnings == ("1024 nodes: each was timed with 8 others, drawn at random",)


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 8])
def test_what_is_looked_at_first_is_a_pair_of_each_kind_on_nodes_of_their_own(num_nodes):
    nodes = [node for node in range(num_nodes) for _ in range(3)]
    first = first_groups(nodes)
    assert set(first) == ({True} if num_nodes == 1 else {True, False})
    for kind, pairs in first.items():
        assert all((nodes[a] == nodes[b]) is kind for a, b in pairs)
        touched = [node for a, b in pairs for node in {nodes[a], nodes[b]}]
        assert len(set(touched)) == len(touched)

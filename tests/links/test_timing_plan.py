import itertools
import math

import pytest

from topotune.links.rounds import rounds
from topotune.links.timing_plan import SIZES, plan_timing


def look(one_way_s, bytes_per_s, *, kinds=(True,), sizes=SIZES):
    return {kind: {size: one_way_s + size / bytes_per_s for size in sizes} for kind in kinds}


def pairs_of(plan):
    return sorted(pair for group in plan.groups for pair in group)


def test_a_small_fast_node_gets_every_size_with_each_pair_alone():
    plan = plan_timing([0] * 4, look(40e-6, 2e9), 4.0)
    assert plan.sizes == SIZES
    assert plan.alone
    assert pairs_of(plan) == list(itertools.combinations(range(4), 2))
    assert all(len(group) == 1 for group in plan.groups)
    assert plan.slice_s > 0
    assert plan.exchange_bytes == (8, 4 * 2**20)
    assert plan.warnings == ()


def test_slow_links_lose_their_largest_sizes_first():
    budgets = (0.1, 1.0, 5.0, 60.0)
    chosen = [plan_timing([0, 1, 2], look(2e-4, 25e6, kinds=(False,)), budget).sizes for budget in budgets]
    assert [len(sizes) for sizes in chosen] == sorted(len(sizes) for sizes in chosen)
    assert chosen[0] == (8, 1024, 65536)
    assert chosen[-1][:6] == SIZES[:6]


def test_many_ranks_on_a_node_share_it_while_they_are_timed():
    plan = plan_timing([0] * 24, look(40e-6, 2e9), 0.5)
    assert not plan.alone
    assert pairs_of(plan) == list(itertools.combinations(range(24), 2))


def test_very_many_ranks_lose_pairs_and_say_so():
    nodes = [rank // 8 for rank in range(128)]
    plan = plan_timing(nodes, look(1e-3, 1e9, kinds=(True, False)), 1.0)
    assert len(plan.groups) < len(rounds(128))
    assert {nodes[a] == nodes[b] for a, b in pairs_of(plan)} == {True, False}
    num_pairs = len(pairs_of(plan))
    assert plan.warnings == (
        f"the budget allowed {num_pairs} of {math.comb(128, 2)} pairs of ranks to be timed",
    )


def test_up_to_32_ranks_every_pair_is_timed_whatever_the_budget():
    plan = plan_timing(list(range(32)), look(1e-3, 1e8, kinds=(False,)), 0.0)
    assert pairs_of(plan) == list(itertools.combinations(range(32), 2))
    assert plan.slice_s == 0


def test_sizes_that_the_first_look_did_not_reach_are_left_out():
    plan = plan_timing([0, 0], look(1e-3, 1e8, sizes=SIZES[:5]), 10.0)
    assert plan.sizes == SIZES[:5]


@pytest.mark.parametrize("nodes", [[0, 1, 2, 3], [0, 0, 1, 1, 2, 2]])
def test_exchanges_hold_whole_rounds_a_fan_from_each_node_and_a_pair_of_each_kind(nodes):
    kinds = {nodes[a] == nodes[b] for a, b in itertools.combinations(range(len(nodes)), 2)}
    plan = plan_timing(nodes, look(1e-4, 1e9, kinds=kinds), 5.0)
    for pairs in rounds(len(nodes)):
        assert tuple(pairs) in plan.exchanges
    for node in set(nodes):
        leader = nodes.index(node)
        others = {nodes.index(other) for other in set(nodes) - {node}}
        assert any(
            {a for a, _ in group} == {leader} and {b for _, b in group} == others for group in plan.exchanges
        )
    assert {
        nodes[a] == nodes[b] for ((a, b),) in (group for group in plan.exchanges if len(group) == 1)
    } == kinds
    for group in plan.exchanges:  # nobody leads and follows in one group, nobody follows twice
        followers = [b for _, b in group]
        assert len(set(followers)) == len(followers)
        assert not {a for a, _ in group} & set(followers)


def test_planning_for_a_thousand_ranks_is_quick():
    nodes = [rank // 8 for rank in range(1024)]
    plan = plan_timing(nodes, look(1e-3, 1e9, kinds=(True, False)), 60.0)
    assert len(plan.exchanges) < 200

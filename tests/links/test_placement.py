"""The order of ranks that follows the parts of a cluster, up to 1,024 nodes."""

from array import array
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.links.limits import laminar, limits_by_set
from topotune.links.model import LinkCost, LinkModel, PairsAcross, SharedCapacity
from topotune.links.placement import partition_by, placement_of, rank_order, reordered_numa


def affine(alpha_s, bytes_per_s):
    return LinkCost(from_bytes=(0,), alpha_s=(alpha_s,), beta_s_per_byte=(1 / bytes_per_s,))


def around(members, num_ranks, *, is_limit=True):
    """The link of a set of ranks, both ways."""
    return tuple(
        SharedCapacity(
            name=f"link of {sorted(members)[0]}",
            capacity_bytes_per_s=1e9,
            pairs=PairsAcross(frozenset(members), num_ranks, leaving=leaving),
            is_limit=is_limit,
        )
        for leaving in (True, False)
    )


def model_of(nodes, sets=(), **settings):
    """All pairs alike, with these limits."""
    num_ranks = len(nodes)
    rows = [array("b", bytes(num_ranks)) for _ in nodes]
    for rank, row in enumerate(rows):
        row[rank] = -1
    return LinkModel(
        num_ranks=num_ranks,
        classes=(affine(1e-5, 1e9),),
        pair_class=rows,
        class_names=("all",),
        node_of_rank=tuple(nodes),
        shared=tuple(limit for members in sets for limit in around(members, num_ranks, **settings)),
    )


def num_runs(members, order):
    """In how many runs of neighbours the ranks stand."""
    positions = sorted(order.index(rank) for rank in members)
    return 1 + sum(after > before + 1 for before, after in pairwise(positions))


@st.composite
def clusters(draw):
    """Nodes in racks in rows, ranks numbered at random: (nodes, sets that limits stand around)."""
    sizes = draw(
        st.lists(
            st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3),
            min_size=1,
            max_size=3,
        )
    )
    num_ranks = sum(size for row in sizes for rack in row for size in rack)
    ranks = iter(draw(st.permutations(range(num_ranks))))
    node_of_rank, sets, number = {}, [], 0
    for row in sizes:
        of_row = []
        for rack in row:
            of_rack = []
            for size in rack:
                members = [next(ranks) for _ in range(size)]
                node_of_rank.update(dict.fromkeys(members, number))
                number += 1
                of_rack += members
            sets.append(of_rack)
            of_row += of_rack
        sets.append(of_row)
    return [node_of_rank[rank] for rank in range(num_ranks)], [s for s in sets if len(s) < num_ranks]


@settings(deadline=None, max_examples=200)
@given(clusters(), st.randoms())
def test_an_order_holds_every_rank_once_and_every_part_together(cluster, random):
    nodes, sets = cluster
    model = model_of(nodes, random.sample(sets, len(sets)))
    order = rank_order(model)
    stands = list(range(len(nodes))) if order is None else list(order)
    assert sorted(stands) == list(range(len(nodes)))
    for members in (*partition_by(nodes), *laminar({*limits_by_set(model).sending})):
        assert num_runs(members, stands) == 1
    assert order != tuple(range(len(nodes)))


@settings(deadline=None, max_examples=100)
@given(clusters())
def test_in_its_order_a_cluster_needs_none(cluster):
    nodes, sets = cluster
    model = model_of(nodes, sets)
    assert rank_order(model.reordered(rank_order(model))) is None


@settings(deadline=None, max_examples=100)
@given(clusters(), st.data())
def test_renumbering_the_ranks_changes_the_numbers_alone(cluster, data):
    """What stands together stands together whatever the numbers: the same nested sets, as sets of ranks."""
    nodes, sets = cluster
    new = data.draw(st.permutations(range(len(nodes))))
    model = model_of(nodes, sets)
    renumbered = model.reordered([new.index(rank) for rank in range(len(nodes))])
    order = rank_order(renumbered) or tuple(range(len(nodes)))
    for members in (*partition_by(nodes), *laminar({*limits_by_set(model).sending})):
        assert num_runs([new[rank] for rank in members], list(order)) == 1


@pytest.mark.parametrize(
    ("nodes", "sets", "order"),
    [
        pytest.param([0, 0, 1, 1], [], None, id="block"),
        pytest.param([0, 1, 0, 1], [], (0, 2, 1, 3), id="round-robin"),
        pytest.param([0, 1, 1, 0], [], (0, 3, 1, 2), id="apart-at-the-ends"),
        pytest.param(range(4), [], None, id="flat"),
        pytest.param(range(4), [{0, 2}, {1, 3}], (0, 2, 1, 3), id="racks-of-single-ranks"),
        pytest.param([0, 1, 2, 3] * 2, [{0, 2, 4, 6}], (0, 4, 2, 6, 1, 5, 3, 7), id="racks-of-nodes"),
        pytest.param([0, 0, 1, 1], [{1, 2}], None, id="a-limit-across-nodes-is-left-out"),
        pytest.param([0], [], None, id="one-rank"),
    ],
)
def test_parts_come_in_the_order_of_their_lowest_ranks(nodes, sets, order):
    assert rank_order(model_of(nodes, sets)) == order


def test_ranks_that_are_near_to_each_other_stand_together_without_any_limit():
    model = replace(model_of(range(4)), near=(frozenset({0, 2}), frozenset({1, 3})))
    assert rank_order(model) == (0, 2, 1, 3)
    assert placement_of(model).racks == (((0, 2), (1, 3)),)
    assert model.reordered((0, 2, 1, 3)).near == (frozenset({0, 1}), frozenset({2, 3}))


def test_what_is_no_limit_orders_nothing():
    assert rank_order(model_of(range(4), [{0, 2}], is_limit=False)) is None


def test_ranks_of_one_numa_node_stand_together_inside_their_node():
    model = model_of([0] * 4 + [1] * 4)
    numa = (0, 1, 0, 1, None, 0, 1, 0)
    order = rank_order(model, numa)
    assert order == (0, 2, 1, 3, 4, 5, 7, 6)
    assert reordered_numa(numa, order) == (0, 0, 1, 1, None, 0, 0, 1)
    assert placement_of(model, numa).numa_of_rank is None
    assert placement_of(model, (0, 1, 0, 1, 0, 0, 1, 1)).numa_of_rank == (0, 1, 0, 1, 0, 0, 1, 1)


def test_racks_are_the_finest_and_the_coarsest_groups_of_nodes():
    nodes = [rank // 2 for rank in range(16)]
    rack, other, row = {0, 1, 2, 3}, {4, 5, 6, 7}, {*range(8)}
    assert placement_of(model_of(nodes)).racks == ()
    (racks,) = placement_of(model_of(nodes, [rack])).racks
    assert racks == ((0, 1, 2, 3), tuple(range(4, 16)))
    fine, coarse = placement_of(model_of(nodes, [rack, other, row])).racks
    assert fine == ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8, 16)))
    assert coarse == (tuple(range(8)), tuple(range(8, 16)))


def test_a_model_in_another_order_costs_the_same_between_the_same_ranks():
    model = replace(
        model_of([0, 1, 0, 1], [{0, 2}]),
        classes=(affine(1e-5, 1e9), affine(5e-5, 2e8)),
        class_names=("fast", "slow"),
        pair_class=((-1, 1, 0, 1), (1, -1, 1, 0), (0, 1, -1, 1), (1, 0, 1, -1)),
    )
    order = (0, 2, 1, 3)
    moved = model.reordered(order)
    assert moved.node_of_rank == (0, 0, 1, 1)
    for a in range(4):
        for b in range(4):
            assert moved.pair_class[a][b] == model.pair_class[order[a]][order[b]]
    assert [set(limit.pairs) for limit in moved.shared] == [
        {(0, 2), (0, 3), (1, 2), (1, 3)},
        {(2, 0), (2, 1), (3, 0), (3, 1)},
    ]
    assert model.reordered(None) is model


@given(st.integers(2, 8), st.data())
def test_pairs_across_are_the_set_that_they_stand_for(num_ranks, data):
    members = data.draw(st.frozensets(st.integers(0, num_ranks - 1)))
    leaving = data.draw(st.booleans())
    pairs = PairsAcross(members, num_ranks, leaving=leaving)
    ranks = range(num_ranks)
    listed = {(a, b) for a in ranks for b in ranks if a in members and b not in members}
    listed = frozenset(listed if leaving else {(b, a) for a, b in listed})
    assert (frozenset(pairs), len(pairs), pairs == listed, hash(pairs)) == (
        listed,
        len(listed),
        True,
        hash(listed),
    )
    everything = {(a, b) for a in range(-1, num_ranks + 1) for b in range(-1, num_ranks + 1)}
    assert {pair for pair in everything if pair in pairs} == listed
    assert pairs | {(0, 0)} == listed | {(0, 0)}
    assert 3 not in pairs


@settings(deadline=None)
@given(clusters(), st.data())
def test_limits_are_found_in_either_form_of_their_pairs(cluster, data):
    nodes, sets = cluster
    model = model_of(nodes, sets)
    listed = replace(
        model, shared=tuple(replace(limit, pairs=frozenset(limit.pairs)) for limit in model.shared)
    )
    found, expected = limits_by_set(model), limits_by_set(listed)
    assert (found.sending.keys(), found.receiving.keys()) == (
        expected.sending.keys(),
        expected.receiving.keys(),
    )


def test_a_thousand_nodes_in_racks_are_ordered_at_once():
    """8,192 ranks, dealt round the nodes; the time is a fraction of a second, or the test would not end."""
    num_nodes, per_node, per_rack = 1024, 8, 32
    num_ranks = num_nodes * per_node
    nodes = [rank % num_nodes for rank in range(num_ranks)]
    node_sets = partition_by(nodes)
    rack_sets = partition_by(node // per_rack for node in nodes)
    model = model_of(nodes, [*node_sets, *rack_sets])
    order = rank_order(model)
    assert order is not None
    assert order[:9] == (*range(0, num_ranks, num_nodes), 1)
    assert [nodes[rank] for rank in order] == sorted(nodes)
    assert placement_of(model).racks == (rack_sets,)

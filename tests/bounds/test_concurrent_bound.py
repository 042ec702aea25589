"""What several groups at once need at least: what they share adds up, and no schedule is faster."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_models import links_of

from topotune.bounds import (
    NoBound,
    allgather_bound,
    allreduce_bound,
    concurrent_bound,
    graph_from_links,
    reduce_scatter_bound,
)
from topotune.links import SharedCapacity
from topotune.links.model import PairsAcross
from topotune.tune.mesh import read_groups

COLLECTIVES = ("allreduce", "reduce_scatter", "allgather")
NODE = 25e6
"""200 Mbit/s, as of the lab's nodes."""


def cluster(node_of_rank, sending, receiving, racks=()):
    """Ranks on nodes with a limit each way; racks are (members, sending, receiving)."""
    num_ranks = len(node_of_rank)
    sets = [
        ([rank for rank in range(num_ranks) if node_of_rank[rank] == node], out, into, f"link of node {node}")
        for node, (out, into) in enumerate(zip(sending, receiving, strict=True))
    ]
    sets += [
        (members, out, into, f"uplink of rack {number}") for number, (members, out, into) in enumerate(racks)
    ]
    shared = [
        SharedCapacity(
            name=f"{name}, {way}",
            capacity_bytes_per_s=rate,
            pairs=PairsAcross(frozenset(members), num_ranks, leaving=way == "sending"),
            is_limit=True,
        )
        for members, out, into, name in sets
        for way, rate in (("sending", out), ("receiving", into))
    ]
    return links_of(node_of_rank, shared)


def alike(num_nodes, ranks_per_node, racks=()):
    nodes = [rank // ranks_per_node for rank in range(num_nodes * ranks_per_node)]
    return cluster(nodes, [NODE] * num_nodes, [NODE] * num_nodes, racks)


def mesh(text, num_ranks, name):
    return next(one.groups for one in read_groups(text, num_ranks) if one.name == name)


@pytest.mark.parametrize(
    ("model", "text", "name", "messages"),
    [
        # Four pairs across two nodes: each node's link carries all four.
        pytest.param(alike(2, 4), "dp=2,tp=4", "dp", {"allreduce": 4, "allgather": 2}, id="2x4"),
        # Two groups of four nodes: 2(k-1) messages of each, over four links.
        pytest.param(alike(4, 2), "dp=4,tp=2", "dp", {"allreduce": 3, "allgather": 1.5}, id="4x2"),
        # Groups of two neighbouring nodes: each node's link carries its own group alone.
        pytest.param(alike(4, 2), "dp=2,tp=4", "tp", {"allreduce": 1, "allgather": 0.5}, id="4x2-halves"),
    ],
)
def test_what_groups_share_adds_up(model, text, name, messages):
    groups = mesh(text, model.num_ranks, name)
    for collective, count in {**messages, "reduce_scatter": messages["allgather"]}.items():
        bound = concurrent_bound(model, groups, collective)
        assert bound.s_per_byte == pytest.approx(count / NODE)


def test_the_uplink_that_two_racks_groups_share_is_named_with_its_ranks():
    uplink = NODE / 2
    model = alike(4, 2, racks=[([0, 1, 2, 3], uplink, uplink), ([4, 5, 6, 7], uplink, uplink)])
    bound = concurrent_bound(model, mesh("dp=2,tp=4", 8, "dp"), "allgather")
    assert bound.s_per_byte == pytest.approx(4 * 0.5 / uplink)
    assert bound.text == "uplink of rack 0, 100 Mbit/s, shared by 4 groups"
    assert bound.cut == ("ranks 0-1", "ranks 0-3", "ranks 2-3")
    # Pairs inside of racks do not use it.
    inside = concurrent_bound(model, ((0, 2), (1, 3), (4, 6), (5, 7)), "allreduce")
    assert inside.s_per_byte == pytest.approx(2 / NODE)
    assert "uplink" not in inside.text


def test_a_group_with_slower_links_than_the_rest_sets_the_bound():
    model = cluster([0, 0, 1, 1, 2, 3, 4, 5], [NODE] * 2 + [NODE / 8] * 4, [NODE] * 2 + [NODE / 8] * 4)
    bound = concurrent_bound(model, ((0, 1, 2, 3), (4, 5, 6, 7)), "allreduce")
    assert bound.s_per_byte == pytest.approx(6 / (4 * NODE / 8))
    assert bound.cut == ("rank 4", "rank 5", "rank 6", "rank 7")
    assert "shared" not in bound.text


@pytest.mark.parametrize(
    ("model", "groups", "reason"),
    [
        (alike(2, 2), ((0,), (1,)), "a single rank exchanges nothing"),
        (
            alike(2, 2),
            ((0, 1), (2, 3)),
            "all ranks of each group share one machine's memory, where no link bounds them",
        ),
        (
            cluster([0, 0, 1, 1], [], []),
            ((0, 2), (1, 3)),
            "no limit of the links between the nodes is known",
        ),
        (
            cluster([0, 1, 2, 3], [], [], racks=[([0, 1], NODE, NODE)]),
            ((0, 1), (2, 3)),
            "no links with a known limit separate the ranks of a group",
        ),
    ],
    ids=["one rank", "one machine", "no limits", "not parted"],
)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_where_there_is_no_bound_the_reason_is_said(model, groups, reason, collective):
    assert concurrent_bound(model, groups, collective) == NoBound(reason=reason)


def test_the_world_has_the_bound_that_it_has_alone():
    model = alike(4, 2)
    assert concurrent_bound(model, (tuple(range(8)),), "allreduce") == allreduce_bound(model)


@st.composite
def placed_groups(draw):
    """Up to 6 unlike nodes, some of them in a rack, and groups of one size that hold all ranks."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    size, num_groups = draw(st.sampled_from([(2, 1), (2, 3), (3, 2), (4, 2), (2, 4), (5, 1), (6, 2)]))
    num_ranks = size * num_groups
    num_nodes = draw(st.integers(2, min(6, num_ranks)))
    nodes = [*range(num_nodes), *(chance.randrange(num_nodes) for _ in range(num_ranks - num_nodes))]
    chance.shuffle(nodes)
    rates = [[chance.randint(1, 9) * 1e6 for _ in range(num_nodes)] for _ in range(2)]
    in_rack = chance.randint(0, num_nodes - 1)
    members = [rank for rank in range(num_ranks) if nodes[rank] < in_rack]
    racks = [(members, chance.randint(1, 9) * 1e6, chance.randint(1, 9) * 1e6)] if in_rack > 1 else []
    order = list(range(num_ranks))
    chance.shuffle(order)
    groups = tuple(tuple(sorted(order[start : start + size])) for start in range(0, num_ranks, size))
    return cluster(nodes, *rates, racks=racks), groups


def flow_s(model, flows):
    """Time of flows (src, dst, bytes) that share the limits as well as can be: the fullest limit's."""
    return max(
        sum(num_bytes for src, dst, num_bytes in flows if (src, dst) in one.pairs) / one.capacity_bytes_per_s
        for one in model.shared
    )


def ring_flows(groups, message_bytes, times):
    for group in groups:
        for src, dst in zip(group, (*group[1:], group[0]), strict=True):
            yield src, dst, times * (len(group) - 1) / len(group) * message_bytes


@settings(max_examples=60, deadline=None)
@given(placed_groups())
def test_no_rings_are_faster_in_any_order_and_one_group_is_bound_as_by_the_exact_cut(drawn):
    model, groups = drawn
    for collective in COLLECTIVES:
        bound = concurrent_bound(model, groups, collective)
        if isinstance(bound, NoBound):
            continue
        times = 2 if collective == "allreduce" else 1
        orders = itertools.islice(itertools.product(*map(itertools.permutations, groups)), 50)
        fastest_s = min(flow_s(model, list(ring_flows(order, 1e6, times))) for order in orders)
        assert bound.time_s(1e6) <= fastest_s * (1 + 1e-9)
        for group in groups:
            alone = concurrent_bound(model, (group,), collective)
            if not isinstance(alone, NoBound):
                assert alone.s_per_byte <= bound.s_per_byte * (1 + 1e-9)
    if len(groups) == 1:
        graph = graph_from_links(model)
        for collective, exact in (("allgather", allgather_bound), ("reduce_scatter", reduce_scatter_bound)):
            found = concurrent_bound(model, groups, collective)
            assert found.s_per_byte == pytest.approx(1 / exact(graph).algbw_bytes_per_s)


@settings(max_examples=40, deadline=None)
@given(placed_groups())
def test_a_group_alone_is_never_bound_higher_than_the_optimum_among_its_ranks(drawn):
    model, groups = drawn
    for group in groups:
        alone = concurrent_bound(model, (group,), "allreduce")
        exact = allreduce_bound(model.among(group))
        if not isinstance(alone, NoBound) and not isinstance(exact, NoBound):
            assert alone.s_per_byte <= exact.s_per_byte * (1 + 1e-6)

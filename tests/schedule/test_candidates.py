"""What is offered for which placement, and that it stays bounded however large the cluster is."""

import pytest

from topotune.links.placement import Placement
from topotune.plan.algorithms import check_params
from topotune.schedule import candidates, groupings
from topotune.schedule.hierarchical import as_lists

RACKS = (((0, 1, 2, 3), (4, 5, 6, 7)),)
PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7]]
HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
NESTED_PAIRS = [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def found(nodes, **known):
    return [as_lists(groups) for groups in groupings(Placement(node_of_rank=tuple(nodes), **known))]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([0, 0, 0, 0], [[[0, 1], [2, 3]]], id="one-node-of-4"),
        pytest.param([0] * 6, [[[0, 1], [2, 3], [4, 5]], [[0, 1, 2], [3, 4, 5]]], id="one-node-of-6"),
        pytest.param([0] * 5, [], id="prime"),
        pytest.param([0, 0, 1, 1], [[[0, 1], [2, 3]]], id="two-nodes"),
        pytest.param([0, 1, 0, 1], [[[0, 2], [1, 3]]], id="round-robin"),
        pytest.param([0, 0, 0, 1], [[[0, 1, 2], [3]]], id="unequal-nodes"),
        pytest.param([0, 1, 2, 3], [[[0, 1], [2, 3]]], id="one-rank-a-node"),
        pytest.param([0] * 4 + [1] * 4, [PAIRS, HALVES, NESTED_PAIRS], id="halves-of-nodes"),
        pytest.param([0] * 3 + [1] * 3, [[[0, 1, 2], [3, 4, 5]]], id="no-halves"),
    ],
)
def test_groupings_follow_nodes_and_their_halves_or_else_blocks(nodes, expected):
    assert found(nodes) == expected


def test_racks_are_a_level_by_themselves_and_above_nodes():
    assert found([0, 0, 1, 1, 2, 2, 3, 3], racks=RACKS) == [PAIRS, HALVES, NESTED_PAIRS]
    assert found(range(8), racks=RACKS) == [HALVES]


def test_rows_of_racks_are_one_more_level_and_every_two_levels_make_three():
    racks = (
        ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)),
        (tuple(range(8)), tuple(range(8, 16))),
    )
    levels = [
        as_lists(groups)
        for groups in groupings(Placement(node_of_rank=tuple(r // 2 for r in range(16)), racks=racks))
    ]
    assert [len(groups) for groups in levels[:3]] == [8, 4, 2]
    assert [[len(outer) for outer in groups] for groups in levels[3:]] == [[2, 2, 2, 2], [4, 4], [2, 2]]


def test_numa_nodes_take_the_place_of_guessed_halves():
    numa = (0, 1, 1, 0, 0, 0, 1, 1)
    inner = [[0, 3], [1, 2], [4, 5], [6, 7]]
    assert found([0] * 4 + [1] * 4, numa_of_rank=numa) == [
        inner,
        HALVES,
        [[[0, 3], [1, 2]], [[4, 5], [6, 7]]],
    ]
    assert found([0] * 8, numa_of_rank=numa) == [[[0, 3, 4, 5], [1, 2, 6, 7]]]


def test_one_numa_node_a_node_is_no_level_of_its_own():
    assert found([0, 0, 1, 1], numa_of_rank=(0, 0, 0, 0)) == [[[0, 1], [2, 3]]]
    assert found([0] * 4, numa_of_rank=(0, 0, 0, 0)) == [[[0, 1], [2, 3]]]


def test_unequal_racks_are_offered_like_any_others():
    racks = (((0, 1, 2, 3, 4), (5, 6)),)
    placement = Placement(node_of_rank=(0, 0, 1, 1, 1, 2, 3), racks=racks)
    assert as_lists(groupings(placement)[-1]) == [[[0, 1], [2, 3, 4]], [[5], [6]]]
    assert {name for name, _ in candidates(placement)} >= {
        "hierarchical",
        "native_hierarchical",
        "shm_hierarchical",
    }
    assert [check_params(*one, 7) for one in candidates(placement)] == [None] * len(candidates(placement))


def test_the_librarys_own_allreduce_is_offered_only_in_another_order():
    placement = Placement(node_of_rank=(0, 0, 1, 1))
    extra = set(map(str, candidates(placement, is_reordered=True))) - set(map(str, candidates(placement)))
    assert extra == {str(("native_allreduce", {}))}


def test_numa_of_rank_is_known_of_all_ranks_or_not_at_all():
    with pytest.raises(ValueError, match="numa_of_rank names 1 ranks, not 2"):
        Placement(node_of_rank=(0, 0), numa_of_rank=(0,))


@pytest.mark.parametrize(("num_nodes", "most"), [(4, 88), (64, 108), (1024, 108)])
def test_however_many_nodes_the_candidates_are_as_few(num_nodes, most):
    ranks = range(8 * num_nodes)
    racks = tuple(tuple(range(first, first + 16)) for first in ranks[::16])
    rows = (tuple(ranks[: len(ranks) // 2]), tuple(ranks[len(ranks) // 2 :]))
    placement = Placement(
        node_of_rank=tuple(rank // 8 for rank in ranks),
        numa_of_rank=tuple(rank // 4 % 2 for rank in ranks),
        racks=(racks, rows),
    )
    named = candidates(placement)
    assert 0 < len(named) <= most
    assert {check_params(*one, len(ranks)) for one in named} == {None}

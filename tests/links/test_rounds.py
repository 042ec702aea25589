import itertools

import pytest

from topotune.links import rounds
from topotune.links.rounds import waves


@pytest.mark.parametrize("num_ranks", range(2, 34))
def test_rounds_are_disjoint_and_hold_each_pair_once(num_ranks):
    all_rounds = rounds(num_ranks)
    assert len(all_rounds) == (num_ranks - 1 if num_ranks % 2 == 0 else num_ranks)
    for pairs in all_rounds:
        ranks = [rank for pair in pairs for rank in pair]
        assert len(set(ranks)) == len(ranks) == num_ranks - num_ranks % 2
    flat = [pair for pairs in all_rounds for pair in pairs]
    assert sorted(flat) == list(itertools.combinations(range(num_ranks), 2))


def test_one_rank_has_no_rounds():
    assert rounds(1) == []


@pytest.mark.parametrize(
    "node_of_rank",
    [[0] * 4, [0, 0, 1, 1], [0, 1, 0, 1, 2], list(range(6)), [0, 0, 0, 1, 1, 2, 2, 2]],
    ids=lambda nodes: "".join(map(str, nodes)),
)
def test_waves_hold_each_pair_once_and_each_node_in_one_pair(node_of_rank):
    all_waves = waves(rounds(len(node_of_rank)), node_of_rank)
    for pairs in all_waves:
        touched = [frozenset(node_of_rank[rank] for rank in pair) for pair in pairs]
        assert all(not a & b for a, b in itertools.combinations(touched, 2))
    flat = [pair for pairs in all_waves for pair in pairs]
    assert sorted(flat) == list(itertools.combinations(range(len(node_of_rank)), 2))


def test_waves_of_single_rank_nodes_are_the_rounds():
    assert waves(rounds(6), range(6)) == rounds(6)

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_strategies import integer_inputs, nested_partitions, partitions, pieces, schedules

from topotune.errors import UsageError
from topotune.plan.grouping import ACROSS
from topotune.schedule import (
    COPY,
    REDUCE,
    double_binary_tree,
    halving_doubling,
    hierarchical,
    interpret,
    recursive_doubling,
    ring,
    verify,
)
from topotune.schedule.tree import complementary_parents, in_order_parents

WORLD_SIZES = range(1, 34)
TWO_NODES = [[0, 1, 2, 3], [4, 5, 6, 7]]


def sent_fraction(schedule) -> np.ndarray:
    """Bytes that each rank sends, over the message size."""
    weights = schedule.chunk_fractions()[schedule.chunk]
    return np.bincount(schedule.src, weights=weights, minlength=schedule.num_ranks)


def num_steps(schedule) -> int:
    return int(schedule.step.max()) + 1


@settings(deadline=None, max_examples=150)
@given(schedules, st.integers(0, 200), st.integers(0, 2**32))
def test_any_schedule_verifies_and_leaves_the_exact_sum_on_all_ranks(schedule, num_elements, seed):
    assert verify(schedule) == ()
    inputs = integer_inputs(schedule.num_ranks, num_elements, seed)
    np.testing.assert_array_equal(
        interpret(schedule, inputs), np.broadcast_to(np.sum(inputs, axis=0), inputs.shape)
    )


@settings(deadline=None, max_examples=50)
@given(schedules, st.integers(0, 2**32))
def test_floats_are_equal_bit_for_bit_on_all_ranks(schedule, seed):
    inputs = np.random.default_rng(seed).normal(size=(schedule.num_ranks, 97)).astype(np.float32)
    outputs = interpret(schedule, inputs).view(np.uint32)
    assert (outputs == outputs[0]).all()


@settings(deadline=None, max_examples=50)
@given(schedules)
def test_rows_are_sorted_by_channel_then_step_and_cannot_be_written(schedule):
    place = schedule.channel.astype(np.int64) * 2**32 + schedule.step
    assert (np.diff(place) >= 0).all()
    with pytest.raises(ValueError, match="read-only"):
        schedule.step[:] = 0


@settings(deadline=None, max_examples=50)
@given(schedules.filter(lambda schedule: schedule.num_transfers > 0))
def test_no_step_is_empty(schedule):
    assert len(np.unique(schedule.step)) == num_steps(schedule)


@settings(deadline=None, max_examples=50)
@given(schedules, st.integers(0, 1000))
def test_chunks_cover_every_message_without_gaps(schedule, num_elements):
    bounds = schedule.element_bounds(num_elements)
    assert (bounds[0], bounds[-1]) == (0, num_elements)
    assert bounds == sorted(bounds)
    assert schedule.chunk_fractions().sum() == pytest.approx(1.0)


@pytest.mark.parametrize("num_ranks", [2, 3, 8, 33])
@pytest.mark.parametrize(("channels", "num_pieces"), [(1, 1), (2, 1), (1, 4), (3, 2)])
def test_ring_sends_each_rank_the_least_bytes_in_2n_minus_2_hops(num_ranks, channels, num_pieces):
    schedule = ring(num_ranks, channels=channels, pieces=num_pieces)
    assert sent_fraction(schedule) == pytest.approx(2 * (num_ranks - 1) / num_ranks)
    assert num_steps(schedule) == 2 * (num_ranks - 1) * num_pieces
    assert schedule.num_chunks == num_ranks * channels * num_pieces


def test_ring_channels_run_in_opposite_directions():
    schedule = ring(5, channels=2)
    hops = (schedule.dst - schedule.src) % 5
    assert set(hops[schedule.channel == 0]) == {1}
    assert set(hops[schedule.channel == 1]) == {4}


@pytest.mark.parametrize("num_ranks", [2, 3, 8, 33])
def test_ring_ranks_send_and_receive_one_piece_a_step(num_ranks):
    schedule = ring(num_ranks, pieces=3)
    for ends in (schedule.src, schedule.dst):
        assert len(np.unique(np.stack((schedule.step, ends)), axis=1).T) == schedule.num_transfers


@pytest.mark.parametrize("num_ranks", WORLD_SIZES)
def test_doubling_takes_log2_n_steps_and_two_more_to_fold(num_ranks):
    exchanges = num_ranks.bit_length() - 1
    folds = 2 if num_ranks & (num_ranks - 1) else 0
    if num_ranks > 1:
        assert num_steps(recursive_doubling(num_ranks)) == exchanges + folds
        assert num_steps(halving_doubling(num_ranks)) == 2 * exchanges + folds


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 16, 32])
def test_halving_doubling_sends_the_least_bytes_half_of_them_to_the_neighbour(num_ranks):
    schedule = halving_doubling(num_ranks)
    assert sent_fraction(schedule) == pytest.approx(2 * (num_ranks - 1) / num_ranks)
    first = schedule.step == 0
    assert set(schedule.src[first] ^ schedule.dst[first]) == {1}
    assert schedule.chunk_fractions()[schedule.chunk[first & (schedule.src == 0)]].sum() == 0.5


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 16, 32])
def test_halving_doubling_always_sends_a_contiguous_range(num_ranks):
    schedule = halving_doubling(num_ranks)
    for step in range(num_steps(schedule)):
        for rank in range(num_ranks):
            chunks = np.sort(schedule.chunk[(schedule.step == step) & (schedule.src == rank)])
            assert (np.diff(chunks) == 1).all()


@pytest.mark.parametrize("num_ranks", WORLD_SIZES)
def test_both_trees_are_binary_and_share_no_inner_vertex(num_ranks):
    inner = []
    for parents in (in_order_parents(num_ranks), complementary_parents(num_ranks)):
        assert np.count_nonzero(parents < 0) == 1
        children = np.bincount(parents[parents >= 0], minlength=num_ranks)
        assert children.max(initial=0) <= 2
        inner.append(set(np.flatnonzero(children).tolist()))
        depth, at = 0, np.arange(num_ranks)
        while (at >= 0).any():
            at, depth = np.where(at >= 0, parents[at], -1), depth + 1
        assert depth <= num_ranks.bit_length()
    assert not inner[0] & inner[1]


@pytest.mark.parametrize("num_ranks", [2, 3, 7, 8, 33])
def test_tree_pieces_follow_one_step_apart_with_reduction_and_broadcast_overlapped(num_ranks):
    first = num_steps(double_binary_tree(num_ranks))
    assert first <= 3 * num_ranks.bit_length()
    schedule = double_binary_tree(num_ranks, pieces=16)
    assert num_steps(schedule) == first + 15
    if num_ranks > 2:
        reducing, copying = (set(schedule.step[schedule.op == op].tolist()) for op in (REDUCE, COPY))
        assert reducing & copying
    assert sent_fraction(schedule).max() <= 2.0


@settings(deadline=None, max_examples=60)
@given(partitions(), st.sampled_from(["ring", "halving_doubling"]), pieces)
def test_hierarchical_across_moves_the_least_bytes_out_of_every_group(groups, across, num_pieces):
    schedule = hierarchical(groups, across=across, pieces=num_pieces)
    group_of_rank = np.empty(schedule.num_ranks, dtype=int)
    for number, group in enumerate(groups):
        group_of_rank[list(group)] = number
    crosses = group_of_rank[schedule.src] != group_of_rank[schedule.dst]
    crossing = schedule.chunk_fractions()[schedule.chunk[crosses]].sum()
    assert crossing == pytest.approx(2 * (len(groups) - 1))
    if across == "ring":
        leaving = np.bincount(
            group_of_rank[schedule.src[crosses]],
            weights=schedule.chunk_fractions()[schedule.chunk[crosses]],
            minlength=len(groups),
        )
        assert leaving == pytest.approx(2 * (len(groups) - 1) / len(groups))


def leaving_each(groups, schedule):
    """What leaves each of these groups of ranks, over the message."""
    group_of_rank = np.empty(schedule.num_ranks, dtype=int)
    for number, group in enumerate(groups):
        group_of_rank[list(group)] = number
    crosses = group_of_rank[schedule.src] != group_of_rank[schedule.dst]
    weights = schedule.chunk_fractions()[schedule.chunk[crosses]]
    return np.bincount(group_of_rank[schedule.src[crosses]], weights=weights, minlength=len(groups))


@settings(deadline=None, max_examples=60)
@given(nested_partitions(), pieces)
def test_three_levels_move_the_least_bytes_out_of_every_outer_group_and_few_out_of_inner_ones(
    groups, num_pieces
):
    schedule = hierarchical(groups, pieces=num_pieces)
    outer = [[rank for inner in part for rank in inner] for part in groups]
    num_outer = len(outer)
    assert leaving_each(outer, schedule) == pytest.approx([2 * (num_outer - 1) / num_outer] * num_outer)
    # Inside an outer group of h, an inner one sends 2 (h-1)/h; across, 1/h of what the outer one sends.
    expected = [
        2 * (len(part) - 1) / len(part) + 2 * (num_outer - 1) / num_outer / len(part)
        for part in groups
        for _ in part
    ]
    assert leaving_each([inner for part in groups for inner in part], schedule) == pytest.approx(expected)


@settings(deadline=None, max_examples=30)
@given(partitions(), st.sampled_from(ACROSS), pieces)
def test_outer_groups_of_one_inner_group_are_groups_of_two_levels(groups, across, num_pieces):
    flat = hierarchical(groups, across=across, pieces=num_pieces)
    nested = hierarchical([[group] for group in groups], across=across, pieces=num_pieces)
    assert nested.params == flat.params
    assert nested.chunk_bounds == flat.chunk_bounds
    for column in ("step", "src", "dst", "chunk", "op"):
        np.testing.assert_array_equal(getattr(nested, column), getattr(flat, column))


def test_three_levels_overlap_all_stages_of_several_pieces():
    schedule = hierarchical([[[0, 1], [2, 3]], [[4, 5], [6, 7]]], pieces=4)
    crosses_racks = schedule.src // 4 != schedule.dst // 4
    crosses_nodes = (schedule.src // 2 != schedule.dst // 2) & ~crosses_racks
    inside = schedule.src // 2 == schedule.dst // 2
    steps = [set(schedule.step[rows].tolist()) for rows in (crosses_racks, crosses_nodes, inside)]
    assert steps[0] & steps[1]
    assert steps[1] & steps[2]
    assert steps[0] & steps[2]


def test_hierarchical_ranks_of_unequal_groups_own_equal_shares_of_their_group():
    schedule = hierarchical([[0, 1], [2, 3, 4]], across="recursive_doubling")
    assert schedule.chunk_bounds == (0, 2, 3, 4, 6)
    across = schedule.op == REDUCE
    across &= (schedule.src < 2) != (schedule.dst < 2)
    weights = schedule.chunk_fractions()[schedule.chunk[across]]
    owned = np.bincount(schedule.src[across], weights=weights, minlength=5)
    assert owned == pytest.approx([1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])


@pytest.mark.parametrize("across", ACROSS)
def test_hierarchical_reduces_one_piece_inside_while_another_crosses(across):
    schedule = hierarchical(TWO_NODES, across=across, pieces=2)
    crosses = (schedule.src < 4) != (schedule.dst < 4)
    assert set(schedule.step[crosses].tolist()) & set(schedule.step[~crosses].tolist())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: ring(0), "num_ranks is 0, not a whole number from 1 to 4096", id="no-ranks"),
        pytest.param(
            lambda: ring(4, channels=65), "channels is 65, not a whole number from 1 to 64", id="channels"
        ),
        pytest.param(
            lambda: ring(4, pieces=True), "pieces is True, not a whole number from 1 to 1024", id="bool"
        ),
        pytest.param(
            lambda: ring(4096, pieces=1024),
            "ring for 4096 ranks would have 34351349760 transfers, more than 16777216",
            id="too-many-transfers",
        ),
        pytest.param(
            lambda: halving_doubling(4096),
            "halving_doubling for 4096 ranks would have 33546240 transfers, more than 16777216",
            id="too-many-chunks",
        ),
        pytest.param(
            lambda: double_binary_tree(4, pieces=1.5),
            "pieces is 1.5, not a whole number from 1 to 1024",
            id="fraction",
        ),
        pytest.param(
            lambda: recursive_doubling(5000),
            "num_ranks is 5000, not a whole number from 1 to 4096",
            id="ranks",
        ),
        pytest.param(
            lambda: hierarchical([[0, 1], [3]]), "groups[1] names 3, which is no rank from 0 to 2", id="gap"
        ),
        pytest.param(
            lambda: hierarchical([[0, 1], [1]]),
            "groups[1] names rank 1, which groups[0] has already",
            id="twice",
        ),
        pytest.param(
            lambda: hierarchical([[0], []]), "groups[1] is [], not a list of ranks", id="empty-group"
        ),
        pytest.param(lambda: hierarchical([]), "groups is [], not a list of lists of ranks", id="no-groups"),
        pytest.param(
            lambda: hierarchical([[[0, 1]], [[2], 3]]),
            "groups[1][1] is 3, not a list of ranks",
            id="three-levels",
        ),
        pytest.param(lambda: hierarchical("01"), "groups is '01', not a list of lists of ranks", id="text"),
        pytest.param(
            lambda: hierarchical([["0"]]), "groups[0] names '0', which is no rank from 0 to 0", id="text-rank"
        ),
        pytest.param(
            lambda: hierarchical([[0], [1]], across="tree"),
            "across is 'tree', not one of ring, recursive_doubling, halving_doubling",
            id="across",
        ),
    ],
)
def test_a_parameter_out_of_range_is_refused_with_its_value(make, message):
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.message == message


def test_groups_of_very_many_sizes_are_refused_rather_than_cut_unevenly():
    sizes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53]
    ranks = iter(range(sum(sizes)))
    with pytest.raises(UsageError, match="share no common cut"):
        hierarchical([[next(ranks) for _ in range(size)] for size in sizes], across="recursive_doubling")

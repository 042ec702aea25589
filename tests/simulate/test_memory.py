"""Shared memory costs waits, and moving bytes at the rate that was measured, against closed forms."""

import numpy as np
import pytest
from simulated_links import ALPHA_S, BETA_S_PER_BYTE, GAMMA_S_PER_BYTE, SIZES, affine, uniform

from topotune.links.model import LinkModel, SharedCapacity
from topotune.simulate import predict_candidate
from topotune.simulate.memory import allreduce_through_memory

M = np.asarray(SIZES)


def memory_of_node(num_ranks, bytes_per_s, ranks=None):
    ranks = range(num_ranks) if ranks is None else ranks
    pairs = frozenset((a, b) for a in ranks for b in ranks if a != b)
    return SharedCapacity(name="memory of node a", capacity_bytes_per_s=bytes_per_s, pairs=pairs)


def shm(model, sizes=SIZES):
    return allreduce_through_memory(model, range(model.num_ranks), sizes)


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_a_small_message_takes_one_wait_and_every_rank_combines_all(num_ranks):
    model = uniform(num_ranks, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    np.testing.assert_allclose(shm(model, [1000]), ALPHA_S + num_ranks * 1000 * GAMMA_S_PER_BYTE)


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_a_large_one_is_moved_twice_but_for_the_own_piece_and_takes_a_wait_for_each_rank(num_ranks):
    model = uniform(num_ranks, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    moved = (2 - 1 / num_ranks) * 2**26
    np.testing.assert_allclose(shm(model, [2**26]), num_ranks * ALPHA_S + moved * GAMMA_S_PER_BYTE)


def test_between_them_slots_take_two_waits():
    model = uniform(8, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    np.testing.assert_allclose(shm(model, [2**18]), 2 * ALPHA_S + (3 - 2 / 8) * 2**18 * GAMMA_S_PER_BYTE)


def test_where_reducing_was_not_measured_a_byte_costs_what_it_does_in_a_message():
    np.testing.assert_allclose(shm(uniform(2)), shm(uniform(2, reduce_s_per_byte=BETA_S_PER_BYTE)))


def test_bytes_cost_more_by_as_much_as_messages_are_slower_together():
    quick = uniform(4, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    shared = (memory_of_node(4, 1 / BETA_S_PER_BYTE),)  # four get together what one gets alone
    slow = uniform(4, reduce_s_per_byte=GAMMA_S_PER_BYTE, shared=shared)
    np.testing.assert_allclose(shm(slow), shm(uniform(4, reduce_s_per_byte=4 * GAMMA_S_PER_BYTE)))
    ample = uniform(4, reduce_s_per_byte=GAMMA_S_PER_BYTE, shared=(memory_of_node(4, 1e12),))
    np.testing.assert_array_equal(shm(ample), shm(quick))


def test_the_memory_of_other_ranks_slows_nobody():
    others = (memory_of_node(4, 1.0, ranks=[2, 3]), memory_of_node(4, 1.0, ranks=[0, 2]))
    model = uniform(4, reduce_s_per_byte=GAMMA_S_PER_BYTE, shared=others)
    np.testing.assert_array_equal(
        allreduce_through_memory(model, [0, 1], SIZES),
        shm(uniform(2, reduce_s_per_byte=GAMMA_S_PER_BYTE)),
    )


def test_the_slowest_pair_decides():
    model = LinkModel(
        num_ranks=3,
        classes=(affine(ALPHA_S, BETA_S_PER_BYTE), affine(3 * ALPHA_S, BETA_S_PER_BYTE / 2)),
        class_names=("near", "far"),
        pair_class=((-1, 0, 1), (0, -1, 1), (1, 1, -1)),
        node_of_rank=(0, 0, 0),
    )
    slowest = uniform(3, cost=affine(3 * ALPHA_S, BETA_S_PER_BYTE))
    np.testing.assert_array_equal(shm(model), shm(slowest))
    np.testing.assert_array_equal(allreduce_through_memory(model, [0, 1], SIZES), shm(uniform(2)))


def test_where_moving_a_byte_costs_less_than_sending_it_shared_memory_is_predicted_to_be_faster():
    for num_ranks in (2, 3, 4, 8):
        model = uniform(num_ranks, reduce_s_per_byte=GAMMA_S_PER_BYTE, call_overhead_s=1e-4)
        assert (
            predict_candidate("shm", {}, model, SIZES) < predict_candidate("default", {}, model, SIZES)
        ).all()

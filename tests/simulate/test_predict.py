from dataclasses import replace
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_links import (
    ALPHA_S,
    BETA_S_PER_BYTE,
    GAMMA_S_PER_BYTE,
    SIZES,
    affine,
    random_model,
    uniform,
)

from topotune.errors import UsageError
from topotune.links.model import LinkCost, LinkModel, SharedCapacity
from topotune.links.placement import Placement
from topotune.schedule import (
    Schedule,
    build,
    double_binary_tree,
    halving_doubling,
    hierarchical,
    recursive_doubling,
    ring,
    schedule_candidates,
)
from topotune.simulate import predict


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 7, 8, 16])
def test_ring_takes_the_textbook_time(num_ranks):
    sizes = np.asarray(SIZES)
    expected = 2 * (num_ranks - 1) * (ALPHA_S + sizes / num_ranks * BETA_S_PER_BYTE)
    np.testing.assert_allclose(predict(ring(num_ranks), uniform(num_ranks), SIZES), expected)
    reducing = uniform(num_ranks, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    expected += (num_ranks - 1) / num_ranks * sizes * GAMMA_S_PER_BYTE
    np.testing.assert_allclose(predict(ring(num_ranks), reducing, SIZES), expected)


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 32])
def test_recursive_doubling_takes_the_textbook_time(num_ranks):
    expected = log2(num_ranks) * (ALPHA_S + np.asarray(SIZES) * (BETA_S_PER_BYTE + GAMMA_S_PER_BYTE))
    model = uniform(num_ranks, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    np.testing.assert_allclose(predict(recursive_doubling(num_ranks), model, SIZES), expected)


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 32])
def test_halving_doubling_takes_the_textbook_time(num_ranks):
    share = (num_ranks - 1) / num_ranks
    wire = share * np.asarray(SIZES) * (2 * BETA_S_PER_BYTE + GAMMA_S_PER_BYTE)
    model = uniform(num_ranks, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    np.testing.assert_allclose(
        predict(halving_doubling(num_ranks), model, SIZES), 2 * log2(num_ranks) * ALPHA_S + wire
    )


@pytest.mark.parametrize("num_ranks", [3, 5, 6, 13])
def test_folding_costs_two_whole_messages(num_ranks):
    core = 2 ** int(log2(num_ranks))
    folds = 2 * (ALPHA_S + np.asarray(SIZES) * BETA_S_PER_BYTE)
    for make in (recursive_doubling, halving_doubling):
        inner = predict(make(core), uniform(core), SIZES)
        np.testing.assert_allclose(predict(make(num_ranks), uniform(num_ranks), SIZES), inner + folds)


@pytest.mark.parametrize(("num_groups", "size"), [(2, 2), (2, 4), (4, 2), (3, 3)])
def test_hierarchical_takes_the_time_of_its_stages(num_groups, size):
    inside, between = affine(5e-6, 1e-10), affine(ALPHA_S, BETA_S_PER_BYTE)
    num_ranks = num_groups * size
    node = [rank // size for rank in range(num_ranks)]
    model = LinkModel(
        num_ranks=num_ranks,
        classes=(inside, between),
        class_names=("inside", "between"),
        pair_class=tuple(
            tuple(-1 if a == b else int(node[a] != node[b]) for b in range(num_ranks))
            for a in range(num_ranks)
        ),
        node_of_rank=tuple(node),
    )
    groups = [[rank for rank in range(num_ranks) if node[rank] == group] for group in range(num_groups)]
    sizes = np.asarray(SIZES)
    expected = 2 * (size - 1) * (5e-6 + sizes / size * 1e-10)
    expected += 2 * (num_groups - 1) * (ALPHA_S + sizes / num_ranks * BETA_S_PER_BYTE)
    np.testing.assert_allclose(predict(hierarchical(groups), model, SIZES), expected)


@pytest.mark.parametrize("num_ranks", [4, 8, 15, 32])
def test_many_pieces_bring_double_trees_near_twice_the_bytes(num_ranks):
    model = uniform(num_ranks, cost=affine(0.0, BETA_S_PER_BYTE))
    whole, cut = (predict(double_binary_tree(num_ranks, pieces=p), model, [2**26])[0] for p in (1, 256))
    least = 2 * (num_ranks - 1) / num_ranks * 2**26 * BETA_S_PER_BYTE
    assert least <= cut < 1.1 * 2 * 2**26 * BETA_S_PER_BYTE < whole


def test_pieces_hide_the_reduction_behind_the_transfer():
    model = uniform(4, cost=affine(0.0, BETA_S_PER_BYTE), reduce_s_per_byte=BETA_S_PER_BYTE)
    plain, cut = (predict(ring(4, pieces=pieces), model, [2**20])[0] for pieces in (1, 2))
    wire = 2 * 3 / 4 * 2**20 * BETA_S_PER_BYTE
    assert plain == pytest.approx(1.5 * wire)
    assert cut == pytest.approx(wire)


def test_each_further_step_costs_a_latency():
    times = [predict(ring(4, pieces=pieces), uniform(4), [0])[0] for pieces in (1, 2, 4)]
    assert times == pytest.approx([6 * ALPHA_S, 12 * ALPHA_S, 24 * ALPHA_S])


def columns_of(rows):
    table = np.asarray(rows, dtype=np.int32)
    return dict(zip(("step", "channel", "src", "dst", "chunk", "op"), table.T, strict=True))


def test_messages_of_one_step_share_the_port_of_their_rank():
    rows = [(0, 0, 0, 1, 0, 0), (0, 0, 0, 2, 1, 0)]
    fan_out = Schedule(algorithm="test", num_ranks=3, chunk_bounds=(0, 1, 2), **columns_of(rows))
    fan_in = replace(fan_out, src=fan_out.dst, dst=fan_out.src)
    for schedule in (fan_out, fan_in):
        assert predict(schedule, uniform(3), [2000])[0] == pytest.approx(ALPHA_S + 2000 * BETA_S_PER_BYTE)


def test_chunks_between_two_ranks_in_one_step_are_one_message():
    cost = LinkCost(from_bytes=(0, 1000), alpha_s=(1.0, 3.0), beta_s_per_byte=(0.0, 0.0))
    rows = [(0, 0, 0, 1, chunk, 0) for chunk in range(4)]
    schedule = Schedule(algorithm="test", num_ranks=2, chunk_bounds=(0, 1, 2, 3, 4), **columns_of(rows))
    np.testing.assert_allclose(predict(schedule, uniform(2, cost=cost), [999, 1000]), [1.0, 3.0])


def test_a_shared_capacity_is_filled_by_all_that_use_it_in_a_step():
    rows = [(0, 0, 0, 1, 0, 0), (0, 1, 2, 3, 1, 0)]
    schedule = Schedule(algorithm="test", num_ranks=4, chunk_bounds=(0, 1, 2), **columns_of(rows))
    pairs = frozenset({(0, 1), (2, 3), (1, 0)})
    uplink = SharedCapacity(name="uplink", capacity_bytes_per_s=0.5 / BETA_S_PER_BYTE, pairs=pairs)
    alone = predict(schedule, uniform(4), [2**20])[0]
    assert alone == pytest.approx(ALPHA_S + 2**19 * BETA_S_PER_BYTE)
    shared = predict(schedule, uniform(4, shared=(uplink,)), [2**20])[0]
    assert shared == pytest.approx(ALPHA_S + 2 * 2**20 * BETA_S_PER_BYTE)
    other = replace(uplink, pairs=frozenset({(1, 2)}))
    assert predict(schedule, uniform(4, shared=(other,)), [2**20])[0] == alone


def test_a_slow_pair_delays_only_those_who_depend_on_it():
    rows = [(0, 0, 0, 1, 0, 0), (0, 0, 2, 3, 1, 0), (1, 0, 3, 2, 1, 0)]
    schedule = Schedule(algorithm="test", num_ranks=4, chunk_bounds=(0, 1, 2), **columns_of(rows))
    kinds = [[-1 if a == b else 0 for b in range(4)] for a in range(4)]
    kinds[0][1] = 1
    model = replace(
        uniform(4),
        classes=(affine(1.0, 0.0), affine(1.5, 0.0)),
        class_names=("fast", "slow"),
        pair_class=tuple(map(tuple, kinds)),
    )
    assert predict(schedule, model, [8])[0] == pytest.approx(2.0)


def test_a_message_waits_until_its_receiver_has_ended_the_step_before():
    rows = [(0, 0, 0, 1, 0, 0), (1, 0, 2, 1, 1, 0)]
    schedule = Schedule(algorithm="test", num_ranks=3, chunk_bounds=(0, 1, 2), **columns_of(rows))
    assert predict(schedule, uniform(3), [0])[0] == pytest.approx(2 * ALPHA_S)


def test_a_rank_reduces_one_chunk_at_a_time():
    slow_s_per_byte = 10 * BETA_S_PER_BYTE
    rows = [(0, 0, 0, 1, 0, 1), (1, 0, 0, 1, 1, 1)]
    schedule = Schedule(algorithm="test", num_ranks=2, chunk_bounds=(0, 1, 2), **columns_of(rows))
    model = uniform(2, cost=affine(0.0, BETA_S_PER_BYTE), reduce_s_per_byte=slow_s_per_byte)
    assert predict(schedule, model, [2000])[0] == pytest.approx(
        1000 * BETA_S_PER_BYTE + 2000 * slow_s_per_byte
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 9), st.integers(0, 2**32), st.data())
def test_renumbering_schedule_and_links_together_changes_nothing(num_ranks, seed, data):
    algorithm, params = data.draw(
        st.sampled_from(schedule_candidates(Placement(node_of_rank=(0,) * num_ranks)))
    )
    schedule, model = build(algorithm, params, num_ranks), random_model(num_ranks, seed)
    new = np.asarray(data.draw(st.permutations(range(num_ranks))))
    renumbered = replace(
        schedule, src=new[schedule.src].astype(np.int32), dst=new[schedule.dst].astype(np.int32)
    )
    kinds = np.empty((num_ranks, num_ranks), dtype=int)
    kinds[np.ix_(new, new)] = np.asarray(model.pair_class)
    shared = tuple(
        replace(capacity, pairs=frozenset((int(new[a]), int(new[b])) for a, b in capacity.pairs))
        for capacity in model.shared
    )
    moved = replace(model, pair_class=tuple(map(tuple, kinds.tolist())), shared=shared)
    np.testing.assert_allclose(predict(renumbered, moved, SIZES), predict(schedule, model, SIZES))


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 9), st.integers(0, 2**32), st.data())
def test_time_grows_with_size_and_never_passes_the_limits_of_the_links(num_ranks, seed, data):
    algorithm, params = data.draw(
        st.sampled_from(schedule_candidates(Placement(node_of_rank=(0,) * num_ranks)))
    )
    model = random_model(num_ranks, seed)
    times = predict(build(algorithm, params, num_ranks), model, SIZES)
    assert (np.diff(times) > 0).all()
    least_alpha_s = min(cost.latency_s for cost in model.classes)
    fastest = max(cost.bandwidth_bytes_per_s for cost in model.classes)
    sizes = np.asarray(SIZES)
    # No rank can send less than 2(n-1)/n of the message on average, nor a message faster than its latency.
    assert (times >= model.call_overhead_s + 2 * (num_ranks - 1) / num_ranks * sizes / fastest).all()
    assert (times >= model.call_overhead_s + least_alpha_s).all()


def test_sizes_may_be_taken_in_blocks(monkeypatch):
    schedule, model = hierarchical([[0, 1, 2], [3, 4]], pieces=2), random_model(5, 1)
    whole = predict(schedule, model, SIZES)
    monkeypatch.setattr("topotune.simulate.prediction._MAX_CELLS", 1)
    np.testing.assert_array_equal(predict(schedule, model, SIZES), whole)


def test_one_rank_and_no_sizes_take_no_time_beyond_the_call():
    model = uniform(1, call_overhead_s=3e-6)
    np.testing.assert_array_equal(predict(ring(1), model, [8, 16]), [3e-6, 3e-6])
    assert predict(ring(2), uniform(2), []).shape == (0,)


def test_a_schedule_for_other_ranks_than_the_links_is_refused():
    with pytest.raises(UsageError) as caught:
        predict(ring(3), uniform(4), [8])
    assert caught.value.message == "the schedule is for 3 ranks, the links are of 4"


def test_a_ring_of_512_ranks_is_predicted_whole():
    time_s = predict(ring(512), uniform(512), [2**30])[0]
    assert time_s == pytest.approx(2 * 511 * (ALPHA_S + 2**30 / 512 * BETA_S_PER_BYTE))

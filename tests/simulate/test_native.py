from dataclasses import replace

import numpy as np
import pytest
from simulated_links import ALPHA_S, BETA_S_PER_BYTE, GAMMA_S_PER_BYTE, SIZES, uniform

from topotune.errors import UsageError
from topotune.plan.algorithms import ALGORITHMS
from topotune.schedule import build, schedule_candidates, verify
from topotune.simulate import native, predict, predict_candidate

PARAMS = {
    "ring": {"channels": 1, "pieces": 1},
    "double_binary_tree": {"pieces": 2},
    "hierarchical": {"groups": [[0, 1], [2, 3]], "across": "ring", "pieces": 1},
    "native_hierarchical": {"groups": [[0, 1], [2, 3]]},
    "shm_hierarchical": {"groups": [[0, 1], [2, 3]]},
}
M = np.asarray(SIZES)


@pytest.fixture
def built(monkeypatch):
    """The schedules that predictions were made of."""
    seen = []

    def spy(schedule, model, message_bytes):
        seen.append(schedule)
        return predict(schedule, model, message_bytes)

    monkeypatch.setattr(native, "predict", spy)
    return seen


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_that_a_plan_may_name_is_predicted(algorithm):
    times = predict_candidate(algorithm, PARAMS.get(algorithm, {}), uniform(4), SIZES)
    assert times.shape == (len(SIZES),)
    assert (np.diff(times) > 0).all()


def test_schedules_are_predicted_as_built():
    for algorithm, params in schedule_candidates(6, [0] * 6):
        np.testing.assert_array_equal(
            predict_candidate(algorithm, params, uniform(6), SIZES),
            predict(build(algorithm, params, 6), uniform(6), SIZES),
        )


@pytest.mark.parametrize("num_ranks", [2, 3, 5, 8])
@pytest.mark.parametrize(
    "algorithm", ["default", "native_reduce_broadcast", "native_reduce_scatter_allgather"]
)
def test_the_steps_of_native_compositions_are_allreduces(built, algorithm, num_ranks):
    predict_candidate(algorithm, {}, uniform(num_ranks), [1])
    assert [verify(schedule) for schedule in built] == [()]


@pytest.mark.parametrize(
    "groups",
    [
        [[0, 1], [2, 3]],
        [[0, 2, 4], [1, 3, 5]],
        [[5, 4], [0, 1], [3, 2]],
        [[0, 1, 2], [3, 4]],
        [[1], [0, 2, 3, 4]],
    ],
)
def test_the_steps_of_native_hierarchies_are_allreduces(built, groups):
    num_ranks = sum(map(len, groups))
    predict_candidate("native_hierarchical", {"groups": groups}, uniform(num_ranks), [1])
    assert [verify(schedule) for schedule in built] == [()]


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8])
def test_the_default_is_a_ring_in_two_segments(num_ranks):
    expected = 2 * (num_ranks - 1) * (2 * ALPHA_S + M / num_ranks * BETA_S_PER_BYTE)
    np.testing.assert_allclose(predict_candidate("default", {}, uniform(num_ranks), SIZES), expected)


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_reduce_and_broadcast_take_the_time_of_both(num_ranks):
    levels = num_ranks.bit_length() - 1
    ring_half = (num_ranks - 1) * (2 * ALPHA_S + M / num_ranks * BETA_S_PER_BYTE)
    to_root = ALPHA_S + (num_ranks - 1) / num_ranks * M * BETA_S_PER_BYTE
    down = levels * (ALPHA_S + M * BETA_S_PER_BYTE)
    np.testing.assert_allclose(
        predict_candidate("native_reduce_broadcast", {}, uniform(num_ranks), SIZES),
        ring_half + to_root + down,
    )


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_allgather_and_reduce_moves_all_messages_and_adds_them_up(num_ranks):
    expected = (num_ranks - 1) * (2 * ALPHA_S + M * (BETA_S_PER_BYTE + GAMMA_S_PER_BYTE))
    model = uniform(num_ranks, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    np.testing.assert_allclose(predict_candidate("native_allgather_reduce", {}, model, SIZES), expected)


def test_a_native_hierarchy_takes_the_time_of_its_three_calls():
    inside = 2 * (2 * ALPHA_S + M / 2 * BETA_S_PER_BYTE)
    across = 2 * (2 * ALPHA_S + M / 4 * BETA_S_PER_BYTE)
    params = {"groups": [[0, 1], [2, 3]]}
    np.testing.assert_allclose(
        predict_candidate("native_hierarchical", params, uniform(4), SIZES), inside + across + inside / 2
    )


@pytest.mark.parametrize(
    ("algorithm", "num_calls"),
    [
        ("default", 1),
        ("native_reduce_broadcast", 2),
        ("native_reduce_scatter_allgather", 2),
        ("native_allgather_reduce", 1),
        ("native_hierarchical", 3),
        ("shm", 1),
        ("shm_hierarchical", 1),
    ],
)
def test_every_call_has_its_overhead(algorithm, num_calls):
    params, quick = PARAMS.get(algorithm, {}), uniform(4)
    slow = replace(quick, call_overhead_s=1.0)
    extra = predict_candidate(algorithm, params, slow, SIZES) - predict_candidate(
        algorithm, params, quick, SIZES
    )
    np.testing.assert_allclose(extra, num_calls)


@pytest.mark.parametrize(
    ("num_ranks", "passes"),
    [
        (2, lambda m: ALPHA_S + m * BETA_S_PER_BYTE + m * GAMMA_S_PER_BYTE),
        (4, lambda m: 2 * (ALPHA_S + 3 / 4 * m * BETA_S_PER_BYTE) + 3 / 4 * m * GAMMA_S_PER_BYTE),
    ],
)
def test_shared_memory_takes_a_copy_in_and_where_many_reduce_a_copy_out(num_ranks, passes):
    model = uniform(num_ranks, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    np.testing.assert_allclose(predict_candidate("shm", {}, model, [2**26]), passes(2**26))
    alone = ALPHA_S + M[1] * BETA_S_PER_BYTE + (num_ranks - 1) * M[1] * GAMMA_S_PER_BYTE
    np.testing.assert_allclose(predict_candidate("shm", {}, model, [M[1]]), alone)


@pytest.mark.parametrize(
    ("groups", "across"),
    [
        ([[0, 1], [2, 3]], lambda m: 2 * (2 * ALPHA_S + m / 4 * BETA_S_PER_BYTE)),
        ([[0, 1, 2], [3]], lambda m: 2 * (2 * ALPHA_S + m / 2 * BETA_S_PER_BYTE)),
        ([[0, 1, 2, 3]], lambda m: 0 * m),
    ],
)
def test_shared_memory_in_groups_is_that_of_the_largest_and_a_call_across(groups, across):
    inside = predict_candidate("shm", {}, uniform(max(map(len, groups))), SIZES)
    times = predict_candidate("shm_hierarchical", {"groups": groups}, uniform(4), SIZES)
    np.testing.assert_allclose(times, inside + across(M))


@pytest.mark.parametrize(
    "algorithm", ["default", "native_reduce_broadcast", "native_allgather_reduce", "shm"]
)
def test_one_rank_alone_takes_nothing_but_calls(algorithm):
    np.testing.assert_array_equal(predict_candidate(algorithm, {}, uniform(1), SIZES), np.zeros(len(SIZES)))


@pytest.mark.parametrize(
    ("algorithm", "params", "message"),
    [
        ("star", {}, "'star' is no known algorithm"),
        ("default", {"pieces": 1}, "default takes the params [], not ['pieces']"),
        ("native_hierarchical", {}, "native_hierarchical takes the params ['groups'], not []"),
        (
            "native_hierarchical",
            {"groups": [[0], [1]]},
            "native_hierarchical: groups names 2 ranks, the links are between 4",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(algorithm, params, message):
    with pytest.raises(UsageError) as caught:
        predict_candidate(algorithm, params, uniform(4), [8])
    assert caught.value.message == message

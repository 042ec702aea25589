from dataclasses import replace

import numpy as np
import pytest
from simulated_links import ALPHA_S, BETA_S_PER_BYTE, GAMMA_S_PER_BYTE, SIZES, uniform

from topotune.errors import UsageError
from topotune.links.model import PairsAcross, SharedCapacity
from topotune.links.placement import Placement
from topotune.plan.algorithms import ALGORITHMS
from topotune.schedule import build, schedule_candidates, verify
from topotune.schedule.hierarchical import num_parts
from topotune.simulate import calls, predict, predict_candidate

PARAMS = {
    "ring": {"channels": 1, "pieces": 1},
    "double_binary_tree": {"pieces": 2},
    "hierarchical": {"groups": [[0, 1], [2, 3]], "across": "ring", "pieces": 1},
    "native_hierarchical": {"groups": [[0, 1], [2, 3]]},
    "shm_hierarchical": {"groups": [[0, 1], [2, 3]]},
    "torus": {"rows": 2},
    "blueconnect": {"factors": [2, 2], "order": [1, 0]},
    "forest": {"weights": [1, 2], "down": [[-1, 0, 1, 2], [1, -1, 1, 1]]},
}
M = np.asarray(SIZES)


@pytest.fixture
def built(monkeypatch):
    """The schedules that predictions were made of."""
    seen = []

    def spy(schedule, model, message_bytes):
        seen.append(schedule)
        return predict(schedule, model, message_bytes)

    monkeypatch.setattr(calls, "predict", spy)
    return seen


def test_kernels_of_nccl_are_not_predicted():
    with pytest.raises(UsageError, match="nccl: links between ranks do not say how fast"):
        predict_candidate("nccl", {"algo": "ring", "proto": "simple"}, uniform(4), SIZES)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "nccl"])
def test_every_algorithm_that_a_plan_may_name_is_predicted(algorithm):
    times = predict_candidate(algorithm, PARAMS.get(algorithm, {}), uniform(4), SIZES)
    assert times.shape == (len(SIZES),)
    assert (np.diff(times) > 0).all()


def test_schedules_are_predicted_as_built():
    for algorithm, params in schedule_candidates(Placement(node_of_rank=(0,) * 6)):
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
    ("groups", "inside", "across"),
    [
        (
            [[0, 1], [2, 3]],
            lambda m: 2 * ALPHA_S + 3 * m * GAMMA_S_PER_BYTE,
            lambda m: 2 * (2 * ALPHA_S + m / 4 * BETA_S_PER_BYTE),
        ),
        (
            [[0, 1, 2], [3]],
            lambda m: 3 * ALPHA_S + (5 - 2 / 3) * m * GAMMA_S_PER_BYTE,
            lambda m: 2 * (2 * ALPHA_S + m / 2 * BETA_S_PER_BYTE),
        ),
        ([[0, 1, 2, 3]], lambda m: 2 * ALPHA_S + 3 * m * GAMMA_S_PER_BYTE, lambda m: 0 * m),
        (
            [[0], [1], [2], [3]],
            lambda m: 0 * m,
            lambda m: 6 * (2 * ALPHA_S + m / 4 * BETA_S_PER_BYTE),
        ),
    ],
)
def test_shared_memory_in_groups_is_the_stages_in_the_largest_and_a_call_across(groups, inside, across):
    model = uniform(4, reduce_s_per_byte=GAMMA_S_PER_BYTE)
    times = predict_candidate("shm_hierarchical", {"groups": groups}, model, SIZES)
    by_shards = len(groups) > 1 and len(set(map(len, groups))) == 1
    parts = np.asarray([num_parts(size) if by_shards else 1 for size in SIZES])
    expected = inside(M) / parts + np.maximum(across(M), inside(M) * (1 - 1 / parts))
    np.testing.assert_allclose(times, expected)


def racks_of_nodes(num_nodes, per_node):
    """Nodes that share their memory and links, two to a rack that shares its uplink."""
    num_ranks = num_nodes * per_node
    sets = [(node * per_node, per_node, 2e8) for node in range(num_nodes)]
    sets += [(rack * 2 * per_node, 2 * per_node, 1e8) for rack in range(num_nodes // 2)]
    return uniform(
        num_ranks,
        nodes=[rank // per_node for rank in range(num_ranks)],
        reduce_s_per_byte=GAMMA_S_PER_BYTE,
        call_overhead_s=1e-4,
        shared=tuple(
            SharedCapacity(
                name="link",
                capacity_bytes_per_s=rate,
                pairs=PairsAcross(frozenset(range(first, first + size)), num_ranks, leaving=leaving),
            )
            for first, size, rate in sets
            for leaving in (True, False)
        ),
    )


@pytest.mark.parametrize(
    ("algorithm", "groups"),
    [
        ("default", None),
        ("native_reduce_broadcast", None),
        ("native_reduce_scatter_allgather", None),
        ("native_allgather_reduce", None),
        ("native_hierarchical", [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]),
        ("native_hierarchical", [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]),
        ("native_hierarchical", [list(range(16))]),
        ("native_hierarchical", [[rank] for rank in range(16)]),
        ("shm_hierarchical", [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]),
    ],
)
def test_many_ranks_are_predicted_by_one_step_of_each_ring_as_few_are_by_all(monkeypatch, algorithm, groups):
    params, model = ({} if groups is None else {"groups": groups}), racks_of_nodes(4, 4)
    exact = predict_candidate(algorithm, params, model, SIZES)
    monkeypatch.setattr(calls, "_MOST_LISTED_RANKS", 1)
    np.testing.assert_allclose(predict_candidate(algorithm, params, model, SIZES), exact, rtol=0.05)


def test_unequal_groups_of_many_ranks_are_predicted_roughly(monkeypatch):
    params, model = {"groups": [[0, 1, 2, 3, 4], [*range(5, 16)]]}, racks_of_nodes(4, 4)
    exact = predict_candidate("native_hierarchical", params, model, SIZES)
    monkeypatch.setattr(calls, "_MOST_LISTED_RANKS", 1)
    np.testing.assert_allclose(
        predict_candidate("native_hierarchical", params, model, SIZES), exact, rtol=0.25
    )


def test_shared_memory_in_nodes_of_racks_runs_a_schedule_across_on_shards_of_all_places_at_once():
    groups, pieces = [[[0, 1], [2, 3]], [[4, 5], [6, 7]]], 2
    times = predict_candidate("shm_hierarchical", {"groups": groups, "pieces": pieces}, uniform(8), SIZES)
    inside = 2 * ALPHA_S + 3 * M * BETA_S_PER_BYTE
    between = {"groups": [[0, 1], [2, 3]], "across": "ring", "pieces": pieces}
    across = predict_candidate("hierarchical", between, uniform(4), [size / 2 for size in SIZES])
    np.testing.assert_allclose(times, inside + across)


def test_limits_load_alike_whether_their_pairs_are_listed_or_not():
    model = racks_of_nodes(4, 2)
    listed = replace(model, shared=tuple(replace(one, pairs=frozenset(one.pairs)) for one in model.shared))
    for algorithm in ("default", "native_reduce_broadcast"):
        np.testing.assert_array_equal(
            predict_candidate(algorithm, {}, model, SIZES), predict_candidate(algorithm, {}, listed, SIZES)
        )


@pytest.mark.parametrize(
    "algorithm", ["default", "native_reduce_broadcast", "native_allgather_reduce", "shm"]
)
def test_one_rank_alone_takes_nothing_but_calls(algorithm):
    np.testing.assert_array_equal(predict_candidate(algorithm, {}, uniform(1), SIZES), np.zeros(len(SIZES)))


@pytest.mark.parametrize(
    ("algorithm", "params", "message"),
    [
        ("star", {}, f"'star' is no known algorithm: {', '.join(ALGORITHMS)}"),
        ("default", {"pieces": 1}, "default takes no parameter 'pieces' (it takes none)"),
        ("native_hierarchical", {}, "native_hierarchical needs the parameter 'groups'"),
        (
            "native_hierarchical",
            {"groups": [[0], [1]]},
            "groups names 2 of 4 ranks; rank 2 is in none",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(algorithm, params, message):
    with pytest.raises(UsageError) as caught:
        predict_candidate(algorithm, params, uniform(4), [8])
    assert caught.value.message == message

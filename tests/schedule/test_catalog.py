import numpy as np
import pytest

from topotune.errors import UsageError, WrongResultError
from topotune.links.placement import Placement
from topotune.plan import algorithms
from topotune.schedule import Violation, build, catalog, schedule_candidates, verify

PARAMS = {
    "ring": {"channels": 2, "pieces": 2},
    "double_binary_tree": {"pieces": 3},
    "recursive_doubling": {},
    "halving_doubling": {},
    "hierarchical": {"groups": [[0, 2], [1, 3, 4]], "across": "ring", "pieces": 2},
}


def test_the_catalogue_has_the_names_and_params_that_plans_may_hold():
    assert set(catalog.PARAMS_OF_ALGORITHM) == set(algorithms.SCHEDULE_ALGORITHMS)
    for algorithm, params in catalog.PARAMS_OF_ALGORITHM.items():
        assert params == set(algorithms.ALLOWED_PARAMS[algorithm])


@pytest.mark.parametrize("num_ranks", [2, 5, 6])
@pytest.mark.parametrize(
    "params",
    [
        {"channels": 0},
        {"channels": 64},
        {"channels": 65},
        {"pieces": 1024},
        {"pieces": 1025},
        {"pieces": "2"},
        {"across": "ring"},
        {"groups": [[0, 1], [2, 3, 4]]},
        {"groups": [[0, 1], [2, 3, 4]], "across": "tree"},
        {"groups": [[0], [1]]},
        {"groups": [[[0, 1], [2]], [[3, 4]]], "pieces": 2},
        {"groups": [[[0, 1], [2]], [3, 4]]},
        {"groups": [[[[0, 1, 2, 3, 4]]]]},
        {"groups": [0, 1]},
        {"groups": 5},
        {},
    ],
    ids=str,
)
def test_build_takes_exactly_the_params_that_a_plan_may_hold(params, num_ranks):
    for algorithm in catalog.PARAMS_OF_ALGORITHM:
        if algorithms.check_params(algorithm, params, num_ranks) is None:
            assert build(algorithm, params, num_ranks).num_ranks == num_ranks
        else:
            with pytest.raises(UsageError):
                build(algorithm, params, num_ranks)


@pytest.mark.parametrize("algorithm", PARAMS)
def test_build_gives_a_verified_schedule_that_knows_its_name(algorithm):
    schedule = build(algorithm, PARAMS[algorithm], 5)
    assert (schedule.algorithm, schedule.params, schedule.num_ranks) == (algorithm, PARAMS[algorithm], 5)
    assert verify(schedule) == ()


def test_equal_calls_give_the_same_object():
    assert build("ring", {"pieces": 2, "channels": 1}, 4) is build("ring", {"channels": 1, "pieces": 2}, 4)


def test_a_schedule_that_is_no_allreduce_is_never_handed_out(monkeypatch):
    monkeypatch.setattr(
        catalog, "verify", lambda schedule: (Violation(code="missing", message="rank 0 lacks 1"),)
    )
    with pytest.raises(WrongResultError) as caught:
        build("recursive_doubling", {}, 17)
    assert caught.value.message == "recursive_doubling {} for 17 ranks is no allreduce: rank 0 lacks 1"


@pytest.mark.parametrize(
    ("algorithm", "params", "num_ranks", "message"),
    [
        (
            "star",
            {},
            4,
            "'star' is no schedule; there are ring, double_binary_tree, recursive_doubling, halving_doubling,"
            " swing, bine, torus, parameter_server, hierarchical, blueconnect, forest",
        ),
        ("ring", {"speed": 1}, 4, "ring takes no param 'speed'; it takes channels, pieces"),
        ("halving_doubling", {"pieces": 1}, 4, "halving_doubling takes no param 'pieces'; it takes none"),
        ("ring", {}, 0, "schedules are built for 1 to 2048 ranks, not 0"),
        ("ring", {}, 2049, "schedules are built for 1 to 2048 ranks, not 2049"),
        (
            "hierarchical",
            {"groups": [[0], [1]]},
            4,
            "groups names 2 of 4 ranks; rank 2 is in none",
        ),
        ("hierarchical", {"pieces": 1}, 4, "groups is None, not a list of lists of ranks"),
    ],
)
def test_what_cannot_be_built_is_refused(algorithm, params, num_ranks, message):
    with pytest.raises(UsageError) as caught:
        build(algorithm, params, num_ranks)
    assert caught.value.message == message


@pytest.mark.parametrize("num_ranks", range(1, 10))
def test_candidates_can_be_built_and_stand_in_plans_and_are_all_different(num_ranks):
    candidates = schedule_candidates(Placement(node_of_rank=(0,) * num_ranks))
    contents = set()
    for algorithm, params in candidates:
        assert algorithms.check_params(algorithm, params, num_ranks) is None
        schedule = build(algorithm, params, num_ranks)
        columns = (schedule.step, schedule.channel, schedule.src, schedule.dst, schedule.chunk, schedule.op)
        contents.add((schedule.chunk_bounds, np.stack(columns).tobytes()))
    assert len(contents) == len(candidates)
    expected = set() if num_ranks == 1 else {"ring", "double_binary_tree", "recursive_doubling"}
    assert expected <= {algorithm for algorithm, _ in candidates}

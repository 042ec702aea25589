import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_strategies import algorithms

from topotune.plan.algorithms import ALGORITHMS, ALGORITHMS_OF, ALLOWED_PARAMS, check_params


def test_every_algorithm_has_its_parameters_listed():
    assert set(ALGORITHMS) == set(ALLOWED_PARAMS)
    assert set().union(*ALGORITHMS_OF.values()) == set(ALGORITHMS)


@given(data=st.data(), num_ranks=st.integers(1, 33))
def test_good_parameters_are_taken(data, num_ranks):
    algorithm, params = data.draw(algorithms(num_ranks))
    assert check_params(algorithm, params, num_ranks) is None


@pytest.mark.parametrize(
    ("algorithm", "params", "problem"),
    [
        ("default", {"pieces": 2}, "default takes no parameter 'pieces' (it takes none)"),
        ("ring", {"channels": True}, "channels is True, not a whole number from 1 to 64"),
        ("ring", {"channels": 65}, "channels is 65, not a whole number from 1 to 64"),
        ("ring", {"pieces": 2.0}, "pieces is 2.0, not a whole number from 1 to 1024"),
        ("ring", {"pieces": [1]}, "pieces is [1], not a whole number from 1 to 1024"),
        ("hierarchical", {}, "hierarchical needs the parameter 'groups'"),
        ("hierarchical", {"groups": 3}, "groups is 3, not a list of lists of ranks"),
        ("hierarchical", {"groups": "01"}, "groups is '01', not a list of lists of ranks"),
        ("hierarchical", {"groups": [[0, 1], []]}, "groups[1] is [], not a list of ranks"),
        ("hierarchical", {"groups": [[0, 1], 2]}, "groups[1] is 2, not a list of ranks"),
        (
            "hierarchical",
            {"groups": [[0, 1], [2, -1]]},
            "groups[1] names -1, which is no rank from 0 to 3",
        ),
        (
            "hierarchical",
            {"groups": [[0, True], [2, 3]]},
            "groups[0] names True, which is no rank from 0 to 3",
        ),
        (
            "hierarchical",
            {"groups": [[0, 1], [1, 2, 3]]},
            "groups[1] names rank 1, which groups[0] has already",
        ),
        ("native_hierarchical", {"groups": [[0, 1], [3]]}, "groups names 3 of 4 ranks; rank 2 is in none"),
        (
            "hierarchical",
            {"groups": [[0, 1, 2, 3]], "across": "tree"},
            "across is 'tree', not one of ring, recursive_doubling, halving_doubling",
        ),
        (
            "hierarchical",
            {"groups": [[0, 1, 2, 3]], "across": ["ring"]},
            "across is ['ring'], not one of ring, recursive_doubling, halving_doubling",
        ),
    ],
)
def test_bad_parameters_are_told_in_words(algorithm, params, problem):
    assert check_params(algorithm, params, 4) == problem


def test_an_unknown_algorithm_is_told_with_those_that_are_known():
    assert check_params("magic", {}, 4) == f"'magic' is no known algorithm: {', '.join(ALGORITHMS)}"


def test_a_schedule_too_long_to_build_is_refused_before_it_is_built():
    problem = check_params("ring", {"channels": 64, "pieces": 1024}, 512)
    assert problem == "ring on 512 ranks takes 34292629504 transfers, more than 4194304"

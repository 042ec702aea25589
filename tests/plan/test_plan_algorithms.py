import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_strategies import algorithms, part_algorithms

from topotune.plan.algorithms import (
    ALGORITHMS,
    ALGORITHMS_OF,
    ALLOWED_PARAMS,
    ALLOWED_PART_PARAMS,
    PART_COLLECTIVES,
    check_params,
)
from topotune.plan.nccl import NCCL_ALGOS, NCCL_ALGOS_OF, nccl_collective_problem


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
        ("torus", {}, "torus needs the parameter 'rows'"),
        ("torus", {"rows": 3}, "rows is 3, which does not divide 4"),
        ("torus", {"rows": 5}, "rows is 5, not a whole number from 1 to 4"),
        ("parameter_server", {"servers": []}, "servers is [], not a list of 1 to 4 ranks"),
        ("parameter_server", {"servers": [4]}, "servers names 4, not a rank from 0 to 3"),
        ("parameter_server", {"servers": [1, 1]}, "servers is [1, 1], which names a rank twice"),
        ("forest", {"weights": [1]}, "forest needs the parameter 'down'"),
        ("forest", {"down": [[-1, 0, 0, 0]]}, "forest needs the parameter 'weights'"),
        ("forest", {"weights": [0], "down": []}, "weights[0] is 0, not a whole number from 1 to 1048576"),
        ("forest", {"weights": [1], "down": [3]}, "down[0] is 3, not a list of 4 parents"),
        (
            "forest",
            {"weights": [1], "down": [[-1, 2, 1, 0]]},
            "down[0] leads rank 1 in a circle",
        ),
        ("forest", {"weights": [1], "down": [[-1, -1, 0, 0]]}, "down[0] has 2 roots, not one"),
        ("forest", {"weights": [1], "down": [[-1, 9, 0, 0]]}, "down[0] gives rank 1 the parent 9"),
        (
            "forest",
            {"weights": [1, 1], "down": [[-1, 0, 0, 0]]},
            "forest has 2 weights, 1 trees down and 1 trees up",
        ),
        (
            "forest",
            {"weights": [1], "down": [[-1, 0, 0, 0]], "up": [[1, -1, 0, 0]]},
            "down[0] and up[0] have different roots",
        ),
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


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"algo": "ring", "proto": "ll128"}, None),
        ({"algo": "nvls", "proto": "simple", "channels": 64}, None),
        ({"algo": "nvls", "proto": "ll"}, "proto is 'll', but NCCL's nvls knows 'simple' alone"),
        ({"algo": "Ring", "proto": "ll"}, f"algo is 'Ring', not one of {', '.join(NCCL_ALGOS)}"),
        ({"algo": "ring", "proto": "LL"}, "proto is 'LL', not one of ll, ll128, simple"),
        ({"algo": ["ring"], "proto": "ll"}, f"algo is ['ring'], not one of {', '.join(NCCL_ALGOS)}"),
        ({"algo": "ring"}, "nccl needs the parameter 'proto'"),
        ({"proto": "ll"}, "nccl needs the parameter 'algo'"),
        (
            {"algo": "ring", "proto": "ll", "channels": 0},
            "channels is 0, not a whole number from 1 to 64",
        ),
        (
            {"algo": "ring", "proto": "ll", "pieces": 1},
            "nccl takes no parameter 'pieces' (it takes algo, proto, channels)",
        ),
    ],
)
def test_what_nccl_itself_runs_is_named_as_it_has_it(params, problem):
    assert check_params("nccl", params, 4) == problem


def test_every_algorithm_of_nccl_serves_some_collective_and_ring_serves_all():
    assert set().union(*NCCL_ALGOS_OF.values()) == set(NCCL_ALGOS)
    assert all("ring" in algos for algos in NCCL_ALGOS_OF.values())
    assert nccl_collective_problem("allreduce", "pat") == (
        "algo is 'pat', by which NCCL has no allreduce: "
        "tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree"
    )


def test_groups_of_three_levels_are_told_by_their_place():
    def problem(groups, algorithm="hierarchical", **params):
        return check_params(algorithm, {"groups": groups, **params}, 4)

    assert problem([[[0, 1], [2]], [[3]]]) is None
    assert problem([[[0, 1], [2]], [3]]) == "groups[1][0] is 3, not a list of ranks"
    assert problem([[[0, 1], [2]], []]) == "groups[1] is [], not a list of ranks"
    assert problem([[[0, 1], [2]], [[3], []]]) == "groups[1][1] is [], not a list of ranks"
    assert problem([[[0, 1], [2]], [[3], [0]]]) == "groups[1][1] names rank 0, which groups[0][0] has already"
    assert problem([[[0, 1]], [[2]]]) == "groups names 3 of 4 ranks; rank 3 is in none"
    deeper = "groups[0][0] names [0], which is no rank from 0 to 3"
    assert problem([[[[0], [1], [2], [3]]]]) == deeper
    two_levels = "groups[0] names [0, 1], which is no rank from 0 to 3"
    assert problem([[[0, 1]], [[2, 3]]], "native_hierarchical") == two_levels
    assert problem([[[0, 1]], [[2, 3]]], "shm_hierarchical", pieces=4) is None
    pieces = "shm_hierarchical takes pieces only with groups of three levels"
    assert problem([[0, 1], [2, 3]], "shm_hierarchical", pieces=4) == pieces


def test_groups_that_no_schedule_can_be_cut_for_are_refused_before_it_is_built():
    sizes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53]
    ranks = iter(range(sum(sizes)))
    groups = [[next(ranks) for _ in range(size)] for size in sizes]
    problem = check_params("hierarchical", {"groups": groups}, sum(sizes))
    assert problem == f"groups of sizes {sizes} share no common cut of the message"


def test_an_unknown_algorithm_is_told_with_those_that_are_known():
    assert check_params("magic", {}, 4) == f"'magic' is no known algorithm: {', '.join(ALGORITHMS)}"


def test_a_schedule_too_long_to_build_is_refused_before_it_is_built():
    problem = check_params("ring", {"channels": 64, "pieces": 1024}, 512)
    assert problem == "ring on 512 ranks takes 34292629504 transfers, more than 4194304"


@given(data=st.data(), num_ranks=st.integers(1, 33), collective=st.sampled_from(PART_COLLECTIVES))
def test_good_parameters_of_parts_are_taken(data, num_ranks, collective):
    algorithm, params = data.draw(part_algorithms(num_ranks))
    assert check_params(algorithm, params, num_ranks, collective=collective) is None


def test_every_algorithm_of_parts_has_its_parameters_listed():
    for collective in PART_COLLECTIVES:
        assert set(ALGORITHMS_OF[collective]) == set(ALLOWED_PART_PARAMS)


@pytest.mark.parametrize(
    ("algorithm", "params", "problem"),
    [
        (
            "swing",
            {},
            "'swing' is no known algorithm for allgather: default, ring, halving_doubling, hierarchical, "
            "shm, shm_hierarchical, nccl",
        ),
        ("ring", {"pieces": 0}, "pieces is 0, not a whole number from 1 to 1024"),
        ("hierarchical", {}, "hierarchical needs the parameter 'groups'"),
        (
            "hierarchical",
            {"groups": [[0, 1], [2, 3]], "across": "ring"},
            "hierarchical takes no parameter 'across' (it takes groups, pieces)",
        ),
        (
            "hierarchical",
            {"groups": [[[0, 1], [2, 3]]]},
            "groups[0] names [0, 1], which is no rank from 0 to 3",
        ),
        (
            "shm_hierarchical",
            {"groups": [[0], [1, 2, 3]]},
            "groups of sizes [1, 3]: shm_hierarchical scatters to groups of one size alone",
        ),
    ],
)
def test_a_bad_parameter_of_parts_is_named_with_its_value(algorithm, params, problem):
    assert check_params(algorithm, params, 4, collective="allgather") == problem


def test_a_schedule_of_parts_that_is_too_large_is_refused_before_it_is_built():
    problem = check_params("ring", {"channels": 64, "pieces": 1024}, 512, collective="reduce_scatter")
    assert problem == "ring on 512 ranks takes 17179869184 transfers, more than 4194304"
    problem = check_params("halving_doubling", {}, 513, collective="reduce_scatter")
    assert problem == "halving_doubling has a schedule of 513 ranks, more than 512"

"""A process beside each rank of a job that runs already."""

import pytest
from gloo_world import run_world

from topotune.errors import RankFailedError
from topotune.launch.beside import run_beside
from topotune.launch.on_ranks import launcher_here

pytestmark = pytest.mark.gloo


def beside_rank(rank, num_ranks, store, payload):
    try:
        return run_beside(launcher_here(), "launch_entries:beside", payload)
    except Exception as problem:
        return type(problem).__name__, str(problem)


def test_all_ranks_get_what_rank_0s_process_returned():
    expected = {"rank": "0", "size": "2", "x": 1}
    assert run_world(2, beside_rank, {"x": 1}) == [expected, expected]


def test_an_error_beside_rank_0_is_known_to_all():
    found = run_world(2, beside_rank, {"fails": 0})
    assert found == [("UsageError", "not like this"), ("RunError", "rank 0 failed: not like this")]


def test_a_process_that_dies_beside_a_rank_is_that_ranks_error():
    kept, lost = run_world(2, beside_rank, {"dies": 1})
    assert kept["rank"] == "0"
    assert lost[0] == RankFailedError.__name__
    assert "exit code 7" in lost[1]

"""Which rank failed first, by what the ranks left behind."""

import json

import pytest

from topotune.errors import InputFileError, PlanError, RankFailedError
from topotune.launch.rank_failure import find_failures


def leave_report(folder, rank, time_s, cause="RuntimeError: no", error=None):
    report = {"time_s": time_s, "cause": cause, "error": error, "traceback": f"Traceback of {rank}\n"}
    (folder / f"failure-{rank}.json").write_text(json.dumps(report))


def test_ranks_that_neither_ended_nor_reported_have_not_failed(tmp_path):
    assert find_failures(tmp_path, range(4), {}) == []


def test_failures_are_told_in_the_order_in_which_they_happened(tmp_path):
    leave_report(tmp_path, 0, 20.0)
    leave_report(tmp_path, 2, 10.0)
    found = find_failures(tmp_path, range(3), {1: (15.0, "exit code 3")})
    assert [(one.rank, one.cause) for one in found] == [
        (2, "RuntimeError: no"),
        (1, "exit code 3"),
        (0, "RuntimeError: no"),
    ]


@pytest.mark.parametrize(("reported_s", "first"), [(10.0, 1), (9.4, 0)], ids=["just before", "long before"])
def test_a_killed_rank_comes_before_reports_of_the_half_second_in_which_it_was_not_yet_seen(
    tmp_path, reported_s, first
):
    leave_report(tmp_path, 0, reported_s)
    found = find_failures(tmp_path, range(2), {1: (10.0, "killed by SIGKILL")})
    assert found[0].rank == first


def test_a_rank_that_reported_is_known_by_its_report_however_its_process_ended(tmp_path):
    leave_report(tmp_path, 1, 1.0, cause="ValueError: bad")
    [found] = find_failures(tmp_path, [1], {1: (2.0, "exit code 1")})
    assert found.cause == "ValueError: bad"


def test_the_error_names_the_rank_how_it_ended_and_what_it_printed_last(tmp_path):
    (tmp_path / "output-3").write_bytes(b"x" * 100_000 + b"\nbegun \xff\nout of memory\n\n")
    [found] = find_failures(tmp_path, [3], {3: (1.0, "killed by SIGKILL")})
    error = found.error()
    assert isinstance(error, RankFailedError)
    assert error.message == "rank 3 failed: killed by SIGKILL; it printed last: out of memory"
    assert len(found.last_output) <= 2**16


def test_what_topotune_refused_on_a_rank_is_the_same_error_here(tmp_path):
    raised = PlanError("plan.json", "is empty", place="line 1")
    positional, keywords = raised.arguments
    error = {"class": "PlanError", "positional": positional, "keywords": keywords}
    leave_report(tmp_path, 1, 1.0, error=error)
    [found] = find_failures(tmp_path, [1], {})
    again = found.error()
    assert isinstance(again, InputFileError)
    assert (type(again), again.message, again.hint) == (PlanError, raised.message, raised.hint)
    assert again.exit_code == 2
    assert again.__cause__.__notes__ == ["on rank 1:\nTraceback of 1\n"]

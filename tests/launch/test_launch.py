import os
import signal
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

from topotune.errors import (
    InputFileError,
    OutputFileError,
    PlanError,
    RankFailedError,
    RunError,
    UsageError,
    WrongResultError,
)
from topotune.launch import run_local

pytestmark = pytest.mark.gloo


@pytest.fixture(autouse=True)
def nothing_is_left_behind(tmp_path, monkeypatch):
    """No process, no temporary file, no changed environment or signal after any test here."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) - before == set()
    assert list(temporary.iterdir()) == []


def run(num_ranks, function, payload=None):
    environment = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        return run_local(num_ranks, f"launch_entries:{function}", payload or {})
    finally:
        assert dict(os.environ) == environment
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers


def test_ranks_find_the_environment_of_torchrun_and_rank_0_answers(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("RANK", "17")  # as left by a batch system
    assert run(2, "environment", {"sizes": [1, 2], "name": "µ"}) == {
        "payload": {"sizes": [1, 2], "name": "µ"},
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
    }


def test_the_number_of_threads_that_the_user_set_is_kept(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert run(2, "environment")["OMP_NUM_THREADS"] == "3"


def test_ranks_meet_as_they_do_under_torchrun():
    assert run(3, "allreduce") == 3.0


def test_one_rank_is_a_world_too():
    assert run(1, "allreduce") == 0.0


def test_only_rank_0_writes_to_the_terminal(capfd):
    run(2, "talk")
    captured = capfd.readouterr()
    assert captured.out == "rank 0 on stdout\n"
    assert captured.err == "rank 0 on stderr, a terminal: False\n"


@pytest.mark.parametrize("num_ranks", [0, -1, 1025])
def test_a_number_of_ranks_that_cannot_be_is_refused(num_ranks):
    with pytest.raises(UsageError) as caught:
        run(num_ranks, "nothing")
    assert str(caught.value) == f"--nproc-per-node {num_ranks}: a node has 1 to 1024 ranks"
    assert caught.value.hint == "--nproc-per-node 4 starts four ranks on this machine"


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("exception", "ValueError: no"),
        ("exit", "exit code 7"),
        ("sys.exit", "exit code 5"),
        ("kill", "killed by SIGKILL"),
    ],
)
def test_a_rank_that_fails_is_named_with_how_it_ended_and_its_last_words(capfd, how, cause):
    with pytest.raises(RankFailedError) as caught:
        run(2, "fail", {"rank": 1, "how": how})
    assert str(caught.value) == f"rank 1 failed: {cause}; it printed last: the last words"
    assert caught.value.rank == 1
    assert caught.value.last_output == "the last words\n"
    assert capfd.readouterr().err == ""


def test_the_traceback_of_an_exception_is_kept_as_a_note():
    with pytest.raises(RankFailedError) as caught:
        run(2, "fail", {"rank": 1, "how": "exception"})
    assert 'raise ValueError("no\\nluck")' in caught.value.__notes__[0]


@pytest.mark.parametrize("how", ["exit", "kill", "exception"])
def test_the_first_rank_to_fail_is_named_and_not_those_that_it_took_along(how):
    with pytest.raises(RankFailedError) as caught:
        run(4, "fail", {"rank": 2, "how": how, "peers_fail_after_s": 0.2})
    assert caught.value.rank == 2


@pytest.mark.parametrize("how", ["kill", "exception"])
def test_the_first_rank_to_fail_is_named_when_gloo_takes_the_others_along(how):
    with pytest.raises(RankFailedError) as caught:
        run(3, "fail_in_allreduce", {"rank": 1, "how": how})
    assert caught.value.rank == 1


def test_a_rank_that_resists_is_ended_all_the_same():
    with pytest.raises(RankFailedError, match="rank 0 failed: ValueError: rank 0 had enough"):
        run(2, "resist")


@pytest.mark.parametrize(
    ("cls", "arguments", "keywords"),
    [
        (UsageError, ["--budget 0: too short"], {"hint": "--budget 10s"}),
        (InputFileError, ["a.json", "is cut off"], {"place": "line 7", "hint": "make it anew"}),
        (PlanError, ["a.json", "is cut off"], {"place": "line 7"}),
        (OutputFileError, ["a.json: is a folder"], {"hint": "name a file"}),
        (RunError, ["it broke"], {}),
        (RankFailedError, [7, "exit code 3", "words"], {}),
        (WrongResultError, ["sum is off"], {"hint": "report it"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_error_of_topotune_arrives_as_it_was_raised(cls, arguments, keywords):
    raised = cls(*arguments, **keywords)
    with pytest.raises(cls) as caught:
        run(2, "raise_error", {"class": cls.__name__, "arguments": arguments, "keywords": keywords})
    assert type(caught.value) is cls
    assert (str(caught.value), vars(caught.value)) == (str(raised), vars(raised))
    assert "on rank" in caught.value.__cause__.__notes__[0]


def test_a_result_that_is_no_json_is_the_ranks_failure():
    with pytest.raises(RankFailedError, match="rank 0 failed: TypeError: Object of type object is not JSON"):
        run(1, "cannot_be_json")


def test_a_rank_0_that_ends_without_a_result_has_failed():
    with pytest.raises(RankFailedError, match="rank 0 failed: it ended without a result"):
        run(2, "no_result")


def test_an_entry_that_does_not_exist_is_named():
    with pytest.raises(RankFailedError, match="AttributeError: module 'launch_entries' has no attribute 'x'"):
        run(1, "x")


def test_ranks_can_be_started_from_a_thread_that_cannot_handle_signals():
    results = []
    thread = threading.Thread(target=lambda: results.append(run(2, "environment")["WORLD_SIZE"]))
    thread.start()
    thread.join()
    assert results == ["2"]


def test_no_folder_for_temporary_files_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(RunError, match="no folder for temporary files") as caught:
        run(1, "nothing")
    assert caught.value.hint == "set TMPDIR to one"


def test_ranks_do_not_import_from_the_folder_they_are_started_in(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise ImportError('the wrong json')")
    monkeypatch.chdir(tmp_path)
    assert run(1, "nothing") is None
    assert Path("json.py").exists()

"""What other tests rely on where they run a command: that it is a process of its own."""

import json
import os
import signal
import threading

import pytest
from command_line import topotune
from plan_example import example as plan_document


@pytest.fixture
def run(tmp_path):
    """Runs a shell's line in the process that was a command."""
    document = plan_document()
    document["context"]["interface"] = None
    (tmp_path / "plan.json").write_text(json.dumps(document))
    return lambda line, **options: topotune(
        "run", "--plan", "plan.json", "--", "sh", "-c", line, cwd=tmp_path, **options
    )


def test_a_command_has_its_own_folder_environment_streams_and_status(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TOPOTUNE_TEST_WORD", "hello")
    done = run("pwd; echo $TOPOTUNE_TEST_WORD >&2; cat; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, f"{tmp_path}\n", "hello\n")
    monkeypatch.delenv("TOPOTUNE_TEST_WORD")
    done = run("echo $TOPOTUNE_TEST_WORD >&2; kill -TERM $$")
    assert (done.returncode, done.stdout, done.stderr) == (-15, "", "\n")


class Ended(Exception):
    """As where a test is ended from outside: by its time limit, or Ctrl-C."""


@pytest.fixture
def ended_from_outside(tmp_path):
    topotune("--version", cwd=tmp_path)  # so that the server is there when time begins

    def end(*_):
        raise Ended

    former = signal.signal(signal.SIGUSR1, end)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    yield
    timer.join()
    signal.signal(signal.SIGUSR1, former)


def test_a_command_that_took_too_long_leaves_the_next_one_its_own_answer(run, tmp_path):
    with pytest.raises(TimeoutError):
        run("exec sleep 60", timeout_s=0.2)
    assert topotune("--version", cwd=tmp_path).stdout.startswith("topotune ")


def test_so_does_a_command_whose_test_was_ended(run, tmp_path, ended_from_outside):
    with pytest.raises(Ended):
        run("exec sleep 60")
    assert topotune("--version", cwd=tmp_path).stdout.startswith("topotune ")

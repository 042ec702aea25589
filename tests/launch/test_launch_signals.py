"""The launcher's process is ended in all the ways there are; no rank may live on, no temporary file stay."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.gloo

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from topotune.launch import run_local
try:
    run_local(3, "launch_entries:wait_for_the_end", {"folder": sys.argv[2]})
except KeyboardInterrupt:
    sys.exit(130)
"""
NUM_RANKS = 3


class Launched:
    """A launcher in a process group of its own, with its three ranks at work."""

    def __init__(self, folder, preexec_fn=None, **how):
        self.temporary = folder / "temporary"
        self.pids = folder / "pids"
        self.temporary.mkdir()
        self.pids.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(self.pids)],
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            preexec_fn=preexec_fn,
            **how,
        )
        deadline = time.monotonic() + 120
        while len(list(self.pids.glob("[0-9]"))) < NUM_RANKS:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.ranks = [psutil.Process(int(path.read_text())) for path in self.pids.glob("[0-9]")]

    def end(self):
        """Exit code and output, once all have ended."""
        out, err = self.process.communicate(timeout=60)
        _, alive = psutil.wait_procs(self.ranks, timeout=30)
        assert alive == []
        return self.process.returncode, out, err

    def kill(self):
        for process in [self.process, *getattr(self, "ranks", [])]:
            if isinstance(process, psutil.Process) and not process.is_running():
                continue
            process.kill()
        self.process.wait(timeout=30)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def launched(tmp_path):
    launcher = Launched(tmp_path)
    yield launcher
    launcher.kill()


@pytest.mark.parametrize("to_group", [True, False], ids=["to the group, as Ctrl-C", "to the launcher alone"])
def test_an_interrupt_ends_all_ranks_without_a_word(launched, to_group):
    (os.killpg if to_group else os.kill)(launched.process.pid, signal.SIGINT)
    assert launched.end() == (130, "", "")
    assert list(launched.temporary.iterdir()) == []


@pytest.mark.slow
def test_a_second_interrupt_changes_nothing(launched):
    launched.process.send_signal(signal.SIGINT)
    launched.process.send_signal(signal.SIGINT)
    assert launched.end() == (130, "", "")
    assert list(launched.temporary.iterdir()) == []


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGHUP, signal.SIGQUIT)),
    ],
    ids=lambda number: number.name,
)
def test_a_signal_to_end_ends_all_ranks_and_gives_its_exit_code(launched, number):
    launched.process.send_signal(number)
    assert launched.end() == (128 + number, "", "")
    assert list(launched.temporary.iterdir()) == []


def test_ranks_do_not_outlive_a_launcher_that_is_killed(launched):
    launched.process.kill()
    assert launched.end()[0] == -signal.SIGKILL


def test_a_hangup_that_is_ignored_stays_ignored(tmp_path):
    launched = Launched(tmp_path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    try:
        launched.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert launched.process.poll() is None
        launched.process.send_signal(signal.SIGTERM)
        assert launched.end()[0] == 128 + signal.SIGTERM
    finally:
        launched.kill()


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_launcher_with_its_name(launched):
    victim = launched.pids / "1"
    os.kill(int(victim.read_text()), signal.SIGKILL)
    returncode, _, err = launched.end()
    assert returncode == 1
    assert err.splitlines()[-1] == "topotune.errors.RankFailedError: rank 1 failed: killed by SIGKILL"
    assert list(launched.temporary.iterdir()) == []


def test_a_terminal_stays_one_for_rank_0(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from topotune.launch import run_local;"
        "run_local(2, 'launch_entries:talk', {})"
    )
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", script, str(Path(__file__).parent)], stderr=theirs, check=True, timeout=60
        )
        assert os.read(ours, 1000) == b"rank 0 on stderr, a terminal: True\r\n"
    finally:
        os.close(ours)
        os.close(theirs)

"""Every way out of a lab leaves no namespace, bridge, process or file behind, and touches no other lab."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from topotune import lab
from topotune.errors import RunError
from topotune.lab import Cluster, network, read_profile, registry

SLEEP = "import os, socket, time; print(socket.gethostname(), os.getpid(), flush=True); time.sleep(600)"
# Ends on no signal that can be caught, in a session of its own, with a child.
STUBBORN = (
    "import os, signal, time; os.setsid() if os.getpid() != os.getsid(0) else 0;"
    "[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)];"
    "os.fork(); print('up', flush=True); time.sleep(600)"
)


def net_namespaces() -> dict[int, list[int]]:
    """Network namespace → its processes, of the whole machine."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                found.setdefault(os.stat(f"/proc/{entry}/ns/net").st_ino, []).append(int(entry))
    return found


def record_in(root: Path) -> registry.LabRecord:
    (folder,) = root.iterdir()
    return registry.LabRecord.from_json((folder / "lab.json").read_text())


def await_gone(record: registry.LabRecord, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while left := set(record.net_inodes) & net_namespaces().keys():
        assert time.monotonic() < deadline, f"namespaces {left} are still there"
        time.sleep(0.05)


def interfaces() -> list[str]:
    return sorted(os.listdir("/sys/class/net"))


@pytest.fixture
def running(start_lab, root):
    """A lab whose nodes sleep; (process, record)."""

    def start(profile: str = "2x4", flags: str = "once", code: str = SLEEP):
        process = start_lab(profile, flags, sys.executable, "-I", "-S", "-c", code, stderr=subprocess.DEVNULL)
        assert process.stdout.readline()
        return process, record_in(root)

    return start


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_a_signal_takes_the_lab_down(running, root, number, exit_code):
    before = interfaces()
    process, record = running()
    assert set(record.net_inodes) <= net_namespaces().keys()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == exit_code
    assert not set(record.net_inodes) & net_namespaces().keys()
    assert not root.exists()
    assert interfaces() == before


@pytest.mark.slow
def test_ctrl_c_takes_stubborn_processes_down_too(running, root):
    process, record = running(code=STUBBORN)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not set(record.net_inodes) & net_namespaces().keys()
    assert not root.exists()


def test_a_second_ctrl_c_still_leaves_nothing(running, root):
    process, record = running(code=STUBBORN)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not set(record.net_inodes) & net_namespaces().keys()
    assert not root.exists()


def test_a_killed_labs_ordinary_processes_end_with_it(running, root):
    process, record = running()
    process.kill()
    process.wait()
    await_gone(record)
    assert root.exists()
    assert [removed.id for removed in lab.down(root)] == [record.id]


def test_the_next_lab_removes_what_a_killed_one_left(running, root):
    process, record = running(code=STUBBORN)
    process.kill()
    process.wait()
    assert record.net_inodes[1] in net_namespaces(), "node a's process stays"
    said: list[str] = []
    assert lab.run("1x4", ["true"], once=True, report=said.append, root=root) == 0
    assert said == [f"removed {record.id} (2x4), whose process {process.pid} is gone"]
    assert not set(record.net_inodes) & net_namespaces().keys()


def test_labs_run_side_by_side_and_leave_each_other_alone(start_lab, root):
    command = [sys.executable, "-I", "-S", "-c", SLEEP]
    first = start_lab("2x4", "once", *command, stderr=subprocess.DEVNULL)
    assert first.stdout.readline().split()[0] == "a"
    first_record = record_in(root)
    second = start_lab("4x2", "once", *command, stderr=subprocess.DEVNULL)
    assert second.stdout.readline().split()[0] == "a"
    assert lab.run("1x4", ["true"], once=True, root=root) == 0
    assert lab.down(root) == ()
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=60)
    assert first.poll() is None
    assert set(first_record.net_inodes) <= net_namespaces().keys()
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert not root.exists()


def test_a_kept_lab_stays_until_it_is_taken_down(start_lab, root):
    process = start_lab("2x4", "once,keep", "true")
    _, stderr = process.communicate(timeout=60)  # also: nothing of it holds our pipes
    assert process.returncode == 0
    record = record_in(root)
    assert record.kept
    enter = next(line.split(": ")[1] for line in stderr.splitlines() if line.startswith("  b: "))
    told = subprocess.run(
        [*enter.split(), sys.executable, "-c", "import socket; print(socket.gethostname())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "b\n"
    assert lab.run("1x4", ["true"], once=True, root=root) == 0
    assert set(record.net_inodes) <= net_namespaces().keys(), "the next lab leaves it alone"
    assert [removed.id for removed in lab.down(root)] == [record.id]
    assert not set(record.net_inodes) & net_namespaces().keys()


def test_an_error_while_building_leaves_nothing(root, monkeypatch):
    seen: list[int] = []

    def fail(profile, switch, nodes, *, latency):
        seen.extend(os.fstat(descriptor).st_ino for descriptor in (switch, *nodes))
        raise RunError("made up")

    monkeypatch.setattr(network, "build", fail)
    with pytest.raises(RunError, match="made up"), Cluster(read_profile("2x4"), root=root):
        pass
    assert len(seen) == 3
    assert not set(seen) & net_namespaces().keys()


def test_a_namespace_that_lost_the_labs_mark_is_not_touched(root):
    """The kernel gives a namespace's number to another one later; such a one must not be killed."""
    foreign = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    try:
        own = os.stat("/proc/self/ns/net").st_ino
        deadline = time.monotonic() + 20
        while (inode := os.stat(f"/proc/{foreign.pid}/ns/net").st_ino) == own:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        record = registry.create("made-up", root)
        registry.write(replace(record, net_inodes=(inode,), owner_start_ticks=1), root)
        assert [removed.id for removed in lab.down(root)] == [record.id]
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


@pytest.mark.slow
@pytest.mark.parametrize("moment_s", [0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0, 4.0])
def test_killed_at_any_moment_the_next_lab_leaves_nothing(start_lab, root, moment_s):
    before, interfaces_before = net_namespaces().keys(), interfaces()
    process = start_lab("2x4", "", "sleep", "600", stderr=subprocess.DEVNULL)
    time.sleep(moment_s)
    process.kill()
    process.wait()
    assert lab.run("1x4", ["true"], once=True, root=root) == 0
    deadline = time.monotonic() + 15
    while net_namespaces().keys() - before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert interfaces() == interfaces_before


@pytest.mark.slow
@pytest.mark.parametrize("moment_s", [0.25, 0.35, 0.45, 0.55, 0.8, 3.0, 6.0])
def test_interrupted_at_any_moment_it_leaves_nothing(start_lab, root, moment_s):
    process = start_lab("2x4", "", "sleep", "600")
    time.sleep(moment_s)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode in (130, -signal.SIGINT), "or before the driver could catch it"
    assert not root.exists()


def test_a_rank_that_leaves_a_daemon_behind_does_not_keep_the_lab(start_lab, root):
    leave = "setsid sleep 600 > /dev/null 2>&1 & echo left"
    process = start_lab("1x4", "once", "sh", "-c", leave)
    stdout, _ = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (0, "left\n")
    assert not root.exists()

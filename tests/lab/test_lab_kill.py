"""A rank, a node or a launcher that dies ends a tuning run by name; nothing is lost, and nothing is left.

Each kills something of ``topotune lab … -- topotune tune`` once the search is under way, and then has
``tune --resume`` finish the run.
"""

import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from topotune.lab import registry
from topotune.lab.netlink import route_in
from topotune.plan import load_plan
from topotune.tune.journal import read_journal

pytestmark = [pytest.mark.slow, pytest.mark.gloo, pytest.mark.timeout(600)]

TUNE = (sys.executable, "-m", "topotune", "tune", "--budget", "12s", "--sizes", "1K,64K", "-o", "plan.json")
ENDS_WITHIN_S = 90
NAMED_WITHIN_S = 15
SOME_TRIALS = 8
ENDED = "its process on node {} ended without a word"


@pytest.fixture
def profile(tmp_path):
    """Two nodes of two ranks."""
    path = tmp_path / "two.json"
    nodes = [{"name": name, "ranks": 2, "bits_per_s": 1_000_000_000} for name in ("a", "b")]
    path.write_text(json.dumps({"schema": "topotune/lab", "schema_version": 1, "nodes": nodes}))
    return str(path)


@pytest.fixture
def tuning(start_lab, root, tmp_path):
    """Starts a run in a lab: ``tuning(profile, stderr)`` → (process, record), once it searches."""

    def start(profile, stderr):
        process = start_lab(profile, "", *TUNE, cwd=tmp_path, stderr=stderr)
        journal = tmp_path / "plan.journal.jsonl"
        deadline = time.monotonic() + ENDS_WITHIN_S
        while not (journal.exists() and journal.read_bytes().count(b'"kind":"search"') >= SOME_TRIALS):
            assert process.poll() is None, said(stderr)
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (folder,) = root.iterdir()
        return process, registry.LabRecord.from_json((folder / "lab.json").read_text())

    return start


def processes_of(record: registry.LabRecord) -> dict[int, int]:
    """Process → network namespace, of all of a lab's nodes and its switch."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            inode = os.stat(f"/proc/{entry}/ns/net").st_ino
            if inode in record.net_inodes:
                found[int(entry)] = inode
    return found


def environment_of(pid: int) -> dict[str, str]:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return dict(word.split("=", 1) for word in words if "=" in word)
    return {}


def rank_processes(record: registry.LabRecord) -> dict[int, int]:
    """Rank → process."""
    return {
        int(environment["RANK"]): pid
        for pid in processes_of(record)
        if "RANK" in (environment := environment_of(pid))
    }


def of_node(record: registry.LabRecord, node: str) -> list[int]:
    """All processes of a node but the one that holds its namespaces."""
    holder = record.holders[node]
    inode = os.stat(f"/proc/{holder}/ns/net").st_ino
    return [pid for pid, own in processes_of(record).items() if own == inode and pid != holder]


def kill(pids) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_rank(rank):
    def strike(record, process):
        kill([rank_processes(record)[rank]])

    return strike


def kill_node(node):
    def strike(record, process):
        kill(of_node(record, node))

    return strike


def kill_namespaces(record, process):
    """The process that keeps a node's host name, mounts and shared memory goes with the others."""
    kill([*of_node(record, "b"), record.holders["b"]])


def kill_launcher(record, process):
    ranks = set(rank_processes(record).values())
    parents = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in ranks}
    kill(parents.intersection(of_node(record, "b")))


def cut_network(record, process):
    descriptor = os.open(f"/proc/{record.holders['b']}/ns/net", os.O_RDONLY)
    try:
        with route_in(descriptor) as inside:
            (index,) = inside.link_lookup(ifname="eth0")
            inside.link("set", index=index, state="down")
    finally:
        os.close(descriptor)


def kill_lab(record, process):
    process.kill()


def said(stderr) -> str:
    return Path(stderr.name).read_text()


def assert_nothing_is_left(record, before):
    deadline = time.monotonic() + 30
    while processes_of(record):
        assert time.monotonic() < deadline, processes_of(record)
        time.sleep(0.05)
    assert set(os.listdir("/dev/shm")) <= before


@pytest.mark.parametrize(
    ("strike", "named"),
    [
        (kill_rank(0), [rf"rank 0 failed: {ENDED.format('a')}"]),
        (kill_rank(1), [rf"rank 1 failed: {ENDED.format('a')}"]),
        (kill_rank(2), [rf"rank 2 failed: {ENDED.format('b')}"]),
        (kill_rank(3), [rf"rank 3 failed: {ENDED.format('b')}", r"rank 3 on node b was killed"]),
        (kill_node("a"), [rf"rank [01] failed: {ENDED.format('a')}"]),
        (kill_node("b"), [rf"rank [23] failed: {ENDED.format('b')}, and with it rank [23] of"]),
        (kill_namespaces, [rf"rank [23] failed: {ENDED.format('b')}, and with it rank [23] of"]),
        (kill_launcher, [r"rank [23] failed: its launcher on node b ended"]),
        (
            cut_network,
            [r"rank [23] failed: its node b has not answered", r"rank 0 failed: its node a has not"],
        ),
        (kill_lab, []),
    ],
    ids=[
        "rank 0",
        "rank 1",
        "rank 2",
        "rank 3",
        "the processes of node a",
        "those of node b",
        "node b with its namespaces",
        "a node's launcher",
        "a node's network",
        "the lab",
    ],
)
def test_what_dies_is_named_and_the_run_can_be_resumed(tuning, profile, tmp_path, start_lab, strike, named):
    before = set(os.listdir("/dev/shm"))
    with tempfile.NamedTemporaryFile("w", dir=tmp_path, suffix=".stderr") as stderr:
        process, record = tuning(profile, stderr)
        strike(record, process)
        struck_s = time.monotonic()
        missing = set(named)
        while missing := {words for words in missing if not re.search(words, said(stderr))}:
            assert time.monotonic() < struck_s + NAMED_WITHIN_S, (missing, said(stderr))
            time.sleep(0.05)
        print(f"named after {time.monotonic() - struck_s:.1f} s")
        process.communicate(timeout=ENDS_WITHIN_S)
        print(f"ended after {time.monotonic() - struck_s:.1f} s", said(stderr), sep="\n")
    assert process.returncode not in (0, 2)
    assert_nothing_is_left(record, before)

    journal = tmp_path / "plan.journal.jsonl"
    cut_short = read_journal(journal)
    assert cut_short.problems == ()
    assert not cut_short.ended
    assert sum(one.trial["kind"] == "search" for one in cut_short.finished) >= SOME_TRIALS // 2

    resumed = start_lab(profile, "", *TUNE, "--resume", cwd=tmp_path)
    _, stderr = resumed.communicate(timeout=150)
    assert resumed.returncode == 0, stderr
    plan = load_plan(tmp_path / "plan.json")
    assert any(warning.startswith("resumed from ") for warning in plan.warnings)
    whole = read_journal(journal)
    assert whole.ended
    assert whole.finished[: len(cut_short.finished)] == cut_short.finished
    numbers = [one.number for one in whole.finished] + list(whole.unfinished)
    assert len(numbers) == len(set(numbers))
    assert set(os.listdir("/dev/shm")) <= before

"""A tuning run on real ranks of which one dies: it is named, and the run goes on where it stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gloo_world import run_world

from topotune.tune.journal import read_journal

pytestmark = pytest.mark.gloo

PAYLOAD = {"budget_s": 9.0, "sizes": [1024, 65536], "seed": 1}


def tune_rank(rank, num_ranks, store, payload, dies):
    """Rank 1 dies in its block number ``dies``; what came of it on the others."""
    from topotune.errors import TopotuneError
    from topotune.tune.session import tune_worker
    from topotune.tune.timing import Station

    run, count = Station._run, []

    def run_mortal(self, *arguments):
        count.append(None)
        if rank == 1 and len(count) == dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(self, *arguments)

    Station._run = run_mortal
    began_s = time.monotonic()
    try:
        document = tune_worker(payload)
    except TopotuneError as error:
        return type(error).__name__, error.message, time.monotonic() - began_s
    return document, len(count)


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    """A journal of a run that lost rank 1; what the others said."""
    path = tmp_path_factory.mktemp("lost") / "plan.journal.jsonl"
    payload = {**PAYLOAD, "journal_path": str(path)}
    results = run_world(3, tune_rank, payload, 12, deaths=[1])
    return path, results


def test_a_rank_that_dies_is_named_by_the_others_and_in_the_journal(lost):
    path, results = lost
    words = f"rank 1 failed: its process on node {os.uname().nodename} ended without a word"
    assert [result and result[:2] for result in results] == [
        ("RankFailedError", words),
        None,
        ("RankFailedError", words),
    ]
    contents = read_journal(path)
    assert contents.problems == ()
    assert len(contents.unfinished) == 1, "what was running when it died"
    (note,) = [note for note in contents.notes if note["kind"] == "lost"]
    assert (note["rank"], note["how"]) == (1, "ended")


def test_the_run_goes_on_and_its_plan_can_be_had_again(lost, tmp_path):
    path = tmp_path / "plan.journal.jsonl"
    path.write_bytes(lost[0].read_bytes())
    before = read_journal(path)
    payload = {**PAYLOAD, "journal_path": str(path), "resume": True}
    (document, blocks), *others = run_world(3, tune_rank, payload, None)
    assert blocks > 0
    assert [other[0] for other in others] == [None, None]
    assert any(warning.startswith("resumed from ") for warning in document["warnings"])
    after = read_journal(path)
    assert after.ended
    assert after.finished[: len(before.finished)] == before.finished
    assert sum(note["kind"] == "links" for note in after.notes) == 1, "links are not measured again"
    # What has ended is not run again: its plan stands in the journal.
    again = run_world(3, tune_rank, payload, None)
    assert again == [(document, 0), (None, 0), (None, 0)]


def test_a_run_with_other_options_is_refused_on_all_ranks(lost):
    payload = {**PAYLOAD, "journal_path": str(lost[0]), "resume": True, "seed": 2, "sizes": [1024]}
    results = run_world(3, tune_rank, payload, None)
    differs = "seed is 1 there and 2 here; sizes is [1024, 65536] there and [1024] here"
    words = f"{lost[0]}: is of another run: {differs}"
    assert [result[:2] for result in results] == [("InputFileError", words)] * 3


def test_a_journal_that_cannot_be_written_is_said_on_all_ranks(tmp_path):
    payload = {**PAYLOAD, "journal_path": str(tmp_path / "none" / "plan.journal.jsonl")}
    results = run_world(2, tune_rank, payload, None)
    assert [result[0] for result in results] == ["OutputFileError"] * 2
    assert "the journal cannot be written: No such file or directory" in results[1][1]


def gives_up(rank, num_ranks, store):
    from topotune.errors import RunError
    from topotune.tune import session

    def choose_rows(*arguments, **options):
        raise RunError("ranks missed 9 of 10 common starts")

    session.choose_rows = choose_rows
    try:
        session.tune_worker({"budget_s": 3.0, "sizes": [1024]})
    except RunError as error:
        return type(error).__name__, error.message


def test_what_rank_0_gives_up_with_all_ranks_raise():
    assert run_world(3, gives_up) == [("RunError", "ranks missed 9 of 10 common starts")] * 3


TUNE = (sys.executable, "-m", "topotune", "tune", "-o", "plan.json")
OPTIONS = ("--nproc-per-node", "2", "--budget", "8s", "--sizes", "1K,64K")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_without_a_launcher_a_killed_rank_is_named_and_the_run_resumed(tmp_path):
    journal = tmp_path / "plan.journal.jsonl"

    def topotune(*options):
        return subprocess.run(
            [*TUNE, *OPTIONS, *options], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )

    with subprocess.Popen([*TUNE, *OPTIONS], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 90
        while not (journal.exists() and journal.read_bytes().count(b'"kind":"search"') >= 4):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ranks = {}
        for child in children(process.pid):
            for word in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                if word.startswith(b"RANK="):
                    ranks[int(word[5:])] = child
        os.kill(ranks[1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: rank 1 failed: killed by SIGKILL" in stderr
    (hint,) = [line for line in stderr.splitlines() if line.startswith("hint: topotune tune --resume ")]
    assert "-o plan.json" in hint
    assert "--nproc-per-node 2" in hint
    assert hint.endswith(" goes on from what was measured so far")
    finished = len(read_journal(journal).finished)

    other = topotune("--resume", "--seed", "7")
    assert other.returncode == 2
    assert "is of another run: seed is 0 there and 7 here" in other.stderr

    resumed = topotune("--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert any("resumed from" in warning for warning in json.loads(resumed.stdout)["warnings"])
    assert len(read_journal(journal).finished) > finished

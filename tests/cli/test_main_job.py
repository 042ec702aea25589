"""The main job and what follows it, as a user runs them: real ranks, real files, real signals."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import psutil
import pytest
from command_line import environment, topotune

from topotune.documents import json_schema
from topotune.plan import load_plan

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.gloo


def test_tune_prints_one_json_document_which_is_the_plan_it_wrote(tuned):
    folder, done = tuned
    document = json.loads(done.stdout)
    assert document == json.loads((folder / "plan.json").read_bytes())
    jsonschema.validate(document, json_schema("plan"))
    plan = load_plan(folder / "plan.json")
    assert plan.fingerprint.hard.world_size == 2
    rows = plan.groups[0].allreduce
    assert rows is not None
    assert rows[0].min_bytes == 0
    assert rows[-1].max_bytes is None


def test_beside_json_nothing_stands_on_a_stderr_that_is_no_terminal(tuned):
    _, done = tuned
    assert done.stderr == ""


def test_the_journal_beside_the_plan_holds_the_trials(tuned):
    from topotune.tune.journal import read_journal

    folder, _ = tuned
    assert read_journal(folder / "plan.journal.jsonl").finished


def test_compare_and_show_read_the_plan_that_tune_wrote(tuned):
    folder, _ = tuned
    done = topotune("compare", "plan.json", "--sizes", "1K,64K", "--budget", "1s", "--json", cwd=folder)
    document = json.loads(done.stdout)
    assert [row["message_bytes"] for row in document["rows"]] == [1024, 65536]
    slower = any(row["verdict"] == "slower" for row in document["rows"])
    assert done.returncode == (3 if slower else 0), done.stderr
    shown = topotune("show", "plan.json", cwd=folder)
    assert shown.returncode == 0
    assert "plan for 2 ranks" in shown.stdout
    for line in shown.stdout.splitlines():  # warnings are as long as they are, where no terminal folds them
        assert len(line) <= 160 or line.startswith("warning: ")


def test_a_job_under_the_plan_says_that_it_is_used(tuned):
    folder, _ = tuned
    job = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    job += [str(REPOSITORY / "examples" / "train_ddp.py"), "--steps", "4"]
    done = topotune("run", "--plan", "plan.json", "--", *job, cwd=folder)
    assert done.returncode == 0, done.stderr
    losses = [line.split("loss")[1] for line in done.stdout.splitlines() if "loss" in line]
    assert len(losses) == 2
    assert losses[0] == losses[1]
    assert "plan.json is used" in done.stderr


def test_the_notebook_runs_on_the_plan(tuned, monkeypatch):
    folder, _ = tuned
    monkeypatch.setenv("TOPOTUNE_PLAN", str(folder / "plan.json"))
    names = runpy.run_path(str(REPOSITORY / "notebooks" / "first_plan.py"))
    assert names["rows"]["min_bytes"].iloc[0] == 0


def test_ranks_of_torchrun_are_joined_and_one_of_them_prints(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "topotune", "measure", "--budget", "1s", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_ranks"] == 2


def test_measured_links_are_written_shown_and_simulated(measured):
    folder, done = measured
    assert "2 ranks on 1 node" in done.stdout
    jsonschema.validate(json.loads((folder / "links.json").read_bytes()), json_schema("measurement"))
    assert topotune("show", "links.json", cwd=folder).stdout == done.stdout
    simulated = topotune("simulate", "links.json", "--sizes", "1K,1M", "--json", cwd=folder)
    document = json.loads(simulated.stdout)
    for size in document["sizes"]:
        algorithms = [prediction["algorithm"] for prediction in size["predictions"]]
        assert {"default", "ring", "recursive_doubling", "native_reduce_broadcast", "shm"} <= set(algorithms)
        times = [prediction["time_s"] for prediction in size["predictions"]]
        assert times == sorted(times)
        assert times[0] > 0


ALONE = ("-m", "topotune", "tune", "--nproc-per-node", "2")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "topotune", "tune")


def started_tune(
    folder: Path, start: tuple[str, ...] = ALONE
) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A tuning run in a session of its own, once its ranks are at work (the journal has been begun)."""
    process = subprocess.Popen(
        [sys.executable, *start, "--budget", "60s", "-o", "plan.json"],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    journal = folder / "plan.journal.jsonl"
    deadline_s = time.monotonic() + 90
    while not (journal.exists() and journal.stat().st_size > 2000):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    ranks = [child for child in psutil.Process(process.pid).children(recursive=True) if is_rank(child)]
    assert len(ranks) == 2
    return process, ranks


def is_rank(process: psutil.Process) -> bool:
    try:
        return "RANK" in process.environ()
    except psutil.Error:
        return False


def rank_of(process: psutil.Process) -> int:
    return int(process.environ()["RANK"])


def assert_gone(ranks: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(ranks, timeout=60)
    assert alive == []


def test_ctrl_c_leaves_no_process_and_the_plan_of_before(tuned):
    folder, _ = tuned
    before = (folder / "plan.json").read_bytes()
    (folder / "plan.journal.jsonl").unlink()
    process, ranks = started_tune(folder)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=100)
    assert process.returncode == 130
    assert [line for line in stderr.splitlines() if not line.startswith("tune: ")] == [
        "interrupted",
        "hint: topotune tune --resume --nproc-per-node 2 --budget 60s -o plan.json goes on from what was "
        "measured so far",
    ]
    assert_gone(ranks)
    assert (folder / "plan.json").read_bytes() == before


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_run_by_name_and_loses_nothing(tuned):
    folder, _ = tuned
    before = (folder / "plan.json").read_bytes()
    (folder / "plan.journal.jsonl").unlink()
    process, ranks = started_tune(folder)
    next(rank for rank in ranks if rank_of(rank) == 1).kill()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    (error,) = (line for line in stderr.splitlines() if line.startswith("error: "))
    assert error.startswith("error: rank 1 failed: killed by SIGKILL")
    assert "Traceback" not in stderr
    assert_gone(ranks)
    assert (folder / "plan.json").read_bytes() == before


@pytest.mark.slow
def test_a_rank_of_torchrun_that_dies_is_named_though_all_others_are_ended_too(tmp_path):
    process, ranks = started_tune(tmp_path, TORCHRUN)
    next(rank for rank in ranks if rank_of(rank) == 1).kill()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    (error,) = (line for line in stderr.splitlines() if line.startswith("error: "))
    assert error == f"error: rank 1 failed: its process on node {os.uname().nodename} ended without a word"
    (hint,) = (line for line in stderr.splitlines() if line.startswith("hint: "))
    assert hint == (
        "hint: topotune tune --resume --budget 60s -o plan.json goes on from what was measured so far"
    )
    assert_gone(ranks)


@pytest.mark.slow
def test_a_plan_of_several_launches_is_written_and_compared_over_several(tmp_path):
    few = ("--launches", "2", "--sizes", "64K", "--json")
    tuned = topotune(
        "tune", "--nproc-per-node", "2", "--budget", "10s", "-o", "plan.json", *few, cwd=tmp_path
    )
    assert tuned.returncode == 0, tuned.stderr
    assert json.loads(tuned.stdout)["schema"] == "topotune/plan"
    compared = topotune("compare", "plan.json", "--budget", "6s", *few, cwd=tmp_path)
    assert compared.returncode in (0, 3), compared.stderr
    document = json.loads(compared.stdout)
    assert document["num_launches"] == 2
    assert [row["message_bytes"] for row in document["rows"]] == [64 * 1024]

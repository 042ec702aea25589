"""`topotune.tune` where people call it: a script, a notebook's process, the ranks of a job."""

import os
import socket
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from gloo_world import run_world

import topotune
from topotune.errors import UsageError
from topotune.train.source import given_source
from topotune.tune.journal import read_journal

pytestmark = pytest.mark.gloo

SCRIPT = """
import topotune

print("the script runs")
plan = topotune.tune("plan.json", num_ranks=2, budget_s=4, sizes=[1024], seed=3)
assert plan == topotune.load_plan("plan.json")
print(plan.fingerprint.hard.world_size, "ranks")
"""

JOB = """
import os, sys
import topotune, torch, torch.distributed as dist

before = dict(os.environ)
plan = topotune.tune(budget_s=4, sizes=[1024])
assert dict(os.environ) == before
dist.init_process_group("gloo")
tensor = torch.ones(4)
dist.all_reduce(tensor)
assert tensor.tolist() == [2.0] * 4
print(dist.get_rank(), plan.fingerprint.hard.world_size)
dist.destroy_process_group()
"""


def tune_without_launcher(rank, num_ranks, store):
    dist.init_process_group("gloo")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    for name in [name for name in os.environ if name.startswith(("TORCHELASTIC", "GROUP_", "ROLE_"))]:
        del os.environ[name]
    try:
        topotune.tune(budget_s=4)
    except UsageError as error:
        return error.message
    return None


def test_a_group_that_no_launcher_started_is_refused_by_name():
    found = run_world(2, tune_without_launcher)
    assert found[0] == found[1]
    assert "a process group of 2 ranks that no launcher started" in found[0]


@pytest.mark.slow
def test_a_script_needs_no_guard_and_runs_once(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=150
    )
    assert (done.stdout, done.returncode) == ("the script runs\n2 ranks\n", 0), done.stderr
    assert read_journal(tmp_path / "plan.journal.jsonl").ended


@pytest.mark.slow
def test_a_cell_of_a_notebook_tunes(tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cells = [
        "import topotune",
        "plan = topotune.tune(num_ranks=2, budget_s=4, sizes=[1024])\nplan.fingerprint.hard.world_size",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=150, kernel_name="python3", resources=resources).execute()
    # Beside it may stand what rank 0 says on the kernel's own stderr, such as that times scatter.
    (result,) = (one for one in notebook.cells[1].outputs if one.output_type == "execute_result")
    assert result["data"]["text/plain"] == "2"


def tune_around_a_group(rank, num_ranks, store):
    first = topotune.tune(budget_s=4, sizes=[1024], seed=1)
    dist.init_process_group("gloo")
    second = topotune.tune(budget_s=4, sizes=[1024], seed=1)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return first, second.fingerprint.hard.world_size, tensor.tolist(), given_source()


@pytest.mark.slow
def test_ranks_of_a_job_tune_before_and_after_they_make_their_group():
    (first, *rest), (other, *others) = run_world(2, tune_around_a_group, timeout_s=170)
    assert first == other
    assert rest == others == [2, [2.0, 2.0], None]


@pytest.mark.slow
def test_ranks_started_by_hand_tune_and_then_make_their_group(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", JOB],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=150) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [out for out, _ in said] == ["0 2\n", "1 2\n"], said

"""What a job says of itself when it ends, and how the backend comes into a script."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from job_plan import job_plan

from topotune.plan import file_bytes

pytestmark = pytest.mark.gloo

SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("topotune")
for size in (1, 1000, 1000):
    dist.all_reduce(torch.ones(size))
group = dist.new_group([0, 1])
dist.broadcast(torch.ones(1), 0, group=group)
"""
LINE = (
    "topotune: plan {path} is used; groups of 2 ranks: broadcast 1 default; "
    "world of 2 ranks: allreduce 1 default + 2 ring"
)


def run_job(tmp_path: Path, script: str, **environment: str) -> list[subprocess.CompletedProcess[str]]:
    """The script on two ranks, without ``import topotune`` in it."""
    path = tmp_path / "plan.json"
    path.write_bytes(file_bytes(job_plan(2)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    base |= {"TOPOTUNE_PLAN": str(path)} | environment
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=base | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=100) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *output)
        for process, output in zip(processes, outputs, strict=True)
    ]


def said(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("topotune")]


def test_rank_0_says_in_one_line_what_was_used(tmp_path):
    first, second = run_job(tmp_path, SCRIPT)  # which leaves its groups standing
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    (line,) = said(first.stderr)
    assert sorted(line.split("; ")) == sorted(LINE.format(path=tmp_path / "plan.json").split("; "))
    assert said(second.stderr) == []


LAST_CALL = """
import sys, time, torch, torch.distributed as dist
from topotune.execute.shared_memory.collectives import SharedCollectives
dist.init_process_group("topotune")
dist.group.WORLD.override = ("shm", {})
tensor = torch.ones(SIZE)
dist.all_reduce(tensor)
if dist.get_rank() == 1:
    wait_for = SharedCollectives.wait_for
    def wait_late(self, ranks):
        time.sleep(2)
        wait_for(self, ranks)
    SharedCollectives.wait_for = wait_late
dist.all_reduce(tensor)
assert tensor.eq(4).all()
"""


@pytest.mark.parametrize("size", [2, 30_000])
def test_a_rank_that_ends_after_its_last_collective_does_not_fail_the_others_in_it(tmp_path, size):
    for done in run_job(tmp_path, LAST_CALL.replace("SIZE", str(size))):
        assert done.returncode == 0, done.stderr


def test_the_line_goes_to_a_file_that_is_named(tmp_path):
    report = tmp_path / "report.txt"
    first, second = run_job(tmp_path, SCRIPT + "dist.destroy_process_group()", TOPOTUNE_REPORT=str(report))
    assert said(first.stderr) + said(second.stderr) == []
    assert said(report.read_text())[0].startswith(f"topotune: plan {tmp_path / 'plan.json'} is used; ")


def test_a_script_that_ends_with_collectives_in_flight_ends_and_says_why_its_report_could_not_be_written(
    tmp_path,
):
    first, second = run_job(
        tmp_path,
        SCRIPT + "works = [dist.all_reduce(torch.ones(100000), async_op=True) for _ in range(20)]",
        TOPOTUNE_REPORT=str(tmp_path / "missing" / "report.txt"),
    )
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    (line,) = said(first.stderr)
    assert "is used; " in line
    assert "TOPOTUNE_REPORT: " in line


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_report_that_nobody_takes_does_not_keep_the_process_from_ending(tmp_path, kind):
    path = tmp_path / "report"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    script = "from topotune.train.usage import REPORT; REPORT.speak_for_the_job()"
    outcome = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TOPOTUNE_REPORT": str(path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert outcome.stderr.startswith("topotune: no plan was given (TOPOTUNE_REPORT: ")


def test_importing_torch_registers_the_name_and_imports_nothing_more():
    script = (
        "import torch, sys; "
        "ours = sorted(name for name in sys.modules if name.startswith('topotune')); "
        "print(torch.distributed.Backend.TOPOTUNE, ours)"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100
    )
    assert outcome.stdout.strip() == "topotune ['topotune', 'topotune.lazy', 'topotune.torch_backend']"

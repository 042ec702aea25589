"""What needs two GPUs or more: NCCL's settings by its log, compositions, schedules, graphs, tuning."""

import json
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from gloo_world import run_world

from topotune.execute import check_exact
from topotune.execute.build import build_executable
from topotune.execute.nccl_communicator import NcclCommunicator
from topotune.tune.gpu_station import NcclEngine
from topotune.tune.nccl_log import log_to, parse_log
from topotune.tune.nccl_place import combined_place, nccl_facts
from topotune.tune.nccl_settings import not_as_set, settings_for

pytestmark = pytest.mark.gpu

ALGORITHMS = (
    ("native_reduce_scatter_allgather", {}),
    ("ring", {"channels": 1, "pieces": 1}),
    ("recursive_doubling", {}),
    ("double_binary_tree", {}),
)


class OnGpu:
    """An executable on numbers that come from the host."""

    def __init__(self, executable, private):
        self._executable = executable
        self.algorithm, self.params = executable.algorithm, executable.params
        self.communicator = private
        self.max_message_bytes = None
        self.supports = executable.supports

    def allreduce_(self, flat, op=dist.ReduceOp.SUM):
        on_gpu = flat.cuda()
        self._executable.allreduce_(on_gpu, op)
        flat.copy_(on_gpu)


def run_algorithms(rank, num_ranks, store):
    from topotune.execute import Communicator

    torch.cuda.set_device(rank)
    timeout = timedelta(seconds=60)
    with (
        Communicator(store, rank, num_ranks, name="private", timeout=timeout) as private,
        NcclCommunicator(store, rank, num_ranks, name="nccl", timeout=timeout) as nccl,
    ):
        half = num_ranks // 2
        groups = [list(range(half)), list(range(half, 2 * half))] if half > 1 else [list(range(num_ranks))]
        for algorithm, params in (*ALGORITHMS, ("native_hierarchical", {"groups": groups})):
            if num_ranks % 2 and algorithm == "native_hierarchical":
                continue
            executable = build_executable(algorithm, params, nccl)
            for num_bytes in (4, 4096, 2**20 + 4):
                check_exact(OnGpu(executable, private), num_bytes)
            captured = torch.ones(1024, device="cuda")
            executable.allreduce_(captured)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                executable.allreduce_(captured)
            graph.replay()
            torch.cuda.synchronize()
            assert captured[0].item() == num_ranks**2, algorithm
    return True


def test_compositions_and_schedules_are_exact_on_nccl_and_can_be_captured(two_gpus):
    assert all(run_world(two_gpus, run_algorithms))


def run_settings(rank, num_ranks, store, folder):
    from pathlib import Path

    from topotune.execute import Communicator
    from topotune.links.messages import Messages

    torch.cuda.set_device(rank)
    log_to(Path(folder) / f"log-{rank}")
    problems = {}
    timeout = timedelta(seconds=60)
    with Communicator(store, rank, num_ranks, name="private", timeout=timeout) as private:
        log = Path(folder) / f"log-{rank}"
        place = combined_place(Messages(private.group).gather(nccl_facts(private, log)), [0] * num_ranks)
        engine = NcclEngine(private, place, log)
        numbers = torch.ones(2**18, device="cuda")
        for setting in settings_for(place):
            communicator = engine.make(setting)
            start = engine.log_size()
            communicator.group.allreduce([numbers], dist.AllreduceOptions()).wait()
            engine.synchronize()
            if rank == 0:
                ran = parse_log(engine.log_from(start))
                problems[str(setting)] = not_as_set(setting, ran, numbers.nbytes)
            communicator.close()
    return problems


def test_a_fresh_communicator_honours_every_setting_by_nccls_own_log(two_gpus, tmp_path):
    problems = run_world(two_gpus, run_settings, str(tmp_path))[0]
    assert problems
    assert not {setting: problem for setting, problem in problems.items() if problem}


def test_tuning_writes_a_plan_whose_nccl_rows_export(two_gpus, tmp_path):
    path = tmp_path / "plan.json"
    command = [sys.executable, "-m", "topotune", "tune", "--backend", "nccl"]
    subprocess.run(
        [
            *command,
            "--nproc-per-node",
            str(two_gpus),
            "--sizes",
            "64K,8M",
            "--budget",
            "40s",
            "-o",
            str(path),
        ],
        check=True,
        timeout=280,
        capture_output=True,
    )
    assert json.loads(path.read_text())["fingerprint"]["hard"]["backend"] == "nccl"
    exported = subprocess.run(
        [
            sys.executable,
            "-m",
            "topotune",
            "export",
            str(path),
            "--to",
            "nccl-tuner",
            "-o",
            str(tmp_path / "a.table"),
        ],
        check=True,
        timeout=120,
        capture_output=True,
    )
    assert exported.returncode == 0

"""What one GPU is enough for: the probe, copies, a group of one rank, streams, CUDA graphs."""

import json
import os
import subprocess
import sys

import pynvml
import pytest
import torch
import torch.distributed as dist
from gloo_world import run_world

from topotune.links.device_timing import cuda_uuids, node_tests, time_copies
from topotune.probe import probe

pytestmark = pytest.mark.gpu


def test_the_probe_shows_the_driver_and_every_gpu_it_lists():
    topology = probe()
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    gpus = [vertex for vertex in topology.vertices if vertex.kind == "gpu" and vertex.index is not None]
    assert len(gpus) == count
    assert topology.source.facts["nvml"] == "answers"
    assert topology.source.facts["nvidia_driver"]
    assert topology.source.facts["cuda_version"]
    for gpu in gpus:
        assert gpu.model
        assert gpu.pci_address
        assert gpu.memory_bytes > 0
        assert float(gpu.attributes["gpu.power_limit_w"]) > 0
        assert int(gpu.attributes["nvidia.max_sm_clock_mhz"]) > 0
    assert len(topology.pairs) == count * (count - 1) // 2


def test_cuda_and_nvml_name_the_same_gpus():
    listed = {vertex.uuid for vertex in probe().vertices if vertex.kind == "gpu"}
    assert set(cuda_uuids()) <= listed


def test_copies_take_the_times_that_events_say():
    topology = probe()
    tests = node_tests(topology, cuda_uuids())
    timings, _ = time_copies(tests, node="here", cpus_of_numa={}, budget_s=60.0)
    assert {timing.copy.kind for timing in timings} >= {"host-to-device", "device-to-host"}
    for timing in timings:
        assert 1e8 < timing.bytes_per_s < 1e13, timing


def test_measure_times_the_copies_of_this_machine(tmp_path):
    path = tmp_path / "links.json"
    command = [sys.executable, "-m", "topotune", "measure", "--nproc-per-node", "2", "--budget", "20s"]
    subprocess.run([*command, "-o", str(path)], check=True, timeout=240, capture_output=True)
    document = json.loads(path.read_text())
    assert any(copy["kind"] == "host-to-device" for copy in document["device_copies"])


def test_tuning_one_rank_on_nccl_writes_a_plan_of_defaults(tmp_path):
    path = tmp_path / "plan.json"
    command = [sys.executable, "-m", "topotune", "tune", "--backend", "nccl", "--nproc-per-node", "1"]
    subprocess.run(
        [*command, "--sizes", "1K,1M", "--budget", "10s", "-o", str(path)],
        check=True,
        timeout=240,
        capture_output=True,
    )
    plan = json.loads(path.read_text())
    assert plan["fingerprint"]["hard"]["backend"] == "nccl"
    assert plan["fingerprint"]["hard"]["device_kind"].startswith("cuda (")
    assert {row["algorithm"] for row in plan["groups"][0]["allreduce"]} == {"default"}


def use_group(rank, num_ranks, store):
    torch.cuda.set_device(0)
    dist.init_process_group("topotune", store=store, rank=rank, world_size=num_ranks)
    numbers = torch.arange(1000.0, device="cuda")
    work = dist.all_reduce(numbers, async_op=True)
    work.wait()
    reduced = numbers.cpu()
    on_host = torch.ones(10)
    dist.all_reduce(on_host)
    gathered = [torch.empty(10, device="cuda")]
    dist.all_gather(gathered, torch.full((10,), 3.0, device="cuda"))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    gradient = model.module.weight.grad.sum().item()
    dist.destroy_process_group()
    return torch.equal(reduced, torch.arange(1000.0)), on_host.sum().item(), gathered[0][0].item(), gradient


def test_a_group_of_one_rank_serves_messages_on_the_gpu_and_on_the_host():
    ((reduced, on_host, gathered, gradient),) = run_world(1, use_group)
    assert (reduced, on_host, gathered) == (True, 10.0, 3.0)
    assert gradient == 4.0 * 64


def capture(rank, num_ranks, store):
    torch.cuda.set_device(0)
    dist.init_process_group("topotune", store=store, rank=rank, world_size=num_ranks)
    numbers = torch.ones(4096, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dist.all_reduce(numbers)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        numbers.mul_(2.0)
        dist.all_reduce(numbers)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    value = numbers[0].item()
    dist.destroy_process_group()
    return value


def test_collectives_are_captured_in_a_cuda_graph():
    assert run_world(1, capture) == [8.0]


def test_the_nccl_of_this_torch_is_one_whose_settings_are_known():
    assert dist.is_nccl_available()
    assert torch.cuda.nccl.version() >= (2, 18)
    assert "NCCL_ALGO" not in os.environ


def step_of_one_rank(rank, num_ranks, store):
    """A backward that spins in real DDP on NCCL, with the exchange of one rank."""
    from contextlib import closing

    from topotune.links.messages import Messages
    from topotune.step.gradients import gradients_to_document
    from topotune.step.models import typical_transformer
    from topotune.train import use
    from topotune.tune.emulated import units_for
    from topotune.tune.spin import CudaSpinner
    from topotune.tune.step_ranks import StepRanks

    torch.cuda.set_device(0)
    use(None)
    dist.init_process_group("topotune")
    raw, private = dist.new_group(backend="nccl"), dist.new_group(backend="gloo")

    def fresh():
        raise AssertionError("one look needs no other groups")

    spinner = CudaSpinner()
    with closing(StepRanks(dist.group.WORLD, raw, Messages(private), (0,), fresh, spinner=spinner)) as ranks:
        prepared = ranks.do({"what": "prepare", "compute": "spin"})
        gradients = typical_transformer(10_000_000).with_backward(0.5)
        units = units_for(gradients.backward_s, prepared["unit_s"])
        ranks.do({"what": "begin", "gradients": gradients_to_document(gradients), "num_units": units})
        arms = {
            way: ranks.do({"what": "arm", "arm": {"name": way, "way": way, "caps_mb": None}})
            for way in ("alone", "raw", "plan")
        }
        taken = ranks.do({"what": "rounds", "orders": [["alone", "raw", "plan"]] * 3})
    dist.destroy_process_group()
    return prepared, arms, taken


def test_a_step_spins_as_long_as_it_was_told_in_real_ddp():
    prepared, arms, taken = run_world(1, step_of_one_rank)[0]
    assert prepared["memory_bytes"] > 0
    assert taken["broken"] is None
    assert arms["raw"]["layout_bytes"] == arms["plan"]["layout_bytes"] is not None
    # Clocks change; a kernel that does not spin, or a step that nobody waits for, is far off.
    assert all(0.25 < step_s < 2.0 for step_s in taken["by_rank"][0])

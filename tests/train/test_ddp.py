"""DDP under a plan: the same gradients on every rank, training as on gloo, the hook, the bucket sizes."""

import threading
from datetime import timedelta

import gloo_world
import pytest
import torch
import torch.distributed as dist
from job_plan import job_plan, rows
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import topotune
from topotune.plan import Ddp
from topotune.train import ddp
from topotune.train.source import source_of
from topotune.train.usage import REPORT

pytestmark = pytest.mark.gloo

NUM_RANKS = 3


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 4))


def train(wrapped, rank, num_steps=20):
    """Losses of every step, all gradients of the last one as bytes."""
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(num_steps):
        inputs = torch.randn(32, 64, generator=generator)
        optimizer.zero_grad()
        loss = (wrapped(inputs) - inputs[:, :4].sin()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, b"".join(parameter.grad.numpy().tobytes() for parameter in wrapped.parameters())


def by_backend(rank, num_ranks, store):
    topotune.use(job_plan(num_ranks))
    results = {}
    for backend in ("gloo", "topotune"):
        dist.init_process_group(backend)
        results[backend] = train(DDP(model(), bucket_cap_mb=0.02, gradient_as_bucket_view=True), rank)
        if backend == "topotune":
            results["algorithms"] = {
                name for collective, name in dist.group.WORLD.calls if collective == "allreduce"
            }
        dist.destroy_process_group()
    return results


def check_training(results, planned):
    gradients = {result[planned][1] for result in results}
    assert len(gradients) == 1, "gradients differ between ranks"
    for result in results:
        assert result[planned][0] == pytest.approx(result["gloo"][0], rel=1e-4)
        assert result[planned][0][-1] < result[planned][0][0]


def test_gradients_are_equal_bit_for_bit_on_all_ranks_and_train_as_on_gloo():
    results = gloo_world.run_world(NUM_RANKS, by_backend)
    check_training(results, "topotune")
    assert all({"ring", "recursive_doubling"} & result["algorithms"] for result in results)


def by_hook(rank, num_ranks, store):
    dist.init_process_group("gloo")
    results = {"gloo": train(DDP(model(), bucket_cap_mb=0.02), rank)}
    hooked = DDP(model(), bucket_cap_mb=0.02)
    hooked.register_comm_hook(None, topotune.ddp_comm_hook(job_plan(num_ranks)))
    results["hook"] = train(hooked, rank)
    results["algorithms"] = {name for _, name in REPORT.calls()}
    results["line"] = REPORT.line()
    dist.destroy_process_group()
    return results


def test_the_hook_brings_the_plan_to_gloo():
    results = gloo_world.run_world(NUM_RANKS, by_hook)
    check_training(results, "hook")
    for result in results:
        assert {"ring", "recursive_doubling"} & result["algorithms"]
    assert "plan given by the script is used; DDP hook on 3 ranks: allreduce" in results[0]["line"]


def by_hook_without_a_plan(rank, num_ranks, store, hook_plan):
    import warnings

    dist.init_process_group("gloo")
    results = {"gloo": train(DDP(model()), rank)}
    hooked = DDP(model())
    hooked.register_comm_hook(dist.group.WORLD, topotune.ddp_comm_hook(hook_plan))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results["hook"] = train(hooked, rank)
    results["warnings"] = [str(warning.message) for warning in caught]
    results["algorithms"] = {name for _, name in REPORT.calls()}
    return results


def test_a_hook_whose_plan_is_missing_warns_once_and_averages_by_gloo(tmp_path):
    results = gloo_world.run_world(2, by_hook_without_a_plan, str(tmp_path / "missing.json"))
    check_training(results, "hook")
    assert [len(result["warnings"]) for result in results] == [1, 0]
    assert all(result["algorithms"] == {"default"} for result in results)


def calls_of_the_hook(rank, num_ranks, store):
    """In which threads a group is called for buckets whose algorithm takes small messages only."""
    dist.init_process_group("gloo")
    plan = job_plan(num_ranks, rows((0, "default", {}), (1024, "native_allgather_reduce", {})))
    group, threads = dist.group.WORLD, []
    side = ddp._HookSide(group, source_of(plan))

    class Watched:
        size, allreduce = (
            group.size,
            staticmethod(lambda *args: (threads.append(here()), group.allreduce(*args))[1]),
        )

    here = threading.current_thread
    sizes = (2**20, 1000, 8, 2**20, 8)
    futures = [side.average(Watched, torch.full((size,), float(rank))) for size in sizes]
    means = [future.wait().unique().tolist() for future in futures]
    return means, threads == [here()] * 4, dict(side._usage.calls)


def test_the_hook_calls_the_group_in_the_order_of_the_buckets():
    calls = {("allreduce", "default"): 4, ("allreduce", "native_allgather_reduce"): 1}
    assert gloo_world.run_world(2, calls_of_the_hook) == [([[0.5]] * 5, True, calls)] * 2


def dies_in_backward(rank, num_ranks, store, hooked):
    import os

    topotune.use(job_plan(num_ranks, rows((0, "ring", {}))))
    dist.init_process_group("gloo" if hooked else "topotune", timeout=timedelta(seconds=20))
    wrapped = DDP(model())
    if hooked:
        wrapped.register_comm_hook(None, topotune.ddp_comm_hook())
    wrapped(torch.ones(2, 64)).sum().backward()
    if rank == 1:
        os._exit(3)
    with pytest.raises(RuntimeError):
        wrapped(torch.ones(2, 64)).sum().backward()
    return True


@pytest.mark.parametrize("hooked", [False, True], ids=["backend", "hook"])
def test_a_rank_that_dies_fails_the_backward_of_the_others(hooked):
    assert gloo_world.run_world(3, dies_in_backward, hooked, deaths=[1]) == [True, None, True]


CAPS = {
    "no plan": ("none", {}),
    "torch's own": (None, {}),
    "one": ((0.5,), {"bucket_cap_mb": 0.5}),
    "several": ((0.25, 1.0), {"bucket_cap_mb_list": [0.25, 1.0]}),
}


def kwargs(rank, num_ranks, store):
    results = {}
    for name, (caps, _) in CAPS.items():
        ddp = None if caps is None else Ddp(bucket_caps_mb=caps)
        topotune.use(None if caps == "none" else job_plan(num_ranks, ddp=ddp))
        dist.init_process_group("topotune")
        results[name] = topotune.ddp_kwargs()
        train(DDP(model(), **results[name]), rank, num_steps=2)
        dist.destroy_process_group()
    return results


def test_ddp_kwargs_are_the_agreed_plans_bucket_sizes():
    assert gloo_world.run_world(2, kwargs) == [{name: expected for name, (_, expected) in CAPS.items()}] * 2


def kwargs_on_gloo(rank, num_ranks, store):
    topotune.use(job_plan(num_ranks))
    dist.init_process_group("gloo")
    return topotune.ddp_kwargs()


def test_ddp_kwargs_are_empty_on_another_backend():
    assert gloo_world.run_world(1, kwargs_on_gloo) == [{}]

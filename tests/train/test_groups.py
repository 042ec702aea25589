"""Process groups inside the world find their own tables, and say once where there is none."""

import warnings
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import gloo_world
import pytest
import torch
import torch.distributed as dist
from job_plan import job_plan, rows
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import topotune
from topotune.errors import UsageError
from topotune.plan import Group, GroupShape

pytestmark = pytest.mark.gloo

NUM_RANKS = 4
SHARDED = ((0, "default", {}), (4096, "halving_doubling", {}), (8192, "shm", {}))


def plan_for_shards():
    """Tables for the world, in an order of its own, and for pairs of neighbours; none for other pairs."""
    plan = job_plan(NUM_RANKS)
    world = replace(plan.groups[0], reduce_scatter=rows((0, "ring", {})), allgather=rows((0, "shm", {})))
    shape = GroupShape(num_ranks=2, num_nodes=1, ranks_per_node=2, stride=1)
    shards = Group(shape=shape, reduce_scatter=rows(*SHARDED), allgather=rows(*SHARDED))
    return replace(plan, groups=(world, shards), rank_order=(2, 0, 3, 1))


def train_sharded(rank, mesh):
    """Losses of three steps of FSDP2 as HSDP."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + rank)
    given, losses = torch.randn(16, 64), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(given).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def job(rank, num_ranks, store, backend, plan):
    topotune.use(plan)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.init_process_group(backend)
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        dist.new_group([1, 3])
    warned = [str(warning.message) for warning in caught if "topotune" in str(warning.message)]
    losses = [train_sharded(rank, mesh) for _ in range(2)]
    part, whole = torch.empty(300), torch.empty(1200)
    dist.reduce_scatter_single(part, torch.arange(1200.0) * (rank + 1))
    dist.all_gather_single(whole, part)
    calls = {}
    if backend == "topotune":
        calls = {
            name: dict(group.calls)
            for name, group in (
                ("world", dist.group.WORLD),
                ("shard", mesh.get_group("shard")),
                ("replicate", mesh.get_group("replicate")),
            )
        }
        with pytest.raises(UsageError, match="override: 'swing' is no known algorithm for allgather"):
            dist.group.WORLD.set_override("allgather", ("swing", {}))
        dist.group.WORLD.set_override("allgather", ("default", {}))
        dist.all_gather_single(whole, part)
        dist.group.WORLD.set_override("allgather", ("hierarchical", {"groups": [[0, 1], [2, 3]]}))
        dist.all_gather_single(whole, part)
        calls["overridden"] = dict(dist.group.WORLD.calls - Counter(calls["world"]))
    dist.destroy_process_group()
    return warned, losses, whole.tolist(), calls


@pytest.fixture(scope="module")
def outcomes():
    """backend → of every rank: warnings, losses of two trainings, what was scattered and gathered, calls."""
    return {
        backend: gloo_world.run_world(NUM_RANKS, job, backend, plan_for_shards())
        for backend in ("gloo", "topotune")
    }


def test_one_warning_in_the_job_names_a_shape_that_the_plan_has_no_table_for(outcomes):
    (warning,) = [warning for outcome in outcomes["topotune"] for warning in outcome[0]]
    assert warning.startswith("topotune: the plan has no table for groups like that of ranks ")
    assert "(2 ranks on one node, stride 2): they use the default; topotune tune --groups" in warning


def test_sharded_training_has_the_losses_of_gloo_and_the_same_bits_in_every_run(outcomes):
    for ours, theirs in zip(outcomes["topotune"], outcomes["gloo"], strict=True):
        assert ours[1][0] == ours[1][1]
        assert ours[1][0] == pytest.approx(theirs[1][0], rel=1e-5)


def test_each_group_runs_by_the_table_of_its_shape(outcomes):
    for _, _, _, calls in outcomes["topotune"]:
        assert {("allgather", "shm"), ("reduce_scatter", "shm")} <= calls["shard"].keys()
        assert {algorithm for _, algorithm in calls["replicate"]} == {"default"}
        assert calls["world"][("reduce_scatter", "ring")] == calls["world"][("allgather", "shm")] == 1
        assert calls["overridden"] == {("allgather", "default"): 1, ("allgather", "hierarchical"): 1}


def test_parts_belong_to_ranks_as_numbered_whatever_the_order(outcomes):
    for backend in outcomes:
        for _, _, whole, _ in outcomes[backend]:
            assert whole == [10.0 * number for number in range(1200)]


def lost_in_a_group(rank, num_ranks, store):
    dist.init_process_group("topotune")
    group = dist.new_group([0, 1], timeout=timedelta(seconds=4))
    outcome = []
    if rank < 2:
        group.set_override("reduce_scatter", ("ring", {}))
        part, whole = torch.empty(500), torch.ones(1000)
        dist.reduce_scatter_single(part, whole, group=group)
        outcome.append(part[0].item())
    if rank == 0:
        for _ in range(2):
            try:
                dist.reduce_scatter_single(part, whole, group=group)
            except RuntimeError as error:
                outcome.append(str(error))
    dist.barrier()
    dist.all_gather_single(torch.empty(3), torch.ones(1))
    dist.destroy_process_group()
    return outcome


def test_a_rank_that_does_not_come_fails_the_call_and_no_other_group():
    first, second, third = gloo_world.run_world(3, lost_in_a_group)
    assert (second, third) == ([2.0], [])
    assert first[0] == 2.0
    assert "reduce_scatter of 3.91 KiB by ring" in first[1]
    assert "the group's timeout of 4 s" in first[1]
    assert first[2].startswith("this process group can run no more collectives: ")

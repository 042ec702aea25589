"""Which plan a job uses: one decision for all ranks, whatever stands on their disks."""

import os
import warnings
from dataclasses import replace

import gloo_world
import pytest
import torch
import torch.distributed as dist
from job_plan import job_plan, rows

import topotune
from topotune.errors import UsageError
from topotune.plan import GroupShape, file_bytes
from topotune.train.agreement import shape_of

pytestmark = pytest.mark.gloo

NUM_RANKS = 3


def job(rank, num_ranks, store, path_of_rank):
    """Make a group with TOPOTUNE_PLAN set; what it warned of and what it counted."""
    if path_of_rank[rank] is not None:
        os.environ["TOPOTUNE_PLAN"] = path_of_rank[rank]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.init_process_group("topotune")
        tensor = torch.full((1000,), float(rank))
        dist.all_reduce(tensor)
        pair = dist.new_group([0, 1])
        if rank < 2:
            dist.all_reduce(torch.ones(1000), group=pair)
    assert tensor.unique().tolist() == [sum(range(num_ranks))]
    calls = dist.group.WORLD.calls
    dist.destroy_process_group()
    return [str(warning.message) for warning in caught], list(calls)


def outcome(paths):
    """The warnings of all ranks, and the algorithm that all of them used."""
    results = gloo_world.run_world(NUM_RANKS, job, paths)
    algorithms = {algorithm for _, calls in results for _, algorithm in calls}
    assert len(algorithms) == 1, algorithms
    return [warning for warned, _ in results for warning in warned], algorithms.pop()


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(file_bytes(job_plan(NUM_RANKS)))
    return str(path)


def test_a_plan_that_fits_is_used_without_a_word(plan_file):
    assert outcome([plan_file] * NUM_RANKS) == ([], "ring")


def test_a_plan_that_only_rank_0_was_given_is_used_by_all(plan_file):
    assert outcome([plan_file, None, None]) == ([], "ring")


def test_no_plan_is_the_default_without_a_word():
    assert outcome([None] * NUM_RANKS) == ([], "default")


def hard(**changes):
    fingerprint = job_plan(NUM_RANKS).fingerprint
    return job_plan(NUM_RANKS, fingerprint=replace(fingerprint, hard=replace(fingerprint.hard, **changes)))


@pytest.mark.parametrize(
    ("broken_rank", "contents", "said"),
    [
        (0, None, "plan.json: no such file"),
        (1, None, "rank 1: "),
        (0, b"", "plan.json"),
        (0, file_bytes(job_plan(NUM_RANKS))[:-100], "plan.json"),
        (2, file_bytes(job_plan(NUM_RANKS))[:-100], "rank 2: "),
        (0, b'{"schema": "topotune/plan", "schema_version": 99}', "99"),
        (1, file_bytes(job_plan(NUM_RANKS, rows((0, "ring", {})))), "is another than that of rank 0"),
        (0, file_bytes(hard(device_count=4096)), "devices per node: 4096 in the plan"),
        (0, file_bytes(hard(backend="nccl")), "backend: nccl in the plan, gloo here"),
        (0, file_bytes(job_plan(NUM_RANKS + 1)), "world size: 4 in the plan, 3 here"),
        (0, file_bytes(hard(ranks_per_node=(2, 1))), "ranks per node"),
    ],
    ids=[
        "missing on rank 0", "missing on rank 1", "empty", "cut off", "cut off on rank 2", "newer version",
        "different on rank 1", "other machine", "other backend", "other world size", "other nodes",
    ],
)  # fmt: skip
def test_a_plan_that_does_not_fit_is_one_warning_and_the_default(
    tmp_path, plan_file, broken_rank, contents, said
):
    broken = tmp_path / "broken" / "plan.json"
    broken.parent.mkdir()
    if contents is not None:
        broken.write_bytes(contents)
    paths = [plan_file] * NUM_RANKS
    paths[broken_rank] = str(broken)
    if broken_rank == 0 and contents is not None:
        paths = [str(broken)] * NUM_RANKS
    warned, algorithm = outcome(paths)
    assert algorithm == "default"
    assert len(warned) == 1, warned
    assert warned[0].startswith("topotune: ")
    assert warned[0].endswith(": all ranks use the default")
    assert said in warned[0]


def test_a_plan_that_rank_0_was_not_given_is_one_warning_and_the_default(plan_file):
    (warned,), algorithm = outcome([None, plan_file, plan_file])
    assert algorithm == "default"
    assert "rank 0 was given no plan, rank " in warned


def test_other_hosts_are_one_warning_and_cost_the_rank_order(tmp_path):
    plan = job_plan(NUM_RANKS, rank_order=(0, 2, 1))
    soft = replace(plan.fingerprint.soft, hosts=("elsewhere",))
    plan = replace(plan, fingerprint=replace(plan.fingerprint, soft=soft))
    path = tmp_path / "plan.json"
    path.write_bytes(file_bytes(plan))
    (warned,), algorithm = outcome([str(path)] * NUM_RANKS)
    assert algorithm == "ring"
    assert "is used, but hosts: elsewhere in the plan" in warned
    assert warned.endswith("its rank_order is bound to its hosts and is left out")


def said_by_script(rank, num_ranks, store, path):
    os.environ["TOPOTUNE_PLAN"] = path
    results = []
    for plan in (None, job_plan(num_ranks, rows((0, "halving_doubling", {})))):
        topotune.use(plan)
        dist.init_process_group("topotune")
        dist.all_reduce(torch.ones(1000))
        results.append(list(dist.group.WORLD.calls))
        with pytest.raises(UsageError, match="came after the process group was made"):
            topotune.use(None)
        dist.destroy_process_group()
    return results


def test_use_beats_the_environment_and_comes_before_the_group(tmp_path):
    expected = [[("allreduce", "default")], [("allreduce", "halving_doubling")]]
    assert gloo_world.run_world(2, said_by_script, str(tmp_path / "missing.json")) == [expected] * 2


def test_use_takes_plans_and_paths_only():
    with pytest.raises(UsageError, match="a plan was expected, or the path of one, not int"):
        topotune.use(3)


def inside_another_world(rank, num_ranks, store):
    topotune.use(job_plan(num_ranks))
    dist.init_process_group("gloo")
    group = dist.new_group(backend="topotune")
    dist.all_reduce(torch.ones(1000), group=group)
    return list(group.calls)


def test_a_group_in_a_world_of_another_backend_agrees_by_itself():
    assert gloo_world.run_world(2, inside_another_world) == [[("allreduce", "ring")]] * 2


def form(rank, num_ranks, store, backend):
    topotune.use(job_plan(num_ranks))
    dist.init_process_group(backend)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    return tensor[0].item(), sorted(dist.group.WORLD.calls), dist.get_backend()


@pytest.mark.parametrize(
    ("backend", "algorithm"),
    [
        ("topotune", "ring"),
        ("cpu:topotune", "ring"),
        ("cpu:topotune,cuda:topotune", "ring"),
        ("cpu:topotune,cuda:gloo", "ring"),
        ("cpu:gloo,cuda:topotune", "default"),
    ],
)
def test_forms_of_the_backend_say_which_device_is_planned(backend, algorithm):
    expected = (2.0, [("allreduce", algorithm), ("broadcast", "default")])
    assert [result[:2] for result in gloo_world.run_world(2, form, backend)] == [expected] * 2


def form_with_another_backend(rank, num_ranks, store):
    dist.init_process_group("cpu:topotune,xpu:gloo")
    with pytest.raises(UsageError, match="asks for gloo on xpu, where topotune wraps nothing"):
        dist.all_reduce(torch.ones(1))
    return True


def test_a_form_that_needs_what_we_do_not_wrap_is_refused():
    assert gloo_world.run_world(1, form_with_another_backend) == [True]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="nccl is wrapped where CUDA is there; no GPU here")
def test_cuda_collectives_go_to_nccl():
    assert gloo_world.run_world(1, on_cuda) == [(5.0, [("allreduce", "default")], "nccl")]


def on_cuda(rank, num_ranks, store):
    topotune.use(job_plan(num_ranks))
    dist.init_process_group("cpu:topotune,cuda:nccl")
    tensor = torch.full((1000,), 5.0, device="cuda")
    dist.all_reduce(tensor)
    return (
        tensor[0].item(),
        list(dist.group.WORLD.calls),
        dist.group.WORLD._get_backend(torch.device("cuda")).name(),
    )


def in_detail(rank, num_ranks, store):
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    topotune.use(job_plan(num_ranks))
    dist.init_process_group("topotune")
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).wait()
    dist.broadcast(tensor, 0)
    with pytest.raises(RuntimeError, match="Detected mismatch between collectives"):
        dist.broadcast(tensor, 0) if rank == 0 else dist.barrier()
    return tensor[0].item(), sorted(dist.group.WORLD.calls)


def test_torch_distributed_debug_detail_still_compares_what_ranks_call():
    for value, calls in gloo_world.run_world(2, in_detail):
        assert value == 4.0
        assert ("allreduce", "ring") in calls


@pytest.mark.parametrize(
    ("global_ranks", "node_of_rank", "shape"),
    [
        ((0,), (0,), (1, 1, 1, 1)),
        ((0, 1, 2, 3), (0, 0, 0, 0), (4, 1, 4, 1)),
        ((0, 1, 2, 3), (0, 0, 1, 1), (4, 2, 2, 1)),
        ((0, 1, 2), (0, 0, 1), (3, 2, 0, 1)),
        ((1, 5), (0, 1), (2, 2, 1, 4)),
        ((0, 1, 3), (0, 0, 0), (3, 1, 3, 0)),
        ((3, 1), (0, 0), (2, 1, 2, 0)),
    ],
)
def test_the_shape_of_a_group_follows_from_its_ranks_and_nodes(global_ranks, node_of_rank, shape):
    names = ("num_ranks", "num_nodes", "ranks_per_node", "stride")
    assert shape_of(global_ranks, node_of_rank) == GroupShape(**dict(zip(names, shape, strict=True)))

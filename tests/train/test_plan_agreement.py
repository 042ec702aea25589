"""Which plan a job uses: one decision for all ranks, whatever stands on their disks."""

import os
import warnings
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import gloo_world
import pytest
import torch
import torch.distributed as dist
from job_plan import job_plan, rows

import topotune
from topotune.errors import PlanError, UsageError
from topotune.plan import GroupShape, file_bytes
from topotune.train import agreement
from topotune.train.agreement import against_order, on_these_hosts, shape_of

pytestmark = pytest.mark.gloo

NUM_RANKS = 3


def hard(**changes):
    fingerprint = job_plan(NUM_RANKS).fingerprint
    return file_bytes(
        job_plan(NUM_RANKS, fingerprint=replace(fingerprint, hard=replace(fingerprint.hard, **changes)))
    )


def soft(**changes):
    plan = job_plan(NUM_RANKS, rank_order=(0, 2, 1))
    fingerprint = replace(plan.fingerprint, soft=replace(plan.fingerprint.soft, **changes))
    return file_bytes(replace(plan, fingerprint=fingerprint))


FITS = file_bytes(job_plan(NUM_RANKS))
DIFFERENT = file_bytes(job_plan(NUM_RANKS, rows((0, "ring", {}))))
NOT_GIVEN, MISSING = None, b"missing"
BY_DEFAULT = ": all ranks use the default"

# What TOPOTUNE_PLAN leads to on each rank → the algorithm used, what the one warning says, how it ends.
SCENARIOS = {
    "fits": ([FITS] * 3, "ring", None, None),
    "only rank 0 was given it": ([FITS, NOT_GIVEN, NOT_GIVEN], "ring", None, None),
    "no plan": ([NOT_GIVEN] * 3, "default", None, None),
    "missing on rank 0": ([MISSING, FITS, FITS], "default", "plan.json: no such file", BY_DEFAULT),
    "missing on rank 1": ([FITS, MISSING, FITS], "default", "rank 1: ", BY_DEFAULT),
    "missing everywhere": ([MISSING] * 3, "default", "plan.json: no such file", BY_DEFAULT),
    "not given to rank 0": ([NOT_GIVEN, FITS, FITS], "default", "rank 0 was given no plan", BY_DEFAULT),
    "empty": ([b""] * 3, "default", "plan.json", BY_DEFAULT),
    "cut off": ([FITS[:-100]] * 3, "default", "plan.json", BY_DEFAULT),
    "cut off on rank 2": ([FITS, FITS, FITS[:-100]], "default", "rank 2: ", BY_DEFAULT),
    "newer version": (
        [b'{"schema": "topotune/plan", "schema_version": 99}'] * 3,
        "default",
        "99",
        BY_DEFAULT,
    ),
    "different on rank 1": ([FITS, DIFFERENT, FITS], "default", "is another than that of rank 0", BY_DEFAULT),
    "other machine": (
        [hard(device_count=4096)] * 3,
        "default",
        "devices per node: 4096 in the plan",
        BY_DEFAULT,
    ),
    "other backend": (
        [hard(backend="nccl")] * 3,
        "default",
        "backend: nccl in the plan, gloo here",
        BY_DEFAULT,
    ),
    "other nodes": ([hard(ranks_per_node=(2, 1))] * 3, "default", "ranks per node", BY_DEFAULT),
    "other world size": (
        [file_bytes(job_plan(NUM_RANKS + 1))] * 3,
        "default",
        "world size: 4 in the plan, 3 here",
        BY_DEFAULT,
    ),
    "other kernel": ([soft(kernel="1.0")] * 3, "ring", "is used, but kernel: 1.0 in the plan", None),
    "other hosts": (
        [soft(hosts=("elsewhere",))] * 3,
        "ring",
        "is used, but hosts: elsewhere in the plan",
        "its rank_order is bound to its hosts: ranks stand as numbered, which may be slower",
    ),
}


def jobs(rank, num_ranks, store, folder):
    """One job after the other in the same processes: what each warned of, and the algorithms it used."""
    outcomes = {}
    for number, (name, (contents_of_rank, *_)) in enumerate(SCENARIOS.items()):
        os.environ.pop("TOPOTUNE_PLAN", None)
        contents = contents_of_rank[rank]
        if contents is not NOT_GIVEN:
            path = Path(folder, str(number), str(rank), "plan.json")
            path.parent.mkdir(parents=True)
            if contents is not MISSING:
                path.write_bytes(contents)
            os.environ["TOPOTUNE_PLAN"] = str(path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist.init_process_group("topotune")
            dist.all_reduce(tensor := torch.full((1000,), float(rank)))
            pair = dist.new_group([0, 1])
            if rank < 2:
                dist.all_reduce(torch.ones(1000), group=pair)
                assert list(pair.calls) == list(dist.group.WORLD.calls), name
        assert tensor.unique().tolist() == [sum(range(num_ranks))], name
        algorithms = {algorithm for _, algorithm in dist.group.WORLD.calls}
        outcomes[name] = [str(warning.message) for warning in caught], algorithms
        dist.destroy_process_group()
    return outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return gloo_world.run_world(NUM_RANKS, jobs, str(tmp_path_factory.mktemp("plans")))


@pytest.mark.parametrize("name", SCENARIOS)
def test_all_ranks_use_one_plan_or_all_the_default_with_one_warning(outcomes, name):
    _, algorithm, said, end = SCENARIOS[name]
    assert [outcome[name][1] for outcome in outcomes] == [{algorithm}] * NUM_RANKS
    warned = [warning for outcome in outcomes for warning in outcome[name][0]]
    if said is None:
        assert warned == []
        return
    (warning,) = warned
    assert warning.startswith("topotune: ")
    assert said in warning
    assert warning.endswith(end or "")


def fail_to_look(*_):
    raise RuntimeError("no driver")


def read_by_an_older_version(data, source):
    raise PlanError(source, "schema_version is 1, this topotune reads up to 0")


def no_json():
    """A plan as a script may make one: nothing checks what its texts are."""
    plan = job_plan(3)
    return replace(plan, context=replace(plan.context, topotune_version=b"0"))


# What is wrong on one rank alone: the rank, what is put in the place of what, what the one warning says.
TROUBLES = {
    "cannot look around": (1, "local_facts", fail_to_look, "rank 1: RuntimeError: no driver"),
    "has another version": (2, "__version__", "0.0.9", "rank 2 has topotune 0.0.9, rank 0 has "),
    "cannot read what rank 0 can": (1, "plan_from_bytes", read_by_an_older_version, "rank 1: given by the"),
}


def jobs_with_a_rank_in_trouble(rank, num_ranks, store):
    outcomes = {}
    for name, (who, attribute, instead, _) in TROUBLES.items():
        topotune.use(job_plan(num_ranks))
        with warnings.catch_warnings(record=True) as caught, pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("always")
            if rank == who:
                patch.setattr(agreement, attribute, instead)
            outcomes[name] = one_job(caught)
    topotune.use(no_json())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcomes["script"] = one_job(caught)
    return outcomes


def one_job(caught):
    dist.init_process_group("topotune", timeout=timedelta(seconds=60))
    dist.all_reduce(torch.ones(1000))
    algorithms = {algorithm for _, algorithm in dist.group.WORLD.calls}
    dist.destroy_process_group()
    return [str(warning.message) for warning in caught], algorithms


def test_what_is_wrong_on_one_rank_alone_is_heard_by_all_before_they_go_on():
    results = gloo_world.run_world(3, jobs_with_a_rank_in_trouble)
    expected = {name: said for name, (_, _, _, said) in TROUBLES.items()} | {
        "script": "bytes is not JSON serializable"
    }
    for name, said in expected.items():
        assert [result[name][1] for result in results] == [{"default"}] * 3, name
        (warning,) = [warning for result in results for warning in result[name][0]]
        assert said in warning
        assert warning.endswith(BY_DEFAULT)


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
    ("order", "node_of_rank", "same_hosts", "problem"),
    [
        (None, (0, 1, 0, 1), False, None),
        ((0, 2, 1, 3), (0, 1, 0, 1), True, None),
        ((0, 2, 1, 3), (0, 1, 0, 1), False, "is bound to its hosts"),
        ((0, 2, 1, 3), (0, 0, 1, 1), True, "parts ranks of one node, which lay otherwise when it was made"),
        ((0, 2, 1, 3), (0, 0, 0, 0), True, None),
        ((0, 2, 1, 3), (0, 1, 2, 3), True, None),
        ((1, 0, 3, 2), (0, 0, 1, 1), True, None),
    ],
)
def test_an_order_made_for_other_hosts_or_another_placement_is_left_out(
    order, node_of_rank, same_hosts, problem
):
    assert against_order(order, node_of_rank, same_hosts=same_hosts) == problem


def test_unequal_shares_made_for_other_hosts_are_left_out():
    unequal = rows((0, "ring", {}), (1024, "parameter_server", {"shares": [4, 1, 1]}))
    plan = job_plan(NUM_RANKS, unequal)
    world, *others = plan.groups
    on_three_nodes = GroupShape(num_ranks=NUM_RANKS, num_nodes=NUM_RANKS, ranks_per_node=1, stride=1)
    plan = replace(plan, groups=(replace(world, shape=on_three_nodes), *others))
    assert on_these_hosts(plan, (0, 1, 2), same_hosts=True) == (plan, ())
    elsewhere, left_out = on_these_hosts(plan, (0, 1, 2), same_hosts=False)
    assert [row.algorithm for row in elsewhere.groups[0].allreduce] == ["ring", "default"]
    assert left_out == ("its unequal shares are bound to its hosts: the default runs in one range of sizes",)


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

import os
import threading
import time
from datetime import timedelta

import gloo_world
import numpy as np
import pytest
import torch
import torch.distributed as dist

from topotune.errors import RunError, UsageError, WrongResultError
from topotune.execute import Communicator, build_executable, check_exact
from topotune.execute.executable import ScheduleExecutable
from topotune.execute.native import ALLGATHER_REDUCE_SCRATCH_BYTES
from topotune.execute.torchscript import compiled, has_torchscript
from topotune.links.placement import Placement
from topotune.plan.algorithms import NATIVE_ALGORITHMS, check_params
from topotune.schedule import native_candidates, ring
from topotune.schedule.model import COPY, REDUCE, Schedule

pytestmark = pytest.mark.gloo

AMPLE = timedelta(seconds=100)


WAITING_FOR = {
    "ring": "waiting for chunk ",
    "ring in Python": "waiting for chunk ",
    "default": "waiting for gloo's allreduce: ",
    "native_reduce_scatter_allgather": "waiting for gloo's reduce-scatter over all ranks: ",
    "native_allgather_reduce": "waiting for gloo's all-gather over all ranks: ",
}


def come_never(rank, num_ranks, store):
    """Rank 1 joins all communicators and then does nothing; the others wait on all of them at once."""
    store.set(f"began {rank}", "")
    store.wait([f"began {other}" for other in range(num_ranks)], AMPLE)
    executables = {}
    for name in WAITING_FOR:
        communicator = Communicator(store, rank, num_ranks, name=name, timeout=timedelta(seconds=8))
        if name == "ring in Python":
            executables[name] = ScheduleExecutable(ring(num_ranks), communicator, native=False)
        else:
            executables[name] = build_executable(name, {}, communicator)
    messages = {}

    def wait(name):
        with pytest.raises(RunError) as first:
            executables[name].allreduce_(torch.ones(1024))
        with pytest.raises(RunError) as second:
            executables[name].allreduce_(torch.ones(1024))
        messages[name] = (first.value.message, second.value.message)

    if rank == 1:
        store.wait([f"ended {other}" for other in range(num_ranks) if other != 1], AMPLE)
    else:
        threads = [threading.Thread(target=wait, args=[name]) for name in WAITING_FOR]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.set(f"ended {rank}", "")
    for executable in executables.values():
        executable.communicator.close()
    return messages


def test_a_rank_that_never_comes_ends_the_others_waits_which_say_what_they_waited_for():
    results = gloo_world.run_world(3, come_never)
    for rank in (0, 2):
        for name, waited in WAITING_FOR.items():
            first, second = results[rank][name]
            algorithm = name.removesuffix(" in Python")
            where = f"on communicator {name!r}, rank {rank} of 3: "
            assert first.startswith(f"allreduce of 4 KiB by {algorithm} {where}{waited}")
            assert second.startswith(f"communicator {name!r} cannot be used on rank {rank}: {waited}")
    assert (
        "from rank 1 (step 0): Timed out waiting 8000ms for recv operation to complete"
        in results[2]["ring"][0]
    )


def die_between(rank, num_ranks, store):
    with Communicator(store, rank, num_ranks, name="dying", timeout=AMPLE) as communicator:
        executable = build_executable("recursive_doubling", {}, communicator)
        executable.allreduce_(torch.ones(10))
        if rank == 1:
            raise SystemExit
        begin = time.monotonic()
        with pytest.raises(RunError):
            executable.allreduce_(torch.ones(10))
        return time.monotonic() - begin < AMPLE.total_seconds() / 2


def exit_for_good(rank, num_ranks, store):
    try:
        return die_between(rank, num_ranks, store)
    except SystemExit:
        os._exit(3)


def test_a_rank_that_dies_is_noticed_long_before_the_timeout():
    assert gloo_world.run_world(2, exit_for_good, deaths=[1]) == [True, None]


def support(rank, num_ranks, store):
    table = {}
    with Communicator(store, rank, num_ranks, name="support", timeout=AMPLE) as communicator:
        for algorithm in ("default", "ring", "native_reduce_broadcast"):
            executable = build_executable(algorithm, {}, communicator)
            for dtype in (torch.float32, torch.int32, torch.int16, torch.bool, torch.complex64):
                ops = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.BAND, dist.ReduceOp.PREMUL_SUM)
                served = [op.name for op in ops if executable.supports(dtype, op)]
                table.setdefault(algorithm, {})[str(dtype)] = served
        executable = build_executable("native_allgather_reduce", {}, communicator)
        assert executable.max_message_bytes == ALLGATHER_REDUCE_SCRATCH_BYTES // 2
        with pytest.raises(UsageError, match="takes messages up to 512 KiB, not 513 KiB"):
            executable.allreduce_(torch.ones(513 * 256))
        executable.allreduce_(torch.ones(512 * 256))
    return table


def test_what_is_not_served_is_said_before_it_is_tried():
    table = gloo_world.run_world(2, support)[0]
    for served in table.values():
        assert served == {
            "torch.float32": ["SUM", "AVG"],
            "torch.int32": ["SUM"],
            "torch.int16": [],
            "torch.bool": [],
            "torch.complex64": [],
        }


def refuse(rank, num_ranks, store):
    messages = []
    with Communicator(store, rank, num_ranks, name="refused", timeout=AMPLE) as communicator:
        for algorithm, params in (
            ("star", {}),
            ("ring", {"pieces": 0}),
            ("native_hierarchical", {"groups": [[0]]}),
            ("nccl", {"algo": "tree", "proto": "ll"}),
        ):
            with pytest.raises(UsageError) as caught:
                build_executable(algorithm, params, communicator)
            messages.append(caught.value.message)
    return messages


def test_names_and_params_that_no_plan_may_hold_are_refused():
    star, pieces, groups, nccl = gloo_world.run_world(2, refuse)[1]
    assert star.startswith("'star' is no known algorithm")
    assert pieces.startswith("pieces is 0")
    assert groups.startswith("groups")
    assert nccl == "nccl tree ll: NCCL runs it by itself, nothing else can"


def test_native_candidates_are_what_plans_may_hold():
    for num_ranks, nodes in ((1, (0,)), (2, (0, 0)), (6, (0,) * 6), (4, (0, 0, 1, 1))):
        candidates = native_candidates(Placement(node_of_rank=nodes))
        assert {algorithm for algorithm, _ in candidates} <= set(NATIVE_ALGORITHMS)
        assert [check_params(*candidate, num_ranks) for candidate in candidates] == [None] * len(candidates)
    assert native_candidates(Placement(node_of_rank=(0,))) == ()
    two_nodes = native_candidates(Placement(node_of_rank=(0, 0, 1, 1, 1)))
    assert ("native_hierarchical", {"groups": [[0, 1], [2, 3, 4]]}) in two_nodes


def lossy_ring(num_ranks, fault):
    schedule = ring(num_ranks)
    op, src = schedule.op.copy(), schedule.src.copy()
    if fault == "lost":
        op[np.flatnonzero(op == REDUCE)[0]] = COPY
    else:
        last = np.flatnonzero(op == COPY)[-1]
        src[last] = next(rank for rank in range(num_ranks) if rank not in (src[last], schedule.dst[last]))
    return Schedule(
        algorithm="ring",
        num_ranks=num_ranks,
        chunk_bounds=schedule.chunk_bounds,
        step=schedule.step,
        channel=schedule.channel,
        src=src,
        dst=schedule.dst,
        chunk=schedule.chunk,
        op=op,
    )


def check_wrong_ones(rank, num_ranks, store):
    messages = []
    with Communicator(store, rank, num_ranks, name="checked", timeout=AMPLE) as communicator:
        right = ScheduleExecutable(ring(num_ranks), communicator)
        for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.int64):
            for message_bytes in (0, 4, 4099, 1 << 20):
                check_exact(right, message_bytes, dtype=dtype)
        with pytest.raises(UsageError, match=r"does not serve sums of torch\.int16"):
            check_exact(right, 64, dtype=torch.int16)
        wrong = ScheduleExecutable(lossy_ring(num_ranks, "lost"), communicator)
        with pytest.raises(WrongResultError) as caught:
            check_exact(wrong, 4096)
        messages.append(caught.value.message)
        unequal = ScheduleExecutable(ring(num_ranks), communicator)
        unequal._run = add_noise(unequal._run, rank)
        with pytest.raises(WrongResultError) as caught:
            check_exact(unequal, 4096)
        messages.append(caught.value.message)
    return messages


def add_noise(run, rank):
    def run_and_disturb(flat, op):
        run(flat, op)
        if rank == 2 and flat.frac().any():
            flat[5] *= 1 + torch.finfo(flat.dtype).eps

    return run_and_disturb


def test_check_exact_finds_wrong_sums_and_unequal_bits_and_tells_every_rank():
    results = gloo_world.run_world(3, check_wrong_ones)
    assert results[0] == results[1] == results[2]
    wrong, unequal = results[0]
    assert wrong.startswith("ring {} of 4 KiB float32: rank ")
    assert " at index " in wrong
    assert (
        unequal == "ring {'channels': 1, 'pieces': 1} of 4 KiB float32: ranks [2] have other bits than rank 0"
    )


def scratch_use(rank, num_ranks, store):
    with Communicator(store, rank, num_ranks, name="scratch", timeout=AMPLE) as communicator:
        for algorithm in ("ring", "recursive_doubling", "halving_doubling", "native_reduce_broadcast"):
            executable = build_executable(algorithm, {}, communicator)
            for num_elements in (10, 100_000, 1000):
                executable.allreduce_(torch.ones(num_elements))
        return communicator.scratch(0, torch.uint8).untyped_storage().nbytes()


def test_scratch_is_shared_and_no_larger_than_the_largest_message():
    assert max(gloo_world.run_world(4, scratch_use)) == 400_000


def reduce_special_tensors(rank, num_ranks, store):
    with Communicator(store, rank, num_ranks, name="special", timeout=AMPLE) as communicator:
        executable = build_executable("recursive_doubling", {}, communicator)
        with torch.inference_mode():
            inference = torch.ones(3)
        leaf = torch.ones(3, requires_grad=True)
        parameter_gradient = torch.ones(6)[2:5]
        for flat in (inference, leaf.detach(), parameter_gradient):
            executable.allreduce_(flat)
        return [inference.tolist(), leaf.tolist(), parameter_gradient.tolist()]


def test_inference_tensors_and_views_of_leaves_are_reduced():
    assert gloo_world.run_world(2, reduce_special_tensors) == [[[2.0, 2.0, 2.0]] * 3] * 2


def without_torchscript(rank, num_ranks, store):
    torch.jit._state._enabled.enabled = False
    assert not has_torchscript()
    assert compiled(without_torchscript) is without_torchscript
    with Communicator(store, rank, num_ranks, name="plain", timeout=AMPLE) as communicator:
        executable = build_executable("halving_doubling", {}, communicator)
        check_exact(executable, 4096)
    return True


def test_all_of_it_works_where_torch_has_no_torchscript():
    assert has_torchscript()
    assert gloo_world.run_world(3, without_torchscript) == [True] * 3

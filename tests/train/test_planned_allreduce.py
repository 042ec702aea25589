"""Allreduces on ``topotune`` against torch's own gloo, over types, operations and layouts."""

import itertools
from collections import Counter
from datetime import timedelta

import gloo_world
import pytest
import torch
import torch.distributed as dist
from job_plan import job_plan, rows

import topotune
from topotune.errors import RunError
from topotune.plan import Row
from topotune.train.allreduce import PlannedAllreduce

pytestmark = pytest.mark.gloo

NUM_RANKS = 3
ALGORITHMS = (
    ("ring", {"channels": 2, "pieces": 2}),
    ("halving_doubling", {}),
    ("forest", {"weights": [1, 2], "down": [[-1, 0, 1], [1, -1, 1]], "up": [[-1, 0, 0], [2, -1, 1]]}),
    ("native_allgather_reduce", {}),
)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)
OPS = ("SUM", "MAX", "MIN", "PRODUCT", "AVG")
LAYOUTS = ("contiguous", "strided", "transposed", "empty")


def values(rank, dtype, op):
    """Numbers whose reduction is exact in every order: powers of two for the product, small integers else."""
    numbers = (torch.arange(210) * 7 + 5 * rank) % 9 - 4
    if op == "PRODUCT":
        numbers = 2 ** (numbers.abs() % 3)
    if op == "AVG":
        numbers = numbers * NUM_RANKS
    return numbers.to(dtype)


def laid_out(tensor, layout):
    """A tensor of these values with this layout, and the memory in which it lies."""
    if layout == "empty":
        tensor = tensor[:0]
    if layout == "strided":
        memory = torch.full((2 * tensor.numel(),), 77, dtype=tensor.dtype)
        memory[::2] = tensor
        return memory[::2], memory[1::2]
    if layout == "transposed":
        return tensor.reshape(14, 15).t(), torch.empty(0)
    return tensor.clone(), torch.empty(0)


def whole_matrix(rank, num_ranks, store):
    dist.init_process_group("topotune")
    ours, raw = dist.group.WORLD, dist.new_group(backend="gloo")
    failures = []
    for algorithm, dtype, op, layout in itertools.product(ALGORITHMS, DTYPES, OPS, LAYOUTS):
        if op == "AVG" and dtype == torch.int64:
            continue
        ours.override = algorithm
        tensor, between = laid_out(values(rank, dtype, op), layout)
        expected = tensor.contiguous().clone()
        dist.all_reduce(expected, op=getattr(dist.ReduceOp, op), group=raw)
        before = ours.calls["allreduce", algorithm[0]]
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        planned = ours.calls["allreduce", algorithm[0]] - before
        if not torch.equal(tensor, expected) or planned != (layout != "empty"):
            failures.append((algorithm[0], dtype, op, layout, planned))
        if not torch.equal(between, torch.full_like(between, 77)):
            failures.append((algorithm[0], dtype, op, layout, "wrote between the elements"))
    return failures


def test_every_type_operation_and_layout_gives_what_gloo_gives():
    assert gloo_world.run_world(NUM_RANKS, whole_matrix) == [[]] * NUM_RANKS


def unsupported(rank, num_ranks, store):
    dist.init_process_group("topotune")
    dist.group.WORLD.override = ("ring", {})
    bits = torch.tensor([1 << rank])
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    truths = torch.tensor([rank == 1])
    dist.all_reduce(truths)
    with pytest.raises(RuntimeError, match="can't be cast"):
        dist.all_reduce(torch.ones(3, dtype=torch.int64), op=dist.ReduceOp.AVG)
    works = [
        dist.all_reduce(torch.ones(3, dtype=torch.int64), op=dist.ReduceOp.AVG, async_op=True)
        for _ in range(2)
    ]
    for work in works:
        with pytest.raises(RuntimeError, match="can't be cast"):
            work.wait()
    after = torch.ones(2)
    dist.all_reduce(after)
    return bits.item(), truths.item(), after.tolist(), dict(dist.group.WORLD.calls)


def test_what_an_algorithm_cannot_serve_goes_to_the_wrapped_backend_and_spoils_nothing():
    for bits, truths, after, calls in gloo_world.run_world(NUM_RANKS, unsupported):
        assert (bits, truths, after) == (7, True, [3.0, 3.0])
        assert calls == {("allreduce", "default"): 5, ("allreduce", "ring"): 1}


def odd_tensors(rank, num_ranks, store):
    dist.init_process_group("topotune")
    dist.group.WORLD.override = ("ring", {})
    results = []
    with torch.inference_mode():
        inference, strided = torch.ones(4), torch.ones(4, 2)[:, 0]
        dist.all_reduce(inference)
        dist.all_reduce(strided, async_op=True).wait()
    results += [inference.tolist(), strided.tolist(), inference.is_inference()]
    late = torch.inference_mode()(torch.ones)(4)
    dist.all_reduce(late, async_op=True).wait()
    leaf, gaps = torch.nn.Parameter(torch.ones(4)), torch.ones(4, 2)[:, 0]
    dist.all_reduce(leaf)
    dist.all_reduce(gaps)
    version, scalar = leaf._version + gaps._version, torch.tensor(1.0)
    dist.all_reduce(scalar)
    base = torch.zeros(10)
    base[3:7] = 1
    dist.all_reduce(base[3:7])
    return [*results, late.tolist(), leaf.tolist(), version, scalar.item(), base.tolist()]


def test_inference_tensors_parameters_scalars_and_views_are_reduced_in_place():
    threes = [3.0] * 4
    expected = [threes, threes, True, threes, threes, 0, 3.0, [0.0] * 3 + threes + [0.0] * 3]
    assert gloo_world.run_world(NUM_RANKS, odd_tensors) == [expected] * NUM_RANKS


def runs(rank, num_ranks, store):
    torch.manual_seed(rank)
    inputs = [torch.randn(size) for size in (17, 1000, 40000)]
    results = []
    for _ in range(2):
        dist.init_process_group("topotune")
        outputs = [tensor.clone() for tensor in inputs]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in outputs]
        for work in works:
            work.wait()
        results.append(outputs)
        dist.destroy_process_group()
    return [[tensor.numpy().tobytes() for tensor in outputs] for outputs in results]


def test_results_are_bitwise_equal_on_all_ranks_and_in_every_run(monkeypatch, tmp_path):
    monkeypatch.setenv("TOPOTUNE_PLAN", str(tmp_path / "plan.json"))
    from topotune.plan import file_bytes

    (tmp_path / "plan.json").write_bytes(file_bytes(job_plan(4)))
    first, *others = (
        result
        for ranks in gloo_world.run_world(4, with_environment, str(tmp_path / "plan.json"))
        for result in ranks
    )
    assert all(other == first for other in others)


def with_environment(rank, num_ranks, store, path):
    topotune.use(path)
    return runs(rank, num_ranks, store)


def chained(rank, num_ranks, store):
    dist.init_process_group("topotune")
    dist.group.WORLD.override = ("ring", {})

    def again(future):
        (tensor,) = future.value()
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    def synchronously(future):
        dist.all_reduce(tensor := future.value())
        dist.broadcast(tensor, 0)
        return tensor

    work = dist.all_reduce(torch.ones(100), async_op=True)
    return work.get_future().then(again).then(synchronously).wait()[0].item()


def test_a_callback_of_a_future_may_call_collectives_and_wait_for_them():
    assert gloo_world.run_world(NUM_RANKS, chained) == [float(NUM_RANKS**3)] * NUM_RANKS


ORDER = (2, 5, 0, 3, 1, 4)
BY_POSITION = (
    ("ring", {"channels": 2, "pieces": 2}),
    ("double_binary_tree", {"pieces": 2}),
    ("hierarchical", {"groups": [[0, 1], [2, 3], [4, 5]]}),
    ("hierarchical", {"groups": [[[0, 1], [2]], [[3], [4, 5]]], "pieces": 2}),
    ("native_allreduce", {}),
    ("native_reduce_scatter_allgather", {}),
    ("native_hierarchical", {"groups": [[0, 1, 2], [3, 4, 5]]}),
    ("native_hierarchical", {"groups": [[0], [1, 2, 3, 4, 5]]}),
    ("shm_hierarchical", {"groups": [[0, 1], [2, 3], [4, 5]]}),
    ("shm_hierarchical", {"groups": [[[0, 1], [2, 3]], [[4, 5]]], "pieces": 2}),
)


SMALLEST = 4000  # elements; each algorithm has a size of its own, so that one world runs all


def in_an_order(rank, num_ranks, store, way):
    """The bits that every algorithm gives; the rank at a position always holds that position's values."""
    starts = [(4 * (SMALLEST + number), *named) for number, named in enumerate(BY_POSITION)]
    table = rows((0, "default", {}), *starts)
    if way != "override in order":
        topotune.use(job_plan(num_ranks, table, rank_order=ORDER if way == "plan in order" else None))
    dist.init_process_group("topotune")
    group = dist.group.WORLD
    if way == "override in order":
        group.rank_order = ORDER
    position = rank if way == "plan as numbered" else ORDER.index(rank)
    bits = []
    for number, named in enumerate(BY_POSITION):
        if way == "override in order":
            group.override = named
            if number == len(BY_POSITION) // 2:
                group.renew()
        generator = torch.Generator().manual_seed(number)
        tensor = torch.randn(num_ranks, SMALLEST + number, generator=generator)[position]
        dist.all_reduce(tensor)
        bits.append(tensor.numpy().tobytes())
    group.override = None
    whole = torch.full((17,), float(1 << rank))  # by the default
    dist.all_reduce(whole)
    assert whole.tolist() == [float((1 << num_ranks) - 1)] * 17
    assert group.calls == {
        ("allreduce", "default"): 1,
        **Counter(("allreduce", name) for name, _ in BY_POSITION),
    }
    return bits


@pytest.mark.slow
def test_an_order_of_a_plan_or_an_override_relabels_ranks_and_what_params_name():
    """Bit for bit: positions are to an ordered plan what ranks are to one as numbered."""
    ways = ("plan in order", "plan as numbered", "override in order")
    found = [bits for way in ways for bits in gloo_world.run_world(6, in_an_order, way)]
    for number, named in enumerate(BY_POSITION):
        assert len({bits[number] for bits in found}) == 1, named


def connections(rank, num_ranks, store, way):
    """Who talks to whom in a hierarchy of pairs by position: the group that each rank joined."""
    topotune.use(
        job_plan(4, rows((0, "native_hierarchical", {"groups": [[0, 1], [2, 3]]})), rank_order=(0, 2, 1, 3))
    )
    dist.init_process_group("topotune")
    group = dist.group.WORLD if way == "the world" else dist.new_group(list(range(4)))
    dist.all_reduce(torch.ones(8), group=group)
    planned = group._planned.algorithms.allreduce
    (executable,) = planned._built.values()
    numbers = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    executable._inside.group.allgather([numbers], [torch.tensor([rank])]).wait()
    return [number.item() for number in numbers]


@pytest.mark.parametrize("way", ["the world", "another group of all ranks"])
def test_groups_are_positions_so_the_ranks_that_an_order_puts_together_are_a_group(way):
    assert gloo_world.run_world(4, connections, way) == [[0, 2], [1, 3], [0, 2], [1, 3]]


def late_in_order(rank, num_ranks, store):
    topotune.use(job_plan(3, rows((0, "ring", {})), rank_order=(2, 1, 0)))
    dist.init_process_group("topotune", timeout=timedelta(seconds=300))
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=3))  # only now: to join may take longer
    if rank == 0:
        store.wait(["seen 1", "seen 2"])
        return None
    with pytest.raises(RunError) as caught:
        dist.all_reduce(torch.ones(8))
    store.set(f"seen {rank}", "")
    return caught.value.message


def test_who_does_not_come_is_named_by_its_rank_whatever_its_position():
    _, *messages = gloo_world.run_world(3, late_in_order)
    assert all("ranks [0] of 3 did not come" in message for message in messages)


def overridden(rank, num_ranks, store):
    topotune.use(job_plan(2))
    dist.init_process_group("topotune")
    group = dist.group.WORLD
    for override in (("double_binary_tree", {}), ("default", {}), None):
        group.override = override
        dist.all_reduce(torch.ones(1000))
    with pytest.raises(topotune.errors.UsageError, match="override: ring takes no parameter 'colour'"):
        group.override = ("ring", {"colour": 1})
    with pytest.raises(topotune.errors.UsageError, match="override: nccl is chosen by NCCL itself"):
        group.override = ("nccl", {"algo": "ring", "proto": "ll"})
    return dict(group.calls), group.override


def test_rows_of_nccl_itself_leave_the_wrapped_backend_alone():
    planned = PlannedAllreduce(dist.HashStore(), 0, 2, timeout=lambda: timedelta(seconds=60))
    nccl = Row(min_bytes=0, max_bytes=1024, algorithm="nccl", params={"algo": "tree", "proto": "ll"})
    ring = Row(min_bytes=1024, max_bytes=None, algorithm="ring")
    planned.set_table([nccl])
    assert not planned.active
    planned.set_table([nccl, ring])
    assert planned.active
    assert planned.choose(1023) is None
    assert planned.choose(1024).name == "ring"


def test_an_override_forces_one_algorithm_and_none_gives_the_plan_back():
    calls = {("allreduce", name): 1 for name in ("double_binary_tree", "default", "ring")}
    assert gloo_world.run_world(2, overridden) == [(calls, None)] * 2

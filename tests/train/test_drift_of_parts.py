"""Drift of reduce-scatters and all-gathers, and of groups inside the world: each falls back for itself."""

import json
import os
import time
import warnings

import drift_jobs
import gloo_world
import pytest
import torch
import torch.distributed as dist
from drift_jobs import fallen, is_learnt, join, set_clock, watch_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from topotune.plan.model import COLLECTIVES
from topotune.train.drift_record import RECORD
from topotune.train.parts import PlannedParts

pytestmark = pytest.mark.gloo

FLOATS = 400
MOST_STEPS = 500


def begin(collective, group=None, shape=(FLOATS,)):
    """Begin one call; its work, and what checks its result."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    ranks = torch.arange(size, dtype=torch.float32).repeat_interleave(shape[0])
    numbers = ranks.view(-1, *[1] * (len(shape) - 1)).expand(size * shape[0], *shape[1:]).contiguous()
    part = torch.full(shape, float(rank))
    match collective:
        case "allreduce":
            tensor = torch.full(shape, float(rank + 1))
            work = dist.all_reduce(tensor, group=group, async_op=True)
            return work, lambda: tensor.unique().tolist() == [size * (size + 1) / 2]
        case "reduce_scatter":
            work = dist.reduce_scatter_single(part, numbers, group=group, async_op=True)
            return work, lambda: part.unique().tolist() == [float(rank * size)]
        case "allgather":
            gathered = torch.full_like(numbers, -1.0)
            work = dist.all_gather_single(gathered, part, group=group, async_op=True)
            return work, lambda: torch.equal(gathered, numbers)


def call(collective, **where):
    work, is_right = begin(collective, **where)
    work.wait()
    assert is_right(), collective


def steps_until(ends):
    """Steps of one call of each collective; how many."""
    return drift_jobs.call_until(ends, lambda: [call(one) for one in COLLECTIVES], most=MOST_STEPS)


def falls_back_one_by_one(rank, num_ranks, store, path):
    os.environ["TOPOTUNE_DRIFT"] = path
    join(num_ranks)
    takes_s = set_clock()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps_until(is_learnt)
        takes_s["reduce_scatter"] = 3.0
        first = steps_until(lambda: fallen() == {"reduce_scatter"})
        takes_s["allgather"] = 4.0
        second = steps_until(lambda: fallen() == {"reduce_scatter", "allgather"})
        for _ in range(5):
            steps_until(lambda: True)
    calls = dist.group.WORLD.calls
    dist.destroy_process_group()
    RECORD.write()
    return (first, second), [str(one.message) for one in caught], calls


def test_each_collective_is_left_for_itself_at_the_same_call_and_told_once(tmp_path):
    path = tmp_path / "drift.json"
    results = gloo_world.run_world(2, falls_back_one_by_one, str(path))
    assert len({numbers for numbers, _, _ in results}) == 1
    assert [len(messages) for _, messages, _ in results] == [2, 0]
    assert results[0][1] == [
        f"topotune: world of 2 ranks: {collective} of 3.12 KiB by ring takes {now_s} s now, {now_s}.0 times "
        "what was usual; the default takes 2 s, faster in 16 of 16 pairs of calls: all 2 ranks use the "
        "default for it from here on"
        for collective, now_s in (("reduce_scatter", 3), ("allgather", 4))
    ]
    for _, _, calls in results:
        assert calls["reduce_scatter", "default"] >= 5
        assert calls["allgather", "default"] >= 5
        assert calls["allreduce", "default"] == 0
    (group,) = json.loads(path.read_text())["groups"]
    assert {kind["collective"]: kind["fallen"] for kind in group["kinds"]} == {
        "allreduce": False,
        "reduce_scatter": True,
        "allgather": True,
    }


def is_really_slow(rank, num_ranks, store):
    """Rank 1 sleeps inside the plan's reduce-scatter, from some call on."""
    sleeps_s = 0.001
    run = PlannedParts.run

    def slow_run(self, algorithm, whole, part, op):
        time.sleep(sleeps_s if self.collective == "reduce_scatter" else 0.001)
        return run(self, algorithm, whole, part, op)

    PlannedParts.run = slow_run
    join(num_ranks)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps_until(is_learnt)
        if rank == 1:
            sleeps_s = 0.1
        number = steps_until(lambda: "reduce_scatter" in fallen())
    dist.destroy_process_group()
    said = [str(one.message) for one in caught]
    return number, [text for text in said if "reduce_scatter" in text and "use the default" in text]


@pytest.mark.slow
def test_a_rank_whose_parts_have_really_become_slow_is_noticed():
    (first, warned), (second, silent) = gloo_world.run_world(2, is_really_slow)
    assert first == second
    assert (len(warned), len(silent)) == (1, 0)


def trains(mesh, num_steps):
    """Train a model that is sharded over the mesh; its weights after each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(num_steps):
        torch.manual_seed(100 * step + dist.get_rank())
        model(torch.randn(4, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield [parameter.full_tensor().detach() for parameter in model.parameters()]


def falls_back_in_training(rank, num_ranks, store):
    join(num_ranks)
    mesh = init_device_mesh("cpu", (num_ranks,))
    takes_s = set_clock(mesh.get_group())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="topotune: ")
        for step, weights_now in enumerate(trains(mesh, MOST_STEPS)):
            weights = weights_now
            if step == 40:
                takes_s.update(reduce_scatter=9.0, allgather=9.0)
            if step >= 40 and fallen(mesh.get_group()) == {"reduce_scatter", "allgather"}:
                break
    calls = mesh.get_group().calls
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    *_, expected = trains(init_device_mesh("cpu", (num_ranks,)), step + 1)
    # The sum of two numbers is the same in either order, and all else is the same anyway.
    assert all(map(torch.equal, weights, expected))
    dist.destroy_process_group()
    return step, {collective for collective, algorithm in calls if algorithm == "ring"}


@pytest.mark.slow
def test_fsdp_trains_to_the_same_bits_while_its_collectives_fall_back():
    first, second = gloo_world.run_world(2, falls_back_in_training)
    assert first == second
    assert first[1] == {"reduce_scatter", "allgather"}


def groups_overlap(rank, num_ranks, store):
    """Rows and columns of a 2 x 2 mesh at once; in one row reduce-scatters become slow, rank by rank."""
    join(num_ranks)
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    row, column = rows[rank // 2], columns[rank % 2]
    slow, _ = set_clock(row), set_clock(column)
    left_at, messages = None, []
    for step in range(30):
        if rank < 2 and step == 6 + 2 * rank:
            slow["reduce_scatter"] = 9.0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            under_way = []
            for number in range(4):
                if (step + number + rank) % 7 == 0:
                    time.sleep(0.001)  # the queues are empty on one rank, and not on another
                for group in (row, column):
                    under_way += [begin(name, group) for name in ("reduce_scatter", "allgather")]
            for work, is_right in reversed(under_way):
                work.wait()
                assert is_right()
        messages += [str(one.message) for one in caught]
        if left_at is None and fallen(row):
            left_at = step
    found = fallen(row), fallen(column)
    dist.destroy_process_group()
    return found, left_at, messages


def test_groups_that_overlap_decide_each_for_itself_with_calls_in_flight():
    results = gloo_world.run_world(4, groups_overlap)
    nothing = (set(), set())
    assert [found for found, _, _ in results] == [({"reduce_scatter"}, set())] * 2 + [nothing] * 2
    assert results[0][1] == results[1][1]
    (message,) = results[0][2]
    assert message.startswith(
        "topotune: group of ranks 0, 1: reduce_scatter of 3.12 KiB by ring takes 9 s now"
    )
    assert [messages for _, _, messages in results[1:]] == [[]] * 3


def one_rank_is_behind(rank, num_ranks, store):
    """Rank 0 waits for every call, and knows of a switch; rank 1 made the same calls before it, at once."""
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    join(num_ranks)
    takes_s = set_clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(40):
            under_way = []
            for _ in range(20):
                for collective in COLLECTIVES:
                    under_way.append(begin(collective, shape=(20, 10)))
                    if rank == 0:
                        under_way[-1][0].wait()
            for work, is_right in under_way:
                work.wait()
                assert is_right()
            takes_s.update(dict.fromkeys(COLLECTIVES, 9.0))
            if len(fallen()) == len(COLLECTIVES):
                break
    found = fallen(), [event.verdict for event in watch_of().events]
    dist.destroy_process_group()
    return found


@pytest.mark.slow
def test_torch_finds_the_same_calls_on_a_rank_that_learns_later_of_a_switch():
    first, second = gloo_world.run_world(2, one_rank_is_behind)
    assert first == second
    assert first[0] == set(COLLECTIVES)

"""Schedules step by step, as NCCL's point-to-point takes them; run here on gloo's messages."""

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from gloo_world import run_world

from topotune.execute import Communicator, check_exact
from topotune.execute.executable import ScheduleExecutable
from topotune.execute.nccl_communicator import in_environment
from topotune.execute.stepwise import StepwiseExecutable, steps_of
from topotune.schedule import catalog

ALGORITHMS = {
    4: [
        ("ring", {"channels": 2, "pieces": 2}),
        ("double_binary_tree", {}),
        ("recursive_doubling", {}),
        ("halving_doubling", {}),
        ("hierarchical", {"groups": [[0, 1], [2, 3]]}),
    ],
    3: [("ring", {}), ("double_binary_tree", {}), ("recursive_doubling", {})],
}
SIZES = (4, 12, 4 * 1021, 400_000)


def compare(rank, num_ranks, store):
    differing = []
    timeout = timedelta(seconds=60)
    with Communicator(store, rank, num_ranks, name="stepwise", timeout=timeout) as communicator:
        for algorithm, params in ALGORITHMS[num_ranks]:
            schedule = catalog.build(algorithm, params, num_ranks)
            stepwise = StepwiseExecutable(schedule, communicator)
            usual = ScheduleExecutable(schedule, communicator)
            for num_bytes in SIZES:
                check_exact(stepwise, num_bytes)
                generator = torch.Generator().manual_seed(rank)
                ours = torch.randn(num_bytes // 4, generator=generator)
                theirs = ours.clone()
                stepwise.allreduce_(ours)
                usual.allreduce_(theirs)
                if not torch.equal(ours, theirs):
                    differing.append((algorithm, num_bytes))
        lowest = torch.tensor([float(rank)])
        stepwise.allreduce_(lowest, dist.ReduceOp.MIN)
        mean = torch.tensor([float(rank)])
        stepwise.allreduce_(mean, dist.ReduceOp.AVG)
    return differing, lowest.item(), mean.item()


@pytest.mark.gloo
@pytest.mark.parametrize("num_ranks", ALGORITHMS)
def test_results_are_exact_and_have_the_bits_of_the_usual_executor(num_ranks):
    for result in run_world(num_ranks, compare):
        assert result == ([], 0.0, (num_ranks - 1) / 2)


@pytest.mark.parametrize("num_ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("algorithm", ["ring", "double_binary_tree", "recursive_doubling"])
def test_both_ends_of_every_message_stand_in_the_same_step_in_the_same_order(algorithm, num_ranks):
    schedule = catalog.build(algorithm, {}, num_ranks)
    numbers = sorted(set(schedule.step.tolist()))
    by_rank = [
        dict(zip(_own_steps(schedule, rank, numbers), steps_of(schedule, rank), strict=True))
        for rank in range(num_ranks)
    ]
    for number in numbers:
        for src in range(num_ranks):
            for dst in range(num_ranks):
                sent = [s.chunk for s in _sends(by_rank[src], number) if s.peer == dst]
                received = [r.chunk for r in _receives(by_rank[dst], number) if r.peer == src]
                assert sent == received


def _own_steps(schedule, rank, numbers):
    rows = zip(schedule.step.tolist(), schedule.src.tolist(), schedule.dst.tolist(), strict=True)
    mine = {step for step, src, dst in rows if rank in (src, dst)}
    return [number for number in numbers if number in mine]


def _sends(steps, number):
    return steps[number].sends if number in steps else ()


def _receives(steps, number):
    return steps[number].receives if number in steps else ()


def test_a_chunk_that_is_sent_in_the_step_is_not_overwritten_before_it_left():
    schedule = catalog.build("recursive_doubling", {}, 4)
    for rank in range(4):
        for step in steps_of(schedule, rank):
            sent = {send.chunk for send in step.sends}
            assert all(receive.beside for receive in step.receives if receive.chunk in sent)


def test_the_environment_is_as_before_after_a_communicator_was_made(monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.delenv("NCCL_PROTO", raising=False)
    with in_environment({"NCCL_ALGO": "allreduce:Tree", "NCCL_PROTO": "allreduce:LL"}):
        assert os.environ["NCCL_ALGO"] == "allreduce:Tree"
    assert os.environ["NCCL_ALGO"] == "Ring"
    assert "NCCL_PROTO" not in os.environ
    with pytest.raises(RuntimeError), in_environment({"NCCL_PROTO": "allreduce:LL"}):
        raise RuntimeError
    assert "NCCL_PROTO" not in os.environ

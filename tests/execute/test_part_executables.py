"""Reduce-scatter and all-gather on real ranks, exactly, on every way; a scatter's input stays as it is."""

import random
from functools import partial

import pytest
import torch
import torch.distributed as dist
from gloo_world import run_world

from topotune.errors import RunError, UsageError
from topotune.execute import Communicator
from topotune.execute.build import build_parts_executable
from topotune.execute.parts import PartsThroughSharedMemory

pytestmark = pytest.mark.gloo

SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG


def algorithms_of(num_ranks):
    yield from [("ring", {}), ("ring", {"channels": 2, "pieces": 2}), ("halving_doubling", {}), ("shm", {})]
    if num_ranks == 4:
        for groups in ([[0, 1], [2, 3]], [[0, 2], [3, 1]]):
            yield "hierarchical", {"groups": groups, "pieces": 2}
            yield "shm_hierarchical", {"groups": groups}
        yield "hierarchical", {"groups": [[1], [0, 2, 3]]}
        yield "shm_hierarchical", {"groups": [[0], [1], [2], [3]]}


def exchange_all(rank, num_ranks, store, lengths):
    """What came out otherwise than it should have."""
    communicator = Communicator(store, rank, num_ranks, name="parts")
    order = random.Random(num_ranks).sample(range(num_ranks), num_ranks)
    wrong = []
    for part_of_rank in (None, order):
        own = rank if part_of_rank is None else part_of_rank[rank]
        for algorithm, params in algorithms_of(num_ranks):
            scatter, gather = (
                build_parts_executable(collective, algorithm, params, communicator, part_of_rank)
                for collective in ("reduce_scatter", "allgather")
            )
            for length, dtype in lengths:
                generator = torch.Generator().manual_seed(length)
                given = torch.randint(0, 4, (num_ranks, num_ranks * length), generator=generator).to(dtype)
                whole, part = given[own].clone(), torch.empty(length, dtype=dtype)
                wanted = given.sum(0).view(num_ranks, length)[own].to(dtype)
                scatter.exchange(whole, part)
                in_place = whole[own * length : (own + 1) * length].clone()
                scatter.exchange(whole.clone(), in_place)
                gathered = torch.full((num_ranks * length,), 9, dtype=dtype)
                gather.exchange(gathered, given[own][:length].contiguous())
                for name, ours, right in (
                    ("scatter", part, wanted),
                    ("in place", in_place, wanted),
                    ("input", whole, given[own]),
                    ("gather", gathered, given[:, :length].reshape(-1)),
                ):
                    if not torch.equal(ours, right):
                        wrong.append((name, algorithm, params, part_of_rank, length, dtype))
    communicator.close()
    return wrong


@pytest.mark.parametrize("num_ranks", [3, 4])
def test_every_way_gives_exactly_each_rank_its_part(num_ranks):
    lengths = [(1, torch.float64), (7, torch.bfloat16), (1000, torch.int64), (20001, torch.float32)]
    assert run_world(num_ranks, exchange_all, lengths) == [[]] * num_ranks


@pytest.mark.slow
def test_large_messages_are_exact_in_two_halves_and_in_many_slices():
    lengths = [((1 << 18) + 3, torch.float32), ((1 << 16) + 1, torch.float64)]
    assert run_world(3, exchange_all, lengths) == [[]] * 3


def average_and_repeat(rank, num_ranks, store):
    communicator = Communicator(store, rank, num_ranks, name="average")
    outcomes = []
    for algorithm in ("ring", "halving_doubling", "shm"):
        executable = build_parts_executable("reduce_scatter", algorithm, {}, communicator)
        torch.manual_seed(rank)
        whole = torch.randn(num_ranks * 5000)
        parts = [torch.empty(5000) for _ in range(3)]
        for part in parts:
            executable.exchange(whole, part, AVG)
        gathered = torch.empty(num_ranks, num_ranks * 5000)
        communicator.group.all_gather_single(gathered, whole[None]).wait()
        wanted = gathered.double().mean(0)[rank * 5000 : (rank + 1) * 5000]
        close = torch.allclose(parts[0].double(), wanted, rtol=1e-5, atol=1e-6)
        outcomes.append((close, all(torch.equal(part, parts[0]) for part in parts)))
    communicator.close()
    return outcomes


def test_an_average_is_close_to_float64_and_the_same_bits_in_every_run():
    assert run_world(3, average_and_repeat) == [[(True, True)] * 3] * 3


def small_slots(rank, num_ranks, store):
    """Many slices through the least memory there is, after an allreduce through the same segment."""
    communicator = Communicator(store, rank, num_ranks, name="small")
    make = partial(PartsThroughSharedMemory, algorithm="shm", params={}, communicator=communicator)
    scatter = make("reduce_scatter", data_bytes=3 * num_ranks * (64 << 10))
    gather = make("allgather")
    right = []
    for length in (5, 40000, 100003):
        whole, part = torch.arange(length * num_ranks) * (rank + 1), torch.empty(length, dtype=torch.int64)
        for _ in range(3):
            scatter.exchange(whole, part)
            gathered = torch.zeros_like(whole)
            gather.exchange(gathered, part)
        right.append(torch.equal(gathered, torch.arange(length * num_ranks) * 3))
    communicator.close()
    return right


def test_slices_take_their_buffers_in_turn():
    assert run_world(2, small_slots) == [[True] * 3] * 2


def lost_rank(rank, num_ranks, store, algorithm):
    from datetime import timedelta

    communicator = Communicator(store, rank, num_ranks, name="lost", timeout=timedelta(seconds=3))
    executable = build_parts_executable("allgather", algorithm, {}, communicator)
    executable.exchange(torch.empty(3000), torch.ones(1000))
    if rank == 2:
        return None
    try:
        executable.exchange(torch.empty(3000), torch.ones(1000))
    except RunError as error:
        return error.message
    return "it ended"


@pytest.mark.parametrize("algorithm", ["ring", "shm"])
def test_a_rank_that_never_comes_fails_the_call_on_the_others(algorithm):
    messages = run_world(3, lost_rank, algorithm)
    for rank in (0, 1):
        assert messages[rank].startswith(
            f"allgather of 11.7 KiB by {algorithm} on communicator 'lost', rank {rank} of 3: "
        ), messages[rank]


def alone(rank, num_ranks, store):
    with Communicator(store, rank, num_ranks, name="alone") as communicator:
        with pytest.raises(UsageError, match="default: the backend does that by itself, nothing else can"):
            build_parts_executable("allgather", "default", {}, communicator)
        with pytest.raises(UsageError, match="'swing' is no known algorithm for reduce_scatter"):
            build_parts_executable("reduce_scatter", "swing", {}, communicator)
    return exchange_all(rank, num_ranks, store, [(5, torch.float32)])


def test_a_single_rank_has_all_parts_and_what_does_no_such_collective_is_refused():
    assert run_world(1, alone) == [[]]

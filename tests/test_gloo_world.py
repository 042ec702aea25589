import os
import time

import gloo_world
import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.gloo


def sum_of_ranks(rank, num_ranks, store, offset):
    dist.init_process_group("gloo")
    value = torch.tensor([rank + offset])
    dist.all_reduce(value)
    dist.destroy_process_group()
    return rank, value.item()


def one_raises(rank, num_ranks, store):
    if rank == 1:
        raise KeyError("the key of rank 1")
    time.sleep(3600)


def one_dies(rank, num_ranks, store):
    if rank == 1:
        os._exit(7)
    return os.getpid()


def hang(rank, num_ranks, store):
    store.set(f"pid {rank}", str(os.getpid()))
    time.sleep(3600)


def test_a_world_returns_what_each_rank_returned():
    assert gloo_world.run_world(3, sum_of_ranks, 10) == [(0, 33), (1, 33), (2, 33)]


def test_an_exception_in_a_rank_fails_the_test_with_its_traceback():
    with pytest.raises(gloo_world.RankError, match=r"(?s)rank 1 raised:.*KeyError: 'the key of rank 1'"):
        gloo_world.run_world(3, one_raises)


def test_a_rank_that_dies_fails_the_test_unless_it_may():
    with pytest.raises(gloo_world.RankError, match="rank 1 died with exit code 7"):
        gloo_world.run_world(2, one_dies)
    results = gloo_world.run_world(2, one_dies, deaths=[1])
    assert results[0] is not None
    assert results[1] is None


def test_a_world_that_hangs_is_ended():
    with pytest.raises(gloo_world.RankError, match=r"ranks \[0, 1\] of 2 had not ended after 2.0 s"):
        gloo_world.run_world(2, hang, timeout_s=2.0)

"""What happens to a job when a rank dies, never comes, or gives up: an error in time, never a hang."""

import atexit
import os
import threading
import time
import warnings
from datetime import timedelta

import gloo_world
import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.gloo

RING = ("ring", {})


def dies_inside(rank, num_ranks, store, async_op):
    dist.init_process_group("topotune", timeout=timedelta(seconds=20))
    group = dist.group.WORLD
    group.override = RING
    dist.all_reduce(torch.ones(1000))
    if rank == 1:
        os._exit(3)
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(2)] if async_op else []
    begin = time.monotonic()
    errors = []
    for wait in ([work.wait for work in works] * 2 + [work.get_future().wait for work in works]) or [
        lambda: dist.all_reduce(torch.ones(1000))
    ]:
        with pytest.raises(RuntimeError) as caught:
            wait()
        errors.append(str(caught.value))
    in_time = time.monotonic() - begin < 60
    with pytest.raises(RuntimeError, match="this process group can run no more collectives"):
        dist.all_reduce(torch.ones(1000))
    with pytest.raises(RuntimeError, match="this process group can run no more collectives"):
        dist.broadcast(torch.ones(1), 0, async_op=True).wait()
    dist.destroy_process_group()
    return errors, in_time, [work.is_success() for work in works], leftover_threads()


def leftover_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("topotune")]


@pytest.mark.parametrize("async_op", [False, True], ids=["synchronous", "asynchronous"])
def test_a_rank_that_dies_fails_the_work_of_the_others(async_op):
    results = gloo_world.run_world(3, dies_inside, async_op, deaths=[1])
    assert results[1] is None
    for errors, in_time, successes, threads in (results[0], results[2]):
        assert in_time
        assert all("allreduce" in error or "no more collectives" in error for error in errors), errors
        assert successes == [False] * len(successes)
        assert threads == []


def never_comes(rank, num_ranks, store):
    dist.init_process_group("topotune", timeout=timedelta(seconds=300))
    dist.group.WORLD.override = RING
    dist.all_reduce(torch.ones(100))
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=2))
    if rank == 0:
        store.wait(["done"], timedelta(seconds=100))
        return None
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"had not ended after the group's timeout of 2 s"):
        dist.all_reduce(torch.ones(100), async_op=True).wait()
    waited = time.monotonic() - begin
    store.set("done", "")
    return waited


def test_a_rank_that_never_comes_costs_the_timeout_that_was_set_last():
    waited = gloo_world.run_world(2, never_comes)[1]
    assert 1.5 < waited < 60


def waits_for_what_has_a_limit(rank, num_ranks, store):
    dist.init_process_group("topotune", timeout=timedelta(seconds=100))
    group = dist.group.WORLD
    group.override, group.wait_limit = RING, timedelta(seconds=5)
    dist.all_reduce(torch.ones(1000))
    group.stop_planned()
    group.renew()
    dist.all_reduce(torch.ones(1000))  # what is made anew has the limit too
    message = ""
    if rank == 0:
        with pytest.raises(RuntimeError) as caught:
            dist.all_reduce(torch.ones(1000))
        message = str(caught.value)
        store.set("rank 0 has given up", "")
    store.wait(["rank 0 has given up"], timedelta(seconds=100))
    dist.destroy_process_group()
    return message


def test_a_wait_ends_by_its_limit_where_that_is_less_than_the_groups_timeout():
    assert "Timed out waiting 5000ms" in gloo_world.run_world(2, waits_for_what_has_a_limit)[0]


def waits_briefly(rank, num_ranks, store):
    dist.init_process_group("topotune")
    dist.group.WORLD.override = RING
    dist.all_reduce(torch.ones(100))
    if rank == 0:
        store.wait(["impatient"], timedelta(seconds=100))
    work = dist.all_reduce(tensor := torch.ones(100), async_op=True)
    if rank == 1:
        with pytest.raises(RuntimeError, match="Operation timed out"):
            work.wait(timedelta(milliseconds=50))
        assert not work.is_completed()
        store.set("impatient", "")
    work.wait()
    return tensor[0].item()


def test_a_wait_with_its_own_timeout_gives_up_alone():
    assert gloo_world.run_world(2, waits_briefly) == [2.0, 2.0]


def aborts(rank, num_ranks, store):
    dist.init_process_group("topotune", timeout=timedelta(seconds=300))
    group = dist.group.WORLD
    group.override = RING
    dist.all_reduce(torch.ones(100))
    if rank == 0:
        store.wait(["aborted"], timedelta(seconds=100))
        group.abort()
        return None
    works = [dist.all_reduce(torch.ones(100), async_op=True), dist.broadcast(torch.ones(1), 0, async_op=True)]
    time.sleep(0.3)
    begin = time.monotonic()
    group.abort()
    errors = []
    for work in works:
        with pytest.raises(RuntimeError) as caught:
            work.wait()
        errors.append(str(caught.value))
    in_time = time.monotonic() - begin < 30
    store.set("aborted", "")
    dist.destroy_process_group()
    return errors, in_time, leftover_threads()


def test_abort_ends_what_runs_fails_what_waits_and_joins_the_thread():
    errors, in_time, threads = gloo_world.run_world(2, aborts)[1]
    assert in_time
    assert "the world of 2 ranks was aborted" in errors[1]
    assert threads == []


def ends_with_work_in_flight(rank, num_ranks, store):
    dist.init_process_group("topotune")
    dist.group.WORLD.override = RING
    works = [dist.all_reduce(torch.ones(30000), async_op=True) for _ in range(5)]
    dist.destroy_process_group()
    return [work.is_success() for work in works], leftover_threads()


def test_destroy_lets_what_was_called_end_and_joins_the_thread():
    assert gloo_world.run_world(2, ends_with_work_in_flight) == [([True] * 5, [])] * 2


def misses_the_second_algorithm(rank, num_ranks, store):
    dist.init_process_group("topotune", timeout=timedelta(seconds=300))
    group = dist.group.WORLD
    group.override = RING
    dist.all_reduce(torch.ones(100))
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=3))  # only now: to join may take longer
    if rank == 0:
        store.wait(["done"], timedelta(seconds=100))
        return None
    group.override = ("native_hierarchical", {"groups": [[0, 1]]})
    begin = time.monotonic()
    with pytest.raises(
        RuntimeError, match=r"ranks \[0\] of 2 did not come to their first allreduce by native_h"
    ):
        dist.all_reduce(torch.ones(100))
    waited = time.monotonic() - begin
    store.set("done", "")
    return waited


def test_connections_of_every_algorithm_are_waited_for_no_longer_than_the_timeout():
    waited = gloo_world.run_world(2, misses_the_second_algorithm)[1]
    assert 2 < waited < 60


def forks_a_child_that_ends(rank, num_ranks, store):
    dist.init_process_group("topotune", timeout=timedelta(seconds=20))
    dist.group.WORLD.override = ("shm", {})
    dist.all_reduce(torch.ones(100))
    if rank == 0:
        with warnings.catch_warnings(action="ignore"):  # Python 3.12: a process with threads should not fork
            child = os.fork()
        if child == 0:
            try:
                atexit._run_exitfuncs()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    dist.all_reduce(tensor := torch.ones(100))
    return tensor[0].item(), dict(dist.group.WORLD.calls)


def test_a_forked_child_that_ends_leaves_its_parents_groups_alone():
    assert gloo_world.run_world(2, forks_a_child_that_ends) == [(2.0, {("allreduce", "shm"): 2})] * 2


def anew(rank, num_ranks, store):
    sums = []
    for round_number in range(3):
        dist.init_process_group("topotune")
        dist.group.WORLD.override = RING
        tensor = torch.tensor([float(round_number)])
        dist.all_reduce(tensor)
        group = dist.new_group([0, 1])
        group.override = RING
        dist.all_reduce(tensor, group=group)
        sums.append(tensor.item())
        dist.destroy_process_group()
    return sums


def test_a_world_can_be_made_anew_in_the_same_store():
    assert gloo_world.run_world(2, anew) == [[0.0, 4.0, 8.0]] * 2


def store_stays_free(rank, num_ranks, store):
    dist.init_process_group("topotune")
    dist.group.WORLD.override = RING
    work = None
    if rank == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)  # its first: it connects, and waits for rank 1
    group = dist.new_group([0, 1])
    work = work or dist.all_reduce(torch.ones(4), async_op=True)
    work.wait()
    return group.size()


def test_connecting_behind_the_scenes_leaves_the_store_to_the_script():
    assert gloo_world.run_world(2, store_stays_free) == [2, 2]


def split_again_and_again(rank, num_ranks, store):
    dist.init_process_group("topotune")
    sums = []
    for number in range(10):
        group = dist.group.WORLD.split_group([0, 1], group_name=f"split {number}")
        group.override = RING
        group.allreduce([tensor := torch.ones(4)]).wait()
        sums.append(tensor[0].item())
        group.shutdown()
    return sums


def test_a_group_can_be_split_for_all_devices_without_a_race():
    assert gloo_world.run_world(2, split_again_and_again) == [[2.0] * 10] * 2

import os
import threading
import time
from datetime import timedelta

import gloo_world
import pytest
import torch
import torch.distributed as dist

from topotune.errors import RunError
from topotune.execute import Communicator, build_executable

pytestmark = pytest.mark.gloo

AMPLE = timedelta(seconds=100)


def reduced(communicator, value):
    flat = torch.tensor([value])
    communicator.group.allreduce([flat]).wait()
    return flat.item()


def join_without_a_world(rank, num_ranks, store):
    with Communicator(store, rank, num_ranks, name="alone", timeout=AMPLE) as communicator:
        result = reduced(communicator, rank + 1)
    return result, dist.is_initialized()


def test_a_communicator_needs_no_world_and_makes_none():
    assert gloo_world.run_world(3, join_without_a_world) == [(6, False)] * 3


def group_in_parts(rank, num_ranks, store):
    """Groups that overlap, that share a name, and that some ranks make and others do not."""
    whole = Communicator(store, rank, num_ranks, name="whole", timeout=AMPLE)
    results = {}
    halves = [[0, 2], [1, 3]]
    half = whole.subgroup(halves[rank % 2], "half")
    assert whole.subgroup(halves[rank % 2], "half") is half
    results["half"] = reduced(half, 10**rank)
    few = whole.subgroup([3, 0], "few")
    results["few"] = None if few is None else (few.rank, reduced(few, 10**rank))
    if rank > 0:
        late = Communicator(store, rank - 1, num_ranks - 1, name="all but 0", timeout=AMPLE)
        results["late"] = reduced(late, 10**rank)
        late.close()
    results["whole"] = reduced(whole, 10**rank)
    whole.close()
    return results


def test_groups_are_joined_by_their_members_alone():
    results = gloo_world.run_world(4, group_in_parts)
    assert [result["half"] for result in results] == [101, 1010, 101, 1010]
    assert [result["few"] for result in results] == [(1, 1001), None, None, (0, 1001)]
    assert [result.get("late") for result in results] == [None, 1110, 1110, 1110]
    assert [result["whole"] for result in results] == [1111] * 4


def use_beside_a_world(rank, num_ranks, store):
    dist.init_process_group("gloo")
    groups_before = len(dist.distributed_c10d._world.pg_map)
    communicator = Communicator(store, rank, num_ranks, name="beside", timeout=AMPLE)
    if rank == 0:
        communicator.subgroup([0], "self")
    groups_after = len(dist.distributed_c10d._world.pg_map)
    mine = dist.new_group([0, 1])
    flat = torch.tensor([rank + 1])
    dist.all_reduce(flat, group=mine)
    result = reduced(communicator, 10 * flat.item())
    communicator.close()
    dist.destroy_process_group()
    return groups_after - groups_before, result


def test_torchs_world_does_not_notice():
    assert gloo_world.run_world(2, use_beside_a_world) == [(0, 60)] * 2


def join_without_rank_1(rank, num_ranks, store):
    if rank == 1:
        return None
    with pytest.raises(RunError) as caught:
        Communicator(store, rank, num_ranks, name="missed", timeout=timedelta(seconds=1))
    return caught.value.message


def test_joining_ends_by_timeout_and_says_who_waited():
    messages = gloo_world.run_world(3, join_without_rank_1)
    assert messages[0].startswith("communicator 'missed': rank 0 could not join the 3 ranks within 1 s: ")
    assert messages[2].startswith("communicator 'missed': rank 2 could not join the 3 ranks within 1 s: ")


def join_soon_and_wait_long(rank, num_ranks, store):
    soon = {"timeout": timedelta(hours=1), "connect_within": timedelta(seconds=2)}
    with Communicator(
        store, rank, num_ranks, name="all here", **soon | {"connect_within": AMPLE}
    ) as all_here:
        assert reduced(all_here, 1) == num_ranks
        assert all_here.subgroup(range(num_ranks), "again").connect_within == AMPLE
    if rank == 1:
        return None
    with pytest.raises(RunError) as caught:
        Communicator(store, rank, num_ranks, name="missed", **soon)
    return caught.value.message


def test_joining_may_have_less_time_than_what_is_waited_for_later():
    message = gloo_world.run_world(2, join_soon_and_wait_long)[0]
    assert message.startswith("communicator 'missed': rank 0 could not join the 2 ranks within 2 s: ")


class Slow:
    """A resource whose abort takes long."""

    def __init__(self):
        self.aborting, self.done = threading.Event(), []

    def abort(self):
        self.aborting.set()
        time.sleep(0.3)
        self.done.append("aborted")

    def close(self):
        self.done.append("closed")


def close_while_aborting(rank, num_ranks, store):
    communicator = Communicator(store, rank, num_ranks, name="slow", timeout=AMPLE)
    slow = communicator.resource("slow", Slow)
    aborting = threading.Thread(target=communicator.abort)
    aborting.start()
    assert slow.aborting.wait(30)
    communicator.close()
    aborting.join()
    return slow.done


def test_close_waits_for_an_abort_in_another_thread():
    assert gloo_world.run_world(2, close_while_aborting) == [["aborted", "closed"]] * 2


def abort_while_waiting(rank, num_ranks, store, algorithm):
    """Rank 1 never takes part; rank 0 and rank 2 wait for it in a thread and are aborted.

    Neither aborts before both have been seen waiting: the first abort breaks the other's connection to it.
    """
    communicator = Communicator(store, rank, num_ranks, name="aborted", timeout=AMPLE)
    executable = build_executable(algorithm, {}, communicator)
    if rank == 1:
        store.wait(["ended 0", "ended 2"], AMPLE)
        return None
    raised = []

    def wait_for_rank_1():
        try:
            executable.allreduce_(torch.ones(1000))
        except RunError as error:
            raised.append(error.message)

    waiting = threading.Thread(target=wait_for_rank_1)
    waiting.start()
    time.sleep(1.0)
    assert waiting.is_alive()
    store.set(f"seen waiting {rank}", "")
    store.wait(["seen waiting 0", "seen waiting 2"], AMPLE)
    begin = time.monotonic()
    communicator.abort()
    waiting.join()
    elapsed_s = time.monotonic() - begin
    store.set(f"ended {rank}", "")
    with pytest.raises(RunError) as caught:
        executable.allreduce_(torch.ones(1000))
    communicator.abort()
    communicator.close()
    return raised, elapsed_s < AMPLE.total_seconds() / 2, caught.value.message


@pytest.mark.parametrize("algorithm", ["recursive_doubling", "default", "native_reduce_scatter_allgather"])
def test_abort_ends_a_wait_in_another_thread(algorithm):
    for rank, result in enumerate(gloo_world.run_world(3, abort_while_waiting, algorithm)):
        if rank != 1:
            raised, ended_soon, later = result
            assert len(raised) == 1
            assert ended_soon
            assert later.startswith(f"communicator 'aborted' cannot be used on rank {rank}: ")


def abort_after_a_peer(rank, num_ranks, store):
    """Rank 2 has aborted; then rank 1 does, which waits for rank 0."""
    communicator = Communicator(store, rank, num_ranks, name="aborted", timeout=AMPLE)
    message = ""
    if rank == 2:
        communicator.abort()
    elif rank == 1:
        with pytest.raises(RuntimeError):
            communicator.group.recv([torch.zeros(1)], 2, 1).wait(AMPLE)
        waiting = communicator.group.recv([torch.zeros(1)], 0, 1)
        communicator.abort()
        with pytest.raises(RuntimeError) as caught:
            waiting.wait(timedelta(seconds=20))
        message = str(caught.value)
        store.set("ended", "")
    store.wait(["ended"], AMPLE)
    communicator.close()
    return message


def test_abort_ends_every_wait_though_a_peer_is_gone_already():
    assert "pair closure" in gloo_world.run_world(3, abort_after_a_peer)[1]


def fail_after_a_peer(rank, num_ranks, store):
    """Rank 2 is gone, so the allreduce of rank 1 fails; rank 0 waits for rank 1."""
    communicator = Communicator(store, rank, num_ranks, name="failed", timeout=AMPLE)
    executable = build_executable("double_binary_tree", {}, communicator)
    message = ""
    if rank == 2:
        communicator.abort()
        store.set("gone", "")
    elif rank == 1:
        store.wait(["gone", "waiting"], AMPLE)
        with pytest.raises(RunError) as caught:
            executable.allreduce_(torch.ones(8))
        message = caught.value.message
        store.wait(["ended"], AMPLE)
    else:
        work = communicator.group.recv([torch.zeros(1)], 1, 1)
        store.set("waiting", "")
        with pytest.raises(RuntimeError) as caught:
            work.wait(timedelta(seconds=60))
        message = str(caught.value)
        store.set("ended", "")
    store.wait(["ended"], AMPLE)
    communicator.close()
    return message


def test_a_rank_whose_call_failed_lets_nobody_wait_for_it():
    waiting, failed, _ = gloo_world.run_world(3, fail_after_a_peer)
    assert "closed by peer" in failed
    assert "closed by peer" in waiting


def open_and_close(rank, num_ranks, store):
    def num_open():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    counts = []
    for number in range(6):
        communicator = Communicator(store, rank, num_ranks, name=f"number {number}", timeout=AMPLE)
        communicator.subgroup([1, 0], "pair")
        build_executable("native_reduce_broadcast", {}, communicator).allreduce_(torch.ones(1000))
        communicator.close()
        communicator.close()
        with pytest.raises(RunError, match=r"cannot be used on rank \d: it was closed"):
            _ = communicator.group
        counts.append(num_open())
    return counts


def test_closing_leaves_no_sockets_and_no_threads():
    for counts in gloo_world.run_world(3, open_and_close):
        assert counts[1:] == counts[:1] * 5


def use_from_two_threads(rank, num_ranks, store):
    first = Communicator(store, rank, num_ranks, name="first", timeout=AMPLE)
    second = Communicator(store, rank, num_ranks, name="second", timeout=AMPLE)
    sums = {}

    def work(name, communicator, algorithm):
        executable = build_executable(algorithm, {}, communicator)
        flat = torch.full((5000,), float(rank))
        for _ in range(20):
            executable.allreduce_(flat, dist.ReduceOp.MAX)
            flat += rank
        sums[name] = flat.unique().tolist()

    jobs = [("first", first, "ring"), ("second", second, "halving_doubling")]
    threads = [threading.Thread(target=work, args=job) for job in (jobs if rank % 2 else jobs[::-1])]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    second.close()
    first.close()
    return sums


def test_two_communicators_work_from_two_threads_in_opposite_order():
    for rank, sums in enumerate(gloo_world.run_world(3, use_from_two_threads)):
        assert sums == {"first": [40.0 + rank], "second": [40.0 + rank]}


def make_alone(rank, num_ranks, store):
    with Communicator(store, rank, num_ranks, name="one", timeout=AMPLE) as communicator:
        build_executable("ring", {}, communicator).allreduce_(flat := torch.tensor([3.0]), dist.ReduceOp.AVG)
        communicator.abort()
    return flat.item()


def test_a_communicator_of_one_rank_works_and_is_aborted_without_a_peer():
    assert gloo_world.run_world(1, make_alone) == [3.0]

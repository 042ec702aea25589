"""What gloo has in flight when an algorithm of the plan gets its turn."""

import gloo_world
import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.gloo


def scatter_then_allreduce(rank, num_ranks, store):
    dist.init_process_group("topotune")
    dist.group.WORLD.override = ("ring", {})
    part = torch.zeros(4)
    work = dist.reduce_scatter_single(part, torch.ones(4 * num_ranks), async_op=True)
    work.wait()
    part.mul_(10)  # as a trainer averages its gradients
    other = torch.ones(3)
    dist.all_reduce(other)
    dist.all_reduce(other, async_op=True).wait()
    held = len(dist.group.WORLD._turns._in_flight)
    return part.tolist(), other.tolist(), held, dict(dist.group.WORLD.calls)


def test_a_reduce_scatter_that_its_caller_has_waited_for_is_not_waited_for_again():
    """Each wait of gloo's writes the output anew: over what the caller has made of it."""
    for part, other, held, calls in gloo_world.run_world(2, scatter_then_allreduce):
        assert (part, other, held) == ([20.0] * 4, [4.0] * 3, 0)
        assert calls == {("reduce_scatter", "default"): 1, ("allreduce", "ring"): 2}


def scatters_without_end(rank, num_ranks, store):
    dist.init_process_group("topotune")
    dist.group.WORLD.override = ("ring", {})
    whole, part = torch.ones(4 * num_ranks), torch.zeros(4)
    for _ in range(20):
        dist.reduce_scatter_single(part, whole, async_op=True).wait()
    return part.tolist(), len(dist.group.WORLD._turns._in_flight)


def test_works_that_never_say_that_they_have_ended_are_not_kept():
    assert gloo_world.run_world(2, scatters_without_end) == [([2.0] * 4, 0)] * 2


def scatters_and_forgets(rank, num_ranks, store):
    """Rank 0 never waits for a reduce-scatter and lets go of all its tensors; then one waits in the queue."""
    dist.init_process_group("topotune")
    dist.group.WORLD.override = ("ring", {})
    part = torch.zeros(1 << 16)
    work = dist.reduce_scatter_single(part, torch.ones(num_ranks << 16), async_op=True)
    if rank == 0:
        del work
    other = torch.ones(1 << 18)
    planned = dist.all_reduce(other, async_op=True)
    queued = torch.zeros(4)
    behind = dist.reduce_scatter_single(queued, torch.ones(4 * num_ranks), async_op=True)
    behind.wait()
    queued.mul_(10)
    if rank != 0:
        work.wait()
    planned.wait()
    dist.all_reduce(other)
    dist.barrier()  # which gloo begins when all before it has ended
    dist.destroy_process_group()
    return part.unique().tolist(), other.unique().tolist(), queued.tolist()


def test_a_reduce_scatter_goes_on_for_the_others_where_a_rank_forgets_it():
    forgot, waited = gloo_world.run_world(2, scatters_and_forgets)
    assert forgot == ([0.0], [4.0], [20.0] * 4), "gloo writes the output in the wait that never came"
    assert waited == ([2.0], [4.0], [20.0] * 4)

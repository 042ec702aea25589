"""Every generator of schedules, run by processes, against torch's own gloo."""

from datetime import timedelta

import gloo_world
import pytest
import torch
import torch.distributed as dist

from topotune.execute import Communicator
from topotune.execute.executable import ScheduleExecutable
from topotune.plan.algorithms import SCHEDULE_ALGORITHMS
from topotune.schedule import build
from topotune.schedule.parameter_server import dedicated_servers, dedicated_servers_of_nodes

pytestmark = pytest.mark.gloo


def schedules(num_ranks):
    """Of every generator one or more, those with ranks that have roles of their own last."""
    chain = [-1, *range(num_ranks - 1)]
    star = [num_ranks - 1] * (num_ranks - 1) + [-1]
    return [
        ("ring", {"channels": 2}),
        ("double_binary_tree", {"pieces": 2}),
        ("recursive_doubling", {}),
        ("halving_doubling", {}),
        ("swing", {}),
        ("bine", {}),
        ("torus", {"rows": 2}),
        ("hierarchical", {"groups": [[*range(num_ranks // 2)], [*range(num_ranks // 2, num_ranks)]]}),
        ("blueconnect", {"factors": [2, num_ranks // 2], "order": [1, 0], "pieces": 2}),
        ("forest", {"weights": [3, 1], "down": [chain, star], "pieces": 2}),
        ("parameter_server", {}),
        ("parameter_server", {"servers": [num_ranks - 1], "pieces": 4}),
        ("parameter_server", {"servers": [0, num_ranks - 1], "shares": [1, 5], "pieces": 2}),
    ]


def run_all(rank, num_ranks, store):
    dist.init_process_group("gloo")
    communicator = Communicator(store, rank, num_ranks, name="generators", timeout=timedelta(seconds=100))
    equal = {}
    for name, params in schedules(num_ranks):
        executable = ScheduleExecutable(build(name, params, num_ranks), communicator)
        for num_elements in (1, 1001):
            generator = torch.Generator().manual_seed(num_elements)
            parts = torch.randint(-1000, 1000, (num_ranks, num_elements), generator=generator).float()
            ours, theirs = parts[rank].clone(), parts[rank].clone()
            executable.allreduce_(ours, dist.ReduceOp.SUM)
            dist.all_reduce(theirs)
            equal[f"{name} {params}: {num_elements}"] = torch.equal(ours, theirs)
    dist.destroy_process_group()
    return equal


def serve_all(rank, num_ranks, store):
    """The last two only serve; the others' sum is held against an allreduce of theirs alone."""
    dist.init_process_group("gloo")
    owners = num_ranks - 2
    training = dist.new_group(list(range(owners)))
    communicator = Communicator(store, rank, num_ranks, name="served", timeout=timedelta(seconds=100))
    equal = {}
    for schedule in (
        dedicated_servers(owners, 2),
        dedicated_servers(owners, 2, shares=[1, *[0] * (owners - 1), 2, 3], pieces=3),
        dedicated_servers_of_nodes([[0, 1], [*range(2, owners)]], 2, pieces=2),
    ):
        executable = ScheduleExecutable(schedule, communicator)
        for num_elements, op in ((1, dist.ReduceOp.SUM), (1001, dist.ReduceOp.AVG)):
            generator = torch.Generator().manual_seed(num_elements)
            parts = torch.randint(-1000, 1000, (num_ranks, num_elements), generator=generator).float()
            ours, theirs = parts[rank].clone(), parts[rank].clone()
            executable.allreduce_(ours, op)
            if rank < owners:
                dist.all_reduce(theirs, op, group=training)
                equal[f"{schedule.params}: {num_elements}"] = torch.equal(ours, theirs)
    dist.destroy_process_group()
    return equal


@pytest.mark.slow
def test_servers_beside_the_ranks_give_them_what_gloo_gives():
    found = gloo_world.run_world(6, serve_all, timeout_s=120)
    assert [len(equal) for equal in found] == [6] * 4 + [0] * 2
    for equal in found:
        assert all(equal.values()), [case for case, is_equal in equal.items() if not is_equal]


def test_every_generator_is_run():
    assert {name for name, _ in schedules(4)} == set(SCHEDULE_ALGORITHMS)


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [4, 6])
def test_every_generator_gives_what_gloo_gives(num_ranks):
    for equal in gloo_world.run_world(num_ranks, run_all, timeout_s=120):
        assert all(equal.values()), [case for case, is_equal in equal.items() if not is_equal]

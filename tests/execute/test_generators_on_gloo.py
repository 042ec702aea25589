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


def test_every_generator_is_run():
    assert {name for name, _ in schedules(4)} == set(SCHEDULE_ALGORITHMS)


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [4, 6])
def test_every_generator_gives_what_gloo_gives(num_ranks):
    for equal in gloo_world.run_world(num_ranks, run_all, timeout_s=120):
        assert all(equal.values()), [case for case, is_equal in equal.items() if not is_equal]

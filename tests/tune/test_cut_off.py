"""A candidate that hangs costs its own trial: it is cut off on all ranks, and everything else goes on."""

import pytest
from gloo_world import run_world

pytestmark = pytest.mark.gloo

LIMIT_S = 2.0
HANGING_RANK = 1


def make_hang(on_call):
    """Have ``recursive_doubling`` hang on one rank, at its call number ``on_call`` and only there."""
    import torch

    from topotune.train import allreduce

    build = allreduce.build_executable
    made = []

    def build_hanging(algorithm, params, communicator):
        executable = build(algorithm, params, communicator)
        if algorithm != "recursive_doubling" or communicator.rank != HANGING_RANK:
            return executable
        run = executable._run

        def hang(flat, op):
            made.append(None)
            if len(made) == on_call:
                # As a schedule hangs: in a native wait for a message that nobody sends.
                communicator.group.recv([torch.empty(1)], 0, 12345).wait()
            run(flat, op)

        executable._run, executable._doing = hang, lambda: "hanging"
        return executable

    allreduce.build_executable = build_hanging


def hanging_rank(rank, num_ranks, store, on_call, condition):
    import time

    import numpy as np
    import torch
    import torch.distributed as dist

    from topotune.tune.sampling import Sampling
    from topotune.tune.timing import Station, TorchBench
    from topotune.tune.trial import DEFAULT, Candidate, CandidateFailedError
    from topotune.tune.world import joined_world

    hanging = Candidate.of("recursive_doubling", {})
    ring = Candidate.of("ring", {"channels": 1, "pieces": 1})
    make_hang(on_call)
    with joined_world(None) as world:
        station = Station(world.planned, world.raw, world.private, world.nodes.node_of_rank)
        if rank != 0:
            assert station.follow() is None
            dist.all_reduce(torch.ones(1), group=world.raw)
            return None
        bench = TorchBench(station, started_s=time.perf_counter())
        sampling = Sampling(bench=bench, rng=np.random.default_rng(0), limit_s=lambda *_: LIMIT_S)
        problem = sampling.check(hanging, 4096)
        failure = None
        if problem is None:
            with pytest.raises(CandidateFailedError) as caught:
                sampling.rounds(
                    "search", 4096, (DEFAULT, ring, hanging), 4, first_guess_s=0.01, condition=condition
                )
            assert caught.value.candidate == hanging
            failure = caught.value.why
        # All of it works again, the candidate too: it hangs only once.
        after = sampling.rounds("search", 4096, (DEFAULT, ring, hanging), 3, first_guess_s=0.01)
        bench.end()
        dist.all_reduce(torch.ones(1), group=world.raw)
        return problem, failure, after.shape, sampling.deaths[hanging], sampling.deaths[ring]


@pytest.mark.parametrize(
    ("on_call", "condition"),
    [(1, "idle"), (4, "idle"), (6, "idle"), (5, "backward"), (6, "busy")],
    ids=["in its check", "warming up", "in a sample", "beside a backward", "beside Python"],
)
def test_a_hanging_call_is_cut_off_on_all_ranks_and_the_rest_goes_on(on_call, condition):
    problem, failure, shape, deaths, others = run_world(3, hanging_rank, on_call, condition)[0]
    assert (problem or failure) == f"a call had not ended after {LIMIT_S:.3g} s"
    assert (problem is None) == (on_call > 2)
    assert shape == (3, 3)
    assert (deaths, others) == (1, 0)

"""Drift in real jobs: a lasting change is noticed and told once, and all ranks leave the plan at one call."""

import json
import os
import time
import warnings
from datetime import timedelta

import gloo_world
import job_plan
import pytest
import torch
import torch.distributed as dist

import topotune
from topotune.train import drift
from topotune.train.allreduce import PlannedAllreduce
from topotune.train.detector import Rules
from topotune.train.drift import DriftOptions
from topotune.train.drift_record import RECORD

pytestmark = pytest.mark.gloo

FLOATS = 1000
MOST_CALLS = 3000
QUICK = DriftOptions(rules=Rules(skip=2, window=4, order=1, learn=4, least_s=0.0), check_every_ns=10_000_000)


def join(num_ranks):
    """A world under a plan, with detectors in a hurry."""
    drift.OPTIONS = QUICK
    topotune.use(job_plan.job_plan(num_ranks))
    dist.init_process_group("topotune", timeout=timedelta(seconds=60))


def join_with_clock(num_ranks):
    """Likewise; the watch is told that calls by the plan take what is returned under "plan", others 2 s.

    Everything but the watch's clock is real, so that a busy machine changes nothing.
    """
    join(num_ranks)
    takes_s = {"plan": 1.0}
    watch = watched()
    begin, end = watch.begin, watch.end
    by_plan = []

    def begin_by(kind, algorithm):
        by_plan[:] = [begin(kind, algorithm)]
        return by_plan[0]

    watch.begin = begin_by
    watch.end = lambda kind, _: end(kind, takes_s["plan"] if by_plan[0] else 2.0)
    return takes_s


def call_until(ends, *, floats=FLOATS):
    """Calls until ``ends()``, which must be so at the same call on all ranks; how many."""
    for number in range(1, MOST_CALLS):
        tensor = torch.ones(floats)
        dist.all_reduce(tensor)
        assert tensor[0] == dist.get_world_size()
        if ends():
            return number
    raise AssertionError(f"nothing ended {MOST_CALLS} calls")


def watched():
    return dist.group.WORLD._on_cpu.drift


def is_learnt():
    """Calls are the same on all ranks, and so is how many of them teach."""
    return all(known.detector.usual_s is not None for known in watched().kinds.values())


def has_fallen():
    return any(known.fallen for known in watched().kinds.values())


def falls_back(rank, num_ranks, store, path):
    os.environ["TOPOTUNE_DRIFT"] = path
    takes_s = join_with_clock(num_ranks)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call_until(is_learnt)
        takes_s["plan"] = 3.0
        number = call_until(has_fallen)
        for _ in range(20):
            call_until(lambda: True)
    calls = dist.group.WORLD.calls
    dist.destroy_process_group()
    RECORD.write()
    return number, [str(one.message) for one in caught], calls


def test_all_ranks_leave_a_plan_that_has_become_slower_at_the_same_call_and_one_warns(tmp_path):
    path = tmp_path / "drift.json"
    results = gloo_world.run_world(3, falls_back, str(path))
    assert len({number for number, _, _ in results}) == 1
    assert [len(messages) for _, messages, _ in results] == [1, 0, 0]
    (message,) = results[0][1]
    assert message == (
        "topotune: world of 3 ranks: allreduce of 3.91 KiB by ring takes 3 s now, 3.0 times what was usual; "
        "the default takes 2 s, faster in 16 of 16 pairs of calls: all 3 ranks use the default for it from "
        "here on"
    )
    assert all(calls["allreduce", "default"] >= 20 for _, _, calls in results)
    document = json.loads(path.read_text())
    assert (document["schema"], document["schema_version"]) == ("topotune/drift", 1)
    (group,) = document["groups"]
    (kind,) = group["kinds"]
    assert kind["fallen"]
    assert (kind["message_bytes"], kind["dtype"], kind["algorithm"]) == (4 * FLOATS, "float32", "ring")
    (trial,) = group["trials"]
    assert trial["verdict"]["finding"] == "worse"
    assert message == f"topotune: {trial['text']}"


def falls_back_in_flight(rank, num_ranks, store):
    """Many calls in flight at once, planned and not; the switch falls among them, elsewhere on each rank."""
    takes_s = join_with_clock(num_ranks)
    fallen_at = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(MOST_CALLS // 8):
            if step == 10 + 3 * rank:
                takes_s["plan"] = 9.0
            tensors = [torch.full((FLOATS,), float(number)) for number in range(8)]
            works = []
            for number, tensor in enumerate(tensors):
                if (step + number + rank) % 5 == 0:
                    time.sleep(0.001 * (rank + 1))  # the queue is empty on one rank, and not on another
                works.append(dist.all_reduce(tensor, async_op=True))
                works.append(dist.broadcast(torch.ones(1), 0, async_op=True))
            for work in works:
                work.wait()
            assert [tensor[-1].item() for tensor in tensors] == [num_ranks * number for number in range(8)]
            if has_fallen():
                fallen_at.append(step)
            if len(fallen_at) == 5:
                break
    dist.destroy_process_group()
    return fallen_at[0]


def test_a_switch_among_calls_in_flight_is_at_the_same_call():
    assert len(set(gloo_world.run_world(3, falls_back_in_flight))) == 1


def waits_for_a_straggler(rank, num_ranks, store):
    takes_s = join_with_clock(num_ranks)
    call_until(is_learnt)
    if rank == 0:
        takes_s["plan"] = 9.0
    for _ in range(80):
        call_until(lambda: True)
    votes = watched()._ballot.has_vote(0)
    trials = len(watched().events)
    calls = dist.group.WORLD.calls
    dist.destroy_process_group()
    return votes, trials, calls["allreduce", "default"]


def test_a_straggler_is_no_drift():
    assert gloo_world.run_world(2, waits_for_a_straggler) == [(True, 0, 0), (False, 0, 0)]


def is_off(rank, num_ranks, store):
    os.environ["TOPOTUNE_DRIFT"] = "off"
    join(num_ranks)
    call_until(lambda: True)
    found = watched(), RECORD.document()["groups"]
    dist.destroy_process_group()
    return found


def test_off_means_no_watch_and_no_file():
    assert gloo_world.run_world(2, is_off) == [(None, [])] * 2
    assert not os.path.exists("off")


def steady_with_record(rank, num_ranks, store, path):
    os.environ["TOPOTUNE_DRIFT"] = path
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        join(num_ranks)
        for _ in range(5):
            call_until(lambda: True)
        dist.destroy_process_group()
        RECORD.write()
    assert all(f"TOPOTUNE_DRIFT={path} is not written" in str(one.message) for one in caught)
    return len(caught)


def test_a_path_that_cannot_be_written_gives_one_warning_and_leaves_the_job_alone(tmp_path):
    assert gloo_world.run_world(2, steady_with_record, str(tmp_path / "missing" / "drift.json")) == [1, 0]


def is_really_slow(rank, num_ranks, store):
    """Rank 1 sleeps inside the plan's algorithm, from some call on."""
    sleeps_s = 0.001
    run = PlannedAllreduce.run

    def slow_run(self, algorithm, flat, op):
        time.sleep(sleeps_s)
        return run(self, algorithm, flat, op)

    PlannedAllreduce.run = slow_run
    join(num_ranks)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call_until(is_learnt)
        if rank == 1:
            sleeps_s = 0.1
        number = call_until(has_fallen)
    dist.destroy_process_group()
    return number, len(caught)


@pytest.mark.slow
def test_a_rank_that_has_really_become_slow_is_noticed():
    (first, warned), (second, silent) = gloo_world.run_world(2, is_really_slow)
    assert first == second
    assert (warned, silent) == (1, 0)

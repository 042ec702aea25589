"""Drift in real jobs: a lasting change is noticed and told once, and all ranks leave the plan at one call."""

import json
import logging
import os
import threading
import time
import warnings
from datetime import timedelta
from functools import partial

import drift_jobs
import gloo_world
import pytest
import torch
import torch.distributed as dist
from drift_jobs import fallen, is_learnt, join, set_clock, watch_of

from topotune.errors import RunError
from topotune.train import drift_record, planned_calls
from topotune.train.allreduce import PlannedAllreduce
from topotune.train.drift import Phase
from topotune.train.drift_record import RECORD, DriftRecord, warn
from topotune.train.planned import Algorithm
from topotune.train.turns import Turns
from topotune.train.usage import GroupUsage

pytestmark = pytest.mark.gloo

FLOATS = 1000
MOST_CALLS = 3000


def call_until(ends, *, floats=FLOATS):
    def allreduce():
        tensor = torch.ones(floats)
        dist.all_reduce(tensor)
        assert tensor[0] == dist.get_world_size()

    return drift_jobs.call_until(ends, allreduce, most=MOST_CALLS)


def falls_back(rank, num_ranks, store, path):
    os.environ["TOPOTUNE_DRIFT"] = path
    join(num_ranks)
    takes_s = set_clock()
    write, disk_answers = drift_record.write_text, threading.Event()
    drift_record.write_text = lambda *what: (disk_answers.wait(), write(*what))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call_until(is_learnt)
        takes_s["allreduce"] = 3.0
        number = call_until(fallen)
        for _ in range(20):
            call_until(lambda: True)
    disk_answers.set()
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
    join(num_ranks)
    takes_s = set_clock()
    fallen_at = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(MOST_CALLS // 8):
            if step == 10 + 3 * rank:
                takes_s["allreduce"] = 9.0
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
            if fallen():
                fallen_at.append(step)
            if len(fallen_at) == 5:
                break
    dist.destroy_process_group()
    return fallen_at[0]


def test_a_switch_among_calls_in_flight_is_at_the_same_call():
    assert len(set(gloo_world.run_world(3, falls_back_in_flight))) == 1


def waits_for_a_straggler(rank, num_ranks, store):
    join(num_ranks)
    takes_s = set_clock()
    call_until(is_learnt)
    if rank == 0:
        takes_s["allreduce"] = 9.0
    for _ in range(80):
        call_until(lambda: True)
    votes = watch_of()._ballot.has_vote(0)
    trials = len(watch_of().events)
    calls = dist.group.WORLD.calls
    dist.destroy_process_group()
    return votes, trials, calls["allreduce", "default"]


def test_a_straggler_is_no_drift():
    assert gloo_world.run_world(2, waits_for_a_straggler) == [(True, 0, 0), (False, 0, 0)]


def is_off(rank, num_ranks, store):
    os.environ["TOPOTUNE_DRIFT"] = "off"
    join(num_ranks)
    call_until(lambda: True)
    found = watch_of(), RECORD.document()["groups"]
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


def test_nothing_is_written_after_the_end(tmp_path, monkeypatch):
    path = tmp_path / "drift.json"
    monkeypatch.setenv("TOPOTUNE_DRIFT", str(path))
    record, before = DriftRecord(), set(threading.enumerate())
    record.begin()
    path.unlink()
    record.end()
    assert json.loads(path.read_text())["groups"] == []
    path.unlink()
    record.write_aside()
    record.write()
    assert set(threading.enumerate()) <= before
    assert not path.exists()


def test_a_call_that_fails_after_its_group_was_renewed_leaves_the_new_queue_alone(monkeypatch):
    usage = GroupUsage(kind="a group")
    turns = Turns(usage)
    calls = planned_calls.PlannedCalls(turns, usage, lambda: None, None)
    turns.close("was renewed")
    turns.renew()
    monkeypatch.setattr(planned_calls, "memory_of", partial(fail, "late"))
    with pytest.raises(RunError, match="late"):
        calls.in_one_piece(torch.ones(1), Algorithm("ring", {}, of_plan=True))
    assert turns.queue.idle


def is_off_on_one(rank, num_ranks, store):
    if rank == 1:
        os.environ["TOPOTUNE_DRIFT"] = "off"
    join(num_ranks)
    takes_s = set_clock() if rank == 0 else {}
    for number in range(100):
        if number == 40:
            takes_s["allreduce"] = 9.0
        call_until(lambda: True)
    wants_a_trial = rank == 0 and watch_of()._ballot.has_vote(0)
    calls = dist.group.WORLD.calls
    dist.destroy_process_group()
    return wants_a_trial, calls


def test_a_rank_alone_that_does_not_watch_keeps_all_on_the_plan():
    calls = {("allreduce", "ring"): 100}
    assert gloo_world.run_world(2, is_off_on_one) == [(True, calls), (False, calls)]


def cannot_go_on(rank, num_ranks, store):
    """Rank 1 fails before a call that the others have begun, catches it and lives on."""
    timeout = timedelta(hours=1)
    join(num_ranks, timeout)
    messages = []
    for what in ("begin", "copy", "trial"):
        group = dist.new_group(timeout=timeout)
        dist.all_reduce(torch.ones(FLOATS), group=group)
        if what == "trial":
            takes_s = set_clock(group)
            for _ in range(30):
                dist.all_reduce(torch.ones(FLOATS), group=group)
            takes_s["allreduce"] = 9.0
            while watch_of(group)._phase is not Phase.PROPOSED:
                dist.all_reduce(torch.ones(FLOATS), group=group)
        with pytest.MonkeyPatch.context() as patch:
            if rank == 1 and what == "begin":
                patch.setattr(watch_of(group), "begin", partial(fail, "the store is gone"))
            elif rank == 1 and what == "trial":
                patch.setattr(watch_of(group)._ballot, "is_seen_by_all", partial(fail, "gone in a trial"))
            elif rank == 1:
                patch.setattr(planned_calls, "memory_of", partial(fail, "no memory for a copy"))
            with pytest.raises(RuntimeError) as caught:
                dist.all_reduce(torch.ones(2 * FLOATS)[::2], group=group)
        store.set(f"{what} {rank}", "")
        store.wait([f"{what} {peer}" for peer in range(num_ranks)], timedelta(seconds=60))
        with pytest.raises(RuntimeError, match="can run no more collectives"):
            dist.all_reduce(torch.ones(FLOATS), group=group)
        messages.append(str(caught.value))
    return messages


def fail(what, *_):
    raise RunError(what)


def test_a_rank_that_cannot_go_on_ends_the_call_on_all_others():
    first, failed, last = gloo_world.run_world(3, cannot_go_on)
    assert failed == ["the store is gone", "no memory for a copy", "gone in a trial"]
    for messages in (first, last):
        assert all(message.startswith("allreduce of 3.91 KiB by ring") for message in messages[:2])
        assert "by ring" not in messages[2]  # it was in the default, on the wrapped backend's connections


def test_what_shows_warnings_may_fail_and_no_collective_does(caplog):
    def fail(*_, **__):
        raise OSError("no room to show it")

    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("always")
        warnings.showwarning = fail
        warn("topotune: first")
        warnings.simplefilter("error")
        warn("topotune: second")
    assert [record.getMessage() for record in caplog.records] == ["topotune: first", "topotune: second"]


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
        number = call_until(fallen)
    dist.destroy_process_group()
    return number, len(caught)


@pytest.mark.slow
def test_a_rank_that_has_really_become_slow_is_noticed():
    (first, warned), (second, silent) = gloo_world.run_world(2, is_really_slow)
    assert first == second
    assert (warned, silent) == (1, 0)

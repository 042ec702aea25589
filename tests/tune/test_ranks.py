"""Tuning and comparing on real gloo ranks, through the same entries as the command line."""

import json
import os

import pytest
from gloo_world import RankError, run_world

from topotune.plan import load_plan
from topotune.tune.journal import read_journal

pytestmark = pytest.mark.gloo


def tune_rank(rank, num_ranks, store, payload):
    from topotune.tune.session import tune_worker

    reports = []
    document = tune_worker(payload, reports.append)
    return document, [(report.phase, report.done) for report in reports]


def compare_rank(rank, num_ranks, store, payload):
    from topotune.tune.session import compare_worker

    return compare_worker(payload)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A plan for two ranks, tuned within 5 s, as a file, with its journal and its progress."""
    folder = tmp_path_factory.mktemp("tuned")
    payload = {
        "budget_s": 5.0,
        "sizes": [1024, 65536],
        "min_gain": 0.02,
        "backend": "gloo",
        "seed": 1,
        "journal_path": str(folder / "journal.jsonl"),
    }
    results = run_world(2, tune_rank, payload)
    (folder / "plan.json").write_text(json.dumps(results[0][0]))
    return folder, results


def test_rank_0_alone_returns_a_plan_that_loads(tuned):
    folder, results = tuned
    plan = load_plan(folder / "plan.json")
    assert results[1] == (None, [])
    assert plan.fingerprint.hard.world_size == 2
    assert plan.fingerprint.hard.backend == "gloo"
    assert plan.context.seed == 1
    assert plan.groups[0].shape.num_ranks == 2
    rows = plan.groups[0].allreduce
    assert rows[0].min_bytes == 0
    assert rows[-1].max_bytes is None
    for row in rows:
        if row.algorithm != "default":
            assert row.evidence.ratio_ci[0] > 1.02
            assert len(row.evidence.confirmed_bytes) >= 3
    assert plan.links
    assert plan.certificate.correction == "holm"


def test_progress_is_reported_on_rank_0_and_never_runs_backwards(tuned):
    _, results = tuned
    phases = list(dict.fromkeys(phase for phase, _ in results[0][1]))
    assert phases[0] == "links"
    assert phases[-1] == "done"
    done = [share for _, share in results[0][1]]
    assert done == sorted(done)


def test_the_journal_holds_every_trial_of_the_run(tuned):
    folder, _ = tuned
    contents = read_journal(folder / "journal.jsonl")
    assert contents.unfinished == {}
    assert contents.problems == ()
    assert contents.header["fingerprint"]["hard"]["world_size"] == 2
    assert {one.trial["kind"] for one in contents.finished} >= {"pilot"}


def test_a_comparison_of_that_plan_runs_on_the_topotune_group(tuned):
    folder, _ = tuned
    payload = {
        "plan_path": str(folder / "plan.json"),
        "sizes": [1024, 2052],
        "budget_s": 1.0,
        "seed": 0,
    }
    document, other = run_world(2, compare_rank, payload)
    assert other is None
    assert document["schema"] == "topotune/comparison"
    assert [row["message_bytes"] for row in document["rows"]] == [1024, 2052]
    for row in document["rows"]:
        assert row["num_samples"] >= 8
        assert row["ratio_ci"][0] <= row["ratio"] <= row["ratio_ci"][1]
        assert row["verdict"] in ("faster", "same", "slower")


def test_a_plan_for_another_number_of_ranks_is_refused(tuned):
    folder, _ = tuned
    payload = {"plan_path": str(folder / "plan.json"), "sizes": [1024], "budget_s": 1.0, "seed": 0}
    with pytest.raises(RankError, match=r"UsageError: plan .*plan\.json is not used"):
        run_world(3, compare_rank, payload)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_16_ranks_make_one_plan():
    """As many as run on a machine of few cores: the largest world that is tuned here for real."""
    payload = {"budget_s": 20.0, "sizes": [1024, 65536], "seed": 1}
    (document, _), *others = run_world(16, tune_rank, payload, timeout_s=300)
    assert others == [(None, [])] * 15
    assert document["fingerprint"]["hard"]["world_size"] == 16
    rows = document["groups"][0]["allreduce"]
    assert (rows[0]["min_bytes"], rows[-1]["max_bytes"]) == (0, None)


def test_a_budget_too_small_for_anything_gives_a_default_plan():
    results = run_world(2, tune_rank, {"budget_s": 0.2, "sizes": [1024, 1 << 22]})
    document = results[0][0]
    assert {row["algorithm"] for row in document["groups"][0]["allreduce"]} == {"default"}


def test_a_single_rank_gets_a_default_plan():
    ((document, _),) = run_world(1, tune_rank, {"budget_s": 1.0, "sizes": [1024]})
    rows = document["groups"][0]["allreduce"]
    assert [row["algorithm"] for row in rows] == ["default"]
    assert document["groups"][0]["shape"]["num_ranks"] == 1


def bench_rank(rank, num_ranks, store):
    import time

    import numpy as np

    from topotune.tune.sampling import Sampling
    from topotune.tune.timing import Station, TorchBench
    from topotune.tune.trial import DEFAULT, Candidate
    from topotune.tune.world import joined_world

    schedule = Candidate.of("recursive_doubling", {})
    gatherer = Candidate.of("native_allgather_reduce", {})
    with joined_world(None) as world:
        station = Station(world.planned, world.raw, world.private, world.nodes.node_of_rank)
        if rank != 0:
            station.follow()
            return dict(world.planned.calls)
        bench = TorchBench(station, started_s=time.perf_counter())
        sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
        verdicts = (sampling.check(schedule, 4096), sampling.check(gatherer, 4 << 20))
        shapes = [
            sampling.rounds(
                "search", 4096, (DEFAULT, schedule), 3, first_guess_s=0.01, condition=condition
            ).shape
            for condition in ("idle", "backward", "busy")
        ]
        bench.end()
        return verdicts, shapes, sampling.taken + sampling.dropped, dict(world.planned.calls)


def test_candidates_go_through_dispatch_and_the_default_does_not():
    (verdicts, shapes, num_samples, calls), other_calls = run_world(2, bench_rank)
    assert verdicts == (None, "it does not take messages of 4 MiB")
    assert shapes == [(3, 2)] * 3
    # One check of two calls, two warm-ups in each condition (one where calls are long), every other sample.
    num_warmups = calls["allreduce", "recursive_doubling"] - 2 - num_samples // 2
    assert 3 * 1 <= num_warmups <= 3 * 2
    assert calls["allreduce", "default"] == 2
    assert calls == other_calls


def dispatch_rank(rank, num_ranks, store):
    import time

    import numpy as np

    from topotune.tune.dispatch_cost import time_dispatch
    from topotune.tune.sampling import Sampling
    from topotune.tune.timing import Station, TorchBench
    from topotune.tune.world import joined_world

    with joined_world(None) as world:
        station = Station(world.planned, world.raw, world.private, world.nodes.node_of_rank)
        if rank != 0:
            station.follow()
            return dict(world.planned.calls)
        bench = TorchBench(station, started_s=time.perf_counter())
        sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
        costs = time_dispatch(sampling, {4: 1e-4, 1024: 1e-4}, deadline_s=5.0)
        bench.end()
        num_rounds = [(cost.message_bytes, cost.comparison.num_rounds) for cost in costs]
        return num_rounds, dict(world.planned.calls)


def test_half_of_the_calls_that_tell_what_dispatch_costs_go_through_it():
    (num_rounds, calls), other_calls = run_world(2, dispatch_rank)
    assert [size for size, _ in num_rounds] == [4, 1024]
    total = sum(rounds for _, rounds in num_rounds)
    assert set(calls) == {("allreduce", "default")}
    assert calls["allreduce", "default"] >= total
    assert calls == other_calls


def known_rank(rank, num_ranks, store, payload, home):
    from topotune.tune.session import tune_worker

    os.environ["TOPOTUNE_HOME"] = home

    notes = []
    return tune_worker(payload, on_note=notes.append), notes


@pytest.mark.slow
def test_a_known_cluster_is_checked_again_by_all_ranks_together(tmp_path):
    home = str(tmp_path / "home")
    payload = {"budget_s": 4.0, "sizes": [1024, 16384]}
    (first, notes), (nothing, silence) = run_world(2, known_rank, payload, home)
    assert (nothing, silence) == (None, [])
    assert not any("known" in note for note in notes)
    (kept,) = (tmp_path / "home" / "plans").iterdir()
    assert load_plan(kept).groups[0].shape.num_ranks == 2
    (again, notes), _ = run_world(2, known_rank, payload, home)
    # On a busy machine the times may have changed: then all ranks tune anew, and that is said.
    assert notes[0].startswith("this cluster is known")
    if "holds; --fresh tunes anew" in notes[0]:
        assert again["groups"] == first["groups"]
        assert again["context"]["created"] == first["context"]["created"]
        assert notes[0] in again["warnings"]
    else:
        assert "it is tuned anew" in notes[0]
    (_, notes), _ = run_world(2, known_rank, payload | {"fresh": True}, home)
    assert not any("known" in note for note in notes)

"""A cluster that was tuned before: its plan is checked again where it could hold, and never trusted."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from fake_bench import FAST, TREE, FakeBench, default_time, factors

from topotune import __version__
from topotune.plan import (
    Certificate,
    Context,
    Evidence,
    Fingerprint,
    Group,
    GroupShape,
    HardFingerprint,
    Plan,
    Row,
    SoftFingerprint,
    load_plan,
)
from topotune.plan.document import file_bytes
from topotune.step.models import resnet50
from topotune.tune.known import find_known, keep, kept_plan, known_path, recheck
from topotune.tune.options import StepOptions, TuneOptions
from topotune.tune.sampling import Sampling

SHAPE = GroupShape(num_ranks=4, num_nodes=1, ranks_per_node=4, stride=1)
FINGERPRINT = Fingerprint(
    hard=HardFingerprint(
        backend="gloo",
        device_kind="cpu",
        device_count=8,
        world_size=4,
        ranks_per_node=(4,),
        collective_library="gloo (torch 2.13)",
    ),
    soft=SoftFingerprint(hosts=("a",), driver=None, kernel="6.1", torch="2.13.0"),
)
OPTIONS = TuneOptions(budget_s=60.0, sizes=(1024, 65536))


def evidence(size, speedup):
    default_s = default_time(size)
    return Evidence(
        median_s=default_s / speedup,
        default_median_s=default_s,
        ratio=speedup,
        ratio_ci=(0.9 * speedup, 1.1 * speedup),
        num_samples=20,
        measured_bytes=size,
    )


ROWS = (
    Row(min_bytes=0, max_bytes=1024, algorithm="default", no_bound_reason="made up"),
    Row(
        min_bytes=1024,
        max_bytes=65537,
        algorithm=FAST.algorithm,
        params=FAST.params,
        no_bound_reason="made up",
        evidence=evidence(1024, 2.0),
    ),
    Row(
        min_bytes=65537,
        max_bytes=None,
        algorithm="default",
        no_bound_reason="made up",
        evidence=evidence(1 << 20, 1.0),
    ),
)


def plan(rows=ROWS, budget_s=60.0):
    return Plan(
        groups=(Group(shape=SHAPE, allreduce=rows),),
        fingerprint=FINGERPRINT,
        certificate=Certificate(
            method="a test", num_comparisons=1, correction="holm", confidence=0.95, min_gain=0.02
        ),
        context=Context(
            created="2026-11-30T12:00:00+00:00",
            topotune_version=__version__,
            seed=0,
            budget_s=budget_s,
            elapsed_s=50.0,
        ),
    )


def find(path, options=OPTIONS, fingerprint=FINGERPRINT, shape=SHAPE):
    return find_known(path, fingerprint, shape, options)


def test_a_plan_that_was_kept_is_found_again(tmp_path):
    path = known_path({"TOPOTUNE_HOME": str(tmp_path / "home")}, FINGERPRINT, OPTIONS, None)
    assert find(path).plan is None
    assert keep(path, plan()) is None
    assert find(path).plan == plan()
    assert load_plan(path) == plan()
    assert keep(path, plan(budget_s=90.0)) is None
    assert find(path).plan.context.budget_s == 90.0


def test_nothing_is_kept_where_no_folder_is_named():
    assert known_path({}, FINGERPRINT, OPTIONS, None) is None
    assert known_path({"TOPOTUNE_HOME": ""}, FINGERPRINT, OPTIONS, None) is None


def test_whatever_a_plan_depends_on_gives_it_another_place(tmp_path):
    home = {"TOPOTUNE_HOME": str(tmp_path)}
    other_kernel = replace(FINGERPRINT, soft=replace(FINGERPRINT.soft, kernel="6.2"))
    places = [
        known_path(home, FINGERPRINT, OPTIONS, None),
        known_path(home, other_kernel, OPTIONS, None),
        known_path(home, FINGERPRINT, replace(OPTIONS, sizes=(1024,)), None),
        known_path(home, FINGERPRINT, replace(OPTIONS, min_gain=0.05), None),
        known_path(home, FINGERPRINT, OPTIONS, resnet50()),
        known_path(home, FINGERPRINT, replace(OPTIONS, step=StepOptions(compute="sleep")), resnet50()),
    ]
    assert len(set(places)) == len(places)
    same = replace(OPTIONS, seed=7, budget_s=30.0, journal_path="x", fresh=True)
    assert known_path(home, FINGERPRINT, same, None) == places[0]


def test_what_cannot_be_used_is_one_line_and_no_error(tmp_path):
    path = tmp_path / "plan.json"
    document = json.loads(file_bytes(plan()))
    cases = {
        b"": "is empty",
        b'{"schema": "topotune/plan", ': "ends in the middle",
        b"[" * 100_000: "nest",
        json.dumps(document | {"schema_version": 99}).encode(): "99",
        json.dumps(document | {"groups": []}).encode(): "groups",
        json.dumps({"schema": "topotune/topology", "schema_version": 1}).encode(): "topotune/topology",
    }
    for data, word in cases.items():
        path.write_bytes(data)
        found = find(path)
        assert found.plan is None
        assert found.note.startswith("what is kept of this cluster cannot be used: ")
        assert word in found.note
        assert "\n" not in found.note
    path.unlink()
    os.mkfifo(path)
    assert "is a pipe or device, not a file" in find(path).note
    assert keep(path, plan()).startswith("the plan was not kept in TOPOTUNE_HOME: ")
    path.unlink()
    path.write_bytes(b"spoilt")
    assert keep(path, plan()) is None, "a spoilt file is replaced by the next plan"
    assert find(path).plan == plan()


def test_a_plan_of_another_cluster_under_this_name_is_not_used(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(file_bytes(plan()))
    other = replace(FINGERPRINT, soft=replace(FINGERPRINT.soft, hosts=("b",)))
    assert "hosts: a in the plan, b here" in find(path, fingerprint=other).note
    assert "no table for these ranks" in find(path, shape=replace(SHAPE, ranks_per_node=2, num_nodes=2)).note


def test_who_gives_more_time_than_the_plan_had_gets_it_tuned(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(file_bytes(plan()))
    assert find(path, options=replace(OPTIONS, budget_s=60.0)).plan is not None
    found = find(path, options=replace(OPTIONS, budget_s=600.0))
    assert found.plan is None
    assert found.note.endswith("asks for more, so it is tuned anew")


def test_a_link_is_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "plan.json").symlink_to(victim)
    assert "is a symbolic link" in keep(tmp_path / "plan.json", plan())
    assert victim.read_text() == "mine"


def checked(true_s, rows=ROWS, **fake):
    bench = FakeBench(true_s, **fake)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    return recheck(plan(rows), rows, sampling, OPTIONS), bench


def test_a_plan_that_still_wins_holds_and_takes_seconds():
    result, bench = checked(factors({FAST: 2.0}))
    assert result.problem is None
    assert (result.num_checked, result.num_rows) == (1, 1)
    assert bench.clock_s < 10.0
    assert result.took_s == pytest.approx(bench.clock_s)
    renewed, said = kept_plan(plan(), result)
    assert renewed.groups == plan().groups
    assert renewed.warnings == (said,)
    assert said.startswith(
        "this cluster is known: the plan of 2026-11-30T12:00:00+00:00 was checked again (1 of"
    )
    assert said.endswith("and holds; --fresh tunes anew")
    assert kept_plan(renewed, result)[0].warnings == (said,), "said once, however often it is checked"


@pytest.mark.parametrize(
    ("true_s", "words"),
    [
        (factors({FAST: 1.0}), "times as fast as the default"),
        (lambda arm, size: 3 * factors({FAST: 2.0})(arm, size), "took 5 ms then"),
        (lambda arm, size: factors({FAST: 2.0})(arm, size) / 3, "took 5 ms then"),
    ],
    ids=["no gain any more", "slower than then", "faster than then"],
)
def test_a_plan_whose_cluster_has_changed_does_not_hold(true_s, words):
    result, _ = checked(true_s, noise=0.02)
    assert words in result.problem


def test_a_candidate_that_is_wrong_or_hangs_now_does_not_hold():
    assert checked(factors({FAST: 2.0}), wrong=[FAST])[0].problem.endswith("could not be measured again")
    hanging, bench = checked(factors({FAST: 2.0}), hangs=lambda candidate, size, condition: candidate == FAST)
    assert hanging.problem.endswith("could not be measured again")
    assert bench.clock_s < 15.0


def test_rows_beyond_the_time_are_counted_and_the_cheapest_are_checked():
    rows = (
        *ROWS[:2],
        Row(
            min_bytes=65537,
            max_bytes=None,
            algorithm=TREE.algorithm,
            params=TREE.params,
            no_bound_reason="made up",
            evidence=evidence(1 << 31, 2.0),
        ),
    )
    result, _ = checked(factors({FAST: 2.0, TREE: 2.0}), rows)
    assert (result.problem, result.num_checked, result.num_rows) == (None, 1, 2)


def test_a_plan_of_defaults_holds_where_the_default_is_as_fast_as_it_was():
    rows = (Row(min_bytes=0, max_bytes=None, algorithm="default", no_bound_reason="made up"),)
    assert checked(factors({}), rows)[0].problem is None

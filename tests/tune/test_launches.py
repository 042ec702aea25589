"""Several launches: a launch is a block, and a row must hold over all of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from closed_schema import validate_written
from fake_bench import FAST, TREE
from test_known import OPTIONS, evidence, plan
from test_step_choice import MadeUpRanks
from test_step_choice import compare as compare_step

from topotune.plan import Row, load_plan, plan_to_document
from topotune.plan.model import Ddp
from topotune.tune.compare import ComparisonRow, comparison_to_document
from topotune.tune.dispatch_cost import COSTS_MORE
from topotune.tune.judge import Confirmation, Point, PointSamples, judge
from topotune.tune.launch_session import compare_payload, compared_document, tune_payload, tuned_document
from topotune.tune.launches import joined_samples, points_of, samples_to_json, settled
from topotune.tune.trial import PLANNED

ROWS = (
    Row(min_bytes=0, max_bytes=1024, algorithm="default", no_bound_reason="made up"),
    *(
        Row(
            min_bytes=low,
            max_bytes=high,
            algorithm=candidate.algorithm,
            params=candidate.params,
            no_bound_reason="made up",
            evidence=replace(evidence(low, 2.0), confirmed_bytes=(low, low + 4, high - 4)),
        )
        for low, high, candidate in ((1024, 4096, FAST), (4096, 65536, TREE))
    ),
    Row(min_bytes=65536, max_bytes=None, algorithm="default", no_bound_reason="made up"),
)
POINTS = [(size, FAST) for size in (1024, 1028, 4092)] + [(size, TREE) for size in (4096, 4100, 65532)]


def launch(rng, gain_of, *, points=POINTS, rounds=12, scatter=0.02):
    """Samples of one launch as JSON; ``gain_of(size, candidate)`` is default / candidate in it."""
    found = []
    for size, candidate in points:
        other = np.exp(rng.normal(0, scatter, rounds))
        default = gain_of(size, candidate) * np.exp(rng.normal(0, scatter, rounds))
        point = Point(message_bytes=size, candidates=(candidate,), searched=size in (1024, 4096))
        found += judge(
            [PointSamples(point=point, candidate=candidate, blocks=((default, other),))],
            num_comparisons=1,
            min_gain=0.02,
            seed=0,
        )
    return samples_to_json(found)


def test_points_of_a_plan_are_where_its_rows_were_confirmed():
    assert points_of(ROWS) == POINTS


def test_rows_that_win_in_every_launch_stay_with_the_evidence_of_all():
    rng = np.random.default_rng(0)
    launches = [launch(rng, lambda size, candidate: 2.0) for _ in range(3)]
    result = settled(plan(ROWS), launches, min_gain=0.02, seed=0)
    rows = result.groups[0].allreduce
    assert [row.algorithm for row in rows] == [row.algorithm for row in ROWS]
    assert all(row.evidence.num_samples == 36 for row in rows[1:3])
    assert all(
        1.8 < row.evidence.ratio_ci[0] < row.evidence.ratio < row.evidence.ratio_ci[1] < 2.2
        for row in rows[1:3]
    )
    assert "over 3 launches" in result.certificate.method
    assert result.warnings == ()


def test_a_row_that_won_in_the_first_launch_alone_goes_back_to_the_default():
    rng = np.random.default_rng(1)

    def gain_of(number):
        return lambda size, candidate: 2.0 if candidate == TREE or number == 0 else 0.97

    result = settled(plan(ROWS), [launch(rng, gain_of(number)) for number in range(3)], min_gain=0.02, seed=0)
    rows = result.groups[0].allreduce
    # The launches of one candidate disagree, and how far launches can disagree counts for all rows.
    assert rows[1].algorithm == "default"
    assert (rows[1].min_bytes, rows[1].max_bytes, rows[1].evidence.ratio) == (1024, 4096, 1.0)
    assert result.warnings[0].startswith("ring channels=2 from 1 KiB on won in the first launch, but over 3")
    assert load_of(result).groups[0].allreduce == rows


@pytest.mark.parametrize(("gain", "algorithm"), [(1.03, "default"), (1.5, FAST.algorithm)])
def test_what_is_taken_over_at_larger_sizes_has_to_clear_the_margin_twice_over_all_launches(gain, algorithm):
    rng = np.random.default_rng(4)
    own, end = ROWS[1], ROWS[3]
    further = replace(own.evidence, extrapolated=True, confirmed_bytes=())
    rows = (*ROWS[:2], replace(own, min_bytes=4096, max_bytes=end.min_bytes, evidence=further), end)
    launches = [launch(rng, lambda size, candidate: gain, scatter=0.002) for _ in range(3)]
    settled_rows = settled(plan(rows), launches, min_gain=0.02, seed=0).groups[0].allreduce
    assert settled_rows[1].algorithm == FAST.algorithm
    assert settled_rows[2].algorithm == algorithm


@pytest.mark.parametrize(
    ("second", "gain", "algorithms"),
    [
        (TREE, 1.03, ("default", "default")),
        (TREE, 1.06, ("ring", "double_binary_tree")),
        (FAST, 1.03, ("ring",) * 2),
    ],
    ids=["each at one size by the margin once", "by the margin twice over", "one at two neighbouring sizes"],
)
def test_a_table_stays_smooth_over_all_launches(second, gain, algorithms):
    rng = np.random.default_rng(5)
    first, end = ROWS[1], ROWS[3]
    own = replace(first.evidence, confirmed_bytes=(1024, 1028, 4096))
    low = replace(first, evidence=own if second == FAST else first.evidence)
    high = replace(ROWS[2], algorithm=second.algorithm, params=second.params)
    points = points_of((low, high))
    launches = [launch(rng, lambda *_: gain, points=points, scatter=0.002) for _ in range(3)]
    result = settled(plan((ROWS[0], low, high, end)), launches, min_gain=0.02, seed=0)
    assert tuple(row.algorithm for row in result.groups[0].allreduce[1:3]) == algorithms
    told = [
        one for one in result.warnings if "at no two neighbouring sizes, nor by the margin twice over" in one
    ]
    assert len(told) == algorithms.count("default")


def test_rows_that_the_default_parts_do_not_support_each_other_over_launches():
    rng = np.random.default_rng(6)
    first, end = ROWS[1], ROWS[3]
    low = replace(first, max_bytes=2048, evidence=replace(first.evidence, confirmed_bytes=(1024, 1028, 2044)))
    gap = replace(ROWS[0], min_bytes=2048, max_bytes=4096)
    high = replace(first, min_bytes=4096, max_bytes=65536, evidence=ROWS[2].evidence)
    launches = [launch(rng, lambda *_: 1.03, points=points_of((low, high)), scatter=0.002) for _ in range(3)]
    result = settled(plan((ROWS[0], low, gap, high, end)), launches, min_gain=0.02, seed=0)
    assert {row.algorithm for row in result.groups[0].allreduce} == {"default"}


def test_rows_pay_for_all_that_they_were_chosen_from():
    rng = np.random.default_rng(5)
    launches = [launch(rng, lambda size, candidate: 1.05, scatter=0.004) for _ in range(3)]
    # That its first launch confirmed much else in vain was a chance to win by luck.
    many = [[*launches[0], *(launches[0][:1] * 10**4)], *launches[1:]]
    kept = [
        settled(plan(ROWS), one, min_gain=0.02, seed=0).groups[0].allreduce[1].algorithm
        for one in (launches, many)
    ]
    assert kept == [FAST.algorithm, "default"]


def test_what_the_first_launch_said_of_rows_that_are_lost_is_not_said_again():
    rng = np.random.default_rng(5)
    before = replace(
        plan(ROWS),
        warnings=(f"{COSTS_MORE} where …; the backend is worth using from 1 KiB on", "the machine was busy"),
        ddp=Ddp(bucket_caps_mb=(4.0, 25.0), layout_bytes=(1 << 20,), projected_from=(1024,)),
    )

    def warnings_over(gains):
        launches = [launch(rng, lambda *_, gain=gain: gain) for gain in gains]
        return settled(before, launches, min_gain=0.02, seed=0).warnings

    assert warnings_over([1.5] * 3) == before.warnings
    busy, *lost, buckets = warnings_over([1.5, 0.8, 1.5])
    assert busy == "the machine was busy"
    assert all("won in the first launch" in line for line in lost)
    assert buckets.startswith("DDP's buckets were chosen with rows of the first launch that did not hold")


def load_of(result):
    from topotune.plan import plan_from_document

    return plan_from_document(plan_to_document(result), "a test")


def test_what_a_launch_did_not_come_to_does_not_hold():
    rng = np.random.default_rng(2)
    launches = [launch(rng, lambda size, candidate: 2.0) for _ in range(2)]
    launches[1] = [one for one in launches[1] if one["message_bytes"] != 4100]
    assert len(joined_samples(launches)) == len(POINTS) - 1
    rows = settled(plan(ROWS), launches, min_gain=0.02, seed=0).groups[0].allreduce
    assert [row.algorithm for row in rows] == ["default", FAST.algorithm, "default", "default"]


PAYLOAD = {
    "budget_s": 60.0,
    "sizes": [1024, 65536],
    "min_gain": 0.02,
    "backend": "gloo",
    "seed": 3,
    "journal_path": None,
    "resume": False,
    "fresh": False,
    "step": None,
}


def test_further_launches_measure_the_points_of_the_first_in_a_share_of_the_time(monkeypatch, tmp_path):
    monkeypatch.setenv("TOPOTUNE_HOME", str(tmp_path))
    rng = np.random.default_rng(3)
    first = {
        "plan": plan_to_document(plan(ROWS)),
        "samples": launch(rng, lambda size, candidate: 2.0),
    }
    assert tune_payload(PAYLOAD, 3, 0, []) == {
        **PAYLOAD,
        "launch": 0,
        "fresh": True,
        "budget_s": pytest.approx(42.0),
    }
    second = tune_payload(PAYLOAD, 3, 1, [first])
    assert second["budget_s"] == pytest.approx(9.0)
    assert [one["message_bytes"] for one in second["points"]] == [size for size, _ in POINTS]
    assert tune_payload(PAYLOAD, 3, 1, [None]) == {
        "launch": 1,
        "budget_s": second["budget_s"],
        "backend": "gloo",
    }
    defaults = {"plan": plan_to_document(plan((*ROWS[:1], replace(ROWS[3], min_bytes=1024)))), "samples": []}
    assert tune_payload(PAYLOAD, 3, 1, [defaults]) is None, "there is nothing to measure again"
    again = {"samples": launch(rng, lambda size, candidate: 2.0)}
    document, notes = tuned_document(PAYLOAD, [first, again, again])
    assert notes == ["3 launches: all rows hold"]
    (kept,) = (tmp_path / "plans").iterdir()
    assert plan_to_document(load_plan(kept)) == document
    assert OPTIONS.sizes == tuple(PAYLOAD["sizes"])


def compared(rng, ratio):
    default, planned = ratio * np.exp(rng.normal(0, 0.02, 12)), np.exp(rng.normal(0, 0.02, 12))
    point = Point(message_bytes=1024, candidates=(PLANNED,), searched=True)
    found = judge(
        [PointSamples(point=point, candidate=PLANNED, blocks=((default, planned),))],
        num_comparisons=1,
        min_gain=0.0,
        seed=0,
    )
    row = ComparisonRow(
        message_bytes=1024,
        default_median_s=1.0,
        plan_median_s=1.0,
        ratio=ratio,
        ratio_ci=(ratio, ratio),
        num_samples=12,
        verdict="same",
        algorithm="ring",
        outlier_share=0.0,
        autocorrelation=0.0,
        two_modes=False,
    )
    document = comparison_to_document([row], num_ranks=2, plan="plan.json", warnings=["busy"])
    return {"document": document, "samples": {"": samples_to_json(found)}, "step_s": []}


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [((0.8, 0.8, 0.8), "slower"), ((0.8, 1.1, 0.9), "same"), ((1.4, 1.4, 1.4), "faster")],
    ids=["slower in each", "launches disagree", "faster in each"],
)
def test_a_verdict_over_launches_needs_launches_that_agree(ratios, verdict):
    rng = np.random.default_rng(4)
    document = compared_document({"seed": 0}, [compared(rng, ratio) for ratio in ratios])
    (row,) = document["rows"]
    assert (row["verdict"], row["algorithm"], row["num_samples"]) == (verdict, "ring", 36)
    assert document["num_launches"] == 3
    assert document["warnings"] == ["busy"]


def test_each_launch_of_a_comparison_has_its_share_of_the_time_and_a_seed_of_its_own():
    payload = {"budget_s": 30.0, "seed": 0, "step": {"compute": "sleep"}}
    shares = [compare_payload(payload, 3, number) for number in range(3)]
    assert [one["step"] for one in shares] == [{"compute": "sleep"}] * 3
    assert [one["budget_s"] for one in shares] == [10.0] * 3
    assert len({one["seed"] for one in shares}) == 3


def test_tables_and_the_step_are_judged_over_all_launches_too():
    rng = np.random.default_rng(6)
    step, _ = compare_step(MadeUpRanks())
    results = []
    for ratio in (0.8, 1.1, 0.9):
        one = compared(rng, ratio)
        own = {"collective": "allgather", "group": "dp", "num_ranks": 2, "rows": one["document"]["rows"]}
        one["document"] |= {"tables": [own], "step": step}
        one["samples"]["1"] = one["samples"][""]
        one["step_s"] = [(ratio * np.exp(rng.normal(0, 0.01, 9))).tolist(), np.ones(9).tolist()]
        results.append(one)
    document = compared_document({"seed": 0}, results)
    ((row,),) = [table["rows"] for table in document["tables"]]
    for found in (row, document["step"]):
        assert found["verdict"] == "same"
        assert found["ratio_ci"][0] < 0.8 < 1.1 < found["ratio_ci"][1]
    assert (row["num_samples"], document["step"]["num_samples"]) == (36, 27)
    validate_written(json.loads(json.dumps(document)), "comparison")


def test_tables_of_the_same_name_keep_their_own_rows():
    rng = np.random.default_rng(8)
    results = []
    for _ in range(3):
        world, first, second = (compared(rng, ratio) for ratio in (1.0, 1.4, 0.8))
        world["document"]["tables"] = [
            {
                "collective": "allreduce",
                "group": "ranks 0, 1, …",
                "num_ranks": 2,
                "rows": one["document"]["rows"],
            }
            for one in (first, second)
        ]
        world["samples"] |= {"1": first["samples"][""], "2": second["samples"][""]}
        results.append(world)
    document = compared_document({"seed": 0}, results)
    assert [table["rows"][0]["verdict"] for table in document["tables"]] == ["faster", "slower"]


def test_a_step_that_a_single_launch_compared_keeps_what_its_looks_said():
    rng = np.random.default_rng(9)
    step, _ = compare_step(MadeUpRanks())
    results = [compared(rng, 1.0) for _ in range(3)]
    results[1]["document"]["step"] = step
    results[1]["step_s"] = [[0.5] * 9, [1.0] * 9]
    assert compared_document({"seed": 0}, results)["step"] == step


def test_what_one_launch_alone_says_is_told_with_its_number():
    rng = np.random.default_rng(7)
    results = [compared(rng, 1.0) for _ in range(2)]
    results[1]["document"]["warnings"] = ["busy", "late"]
    assert compared_document({"seed": 0}, results)["warnings"] == [
        "busy",
        "launch 2: late",
        "2 launches hardly tell how far launches differ: --launches 3 does",
    ]


def test_confirmations_travel_without_their_intervals():
    assert samples_to_json([]) == []
    assert Confirmation.__dataclass_fields__["blocks"].compare is False

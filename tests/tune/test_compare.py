"""A comparison says faster or slower only where its simultaneous interval does."""

import json
import re
from dataclasses import replace
from functools import partial
from itertools import cycle

import numpy as np
import pytest
from closed_schema import validate_written
from fake_bench import FAST, FakeBench, default_time

from topotune.errors import UsageError, WrongResultError
from topotune.plan.model import Bottleneck, Evidence, Row
from topotune.report.text import describe_comparison
from topotune.tune.compare import arm_of, compare_plan, comparison_to_document, sizes_to_compare, verdict_of
from topotune.tune.judge import PASSES
from topotune.tune.options import DEFAULT_SIZES, CompareOptions, TuneOptions
from topotune.tune.sampling import Sampling
from topotune.tune.trial import DEFAULT, PLANNED, WRAPPED, Candidate

ROWS = (
    Row(min_bytes=0, max_bytes=1024, algorithm="default"),
    Row(min_bytes=1024, max_bytes=4097, algorithm=FAST.algorithm, params=FAST.params),
    Row(min_bytes=4097, max_bytes=None, algorithm="default"),
)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.021, 3.0, "faster"),
        (1.02, 3.0, "same"),
        (0.5, 1.5, "same"),
        (0.9, 0.98, "same"),
        (0.9, 0.979, "slower"),
        (0.0, float("inf"), "same"),
    ],
)
def test_verdicts_are_those_of_the_contract(low, high, verdict):
    assert verdict_of(low, high) == verdict


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([(1024, 4097)], [2052]),
        ([(1024, 4096), (4096, 8193)], [2044, 5796, 8192]),
        ([(1024, 3001)], [1756, 3000]),
        ([(1024, 1025)], []),
        ([(1025, 1027)], []),
    ],
    ids=["ends are usual sizes", "the same goes on", "an end of its own", "one size", "no whole element"],
)
def test_ends_and_an_odd_middle_of_every_row_are_compared(bounds, expected):
    planned = [
        Row(min_bytes=low, max_bytes=high, algorithm=FAST.algorithm, params=FAST.params)
        for low, high in bounds
    ]
    rows = [
        Row(min_bytes=0, max_bytes=bounds[0][0], algorithm="default"),
        *planned,
        Row(min_bytes=bounds[-1][1], max_bytes=None, algorithm="default"),
    ]
    sizes = sizes_to_compare(rows)
    assert set(DEFAULT_SIZES) <= set(sizes)
    assert sorted(set(sizes) - set(DEFAULT_SIZES)) == expected


def compare(true_s, *, sizes=(1024, 4096, 65536), budget_s=10.0, **fake):
    bench = FakeBench(true_s, **fake)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    options = CompareOptions(plan_path="plan.json", sizes=sizes, budget_s=budget_s)
    return (*compare_plan(sampling, ROWS, options, algorithm_at=lambda size: "ring"), bench)


def plan_times(speedups):
    return lambda arm, size: default_time(size) / (speedups[size] if arm == PLANNED else 1.0)


def test_faster_same_and_slower_sizes_are_told_apart():
    rows, warnings, bench = compare(plan_times({1024: 2.0, 4096: 1.0, 65536: 0.7}), noise=0.03)
    assert [(row.message_bytes, row.verdict) for row in rows] == [
        (1024, "faster"),
        (4096, "same"),
        (65536, "slower"),
    ]
    assert rows[0].ratio == pytest.approx(2.0, rel=0.05)
    assert warnings == []
    assert bench.clock_s < 10.0
    document = comparison_to_document(rows, num_ranks=4, plan="plan.json", warnings=warnings)
    validate_written(json.loads(json.dumps(document)), "comparison")


def test_each_asked_size_gets_enough_rounds_for_a_bounded_interval_whatever_the_budget():
    rows, _, _ = compare(plan_times(dict.fromkeys((1024, 4096, 65536), 1.0)), budget_s=0.01)
    assert all(row.num_samples >= 9 and np.isfinite(row.ratio_ci).all() for row in rows)


def test_sizes_of_our_own_choosing_that_take_too_long_are_left_out_with_a_warning():
    _, warnings, bench = compare(
        plan_times(dict.fromkeys(sizes_to_compare(ROWS), 1.0)), sizes=None, budget_s=5.0
    )
    assert len(warnings) == 1
    assert "64 MiB" in warnings[0] or "16 MiB" in warnings[0]
    assert bench.clock_s < 7.0


def test_a_row_that_ends_beyond_all_memory_is_not_tried_there():
    end = 1 << 45
    rows = [
        Row(min_bytes=0, max_bytes=1024, algorithm="default"),
        Row(min_bytes=1024, max_bytes=end, algorithm=FAST.algorithm, params=FAST.params),
        Row(min_bytes=end, max_bytes=None, algorithm="default"),
    ]
    bench = FakeBench(lambda arm, size: default_time(size))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    options = CompareOptions(plan_path="plan.json", budget_s=1000.0)
    found, warnings = compare_plan(sampling, rows, options, algorithm_at=lambda size: "ring")
    assert max(size for _, size in bench.checks) == found[-1].message_bytes < 1 << 30
    assert warnings[0].startswith("32 TiB and more were left out")


class LuckyBench(FakeBench):
    """Connections of the plan's arm are slower by ``luck`` until they are made anew."""

    def __init__(self, true_s, *, luck, **fake):
        super().__init__(true_s, **fake)
        self.luck = luck

    def run(self, block):
        times = super().run(block)
        column = block.arms.index(PLANNED)
        times.times_s[:, column] *= self.luck(self.renewals)
        return times


def test_slower_is_said_only_where_it_is_seen_on_new_connections_too():
    def compared(luck):
        bench = LuckyBench(plan_times({1024: 1.0}), luck=luck, noise=0.01)
        sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
        options = CompareOptions(plan_path="plan.json", sizes=(1024,), budget_s=2.0)
        return compare_plan(sampling, ROWS, options, algorithm_at=lambda size: "ring")[0]

    (lasting,) = compared(lambda renewals: 1.2)
    assert lasting.verdict == "slower"
    (passing,) = compared(lambda renewals: 1.2 if renewals < PASSES else 1.0)
    assert passing.verdict == "same"
    assert passing.num_samples == lasting.num_samples


def test_where_the_plan_says_default_both_arms_share_their_connections():
    bench = FakeBench(plan_times(dict.fromkeys((1024, 4096), 1.0)))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    options = CompareOptions(plan_path="plan.json", sizes=(1024, 4096), budget_s=5.0)
    compare_plan(
        sampling, ROWS, options, algorithm_at=lambda size: "default" if size == 1024 else FAST.algorithm
    )
    arms = {(block.message_bytes, block.arms) for block in bench.blocks}
    assert arms == {(1024, (WRAPPED, PLANNED)), (4096, (DEFAULT, PLANNED))}
    assert bench.renewals == PASSES - 1


def test_a_row_of_nccls_own_settings_is_timed_as_that_setting():
    ring = Candidate.of("nccl", {"algo": "ring", "proto": "simple"})
    rows = {
        1024: Row(min_bytes=0, max_bytes=2048, algorithm="default"),
        4096: Row(min_bytes=2048, max_bytes=None, algorithm="nccl", params=ring.params),
    }
    bench = FakeBench(lambda arm, size: default_time(size) / (2.0 if arm == ring else 1.0))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    options = CompareOptions(plan_path="plan.json", sizes=tuple(rows), budget_s=5.0, backend="nccl")
    found, _ = compare_plan(
        sampling,
        list(rows.values()),
        options,
        algorithm_at=lambda size: rows[size].algorithm,
        arm_at=lambda size: arm_of(rows[size]),
    )
    assert [(row.algorithm, row.verdict) for row in found] == [("default", "same"), ("nccl", "faster")]
    arms = {(block.message_bytes, block.arms) for block in bench.blocks}
    assert arms == {(1024, (WRAPPED, PLANNED)), (4096, (DEFAULT, ring))}


@pytest.mark.parametrize("budget_s", [0.05, 0.2, 1.0])
def test_a_budget_that_holds_no_size_gives_an_empty_table_and_says_so(budget_s):
    bench = FakeBench(lambda arm, size: 0.05)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    options = CompareOptions(plan_path="plan.json", budget_s=budget_s)
    rows, warnings = compare_plan(sampling, ROWS, options, algorithm_at=lambda size: "ring")
    assert rows == []
    assert any("were left out: they take too much of" in line for line in warnings)


def compared_with(bench):
    """Two sizes of a plan on a bench: the document, as JSON gives it back, and its text."""
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    options = CompareOptions(plan_path="plan.json", sizes=(1024, 4096), budget_s=5.0)
    rows, warnings = compare_plan(sampling, ROWS, options, algorithm_at=lambda size: "ring")
    document = comparison_to_document(
        rows, num_ranks=4, plan="plan.json", warnings=warnings, num_dropped=sampling.dropped
    )
    document = json.loads(json.dumps(document))
    validate_written(document, "comparison")
    return document, " ".join(describe_comparison(document).split())


def times_in_turn(*factors):
    in_turn = cycle(factors)
    return lambda arm, size: default_time(size) * next(in_turn)


def test_samples_with_two_modes_are_told_and_kept():
    document, text = compared_with(FakeBench(times_in_turn(1.0, 1.0, 1.6), noise=0.01))
    assert [row["two_modes"] for row in document["rows"]] == [True, True]
    (warning,) = document["warnings"]
    assert warning.startswith("times have two modes at 1 KiB (default: ")
    assert f"warning: {warning}" in text
    assert "two modes at 1 KiB, 4 KiB" in text


def test_planted_outliers_are_told_and_kept():
    bench = FakeBench(times_in_turn(*[1.0] * 6, 8.0), noise=0.01)
    document, text = compared_with(bench)
    assert all(0.08 < row["outlier_share"] < 0.2 for row in document["rows"])
    timed = sum(len(block.orders) for block in bench.blocks if block.message_bytes == 1024)
    assert document["rows"][0]["num_samples"] == timed - 2, "all but those of the first guess"
    share = re.search(r"samples: (\d+\.\d)% of \d+ were outliers, none was removed, ", text)[1]
    assert 8 < float(share) < 20


def test_a_speed_that_changes_slowly_is_told():
    bench = FakeBench(lambda arm, size: None, noise=0.01)
    bench.true_s = lambda arm, size: default_time(size) * (1.5 + np.sin(bench.clock_s))
    document, text = compared_with(bench)
    most = max(row["autocorrelation"] for row in document["rows"])
    assert most > 0.6
    assert f"neighbours correlate by up to {most:.2f} (" in text
    assert any(one.startswith("the default's samples follow one another") for one in document["warnings"])


def test_samples_that_are_dropped_because_a_start_was_missed_are_counted_and_told():
    document, text = compared_with(FakeBench(times_in_turn(1.0), miss_rate=0.2))
    assert document["num_dropped"] > 10
    assert f"{document['num_dropped']} more were dropped because a rank missed the common start" in text
    assert "of the samples were dropped because a rank missed the common start" in document["warnings"][0]
    assert "dropped" not in compared_with(FakeBench(times_in_turn(1.0)))[1]


def test_times_that_contradict_each_other_are_told():
    speedups = {1024: 0.2, 4096: 1.0, 65536: 1.0}
    _, warnings, _ = compare(plan_times(speedups), noise=0.02)
    (line,) = [one for one in warnings if one.startswith("a larger message is faster")]
    assert "by padding): the plan takes" in line
    assert "at 1 KiB and" in line


def test_times_below_the_optimum_of_the_plan_are_told():
    evidence = Evidence(
        median_s=100.0,
        default_median_s=200.0,
        ratio=2.0,
        ratio_ci=(1.9, 2.1),
        num_samples=30,
        measured_bytes=4096,
        extrapolated=False,
    )
    bound = Bottleneck(text="link of node a", cut=("rank 0",))
    held = replace(
        ROWS[1], evidence=evidence, percent_of_optimum=50.0, bottleneck=bound, no_bound_reason=None
    )
    bench = FakeBench(plan_times(dict.fromkeys((1024, 4096), 1.0)), noise=0.02)
    _, warnings = compare_plan(
        Sampling(bench=bench, rng=np.random.default_rng(0)),
        (ROWS[0], held, ROWS[2]),
        CompareOptions(plan_path="plan.json", sizes=(1024, 4096), budget_s=10.0),
        algorithm_at=lambda size: "ring",
    )
    (line,) = [one for one in warnings if one.startswith("a time is below the provable optimum")]
    assert "the plan takes" in line
    assert "less than the optimum of 50 s" in line
    assert "at 1 KiB" not in line  # the plan has no bound for what is smaller


def test_the_plan_is_checked_before_it_is_timed():
    with pytest.raises(WrongResultError, match="1 KiB by ring: rank 1 got 3, not 6"):
        compare(plan_times(dict.fromkeys((1024, 4096, 65536), 1.0)), wrong=[PLANNED])


def test_both_arms_are_interleaved_in_random_order():
    _, _, bench = compare(plan_times(dict.fromkeys((1024, 4096, 65536), 1.0)))
    assert {block.arms for block in bench.blocks} == {(DEFAULT, PLANNED)}
    assert {order for block in bench.blocks for order in block.orders} == {(0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"budget_s": 0.0}, "a budget of 0 s is no time to work in"),
        ({"budget_s": float("inf")}, "a budget of inf s is no time to work in"),
        ({"sizes": [1022]}, "a size of 1022 bytes cannot be measured: messages are float32, up to 4 GiB"),
        ({"sizes": []}, "no message sizes were given"),
        ({"sizes": [8, 4]}, "sizes (8, 4) are not ascending, each once"),
        ({"min_gain": -0.1}, "a minimum gain of -0.1 is not within 0 and 10"),
        ({"backend": "mpi"}, "backend 'mpi' is neither gloo nor nccl"),
        (
            {"backend": "nccl", "step": {"compute": "sleep"}},
            "--compute sleep: with nccl the backward is emulated by spin",
        ),
        ({"seed": -1}, "a seed of -1 is not within 0 and 2**32 - 1"),
        ({"bugdet_s": 1.0}, "'bugdet_s' is no option of TuneOptions: "),
    ],
)
def test_options_out_of_range_are_refused(payload, message):
    with pytest.raises(UsageError) as error:
        TuneOptions.from_payload(payload)
    assert error.value.message.startswith(message)


ON_HOSTS_ALONE = [
    ({"groups": "dp=2,tp=2"}, "on GPUs the allreduce of all ranks is measured alone"),
    ({"collectives": ["allgather"]}, "on GPUs the allreduce of all ranks is measured alone"),
]


@pytest.mark.parametrize(("payload", "message"), ON_HOSTS_ALONE)
def test_what_is_measured_in_the_hosts_memory_alone_is_refused_for_gpus(payload, message):
    for options in (
        partial(TuneOptions.from_payload, payload | {"backend": "nccl"}),
        partial(CompareOptions.from_payload, payload | {"backend": "nccl", "plan_path": "plan.json"}),
    ):
        with pytest.raises(UsageError, match=message):
            options()
    assert TuneOptions(backend="nccl", collectives=("allreduce",)).backend == "nccl"


def test_no_sizes_mean_the_usual_ones():
    assert TuneOptions.from_payload({"sizes": None}).sizes == DEFAULT_SIZES
    assert DEFAULT_SIZES[0] == 1024
    assert DEFAULT_SIZES[-1] == 64 << 20

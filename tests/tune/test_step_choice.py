"""Buckets enter a plan where fresh steps say so, and nowhere else."""

import json

import numpy as np
import pytest
from closed_schema import validate_written

from topotune.plan.model import Evidence, Row
from topotune.report.step import describe_step
from topotune.step.buckets import assign_buckets, layout_of, limits_of
from topotune.step.curve import Curve
from topotune.step.gradients import Gradient, Gradients, gradients_from_document
from topotune.step.timeline import timeline_of
from topotune.tune.compare import comparison_to_document
from topotune.tune.step_bench import StepBench
from topotune.tune.step_choice import choose_buckets
from topotune.tune.step_compare import compare_steps, joined_steps
from topotune.units import MIB

LATENCY_S, S_PER_BYTE = 0.002, 1e-8
CURVE = Curve((1024, 16 * MIB), (LATENCY_S, LATENCY_S + 16 * MIB * S_PER_BYTE))


def gradients(timed=True):
    """Twelve of 4 MiB, evenly over a backward that hides most of the exchange."""
    backward_s = 0.6
    return Gradients(
        gradients=tuple(
            Gradient(num_bytes=4 * MIB, dtype="float32", ready_s=backward_s * (index + 1) / 12)
            for index in range(12)
        ),
        backward_s=backward_s,
        timed=timed,
        source="made up",
    )


class MadeUpRanks:
    """Two ranks on which steps take what the model says, times ``factor(caps)``, with noise.

    Under the plan they take ``luck(renewals)`` times as long again.
    """

    def __init__(
        self,
        factor=lambda caps: 1.0,
        *,
        memory_bytes=1e12,
        breaks=False,
        luck=lambda caps, renewals: 1.0,
        modes=(1.0,),
    ):
        self.modes = modes
        self.factor, self.memory_bytes, self.breaks, self.luck = factor, memory_bytes, breaks, luck
        self.renewals = 0
        self.rng = np.random.default_rng(0)
        self.arms = {}
        self.now_s = 0.0
        self.steps = 0

    def __call__(self, command):
        assert command["do"] == "step"
        return getattr(self, command["what"])(command)

    def prepare(self, command):
        return {"unit_s": [1e-4] * 2, "memory_bytes": self.memory_bytes, "num_threads": [1, 1]}

    def begin(self, command):
        self.gradients = gradients_from_document(command["gradients"], "test")

    def plan(self, command):
        pass

    def arm(self, command):
        arm = command["arm"]
        buckets = assign_buckets(self.gradients.gradients, limits_of(arm["caps_mb"]))
        step_s = timeline_of(self.gradients, buckets, CURVE.time_s).step_s
        if arm["way"] == "alone":
            step_s = self.gradients.backward_s
        elif arm["way"] == "plan":
            step_s *= self.factor(arm["caps_mb"]) * self.luck(arm["caps_mb"], self.renewals)
        self.arms[arm["name"]] = step_s, arm["way"]
        layout = None if arm["way"] == "alone" else list(layout_of(self.gradients.gradients, buckets))
        taken = self.rounds({"orders": [[arm["name"]]] * 3})
        return {"layout_bytes": layout, "broken": taken["broken"], "last_s": taken["by_rank"]}

    def rounds(self, command):
        names = [name for order in command["orders"] for name in order]
        times_s = np.array([self.arms[name][0] for name in names]) * self.rng.normal(
            1, 0.003, (2, len(names))
        )
        times_s = times_s * self.rng.choice(self.modes, len(names))
        self.now_s += float(times_s.max(axis=0).sum())
        self.steps += len(names)
        plans = [name for name in names if self.arms[name][1] == "plan"]
        return {
            "by_rank": times_s.tolist(),
            "broken": [plans[0], "connection reset"] if self.breaks and plans else None,
        }

    def renew(self, command):
        self.renewals += 1
        self.arms.clear()

    def drop(self, command):
        for name in command["names"]:
            del self.arms[name]


def rows(measured=True, curve=CURVE):
    evidence = [
        Evidence(
            median_s=time_s,
            default_median_s=time_s,
            ratio=1.0,
            ratio_ci=(1.0, 1.0),
            num_samples=9,
            measured_bytes=size,
        )
        if measured
        else None
        for size, time_s in zip(curve.sizes, curve.times_s, strict=True)
    ]
    return (
        Row(min_bytes=0, max_bytes=2048, algorithm="default", evidence=evidence[0]),
        Row(min_bytes=2048, max_bytes=None, algorithm="default", evidence=evidence[1]),
    )


@pytest.fixture
def a_plan():
    import dataclasses

    from plan_example import example

    from topotune.plan import plan_from_document

    plan = plan_from_document(example(), "example")

    def with_rows(table):
        world = dataclasses.replace(plan.groups[0], allreduce=table)
        return dataclasses.replace(plan, groups=(world, *plan.groups[1:]))

    return with_rows


def choose(ranks, plan, *, of=None, deadline_s=60.0, takes_list=True):
    return choose_buckets(
        StepBench(ranks, "sleep", np.random.default_rng(1)),
        plan,
        of or gradients(),
        takes_list=takes_list,
        min_gain=0.02,
        seed=0,
        now_s=lambda: ranks.now_s,
        deadline_s=deadline_s,
    )


@pytest.mark.parametrize("takes_list", [True, False])
def test_buckets_that_gain_enter_the_plan_with_their_evidence(a_plan, takes_list):
    choice = choose(MadeUpRanks(), a_plan(rows()), takes_list=takes_list)
    ddp = choice.ddp
    assert takes_list or len(ddp.bucket_caps_mb) == 1
    assert ddp.layout_bytes == layout_of(
        gradients().gradients, assign_buckets(gradients().gradients, limits_of(ddp.bucket_caps_mb))
    )
    assert ddp.evidence.ratio_ci[0] > 1.02
    assert ddp.evidence.predicted_s == pytest.approx(ddp.evidence.median_s, rel=0.02)
    assert ddp.projected_from == CURVE.sizes
    assert ddp.gradients == gradients().in_words()
    assert "bound: " in ddp.bound
    assert choice.warnings == ()


def test_buckets_that_gain_by_the_model_alone_do_not_enter(a_plan):
    ranks = MadeUpRanks(lambda caps: 1.0 if caps is None else 1.5)
    choice = choose(ranks, a_plan(rows()))
    assert choice.ddp.bucket_caps_mb is None
    assert choice.ddp.evidence.ratio_ci == (1.0, 1.0)
    assert choice.ddp.layout_bytes == (4 * MIB, 28 * MIB, 16 * MIB)
    assert choice.warnings[0].startswith("torch's own buckets stay: the best of others")


def test_buckets_that_gain_on_one_set_of_connections_alone_do_not_enter(a_plan):
    lucky = MadeUpRanks(luck=lambda caps, renewals: 1.0 if caps is None or renewals == 0 else 1.5)
    choice = choose(lucky, a_plan(rows()))
    assert lucky.renewals == 1
    assert choice.ddp.bucket_caps_mb is None
    assert choice.ddp.layout_bytes == (4 * MIB, 28 * MIB, 16 * MIB)
    assert any(line.startswith("torch's own buckets stay: the best of others") for line in choice.warnings)


def test_what_one_look_denies_needs_no_second(a_plan):
    ranks = MadeUpRanks(lambda caps: 1.0 if caps is None else 1.5)
    choose(ranks, a_plan(rows()))
    assert ranks.renewals == 0


def test_both_looks_at_buckets_fit_into_the_time(a_plan):
    for deadline_s in (60.0, 80.0, 120.0):
        ranks = MadeUpRanks()
        choice = choose(ranks, a_plan(rows()), deadline_s=deadline_s)
        assert ranks.renewals == 1
        assert choice.ddp.bucket_caps_mb is not None
        assert ranks.now_s <= deadline_s
        assert choice.ddp.evidence.num_samples % 2 == 0, "as many rounds in each look"
        assert choice.ddp.evidence.num_samples >= 12


def test_a_plan_that_slows_the_step_on_one_set_of_connections_alone_is_not_told_so(a_plan):
    passing = MadeUpRanks(luck=lambda caps, renewals: 1.0 if renewals else 1.5)
    choice = choose(passing, a_plan(rows()), deadline_s=100.0)
    assert passing.renewals == 1
    assert not any("slower than without it" in warning for warning in choice.warnings)


def test_a_plan_that_slows_the_step_is_told_so(a_plan):
    choice = choose(MadeUpRanks(lambda caps: 1.5), a_plan(rows()), deadline_s=100.0)
    assert any("slower than without it" in warning for warning in choice.warnings)


def test_a_backward_that_nobody_timed_is_as_long_as_the_defaults_exchange(a_plan):
    ranks = MadeUpRanks()
    choose(ranks, a_plan(rows()), of=gradients(timed=False))
    layout = (4 * MIB, 28 * MIB, 16 * MIB)
    assert ranks.gradients.backward_s == pytest.approx(sum(CURVE.time_s(size) for size in layout))


LONG = Curve(CURVE.sizes, tuple(400 * time_s for time_s in CURVE.times_s))

REASONS = {
    "too long": ({}, {"deadline_s": 1e6}, rows(curve=LONG), "training steps of up to 204 s are too long"),
    "no time": ({}, {"deadline_s": 1.0}, rows(), "no time to run training steps of up to"),
    "no memory": ({"memory_bytes": 1e6}, {}, rows(), "no memory to run training steps with 48 MiB"),
    "not measured": ({}, {}, rows(measured=False), "no row of the plan was measured"),
    "broken": ({"breaks": True}, {}, rows(), "training steps under the plan failed (connection reset)"),
}


@pytest.mark.parametrize(("made", "asked", "table", "why"), REASONS.values(), ids=REASONS)
def test_torchs_own_buckets_stay_where_nothing_could_be_confirmed(a_plan, made, asked, table, why):
    choice = choose(MadeUpRanks(**made), a_plan(table), **asked)
    assert choice.ddp.bucket_caps_mb is None
    assert choice.ddp.evidence is None
    assert choice.ddp.layout_bytes == (4 * MIB, 28 * MIB, 16 * MIB)
    assert choice.warnings[-1].startswith(why)


def compare(ranks, *, of=None, table=None, deadline_s=30.0):
    return compare_steps(
        StepBench(ranks, "sleep", np.random.default_rng(1)),
        table or rows(),
        of or gradients(),
        caps_mb=(8.0,),
        seed=0,
        now_s=lambda: ranks.now_s,
        deadline_s=deadline_s,
    )


def test_a_step_is_called_slower_only_where_that_is_seen_on_new_connections_too():
    lasting = MadeUpRanks(lambda caps: 1.4)
    step, _ = compare(lasting)
    assert (step["verdict"], lasting.renewals) == ("slower", 1)
    passing = MadeUpRanks(luck=lambda caps, renewals: 1.0 if renewals else 1.4)
    again, _ = compare(passing)
    assert (again["verdict"], passing.renewals) == ("same", 1)
    assert again["num_samples"] == step["num_samples"], "both looks are in it"
    low, high = again["ratio_ci"]
    assert low < 0.95 < 0.98 < high
    usual = MadeUpRanks()
    assert (compare(usual)[0]["verdict"], usual.renewals) == ("faster", 0)


def blocks_of_launches(ratios, scatter=0.01):
    rng = np.random.default_rng(3)
    return [
        (ratio * np.exp(rng.normal(0, scatter, 10)), np.exp(rng.normal(0, scatter, 10))) for ratio in ratios
    ]


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [((0.8, 0.81, 0.79), "slower"), ((0.6, 1.0, 0.9), "same"), ((1.5, 1.5, 1.5), "faster")],
    ids=["slower in each", "launches disagree", "faster in each"],
)
def test_a_step_is_judged_over_launches_with_a_launch_as_the_unit(ratios, verdict):
    first, _ = compare(MadeUpRanks())
    step = joined_steps([first] * 3, blocks_of_launches(ratios), seed=0)
    assert (step["verdict"], step["num_samples"]) == (verdict, 30)
    assert step["plan_layout_bytes"] == first["plan_layout_bytes"]
    assert joined_steps([], [], seed=0) is None


def test_what_the_samples_of_a_step_look_like_is_told():
    step, warnings = compare(MadeUpRanks(modes=(1.0, 1.5)), deadline_s=100.0)
    assert step["two_modes"]
    assert warnings[0].startswith("training steps: times have two modes at a step (default: ")
    text = " ".join(describe_step(step).split())
    assert f"{step['outlier_share']:.1%} of the samples were outliers, none was removed" in text
    assert "times have two modes" in text
    usual, warnings = compare(MadeUpRanks())
    assert (usual["two_modes"], warnings) == (False, [])
    assert "none has two modes" in describe_step(usual)


@pytest.mark.parametrize(("factor", "verdict"), [(0.8, "faster"), (1.4, "slower")])
def test_a_comparison_of_steps_has_a_verdict_and_what_bounds_the_default(factor, verdict):
    step, warnings = compare(MadeUpRanks(lambda caps: factor))
    assert warnings == []
    assert step["verdict"] == verdict
    assert step["bound"]["text"].startswith(step["bound"]["kind"])
    assert step["default_layout_bytes"] == [4 * MIB, 28 * MIB, 16 * MIB]
    assert step["plan_layout_bytes"] == [8 * MIB] * 6
    assert [one["num_bytes"] for one in step["default_timeline"]["buckets"]] == step["default_layout_bytes"]
    line = step["plan_timeline"]
    assert [one["num_bytes"] for one in line["buckets"]] == step["plan_layout_bytes"]
    assert all(one["complete_s"] <= one["start_s"] < one["end_s"] for one in line["buckets"])
    document = comparison_to_document((), num_ranks=4, plan="plan.json", warnings=warnings, step=step)
    validate_written(json.loads(json.dumps(document)), "comparison")


def test_a_comparison_of_steps_runs_its_fewest_rounds_also_without_time():
    step, _ = compare(MadeUpRanks(), deadline_s=0.0)
    assert step["num_samples"] == 8
    assert step["ratio_ci"][0] > 0


def test_a_plan_without_times_needs_a_backward_to_compare_steps():
    step, warnings = compare(MadeUpRanks(), of=gradients(timed=False), table=rows(measured=False))
    assert step is None
    assert "--backward" in warnings[0]
    step, warnings = compare(MadeUpRanks(), table=rows(measured=False))
    assert step["bound"] is None
    assert step["default_timeline"] is step["plan_timeline"] is None
    assert warnings == []

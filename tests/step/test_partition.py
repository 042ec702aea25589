"""The best buckets: no partition is better, and what DDP can express is bounded by them."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_facts import curves, gradients, made_up_gradients

from topotune.plan.model import Evidence, Row
from topotune.step.buckets import assign_buckets, ddp_buckets, limits_of
from topotune.step.curve import Curve, curves_of_rows
from topotune.step.partition import best_layout
from topotune.step.projection import LEAST_GAIN, project
from topotune.step.timeline import timeline_of


def every_partition(count):
    for number in range(count):
        for cuts in combinations(range(1, count), number):
            ends = [*cuts, count]
            yield tuple(tuple(range(first, last)) for first, last in zip([0, *cuts], ends, strict=True))


@given(made_up=made_up_gradients(max_size=8), curve=curves())
@settings(max_examples=60, deadline=None)
def test_no_partition_ends_before_the_best_one(made_up, curve):
    layout, end_s = best_layout(made_up.sizes, made_up.ready_s, curve)
    brute = min(
        timeline_of(made_up, buckets, curve.time_s).ends_s[-1]
        for buckets in every_partition(len(made_up.sizes))
    )
    assert sum(layout) == made_up.total_bytes
    assert end_s == pytest.approx(brute)


@given(
    made_up=made_up_gradients(max_size=20),
    curve=curves(),
    caps=st.none() | st.lists(st.floats(1e-5, 0.01), min_size=1, max_size=3),
)
@settings(deadline=None)
def test_no_caps_beat_the_projection_of_the_best_buckets(made_up, curve, caps):
    found = project(made_up, curve, takes_list=True)
    some = assign_buckets(made_up.gradients, limits_of(caps))
    step_s = timeline_of(made_up, some, curve.time_s).step_s
    price_s = LEAST_GAIN * found.optimum_s

    def cost_s(layout):
        return layout.step_s + price_s * len(layout.layout_bytes)

    some_s = step_s + price_s * len(some) + 1e-9
    assert cost_s(found.best) <= some_s
    assert found.optimum_s <= step_s + 1e-9
    assert found.loss <= LEAST_GAIN * len(made_up.sizes) + 1e-9
    if caps is not None and len(caps) == 1:
        assert cost_s(found.single) <= some_s


@given(made_up=made_up_gradients(max_size=20), curve=curves())
@settings(deadline=None)
def test_without_a_list_one_cap_is_chosen_and_its_loss_is_said(made_up, curve):
    found = project(made_up, curve, takes_list=False)
    assert found.listed is None
    assert len(found.best.caps_mb) == 1
    assert found.best.step_s == pytest.approx((1 + found.loss) * found.optimum_s)


@given(made_up=made_up_gradients(max_size=12, dtypes=("float32", "bfloat16")), curve=curves())
@settings(deadline=None)
def test_with_several_types_the_layout_is_what_ddp_makes_of_the_caps(made_up, curve):
    best = project(made_up, curve, takes_list=True).best
    assert best.buckets == assign_buckets(made_up.gradients, limits_of(best.caps_mb))
    assert sum(best.layout_bytes) == made_up.total_bytes


@given(made_up=made_up_gradients(max_size=7), curve=curves(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_buckets_kept_by_definition_are_the_best_of_their_order_and_what_ddp_makes(made_up, curve, data):
    order = tuple(data.draw(st.permutations(range(len(made_up.gradients)))))
    kept = replace(made_up, definition_order=order)
    found = project(kept, curve, takes_list=True)
    best = found.best
    assert best.buckets == ddp_buckets(kept, limits_of(best.caps_mb))
    sent = order[::-1]
    price_s = LEAST_GAIN * found.optimum_s
    every = [
        tuple(tuple(sent[place] for place in bucket) for bucket in buckets)
        for buckets in every_partition(len(sent))
    ]
    steps_s = {buckets: timeline_of(kept, buckets, curve.time_s).step_s for buckets in every}
    assert found.optimum_s == pytest.approx(min(steps_s.values()))
    cheapest_s = min(step_s + price_s * len(buckets) for buckets, step_s in steps_s.items())
    assert best.step_s + price_s * len(best.buckets) == pytest.approx(cheapest_s)


@given(made_up=made_up_gradients(max_size=10, dtypes=("float32", "bfloat16")), curve=curves(), data=st.data())
@settings(deadline=None)
def test_with_several_types_no_single_cap_and_no_first_cap_before_it_is_cheaper(made_up, curve, data):
    found = project(made_up, curve, takes_list=True)
    price_s = LEAST_GAIN * found.optimum_s

    def cost_s(limits):
        buckets = assign_buckets(made_up.gradients, limits)
        return timeline_of(made_up, buckets, curve.time_s).step_s + price_s * len(buckets)

    cap, first = (data.draw(st.integers(1, made_up.total_bytes)) for _ in range(2))
    own_s = cost_s(limits_of(found.best.caps_mb))
    assert cost_s(limits_of(found.single.caps_mb)) <= cost_s((cap,)) + 1e-9
    assert own_s <= cost_s((cap,)) + 1e-9
    assert own_s <= cost_s((first, *limits_of(found.single.caps_mb))) + 1e-9


def test_thousands_of_gradients_are_partitioned_within_their_optimum():
    many = gradients([4] * 20_000, [index / 1000 for index in range(20_000)])
    curve = Curve((1000, 100_000), (0.01, 0.5))
    layout, end_s = best_layout(many.sizes, many.ready_s, curve)
    assert sum(layout) == many.total_bytes
    default = timeline_of(many, assign_buckets(many.gradients, (10_000,)), curve.time_s)
    assert end_s <= default.ends_s[-1]


def test_a_bucket_waits_for_the_ones_ahead_of_it_also_where_it_is_complete_sooner():
    made_up = gradients([4, 2, 4], [1.0, 2.0, 5.0], dtypes=["float32", "bfloat16", "float32"])
    # the float32 bucket opens first and closes last; torch sends the closed one ahead of it
    buckets = assign_buckets(made_up.gradients, (8, 100))
    assert buckets == ((0, 2), (1,))
    line = timeline_of(made_up, buckets, lambda num_bytes: 1.0)
    assert line.starts_s == (5.0, 6.0)
    assert (line.step_s, line.exposed_s, line.exchange_s, line.tail_s) == (7.0, 2.0, 2.0, 1.0)


@given(curve=curves(), at=st.integers(0, 4000))
@settings(deadline=None)
def test_a_curve_passes_its_points_and_never_ends_below_the_last(curve, at):
    for size, time_s in zip(curve.sizes, curve.times_s, strict=True):
        assert curve.time_s(size) == pytest.approx(time_s)
    if at >= curve.sizes[-1]:
        assert curve.time_s(at) >= curve.times_s[-1]


def test_curves_follow_what_the_plan_runs_at_each_size():
    def evidence(at, plan_s, default_s):
        return Evidence(
            median_s=plan_s,
            default_median_s=default_s,
            ratio=default_s / plan_s,
            ratio_ci=(1.0, 9.0),
            num_samples=9,
            measured_bytes=at,
        )

    rows = (
        Row(min_bytes=0, max_bytes=2048, algorithm="default", evidence=evidence(1024, 1.0, 1.0)),
        Row(min_bytes=2048, max_bytes=9000, algorithm="ring", evidence=evidence(4096, 2.0, 3.0)),
        Row(min_bytes=9000, max_bytes=None, algorithm="default"),
    )
    plan, default = curves_of_rows(rows)
    assert plan == Curve((1024, 4096), (1.0, 2.0))
    assert default == Curve((1024, 4096), (1.0, 3.0))
    assert curves_of_rows((Row(min_bytes=0, max_bytes=None, algorithm="default"),)) is None


def test_a_bucket_that_gains_next_to_nothing_is_not_made():
    # by the model sending all at once takes as long as one by one, but for a millionth
    even = gradients([1000] * 8, [0.0] * 8, backward_s=0.1)
    curve = Curve((1000, 8000), (1.0, 8.0 + 1e-6))
    assert len(best_layout(even.sizes, even.ready_s, curve)[0]) == 8
    assert len(project(even, curve, takes_list=True).best.layout_bytes) == 1

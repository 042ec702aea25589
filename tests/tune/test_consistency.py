"""Times that break what must hold of any allreduce are told; those within their scatter are not."""

import numpy as np
import pytest

from topotune.tune.consistency import Timed, in_sequence, violations

KIB = 1024


def timed(*points):
    return {size: Timed(message_bytes=size, median_s=time_s, error=0.01) for size, time_s in points}


def test_times_that_grow_less_than_in_proportion_break_nothing():
    steady = timed((KIB, 1e-3), (4 * KIB, 1.2e-3), (16 * KIB, 3e-3), (64 * KIB, 12e-3))
    assert violations({"the default": steady}, lambda size: 1e-6) == []


def test_a_larger_message_that_is_faster_is_told():
    (line,) = violations({"the default": timed((KIB, 3e-3), (4 * KIB, 1e-3))})
    assert line == (
        "a larger message is faster (a measuring error, or a gain of up to 67% by padding): "
        "the default takes 3 ms at 1 KiB and 1 ms at 4 KiB"
    )


def test_a_message_that_is_slower_than_its_parts_is_told():
    (line,) = violations({"ring": timed((KIB, 1e-3), (4 * KIB, 9e-3))})
    assert line.endswith("ring takes 9 ms at 4 KiB and 1 ms at 1 KiB, 4 of which are as much")


def test_a_time_below_the_optimum_is_told():
    (line,) = violations({"ring": timed((KIB, 1e-3))}, lambda size: 2e-3)
    assert line.endswith("ring takes 1 ms at 1 KiB, less than the optimum of 2 ms")


def test_a_time_below_one_message_between_nodes_is_told():
    (line,) = violations({"ring": timed((KIB, 1e-4), (4 * KIB, 3e-4))}, latency_s=2e-4)
    assert line == (
        "a time is below that of one message between nodes (a measuring error, here or of the links): "
        "ring takes 100 µs at 1 KiB, less than the 200 µs of one message"
    )


def test_a_gain_is_what_the_plan_leaves_of_it():
    slow = {"the default": timed((KIB, 4e-3), (4 * KIB, 1e-3))}
    (line,) = violations(slow, planned=timed((KIB, 2e-3)))
    assert "a gain of up to 50% by padding" in line
    (line,) = violations(slow, planned=timed((KIB, 0.5e-3)))
    assert "(a measuring error, or slow where the plan is faster)" in line


def test_places_with_more_to_be_gained_are_told_first():
    broken = {"one": timed((KIB, 2e-3), (2 * KIB, 1e-3)), "other": timed((KIB, 9e-3), (2 * KIB, 1e-3))}
    (line,) = violations(broken)
    assert "up to 89%" in line
    assert line.index("other takes") < line.index("one takes")


def test_what_the_search_timed_is_told_only_where_it_promises_more_than_the_plan_has():
    searched = {"ring": timed((KIB, 4e-3), (4 * KIB, 1e-3))}
    assert violations({}, planned=timed((KIB, 0.9e-3)), searched=searched) == []
    (line,) = violations({}, planned=timed((KIB, 2e-3)), searched=searched)
    assert "a gain of up to 50% by padding" in line


def test_fresh_samples_stand_in_for_those_of_the_search():
    searched = {"ring": timed((KIB, 4e-3), (4 * KIB, 1e-3))}
    assert violations({"ring": timed((KIB, 0.9e-3))}, searched=searched) == []


def test_calls_in_sequence_take_their_sum_and_its_error():
    one, other = (
        Timed(message_bytes=KIB, median_s=3e-3, error=0.2),
        Timed(message_bytes=KIB, median_s=4e-3, error=0.2),
    )
    both = in_sequence((one, other))
    assert both.median_s == 7e-3
    assert both.error == pytest.approx(1e-3 / 7e-3)


def test_what_lies_within_the_scatter_is_not_told():
    def unsure(size, time_s):
        return Timed(message_bytes=size, median_s=time_s, error=0.3)

    assert violations({"ring": {KIB: unsure(KIB, 1.5e-3), 4 * KIB: unsure(4 * KIB, 1e-3)}}) == []
    assert violations({"ring": timed((KIB, 1.05e-3), (4 * KIB, 1e-3))}) == []


def test_many_of_a_kind_are_counted():
    falling = timed(*((KIB << power, 1e-2 / 2**power) for power in range(6)))
    (line,) = violations({"the default": falling})
    assert line.endswith("; and 2 more")


def test_the_error_of_a_median_follows_from_its_samples():
    samples_s = np.exp(np.random.default_rng(0).normal(0, 0.1, 400))
    assert 0.004 < Timed.of(KIB, samples_s).error < 0.009

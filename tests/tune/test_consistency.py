"""Times that break what must hold of any allreduce are told; those within their scatter are not."""

import numpy as np

from topotune.tune.consistency import Timed, violations

KIB = 1024


def timed(*points):
    return [Timed(message_bytes=size, median_s=time_s, error=0.01) for size, time_s in points]


def test_times_that_grow_less_than_in_proportion_break_nothing():
    steady = timed((KIB, 1e-3), (4 * KIB, 1.2e-3), (16 * KIB, 3e-3), (64 * KIB, 12e-3))
    assert violations({"the default": steady}, lambda size: 1e-6) == []


def test_a_larger_message_that_is_faster_is_told():
    (line,) = violations({"the default": timed((KIB, 3e-3), (4 * KIB, 1e-3))})
    assert line == (
        "a larger message is faster (a measuring error, or a gain by padding): "
        "the default takes 3 ms at 1 KiB and 1 ms at 4 KiB"
    )


def test_a_message_that_is_slower_than_its_parts_is_told():
    (line,) = violations({"ring": timed((KIB, 1e-3), (4 * KIB, 9e-3))})
    assert line.endswith("ring takes 9 ms at 4 KiB and 1 ms at 1 KiB, 4 of which are as much")


def test_a_time_below_the_optimum_is_told():
    (line,) = violations({"ring": timed((KIB, 1e-3))}, lambda size: 2e-3)
    assert line.endswith("ring takes 1 ms at 1 KiB, less than the optimum of 2 ms")


def test_what_lies_within_the_scatter_is_not_told():
    def unsure(size, time_s):
        return Timed(message_bytes=size, median_s=time_s, error=0.3)

    assert violations({"ring": [unsure(KIB, 1.5e-3), unsure(4 * KIB, 1e-3)]}) == []
    assert violations({"ring": timed((KIB, 1.05e-3), (4 * KIB, 1e-3))}) == []


def test_many_of_a_kind_are_counted():
    falling = timed(*((KIB << power, 1e-2 / 2**power) for power in range(6)))
    (line,) = violations({"the default": falling})
    assert line.endswith("; and 2 more")


def test_the_error_of_a_median_follows_from_its_samples():
    samples_s = np.exp(np.random.default_rng(0).normal(0, 0.1, 400))
    assert 0.004 < Timed.of(KIB, samples_s).error < 0.009

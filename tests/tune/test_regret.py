"""What measuring on could gain: where, how much at most, and when it is worth no more."""

import math

import numpy as np
import pytest
from fake_bench import FAST, RECURSIVE, SLOW, TREE, FakeBench, default_time, factors

from topotune.tune.regret import (
    Ending,
    Known,
    expected_improvement,
    expected_regret,
    grown,
    prediction_error,
    size_weights,
)
from topotune.tune.sampling import Sampling
from topotune.tune.search import SizeSearch, search_sizes


def test_expected_improvement_agrees_with_simulation():
    draws = np.random.default_rng(0).normal(0, 1, 200_000)
    for mean, sd in ((-0.3, 0.2), (0.0, 0.1), (0.2, 0.3)):
        simulated = float(np.mean(np.maximum(0, mean + sd * draws)))
        assert expected_improvement(mean, sd) == pytest.approx(simulated, abs=2e-3)
    assert expected_improvement(-1.0, 0.0) == 0.0
    assert expected_improvement(0.5, 0.0) == 0.5


def test_regret_is_no_less_than_what_knowing_everything_would_gain():
    known = [Known(log_ratio=-0.5, error=0.1), Known(log_ratio=-0.45, error=0.1)]
    untried = [Known(log_ratio=-0.4, error=0.5), Known(log_ratio=-0.1, error=0.5)]
    rng = np.random.default_rng(1)
    true = np.column_stack(
        [
            np.zeros(50_000),
            *(one.log_ratio + one.error * rng.normal(size=50_000) for one in known),
            *(one.log_ratio + one.error * rng.normal(size=50_000) for one in untried),
        ]
    )
    simulated = float(np.mean(true[:, 1] - true.min(axis=1)))
    assert expected_regret(known, untried) >= simulated


def test_predictions_that_proved_right_leave_little_to_expect_of_slow_candidates():
    known = [Known(log_ratio=-0.7, error=0.01)]

    def regret(predicted, residuals):
        wrong = prediction_error(residuals)
        return expected_regret(known, [Known(log_ratio=predicted + wrong.log_ratio, error=wrong.error)])

    assert regret(0.2, [0.0, 0.02, -0.02, 0.01]) < 1e-6 < regret(0.2, [])
    assert regret(0.2, [-1.0, -1.02, -0.98]) > 0.1, "all were faster than predicted"
    assert regret(math.inf, []) == pytest.approx(0.0, abs=1e-12)


def test_an_error_that_may_be_of_each_message_or_of_each_byte_stands_between_both_at_a_larger_size():
    # Predicted 10 ms, took 12 ms; where 100 ms are predicted: 102 ms, or 120 ms.
    found = grown(Known(log_ratio=math.log(1.2), error=0.0), 10e-3, 100e-3)
    low, high = found.log_ratio - found.error, found.log_ratio + found.error
    assert (math.exp(low), math.exp(high)) == pytest.approx((1.02, 1.2))


def test_most_of_a_large_error_at_a_small_size_comes_with_each_message():
    # Predicted 10 ms, took 80 ms; where 1 s is predicted: 1.07 s, or a third more for the bytes.
    found = grown(Known(log_ratio=math.log(8.0), error=0.0), 10e-3, 1.0)
    assert math.exp(found.log_ratio - found.error) == pytest.approx(1.07)
    assert math.exp(found.log_ratio + found.error) == pytest.approx(1.35 + 0.07, abs=0.01)


def test_an_error_carries_over_as_it_is_where_there_is_none_or_no_growth():
    right = Known(log_ratio=0.0, error=0.1)
    assert grown(right, 10e-3, 100e-3) == right
    wrong = Known(log_ratio=-0.5, error=0.1)
    assert grown(wrong, 10e-3, 5e-3) == wrong, "nothing says how a time falls that should not"


def searches_of(table, sizes, **options):
    return [
        SizeSearch(
            message_bytes=size, candidates=tuple(table), default_s=default_time(size), seed=0, **options
        )
        for size in sizes
    ]


def spent(bench):
    by_size = {}
    for block in bench.blocks:
        calls = len(block.orders) * len(block.arms)
        by_size[block.message_bytes] = by_size.get(block.message_bytes, 0) + calls
    return by_size


def test_the_size_that_the_job_uses_is_measured_first():
    table = {FAST: 3.0, TREE: 2.9, SLOW: 0.8, RECURSIVE: 0.7}
    for used in (4096, 65536):
        bench = FakeBench(factors(table))
        searches = searches_of(table, (4096, 65536))
        sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
        weights = {4096: 0.05, 65536: 0.05, used: 0.95}
        search_sizes(searches, sampling, deadline_s=lambda _search: 0.8, budget_s=60.0, weights=weights)
        assert bench.blocks[0].message_bytes == used
        assert max(spent(bench), key=spent(bench).get) == used


def test_more_is_measured_where_the_choice_is_open():
    def speedup(close):
        return lambda size: close if size == 4096 else 1.3

    table = {FAST: 3.0, TREE: speedup(2.98), SLOW: 0.8, RECURSIVE: 0.7}
    bench = FakeBench(factors(table), noise=0.1)
    searches = searches_of(table, (4096, 8192))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    ending = search_sizes(searches, sampling, deadline_s=lambda _search: 1e9, budget_s=60.0)
    assert not ending.by_time
    assert spent(bench)[4096] > 1.3 * spent(bench)[8192]


def test_the_search_ends_when_going_on_is_worth_less_than_it_costs():
    table = {FAST: 3.0, TREE: 2.98, SLOW: 2.95}
    long, short = FakeBench(factors(table), noise=0.02), FakeBench(factors(table), noise=0.02)
    for bench, budget_s in ((long, math.inf), (short, 0.05)):
        sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
        ending = search_sizes(
            searches_of(table, (4096,)), sampling, deadline_s=lambda _search: 1e9, budget_s=budget_s
        )
        assert not ending.by_time
        assert 0 <= ending.left < 0.05
    assert short.clock_s < long.clock_s


def test_the_ending_says_what_is_left_to_gain():
    said = Ending(left=0.0042, most=0.021, by_time=False).in_words()
    assert said == (
        "the search ended early: further tuning is worth at most 2.1 % (95 % confidence), "
        "0.42 % in expectation"
    )
    by_time = Ending(left=0.03, most=0.12, by_time=True).in_words()
    assert "a larger --budget is worth at most 12 % (95 % confidence), 3 % in expectation" in by_time
    assert "at most 0.01 %" in Ending(left=0.0, most=0.0, by_time=False).in_words()


def test_what_is_left_is_bounded_with_95_percent_confidence():
    """Against draws of what candidates may really gain, independent and all alike."""
    rng = np.random.default_rng(3)
    sizes = [
        (0.25, [Known(log_ratio=-0.05 * number, error=0.1) for number in range(12)]),
        (0.75, [Known(log_ratio=-0.3, error=0.4), Known(log_ratio=0.02, error=0.05)]),
    ]
    ending = Ending.of(sizes, by_time=True)
    for alike in (False, True):
        gained = np.zeros(20_000)
        for weight, own in sizes:
            shape = (len(gained), 1 if alike else len(own))
            gains = [one.log_ratio for one in own] + rng.normal(size=shape) * [one.error for one in own]
            gained += weight * np.maximum(0.0, gains.max(axis=1))
        shares = 1 - np.exp(-gained)
        assert np.mean(shares > ending.most) < 0.05
        assert shares.mean() < ending.left
    assert ending.left < ending.most < 0.6


def test_many_untried_candidates_are_not_worth_the_sum_of_each():
    unknown = Known(log_ratio=-0.2, error=0.5)
    alone, many = (Ending.of([(1.0, [unknown] * count)], by_time=True) for count in (1, 40))
    the_sum = 1 - math.exp(-40 * expected_improvement(-0.2, 0.5))
    assert the_sum > 0.98
    assert alone.left < many.left < many.most < 0.75
    assert alone.left == pytest.approx(1 - math.exp(-expected_improvement(-0.2, 0.5)), rel=1e-3)


def test_nothing_open_leaves_nothing_to_gain():
    assert Ending.of([], by_time=False) == Ending(left=0.0, most=0.0, by_time=False)
    settled = [Known(log_ratio=-0.5, error=0.01)]
    ending = Ending.of([(1.0, settled)], by_time=False)
    assert ending.most == 0.0
    assert ending.left < 1e-6


def test_sizes_weigh_by_what_the_job_spends_on_them():
    default_s = {1024: 1e-3, 1 << 20: 1e-2, 1 << 24: 1e-1}
    assert size_weights(default_s, []) == dict.fromkeys(default_s, 1 / 3)
    weights = size_weights(default_s, [1 << 24, 1 << 24, 1 << 20, 900])
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights[1 << 24] == pytest.approx(0.2 / 0.21, rel=0.03)
    assert weights[1024] > 0.01, "a plan holds for sizes that this job does not use, too"
    assert size_weights({}, [5]) == {}


def test_the_largest_searched_size_stands_for_those_beyond_it():
    default_s = {1024: 1e-3, 4096: 1e-3}
    asked = (1024, 4096, 16384, 65536)
    assert size_weights(default_s, [], asked_bytes=asked) == {1024: 0.25, 4096: 0.75}

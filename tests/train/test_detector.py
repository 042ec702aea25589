"""The detector of drift: lasting changes are seen, steady noise and moments are not."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.train.detector import Detector, Rules

RULES = Rules(least_s=0.0)
LEARNT = RULES.skip + RULES.window * RULES.learn


def autocorrelated(rng, num, correlation, deviation):
    steps = rng.normal(0.0, deviation * math.sqrt(1 - correlation**2), num)
    series = [rng.normal(0.0, deviation)]
    for step in steps[1:]:
        series.append(correlation * series[-1] + step)
    return np.asarray(series)


NOISES = {
    "log-normal": lambda rng, num: rng.normal(0.0, 0.2, num),
    "student's t": lambda rng, num: 0.1 * rng.standard_t(2, num).clip(-20, 20),
    "pareto tail": lambda rng, num: np.log1p(0.1 * rng.pareto(1.1, num)),
    "waiting": lambda rng, num: np.log1p(rng.exponential(1.0, num)),
    "autocorrelated": lambda rng, num: autocorrelated(rng, num, 0.9, 0.1),
}


def first_slower(times_s, rules=RULES, gap_s=1.0):
    """The call, from 1, at which a detector says that calls are slower; None if it never does."""
    detector = Detector(rules)
    for number, time_s in enumerate(times_s, 1):
        detector.observe(float(time_s), number * gap_s)
        if detector.slower:
            return number
    return None


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_steady_noise_is_no_drift(noise):
    rng = np.random.default_rng(7)
    assert [first_slower(np.exp(noise(rng, 5000))) for _ in range(4)] == [None] * 4


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_a_slow_down_by_a_half_is_seen_within_500_calls(noise):
    rng = np.random.default_rng(11)
    for _ in range(5):
        logarithms = noise(rng, 3000)
        logarithms[1500:] += math.log(1.5)
        found = first_slower(np.exp(logarithms))
        assert found is not None
        assert 1500 < found < 2000


@given(st.integers(0, 2**32 - 1), st.floats(-15.0, 5.0), st.integers(LEARNT, 2 * LEARNT))
@settings(max_examples=20, deadline=None)
def test_the_unit_of_time_does_not_matter(seed, scale, change):
    logarithms = np.random.default_rng(seed).normal(0.0, 0.1, 3 * LEARNT)
    logarithms[change:] += 0.7
    assert first_slower(np.exp(logarithms)) == first_slower(np.exp(logarithms + scale))


@given(st.integers(0, 2**32 - 1), st.floats(1.0, 1e6))
@settings(max_examples=20, deadline=None)
def test_two_slow_windows_are_not_lasting_however_slow(seed, factor):
    logarithms = np.random.default_rng(seed).normal(0.0, 0.05, 4 * LEARNT)
    start = LEARNT + 3 * RULES.window
    logarithms[start : start + 2 * RULES.window] += math.log(factor)
    assert first_slower(np.exp(logarithms)) is None


def test_a_change_must_last_in_time_too():
    times_s = [0.001] * 1000 + [0.002] * 400
    assert first_slower(times_s, Rules(least_s=100.0), gap_s=0.1) is None
    found = first_slower(times_s, Rules(least_s=20.0), gap_s=0.1)
    assert found is not None
    assert 1200 <= found <= 1200 + 3 * RULES.window


def test_late_peers_now_and_then_are_no_drift():
    """Half of the calls of each window wait for somebody: the other half says what the exchange takes."""
    rng = np.random.default_rng(3)
    times_s = np.exp(rng.normal(0.0, 0.05, 4000)) * 1e-3
    times_s[1000:][rng.random(3000) < 0.5] *= 20
    assert first_slower(times_s) is None


def test_a_change_that_goes_away_is_taken_back():
    detector = Detector(RULES)
    for number, time_s in enumerate([1.0] * 1000 + [2.0] * 300, 1):
        detector.observe(time_s, float(number))
    assert detector.slower
    assert detector.now_s == pytest.approx(2.0)
    for number in range(1301, 1301 + 40 * RULES.window):
        detector.observe(1.0, float(number))
    assert not detector.slower
    assert detector.now_s is None
    assert detector.usual_s == pytest.approx(1.0)


def test_faster_calls_are_learnt_anew_in_silence():
    detector = Detector(RULES)
    slower = set()
    for number, time_s in enumerate([2.0] * 600 + [1.0] * 800, 1):
        detector.observe(time_s, float(number))
        slower.add(detector.slower)
    assert slower == {False}
    assert detector.usual_s == pytest.approx(1.0)

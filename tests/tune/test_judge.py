"""Whatever clears the margin over all comparisons passes; then what does over those that are left."""

import numpy as np
import pytest
from fake_bench import FAST, TREE

from topotune.tune.judge import Point, PointSamples, judge

MIN_GAIN = 0.02


def samples(candidate, ratio, *, seed):
    """Six blocks of eight rounds in which the default takes ``ratio`` times as long."""
    rng = np.random.default_rng(seed)
    blocks = tuple(
        (ratio * default_s, other_s) for default_s, other_s in np.exp(rng.normal(0, 0.05, (6, 2, 8)))
    )
    point = Point(message_bytes=4096, candidates=(candidate,), searched=True)
    return PointSamples(point=point, candidate=candidate, blocks=blocks)


def passed(*rows, num_comparisons, correction="holm"):
    found = judge(rows, num_comparisons=num_comparisons, min_gain=MIN_GAIN, seed=0, correction=correction)
    return [one.passed for one in found]


@pytest.fixture
def close():
    """A row that clears the margin as the last comparison left, and not as one of five."""
    gains = (samples(TREE, 1.02 + step / 500, seed=1) for step in range(50))
    return next(
        one
        for one in gains
        if passed(one, num_comparisons=1) == [True]
        and passed(one, num_comparisons=5, correction="bonferroni") == [False]
    )


def test_what_passes_leaves_fewer_comparisons_to_correct_for(close):
    clear = [samples(FAST, 2.0, seed=seed) for seed in range(2, 6)]
    assert passed(close, *clear, num_comparisons=5) == [True] * 5
    assert passed(close, *clear, num_comparisons=5, correction="bonferroni") == [False, *[True] * 4]


def test_comparisons_that_do_not_pass_or_were_not_made_still_count(close):
    equal = [samples(FAST, 1.0, seed=seed) for seed in range(2, 6)]
    assert passed(close, *equal, num_comparisons=5) == [False] * 5
    assert passed(close, num_comparisons=5) == [False]

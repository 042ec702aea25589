"""A table changes its algorithm at two neighbouring sizes, or where the margin is cleared twice over."""

import math
from itertools import pairwise

import numpy as np
import pytest
from fake_bench import FAST, RECURSIVE, TREE, FakeBench, factors
from hypothesis import given
from hypothesis import strategies as st

from topotune.plan.lookup import find_row
from topotune.tune.decide import DefaultTime, Limit, confirmed_spans, decide_rows
from topotune.tune.judge import Confirmation, margin_twice_over
from topotune.tune.options import TuneOptions
from topotune.tune.pipeline import choose_rows
from topotune.tune.points import confirmation_points, odd_between
from topotune.tune.sampling import Sampling
from topotune.tune.smoothing import smoothed
from topotune.tune.statistics import Comparison
from topotune.tune.trial import DEFAULT

K = 1024
SIZES = (K, 4 * K, 16 * K, 64 * K, 256 * K)
MARGIN = 0.02
TWICE = 1.0404
NO_LIMIT = Limit(no_bound_reason="made up")


def confirmed(candidate, size, low, *, searched=None):
    compared = Comparison(
        default_median_s=2e-3,
        median_s=2e-3 / (1.05 * low),
        ratio=1.05 * low,
        low=low,
        high=1.1 * low,
        num_rounds=20,
        outlier_share=0.0,
    )
    return Confirmation(
        message_bytes=size,
        candidate=candidate,
        comparison=compared,
        passed=low > 1 + MARGIN,
        searched=size in SIZES if searched is None else searched,
    )


def everywhere(finalists, low_of):
    """Each finalist at its points of confirmation, with ``low_of(candidate, size)``."""
    return [
        confirmed(candidate, point.message_bytes, low_of(candidate, point.message_bytes))
        for point in confirmation_points(finalists)
        for candidate in point.candidates
    ]


def rows_and_lone(confirmations, sizes):
    held, lone = smoothed(confirmations, tested_bytes=(), searched_bytes=sizes, min_gain=MARGIN)
    defaults = {size: DefaultTime(median_s=2e-3, num_samples=9) for size in sizes}
    return decide_rows(held, defaults, limit=NO_LIMIT), lone


def algorithms(winners, lows):
    """What the table has at each size, if finalists are so, and are confirmed with these low ends near it."""
    sizes = SIZES[: len(winners)]
    finalists = dict(zip(sizes, winners, strict=True))

    def low_of(candidate, size):
        own = [(one, low) for one, low in zip(sizes, lows, strict=True) if finalists[one] == candidate]
        return min(own, key=lambda item: abs(math.log(item[0] / size)))[1]

    rows, _ = rows_and_lone(everywhere(finalists, low_of), sizes)
    return [find_row(rows, size).algorithm for size in sizes]


D, F, T = DEFAULT.algorithm, FAST.algorithm, TREE.algorithm
ONCE = 1.03


@pytest.mark.parametrize(
    ("winners", "lows", "expected"),
    [
        ([DEFAULT, FAST, DEFAULT], [1, ONCE, 1], [D, D, D]),
        ([DEFAULT, FAST, DEFAULT], [1, math.nextafter(TWICE, 1), 1], [D, D, D]),
        ([DEFAULT, FAST, DEFAULT], [1, TWICE, 1], [D, F, D]),
        ([DEFAULT, FAST, FAST, DEFAULT], [1, ONCE, ONCE, 1], [D, F, F, D]),
        ([FAST, DEFAULT, DEFAULT], [ONCE, 1, 1], [D, D, D]),
        ([DEFAULT, DEFAULT, FAST], [1, 1, ONCE], [D, D, D]),
        ([DEFAULT, DEFAULT, FAST], [1, 1, TWICE], [D, D, F]),
        ([FAST, FAST, TREE, FAST, FAST], [1.5, 1.5, ONCE, 1.5, 1.5], [F, F, D, F, F]),
        ([FAST, FAST, TREE, TREE], [ONCE, ONCE, ONCE, ONCE], [F, F, T, T]),
        ([FAST, TREE, FAST], [ONCE, TWICE, ONCE], [D, T, D]),
        ([FAST, FAST, DEFAULT, FAST], [ONCE, ONCE, 1, ONCE], [F, F, D, D]),
        ([FAST, FAST, FAST], [ONCE, 1.01, ONCE], [D, D, D]),
        ([FAST], [ONCE], [F]),
    ],
    ids=[
        "a lone size by the margin once",
        "a lone size just below twice",
        "a lone size by the margin twice over",
        "two neighbouring sizes by the margin once",
        "the first size has no privilege",
        "nor has the last size",
        "the last size by the margin twice over",
        "where neighbours agree on another one that was not confirmed there, the default stays",
        "a crossing that two sizes bear out on either side",
        "what a lone size parts must be founded on either side",
        "the default between two needs no support, what lies beyond it does",
        "sizes on either side of one that failed are no neighbours",
        "a single searched size has no neighbour to ask",
    ],
)
def test_a_switch_needs_two_neighbouring_sizes_or_the_margin_twice_over(winners, lows, expected):
    assert algorithms(winners, lows) == expected


def test_a_lone_size_becomes_its_neighbours_candidate_where_that_was_confirmed_too():
    odd = [odd_between(*pair) for pair in pairwise(SIZES[:4])]
    tested = [*SIZES[:4], *odd, odd_between(SIZES[1], odd[1])]
    alone = [confirmed(TREE, size, ONCE) for size in tested if SIZES[0] < size < SIZES[2]]
    rows, lone = rows_and_lone([*(confirmed(FAST, size, ONCE) for size in tested), *alone], SIZES[:4])
    assert [find_row(rows, size).algorithm for size in SIZES[:4]] == [F, F, F, F]
    assert [one.candidate for one in lone] == [TREE]


def test_what_passed_between_two_searched_sizes_alone_has_to_clear_the_margin_twice_over_everywhere():
    between = [K + 4, 2 * K + 4, 3 * K + 4]

    def at_the_middle(low_at_end):
        lows = dict.fromkeys(between, TWICE) | {3 * K + 4: low_at_end}
        failed = [confirmed(FAST, size, 1.0) for size in SIZES[:2]]
        rows, _ = rows_and_lone([*failed, *(confirmed(FAST, *one) for one in lows.items())], SIZES[:2])
        return find_row(rows, 2 * K).algorithm

    assert (at_the_middle(TWICE), at_the_middle(ONCE)) == (F, D)


def test_a_row_that_ends_at_a_searched_size_is_borne_out_by_the_row_of_the_same_candidate_behind_it():
    below, between = (odd_between(*pair) for pair in pairwise(SIZES[:3]))
    sizes = [below, odd_between(below, SIZES[1]), SIZES[1], between, SIZES[2]]
    rows, lone = rows_and_lone([confirmed(FAST, size, ONCE) for size in sizes], SIZES[:3])
    assert [(row.min_bytes, row.algorithm) for row in rows[1:3]] == [(below, F), (SIZES[1], F)]
    assert lone == []


def test_what_is_withdrawn_is_told_with_its_interval_and_what_it_lacks():
    _, (lone,) = rows_and_lone(everywhere({K: DEFAULT, 4 * K: FAST}, lambda *_: ONCE), SIZES[:2])
    assert lone.in_words(MARGIN) == (
        "ring channels=2 was confirmed at 4 KiB [1.030, 1.133] but at no neighbouring size, "
        "and alone it would have to reach 1.040"
    )


@given(
    winners=st.lists(st.sampled_from([DEFAULT, FAST, TREE, RECURSIVE]), min_size=2, max_size=len(SIZES)),
    lows=st.lists(st.sampled_from([1.0, ONCE, 1.039, TWICE, 2.0]), min_size=30, max_size=30),
)
def test_every_row_of_a_smoothed_table_is_founded_and_nothing_founded_is_withdrawn(winners, lows):
    finalists = dict(zip(SIZES, winners, strict=False))
    drawn = iter(lows)
    confirmations = everywhere(finalists, lambda *_: next(drawn))
    held, lone = smoothed(confirmations, tested_bytes=(), searched_bytes=list(finalists), min_gain=MARGIN)

    def is_founded(one, among):
        """Two neighbouring sizes of the search in a row of sizes that passed, or twice the margin."""
        sizes = sorted({each.message_bytes for each in among} | set(finalists))
        own = [each for each in among if each.candidate == one.candidate]
        passed = {each.message_bytes: each for each in own if each.passed}
        low = high = sizes.index(one.message_bytes)
        while low > 0 and sizes[low - 1] in passed:
            low -= 1
        while high + 1 < len(sizes) and sizes[high + 1] in passed:
            high += 1
        run = [passed[size] for size in sizes[low : high + 1]]
        searched = [each for each in run if each.searched]
        return len(searched) > 1 or all(each.comparison.low >= TWICE for each in searched or run)

    after = {(one.candidate, one.message_bytes): one for one in held}
    for span in confirmed_spans(held, finalists):
        assert all(is_founded(one, confirmations) for one in span.confirmed)
    for one in confirmations:
        if one.passed and is_founded(one, confirmations):
            assert after[one.candidate, one.message_bytes].passed
        assert not after[one.candidate, one.message_bytes].passed or one.passed
    assert all(not is_founded(one.shown, confirmations) for one in lone)
    assert smoothed(held, tested_bytes=(), searched_bytes=list(finalists), min_gain=MARGIN) == (held, [])


@pytest.mark.parametrize("min_gain", [0.0, 0.02, 0.5])
def test_twice_over_leaves_the_margin_after_it_was_paid_once(min_gain):
    assert margin_twice_over(min_gain) / (1 + min_gain) == pytest.approx(1 + min_gain)


@pytest.mark.parametrize(
    ("gain", "above_bytes", "expected"),
    [(1.15, 16 * K, [D, D, D, D]), (1.15, 4 * K, [D, D, F, F]), (1.3, 16 * K, [D, D, D, F])],
    ids=["once, at the last size", "once, at the last two", "twice over, at the last size"],
)
def test_the_tuner_departs_from_the_default_by_this_rule(gain, above_bytes, expected):
    bench = FakeBench(factors({FAST: lambda size: gain if size > above_bytes else 0.8}), noise=0.02)
    choice = choose_rows(
        Sampling(bench=bench, rng=np.random.default_rng(0)),
        TuneOptions(budget_s=8.0, sizes=SIZES[:4], seed=0, min_gain=0.1),
        [FAST],
        predicted_s=lambda candidate, size: 1e-3,
        limit=NO_LIMIT,
    )
    assert [find_row(choice.rows, size).algorithm for size in SIZES[:4]] == expected
    told = [one for one in choice.warnings if "but at no neighbouring size" in one]
    assert len(told) == (expected == [D, D, D, D])
    assert all(
        "the default stays there; sizes beside it, or a larger --budget, may tell" in one for one in told
    )

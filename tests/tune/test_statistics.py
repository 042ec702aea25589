"""Intervals hold what they promise: by simulation with fixed seeds."""

import math

import numpy as np
import pytest

from topotune.tune.blocks import (
    Luck,
    compare_blocks,
    compare_launches,
    luck_of_connections,
    scatter_of_launches,
)
from topotune.tune.judge import clears
from topotune.tune.statistics import (
    Comparison,
    autocorrelation,
    clopper_pearson,
    compare_arms,
    corrected,
    effective_samples,
    minimum_rounds,
    outlier_share,
    rounds_needed,
    signed_rank_interval,
    two_modes,
)


def noise(rng, kind, shape):
    if kind == "normal":
        return np.exp(rng.normal(0, 0.1, shape))
    if kind == "heavy tails":
        return 1 + 0.2 * np.abs(rng.standard_t(1.5, shape))
    if kind == "two modes":
        return np.where(rng.random(shape) < 0.4, 3.0, 1.0) * np.exp(rng.normal(0, 0.02, shape))
    drift = 1 + 0.5 * np.sin(np.linspace(0, 9, shape[-2]))[:, None]
    return drift * np.exp(rng.normal(0, 0.05, shape))


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "two modes", "drift"])
def test_without_a_difference_a_win_is_as_rare_as_the_confidence_says(kind):
    rng = np.random.default_rng(1)
    runs, rounds = 600, 14
    times = noise(rng, kind, (runs, rounds, 2))
    lows = [
        compare_arms(run[:, 0], run[:, 1], confidence=0.9, seed=index).low for index, run in enumerate(times)
    ]
    # One-sided 5 %; three standard errors of a rate over 600 runs are 2.7 %.
    assert np.mean([low > 1.0 for low in lows]) <= 0.05 + 0.027
    assert np.mean([low > 1.02 for low in lows]) <= 0.05


def test_an_interval_covers_the_true_ratio_as_often_as_it_says():
    rng = np.random.default_rng(2)
    covered = 0
    for index in range(500):
        default, other = 1.3 * np.exp(rng.normal(0, 0.2, 20)), np.exp(rng.normal(0, 0.2, 20))
        comparison = compare_arms(default, other, confidence=0.95, seed=index)
        covered += comparison.low <= 1.3 <= comparison.high
    assert covered / 500 >= 0.94


def test_the_ratio_of_medians_is_covered_also_where_the_arms_have_different_shapes():
    # Two modes around one median: the log-ratios are centred elsewhere than the ratio of medians, which is 1.
    rng = np.random.default_rng(5)
    covered = 0
    for index in range(300):
        default = np.exp(rng.normal(0, 0.05, 30))
        other = np.where(rng.random(30) < 0.35, 3.0, np.exp(rng.normal(-0.04, 0.05, 30)))
        comparison = compare_arms(default, other, confidence=0.9, seed=index)
        covered += comparison.low <= 1.0 <= comparison.high
    assert covered / 300 >= 0.9


def test_corrected_intervals_hold_all_at_once():
    rng = np.random.default_rng(3)
    rows, runs = 10, 60
    level = corrected(0.95, rows)
    failed = 0
    for run in range(runs):
        times = np.exp(rng.normal(0, 0.2, (rows, 16, 2)))
        comparisons = [compare_arms(row[:, 0], row[:, 1], confidence=level, seed=run) for row in times]
        failed += any(not one.low <= 1.0 <= one.high for one in comparisons)
    assert failed / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_a_planted_gain_is_found_with_the_planned_number_of_rounds():
    rng = np.random.default_rng(4)
    level = corrected(0.95, 10)
    rounds = rounds_needed(math.log(1.2 / 1.02), 0.15, confidence=level, most=100)
    found = 0
    for index in range(100):
        default, other = 1.2 * np.exp(rng.normal(0, 0.106, rounds)), np.exp(rng.normal(0, 0.106, rounds))
        found += clears(compare_arms(default, other, confidence=level, seed=index), 0.02)
    assert found >= 90


def test_the_ratio_is_that_of_the_medians_and_lies_in_its_interval():
    comparison = compare_arms(
        np.array([4.0, 2.0, 6.0, 2.0]), np.array([1.0, 2.0, 1.0, 9.0]), confidence=0.5, seed=0
    )
    assert (comparison.default_median_s, comparison.median_s, comparison.ratio) == (3.0, 1.5, 2.0)
    assert comparison.low <= 2.0 <= comparison.high
    assert comparison.num_rounds == 4


def test_a_round_without_a_time_for_both_arms_is_left_out_whole():
    nan = float("nan")
    comparison = compare_arms(
        np.array([1.0, nan, 2.0, 3.0]), np.array([1.0, 5.0, nan, 1.0]), confidence=0.5, seed=0
    )
    assert comparison.num_rounds == 2
    assert comparison.default_median_s == 2.0
    with pytest.raises(ValueError, match="no round has a time for both arms"):
        compare_arms(np.array([nan]), np.array([1.0]), confidence=0.5, seed=0)


@pytest.mark.parametrize("confidence", [0.5, 0.75, 0.95, 0.995])
def test_fewer_rounds_than_the_minimum_bound_nothing(confidence):
    least = minimum_rounds(confidence)
    times = np.linspace(1.0, 2.0, least)
    assert math.isfinite(compare_arms(times, times, confidence=confidence, seed=0).high)
    too_few = compare_arms(times[1:], times[1:], confidence=confidence, seed=0) if least > 1 else None
    assert too_few is None or (too_few.low, too_few.high) == (0.0, math.inf)


def test_the_signed_rank_interval_agrees_with_wilcoxons_published_critical_value():
    # n = 10, two-sided 5 %: reject where W <= 8 (Wilcoxon 1945), so the ninth Walsh average is the end.
    differences = np.arange(1.0, 11.0)
    rows, columns = np.triu_indices(10)
    walsh = np.sort((differences[rows] + differences[columns]) / 2)
    assert signed_rank_interval(differences, 0.95) == (walsh[8], walsh[-9])


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (1, 20, 0.0013, 0.2487)],
)
def test_clopper_pearson_agrees_with_published_values(successes, trials, low, high):
    assert clopper_pearson(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_outliers_are_counted():
    steady = np.ones(19) + np.linspace(0, 0.1, 19)
    assert outlier_share(np.append(steady, 9.0)) == pytest.approx(1 / 20)
    assert outlier_share(steady) == 0.0


def lottery(rng, rows, blocks, rounds, luck):
    """Rounds of equal arms whose connections are luckier or less lucky by ``luck``, drawn for each block."""
    drawn = []
    for _ in range(rows):
        row = []
        for _ in range(blocks):
            default, other = np.exp(rng.normal(0, 0.05, (2, rounds)))
            row.append((default * np.exp(rng.normal(0, luck)), other))
        drawn.append(row)
    return drawn


def verdicts(rows, confidence):
    luck = luck_of_connections(rows)
    level = corrected(confidence, len(rows))
    return [compare_blocks(row, luck=luck, confidence=level, seed=index) for index, row in enumerate(rows)]


@pytest.mark.parametrize(("rows", "rounds"), [(1, 3), (6, 3)], ids=["one row", "six rows"])
def test_luck_of_connections_makes_no_row_faster_or_slower(rows, rounds):
    rng = np.random.default_rng(6)
    runs = 240 // rows
    wrong = sum(
        any(one.low > 1.02 or one.high < 0.98 for one in verdicts(lottery(rng, rows, 4, rounds, 0.15), 0.9))
        for _ in range(runs)
    )
    assert wrong / runs <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / runs)


def test_on_one_set_of_connections_luck_is_taken_for_a_difference_and_so_several_are_needed():
    rng = np.random.default_rng(6)
    found = [
        compare_arms(default, other, confidence=0.95, seed=0)
        for ((default, other),) in lottery(rng, 100, 1, 8, 0.15)
    ]
    assert sum(one.low > 1.02 or one.high < 0.98 for one in found) > 40


@pytest.mark.parametrize("kind", ["heavy tails", "two modes", "follows itself"])
def test_eight_paired_samples_seldom_say_that_equal_arms_differ(kind):
    rng = np.random.default_rng(7)
    runs, wrong = 300, 0
    for index in range(runs):
        if kind == "follows itself":
            steps = rng.normal(0, 1, 16)
            for at in range(1, 16):
                steps[at] += 0.8 * steps[at - 1]
            times = np.exp(0.05 * steps).reshape(8, 2)
        else:
            times = noise(rng, kind, (8, 2))
        times = rng.permuted(times, axis=1)  # the order within a round is drawn
        row = [(part[:, 0], part[:, 1]) for part in np.split(times, 4)]
        luck = luck_of_connections([row])
        found = compare_blocks(row, luck=luck, confidence=0.95, seed=index)
        wrong += found.low > 1.02 or found.high < 0.98
    assert wrong / runs <= 0.025


def test_a_real_gain_passes_although_connections_differ_a_little():
    rng = np.random.default_rng(8)
    rows = [[(1.4 * default, other) for default, other in row] for row in lottery(rng, 6, 4, 4, 0.05)]
    assert all(1.02 < one.low < 1.4 < one.high for one in verdicts(rows, 0.95))


def test_rows_whose_rounds_scatter_do_not_widen_the_intervals_of_those_whose_rounds_agree():
    rng = np.random.default_rng(11)

    def row(scatter, ratio):
        return [(ratio * default, other) for default, other in np.exp(rng.normal(0, scatter, (6, 2, 6)))]

    steady, unsteady = [row(0.02, 1.1) for _ in range(4)], [row(0.4, 1.0) for _ in range(4)]
    among_others, alone = verdicts([*steady, *unsteady], 0.95)[:4], verdicts(steady, 0.95)
    assert all(one.low > 1.05 for one in (*among_others, *alone))


def test_luck_of_connections_is_told_from_the_scatter_of_rounds():
    rng = np.random.default_rng(12)
    found = [luck_of_connections(lottery(rng, 8, 6, 12, luck)).variance ** 0.5 for luck in (0.0, 0.05, 0.15)]
    assert found == pytest.approx([0.0, 0.05, 0.15], abs=0.02)


def test_a_row_whose_blocks_disagree_more_than_others_pays_by_itself():
    rng = np.random.default_rng(13)
    rows = lottery(rng, 7, 6, 8, 0.0)
    of_blocks = [1, 1, 1, 1.5, 1.5, 1.5]
    lucky = [(default * luck, other) for (default, other), luck in zip(rows[0], of_blocks, strict=True)]
    found = verdicts([lucky, *rows[1:]], 0.95)
    assert found[0].low < 1.02 < compare_arms(*np.hstack(lucky), confidence=0.95, seed=0).low
    assert all(one.high / one.low < 1.3 for one in found[1:])


def launches_of(rng, launch_sd, num_launches, rounds=12, scatter=0.02):
    """Rows without a true difference; what a launch adds to a row has the row's own standard deviation."""
    return [
        [
            (np.exp(rng.normal(rng.normal(0, sd), scatter, rounds)), np.ones(rounds))
            for _ in range(num_launches)
        ]
        for sd in launch_sd
    ]


def wrong_runs(monkeypatch, launch_sd, num_launches, runs=300, *, compare=None):
    """Share of runs in which some row's interval leaves out that there is no difference."""

    def ratio_alone(default_s, other_s, *, confidence, seed):
        # Rounds know nothing of launches; without what they say the test is quick, and the stricter.
        ratio = float(np.median(default_s) / np.median(other_s))
        return Comparison(
            default_median_s=1.0,
            median_s=1.0,
            ratio=ratio,
            low=ratio,
            high=ratio,
            num_rounds=len(default_s),
            outlier_share=0.0,
        )

    monkeypatch.setattr("topotune.tune.blocks.compare_arms", ratio_alone)
    rng = np.random.default_rng(21)
    confidence = corrected(0.95, len(launch_sd))
    wrong = 0
    for _ in range(runs):
        rows = launches_of(rng, launch_sd, num_launches)
        if compare is None:
            scatter = scatter_of_launches(rows)
            found = [compare_launches(row, scatter=scatter, confidence=confidence, seed=0) for row in rows]
        else:
            found = compare(rows, confidence)
        wrong += any(not one.low <= 1 <= one.high for one in found)
    return wrong / runs


LAUNCH_SCATTER = {
    "one row": [0.05],
    "none": [0.0] * 8,
    "rows alike": [0.05] * 8,
    "one of eight": [0.0] * 7 + [0.1],
    "some more than others": [0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005, 0.0],
}


@pytest.mark.parametrize("num_launches", [3, 5])
@pytest.mark.parametrize("launch_sd", LAUNCH_SCATTER.values(), ids=LAUNCH_SCATTER)
def test_intervals_over_launches_hold_together_also_where_rows_are_not_alike(
    monkeypatch, launch_sd, num_launches
):
    allowed = 0.06 + 3 * math.sqrt(0.06 * 0.94 / 300)
    assert wrong_runs(monkeypatch, launch_sd, num_launches) <= allowed


def test_one_variance_for_the_launches_of_all_rows_would_not_hold(monkeypatch):
    assert wrong_runs(monkeypatch, LAUNCH_SCATTER["one of eight"], 2, compare=of_connections) > 0.09


def of_connections(rows, confidence):
    luck = luck_of_connections(rows)
    return [compare_blocks(row, luck=luck, confidence=confidence, seed=0) for row in rows]


@pytest.mark.parametrize(
    "luck_sd",
    [[0.1] * 4 + [0.0] * 8, [0.1] * 6 + [0.0] * 6, [0.0] * 12, [0.05] * 12],
    ids=["a third of rows", "half of rows", "no row", "all rows"],
)
def test_intervals_over_connections_hold_together_also_where_some_rows_have_more_luck(monkeypatch, luck_sd):
    allowed = 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert wrong_runs(monkeypatch, luck_sd, 6, compare=of_connections) <= allowed


def test_luck_of_rows_that_are_alike_is_found_without_bias():
    rng = np.random.default_rng(14)
    found = [luck_of_connections(lottery(rng, 8, 6, 12, 0.05)).variance for _ in range(60)]
    assert np.mean(found) == pytest.approx(0.05**2, rel=0.12)


def test_what_all_launches_scatter_is_known_before_a_row_is_looked_at():
    rng = np.random.default_rng(22)
    alike = scatter_of_launches(launches_of(rng, [0.05] * 40, 5))
    assert alike.variance**0.5 == pytest.approx(0.05, abs=0.01)
    assert alike.degrees > 20
    apart = scatter_of_launches(launches_of(rng, [0.0, 0.3] * 20, 5))
    assert apart.degrees < 2
    assert scatter_of_launches(launches_of(rng, [0.05], 5)) == Luck(variance=0.0, degrees=0.0)
    assert scatter_of_launches(launches_of(rng, [0.05] * 8, 1)) == Luck(variance=0.0, degrees=0.0)


def test_a_single_launch_is_judged_by_its_rounds_alone():
    default, other = np.linspace(2.0, 2.2, 9), np.linspace(1.0, 1.1, 9)
    scatter = Luck(variance=1.0, degrees=3.0)
    alone = compare_launches([(default, other)], scatter=scatter, confidence=0.95, seed=0)
    assert alone == compare_arms(default, other, confidence=0.95, seed=0)


def test_launches_that_agree_by_chance_leave_the_interval_that_rounds_give():
    rng = np.random.default_rng(23)
    logs = rng.normal(0, 0.05, 12)
    blocks = [(np.exp(logs - np.median(logs)), np.ones(12)) for _ in range(3)]
    found = compare_launches(blocks, scatter=Luck(variance=0.0, degrees=0.0), confidence=0.95, seed=0)
    together = compare_arms(
        np.concatenate([default for default, _ in blocks]), np.ones(36), confidence=0.95, seed=0
    )
    assert found.low <= together.low < together.high < found.high


def test_a_single_block_is_judged_by_its_rounds_alone():
    default, other = np.linspace(2.0, 2.2, 9), np.linspace(1.0, 1.1, 9)
    blocks = [(default, other)]
    nothing_known = luck_of_connections([[*blocks, (np.array([]), np.array([]))]])
    assert nothing_known == Luck(variance=0.0, degrees=0)
    alone = compare_blocks(blocks, luck=nothing_known, confidence=0.95, seed=0)
    assert alone == compare_arms(default, other, confidence=0.95, seed=0)


def test_samples_that_follow_one_another_count_for_less():
    rng = np.random.default_rng(9)
    steps = rng.normal(0, 1, 400)
    for at in range(1, 400):
        steps[at] += 0.8 * steps[at - 1]
    assert autocorrelation(np.exp(0.1 * steps)) == pytest.approx(0.8, abs=0.08)
    assert effective_samples(np.exp(0.1 * steps)) < 100
    assert abs(autocorrelation(np.exp(rng.normal(0, 0.1, 400)))) < 0.15
    assert autocorrelation(np.array([1.0, 2.0])) == 0.0
    assert autocorrelation(np.ones(20)) == 0.0


def test_two_modes_are_told_from_one():
    rng = np.random.default_rng(10)
    both = np.where(rng.random(40) < 0.4, 1.5, 1.0) * np.exp(rng.normal(0, 0.03, 40))
    low, high, share = two_modes(both)
    assert (low, high, share) == pytest.approx((1.0, 1.5, 0.4), abs=0.15)
    for single in (np.exp(rng.normal(0, 0.1, 40)), 1 + rng.random(40), 1 + rng.exponential(1, 40)):
        assert two_modes(single) is None
    assert two_modes(np.array([1.0] * 4 + [2.0] * 4)) is None, "too few to tell"
    assert two_modes(np.array([1.0] * 10 + [1.001] * 10)) is None, "too close to matter"


@pytest.mark.parametrize("num_blocks", [2, 6])
def test_luck_of_a_single_row_is_found_however_few_its_blocks(num_blocks):
    blocks = [(np.full(4, math.exp(0.1 * (number % 2))), np.ones(4)) for number in range(num_blocks)]
    assert luck_of_connections([blocks]).variance == pytest.approx(0.05**2, rel=2)


def test_a_row_that_scatters_beyond_all_measure_widens_no_other():
    rng = np.random.default_rng(0)

    def row(spread, luck):
        return [
            (np.exp(rng.normal(rng.normal(0, luck), spread, 12)), np.exp(rng.normal(0, spread, 12)))
            for _ in range(6)
        ]

    quiet = [row(0.01, 0.01) for _ in range(8)]
    wild = [row(0.02, 0.5) for _ in range(2)]
    alone, beside = luck_of_connections(quiet), luck_of_connections([*quiet, *wild])
    assert beside.variance < 3 * alone.variance

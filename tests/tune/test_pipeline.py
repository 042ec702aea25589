"""The whole choosing on a made-up clock: planted winners are found, losers never, budgets are kept."""

import re
from dataclasses import replace
from itertools import cycle, pairwise

import numpy as np
import pytest
from fake_bench import FAST, RECURSIVE, SLOW, TREE, FakeBench, default_time, factors

from topotune.plan.model import Bottleneck
from topotune.tune.decide import Limit
from topotune.tune.inherit import REACH
from topotune.tune.journal import Journal, read_journal
from topotune.tune.options import TuneOptions
from topotune.tune.pipeline import choose_rows
from topotune.tune.sampling import Sampling
from topotune.tune.trial import DEFAULT, DEFAULTS, Candidate

NO_LIMIT = Limit(no_bound_reason="made up")
SIZES = (1024, 4096, 16384, 65536, 262144, 1 << 20)


def choose(
    bench,
    candidates,
    *,
    budget_s=60.0,
    sizes=SIZES,
    seed=0,
    limit=NO_LIMIT,
    journal=None,
    reports=None,
    predicted_s=lambda candidate, size: len(candidate.algorithm) * 1e-3,
):
    sampling = Sampling(bench=bench, rng=np.random.default_rng(seed), journal=journal)
    return choose_rows(
        sampling,
        TuneOptions(budget_s=budget_s, sizes=sizes, seed=seed),
        candidates,
        predicted_s=predicted_s,
        limit=limit,
        on_progress=reports.append if reports is not None else lambda _progress: None,
    )


def chosen_at(rows, message_bytes):
    return next(
        row for row in rows if row.min_bytes <= message_bytes and (row.max_bytes or 1 << 60) > message_bytes
    )


def assert_tiles(rows):
    assert rows[0].min_bytes == 0
    assert rows[-1].max_bytes is None
    assert all(before.max_bytes == after.min_bytes for before, after in pairwise(rows))


def test_a_planted_winner_is_found_and_confirmed_within_the_budget():
    bench = FakeBench(factors({FAST: 3.0, SLOW: 0.5, TREE: 1.4, RECURSIVE: 0.9}), noise=0.1)
    choice = choose(bench, [SLOW, TREE, RECURSIVE, FAST])
    assert_tiles(choice.rows)
    for size in SIZES:
        row = chosen_at(choice.rows, size)
        assert (row.algorithm, row.params) == (FAST.algorithm, FAST.params)
        assert row.evidence.ratio == pytest.approx(3.0, rel=0.2)
        assert row.evidence.ratio_ci[0] > 1.02
        assert len(row.evidence.confirmed_bytes) >= 3
        assert any(confirmed // 4 % 2 for confirmed in row.evidence.confirmed_bytes)
    assert chosen_at(choice.rows, 100).algorithm == "default"
    assert chosen_at(choice.rows, 2 << 20).evidence.extrapolated
    assert chosen_at(choice.rows, REACH * SIZES[-1] + 4).algorithm == "default"
    assert bench.clock_s <= 60.0
    assert choice.certificate.num_comparisons == 11
    assert choice.certificate.num_null_trials > 0
    assert choice.certificate.false_win_rate <= 0.05


@pytest.mark.parametrize("seed", range(3))
def test_every_size_gets_a_first_look_although_confirmation_needs_the_time(seed):
    default_s = {4096: 0.019, 16384: 0.020, 65536: 0.021, 262144: 0.03}

    def true_s(candidate, size):
        whole_s = np.interp(size, list(default_s), list(default_s.values()))
        return whole_s if candidate in DEFAULTS else whole_s / 1.8

    bench = FakeBench(true_s, noise=0.3, seed=seed)
    variants = [Candidate.of("ring", {"channels": channels}) for channels in range(1, 9)]
    choose(bench, variants, budget_s=16.0, sizes=tuple(default_s), seed=seed)
    assert {size for _, size in bench.checks} >= set(default_s)


@pytest.mark.parametrize("seed", range(12))
def test_a_candidate_five_percent_slower_is_never_chosen(seed):
    bench = FakeBench(factors({FAST: 0.95, SLOW: 0.95, TREE: 0.95, RECURSIVE: 0.95}), noise=0.3, seed=seed)
    choice = choose(bench, [SLOW, TREE, RECURSIVE, FAST], sizes=SIZES[:3], budget_s=20.0, seed=seed)
    assert {row.algorithm for row in choice.rows} == {"default"}


def test_a_gain_below_the_margin_keeps_the_default():
    bench = FakeBench(factors({FAST: 1.015}), noise=0.01)
    assert {row.algorithm for row in choose(bench, [FAST]).rows} == {"default"}


def test_candidates_switch_where_their_curves_cross():
    bench = FakeBench(
        factors(
            {
                FAST: lambda size: 4.0 if size >= 65536 else 1.2,
                TREE: lambda size: 1.1 if size >= 65536 else 3.0,
            }
        )
    )
    rows = choose(bench, [FAST, TREE]).rows
    assert_tiles(rows)
    assert [chosen_at(rows, size).algorithm for size in SIZES] == [TREE.algorithm] * 3 + [FAST.algorithm] * 3
    # Both hold at the odd size between 16 KiB and 64 KiB, which is the boundary: no default in between.
    assert {row.algorithm for row in rows[1:-1]} == {TREE.algorithm, FAST.algorithm}


@pytest.mark.parametrize(
    ("default_s", "predicted_s", "limit_s"),
    [(0.6, 0.1, 6.0), (0.6, 1.2, 12.0), (0.005, 0.001, 5.0)],
    ids=[
        "ten times the default",
        "ten times what was predicted",
        "never before 5 % of the budget",
    ],
)
def test_a_call_is_cut_off_by_what_the_default_takes_and_what_was_predicted(default_s, predicted_s, limit_s):
    class Watched(FakeBench):
        def check(self, candidate, message_bytes, *, limit_s):
            limits_s.append(limit_s)
            return super().check(candidate, message_bytes, limit_s=limit_s)

    limits_s = []
    bench = Watched(lambda *_: default_s, noise=0.0)
    choose(bench, [FAST], budget_s=100.0, sizes=[1 << 20], predicted_s=lambda *_: predicted_s)
    assert limits_s == [pytest.approx(limit_s, rel=1e-6)]


def test_a_wrong_candidate_is_never_timed_and_is_named():
    bench = FakeBench(factors({FAST: 9.0, TREE: 2.0}), wrong=[FAST])
    choice = choose(bench, [FAST, TREE])
    assert chosen_at(choice.rows, 4096).algorithm == TREE.algorithm
    assert all(FAST not in block.arms for block in bench.blocks)
    assert choice.warnings == ("ring channels=2 was left out: rank 1 got 3, not 6",)


def test_every_candidate_is_checked_once_per_size_before_it_is_timed():
    bench = FakeBench(factors({FAST: 3.0, TREE: 2.0, SLOW: 1.5}))
    choose(bench, [FAST, TREE, SLOW])
    assert len(bench.checks) == len(set(bench.checks))
    timed = {
        (arm, block.message_bytes) for block in bench.blocks for arm in block.arms if arm not in DEFAULTS
    }
    assert timed <= set(bench.checks)


@pytest.mark.parametrize(
    ("condition", "factor", "words"),
    [("busy", 12.0, "while the main thread runs Python"), ("backward", 4.0, "in a backward")],
)
def test_a_candidate_that_suits_no_training_is_left_out(condition, factor, words):
    bench = FakeBench(factors({FAST: 3.0, TREE: 2.0}), slow_down={(FAST, condition): factor})
    choice = choose(bench, [FAST, TREE])
    assert chosen_at(choice.rows, 4096).algorithm == TREE.algorithm
    assert any(words in warning and FAST.label in warning for warning in choice.warnings)


@pytest.mark.parametrize("phase", ["conditions", "confirmation"])
def test_no_row_is_stretched_to_a_size_that_its_candidate_was_given_up_at(phase):
    last, true_s = SIZES[-1], factors({FAST: 3.0})

    def hangs(_candidate, size, condition):
        return size == last and (condition == "backward" if phase == "conditions" else bench.renewals > 0)

    bench = FakeBench(true_s, hangs=hangs)
    choice = choose(bench, [FAST], predicted_s=true_s)
    assert chosen_at(choice.rows, SIZES[-2]).algorithm == FAST.algorithm
    assert chosen_at(choice.rows, last).algorithm == "default"
    assert any("given up at 1 MiB" in warning for warning in choice.warnings)


@pytest.mark.parametrize("wrong", [set(), {TREE}], ids=["alone", "beside one that is wrong"])
def test_no_row_is_stretched_to_a_size_where_its_candidate_was_too_slow_to_be_timed(wrong):
    """There the search has timed nothing, but not for want of time."""
    last = SIZES[-1]
    true_s = factors({FAST: lambda size: 0.05 if size == last else 3.0, TREE: 2.0})
    bench = FakeBench(true_s, wrong=wrong)
    choice = choose(bench, [FAST, *wrong], predicted_s=factors({FAST: 3.0, TREE: 2.0}))
    assert (FAST, last) in bench.checks
    assert not any(FAST in block.arms for block in bench.blocks if block.message_bytes == last)
    assert chosen_at(choice.rows, SIZES[-2]).algorithm == FAST.algorithm
    assert chosen_at(choice.rows, last).algorithm == "default"


def test_a_warning_says_how_far_a_row_reaches_into_sizes_that_were_not_searched():
    true_s = factors({FAST: 3.0})
    sizes = (1024, 4096, 1 << 18, 1 << 24, 1 << 28)
    choice = choose(FakeBench(true_s), [FAST], budget_s=10.0, sizes=sizes, predicted_s=true_s)
    (warning,) = (one for one in choice.warnings if ": not searched" in one)
    reaches = "what was confirmed at 4 KiB is taken over at 256 KiB and the default stays at 16 MiB, 256 MiB"
    assert f": not searched: {reaches}; try --budget" in warning


@pytest.mark.parametrize("budget_s", [0.05, 1.0, 3.0, 10.0, 60.0])
@pytest.mark.parametrize("slowness", [1.0, 20.0])
def test_the_budget_is_kept_and_the_table_is_whole(budget_s, slowness):
    true_s = factors({FAST: 3.0, SLOW: 0.5, TREE: 1.4, RECURSIVE: 0.9})
    bench = FakeBench(lambda candidate, size: slowness * true_s(candidate, size))
    choice = choose(bench, [SLOW, TREE, RECURSIVE, FAST], budget_s=budget_s, sizes=(*SIZES, 1 << 24, 1 << 26))
    assert_tiles(choice.rows)
    # Nothing is begun that would not fit, but two calls of the smallest size are always made.
    assert bench.clock_s <= max(1.15 * budget_s, 5 * slowness * default_time(1024))


def test_a_size_whose_default_takes_over_a_hundredth_of_the_budget_is_not_searched():
    bench = FakeBench(factors({FAST: 3.0}))
    choice = choose(bench, [FAST], budget_s=2.0, sizes=(1024, 1 << 26))
    assert {block.message_bytes for block in bench.blocks if len(block.arms) > 1} <= set(range(1 << 20))
    assert chosen_at(choice.rows, 1 << 26).algorithm == "default"
    assert any(
        warning.startswith("from 64 MiB on one call of the default takes over 1% of the budget of 2 s")
        for warning in choice.warnings
    )


def test_the_budget_that_is_named_for_a_size_that_was_not_searched_reaches_it():
    sizes = (1024, 1 << 26)
    left_out = choose(FakeBench(factors({FAST: 3.0})), [FAST], budget_s=2.0, sizes=sizes).warnings
    (minutes,) = (found[1] for warning in left_out if (found := re.search(r"try --budget (\d+)m", warning)))
    bench = FakeBench(factors({FAST: 3.0}))
    choice = choose(bench, [FAST], budget_s=60.0 * int(minutes), sizes=sizes)
    assert chosen_at(choice.rows, 1 << 26).algorithm == FAST.algorithm
    assert not any(": not searched" in warning for warning in choice.warnings)


def test_a_single_size_of_long_calls_is_confirmed_although_smaller_ones_are_sent_too():
    slower = factors({FAST: 1.8, TREE: 1.3})
    bench = FakeBench(lambda candidate, size: 330 * slower(candidate, size) * size / (1 << 23), noise=0.02)
    choice = choose(bench, [FAST, TREE], budget_s=540.0, sizes=(1 << 23,))
    assert chosen_at(choice.rows, 1 << 23).algorithm == FAST.algorithm


def test_one_call_that_got_no_core_in_time_does_not_take_its_size_from_the_search():
    true_s, late = factors({FAST: 3.0}), iter([0.0, 1.0])
    bench = FakeBench(lambda candidate, size: true_s(candidate, size) + next(late, 0.0), noise=0.0)
    choice = choose(bench, [FAST], budget_s=10.0, sizes=(1024, 4096))
    assert chosen_at(choice.rows, 1024).algorithm == FAST.algorithm


def test_a_first_size_that_is_predicted_to_break_the_budget_is_not_even_begun():
    bench = FakeBench(factors({FAST: 3.0}))
    choice = choose(
        bench, [FAST], budget_s=1.0, sizes=(1 << 30,), predicted_s=lambda candidate, size: default_time(size)
    )
    assert bench.blocks == []
    assert_tiles(choice.rows)
    assert choice.warnings[0].startswith("from 1 GiB on one call of the default takes over 1% of the budget")


def test_missed_starts_are_dropped_counted_and_told():
    bench = FakeBench(factors({FAST: 3.0}), miss_rate=0.2)
    choice = choose(bench, [FAST])
    assert chosen_at(choice.rows, 4096).algorithm == FAST.algorithm
    assert any(
        "samples were dropped because a rank missed the common start" in one for one in choice.warnings
    )
    num_dropped = re.search(r"(\d+) dropped because a rank missed", said_of_samples(choice))[1]
    assert int(num_dropped) > 100


def outlying(true_s, *, every, factor):
    """Each call so much longer in every so manieth."""
    factors_in_turn = cycle([1.0] * (every - 1) + [factor])
    return lambda candidate, size: true_s(candidate, size) * next(factors_in_turn)


def said_of_samples(choice):
    (said,) = [part for part in choice.certificate.method.split("; ") if part.startswith("samples: ")]
    return said


@pytest.mark.parametrize("table", [{FAST: 3.0}, {}], ids=["what confirmed", "the default against itself"])
def test_planted_outliers_are_told_with_the_plan_and_stay_in(table):
    choice = choose(FakeBench(outlying(factors(table), every=7, factor=8.0), noise=0.01), list(table))
    share, num_samples = re.match(
        r"samples: (\d+\.\d)% of (\d+) were outliers", said_of_samples(choice)
    ).groups()
    assert 8 < float(share) < 20
    assert "none was removed" in said_of_samples(choice)
    assert int(num_samples) >= 2 * sum(
        row.evidence.num_samples for row in choice.rows if table and row.params
    )


def test_times_with_two_modes_are_told_with_the_plan_in_both_ways():
    choice = choose(FakeBench(outlying(factors({FAST: 3.0}), every=3, factor=1.6), noise=0.005), [FAST])
    (warning,) = [one for one in choice.warnings if "two modes" in one]
    assert warning.startswith("times have two modes at 1 KiB (default: ")
    assert f"1 KiB ({FAST.label}: " in warning
    assert ", two modes at 1 KiB, " in said_of_samples(choice)


def test_a_speed_that_changes_slowly_is_told_with_the_plan():
    bench = FakeBench(lambda candidate, size: None, noise=0.01)
    bench.true_s = lambda candidate, size: (
        factors({FAST: 3.0})(candidate, size) * (1.5 + np.sin(bench.clock_s / 2))
    )
    choice = choose(bench, [FAST])
    assert any(one.startswith("the default's samples follow one another at ") for one in choice.warnings)
    assert float(re.search(r"correlate by up to (\d\.\d+)", said_of_samples(choice))[1]) > 0.6


def test_quiet_samples_are_said_to_be_so_and_warn_of_nothing():
    choice = choose(FakeBench(factors({FAST: 3.0}), noise=0.02), [FAST])
    assert re.fullmatch(
        r"samples: \d\.\d% of \d+ were outliers, none was removed, neighbours correlate by up to 0\.\d+ "
        r"\(\d+ (KiB|MiB|B)\), none has two modes, 0 dropped because a rank missed the common start",
        said_of_samples(choice),
    )
    assert choice.warnings == ()


def test_times_that_contradict_each_other_are_told_with_the_plan():
    bench = FakeBench(lambda candidate, size: 0.02 if size == SIZES[1] else 0.005, noise=0.02)
    choice = choose(bench, [])
    assert any(
        one.startswith("a larger message is faster") and "the default takes" in one and "at 4 KiB" in one
        for one in choice.warnings
    ), choice.warnings


def test_what_the_rows_run_is_kept_where_it_was_timed_afresh():
    choice = choose(FakeBench(factors({FAST: 3.0}), noise=0.02), [FAST])
    default, planned = choice.timed["the default"], choice.timed["the plan"]
    assert set(default) >= set(SIZES)
    assert all(planned[one.message_bytes] != default[one.message_bytes] for one in choice.confirmations)
    assert planned[SIZES[2]].median_s == pytest.approx(default_time(SIZES[2]) / 3, rel=0.05)


def test_times_below_one_message_between_nodes_are_told_with_the_plan():
    choice = choose(FakeBench(factors({}), noise=0.02), [], limit=replace(NO_LIMIT, latency_s=1.0))
    assert any(one.startswith("a time is below that of one message between nodes") for one in choice.warnings)


def test_no_candidates_give_a_default_table_with_evidence():
    rows = choose(FakeBench(factors({})), []).rows
    assert_tiles(rows)
    assert {row.algorithm for row in rows} == {"default"}
    assert [row.evidence.measured_bytes for row in rows] == list(SIZES)


def test_rows_are_held_against_the_bound():
    cut = Bottleneck(text="memory of the node", cut=("rank 0",))
    rows = choose(
        FakeBench(factors({FAST: 3.0}), noise=0.01),
        [FAST],
        limit=Limit(time_s=lambda size: size / 1e9, bottleneck=cut),
    ).rows
    row = chosen_at(rows, 1 << 18)
    expected = 100 * (row.evidence.measured_bytes / 1e9) / row.evidence.median_s
    assert row.percent_of_optimum == pytest.approx(expected)
    assert row.bottleneck == cut
    assert row.no_bound_reason is None
    assert rows[-1].no_bound_reason == "not measured in this range"


def test_the_same_seed_gives_the_same_table():
    def once():
        return choose(FakeBench(factors({FAST: 3.0, TREE: 2.9}), noise=0.2), [FAST, TREE], seed=7)

    assert once() == once()


def test_progress_tells_phases_in_order_and_ends_with_done():
    reports = []
    choose(FakeBench(factors({FAST: 3.0})), [FAST], reports=reports)
    phases = list(dict.fromkeys(report.phase for report in reports))
    assert phases == ["pilot", "search", "conditions", "confirm", "dispatch", "done"]
    assert all(0 <= before.done <= after.done <= 1 for before, after in pairwise(reports))
    assert reports[-1].best[4096].algorithm == FAST.label


def test_every_trial_stands_in_the_journal(tmp_path):
    bench = FakeBench(factors({FAST: 3.0, TREE: 2.0}))
    with Journal(tmp_path / "journal", {"seed": 0}) as journal:
        choose(bench, [FAST, TREE], journal=journal)
    contents = read_journal(tmp_path / "journal")
    assert contents.unfinished == {}
    assert contents.problems == ()
    recorded = sum(len(one.outcome.get("times_s", [])) for one in contents.finished)
    assert recorded == sum(len(block.orders) for block in bench.blocks)
    assert sum(one.trial["kind"] == "check" for one in contents.finished) == len(bench.checks)


def test_a_size_that_there_is_no_time_to_confirm_at_is_not_searched_and_inherits():
    def true_s(candidate, size):
        return size / 2e7 / (2.0 if candidate == FAST else 1.0)

    sizes = (65536, 262144, 1 << 20, 1 << 22)
    bench = FakeBench(true_s, noise=0.02)
    # A call at 4 MiB takes 0.21 s, less than a hundredth of the budget, but confirming it a third of it.
    choice = choose(bench, [FAST, TREE], budget_s=26.0, sizes=sizes, predicted_s=true_s)
    searched = {block.message_bytes for block in bench.blocks if len(block.arms) > 1}
    assert max(searched) == 1 << 20
    assert chosen_at(choice.rows, 1 << 22).algorithm == FAST.algorithm
    assert chosen_at(choice.rows, 1 << 22).evidence.extrapolated
    assert any(
        "from 4 MiB on there is no time to confirm a candidate within" in one for one in choice.warnings
    )


def test_what_rounds_take_beside_their_calls_is_learnt_from_calls_that_take_about_as_long():
    sampling = Sampling(
        bench=FakeBench(lambda _arm, size: size * 1e-6, noise=0.0, block_s=0.01), rng=np.random.default_rng(0)
    )
    unknown = sampling.stretch(1e-3)
    sampling.rounds("pilot", 1000, (DEFAULT,), 12, first_guess_s=1e-3)
    sampling.rounds("pilot", 100_000, (DEFAULT,), 12, first_guess_s=0.1)
    assert sampling.stretch(1e-3) > sampling.stretch(0.1) >= 1.0
    assert sampling.stretch(0.1) < 1.3
    assert sampling.stretch(5.0) == unknown == 1.45

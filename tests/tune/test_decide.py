"""Rows claim nothing beyond what was confirmed, and always tile every size."""

import math
from itertools import pairwise

import numpy as np
import pytest
from fake_bench import FAST, RECURSIVE, TREE, FakeBench, usual_stretch
from hypothesis import given
from hypothesis import strategies as st

from topotune.plan.model import Bottleneck, Group, GroupShape
from topotune.tune.confirm import confirm
from topotune.tune.decide import DefaultTime, Limit, confirmed_spans, decide_rows
from topotune.tune.finalists import Conditions, choose_finalists
from topotune.tune.judge import Confirmation
from topotune.tune.plan_rounds import interpolated, least_confirmation_s, plan_confirmation
from topotune.tune.points import confirmation_points, odd_between
from topotune.tune.sampling import Sampling
from topotune.tune.search import Standing
from topotune.tune.statistics import Comparison
from topotune.tune.trial import DEFAULT

LIMIT = Limit(no_bound_reason="made up")
K = 1024


def comparison(ratio=2.0, low=None, high=None, rounds=20):
    return Comparison(
        default_median_s=ratio * 1e-3,
        median_s=1e-3,
        ratio=ratio,
        low=ratio / 1.1 if low is None else low,
        high=ratio * 1.1 if high is None else high,
        num_rounds=rounds,
        outlier_share=0.0,
    )


def confirmed(candidate, size, *, passed=True, searched=None):
    return Confirmation(
        message_bytes=size,
        candidate=candidate,
        comparison=comparison(),
        passed=passed,
        searched=size % K == 0 if searched is None else searched,
    )


def standing(candidate, ratio, *, spread=0.05, low=None, high=None):
    return Standing(
        candidate=candidate,
        comparison=comparison(ratio, low, high),
        log_spread=spread,
        dropped=False,
    )


def defaults(*sizes):
    return {size: DefaultTime(median_s=2e-3, num_samples=9) for size in sizes}


def table(confirmations, *sizes, tested=()):
    rows = decide_rows(confirmations, defaults(*sizes), limit=LIMIT, tested_bytes=tested)
    return [(row.min_bytes, row.max_bytes, row.algorithm) for row in rows]


ODD = odd_between(K, 4 * K)
ODD_2 = odd_between(4 * K, 16 * K)


@pytest.mark.parametrize(
    ("confirmations", "expected"),
    [
        ([], [(0, 4 * K, "default"), (4 * K, 16 * K, "default"), (16 * K, None, "default")]),
        (
            [confirmed(FAST, size) for size in (K, ODD, 4 * K)],
            [
                (0, K, "default"),
                (K, 4 * K + 1, "ring"),
                (4 * K + 1, None, "default"),
            ],
        ),
        (
            [confirmed(FAST, size) for size in (K, ODD, 4 * K, ODD_2, 16 * K)],
            [
                (0, K, "default"),
                (K, 4 * K, "ring"),
                (4 * K, 16 * K + 1, "ring"),
                (16 * K + 1, None, "default"),
            ],
        ),
        (
            [confirmed(FAST, K), confirmed(FAST, 4 * K)],
            [(0, 4 * K, "default"), (4 * K, 16 * K, "default"), (16 * K, None, "default")],
        ),
        (
            [confirmed(FAST, K), confirmed(FAST, ODD, passed=False), confirmed(FAST, 4 * K)],
            [(0, 4 * K, "default"), (4 * K, 16 * K, "default"), (16 * K, None, "default")],
        ),
        (
            [confirmed(FAST, size) for size in (K, ODD, 4 * K, ODD_2)]
            + [confirmed(TREE, ODD_2, passed=False), confirmed(TREE, 16 * K)],
            [(0, K, "default"), (K, ODD_2 + 1, "ring"), (ODD_2 + 1, None, "default")],
        ),
        (
            [confirmed(FAST, size) for size in (K, ODD, 4 * K, ODD_2)]
            + [confirmed(TREE, size) for size in (ODD_2, odd_between(ODD_2, 16 * K), 16 * K)],
            [
                (0, K, "default"),
                (K, ODD_2, "ring"),
                (ODD_2, 16 * K + 1, "double_binary_tree"),
                (16 * K + 1, None, "default"),
            ],
        ),
    ],
    ids=[
        "nothing confirmed",
        "two ends and an odd size inside",
        "three sizes give two rows",
        "no odd size inside",
        "the odd size failed",
        "reaches the boundary that the neighbour lost",
        "both hold at the boundary",
    ],
)
def test_rows_end_where_confirmation_ends(confirmations, expected):
    assert table(confirmations, K, 4 * K, 16 * K) == expected


def test_a_size_with_another_finalist_ends_a_range():
    # The same candidate won at 1, 4 and 64 KiB, the default at 16 KiB: nothing is claimed across it.
    sizes = (K, 4 * K, 16 * K, 64 * K)
    odd = [odd_between(low, high) for low, high in pairwise(sizes)]
    confirmations = [confirmed(FAST, size) for size in (K, odd[0], 4 * K, odd[1], odd[2], 64 * K)]
    spans = confirmed_spans(confirmations, sizes)
    assert [(span.first_bytes, span.last_bytes) for span in spans] == [(K, odd[1])]


def test_a_point_that_time_ran_out_for_ends_a_range():
    confirmations = [confirmed(FAST, size) for size in (K, ODD, 4 * K, 16 * K)]
    rows = table(confirmations, K, 4 * K, 16 * K, tested=[ODD_2])
    assert [row for row in rows if row[2] == "ring"] == [(K, 4 * K + 1, "ring")]


def test_the_prediction_stands_beside_the_measured_default_too():
    rows = decide_rows([], defaults(K, 4 * K), limit=Limit(), predicted_s=lambda candidate, size: size * 1e-6)
    predicted = [row.evidence.predicted_s for row in rows if row.evidence]
    assert predicted == [K * 1e-6, 4 * K * 1e-6]


def test_a_row_carries_the_evidence_of_its_searched_size():
    conditions = {(K, FAST): Conditions(backward=comparison(1.2), busy_ratio=0.9)}
    rows = decide_rows(
        [confirmed(FAST, size) for size in (K, ODD, 4 * K)],
        defaults(K, 4 * K),
        limit=Limit(time_s=lambda size: 1e-4, bottleneck=Bottleneck(text="link of node b", cut=("rank 1",))),
        conditions=conditions,
        predicted_s=lambda candidate, size: 7e-4,
    )
    row = rows[1]
    assert row.evidence.measured_bytes == K
    assert row.evidence.ratio == 2.0
    assert row.evidence.ratio_ci == (2.0 / 1.1, 2.0 * 1.1)
    assert row.evidence.confirmed_bytes == (K, ODD, 4 * K)
    assert row.evidence.predicted_s == 7e-4
    assert row.evidence.backward_ratio_ci == (1.2 / 1.1, 1.2 * 1.1)
    assert row.evidence.busy_ratio == 0.9
    assert row.percent_of_optimum == pytest.approx(10.0)
    assert row.bottleneck.text == "link of node b"
    assert rows[2].no_bound_reason == "not measured in this range"
    assert (rows[2].percent_of_optimum, rows[2].bottleneck) == (None, row.bottleneck)


SIZES = (K, 4 * K, 16 * K, 64 * K, 256 * K)


@given(
    winners=st.lists(
        st.sampled_from([DEFAULT, FAST, TREE, RECURSIVE]), min_size=len(SIZES), max_size=len(SIZES)
    ),
    short=st.frozensets(st.sampled_from(SIZES)),
    close=st.booleans(),
    last_apart=st.booleans(),
    data=st.data(),
)
def test_rows_tile_every_size_and_hold_only_where_confirmed(winners, short, close, last_apart, data):
    points = confirmation_points(
        dict(zip(SIZES, winners, strict=True)), short=short, close=close, last_apart=last_apart
    )
    confirmations = [
        confirmed(candidate, point.message_bytes, passed=data.draw(st.booleans()), searched=point.searched)
        for point in points
        for candidate in point.candidates
    ]
    rows = decide_rows(
        confirmations,
        defaults(*SIZES),
        limit=LIMIT,
        tested_bytes=[point.message_bytes for point in points],
    )
    # The plan's own rules: whole, without gaps or overlaps, known algorithms.
    Group(shape=GroupShape(num_ranks=4, num_nodes=1, ranks_per_node=4, stride=1), allreduce=rows)
    passed = {(one.candidate.algorithm, one.message_bytes) for one in confirmations if one.passed}
    for row in rows:
        if row.algorithm == "default":
            continue
        ends = row.evidence.confirmed_bytes
        assert ends[0] == row.min_bytes
        assert ends[-1] in (row.max_bytes, row.max_bytes - 1)
        assert any(size // 4 % 2 for size in ends[1:-1])
        assert all((row.algorithm, size) in passed for size in ends)


def row_at(rows, size):
    return next(row for row in rows if row.min_bytes <= size and (row.max_bytes or math.inf) > size)


@given(
    winners=st.lists(st.sampled_from([DEFAULT, FAST, TREE]), min_size=1, max_size=5),
    short=st.frozensets(st.sampled_from(SIZES)),
    close=st.booleans(),
    last_apart=st.booleans(),
)
def test_if_everything_is_confirmed_every_finalist_gets_a_row_at_its_size(winners, short, close, last_apart):
    finalists = dict(zip(SIZES, winners, strict=False))
    points = confirmation_points(finalists, short=short, close=close, last_apart=last_apart)
    confirmations = [
        confirmed(candidate, point.message_bytes, searched=point.searched)
        for point in points
        for candidate in point.candidates
    ]
    rows = decide_rows(confirmations, defaults(*finalists), limit=LIMIT)
    for size, winner in finalists.items():
        assert row_at(rows, size).algorithm == winner.algorithm


def rows_where_all_pass_but(failing, points, sizes):
    confirmations = [
        confirmed(
            candidate,
            point.message_bytes,
            passed=point.message_bytes not in failing,
            searched=point.searched,
        )
        for point in points
        for candidate in point.candidates
    ]
    return decide_rows(
        confirmations,
        defaults(*sizes),
        limit=LIMIT,
        tested_bytes=[point.message_bytes for point in points],
    )


def test_a_single_size_keeps_a_row_where_its_gain_ends_before_the_boundary():
    finalists = {K: DEFAULT, 4 * K: FAST}
    points = confirmation_points(finalists)
    boundary = odd_between(K, 4 * K)
    row = row_at(rows_where_all_pass_but({boundary}, points, finalists), 4 * K)
    assert (row.algorithm, row.min_bytes) == (FAST.algorithm, odd_between(boundary, 4 * K))


def test_the_largest_size_keeps_a_row_although_its_candidate_fails_at_all_smaller_ones():
    finalists = dict.fromkeys((K, 4 * K, 16 * K), FAST)
    failing = {K, odd_between(K, 4 * K), 4 * K}
    points = confirmation_points(finalists, last_apart=True)
    row = row_at(rows_where_all_pass_but(failing, points, finalists), 16 * K)
    assert (row.algorithm, row.min_bytes) == (FAST.algorithm, odd_between(4 * K, 16 * K))
    assert len(points) == len(confirmation_points(finalists)) + 1


def test_where_time_is_short_a_single_size_reaches_halfway_to_the_default_and_a_switch_stays_whole():
    finalists = {K: DEFAULT, 4 * K: FAST, 16 * K: TREE, 64 * K: TREE}
    far, close = (
        {point.message_bytes: set(point.candidates) for point in confirmation_points(finalists, close=close)}
        for close in (False, True)
    )
    before, switch = odd_between(K, 4 * K), odd_between(4 * K, 16 * K)
    assert far[before] == {FAST}
    assert before not in close
    assert far[switch] == close[switch] == {FAST, TREE}
    assert len(close) == len(far) - 2
    rows = rows_where_all_pass_but((), confirmation_points(finalists, close=True), finalists)
    assert [row_at(rows, size).algorithm for size in finalists] == [
        one.algorithm for one in finalists.values()
    ]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1024, 4096, 2052), (4, 8, None), (4, 16, 12), (1024, 1028, None), (1 << 20, 1 << 22, (1 << 21) + 4)],
)
def test_an_odd_size_lies_strictly_between(low, high, expected):
    assert odd_between(low, high) == expected


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([(3.0, 1.0), (3.0, 1.0), (3.0, 1.0)], [FAST, FAST, FAST]),
        ([(3.0, 1.0), (2.9, 3.0), (3.0, 1.0)], [FAST, FAST, FAST]),
        ([(3.0, 1.0), (1.0, 9.0), (3.0, 1.0)], [FAST, TREE, FAST]),
        ([(3.0, 1.0), (2.9, 3.0), (2.9, 3.0)], [FAST, FAST, FAST]),
        ([(3.0, 1.0), (1.0, 3.0), (1.0, 3.0)], [FAST, TREE, TREE]),
        ([(0.9, 0.8), (1.01, 0.9), (0.9, 0.8)], [DEFAULT, DEFAULT, DEFAULT]),
        ([(3.0, 1.0), (0.5, 0.9), (3.0, 1.0)], [FAST, DEFAULT, FAST]),
    ],
    ids=[
        "one wins everywhere",
        "an unclear advantage moves nothing",
        "a clear one does",
        "unclear at two sizes: either is fine, no switch is cheaper",
        "a crossing",
        "gains below the margin are none",
        "where none gains the default stays",
    ],
)
def test_finalists_switch_only_where_it_pays(ratios, expected):
    sizes = SIZES[: len(ratios)]
    standings = {
        size: [standing(FAST, fast), standing(TREE, tree)]
        for size, (fast, tree) in zip(sizes, ratios, strict=True)
    }
    assert list(choose_finalists(standings, min_gain=0.02).values()) == expected


def established(candidate, ratio):
    return standing(candidate, ratio, low=ratio * 0.999, high=ratio * 1.001)


@pytest.mark.parametrize(
    ("tree_ahead_at", "is_established", "too_little", "enough"),
    [
        ((1,), True, 1.09, 1.12),
        ((2,), True, 1.04, 1.06),
        ((0,), True, 1.04, 1.06),
        ((0, 1), True, 1.02, 1.03),
        ((1,), False, 1.19, 1.25),
        ((2,), False, 1.09, 1.12),
    ],
    ids=[
        "at a size between two, 10 %",
        "at the last size, 5 %",
        "at the first size, 5 %",
        "at the first two sizes, 5 % together",
        "twice as much where it is not established, between two",
        "twice as much where it is not established, at the last",
    ],
)
def test_a_change_of_finalist_costs_five_percent(tree_ahead_at, is_established, too_little, enough):
    def chosen(gain):
        tree = {index: 1.5 * (gain if index in tree_ahead_at else 0.7) for index in range(3)}
        arm = established if is_established else standing
        standings = {SIZES[index]: [arm(FAST, 1.5), arm(TREE, ratio)] for index, ratio in tree.items()}
        return list(choose_finalists(standings, min_gain=0.02).values())

    assert chosen(too_little) == [FAST] * 3
    assert chosen(enough) == [TREE if index in tree_ahead_at else FAST for index in range(3)]


@pytest.mark.parametrize(("gain", "expected"), [(1.04, DEFAULT), (1.06, FAST)], ids=["4 %", "6 %"])
def test_a_departure_from_the_default_at_one_end_costs_five_percent_too(gain, expected):
    standings = {K: [established(FAST, 0.9)], 4 * K: [established(FAST, gain)]}
    assert choose_finalists(standings, min_gain=0.02) == {K: DEFAULT, 4 * K: expected}


def test_an_unfit_finalist_gives_way_to_the_next():
    standings = {K: [standing(FAST, 3.0), standing(TREE, 2.0)]}
    chosen = choose_finalists(standings, min_gain=0.02, unfit=frozenset({(K, FAST)}))
    assert chosen == {K: TREE}


def test_confirmation_gives_up_costly_sizes_first_when_time_is_short():
    finalists = dict.fromkeys(SIZES, FAST)
    standings = {size: [standing(FAST, 2.0)] for size in SIZES}
    default_s = {size: size / 1e6 for size in SIZES}
    whole = plan_confirmation(
        finalists, standings, default_s, min_gain=0.02, budget_s=1e3, stretch=usual_stretch
    )
    assert whole.kept == finalists
    assert whole.several_looks
    plan = plan_confirmation(
        finalists, standings, default_s, min_gain=0.02, budget_s=1.5, stretch=usual_stretch
    )
    assert [plan.kept[size] for size in SIZES[-2:]] == [DEFAULT, DEFAULT]
    assert plan.kept[K] == FAST
    assert 0 < sum(point.num_rounds * point.round_s for point in plan.points) <= 1.5
    assert not plan.several_looks, "what is too much for one look leaves no time for another"
    nothing = plan_confirmation(
        finalists, standings, default_s, min_gain=0.02, budget_s=-1.0, stretch=usual_stretch
    )
    assert (nothing.points, nothing.first_look_s) == ((), 0.0)
    assert len(whole.points) > len(plan.points)


def test_sizes_that_matter_more_to_the_job_get_more_of_the_rounds():
    finalists = dict.fromkeys(SIZES, FAST)
    standings = {size: [standing(FAST, 1.2, spread=0.2)] for size in SIZES}
    default_s = dict.fromkeys(SIZES, 0.01)

    def rounds_at_the_first(weights):
        plan = plan_confirmation(
            finalists,
            standings,
            default_s,
            min_gain=0.02,
            budget_s=24.0,
            stretch=usual_stretch,
            weights=weights,
        )
        assert plan.kept == finalists
        return plan.points[0].num_rounds / sum(point.num_rounds for point in plan.points)

    heavier = {size: 4.0 if size == SIZES[0] else 1.0 for size in SIZES}
    assert rounds_at_the_first(heavier) > 1.5 * rounds_at_the_first(dict.fromkeys(SIZES, 1.0))
    assert rounds_at_the_first(dict.fromkeys(SIZES, 1.0)) == rounds_at_the_first(None)


def test_only_a_largest_size_that_stands_for_larger_ones_gets_points_for_a_row_of_its_own():
    finalists = dict.fromkeys(SIZES, FAST)
    standings = {size: [standing(FAST, 2.0)] for size in SIZES}
    default_s = dict.fromkeys(SIZES, 1e-3)
    apart = odd_between(odd_between(*SIZES[-2:]), SIZES[-1])

    def points(last_weight):
        weights = {**dict.fromkeys(SIZES, 1.0), SIZES[-1]: last_weight}
        plan = plan_confirmation(
            finalists,
            standings,
            default_s,
            min_gain=0.02,
            budget_s=1e3,
            stretch=usual_stretch,
            weights=weights,
        )
        return {point.message_bytes for point in plan.points}

    assert points(3.0) - points(1.0) == {apart}


def test_a_row_ends_at_its_largest_size_before_that_size_is_given_up():
    finalists = {K: FAST, 4 * K: TREE, 16 * K: DEFAULT}
    standings = {size: [standing(FAST, 2.0), standing(TREE, 2.0)] for size in finalists}
    default_s = {K: 1e-3, 4 * K: 4e-3, 16 * K: 1.0}
    whole = plan_confirmation(
        finalists, standings, default_s, min_gain=0.02, budget_s=100.0, stretch=usual_stretch
    )
    plan = plan_confirmation(
        finalists, standings, default_s, min_gain=0.02, budget_s=1.2, stretch=usual_stretch
    )
    points = plan.points
    assert plan.kept == finalists
    assert max(point.message_bytes for point in whole.points) > 4 * K
    assert max(point.message_bytes for point in points) == 4 * K
    confirmations = [
        confirmed(candidate, point.message_bytes, searched=point.searched)
        for point in points
        for candidate in point.candidates
    ]
    rows = decide_rows(confirmations, defaults(*finalists), limit=LIMIT)
    assert row_at(rows, 4 * K).algorithm == TREE.algorithm


@pytest.mark.parametrize(
    ("backward", "busy_ratio", "problem"),
    [
        (comparison(1.1), 1.0, None),
        (comparison(0.98), 0.6, None),
        (comparison(0.8), 1.0, "slower than the default in a backward (ratio at most 0.88)"),
        (comparison(1.1), 0.4, "2.5 times as slow as the default while the main thread runs Python"),
    ],
)
def test_what_training_does_to_a_candidate_can_rule_it_out(backward, busy_ratio, problem):
    assert Conditions(backward=backward, busy_ratio=busy_ratio).problem == problem


def test_a_machine_that_turns_slow_costs_every_point_some_rounds_and_none_all_of_them():
    plan = plan_confirmation(
        dict.fromkeys(SIZES, FAST),
        {size: [standing(FAST, 2.0)] for size in SIZES},
        dict.fromkeys(SIZES, 1e-3),
        min_gain=0.02,
        budget_s=1.0,
        stretch=usual_stretch,
    )
    points = plan.points
    # Every call takes three times as long as it did in the search.
    bench = FakeBench(lambda candidate, size: 3e-3 if candidate == DEFAULT else 1.5e-3)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    found = confirm(points, sampling, min_gain=0.02, seed=0, deadline_s=1.0)
    assert [one.message_bytes for one in found] == [point.message_bytes for point in points]
    rounds = [one.comparison.num_rounds for one in found]
    assert min(rounds) > 0.3 * max(rounds)
    assert max(rounds) < max(point.num_rounds for point in points)
    assert bench.clock_s < 1.1


def test_what_checks_take_does_not_cut_points_below_the_rounds_that_bound_an_interval():
    default_s = {K: 0.05, 4 * K: 0.4, 16 * K: 0.8}
    finalists = dict.fromkeys(default_s, FAST)
    standings = {size: [standing(FAST, 2.0)] for size in default_s}
    budget_s = 1.2 * least_confirmation_s(
        finalists, standings, default_s, min_gain=0.02, stretch=usual_stretch
    )
    plan = plan_confirmation(
        finalists, standings, default_s, min_gain=0.02, budget_s=budget_s, stretch=usual_stretch
    )
    assert plan.kept == finalists
    assert not plan.several_looks
    points = plan.points
    bench = FakeBench(lambda candidate, size: interpolated(default_s, size) / (1 + (candidate == FAST)))
    check = bench.check

    def slow_check(*arguments, **limits):
        bench.clock_s += 1.0
        return check(*arguments, **limits)

    bench.check = slow_check
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    found = confirm(points, sampling, min_gain=0.02, seed=0, deadline_s=budget_s)
    assert min(one.comparison.num_rounds for one in found) >= min(point.num_rounds for point in points)
    assert [one.passed for one in found] == [True] * len(points)


def test_one_long_size_does_not_starve_the_others():
    default_s = {K: 1e-3, 4 * K: 1e-3, 16 * K: 0.1}
    standings = {size: [standing(FAST, 2.0)] for size in default_s}
    plan = plan_confirmation(
        dict.fromkeys(default_s, FAST),
        standings,
        default_s,
        min_gain=0.02,
        budget_s=2.6,
        stretch=usual_stretch,
    )
    assert plan.kept == {K: FAST, 4 * K: FAST, 16 * K: DEFAULT}
    assert min(point.num_rounds for point in plan.points if point.message_bytes <= 4 * K) > 50
    # Alone, it gets all the time there is.
    plan = plan_confirmation(
        {16 * K: FAST}, standings, default_s, min_gain=0.02, budget_s=12.0, stretch=usual_stretch
    )
    assert plan.kept == {16 * K: FAST}
    assert all(point.num_rounds >= 9 for point in plan.points)

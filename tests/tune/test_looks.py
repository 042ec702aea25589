"""Several looks at confirmation: close rows get more samples, at the same rate of false wins."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fake_bench import FAST, TREE, FakeBench

from topotune.tune.confirm import Passes, confirm, judge_in_looks
from topotune.tune.decide import Limit, confirmed_spans, decide_rows
from topotune.tune.judge import PASSES, Confirmation, Point, judge
from topotune.tune.looks import NEAR, error_share, more_samples, next_visits, passes_of, points_near
from topotune.tune.points import odd_between
from topotune.tune.resume import DEATHS
from topotune.tune.sampling import Sampling
from topotune.tune.statistics import Comparison
from topotune.tune.trial import DEFAULT, TWIN

K = 1024
CALL_S = 1e-3


FASTER, SLOWER = (
    Comparison(
        default_median_s=CALL_S,
        median_s=CALL_S / ratio,
        ratio=ratio,
        low=0.95 * ratio,
        high=ratio / 0.95,
        num_rounds=24,
        outlier_share=0.0,
    )
    for ratio in (1.2, 0.9)
)


def point(size=K, *candidates, rounds=24, weight=1.0):
    return Point(
        message_bytes=size,
        candidates=candidates or (FAST,),
        searched=False,
        num_rounds=rounds,
        round_s=2 * CALL_S,
        call_s=CALL_S,
        weight=weight,
    )


def bench_of(ratios, **options):
    return FakeBench(lambda arm, _size: CALL_S / ratios.get(arm, 1.0), **options)


def passes_through(points, bench, *, deadline_s=1e9, seed=0):
    """The first passes of points, and their indices."""
    sampling = Sampling(bench=bench, rng=np.random.default_rng(seed), limit_s=lambda _one, _size: 10.0)
    passes = Passes(sampling, deadline_s=deadline_s)
    indices = passes.add(points, fewest=12)
    passes.run(dict.fromkeys(indices, PASSES))
    return passes, indices


def in_looks(passes, indices, *, min_gain=0.02, deadline_s=1e9, num_comparisons=None):
    return judge_in_looks(
        passes,
        indices,
        num_comparisons=num_comparisons or len(indices),
        fewest=12,
        min_gain=min_gain,
        seed=0,
        until_s=deadline_s,
    )


def looked_at(points, bench, *, deadline_s=1e9, seed=0, **options):
    passes, indices = passes_through(points, bench, deadline_s=deadline_s, seed=seed)
    return in_looks(passes, indices, deadline_s=deadline_s, **options)


def test_all_looks_together_spend_no_more_than_the_error_rate():
    shares = [error_share(look) for look in range(40)]
    assert shares[0] == 0.5
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1.0


def test_each_look_comes_after_twice_the_passes():
    so_far = np.cumsum([passes_of(look) for look in range(5)])
    assert so_far.tolist() == [6, 12, 24, 48, 96]


def test_a_close_row_passes_in_a_later_look_and_a_clear_one_in_the_first():
    bench = bench_of({FAST: 1.045, TREE: 1.5}, noise=0.05)
    close, clear = looked_at([point(K, FAST), point(4 * K, TREE)], bench)
    assert close.passed
    assert clear.passed
    assert len(clear.blocks) == PASSES
    assert len(close.blocks) >= 2 * PASSES
    assert close.comparison.num_rounds == 24 * len(close.blocks) // PASSES
    sampling = Sampling(bench=bench_of({FAST: 1.045}, noise=0.05), rng=np.random.default_rng(0))
    (only,) = confirm([point(K, FAST)], sampling, min_gain=0.02, seed=0, deadline_s=1e9)
    assert not only.passed
    assert len(only.blocks) == PASSES


@pytest.mark.parametrize("ratio", [0.7, 1.0])
def test_a_row_that_is_not_faster_gets_few_looks(ratio):
    (found,) = looked_at([point(K, FAST)], bench_of({FAST: ratio}, noise=0.05))
    assert not found.passed
    assert len(found.blocks) <= 8 * PASSES


def test_no_look_is_taken_that_there_is_no_time_for():
    def num_blocks(deadline_s):
        bench = bench_of({FAST: 1.04}, noise=0.1)
        (found,) = looked_at([point(K, FAST)], bench, deadline_s=deadline_s)
        assert bench.clock_s <= deadline_s
        return len(found.blocks)

    # A look takes 48 calls of 1 ms, 6 blocks of 2 ms, and 6 times new connections of 20 ms.
    assert [num_blocks(deadline_s) for deadline_s in (0.3, 0.8)] == [PASSES, 2 * PASSES]


def test_time_goes_to_the_point_that_it_most_likely_decides():
    def found(ratio, low):
        compared = Comparison(
            default_median_s=CALL_S, median_s=CALL_S / ratio, ratio=ratio, low=low, high=ratio**2 / low,
            num_rounds=24, outlier_share=0.0,
        )  # fmt: skip
        return Confirmation(
            message_bytes=K, candidate=FAST, comparison=compared, passed=low > 1.02, searched=True
        )

    points = [point(K), point(2 * K), point(3 * K), point(4 * K), point(5 * K, weight=4.0)]
    last = [found(1.04, 0.96), found(1.1, 1.01), found(1.5, 1.3), found(0.9, 0.85), found(1.04, 0.96)]
    by_point = {(index, FAST): one for index, one in enumerate(last)}
    cost_s = points[0].passes_s(PASSES)

    def chosen(num_affordable):
        visits = next_visits(
            dict(enumerate(points)),
            dict.fromkeys(range(len(points)), 1),
            by_point,
            min_gain=0.02,
            num_near=0,
            slowness=1.0,
            renewal_s=0.0,
            time_s=(num_affordable + 0.1) * cost_s,
        )
        return sorted(index for one in visits for index in one.indices)

    assert [chosen(number) for number in range(5)] == [[], [4], [1, 4], [0, 1, 4], [0, 1, 4]]
    assert more_samples(last[0], 1.02) > more_samples(last[1], 1.02) >= 1
    assert math.isinf(more_samples(last[3], 1.02))


def test_what_passed_leaves_the_correction_of_later_looks():
    # One close row among twenty passes sooner beside 19 that have passed than beside 19 that never do.
    def num_blocks(other_ratio):
        ratios = {FAST: 1.06, TREE: other_ratio}
        points = [point(K, FAST), *(point(size * K, TREE) for size in range(2, 21))]
        return len(looked_at(points, bench_of(ratios, noise=0.06, seed=3))[0].blocks)

    assert num_blocks(1.6) < num_blocks(0.9)


def test_a_candidate_that_is_cut_off_in_later_passes_does_not_pass():
    bench = bench_of({FAST: 1.5, TREE: 1.04}, noise=0.05, seed=1)
    passes, indices = passes_through([point(K, FAST, TREE)], bench)
    bench.hangs = lambda arm, _size, _condition: arm == FAST
    found = in_looks(passes, indices, num_comparisons=2)
    assert FAST not in {one.candidate for one in found}, "it had passed the first look"
    assert [one.candidate for one in found] == [TREE]


def test_looking_again_lets_the_default_win_against_itself_no_more_often():
    """Six connections each of a luck of their own, many looks: 5 % of runs may have a false win."""
    runs, wins, looks = 80, 0, 0
    for run in range(runs):
        luck = np.random.default_rng(run)
        own = {DEFAULT: 1.0, TWIN: 1.0}
        bench = FakeBench(lambda arm, _size, own=own: CALL_S * own[arm], noise=0.05, seed=run)

        def renewed(bench=bench, luck=luck, own=own, anew=bench.renew):
            anew()
            own.update({arm: math.exp(luck.normal(0, 0.03)) for arm in (DEFAULT, TWIN)})

        bench.renew = renewed
        # The margin is 0: the worst case of the null.
        (found,) = looked_at([point(K, TWIN)], bench, min_gain=0.0, deadline_s=1.0, seed=run)
        wins += found.passed
        looks += len(found.blocks) > PASSES
    assert looks > runs / 4, "many went on"
    assert wins <= 6, "of 80: 2.5 % are 2, and more than 6 are one case in 200"


def test_what_larger_sizes_inherit_from_is_looked_at_until_its_interval_speaks_for_them():
    bench = bench_of({FAST: 1.15}, noise=0.05, seed=2)
    points = [point(K, FAST), replace(point(4 * K, FAST), aim=1.12)]
    first, last = looked_at(points, bench)
    assert first.passed
    assert last.passed
    assert len(first.blocks) < len(last.blocks)
    assert last.comparison.low > 1.12
    (given_up,) = looked_at([replace(point(4 * K, FAST), aim=2.0)], bench_of({FAST: 1.15}, noise=0.05))
    assert given_up.passed
    assert len(given_up.blocks) == PASSES


def test_a_size_whose_neighbours_do_not_pass_gets_points_for_a_row_of_its_own():
    odd, other = odd_between(4 * K, 16 * K), odd_between(K, 4 * K)

    def true_s(arm, size):
        return CALL_S / (1.5 if arm == FAST and 3 * K < size < 7 * K else 0.8 if arm == FAST else 1.0)

    points = [point(size, FAST) for size in (K, other, 4 * K, odd, 16 * K)]
    points = [replace(one, searched=one.message_bytes % K == 0) for one in points]
    found = looked_at(points, FakeBench(true_s, noise=0.02))
    passed = [one for one in found if one.passed]
    (span,) = confirmed_spans(found, [one.message_bytes for one in points])
    assert span.confirmed == tuple(passed)
    assert span.first_bytes == 4 * K
    assert [one.searched for one in passed] == [True, False, False]
    assert 4 * K < passed[1].message_bytes < passed[2].message_bytes < 7 * K
    rows = decide_rows(found, {}, limit=Limit(no_bound_reason="made up"))
    assert [row.algorithm for row in rows] == ["default", FAST.algorithm, "default"]


def test_ends_that_passed_without_an_odd_size_between_get_one():
    found = {
        (index, FAST): Confirmation(
            message_bytes=size,
            candidate=FAST,
            comparison=compared,
            passed=compared.low > 1.02,
            searched=False,
        )
        for index, (size, compared) in enumerate({K: FASTER, 2 * K + 4: FASTER, 4 * K: SLOWER}.items())
    }
    points = {index: point(one.message_bytes, FAST) for (index, _), one in found.items()}
    assert points_near(points, found, min_gain=0.02) == [], "there is no searched size to save"
    points[0] = replace(points[0], searched=True)
    ((new,),) = points_near(points, found, min_gain=0.02)
    assert K < new.message_bytes < 2 * K + 4
    assert new.message_bytes // 4 % 2 == 1
    assert not new.searched


def test_a_size_alone_waits_for_a_neighbour_that_may_pass_soon():
    points = {index: point(size, FAST) for index, size in enumerate((K, 2 * K + 4))}
    points[0] = replace(points[0], searched=True)

    def near(neighbour):
        found = {
            (index, FAST): Confirmation(
                message_bytes=points[index].message_bytes,
                candidate=FAST,
                comparison=compared,
                passed=compared.low > 1.02,
                searched=index == 0,
            )
            for index, compared in enumerate((FASTER, neighbour))
        }
        return points_near(points, found, min_gain=0.02)

    assert near(replace(FASTER, low=1.0)) == []
    ((inside, end),) = near(SLOWER)
    assert K < inside.message_bytes < end.message_bytes < 2 * K + 4


def test_each_look_at_a_point_spends_its_own_share_of_the_error_rate(monkeypatch):
    spent = []

    def judged(samples, **options):
        spent.extend((one.point.message_bytes, len(one.blocks), one.error_share) for one in samples)
        return judge(samples, **options)

    monkeypatch.setattr("topotune.tune.confirm.judge", judged)
    looked_at([point(K, FAST), point(4 * K, TREE)], bench_of({FAST: 1.045, TREE: 1.5}, noise=0.05))
    assert {(blocks, share) for _, blocks, share in spent} >= {(6, 0.5), (12, 0.25), (24, 0.125)}
    assert all(share == 3 / blocks for _, blocks, share in spent)
    assert [size for size, *_ in spent].count(4 * K) == 1, "what has passed is not looked at again"


def test_no_more_points_are_added_near_others_than_are_corrected_for():
    def true_s(arm, size):
        return CALL_S / (1.5 if arm == FAST and size % (4 * K) == 0 else 0.8 if arm == FAST else 1.0)

    sizes = [4 * K * 4**place for place in range(6)]
    points = [
        replace(point(size, FAST), searched=size in sizes)
        for low, high in pairwise([*sizes, 4 * sizes[-1]])
        for size in (low, odd_between(low, high))
    ]
    passes, indices = passes_through(points, FakeBench(true_s, noise=0.02))
    in_looks(passes, indices)
    assert len(passes.points) == len(points) + NEAR


def test_a_point_is_not_looked_at_until_judging_it_takes_longer_than_timing_it():
    (found,) = looked_at([point(K, FAST, rounds=96)], bench_of({FAST: 1.03}, noise=0.5))
    assert found.comparison.num_rounds <= 1536


def test_new_connections_are_paid_for_once_a_pass_however_many_points_it_has():
    points = {index: point((index + 1) * K) for index in range(3)}
    found = {
        (index, FAST): Confirmation(
            message_bytes=one.message_bytes,
            candidate=FAST,
            comparison=replace(FASTER, ratio=1.04, low=1.0, high=1.08),
            passed=False,
            searched=False,
        )
        for index, one in points.items()
    }

    def num_chosen(time_s):
        visits = next_visits(
            points,
            dict.fromkeys(points, 1),
            found,
            min_gain=0.02,
            num_near=0,
            slowness=1.0,
            renewal_s=1.0,
            time_s=time_s,
        )
        return len(visits)

    own_s = points[0].passes_s(PASSES)
    assert [num_chosen(6.0 + times * own_s) for times in (0.9, 1.1, 3.1)] == [0, 1, 3]


def test_a_candidate_that_is_cut_off_too_often_is_not_called_at_further_points():
    bench = bench_of({FAST: 1.5, TREE: 1.5}, noise=0.02)
    passes, indices = passes_through([point(size * K, FAST, TREE) for size in range(1, 9)], bench)
    bench.hangs = lambda arm, _size, _condition: arm == FAST
    passes.run(dict.fromkeys(indices, PASSES))
    assert passes.sampling.deaths[FAST] == DEATHS
    found = in_looks(passes, indices, num_comparisons=16)
    assert {one.candidate for one in found} == {TREE}, "what it won before does not count either"

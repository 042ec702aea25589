"""The default against itself: enough trials at any budget, none of them on another's rounds or luck."""

import numpy as np
import pytest
from fake_bench import FAST, SLOW, TREE, FakeBench, default_time, factors

from topotune.tune.confirm import take_samples
from topotune.tune.decide import Limit
from topotune.tune.judge import PASSES
from topotune.tune.null_trials import NullPlan, deal
from topotune.tune.options import TuneOptions
from topotune.tune.pipeline import choose_rows
from topotune.tune.sampling import Sampling
from topotune.tune.trial import TWIN

SIZES = (1024, 4096, 16384, 65536, 262144, 1 << 20, 1 << 22, 1 << 24)


def numbered_passes(num_rounds):
    """Six passes, whose times say where they stood."""
    return [
        (100.0 * number + np.arange(num_rounds), 100.0 * number + np.arange(num_rounds) + 0.5)
        for number in range(PASSES)
    ]


def test_no_two_trials_share_a_round_and_each_has_as_many_of_every_pass():
    trials = deal(numbered_passes(17), 16, np.random.default_rng(0))
    assert len(trials) == 5
    assert {len(blocks) for blocks in trials} == {PASSES}
    times_s = [time_s for blocks in trials for block in blocks for arm in block for time_s in arm]
    assert len(times_s) == len(set(times_s)) == 5 * PASSES * 3 * 2
    for blocks in trials:
        for number, (default_s, other_s) in enumerate(blocks):
            assert set(default_s // 100) == set(other_s // 100) == {number}
            assert abs(other_s - default_s) == pytest.approx([0.5] * 3), "rounds stay whole"


def test_which_arm_is_called_the_default_is_drawn_for_each_trial_and_pass():
    trials = deal(numbered_passes(300), 18, np.random.default_rng(0))
    signs = np.array([[float(np.sign(other[0] - default[0])) for default, other in one] for one in trials])
    assert abs(signs.mean()) < 0.15
    between = np.corrcoef(signs.T)
    assert np.abs(between - np.eye(PASSES)).max() < 0.35


def test_where_time_ended_before_the_last_pass_trials_are_as_long_as_ever():
    trials = deal(numbered_passes(34)[:5], 12, np.random.default_rng(0))
    assert len(trials) == 34 // 3
    assert {sum(len(default_s) for default_s, _ in blocks) for blocks in trials} == {15}
    assert deal((), 12, np.random.default_rng(0)) == []


def run_trials(plan, bench):
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    taken = take_samples(plan.points, sampling, fewest=plan.fewest, deadline_s=1e9)
    return plan.judged(taken, min_gain=0.02, seed=0)


def test_connections_that_are_lucky_do_not_make_trials_win_together():
    # In every pass the other connections are a fifth faster.
    bench = FakeBench(lambda arm, size: default_time(size) / (1.2 if arm == TWIN else 1.0), noise=0.01)
    plan = NullPlan.within(30.0, {size: default_time(size) for size in SIZES[:4]}, comparisons=4)
    nulls = run_trials(plan, bench)
    assert nulls.num_trials >= 48
    assert nulls.num_wins <= 0.1 * nulls.num_trials, "each wins where six coins fall alike, one in 64"


def test_as_many_sizes_as_enough_trials_leave_time_for():
    default_s = {size: 1e-3 * (1 + size / 1e4) for size in SIZES}
    short, long, none = (NullPlan.within(time_s, default_s, comparisons=9) for time_s in (4.0, 400.0, 0.1))
    assert [point.message_bytes for point in long.points] == list(SIZES)
    assert 0 < len(short.points) < len(SIZES)
    assert none.points == ()
    assert run_trials(none, FakeBench(factors({}))).rate is None
    assert NullPlan.within(10.0, {}, comparisons=0).points == ()


def busy_bench(**options):
    """Calls, agreements and new connections as of four ranks on two cores."""
    true_s = factors({FAST: 1.5, TREE: 1.2, SLOW: 0.7})
    return FakeBench(true_s, noise=0.15, block_s=0.015, renew_s=0.4, **options)


@pytest.mark.parametrize("candidates", [[FAST, TREE, SLOW], [SLOW]], ids=["rows depart", "none is faster"])
@pytest.mark.parametrize("slowness", [1.0, 1.8])
def test_a_plan_of_the_default_budget_carries_a_rate(candidates, slowness):
    bench = busy_bench()
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    true_s = bench.true_s

    def in_confirmation(arm, size):
        return true_s(arm, size) * (slowness if bench.renewals else 1.0)

    bench.true_s = in_confirmation
    choice = choose_rows(
        sampling,
        TuneOptions(budget_s=60.0, sizes=SIZES),
        candidates,
        predicted_s=lambda candidate, size: default_time(size),
        limit=Limit(no_bound_reason="made up"),
    )
    assert choice.certificate.num_null_trials >= 16
    assert choice.certificate.false_win_rate <= 0.1
    assert bench.clock_s <= 60.0
    assert bench.renewals == PASSES - 1, "confirmation and null trials share their connections"


def test_the_default_hardly_ever_wins_against_itself():
    plan = NullPlan.within(1e3, {size: default_time(size) for size in SIZES[:6]}, comparisons=6)
    luck = np.random.default_rng(5)

    class Luck(FakeBench):
        """Each set of connections has luck of its own."""

        def renew(self):
            super().renew()
            self.slow_down = {(TWIN, "idle"): float(np.exp(luck.normal(0, 0.1)))}

    wins = [run_trials(plan, Luck(factors({}), noise=0.1)) for _ in range(4)]
    assert sum(one.num_trials for one in wins) == 240
    assert sum(one.num_wins for one in wins) <= 3

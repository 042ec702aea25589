"""The search asks in predicted order, drops what is poor, and can be rebuilt from the journal."""

from dataclasses import replace

import numpy as np
import pytest
from fake_bench import FAST, RECURSIVE, SLOW, TREE, FakeBench, default_time, factors
from optuna.trial import TrialState

from topotune.tune.journal import Journal, read_journal
from topotune.tune.sampling import BUSY_PATIENCE, Sampling, spacing_s
from topotune.tune.search import SizeSearch, search_sizes
from topotune.tune.study import rebuild_study
from topotune.tune.trial import DEFAULT, Block, BlockTimes

SIZE = 4096


def search_of(candidates, note=lambda kind, record: None):
    return SizeSearch(
        message_bytes=SIZE, candidates=tuple(candidates), default_s=default_time(SIZE), seed=0, note=note
    )


def run(search, bench, deadline_s=1e9, journal=None):
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0), journal=journal)
    search_sizes([search], sampling, deadline_s=lambda _search: deadline_s)
    return sampling


def test_the_best_predicted_of_each_algorithm_come_first_and_all_are_asked_once():
    order = [TREE, FAST, SLOW, RECURSIVE]
    asked = [candidate for candidate, _ in search_of(order).ask(10)]
    assert asked[:3] == [TREE, FAST, RECURSIVE]
    assert sorted(asked, key=order.index) == order


def search_at(size, predicted_ms, scatter=0.05, default_s=None):
    """Of candidates whose predicted times are given, where the default's is 10 ms."""
    return SizeSearch(
        message_bytes=size,
        candidates=tuple(sorted(predicted_ms, key=predicted_ms.get)),
        default_s=default_s or default_time(size),
        seed=0,
        scatter=scatter,
        predicted_s=lambda one: 1e-3 * predicted_ms.get(one, 10.0),
    )


def test_what_was_found_at_one_size_decides_what_is_tried_first_at_the_next():
    # The model thinks SLOW the worst; at the first size it proves to be the best by far.
    predicted_ms = {FAST: 5.0, TREE: 6.0, RECURSIVE: 7.0, SLOW: 9.0}
    first, second = (search_at(size, predicted_ms) for size in (SIZE, 4 * SIZE))
    bench = FakeBench(factors({FAST: 2.0, TREE: 1.7, RECURSIVE: 1.4, SLOW: 4.0}), noise=0.02)
    run(first, bench)
    second.neighbours = [first]
    assert [candidate for candidate, _ in second.ask(2)] == [SLOW, FAST]


def test_what_a_message_costs_rules_out_no_candidate_where_it_is_large():
    # TREE is predicted best at both sizes, but for 80 ms a call that the model has left out.
    small = search_at(1 << 16, {TREE: 8.0, FAST: 9.0, SLOW: 9.5})
    large = search_at(1 << 23, {TREE: 5.0, FAST: 8.0, SLOW: 9.0}, default_s=128 * default_time(1 << 16))
    default_s = small.default_s
    truth = {TREE: 8 * default_s, FAST: 0.95 * default_s, SLOW: 1.05 * default_s}
    run(small, FakeBench(lambda one, _: truth.get(one, default_s), noise=0.02))
    assert small.standings()[-1].candidate == TREE
    large.neighbours = [small]
    assert large.ask(1)[0][0] == TREE


@pytest.mark.parametrize(
    ("timed_bytes", "true_ms"),
    [pytest.param(SIZE // 4, 1.0, id="four-smaller-ones"), pytest.param(4 * SIZE, 4.0, id="a-larger-one")],
)
def test_what_other_sizes_promise_is_tried_first_whatever_is_predicted(timed_bytes, true_ms):
    # 4 ms in any case, which is a fifth of the default's; the model puts it at three times that.
    other = search_at(timed_bytes, {FAST: 9.0, SLOW: 9.5}, default_s=10e-3)
    here = search_at(SIZE, {FAST: 9.0, SLOW: 600.0}, default_s=20e-3)
    truth = {FAST: 9e-3, SLOW: 1e-3 * true_ms}
    run(other, FakeBench(lambda one, _: truth.get(one, 10e-3), noise=0.02))
    here.neighbours = [other]
    assert here.ask(1)[0][0] == SLOW


def test_candidates_that_are_ruled_out_elsewhere_are_not_tried_again():
    predicted_ms = {FAST: 5.0, TREE: 5.1, RECURSIVE: 5.2, SLOW: 5.3}
    searches = [search_at(size, predicted_ms) for size in (SIZE, 4 * SIZE, 16 * SIZE)]
    bench = FakeBench(factors({FAST: 4.0, TREE: 0.5, RECURSIVE: 0.4, SLOW: 0.3}), noise=0.02)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    search_sizes(searches, sampling, deadline_s=lambda _search: 1e9, budget_s=1.0)
    assert all(search.standings()[0].candidate == FAST for search in searches)
    tried = sorted(
        len({one for one, size in bench.checks if size == search.message_bytes}) for search in searches
    )
    assert tried[:2] == [1, 1], "of two sizes of three"


def test_one_call_of_two_that_was_held_up_drops_no_candidate():
    true_s = factors({FAST: 1.5, TREE: 3.0})
    held_up = iter([0.0] * 4 + [10.0])

    def seen_s(candidate, size):
        return true_s(candidate, size) * (1 + (next(held_up, 0.0) if candidate == TREE else 0.0))

    search = search_at(SIZE, {FAST: 5.0, TREE: 6.0})
    run(search, FakeBench(seen_s, noise=0.0))
    assert search.standings()[0].candidate == TREE


def test_the_fastest_stands_first_and_poor_ones_get_few_samples():
    search = search_of([SLOW, TREE, RECURSIVE, FAST])
    bench = FakeBench(factors({FAST: 3.0, TREE: 2.8, RECURSIVE: 0.3, SLOW: 0.1}), noise=0.1)
    run(search, bench)
    standings = search.standings()
    assert {standings[0].candidate, standings[1].candidate} == {FAST, TREE}
    rounds = {one.candidate: one.comparison.num_rounds for one in standings}
    assert SLOW not in rounds, "its check was enough"
    assert rounds[RECURSIVE] <= 6
    assert rounds[FAST] >= 8


def test_every_block_of_the_search_holds_the_default_in_random_order():
    bench = FakeBench(factors({FAST: 3.0, TREE: 2.8}))
    run(search_of([FAST, TREE]), bench)
    assert all(block.arms.count(DEFAULT) == 1 for block in bench.blocks)
    orders = {order for block in bench.blocks for order in block.orders if len(order) == 3}
    assert len(orders) > 2


def test_nothing_begins_that_the_deadline_does_not_hold():
    bench = FakeBench(factors({FAST: 3.0, TREE: 2.8}))
    run(search_of([FAST, TREE]), bench, deadline_s=1e-3)
    assert bench.blocks == []


def test_the_study_is_rebuilt_from_the_journal(tmp_path):
    candidates = [SLOW, TREE, RECURSIVE, FAST]
    bench = FakeBench(factors({FAST: 3.0, TREE: 2.5, RECURSIVE: 0.3, SLOW: 0.1}), wrong=[TREE])
    with Journal(tmp_path / "journal", {"seed": 0}) as journal:
        search = search_of(candidates, journal.note)
        run(search, bench, journal=journal)
    notes = read_journal(tmp_path / "journal").notes
    study = rebuild_study(notes, SIZE, candidates, seed=0)
    seen = {
        (trial.params["algorithm"], trial.params[trial.params["algorithm"]]): trial for trial in study.trials
    }
    assert seen[TREE.algorithm, TREE.params_json].state is TrialState.FAIL
    assert seen[SLOW.algorithm, SLOW.params_json].state is TrialState.PRUNED
    assert study.best_params == {"algorithm": "ring", "ring": FAST.params_json}
    assert study.best_value == pytest.approx(-np.log(3.0), abs=0.1)
    original = [trial for trial in search.study.trials if trial.state is TrialState.COMPLETE]
    assert study.best_value == pytest.approx(min(trial.value for trial in original))
    assert rebuild_study(notes, 2 * SIZE, candidates, seed=0).trials == []


def test_samples_come_in_whole_rounds_and_missed_ones_are_run_again():
    bench = FakeBench(factors({FAST: 2.0}), miss_rate=0.3)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    times_s = sampling.rounds("search", SIZE, (DEFAULT, FAST), 25, first_guess_s=5e-3)
    assert times_s.shape == (25, 2)
    assert not np.isnan(times_s).any()
    assert sampling.dropped > 0


def test_where_many_starts_are_missed_a_barrier_takes_over():
    bench = FakeBench(factors({FAST: 2.0}), miss_rate=0.7)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    times_s = sampling.rounds("search", SIZE, (DEFAULT, FAST), 20, first_guess_s=5e-3)
    assert times_s.shape == (20, 2)
    assert bench.blocks[0].scheme == "clock"
    assert bench.blocks[-1].scheme == "barrier"


def test_a_machine_that_turns_busy_after_a_quiet_time_does_not_end_the_run():
    arms = (DEFAULT, FAST, TREE, SLOW, RECURSIVE)
    bench = FakeBench(factors(dict.fromkeys(arms, 1.0)))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    sampling.rounds("search", SIZE, arms, 60, first_guess_s=5e-3)
    bench.miss_rate = 0.5  # hardly any round of five arms is whole, and few of all starts so far were missed
    assert sampling.rounds("search", SIZE, arms, 4, first_guess_s=5e-3).shape == (4, 5)
    assert bench.blocks[-1].scheme == "barrier"


@pytest.mark.parametrize("num_rounds", [1, 4])
def test_ranks_that_miss_every_common_start_are_timed_behind_a_barrier(num_rounds):
    bench = FakeBench(factors({}), miss_rate=1.0)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    times_s = sampling.rounds("pilot", SIZE, (DEFAULT,), num_rounds, first_guess_s=5e-3)
    assert times_s.shape == (num_rounds, 1)
    asked = [block.scheme for block in bench.blocks for _ in block.orders]
    assert asked == ["clock"] * 2 * num_rounds + ["barrier"] * num_rounds


@pytest.mark.parametrize(
    ("recent_s", "expected"),
    [
        ([2.0], 3.0),
        ([1.0, 1.1, 1.2, 1.1, 1.0], 1.05 * 1.2),
        ([1.0] * 9 + [50.0], 1.05),
        ([1.0] * 5 + [1.5] * 5, 1.05 * 1.5),
    ],
    ids=["too few to know", "steady: the longest", "one outlier is let go", "two modes: the slower"],
)
def test_starts_are_spaced_by_what_costs_least_per_kept_sample(recent_s, expected):
    assert spacing_s(recent_s) == pytest.approx(expected)


class ImpatientBench(FakeBench):
    """Misses every start that lies closer behind the call before than that call takes."""

    def run(self, block):
        times = super().run(block)
        true_s = [self.true_s(arm, block.message_bytes) for arm in block.arms]
        if any(expected < time for expected, time in zip(block.expected_s, true_s, strict=True)):
            times.times_s[:] = np.nan
            return BlockTimes(times_s=times.times_s, num_missed=times.times_s.size, scheme="clock")
        return times


def test_a_guess_that_is_far_too_short_is_doubled_until_starts_are_kept():
    bench = ImpatientBench(factors({FAST: 1.0}), noise=0.0)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    assert sampling.rounds("pilot", SIZE, (DEFAULT,), 3, first_guess_s=1e-3).shape == (3, 1)
    guesses = [block.expected_s[0] for block in bench.blocks[:3]]
    assert guesses == pytest.approx([1.5e-3, 3e-3, 6e-3])


def test_an_arm_is_warmed_up_once_per_size_and_condition():
    bench = FakeBench(factors({FAST: 2.0}))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    for condition in ("idle", "idle", "busy"):
        sampling.rounds("search", SIZE, (DEFAULT, FAST), 3, first_guess_s=5e-3, condition=condition)
    warmed = [(block.condition, block.warmups) for block in bench.blocks if any(block.warmups)]
    assert warmed == [("idle", (2, 2)), ("busy", (2, 2))]


def test_calls_may_wait_longer_for_a_core_while_main_threads_run_python():
    bench = FakeBench(factors({FAST: 2.0}))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0), limit_s=lambda *_: 3.0)
    for condition in ("idle", "backward", "busy"):
        sampling.rounds("condition", SIZE, (DEFAULT, FAST), 3, first_guess_s=5e-3, condition=condition)
    limits_s = {block.condition: block.limits_s for block in bench.blocks}
    assert limits_s == {"idle": (None, 3.0), "backward": (None, 3.0), "busy": (None, BUSY_PATIENCE * 3.0)}


def test_a_block_travels_as_json():
    block = Block(
        message_bytes=SIZE,
        arms=(DEFAULT, FAST),
        orders=((1, 0), (0, 1)),
        expected_s=(5e-3, 2e-3),
        warmups=(2, 0),
        limits_s=(None, 3.0),
        condition="backward",
        scheme="barrier",
    )
    assert Block.from_json(block.to_json()) == block


def test_two_that_are_close_play_off_before_what_is_hopeless_is_tried():
    predicted_ms = {FAST: 5.0, TREE: 5.1, RECURSIVE: 30.0, SLOW: 40.0}
    search = search_at(SIZE, predicted_ms, scatter=0.1)
    bench = FakeBench(factors({FAST: 2.0, TREE: 1.97, RECURSIVE: 0.3, SLOW: 0.2}), noise=0.1)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    search.longest_step_s = 0.05  # heats of two
    for _ in range(3):
        search.step(sampling)
    rounds = {one.candidate: one.comparison.num_rounds for one in search.standings()}
    assert rounds[FAST] > 10
    assert rounds[TREE] > 10
    assert set(rounds) == {FAST, TREE}


def test_a_check_that_waited_for_a_core_is_held_against_a_candidate_at_its_own_size_alone():
    bench = FakeBench(factors({FAST: 2.0, TREE: 1.3}), noise=0.02)
    check = bench.check

    def late_check(candidate, size, *, limit_s):
        found = check(candidate, size, limit_s=limit_s)
        return replace(found, call_s=1.0) if (candidate, size) == (FAST, SIZE) else found

    bench.check = late_check
    searches = [search_at(size, {FAST: 5.0, TREE: 7.0}) for size in (SIZE, 4 * SIZE)]
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    search_sizes(searches, sampling, deadline_s=lambda _search: 1e9, budget_s=60.0)
    assert [search.standings()[0].candidate for search in searches] == [TREE, FAST]

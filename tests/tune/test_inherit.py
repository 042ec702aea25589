"""What was confirmed last is taken over at larger sizes only where all that is known speaks for it."""

import math

import pytest
from fake_bench import FAST, TREE

from topotune.plan.model import Bottleneck
from topotune.tune.decide import DefaultTime, Limit, decide_rows
from topotune.tune.finalists import Conditions, choose_finalists
from topotune.tune.inherit import REACH, losses_beyond, with_inherited
from topotune.tune.judge import Confirmation
from topotune.tune.search import Standing
from topotune.tune.statistics import Comparison
from topotune.tune.trial import DEFAULT

K = 1024
LAST = 16 * K
MIN_GAIN = 0.02
RATE = 1e6  # bytes per second of the default


def compared(ratio, size, low=None):
    default_s = size / RATE
    return Comparison(
        default_median_s=default_s,
        median_s=default_s / ratio,
        ratio=ratio,
        low=ratio / 1.05 if low is None else low,
        high=ratio * 1.05,
        num_rounds=20,
        outlier_share=0.0,
    )


def confirmed(size, ratio=1.5, *, candidate=FAST, low=None, passed=True):
    return Confirmation(
        message_bytes=size,
        candidate=candidate,
        comparison=compared(ratio, size, low),
        passed=passed,
        searched=size % K == 0,
    )


def standing(ratio, size, *, candidate=FAST):
    return Standing(candidate=candidate, comparison=compared(ratio, size), log_spread=0.05, dropped=False)


def predicted_s(candidate, size):
    """As it is measured: the candidate is 1.5 times as fast everywhere."""
    return size / RATE / (1.0 if candidate == DEFAULT else 1.5)


ODD = 8 * K + 4
USUAL = (confirmed(4 * K), confirmed(ODD), confirmed(LAST))


UNBOUNDED = Limit(no_bound_reason="made up")


def rows_of(confirmations, searched, **known):
    defaults = {size: DefaultTime(median_s=size / RATE, num_samples=9) for size in searched}
    return decide_rows(confirmations, defaults, **{"limit": UNBOUNDED, "predicted_s": predicted_s, **known})


def table(confirmations=USUAL, *, searched=(4 * K, LAST), standings=(), predicted=predicted_s):
    rows = rows_of(confirmations, searched)
    return with_inherited(
        rows, confirmations, dict(standings), predicted_s=predicted, min_gain=MIN_GAIN, limit=UNBOUNDED
    )


def ends(rows):
    return [(row.min_bytes, row.max_bytes, row.algorithm) for row in rows]


CONFIRMED = [(0, 4 * K, "default"), (4 * K, LAST + 1, FAST.algorithm)]


def test_the_last_row_reaches_so_many_times_further_as_a_row_that_says_so():
    rows = table()
    assert ends(rows) == [
        *CONFIRMED,
        (LAST + 1, REACH * LAST + 1, FAST.algorithm),
        (REACH * LAST + 1, None, "default"),
    ]
    own, inherited = rows[1:3]
    assert not own.evidence.extrapolated
    assert inherited.evidence.extrapolated
    assert inherited.evidence.measured_bytes == LAST
    assert inherited.evidence.confirmed_bytes == ()
    assert inherited.params == own.params


NEXT = 4 * LAST


@pytest.mark.parametrize(
    "unsafe",
    [
        {"confirmations": (*USUAL[:2], confirmed(LAST, 1.05, low=1.03))},
        {"confirmations": (*USUAL, confirmed(2 * LAST, 1.01, passed=False)), "searched": (4 * K, LAST)},
        {"confirmations": (*USUAL, confirmed(2 * LAST, candidate=TREE, passed=False))},
        {"predicted": lambda candidate, size: 3 * predicted_s(candidate, size)},
        {"predicted": lambda candidate, size: predicted_s(candidate, size) / 3},
        {"predicted": lambda one, size: math.inf if one == FAST and size > LAST else predicted_s(one, size)},
        {"standings": {2 * LAST: [standing(1.0, 2 * LAST)]}},
        {"standings": {2 * LAST: [standing(1.0, 2 * LAST), standing(1.5, 2 * LAST, candidate=TREE)]}},
        {"standings": {2 * LAST: [standing(1.0, 2 * LAST, candidate=TREE)]}},
    ],
    ids=[
        "the interval clears the margin once, not twice",
        "it did not pass further out",
        "another one did not pass further out",
        "the model is too slow by a factor of three",
        "the model is too fast by a factor of three",
        "the candidate does not take larger messages",
        "the search saw no gain further out",
        "the search saw another one gain further out, and this one not",
        "the search saw nothing gain further out",
    ],
)  # fmt: skip
def test_the_default_stays_where_anything_speaks_against_it(unsafe):
    unsafe = {"standings": {}, **unsafe}
    rows = table(**unsafe)
    assert all(row.algorithm == "default" or row.max_bytes <= LAST + 1 for row in rows)


def test_a_row_reaches_a_size_where_the_search_timed_another_one_that_gains():
    rows = table(standings={2 * LAST: [standing(1.5, 2 * LAST, candidate=TREE)]})
    assert ends(rows)[2] == (LAST + 1, REACH * LAST + 1, FAST.algorithm)


def test_a_size_that_passed_behind_one_that_did_not_gives_nothing_to_the_sizes_between():
    behind = (*USUAL, confirmed(24 * K + 4, 1.01, passed=False), confirmed(2 * LAST))
    rows = table(behind, searched=(4 * K, LAST, 2 * LAST))
    assert ends(rows) == [*CONFIRMED, (LAST + 1, None, "default")]


def test_no_row_reaches_a_size_where_its_candidate_was_found_unfit():
    standings = {size: [standing(1.5, size)] for size in (2 * LAST, NEXT)}
    unfit = {(NEXT, FAST), (2 * LAST, TREE), (4 * K, FAST)}
    rows = with_inherited(
        rows_of(USUAL, (4 * K, LAST)),
        USUAL,
        standings,
        predicted_s=predicted_s,
        min_gain=MIN_GAIN,
        limit=UNBOUNDED,
        unfit=unfit,
    )
    assert ends(rows)[2] == (LAST + 1, 2 * LAST + 1, FAST.algorithm)


def test_all_figures_of_a_row_that_was_taken_over_are_of_one_size():
    limit = Limit(
        time_s=lambda size: (1e3 + size) / RATE / 3, bottleneck=Bottleneck(text="made up", cut=("a",))
    )
    backward = Conditions(backward=compared(1.2, 4 * K), busy_ratio=0.9)
    rows = rows_of(USUAL, (4 * K, LAST), limit=limit, conditions={(4 * K, FAST): backward})
    own, inherited = with_inherited(rows, USUAL, {}, predicted_s=predicted_s, min_gain=MIN_GAIN, limit=limit)[
        1:3
    ]
    for row, size in ((own, 4 * K), (inherited, LAST)):
        assert row.evidence.measured_bytes == size
        assert row.percent_of_optimum == pytest.approx(100 * limit.time_s(size) / row.evidence.median_s)
    assert (own.evidence.busy_ratio, inherited.evidence.busy_ratio) == (0.9, None)
    assert inherited.evidence.backward_ratio_ci is None


def test_where_another_one_was_tried_in_vain_the_gain_that_the_search_saw_is_taken_over():
    failed = confirmed(2 * LAST, candidate=TREE, passed=False)
    rows = table((*USUAL, failed), standings={2 * LAST: [standing(1.4, 2 * LAST)]})
    assert ends(rows)[2] == (LAST + 1, REACH * LAST + 1, FAST.algorithm)


def test_sizes_that_were_asked_for_are_reached_further_out_at_a_discount():
    far = 64 * LAST

    def reach(asked_bytes, ratio=1.5):
        found = tuple(confirmed(size, ratio) for size in (4 * K, ODD, LAST))
        rows = with_inherited(
            rows_of(found, (4 * K, LAST)),
            found,
            {},
            predicted_s=lambda one, size: size / RATE / (1.0 if one == DEFAULT else ratio),
            min_gain=MIN_GAIN,
            limit=UNBOUNDED,
            asked_bytes=asked_bytes,
        )
        return rows[2].max_bytes

    assert reach((LAST,)) == REACH * LAST + 1
    assert reach((LAST, far)) == far + 1
    assert reach((LAST, 128 * LAST)) == REACH * LAST + 1, "further than is believed"
    # A gain of 1.2 is 1.14 at its low end: three more doublings leave too little of it, one leaves enough.
    assert reach((LAST, 2 * REACH * LAST, far), ratio=1.2) == 2 * REACH * LAST + 1


@pytest.mark.parametrize(
    ("large", "expected"),
    [(1.5, FAST), (0.5, TREE)],
    ids=["it stays ahead", "the other one overtakes"],
)
def test_the_finalist_of_the_largest_size_is_the_one_that_larger_sizes_need(large, expected):
    # TREE is a little slower where it was measured; FAST's predicted gain changes beyond.
    def predicted(candidate, size):
        ratio = {DEFAULT: 1.0, TREE: 1.4}.get(candidate, 1.5 if size <= LAST else large * 1.4)
        return size / RATE / ratio

    standings = {LAST: [standing(1.5, LAST), standing(1.4, LAST, candidate=TREE)]}
    beyond = losses_beyond(standings[LAST], LAST, (LAST, 4 * LAST), predicted_s=predicted)
    assert choose_finalists(standings, min_gain=MIN_GAIN, beyond=beyond) == {LAST: expected}
    assert losses_beyond(standings[LAST], LAST, (LAST,), predicted_s=predicted) == {}


def test_a_gain_that_shrinks_by_the_model_is_taken_over_as_far_as_it_clears_the_margin():
    def shrinking(candidate, size):
        gain = 1.5 * min(1.0, (LAST / size) ** 0.25)
        return size / RATE / (1.0 if candidate == DEFAULT else gain)

    # 1.43 at the low end: 1.20 of it are left at twice the size, 1.01 at four times.
    assert ends(table(predicted=shrinking))[2] == (LAST + 1, 2 * LAST + 1, FAST.algorithm)


def test_a_gain_that_shrank_from_one_confirmed_size_to_the_next_goes_on_to_shrink():
    fading = (confirmed(4 * K, 2.0), confirmed(ODD, 1.7), confirmed(LAST, 1.5))
    # By (3/4) each two doublings: 1.43, 1.24 at twice the size, 1.07 at four times, 0.93 at eight times.
    assert ends(table(fading))[2] == (LAST + 1, 4 * LAST + 1, FAST.algorithm)


def test_a_searched_size_further_out_ends_the_range_where_the_gain_was_not_seen_and_not_before():
    standings = {2 * LAST: [standing(1.4, 2 * LAST)], NEXT: [standing(1.0, NEXT)]}
    rows = table(searched=(4 * K, LAST, 2 * LAST, NEXT), standings=standings)
    assert ends(rows)[2:] == [
        (LAST + 1, 2 * LAST + 1, FAST.algorithm),
        (2 * LAST + 1, NEXT, "default"),
        (NEXT, None, "default"),
    ]
    # The default's own time, measured in the range that is no longer its row's.
    assert rows[3].evidence.measured_bytes == 2 * LAST
    assert rows[3].evidence.extrapolated


def test_a_size_that_the_search_had_no_time_for_says_nothing():
    seen = {2 * LAST: [], 4 * LAST: [standing(1.5, 4 * LAST)]}
    assert ends(table(standings=seen)) == ends(table())


def test_a_table_without_a_departing_row_stays_as_it_is():
    rows = rows_of((), (4 * K, LAST))
    assert with_inherited(rows, (), {}, predicted_s=predicted_s, min_gain=MIN_GAIN, limit=UNBOUNDED) == rows


def test_every_size_is_still_covered_once_when_a_plan_is_made_of_it():
    from topotune.plan.model import Group, GroupShape

    shape = GroupShape(num_ranks=8, num_nodes=1, ranks_per_node=8, stride=1)
    Group(shape=shape, allreduce=table())

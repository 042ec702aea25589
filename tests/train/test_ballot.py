"""All ranks change over at the same call, whatever the order in which they run."""

import random
from itertools import pairwise

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.errors import RunError
from topotune.plan import Row
from topotune.plan.model import COLLECTIVES
from topotune.train import drift
from topotune.train.ballot import Ballot
from topotune.train.detector import Rules
from topotune.train.drift import Drift, DriftOptions
from topotune.train.trial import PAIRS, RankTimes, judge, order_of_trial

TABLES = dict.fromkeys(COLLECTIVES, (Row(min_bytes=0, max_bytes=None, algorithm="ring"),))
KINDS = [
    ("allreduce", 1000, "float32"),
    ("reduce_scatter", 1000, "float32"),
    ("allreduce", 2000, "float32"),
    ("allgather", 1000, "float32"),
]
QUICK = DriftOptions(rules=Rules(skip=0, window=2, order=0, learn=3, least_s=0.0), check_every_ns=8_000_000)


def drifts(num_ranks, acts=True):
    drift.OPTIONS, before = QUICK, drift.OPTIONS
    store = dist.HashStore()
    made = [
        Drift(dist.PrefixStore("drift", store), rank, num_ranks, where="here", tables=TABLES, acts=acts)
        for rank in range(num_ranks)
    ]
    drift.OPTIONS = before
    return made


def run(ranks, calls, time_of, seed):
    """All calls on all ranks, interleaved at random; a call ends on no rank before all have begun it.

    Args:
        ranks: one watch each.
        calls: the kind of each call.
        time_of: (rank, call, by the plan) → seconds.
        seed: of the order.

    Returns:
        For each rank, whether the plan ran each call.
    """
    draw = random.Random(seed)
    by_plan = [[] for _ in ranks]
    ended = [0] * len(ranks)
    while min(ended) < len(calls):
        able = [
            rank
            for rank in range(len(ranks))
            if ended[rank] < len(calls)
            and (len(by_plan[rank]) == ended[rank] or all(len(one) > ended[rank] for one in by_plan))
        ]
        rank = draw.choice(able)
        number = ended[rank]
        kind = calls[number]
        if len(by_plan[rank]) == number:
            fallen = ranks[rank].has_fallen(kind)
            by_plan[rank].append(not fallen and ranks[rank].begin(kind, "ring"))
            continue
        if not ranks[rank].has_fallen(kind):
            ranks[rank].end(kind, time_of(rank, number, by_plan[rank][number]))
        ended[rank] += 1
    return by_plan


@pytest.fixture
def no_warnings(monkeypatch):
    said = []
    monkeypatch.setattr(drift, "warn", said.append)
    return said


@given(
    num_ranks=st.integers(2, 4),
    seed=st.integers(0, 2**32 - 1),
    begins=st.lists(st.integers(10, 60), min_size=4, max_size=4),
    num_kinds=st.integers(1, len(KINDS)),
)
@settings(max_examples=25, deadline=None)
def test_ranks_that_run_in_any_order_leave_the_plan_at_the_same_call(num_ranks, seed, begins, num_kinds):
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drift, "warn", said.append)
        ranks = drifts(num_ranks)
        calls = [KINDS[number % num_kinds] for number in range(400 * num_kinds)]
        by_plan = run(
            ranks,
            calls,
            # Each rank sees the change at another call.
            lambda rank, number, plan: 10.0 if plan and number >= begins[rank] else 1.0,
            seed,
        )
    assert len(set(map(tuple, by_plan))) == 1
    assert all(ranks[0].has_fallen(kind) for kind in KINDS[:num_kinds])
    assert by_plan[0][-1] is False
    assert len(said) == len({collective for collective, _, _ in KINDS[:num_kinds]})


@pytest.mark.parametrize("begin", range(10, 40))
def test_the_last_vote_may_fall_on_any_call_beside_a_check(begin, no_warnings):
    for seed in range(4):
        ranks = drifts(2)
        by_plan = run(
            ranks,
            [KINDS[0]] * 120,
            lambda rank, number, plan: 10.0 if plan and number >= begin + 8 * rank else 1.0,
            seed,
        )
        assert by_plan[0] == by_plan[1]
        assert ranks[0].has_fallen(KINDS[0])


@given(num_ranks=st.integers(2, 4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_what_one_rank_does_not_see_changes_nothing(num_ranks, seed):
    """The rank that comes last waits for nobody: a straggler makes all others wait, and is no drift."""
    ranks = drifts(num_ranks)
    by_plan = run(
        ranks,
        [KINDS[0]] * 300,
        lambda rank, number, plan: 10.0 if rank and number > 50 else 1.0,
        seed,
    )
    assert by_plan == [[True] * 300] * num_ranks


def test_a_slow_down_that_the_default_shares_keeps_the_plan_and_is_told_once(no_warnings):
    ranks = drifts(2)
    by_plan = run(ranks, [KINDS[0]] * 3000, lambda rank, number, plan: 4.0 if number > 60 else 1.0, 0)
    assert not ranks[0].has_fallen(KINDS[0])
    assert by_plan[0].count(False) == PAIRS + 1
    (text,) = no_warnings
    assert text == (
        "topotune: here: allreduce of 1000 B by ring takes 4 s now, 4.0 times what was usual; "
        "the default takes 4 s, faster in 0 of 16 pairs of calls: the plan stays"
    )


def test_groups_that_may_not_act_keep_their_plan():
    ranks = drifts(2, acts=False)
    by_plan = run(ranks, [KINDS[0]] * 300, lambda rank, number, plan: 9.0 if number > 60 else 1.0, 0)
    assert by_plan == [[True] * 300] * 2
    assert ranks[0].document()["kinds"][0]["slower"]


def test_kinds_of_calls_beyond_the_most_run_by_the_plan_unwatched():
    ranks = drifts(2)
    calls = [("allreduce", num_bytes, "float32") for num_bytes in range(1, drift.MAX_KINDS + 50)] * 2
    by_plan = run(ranks, calls, lambda rank, number, plan: 1.0, 0)
    assert by_plan == [[True] * len(calls)] * 2
    assert [len(one.kinds) for one in ranks] == [drift.MAX_KINDS] * 2


def test_trials_of_a_kind_become_rarer(no_warnings):
    """Calls that grow slower and slower, whoever makes them: each trial waits twice as long as the last."""
    ranks = drifts(2)
    num = 8_000
    by_plan = run(ranks, [KINDS[0]] * num, lambda rank, number, plan: 1.5 ** (number / 200), 0)
    ends = [number for number in range(1, num) if by_plan[0][number] and not by_plan[0][number - 1]]
    trials = [ends[0], *(after for before, after in pairwise(ends) if after - before > 100)]
    gaps = [after - before for before, after in pairwise(trials)]
    assert len(gaps) >= 3
    assert all(gap >= 512 * 2**index for index, gap in enumerate(gaps))


class Unreachable:
    """A store that fails for one rank from some request on."""

    def __init__(self, store, requests):
        self.store, self.left = store, requests

    def clone(self):
        return self

    def __getattr__(self, name):
        def ask(*args):
            self.left -= 1
            if self.left < 0:
                raise dist.DistNetworkError("gone")
            return getattr(self.store, name)(*args)

        return ask


@pytest.mark.parametrize("requests", range(12))
def test_a_rank_that_loses_the_store_fails_or_all_go_on_alike(requests, no_warnings):
    store = dist.PrefixStore("drift", dist.HashStore())
    ranks = drifts(3)
    for rank, one in enumerate(ranks):
        own = Unreachable(store, requests) if rank == 1 else store
        one._ballot = Ballot(own, rank, 3, check_every_ns=QUICK.check_every_ns)
    calls, failed = [KINDS[0]] * 300, None
    try:
        by_plan = run(ranks, calls, lambda _, number, plan: 9.0 if plan and number > 30 else 1.0, requests)
    except RunError as error:
        failed = error
    if failed is None:
        assert len(set(map(tuple, by_plan))) == 1
    else:
        assert failed.message.startswith("rank 1 of 3 could not ask the group's store")


class Unanswered:
    """A connection like a TCPStore's: a ``set`` returns before it is done, and others may ask before."""

    def __init__(self, store, connections):
        self.store, self.connections, self.under_way = store, connections, []
        connections.append(self)

    def clone(self):
        return self

    def set(self, key, value):
        self.under_way.append((key, value))

    def arrive(self):
        for key, value in self.under_way:
            self.store.set(key, value)
        self.under_way = []

    def __getattr__(self, name):
        def ask(*args):
            # A request is behind those of its own connection; one that waits for a key outwaits all others.
            for one in self.connections if "get" in name else [self]:
                one.arrive()
            return getattr(self.store, name)(*args)

        return ask


@pytest.mark.parametrize("begin", range(10, 40))
def test_a_proposal_is_there_for_all_before_the_rank_that_made_it_goes_on(begin, no_warnings):
    store, connections = dist.PrefixStore("drift", dist.HashStore()), []
    for seed in range(4):
        ranks = drifts(2)
        for rank, one in enumerate(ranks):
            own = Unanswered(dist.PrefixStore(f"{seed}", store), connections)
            one._ballot = Ballot(own, rank, 2, check_every_ns=QUICK.check_every_ns)
        by_plan = run(
            ranks,
            [KINDS[0]] * 120,
            lambda rank, number, plan: 10.0 if plan and number >= begin + 8 * rank else 1.0,
            seed,
        )
        assert by_plan[0] == by_plan[1]
        assert ranks[0].has_fallen(KINDS[0])


class Blind:
    """A connection by which one rank does not find what is there, the first time."""

    def __init__(self, store):
        self.store, self.has_missed = store, False

    def clone(self):
        return self

    def check(self, keys):
        is_there = self.store.check(keys)
        is_missed, self.has_missed = is_there and not self.has_missed, self.has_missed or is_there
        return is_there and not is_missed

    def __getattr__(self, name):
        return getattr(self.store, name)


def test_a_rank_that_finds_a_proposal_later_than_others_begins_no_trial_alone(no_warnings):
    store = dist.PrefixStore("drift", dist.HashStore())
    ranks = drifts(2)
    ranks[0]._ballot = Ballot(store, 0, 2, check_every_ns=QUICK.check_every_ns)
    # Rank 0 has the last vote and makes the proposal.
    ranks[1]._ballot = Ballot(blind := Blind(store), 1, 2, check_every_ns=QUICK.check_every_ns)
    by_plan = run(
        ranks,
        [KINDS[0]] * 300,
        lambda rank, number, plan: 10.0 if plan and number >= 38 - 8 * rank else 1.0,
        0,
    )
    assert blind.has_missed
    assert by_plan == [[True] * 300] * 2


def times(plan, default, usual=1.0):
    return RankTimes(usual_s=usual, plan_s=tuple(plan), default_s=tuple(default))


@pytest.mark.parametrize(
    ("ranks", "finding"),
    [
        ([times([2.0] * 16, [1.0] * 16)], "worse"),
        ([times([2.0] * 16, [3.0] * 16)], "slower"),
        ([times([1.0] * 16, [3.0] * 16)], "waiting"),
        ([times([2.0] * 7, [1.0] * 7)], "undecided"),
        ([times([1.03] * 16, [1.0] * 16)], "waiting"),
        ([times([2.0] * 16, [1.0] * 12 + [5.0] * 4)], "slower"),
        # The rank that came last says what a call took.
        ([times([9.0] * 16, [1.0] * 16), times([1.0] * 16, [1.5] * 16)], "waiting"),
        ([times([], [])], "undecided"),
        ([times([2.0] * 16, [3.0] * 16, usual=None)], "waiting"),
    ],
)
def test_the_verdict_of_a_trial(ranks, finding):
    assert judge(ranks, order=2).finding == finding


def test_a_trial_has_pairs_of_either_order():
    order = order_of_trial(3)
    pairs = [order[at : at + 2] for at in range(2, len(order), 2)]
    assert len(pairs) == PAIRS
    assert set(pairs) == {(True, False), (False, True)}
    assert order_of_trial(3) == order != order_of_trial(4)

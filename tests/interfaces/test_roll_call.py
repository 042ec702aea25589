"""What ranks say and hear at the store where they meet, as real processes."""

from datetime import timedelta

import pytest
from gloo_world import run_world
from hypothesis import given
from hypothesis import strategies as st

from topotune.errors import RunError, TopotuneError, UsageError
from topotune.interfaces.roll_call import RollCall, by_place, in_words, own_place

_SOON_S = 60.0


def words_and_answers(rank, num_ranks, _store):
    """Everything that ranks may do at one roll call, by rank 0's lead."""
    call = RollCall("test", timeout=timedelta(seconds=60))
    call.say("color", {"rank": rank})
    seen = {"all": call.hear_all("color", _SOON_S)}
    if rank == 0:
        call.tell("answer", {other: f"for {other}" for other in range(num_ranks)})
    seen["told"] = call.told("answer", _SOON_S)
    call.say("done", None)  # the store's server, rank 0's here, stays until all have read
    call.hear_all("done", _SOON_S)
    seen["second"] = RollCall("test", timeout=timedelta(seconds=60)).hear("color", [0], 0.05)
    call.say("done again", None)
    call.hear_all("done again", _SOON_S)
    return seen


def refused(rank, num_ranks, _store, usage):
    call = RollCall("test", timeout=timedelta(seconds=60))
    if rank == 0:
        problem = (UsageError if usage else RunError)("no such interface", hint="name another")
        call.tell_failure(["answer", "other"], problem)
    try:
        call.told("answer", _SOON_S)
    except TopotuneError as error:
        return type(error).__name__, error.message, error.hint
    return None


def half_of_them(rank, num_ranks, _store):
    call = RollCall("test", timeout=timedelta(seconds=60))
    heard = None
    if rank == 0:
        call.say("color", "red")
        try:
            call.hear_all("color", 0.2)
        except RunError as error:
            heard = error.message
        call.tell("over", dict.fromkeys(range(num_ranks), True))
    call.told("over", _SOON_S)
    call.say("done", None)
    call.hear_all("done", _SOON_S)
    return heard


@pytest.mark.gloo
def test_all_hear_all_each_is_told_its_own_and_a_second_call_hears_nothing_of_the_first():
    results = run_world(3, words_and_answers)
    assert [result["all"] for result in results] == [[{"rank": 0}, {"rank": 1}, {"rank": 2}]] * 3
    assert [result["told"] for result in results] == ["for 0", "for 1", "for 2"]
    assert [result["second"] for result in results] == [{}] * 3


@pytest.mark.gloo
@pytest.mark.parametrize(("usage", "kind"), [(True, "UsageError"), (False, "RunError")])
def test_what_rank_0_gives_up_with_is_raised_on_all(usage, kind):
    assert run_world(2, refused, usage) == [(kind, "no such interface", "name another")] * 2


@pytest.mark.gloo
def test_ranks_that_say_nothing_in_time_are_named():
    assert run_world(3, half_of_them)[0] == "ranks 1, 2 of 3 did not come within 0.2 s"


def test_a_store_that_is_not_there_is_named_with_rank_and_address(monkeypatch):
    for name, value in {
        "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with pytest.raises(RunError, match=r"rank 1 did not reach the store of all ranks at 127\.0\.0\.1:1: "):
        RollCall("test", timeout=timedelta(seconds=1))


@given(places=st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_ranks_by_place_are_all_ranks_once_in_the_order_of_the_lowest(places):
    found = by_place(places)
    assert sorted(rank for ranks in found for rank in ranks) == list(range(len(places)))
    assert [ranks[0] for ranks in found] == sorted(ranks[0] for ranks in found)
    assert all(list(ranks) == sorted(ranks) for ranks in found)
    assert all(len({places[rank] for rank in ranks}) == 1 for ranks in found)
    assert len(found) == len(set(places))


def test_a_process_has_one_place():
    assert own_place() == own_place()
    assert len(own_place()) == 32


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([3, 5], "ranks 3, 5"),
        (range(8), "ranks 0, 1, 2, 3, 4, 5, 6, 7"),
        (range(10), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
    ],
)
def test_ranks_in_words(ranks, words):
    assert in_words(ranks) == words

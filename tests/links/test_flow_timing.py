import link_workers
import pytest
from gloo_world import run_world

from topotune.links.flow_timing import rate_between

PLANS = [
    ("round", ((0, 1), (1, 0))),
    ("round", ((0, 2), (2, 0))),
    ("alone", ((1, 2),)),
    ("boundary", ((0, 1), (1, 2), (2, 0))),
]


@pytest.mark.gloo
def test_every_flow_has_a_sample_of_every_sweep_and_all_ranks_know_it():
    results = run_world(3, link_workers.flows, PLANS, 3, 60.0)
    tests = results[0][0]
    assert all(found == tests for found, _ in results)
    assert [(test.purpose, test.flows) for test in tests] == PLANS
    assert [test.number for test in tests] == [5, 6, 7, 8]
    assert {test.num_repetitions for test in tests} == {3}
    assert {test.message_bytes for test in tests} == {4096}
    for _, done in results:
        assert done == sorted(done)
        assert done[-1] == 1.0


@pytest.mark.gloo
def test_without_time_the_first_sweep_is_cut_short_on_all_ranks_alike():
    results = run_world(3, link_workers.flows, PLANS, 3, 0.0)
    assert all([test.flows for test in tests] == [PLANS[0][1]] for tests, _ in results)
    assert all(test.num_repetitions == 1 for tests, _ in results for test in tests)


@pytest.mark.gloo
@pytest.mark.parametrize(
    ("num_late", "num_starts"), [(0, 1), (2, 3), (9, 3)], ids=["never", "twice", "always"]
)
@pytest.mark.parametrize("late_rank", [0, 1], ids=["sender", "receiver"])
def test_a_start_that_a_rank_was_late_for_is_made_again_but_not_forever(late_rank, num_late, num_starts):
    results = run_world(2, link_workers.flows_with_late_starts, late_rank, num_late)
    for starts, num_repetitions in results:
        assert starts >= num_starts  # a busy machine may be late by itself
        assert starts <= 3
        assert num_repetitions == 1


@pytest.mark.gloo
def test_a_sender_that_dies_ends_the_run_with_the_peers_rank():
    (kind, message) = run_world(2, link_workers.lose_a_sender, deaths={0})[1]
    assert kind == "RunError"
    assert "rank 1: no answer from rank 0 while" in message


@pytest.mark.parametrize(
    ("span", "rate"),
    [
        ((1.0, 3.0), 100.0),  # between stamps
        ((1.5, 2.5), 100.0),  # halves of messages
        ((0.0, 1.0), 100.0),  # from the start on
        ((3.0, 5.0), 50.0),  # a slower stretch: 100 bytes in 2 s
        ((3.0, 9.0), 50.0),  # the flow ended before the span did
        ((6.0, 9.0), 80.0),  # nothing is left of it: all of it, 400 bytes in 5 s
    ],
)
def test_a_rate_counts_the_bytes_of_its_span(span, rate):
    assert rate_between(0.0, [1.0, 2.0, 3.0, 5.0], 100, *span) == pytest.approx(rate)

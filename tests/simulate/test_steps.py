import numpy as np
import pytest

from topotune.schedule import build
from topotune.schedule.model import COPY, REDUCE
from topotune.simulate.steps import steps_of


def test_a_ring_has_few_different_steps_however_long_it_is():
    steps = steps_of(build("ring", {}, 8))
    assert [(int(step.op[0]) if len(step.op) else None, step.repeats) for step in steps] == [
        (REDUCE, 1),
        (REDUCE, 6),
        (COPY, 1),
        (COPY, 6),
    ]
    for step in steps:
        assert step.fraction == pytest.approx(np.full(8, 1 / 8))


def test_a_message_waits_for_what_its_sender_received_to_combine():
    first, again, turn, last = steps_of(build("ring", {}, 4))
    assert first.waits.tolist() == [0] * 4
    assert again.waits.tolist() == turn.waits.tolist() == [0.25] * 4
    assert last.waits.tolist() == [0] * 4
    assert (first.combines, again.combines, turn.combines, last.combines) == (0, 0.25, 0.25, 0)


def test_what_is_left_to_combine_comes_last_without_messages():
    (exchange, rest) = steps_of(build("recursive_doubling", {}, 2))
    assert len(exchange.src) == 2
    assert (len(rest.src), rest.combines) == (0, 1)


def test_chunks_between_two_ranks_in_one_step_are_one_message():
    largest = steps_of(build("halving_doubling", {}, 8))[0]
    assert len(largest.src) == 8
    assert largest.fraction == pytest.approx(np.full(8, 1 / 2))


def test_a_tree_that_stands_for_many_is_as_many_flows():
    star = [-1, 0, 0]
    steps = steps_of(build("forest", {"weights": [5], "down": [star]}, 3))
    assert {int(streams) for step in steps for streams in step.streams} == {5}


def test_a_schedule_without_transfers_has_no_steps():
    assert steps_of(build("ring", {}, 1)) == []

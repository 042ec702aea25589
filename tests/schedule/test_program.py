"""Programs of all ranks, run against each other on a machine that delivers messages as late as it may."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_strategies import integer_inputs, small_schedules

from topotune.schedule import build, halving_doubling, interpret, recursive_doubling, ring
from topotune.schedule.model import COPY, REDUCE, Schedule
from topotune.schedule.program import (
    COPY_SLOT,
    RECEIVE,
    RECEIVE_SLOT,
    REDUCE_OWN_FIRST,
    REDUCE_OWN_LAST,
    SEND,
    WAIT,
    bind,
    lower,
)

POISON = -(2**40)
OPTIONS = ({}, {"coalesce": True}, {"coalesce": True, "num_slots": 3})


class Rank:
    def __init__(self, bound, message):
        self.ops = bound.ops.tolist()
        self.flat = message.copy()
        self.scratch = np.full(bound.scratch_elements, POISON)
        self.next = 0
        self.posted = []
        self.sending = {}  # transfer -> (offset, end)

    def memory(self, code, offset, length, extra):
        return (
            self.scratch[extra : extra + length]
            if code == RECEIVE_SLOT
            else self.flat[offset : offset + length]
        )


class Machine:
    """A send and its receive meet by (src, dst, tag) and complete together, when the machine chooses."""

    def __init__(self, schedule, messages, seed, **options):
        num_elements = messages.shape[1]
        bound = [bind(lower(schedule, rank, **options), num_elements) for rank in range(schedule.num_ranks)]
        self.ranks = [Rank(*pair) for pair in zip(bound, messages, strict=True)]
        self.halves = {}
        self.deliverable = []
        self.delivered = set()
        self.random = random.Random(seed)

    def run(self):
        while any(rank.next < len(rank.ops) for rank in self.ranks):
            moved = [number for number in range(len(self.ranks)) if self.advance(number)]
            if self.deliverable:
                self.random.shuffle(self.deliverable)
                self.deliver(self.deliverable.pop())
            elif not moved:
                raise AssertionError(f"deadlock: {[rank.ops[rank.next :][:1] for rank in self.ranks]}")
        assert not self.deliverable, "a transfer is not waited for"
        assert len(self.delivered) == len(self.halves), "half of a transfer was never posted"
        return np.array([rank.flat for rank in self.ranks])

    def advance(self, number):
        rank, begin = self.ranks[number], self.ranks[number].next
        while rank.next < len(rank.ops):
            code, offset, length, peer, tag, extra = rank.ops[rank.next]
            assert length > 0
            if code == WAIT:
                if rank.posted[extra] not in self.delivered:
                    break
            elif code in (SEND, RECEIVE, RECEIVE_SLOT):
                self.post(number, code, offset, length, peer, tag, extra)
            else:
                self.assert_not_being_sent(rank, offset, length)
                mine, theirs = rank.flat[offset : offset + length], rank.scratch[extra : extra + length]
                if code == COPY_SLOT:
                    mine[:] = theirs
                else:
                    assert code in (REDUCE_OWN_FIRST, REDUCE_OWN_LAST)
                    mine += theirs
                theirs[:] = POISON
            rank.next += 1
        return rank.next > begin

    def post(self, number, code, offset, length, peer, tag, extra):
        rank = self.ranks[number]
        transfer = (number, peer, tag) if code == SEND else (peer, number, tag)
        half = self.halves.setdefault(transfer, {})
        side = "src" if code == SEND else "dst"
        assert side not in half, f"{transfer} is posted twice"
        memory = rank.memory(code, offset, length, extra)
        half[side] = memory
        rank.posted.append(transfer)
        if code == SEND:
            half["value"] = memory.copy()
            rank.sending[transfer] = (offset, offset + length)
        else:
            if code == RECEIVE:
                self.assert_not_being_sent(rank, offset, length)
            memory[:] = POISON
        if len(half) == 3:
            self.deliverable.append(transfer)

    def assert_not_being_sent(self, rank, offset, length):
        for transfer, (begin, end) in rank.sending.items():
            assert end <= offset or offset + length <= begin, f"{transfer} is overwritten while it is sent"

    def deliver(self, transfer):
        half = self.halves[transfer]
        assert np.array_equal(half["src"], half["value"]), f"{transfer} changed while it was sent"
        half["dst"][:] = half["src"]
        self.delivered.add(transfer)
        del self.ranks[transfer[0]].sending[transfer]


@st.composite
def any_schedules(draw):
    """Transfers that obey the model's rules and need not add up to any collective."""
    num_ranks, num_chunks = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    channel_of_chunk = [draw(st.integers(0, 2)) for _ in range(num_chunks)]
    rows = {}
    for _ in range(draw(st.integers(1, 25))):
        step, chunk = draw(st.integers(0, 4)), draw(st.integers(0, num_chunks - 1))
        src, dst = draw(st.permutations(range(num_ranks)))[:2]
        rows[channel_of_chunk[chunk], step, dst, chunk] = (src, draw(st.sampled_from((COPY, REDUCE))))
    keys = sorted(rows)
    columns = {
        "channel": [key[0] for key in keys],
        "step": [key[1] for key in keys],
        "dst": [key[2] for key in keys],
        "chunk": [key[3] for key in keys],
        "src": [rows[key][0] for key in keys],
        "op": [rows[key][1] for key in keys],
    }
    return Schedule(
        algorithm="any",
        num_ranks=num_ranks,
        chunk_bounds=tuple(range(num_chunks + 1)),
        **{name: np.array(column, dtype=np.int32) for name, column in columns.items()},
    )


@settings(max_examples=150, deadline=None)
@given(small_schedules, st.integers(0, 40), st.sampled_from(OPTIONS), st.integers(0, 2**16))
def test_programs_add_up_whenever_messages_arrive(schedule, num_elements, options, seed):
    messages = integer_inputs(schedule.num_ranks, num_elements, seed) >> 24
    result = Machine(schedule, messages, seed, **options).run()
    assert np.array_equal(result, np.broadcast_to(messages.sum(axis=0), messages.shape))


@settings(max_examples=300, deadline=None)
@given(any_schedules(), st.integers(0, 12), st.sampled_from(OPTIONS), st.integers(0, 2**16))
def test_any_schedule_runs_to_its_end_and_does_what_the_oracle_does(schedule, num_elements, options, seed):
    messages = integer_inputs(schedule.num_ranks, num_elements, seed) >> 40
    result = Machine(schedule, messages, seed, **options).run()
    assert np.array_equal(result, interpret(schedule, messages))


@given(small_schedules, st.sampled_from(OPTIONS))
@settings(max_examples=50, deadline=None)
def test_tags_are_unique_among_the_messages_of_two_ranks(schedule, options):
    for rank in range(schedule.num_ranks):
        ops = lower(schedule, rank, **options).ops
        for codes in ((SEND,), (RECEIVE, RECEIVE_SLOT)):
            posts = ops[np.isin(ops[:, 0], codes)]
            assert len({(peer, tag) for peer, tag in posts[:, 3:5].tolist()}) == len(posts)


@pytest.mark.parametrize("num_slots", [1, 2])
def test_scratch_is_bounded_by_the_message_times_slots(num_slots):
    for algorithm in ("ring", "halving_doubling", "recursive_doubling", "double_binary_tree"):
        bound = bind(lower(build(algorithm, {}, 6), 0, num_slots=num_slots), 100)
        in_scratch = bound.ops[bound.ops[:, 0] == RECEIVE_SLOT]
        assert bound.scratch_elements == 100 * num_slots
        assert (in_scratch[:, 5] + in_scratch[:, 2]).max() <= bound.scratch_elements


def test_a_ring_posts_its_whole_first_lap_before_it_waits():
    codes = lower(ring(5), 0).ops[:, 0].tolist()
    assert codes[: codes.index(WAIT)].count(RECEIVE_SLOT) == 4


def test_a_ring_receives_its_second_lap_in_place():
    codes = lower(ring(5), 0).ops[:, 0].tolist()
    assert codes.count(RECEIVE) == 4
    assert COPY_SLOT not in codes


def test_a_chunk_that_is_swapped_is_received_in_scratch_and_its_send_awaited_before_it_is_reduced():
    codes = lower(recursive_doubling(2), 0).ops[:, 0].tolist()
    assert codes == [RECEIVE_SLOT, SEND, WAIT, WAIT, REDUCE_OWN_FIRST]


def test_the_lower_rank_comes_first_in_every_reduction():
    assert lower(recursive_doubling(2), 1).ops[-1, 0] == REDUCE_OWN_LAST


def test_coalescing_leaves_one_message_per_exchange():
    schedule = halving_doubling(8)
    apart = lower(schedule, 3).ops[:, 0].tolist().count(SEND)
    together = lower(schedule, 3, coalesce=True).ops[:, 0].tolist().count(SEND)
    assert (apart, together) == (14, 6)


def test_chunks_without_elements_send_nothing():
    for rank in range(5):
        bound = bind(lower(ring(5), rank), 2)
        assert (bound.ops[:, 2] == 1).all()
    assert len(bind(lower(ring(5), 0), 0).ops) == 0
    assert bind(lower(ring(5), 0), 0).scratch_elements == 0


def test_a_single_rank_does_nothing():
    assert len(lower(ring(1), 0).ops) == 0


def test_operations_say_what_they_do():
    program = lower(ring(4), 2)
    said = [program.describe(index) for index in range(len(program.ops))]
    assert said[0] == "receiving chunk 0 from rank 1 (step 0)"
    assert said[1] == "sending chunk 1 to rank 3 (step 0)"
    assert "waiting for chunk 0 from rank 1 (step 0)" in said
    assert "reducing chunk 0 (step 0)" in said
    assert said[-1] == "waiting for chunk 0 to be taken by rank 3 (step 5)"
    together = lower(halving_doubling(4), 0, coalesce=True)
    assert together.describe(0) == "receiving chunks 0 to 1 from rank 1 (step 0)"

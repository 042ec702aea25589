"""Reduce-scatter and all-gather as schedules: proven, and held against the numpy interpreter."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_strategies import integer_inputs, num_ranks, partitions, pieces

from topotune.errors import UsageError
from topotune.plan.algorithms import PART_COLLECTIVES, check_params
from topotune.schedule import REDUCE, build, interpret, ring, verify
from topotune.schedule.parts import (
    halving_doubling_of_parts,
    hierarchical_of_parts,
    moved_parts,
    ring_of_parts,
)

collectives = st.sampled_from(PART_COLLECTIVES)
schedules = st.one_of(
    st.builds(ring_of_parts, num_ranks, collectives, channels=st.integers(1, 3), pieces=pieces),
    st.builds(halving_doubling_of_parts, num_ranks, collectives),
    st.builds(hierarchical_of_parts, partitions(), collectives, pieces=st.integers(1, 3)),
)


def parts_of(held, part_of_rank):
    """Each rank's part of what it holds; shape (num_ranks, elements of a part)."""
    rows = held.reshape(len(held), len(held), -1)
    return rows[np.arange(len(held)), part_of_rank]


@given(schedule=schedules, length=st.integers(1, 9), data=st.data())
def test_every_rank_ends_with_its_part_or_with_all_parts(schedule, length, data):
    n = schedule.num_ranks
    part_of_rank = data.draw(st.permutations(range(n)))
    inputs = integer_inputs(n, n * length, seed=length)
    held = interpret(moved_parts(schedule, part_of_rank), inputs)
    if schedule.collective == "reduce_scatter":
        whole = inputs.sum(axis=0).reshape(n, length)
        assert np.array_equal(parts_of(held, part_of_rank), whole[part_of_rank])
    else:
        gathered = np.empty((n, length), dtype=np.int64)
        gathered[part_of_rank] = parts_of(inputs, part_of_rank)
        assert np.array_equal(held, np.broadcast_to(gathered.reshape(-1), held.shape))


@given(schedule=schedules)
def test_every_schedule_is_proven_and_no_longer_than_its_rule_says(schedule):
    assert verify(schedule) == ()
    problem = check_params(
        schedule.algorithm, schedule.params, schedule.num_ranks, collective=schedule.collective
    )
    assert problem is None
    per_part = schedule.num_chunks // schedule.num_ranks
    assert schedule.num_transfers <= schedule.num_ranks**2 * per_part


@given(n=num_ranks, collective=collectives)
def test_a_ring_sends_the_least_bytes_there_are(n, collective):
    schedule = ring_of_parts(n, collective, channels=2, pieces=2)
    sent = np.bincount(schedule.src, weights=schedule.chunk_fractions()[schedule.chunk], minlength=n)
    assert np.allclose(sent, (n - 1) / n)


@given(n=st.integers(2, 33))
def test_halving_takes_one_message_a_step(n):
    schedule = halving_doubling_of_parts(1 << (n.bit_length() - 1), "reduce_scatter")
    for _, rows in itertools.groupby(
        np.lexsort((schedule.src, schedule.step)), lambda row: (schedule.step[row], schedule.src[row])
    ):
        chunks = schedule.chunk[list(rows)]
        assert np.array_equal(chunks, np.arange(chunks[0], chunks[0] + len(chunks)))


def test_hierarchical_crosses_between_groups_once_a_part():
    groups = [[0, 1, 2], [3, 4, 5]]
    schedule = hierarchical_of_parts(groups, "reduce_scatter")
    assert np.count_nonzero(schedule.src // 3 != schedule.dst // 3) == 6


SMALL = ring_of_parts(3, "reduce_scatter"), ring_of_parts(3, "allgather")


@pytest.mark.parametrize(
    ("schedule", "code", "message"),
    [
        pytest.param(
            replace(SMALL[0], collective="allgather"),
            "reduces",
            "row 0 (channel 0, step 0: rank 0 -> 1, chunk 2, reduce) adds up, where an all-gather copies"
            " (5 more)",
            id="all-gather-that-adds-up",
        ),
        pytest.param(
            replace(SMALL[1], collective="reduce_scatter"),
            "missing",
            "rank 0 ends with chunk 0 without the part of rank 1 (2 of 3 parts are missing; cases in all: 3)",
            id="reduce-scatter-that-copies",
        ),
        pytest.param(
            moved_parts(SMALL[1], [1, 0, 2]),
            "wrong-part",
            "rank 0 ends with chunk 0 of rank 1 in place of rank 0's (cases in all: 6)",
            id="parts-of-other-ranks",
        ),
        pytest.param(
            replace(SMALL[0], chunk_bounds=(0, 1, 2, 4)),
            "part-bounds",
            "no chunk ends where the part of rank 0 does, at 1/3",
            id="no-equal-parts",
        ),
        pytest.param(
            replace(SMALL[0], op=np.where(np.arange(6) == 5, REDUCE - 1, REDUCE).astype(np.int32)),
            "missing",
            None,
            id="a-part-replaced",
        ),
    ],
)
def test_what_does_not_do_its_collective_is_found(schedule, code, message):
    violations = verify(schedule)
    assert [violation.code for violation in violations] == [code]
    if message is not None:
        assert violations[0].message == message


def test_an_allreduce_is_no_part_schedule():
    with pytest.raises(UsageError, match="'swing' is no schedule of allgather; there are ring"):
        build("swing", {}, 4, "allgather")
    assert build("ring", {}, 4).collective == "allreduce"
    assert verify(ring(4)) == ()
    with pytest.raises(UsageError, match=r"parts \[0, 0, 1\] are not those of 3 ranks"):
        moved_parts(SMALL[0], [0, 0, 1])

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_strategies import integer_inputs, small_schedules

from topotune.schedule import (
    COPY,
    REDUCE,
    Schedule,
    double_binary_tree,
    hierarchical,
    interpret,
    recursive_doubling,
    ring,
    verify,
)

verifying = sys.modules["topotune.schedule.verify"]  # its function has the same name
COLUMNS = ("step", "channel", "src", "dst", "chunk", "op")


def schedule_of(num_ranks, rows, chunk_bounds=(0, 1)) -> Schedule:
    """A schedule from rows (step, channel, src, dst, chunk, op)."""
    table = np.asarray(rows, dtype=np.int32).reshape(-1, 6)
    columns = {name: table[:, index].copy() for index, name in enumerate(COLUMNS)}
    return Schedule(algorithm="test", num_ranks=num_ranks, chunk_bounds=chunk_bounds, **columns)


def rows_of(schedule) -> np.ndarray:
    return np.stack([getattr(schedule, name) for name in COLUMNS], axis=1)


EXCHANGE = [(0, 0, 0, 1, 0, REDUCE), (0, 0, 1, 0, 0, REDUCE)]


@pytest.mark.parametrize(
    ("schedule", "code", "message"),
    [
        pytest.param(
            schedule_of(2, []),
            "missing",
            "rank 0 ends with chunk 0 without the part of rank 1 (1 of 2 parts are missing; cases in all: 2)",
            id="nothing-sent",
        ),
        pytest.param(
            schedule_of(2, [(0, 0, 1, 0, 0, REDUCE), (1, 0, 0, 1, 0, REDUCE)]),
            "repeated",
            "rank 1 ends with chunk 0 that has some rank's part twice (cases in all: 1)",
            id="part-added-twice",
        ),
        pytest.param(
            schedule_of(
                3,
                [
                    (0, 0, 1, 0, 0, REDUCE),
                    (0, 0, 2, 1, 0, REDUCE),
                    (1, 0, 2, 0, 0, REDUCE),
                    (2, 0, 0, 2, 0, COPY),
                    (3, 0, 2, 1, 0, COPY),
                ],
            ),
            None,
            None,
            id="a-wrong-value-overwritten-in-the-end",
        ),
        pytest.param(
            schedule_of(
                4,
                [
                    (0, 0, 0, 1, 0, REDUCE),
                    (0, 0, 1, 0, 0, REDUCE),
                    (0, 0, 2, 3, 0, REDUCE),
                    (0, 0, 3, 2, 0, REDUCE),
                    (1, 0, 0, 2, 0, REDUCE),
                    (1, 0, 2, 0, 0, REDUCE),
                    (1, 0, 1, 3, 0, REDUCE),
                    (1, 0, 3, 1, 0, REDUCE),
                ],
            ),
            None,
            None,
            id="commuted-trees-are-equal",
        ),
        pytest.param(
            schedule_of(2, [(0, 0, 0, 1, 0, REDUCE), (1, 0, 1, 0, 0, COPY)], chunk_bounds=(0, 1, 2)),
            "missing",
            "rank 0 ends with chunk 1 without the part of rank 1 (1 of 2 parts are missing; cases in all: 2)",
            id="a-chunk-forgotten",
        ),
        pytest.param(
            schedule_of(2, [(0, 0, 0, 0, 0, REDUCE)]),
            "self-send",
            "row 0 (channel 0, step 0: rank 0 -> 0, chunk 0, reduce) sends to itself",
            id="self-send",
        ),
        pytest.param(
            schedule_of(2, [(1, 0, 0, 1, 0, REDUCE), (0, 0, 1, 0, 0, COPY)]),
            "order",
            "row 1 (channel 0, step 0: rank 1 -> 0, chunk 0, copy) comes after a row of a later (channel,"
            " step)",
            id="steps-out-of-order",
        ),
        pytest.param(
            schedule_of(2, [(0, 0, 0, 1, 0, REDUCE), (1, 1, 1, 0, 0, COPY)]),
            "chunk-channel",
            "row 1 (channel 1, step 1: rank 1 -> 0, chunk 0, copy) is in a second channel of its chunk",
            id="chunk-in-two-channels",
        ),
        pytest.param(
            schedule_of(
                3,
                [
                    (0, 0, 0, 2, 0, REDUCE),
                    (0, 0, 1, 2, 0, REDUCE),
                    (1, 0, 2, 0, 0, COPY),
                    (1, 0, 2, 1, 0, COPY),
                ],
            ),
            "received-twice",
            "row 1 (channel 0, step 0: rank 1 -> 2, chunk 0, reduce) is the second with this chunk to its"
            " rank in this step",
            id="two-reductions-at-once",
        ),
        pytest.param(
            schedule_of(2, [*EXCHANGE, (1, 0, 0, 2, 0, COPY), (1, 0, 1, -1, 0, COPY)]),
            "range",
            "row 2 (channel 0, step 1: rank 0 -> 2, chunk 0, copy) has its dst outside 0 … 1 (1 more)",
            id="no-such-rank",
        ),
        pytest.param(
            schedule_of(2, [(0, 0, 0, 1, 7, REDUCE)]),
            "range",
            "row 0 (channel 0, step 0: rank 0 -> 1, chunk 7, reduce) has its chunk outside 0 … 0",
            id="no-such-chunk",
        ),
        pytest.param(
            schedule_of(2, [(0, 0, 0, 1, 0, 2)]),
            "range",
            "row 0 (channel 0, step 0: rank 0 -> 1, chunk 0, op 2) has its op outside 0 … 1",
            id="no-such-op",
        ),
        pytest.param(
            schedule_of(2, EXCHANGE, chunk_bounds=(0, 2, 1)),
            "chunk-bounds",
            "chunk bounds 0, 2, 1 do not rise from 0 to a positive end",
            id="falling-bounds",
        ),
        pytest.param(
            schedule_of(2, EXCHANGE, chunk_bounds=(0, 2**63)),
            "chunk-bounds",
            f"chunk bounds end at {2**63}, more than {2**62}",
            id="huge-bounds",
        ),
        pytest.param(schedule_of(0, []), "size", "0 ranks", id="no-ranks"),
        pytest.param(
            schedule_of(2**20, [], chunk_bounds=tuple(range(100))),
            "size",
            f"{99 * 2**20} ranks times chunks, more than {2**25}",
            id="too-large-to-check",
        ),
        pytest.param(
            replace(schedule_of(2, EXCHANGE), op=np.zeros(3, dtype=np.int64)),
            "columns",
            "op is int64 of shape (3,), not int32 of shape (2,)",
            id="ragged-columns",
        ),
    ],
)
def test_verify_names_what_is_wrong_and_where(schedule, code, message):
    found = verify(schedule)
    if code is None:
        assert found == ()
    else:
        assert [(violation.code, violation.message) for violation in found] == [(code, message)]


def test_associating_differently_on_one_rank_is_an_order_of_reduction():
    # Rank 0 ends with (0 + 1) + (2 + 3), rank 3 with ((0 + 1) + 2) + 3, each with every part once.
    rows = [
        (0, 0, 0, 1, 0, REDUCE),
        (0, 0, 2, 0, 0, COPY),
        (1, 0, 1, 2, 0, REDUCE),
        (1, 0, 3, 0, 0, REDUCE),
        (2, 0, 2, 3, 0, REDUCE),
        (3, 0, 1, 0, 0, REDUCE),
        (4, 0, 3, 1, 0, COPY),
        (4, 0, 3, 2, 0, COPY),
    ]
    schedule = schedule_of(4, rows)
    assert [(violation.code, violation.message) for violation in verify(schedule)] == [
        (
            "order-of-reduction",
            "ranks 0 and 1 reduce chunk 0 in different orders: results may differ in the last bits"
            " (cases in all: 3)",
        )
    ]
    inputs = np.array([[1.0], [1e-16], [1e-16], [1e-16]])
    outputs = interpret(schedule, inputs)
    assert outputs[0] != outputs[3]


@settings(deadline=None, max_examples=300)
@given(small_schedules, st.data())
def test_a_mutation_that_changes_the_result_is_always_found(schedule, data):
    rows = rows_of(schedule)
    row = data.draw(st.integers(0, len(rows) - 1))
    kind = data.draw(
        st.sampled_from(["drop", "duplicate", "move", "retarget", "resource", "rechunk", "flip"])
    )
    if kind == "drop":
        rows = np.delete(rows, row, axis=0)
    elif kind == "duplicate":
        rows = np.insert(rows, row, rows[row], axis=0)
    elif kind == "move":
        rows[row, 0] = data.draw(st.integers(0, int(rows[:, 0].max()) + 1))
    elif kind in ("retarget", "resource"):
        rows[row, 3 if kind == "retarget" else 2] = data.draw(st.integers(0, schedule.num_ranks - 1))
    elif kind == "rechunk":
        rows[row, 4] = data.draw(st.integers(0, schedule.num_chunks - 1))
    else:
        rows[row, 5] ^= 1
    rows = rows[np.lexsort((rows[:, 0], rows[:, 1]))]
    mutant = schedule_of(schedule.num_ranks, rows, schedule.chunk_bounds)
    inputs = integer_inputs(schedule.num_ranks, schedule.chunk_bounds[-1], seed=1)
    right = (interpret(mutant, inputs) == np.sum(inputs, axis=0)).all()
    assert right or verify(mutant) != ()


@settings(deadline=None, max_examples=60)
@given(small_schedules, st.data())
def test_dropping_any_transfer_of_a_generated_schedule_breaks_it(schedule, data):
    rows = np.delete(rows_of(schedule), data.draw(st.integers(0, schedule.num_transfers - 1)), axis=0)
    assert verify(schedule_of(schedule.num_ranks, rows, schedule.chunk_bounds)) != ()


@pytest.mark.parametrize(
    "schedule", [ring(2), ring(7, channels=2, pieces=2), double_binary_tree(9), recursive_doubling(12)]
)
def test_swapping_the_steps_of_two_transfers_of_one_chunk_is_found(schedule):
    rows = rows_of(schedule)
    mine = np.flatnonzero(rows[:, 4] == rows[0, 4])
    first, last = mine[0], mine[-1]
    rows[[first, last], 0] = rows[[last, first], 0]
    rows = rows[np.lexsort((rows[:, 0], rows[:, 1]))]
    assert verify(schedule_of(schedule.num_ranks, rows, schedule.chunk_bounds)) != ()


def test_a_ring_of_512_ranks_is_verified_whole():
    schedule = ring(512)
    assert schedule.num_transfers == 512 * 2 * 511
    assert verify(schedule) == ()


@pytest.mark.parametrize("block_bytes", [8, 64, 2**28])
def test_chunks_in_several_blocks_are_proven_like_all_at_once(monkeypatch, block_bytes):
    monkeypatch.setattr(verifying, "_BLOCK_BYTES", block_bytes)
    whole = hierarchical([[0, 1, 2], [3, 4, 5]], pieces=3)
    assert verify(whole) == ()
    op = whole.op.copy()
    row = int(np.flatnonzero(op == REDUCE)[-1])
    op[row] = COPY
    (found,) = verify(replace(whole, op=op))
    assert found.code == "missing"
    assert f"chunk {whole.chunk[row]} without" in found.message
    assert "cases in all: 6)" in found.message


def test_equal_trees_that_are_built_in_different_steps_are_one():
    rows = [
        (0, 0, 2, 3, 0, REDUCE),
        (1, 0, 1, 2, 0, COPY),
        (2, 0, 0, 1, 0, REDUCE),
        (3, 0, 2, 0, 0, REDUCE),
        (4, 0, 3, 0, 0, REDUCE),
        (5, 0, 3, 1, 0, REDUCE),
        (6, 0, 0, 2, 0, COPY),
        (7, 0, 0, 3, 0, COPY),
    ]
    assert verify(schedule_of(4, rows)) == ()


def test_a_chunk_that_is_combined_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(verifying, "MAX_TREE_BYTES", 8)
    (found,) = verify(recursive_doubling(4))
    assert found.code == "size"
    assert found.message == ("chunk 0 is combined 8 times, more than the 1 that are followed on 4 ranks")

import numpy as np
import pytest

from topotune.errors import UsageError
from topotune.schedule.assemble import MAX_TRANSFERS, Transfers, assemble, check_count, check_num_transfers
from topotune.schedule.model import COPY, REDUCE

COLUMNS = ("channel", "step", "src", "dst", "chunk")


def scattered(most):
    """Transfers in no order, with numbers up to ``most`` in each column."""
    rng = np.random.default_rng(1)
    step, src, dst, chunk, channel = rng.integers(0, most, size=(5, 200))
    return [
        Transfers(step, src, dst, chunk, REDUCE, channel),
        Transfers(step[::-1], src, dst, chunk, COPY, channel),
    ]


@pytest.mark.parametrize("most", [2, 50, 2**30], ids=["equal rows", "one number a row", "too large for that"])
def test_rows_are_sorted_by_channel_step_and_ranks(most):
    parts = scattered(most)
    schedule = assemble("test", {}, most, range(most + 1) if most < 100 else (0, 1), parts)
    rows = list(zip(*(getattr(schedule, name).tolist() for name in COLUMNS), strict=True))
    assert rows == sorted(rows)
    given = [
        tuple(int(value[row]) for value in (part.channel, part.step, part.src, part.dst, part.chunk))
        for part in parts
        for row in range(200)
    ]
    assert rows == sorted(given)
    assert np.count_nonzero(schedule.op == REDUCE) == 200


def test_columns_cannot_be_written_to():
    schedule = assemble("test", {}, 2, (0, 1), [Transfers(0, 0, 1, 0, REDUCE)])
    for name in (*COLUMNS, "op"):
        assert getattr(schedule, name).dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            getattr(schedule, name)[0] = 1


def test_parts_are_spread_over_each_other():
    schedule = assemble(
        "test", {}, 4, range(3), [Transfers(np.arange(2)[:, None], 0, np.array([1, 2, 3]), 1, COPY)]
    )
    assert schedule.step.tolist() == [0, 0, 0, 1, 1, 1]
    assert schedule.dst.tolist() == [1, 2, 3, 1, 2, 3]


def test_no_transfers_are_an_empty_schedule():
    assert assemble("test", {}, 1, (0, 1), []).num_transfers == 0


def test_two_rings_of_2048_ranks_are_the_most():
    check_num_transfers(4 * 2047 * 2048, "torus", 2048)
    with pytest.raises(UsageError) as caught:
        check_num_transfers(MAX_TRANSFERS + 1, "torus", 2049)
    assert caught.value.message == "torus for 2049 ranks would have 16777217 transfers, more than 16777216"


@pytest.mark.parametrize("value", [0, 5, 1.0, True, "1", None])
def test_a_count_is_a_whole_number_in_its_range(value):
    assert check_count("pieces", 4, 4) == 4
    with pytest.raises(UsageError, match=r"^pieces is .*, not a whole number from 1 to 4$"):
        check_count("pieces", value, 4)

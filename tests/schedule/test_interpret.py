import numpy as np
import pytest

from topotune.schedule import COPY, REDUCE, Schedule, interpret, ring


def schedule_of(num_ranks, chunk_bounds, **columns) -> Schedule:
    arrays = {name: np.asarray(values, dtype=np.int32) for name, values in columns.items()}
    return Schedule(algorithm="test", num_ranks=num_ranks, chunk_bounds=chunk_bounds, **arrays)


def test_transfers_of_one_step_read_what_stood_there_when_it_began():
    rotate = schedule_of(
        3, (0, 1), step=[0, 0, 0], channel=[0] * 3, src=[0, 1, 2], dst=[1, 2, 0], chunk=[0] * 3, op=[COPY] * 3
    )
    np.testing.assert_array_equal(interpret(rotate, np.array([[1], [2], [3]])), [[3], [1], [2]])


def test_own_value_is_the_first_operand():
    one = schedule_of(2, (0, 1), step=[0], channel=[0], src=[0], dst=[1], chunk=[0], op=[REDUCE])
    np.testing.assert_array_equal(interpret(one, np.array([[1], [10]]), np.subtract), [[1], [9]])


def test_uneven_chunks_are_cut_where_the_bounds_say():
    one = schedule_of(2, (0, 1, 4), step=[0], channel=[0], src=[0], dst=[1], chunk=[1], op=[COPY])
    np.testing.assert_array_equal(
        interpret(one, np.array([[1, 2, 3, 4, 5, 6], [0] * 6])), [[1, 2, 3, 4, 5, 6], [0, 2, 3, 4, 5, 6]]
    )


@pytest.mark.parametrize("combine", [np.minimum, np.maximum, np.multiply])
def test_other_reductions_work_too(combine):
    inputs = np.random.default_rng(0).integers(1, 5, size=(5, 11))
    outputs = interpret(ring(5, pieces=2), inputs, combine)
    np.testing.assert_array_equal(outputs, np.broadcast_to(combine.reduce(inputs, axis=0), inputs.shape))


def test_the_inputs_stay_as_they_were():
    inputs = np.ones((4, 8))
    interpret(ring(4), inputs)
    assert (inputs == 1).all()


def test_inputs_for_another_number_of_ranks_are_refused():
    with pytest.raises(ValueError, match="inputs for 3 ranks, schedule for 4"):
        interpret(ring(4), np.ones((3, 8)))

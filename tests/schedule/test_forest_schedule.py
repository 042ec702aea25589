import numpy as np
import pytest

from topotune.errors import UsageError
from topotune.schedule.forest import forest
from topotune.schedule.interpret import interpret
from topotune.schedule.verify import verify

CHAIN = [-1, 0, 1, 2]
STAR = [1, -1, 1, 1]
OTHER_STAR = [2, 2, -1, 2]


@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize(
    ("weights", "down", "up"),
    [
        ([1], [CHAIN], None),
        ([3, 1], [STAR, OTHER_STAR], None),
        ([1, 5], [STAR, CHAIN], [[1, -1, 3, 1], [-1, 0, 0, 0]]),
        ([1], [[-1]], None),
    ],
)
def test_a_forest_is_an_allreduce(weights, down, up, pieces):
    schedule = forest(weights, down, up, pieces=pieces)
    assert not verify(schedule)
    rng = np.random.default_rng(0)
    for num_elements in (1, 7, 64):
        inputs = rng.integers(-50, 50, size=(len(down[0]), num_elements))
        outputs = interpret(schedule, inputs)
        assert (outputs == inputs.sum(axis=0)).all()


def test_trees_own_shares_in_proportion_to_their_weights():
    schedule = forest([3, 1], [STAR, OTHER_STAR], pieces=2)
    assert schedule.chunk_fractions().tolist() == [0.375, 0.375, 0.125, 0.125]


@pytest.mark.parametrize(
    ("weights", "down", "up", "says"),
    [
        ([1], [[-1, 2, 1]], None, r"down\[0\] leads rank 1 in a circle"),
        ([1], [[-1, -1, 1]], None, r"down\[0\] has 2 roots"),
        ([1], [[1, 0]], None, r"down\[0\] has 0 roots"),
        ([1], [[-1, 7]], None, r"down\[0\] gives rank 1 the parent 7"),
        ([1], [[-1, "0"]], None, r"the parent '0'"),
        ([1], [[-1, 0]], [[1, -1]], "tree 0 comes down from rank 0 and goes up to another"),
        ([1, 1], [[-1, 0]], None, "2 weights, 1 trees down"),
        ([1, 1], [[-1, 0], [-1, 0, 0]], None, "different numbers of ranks"),
        ([0], [[-1, 0]], None, "a weight is 0"),
        ([], [], None, "the number of trees is 0"),
    ],
)
def test_what_is_no_forest_is_refused_with_its_place(weights, down, up, says):
    with pytest.raises(UsageError, match=says):
        forest(weights, down, up)


def test_a_parent_never_gets_one_piece_from_two_children_at_once():
    schedule = forest([1], [[-1, 0, 0, 0, 0]], pieces=3)
    up = schedule.op == 1
    keys = list(zip(schedule.step[up].tolist(), schedule.chunk[up].tolist(), strict=True))
    assert len(set(keys)) == len(keys)

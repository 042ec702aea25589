import pickle

import pytest

from topotune import errors
from topotune.errors import (
    InputFileError,
    OutputFileError,
    PlanError,
    RankFailedError,
    RunError,
    TopotuneError,
    UsageError,
    WrongResultError,
)

EACH_ERROR = pytest.mark.parametrize(
    ("error", "exit_code", "builtin"),
    [
        (TopotuneError("x"), 1, Exception),
        (UsageError("x"), 2, ValueError),
        (InputFileError("f", "x"), 2, ValueError),
        (PlanError("f", "x"), 2, ValueError),
        (OutputFileError("x"), 2, OSError),
        (RunError("x"), 1, RuntimeError),
        (RankFailedError(1, "x"), 1, RuntimeError),
        (WrongResultError("x"), 1, RuntimeError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)


@EACH_ERROR
def test_each_error_survives_pickling(error, exit_code, builtin):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@EACH_ERROR
def test_each_error_has_its_exit_code_and_is_what_a_caller_expects(error, exit_code, builtin):
    assert error.exit_code == exit_code
    assert isinstance(error, builtin)
    assert isinstance(error, TopotuneError)
    assert str(error) == error.message


def test_every_error_of_the_module_is_in_the_tree_that_it_draws():
    names = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert [name for name in names if name not in errors.__doc__] == []


@pytest.mark.parametrize(
    ("place", "message"),
    [(None, "plan.json: is cut off"), ("groups[0]", "plan.json: groups[0]: is cut off")],
)
def test_an_error_in_a_file_names_file_place_and_problem(place, message):
    assert str(InputFileError("plan.json", "is cut off", place=place)) == message


def test_a_plan_that_cannot_be_used_hints_at_how_to_make_one():
    assert PlanError("plan.json", "is cut off").hint == "topotune tune -o plan.json makes a plan"
    assert PlanError("plan.json", "is cut off", hint="upgrade").hint == "upgrade"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "rank 3 failed: exit code 7"),
        ("  \n\n", "rank 3 failed: exit code 7"),
        ("one\n  two  \n\n", "rank 3 failed: exit code 7; it printed last: two"),
        ("x" * 400, f"rank 3 failed: exit code 7; it printed last: {'x' * 300}"),
    ],
    ids=["nothing", "blank", "last line", "cut"],
)
def test_a_rank_that_failed_is_named_with_what_it_printed_last(output, message):
    assert str(RankFailedError(3, "exit code 7", output)) == message

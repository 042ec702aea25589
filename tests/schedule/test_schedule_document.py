import json

import numpy as np
import pytest
from hypothesis import given, settings
from schedule_strategies import schedules

from topotune.documents import parse_json
from topotune.errors import InputFileError
from topotune.schedule import document_blocks, from_document, hierarchical, read_schedule, ring, to_document

COLUMNS = ("step", "channel", "src", "dst", "chunk", "op")


def read_back(document):
    return from_document(parse_json(json.dumps(document).encode(), "schedule.json"))


@settings(deadline=None, max_examples=40)
@given(schedules)
def test_a_schedule_written_and_read_is_the_same(schedule):
    read = read_back(to_document(schedule))
    assert (read.algorithm, read.params, read.num_ranks) == (
        schedule.algorithm,
        schedule.params,
        schedule.num_ranks,
    )
    assert read.chunk_bounds == schedule.chunk_bounds
    for name in COLUMNS:
        column = getattr(read, name)
        assert column.dtype == np.int32
        np.testing.assert_array_equal(column, getattr(schedule, name))
    assert to_document(read) == to_document(schedule)


def test_params_of_every_kind_are_kept():
    document = to_document(hierarchical([[0, 1], [2]]))
    document["params"] |= {"ratio": 0.5, "forced": True, "order": [2, 0, 1], "note": "by hand"}
    assert read_back(document).params == document["params"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"schema": "topotune/plan"}, "is a topotune/plan, not a topotune/schedule", id="kind"),
        pytest.param(
            {"schema_version": 2},
            "made by a newer topotune: schema_version 2, this one reads 1",
            id="newer",
        ),
        pytest.param({"num_ranks": 0}, "num_ranks: is 0, not a whole number from 1 to 4096", id="no-ranks"),
        pytest.param(
            {"num_ranks": 10**9},
            "num_ranks: is 1000000000, not a whole number from 1 to 4096",
            id="many-ranks",
        ),
        pytest.param({"src": "0"}, "src: is the text '0', not a list", id="no-column"),
        pytest.param({"src": [0, 1.5]}, "src[1]: is the number 1.5, not a whole number", id="fraction"),
        pytest.param({"src": [0, True]}, "src[1]: is true, not a whole number", id="bool"),
        pytest.param(
            {"src": [0, 2**31]},
            "src[1]: is 2147483648, not a whole number from 0 to 2147483647",
            id="beyond-int32",
        ),
        pytest.param(
            {"src": [0, -1]}, "src[1]: is -1, not a whole number from 0 to 2147483647", id="negative"
        ),
        pytest.param(
            {"src": [0]}, "is no allreduce: src is int32 of shape (1,), not int32 of shape (4,)", id="ragged"
        ),
        pytest.param(
            {"chunk_bounds": [0, 3, 2]},
            "is no allreduce: chunk bounds 0, 3, 2 do not rise from 0 to a positive end",
            id="falling-bounds",
        ),
        pytest.param(
            {"op": [0, 0, 0, 0]},
            "is no allreduce: rank 0 ends with chunk 0 without the part of rank 0 (1 of 2 parts are missing;"
            " cases in all: 4)",
            id="copies-only",
        ),
        pytest.param(
            {"params": {"groups": [[0], ["1"]]}},
            "params.groups[1][0]: is the text '1', not a whole number",
            id="params",
        ),
        pytest.param({"colour": 1}, "has the unknown key 'colour'", id="unknown-key"),
    ],
)
def test_a_document_that_is_no_schedule_is_refused_by_place_and_value(change, message):
    document = to_document(ring(2)) | change
    with pytest.raises(InputFileError) as caught:
        read_back(document)
    assert caught.value.message == f"schedule.json: {message}"


def test_a_schedule_is_read_from_its_file(tmp_path):
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(to_document(ring(3))))
    assert read_schedule(path).num_transfers == 12
    with pytest.raises(InputFileError, match="no such file"):
        read_schedule(tmp_path / "other.json")


@settings(deadline=None, max_examples=40)
@given(schedules)
def test_blocks_are_the_text_of_the_document(schedule):
    text = b"".join(document_blocks(schedule))
    assert json.loads(text) == json.loads(json.dumps(to_document(schedule)))


@pytest.fixture(scope="module")
def long_text():
    """A ring of 160 ranks: columns of 50,880 transfers."""
    return b"".join(document_blocks(ring(160)))


def test_long_columns_are_read_by_themselves_and_are_the_same(tmp_path, long_text, monkeypatch):
    path = tmp_path / "long.json"
    path.write_bytes(long_text)
    # Beside its long columns the document is small, so a small bound is enough for what is left.
    monkeypatch.setattr("topotune.schedule.document.MAX_MEASUREMENT_BYTES", 2**14)
    read, schedule = read_schedule(path), ring(160)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(read, name), getattr(schedule, name))
        assert not getattr(read, name).flags.writeable


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(b"3, 4, 5,", b"3, , 5,", "step: is no list of whole numbers", id="gap"),
        pytest.param(b"3, 4, 5,", b"3, 4 5,", "step: is no list of whole numbers", id="no-comma"),
        pytest.param(b"3, 4, 5,", b"3, 4294967296, 5,", "step: holds more than 2147483647", id="32-bits"),
        pytest.param(b"3, 4, 5,", b"3, " + b"9" * 30 + b", 5,", "step: is no list of whole", id="64-bits"),
        pytest.param(b"3, 4, 5,", b"3, 4.5, 5,", "step[4]: is the number 4.5, not a", id="fraction"),
        pytest.param(b"3, 4, 5,", b"3, -4, 5,", "step[4]: is -4, not a whole number from 0", id="negative"),
        pytest.param(b'"src"', b'"step"', "the key 'step' stands twice", id="twice"),
        pytest.param(
            b'"params": {',
            b'"params": {"step": [' + b"0, " * 40000 + b"0], ",
            "40001 numbers, more than 4096",
            id="in-params",
        ),
        pytest.param(b"\n}", b"", "the text ends in the middle", id="cut-off"),
    ],
)
def test_long_columns_that_are_none_are_refused_with_their_place(tmp_path, long_text, old, new, message):
    head, mark, columns = long_text.partition(b'"step": [')
    count = columns.index(b"]")
    numbers = ", ".join(map(str, [0, 1, 2, 3, 4, 5, *[6] * 50874])).encode()
    if old in numbers:
        text = head + mark + numbers.replace(old, new, 1) + columns[count:]
    else:
        text = (head + mark + numbers + columns[count:]).replace(old, new, 1)
    path = tmp_path / "long.json"
    path.write_bytes(text)
    with pytest.raises(InputFileError) as caught:
        read_schedule(path)
    assert message in str(caught.value)


def test_a_long_param_that_is_called_like_a_column_is_not_taken_for_it(tmp_path):
    document = to_document(ring(2))
    document["params"] = {"step": [0] * 40000}
    path = tmp_path / "short.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputFileError, match=r"params.step: stands for a column"):
        read_schedule(path)

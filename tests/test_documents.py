import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.documents import Value, document_of, parse_json, read_bytes, read_document
from topotune.errors import InputFileError


def value_of(raw):
    return Value(raw, "", "file.json", InputFileError)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Lone surrogates are for `Value.text` to refuse, where they have a place.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=50)
@given(raw=json_values, indent=st.none() | st.just(2), ascii_only=st.booleans())
def test_what_is_json_is_read_as_json_reads_it(raw, indent, ascii_only):
    text = json.dumps(raw, indent=indent, ensure_ascii=ascii_only)
    assert parse_json(text.encode("utf-8", "surrogatepass"), "file.json").raw == raw


@given(data=st.binary(max_size=200) | st.text('[]{}",:\\0eE.-NnIiat \n', max_size=60).map(str.encode))
def test_whatever_the_bytes_the_answer_is_a_value_or_one_clear_error(data):
    try:
        json.dumps(parse_json(data, "file.json").raw, allow_nan=False)
        message = "file.json: "
    except InputFileError as error:
        message = str(error)
    assert message.startswith("file.json: ")
    assert "\n" not in message


def test_a_byte_order_mark_is_skipped():
    assert parse_json(b"\xef\xbb\xbf[1]", "file.json").raw == [1]


def test_nesting_up_to_the_bound_is_read():
    assert parse_json(b"[" * 64 + b"]" * 64, "file.json").raw != []
    with pytest.raises(InputFileError, match="nested more than 64 deep"):
        parse_json(b"[" * 65 + b"]" * 65, "file.json")


@pytest.mark.parametrize(
    "text",
    ['["]", "[[[", {"}": "{"}]', '["\\"[", "\\\\", "]"]', "[" + '"[{",' * 300 + '"]"]'],
    ids=["closing and opening", "escaped quotes", "many"],
)
def test_brackets_in_texts_are_no_nesting(text):
    assert parse_json(text.encode(), "file.json").raw == json.loads(text)


def test_texts_cannot_hide_nesting():
    text = '["]",' * 100 + "0" + ',"["]' * 100
    with pytest.raises(InputFileError, match="nested more than 64 deep"):
        parse_json(text.encode(), "file.json")


@pytest.mark.parametrize(
    ("take", "raw", "problem"),
    [
        (lambda value: value.members(["a"]), {}, "lacks the key 'a'"),
        (lambda value: value.members(["alpha"]), {"alpa": 1}, "has the unknown key 'alpa'"),
        (
            lambda value: value.members(["a"])["a"].integer(),
            {"a": "x"},
            "a: is the text 'x', not a whole number",
        ),
        (lambda value: value.items(1, what="pairs"), [1, 2], "has 2 pairs, more than 1"),
        (lambda value: value.items(9)[1].text(), ["x", 1], "[1]: is the number 1, not a text"),
        (lambda value: value.mapping(1), {"a": 1, "b": 2}, "has 2 members, more than 1"),
        (lambda value: value.mapping(9), {"\x1b": 1}, "has the control character U+001B"),
        (lambda value: value.mapping(9)["a b"].text(), {"a b": 1}, "['a b']: is the number 1, not a text"),
        (lambda value: value.text(one_of=("x", "y")), "z", "is 'z', not one of x, y"),
        (lambda value: value.text(max_length=2), "xyz", "has 3 characters, more than 2"),
        (lambda value: value.text(), "a\u202eb", "has the control character U+202E"),
        (lambda value: value.integer(1, 8), 9, "is 9, not a whole number from 1 to 8"),
        (lambda value: value.integer(), True, "is true, not a whole number"),
        (lambda value: value.number(0, 1), 1.5, "is 1.5, not a number of at least 0 and at most 1"),
        (lambda value: value.number(above=True), 0, "is 0, not a number above 0"),
        (lambda value: value.number(), float("nan"), "is nan, not a number of at least 0"),
        (lambda value: value.interval(), [2, 1], "runs from 2 down to 1"),
        (lambda value: value.interval(), [1, 2, 3], "has 3 ends, more than 2"),
        (lambda value: value.boolean(), 1, "is the number 1, not true or false"),
        (lambda value: value.fail("bad", inside="[3].x"), {}, "[3].x: bad"),
        (lambda value: value.item(0).fail("bad", inside="x"), [{}], "[0].x: bad"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_place(take, raw, problem):
    with pytest.raises(InputFileError) as caught:
        take(value_of(raw))
    assert str(caught.value) == f"file.json: {problem}"


def test_a_key_with_a_typing_error_hints_at_the_key_that_was_meant():
    with pytest.raises(InputFileError) as caught:
        value_of({"alpa": 1}).members(["alpha"])
    assert caught.value.hint == "did you mean 'alpha'?"


def test_null_is_none_where_it_may_be():
    assert value_of(None).optional(Value.integer) is None
    assert value_of(3).optional(Value.integer) == 3


def test_an_older_document_is_migrated_step_by_step():
    migrations = {
        1: lambda raw: {**raw, "steps": ["1 to 2"]},
        2: lambda raw: {**raw, "steps": [*raw["steps"], "2 to 3"]},
    }
    document = document_of(value_of({"schema": "x", "schema_version": 1}), "x", 3, migrations)
    assert document.raw == {"schema": "x", "schema_version": 3, "steps": ["1 to 2", "2 to 3"]}


def test_any_document_of_topotune_is_read(tmp_path):
    path = tmp_path / "topology.json"
    path.write_text('{"schema": "topotune/topology", "schema_version": 1}')
    document = {"schema": "topotune/topology", "schema_version": 1}
    assert read_document(path) == document
    assert read_document(path, "topotune/topology") == document


@pytest.mark.parametrize(
    ("text", "schema", "problem"),
    [
        ('{"schema": "topotune/plan"}', "topotune/topology", "is a topotune/plan, not a topotune/topology"),
        ('{"schema": "topotune/recipe"}', None, "is a topotune/recipe, which this topotune does not know"),
        ("{}", None, "is no document of topotune: it lacks the key 'schema'"),
    ],
)
def test_a_document_of_another_kind_is_refused(tmp_path, text, schema, problem):
    path = tmp_path / "document.json"
    path.write_text(text)
    with pytest.raises(InputFileError) as caught:
        read_document(path, schema)
    assert str(caught.value) == f"{path}: {problem}"


def test_a_file_that_the_user_may_not_read_is_refused_with_the_reason(tmp_path):
    with pytest.raises(InputFileError) as caught:
        read_bytes(tmp_path / "a\0b")
    assert str(caught.value).endswith("cannot be read: embedded null byte")


def test_a_file_without_end_is_read_no_further_than_the_bound():
    with pytest.raises(InputFileError, match=r"has [0-9]+ bytes, more than the 10"):
        read_bytes("/proc/self/status", max_bytes=10)


def test_schemas_are_built_only_when_asked_for():
    script = "import sys, topotune.documents; print('pydantic' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "False\n"

"""A field's quick check of a bare value lets through only what its own rule gives back as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topotune.document_fields import (
    RATE_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    Field,
    integer_or_null,
    members_of,
    one_of,
    or_null,
)
from topotune.documents import MAX_TEXT, Value
from topotune.errors import InputFileError

FIELDS = {
    "text": TEXT,
    "text or null": TEXT_OR_NULL,
    "a rate or null": RATE_OR_NULL,
    "a word": one_of(("gpu", "cpu")),
    "3 to 7 or null": integer_or_null(3, 7),
}


def of(raw, place=""):
    return Value(raw, place, "f.json", InputFileError)


RAW = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["gpu", "cpu", "a\x1b[2J", "x" * (MAX_TEXT + 1), "\u202eabc", "é"]),
    st.lists(st.integers(), max_size=2),
    st.just({}),
)


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
@given(raw=RAW)
def test_what_the_quick_check_lets_through_is_what_the_rule_takes(field, raw):
    if field.fits(raw):
        assert field.take(of(raw, "x")) == raw


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("raw", [True, -1, 8, "\x00", "tpu\x1b", [], {}], ids=repr)
def test_what_the_rule_refuses_never_passes_by_the_quick_check(field, raw):
    try:
        field.take(of(raw, "x"))
    except InputFileError:
        with pytest.raises(InputFileError):
            members_of(of({"x": raw}), {"x": field}, frozenset())


def test_members_are_taken_by_their_fields_and_only_where_they_are():
    fields = {"id": TEXT, "speed": RATE_OR_NULL, "twice": Field(lambda value: 2 * value.integer())}
    assert members_of(of({"id": "a", "twice": 4}), fields, frozenset({"id"})) == {"id": "a", "twice": 8}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([], "v: is a list of 0, not an object"),
        ({"id": "a", "colour": "red"}, "v: has the unknown key 'colour'"),
        ({"speed": 1.0}, "v: lacks the key 'id'"),
        ({"id": "a", "speed": 0}, "v.speed: is 0, not a number of at least 1e-06"),
        ({"id": "a", "parts": {"width": 0}}, "v.parts.width: is 0"),
    ],
)
def test_what_an_object_lacks_or_has_too_much_is_said_by_place(raw, said):
    parts = {"width": integer_or_null(1)}
    fields = {
        "id": TEXT,
        "speed": RATE_OR_NULL,
        "parts": Field(or_null(lambda value: members_of(value, parts, frozenset())).take),
    }
    with pytest.raises(InputFileError) as refused:
        members_of(of(raw, "v"), fields, frozenset({"id"}))
    assert refused.value.message.startswith(f"f.json: {said}")

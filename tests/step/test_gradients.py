"""Lists of gradients: read within bounds, and derived from architectures."""

import json
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_facts import made_up_gradients

from topotune.documents import json_schema
from topotune.errors import InputFileError, UsageError
from topotune.step.gradients import gradients_from_document, gradients_to_document, load_gradients
from topotune.step.models import parse_parameters, resnet50, typical_transformer

EXAMPLE = {
    "schema": "topotune/gradients",
    "schema_version": 1,
    "backward_s": 0.5,
    "timed": True,
    "source": "a test",
    "gradients": [
        {"num_bytes": 400, "dtype": "float32", "ready_s": 0.1},
        {"num_bytes": 30, "dtype": "bfloat16", "ready_s": 0.5},
    ],
}


@given(
    made_up=made_up_gradients(max_size=12, dtypes=("float32", "bfloat16", "float64")), is_kept=st.booleans()
)
@settings(deadline=None)
def test_what_is_written_is_valid_and_reads_back(made_up, is_kept):
    if is_kept:
        made_up = replace(made_up, definition_order=tuple(range(len(made_up.gradients)))[::-1])
    document = json.loads(json.dumps(gradients_to_document(made_up)))
    jsonschema.Draft202012Validator(json_schema("gradients")).validate(document)
    assert gradients_from_document(document, "test") == made_up


def test_every_field_is_described_in_the_schema():
    schema = json_schema("gradients")
    for part in (schema, *schema["$defs"].values()):
        for name, entry in part["properties"].items():
            assert "description" in entry or "const" in entry, name


def changed(**changes):
    return {**EXAMPLE, **changes}


def with_gradient(index, **changes):
    gradients = [dict(one) for one in EXAMPLE["gradients"]]
    gradients[index].update(changes)
    return changed(gradients=gradients)


REFUSED = {
    "none": (changed(gradients=[]), "gradients: has 0 items, fewer than 1"),
    "too many": (
        changed(gradients=EXAMPLE["gradients"] * 40_000),
        "gradients: has 80000 items, more than 65536",
    ),
    "part of an element": (
        with_gradient(0, num_bytes=401),
        "gradients[0].num_bytes: is 401, not a whole number of elements of float32",
    ),
    "nothing": (
        with_gradient(1, num_bytes=0),
        "gradients[1].num_bytes: is 0, not a whole number from 1 to 1099511627776",
    ),
    "a type that is not reduced": (
        with_gradient(0, dtype="int8"),
        "gradients[0].dtype: is 'int8', not one of float64, float32, float16, bfloat16",
    ),
    "out of order": (
        with_gradient(0, ready_s=0.6),
        "gradients[1].ready_s: is 0.5, before the 0.6 of the gradient ahead of it",
    ),
    "beyond the end": (
        changed(backward_s=0.4),
        "gradients[1].ready_s: is 0.5, after the backward's end at 0.4",
    ),
    "no backward": (changed(backward_s=0), "backward_s: is 0, not a number above 0 and at most 86400"),
    "an order that leaves one out": (
        changed(definition_order=[1, 1]),
        "definition_order: has 2 indices, 1 of them different, of 2 gradients",
    ),
    "an order of others": (
        changed(definition_order=[0, 2]),
        "definition_order[1]: is 2, not a whole number from 0 to 1",
    ),
    "an unknown key": (changed(weights=[1]), "has the unknown key 'weights'"),
    "a newer one": (
        changed(schema_version=2),
        "made by a newer topotune: schema_version 2, this one reads 1",
    ),
}


@pytest.mark.parametrize(("document", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_document_that_breaks_a_rule_is_refused_with_the_place(tmp_path, document, problem):
    path = tmp_path / "gradients.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputFileError) as caught:
        load_gradients(path)
    assert caught.value.message == f"{path}: {problem}"


def test_resnet50_has_161_tensors_of_25557032_parameters():
    found = resnet50()
    assert len(found.gradients) == 161
    assert found.total_bytes == 4 * 25_557_032
    assert not found.timed
    assert found.sizes[:2] == (4 * 1000, 4 * 2048 * 1000)
    assert found.sizes[-1] == 4 * 64 * 3 * 7 * 7
    # the last stage has three fifths of the parameters and a fifth of the work
    assert sum(found.sizes[:32]) > 0.6 * found.total_bytes
    assert found.ready_s[31] < 0.25


@given(num_parameters=st.integers(10**6, 10**12))
@settings(deadline=None)
def test_a_typical_transformer_has_about_the_parameters_asked_for(num_parameters):
    found = typical_transformer(num_parameters)
    assert found.total_bytes / 4 == pytest.approx(num_parameters, rel=0.06)
    assert found.backward_s == 1.0


@pytest.mark.parametrize(
    ("text", "count"),
    [("350M", 350_000_000), ("1.3B", 1_300_000_000), ("125000", 125_000), ("7g", 7 * 10**9)],
)
def test_numbers_of_parameters_are_decimal(text, count):
    assert parse_parameters(text) == count


@pytest.mark.parametrize("text", ["", "M", "-1M", "350MiB", "1e9", "9" * 40])
def test_what_is_no_number_of_parameters_is_refused(text):
    with pytest.raises(UsageError, match="is no number of parameters"):
        parse_parameters(text)


def test_a_model_too_small_to_be_a_transformer_is_refused():
    with pytest.raises(UsageError, match="a model of 12 parameters"):
        typical_transformer(12)


def test_a_backward_of_another_length_keeps_the_proportions():
    scaled = resnet50().with_backward(3.0)
    assert scaled.timed
    assert scaled.backward_s == 3.0
    assert scaled.ready_s == pytest.approx([3 * ready for ready in resnet50().ready_s])

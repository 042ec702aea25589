import copy
import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_example import example
from plan_strategies import plans

from topotune.documents import KINDS, json_schema
from topotune.errors import PlanError, UsageError
from topotune.plan import plan_from_document, plan_to_document

SCHEMA = json_schema("plan")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.mark.parametrize("kind", KINDS)
def test_each_schema_is_one_and_says_what_it_is_for(kind):
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"const": f"topotune/{kind}"}
    assert schema["properties"]["schema_version"] == {"const": 1}
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize(
    ("name", "hint"), [("plam", "did you mean plan?"), ("x", f"there are: {', '.join(KINDS)}")]
)
def test_a_kind_that_does_not_exist_is_refused_with_those_that_do(name, hint):
    with pytest.raises(UsageError) as caught:
        json_schema(name)
    assert str(caught.value) == f"{name!r}: no such kind of document"
    assert caught.value.hint == hint


def test_every_key_of_a_plan_is_described():
    parts = {"plan": SCHEMA, **SCHEMA["$defs"]}
    silent = [
        f"{title}.{name}"
        for title, part in parts.items()
        for name, entry in part["properties"].items()
        if "description" not in entry and "const" not in entry
    ]
    assert silent == []


@given(plan=plans())
@settings(max_examples=40, deadline=None)
def test_every_plan_that_is_written_is_valid(plan):
    VALIDATOR.validate(plan_to_document(plan))


def nodes(node, path=()):
    """Paths of everything in a document."""
    yield path
    if isinstance(node, dict | list):
        for key, item in node.items() if isinstance(node, dict) else enumerate(node):
            yield from nodes(item, (*path, key))


PATHS = [path for path in nodes(example()) if path]


@given(
    path=st.sampled_from(PATHS),
    value=st.sampled_from([None, True, -1, 0.5, "x", [], {}, "remove", "add"]),
)
@settings(max_examples=400, deadline=None)
def test_what_the_schema_refuses_reading_refuses_too(path, value):
    document = copy.deepcopy(example())
    node = document
    for key in path[:-1]:
        node = node[key]
    if value == "remove":
        del node[path[-1]]
    elif value == "add" and isinstance(node[path[-1]], dict):
        node[path[-1]]["surprise"] = 1
    else:
        node[path[-1]] = value
    if not VALIDATOR.is_valid(document):
        with pytest.raises(PlanError):
            plan_from_document(document, "plan.json")

import json

import pytest
from hypothesis import given, settings
from plan_example import example
from plan_strategies import plans

from topotune.plan import (
    Group,
    GroupShape,
    Row,
    canonical_bytes,
    file_bytes,
    plan_from_bytes,
    plan_from_document,
    plan_to_document,
)
from topotune.plan.rules import BrokenRule


@given(plan=plans())
@settings(max_examples=60, deadline=None)
def test_every_plan_is_itself_after_writing_and_reading(plan):
    assert plan_from_bytes(canonical_bytes(plan), "canonical") == plan
    assert plan_from_bytes(file_bytes(plan), "file") == plan
    assert plan_from_document(plan_to_document(plan), "document") == plan


@given(plan=plans())
@settings(max_examples=30, deadline=None)
def test_the_same_plan_has_the_same_bytes_however_it_came_about(plan):
    assert canonical_bytes(plan_from_bytes(file_bytes(plan), "file")) == canonical_bytes(plan)


def test_a_document_is_kept_whole_number_for_whole_number():
    document = example()
    written = plan_to_document(plan_from_document(document, "plan.json"))
    row = written["groups"][1]["allgather"][0]
    assert row.pop("no_bound_reason") == "no bound was computed"
    for key in ("params", "percent_of_optimum", "bottleneck", "evidence"):
        del row[key]
    assert json.dumps(written, sort_keys=True) == json.dumps(document, sort_keys=True)


def test_canonical_bytes_are_sorted_without_spaces_and_in_utf_8():
    document = example() | {"warnings": ["µs"]}
    data = canonical_bytes(plan_from_document(document, "plan.json"))
    assert data.startswith(b'{"certificate":{"confidence":0.95,')
    assert data.endswith('"warnings":["µs"]}'.encode())


def test_a_table_that_was_not_tuned_is_absent():
    group = plan_to_document(plan_from_document(example(), "plan.json"))["groups"][0]
    assert sorted(group) == ["allreduce", "shape"]


SHAPE = GroupShape(num_ranks=4, num_nodes=1, ranks_per_node=4, stride=1)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: Group(shape=SHAPE, allreduce=(Row(min_bytes=0, max_bytes=8, algorithm="default"),)),
            r"allreduce\[0\].max_bytes: is 8; the last row must be unbounded",
        ),
        (
            lambda: Row(min_bytes=8, max_bytes=8, algorithm="default"),
            "max_bytes: is 8, not above min_bytes = 8",
        ),
        (
            lambda: GroupShape(num_ranks=2, num_nodes=3, ranks_per_node=0, stride=1),
            "num_nodes: is 3, more than num_ranks = 2",
        ),
        (
            lambda: Group(shape=SHAPE, allreduce=(Row(min_bytes=0, max_bytes=None, algorithm="magic"),)),
            r"allreduce\[0\].algorithm: 'magic' is no known algorithm",
        ),
    ],
    ids=["table", "row", "shape", "algorithm"],
)
def test_a_part_that_could_not_be_read_back_cannot_be_made(make, problem):
    with pytest.raises(BrokenRule, match=problem):
        make()

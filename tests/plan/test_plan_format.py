import dataclasses
import json
import re

import plan_format

from topotune.plan import model, plan_from_bytes
from topotune.plan.rules import MAX_GROUPS, MAX_ROWS

TEXT = plan_format.DOCUMENT.read_text()


def test_the_tables_are_those_of_the_model():
    """If this fails: python tests/plan/plan_format.py."""
    assert plan_format.refreshed(TEXT) == TEXT


def test_every_class_of_the_model_has_its_table():
    classes = [
        name
        for name, value in vars(model).items()
        if dataclasses.is_dataclass(value) and value.__module__ == model.__name__
    ]
    assert sorted(plan_format.described_classes(TEXT)) == sorted([*classes, "algorithms", "part_algorithms"])


def test_every_key_is_described():
    assert re.findall(r"^\| `\w+` \|.*\|  \|$", TEXT.split("## Keys")[1], re.MULTILINE) == []


def test_the_example_is_a_plan():
    example = re.search(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert plan_from_bytes(example[1].encode(), "docs").fingerprint.hard.world_size == 4
    json.loads(example[1])


def test_the_bounds_are_those_of_the_rules():
    assert f"A table has 1 to {MAX_ROWS} rows" in TEXT
    assert re.search(rf"a plan 1 to {MAX_GROUPS}\s+groups", TEXT)

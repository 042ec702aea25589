"""One made-up file for each variant of a format, and beside it the facts that a reader must find.

A new case is a file ``fixtures/<format>/<name>.txt`` and its ``<name>.facts.json``, whose keys are those of
`reading_facts.facts_of` and ``warnings``: for each warning in turn, a part of it.
"""

import json
from pathlib import Path

import pytest
from reading_facts import facts_of

from topotune.topology import render, topology_from_bytes, topology_to_document
from topotune.topology.formats import read_files
from topotune.topology.formats.catalog import READERS

FOLDER = Path(__file__).parent / "fixtures"
CASES = sorted(
    path for path in FOLDER.glob("*/*") if path.is_file() and not path.name.endswith(".facts.json")
)


def case_id(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", CASES, ids=case_id)
def test_a_reader_finds_the_facts_of_the_file_and_says_what_it_left_out(path):
    expected = json.loads(path.with_name(f"{path.stem}.facts.json").read_text())
    topology = read_files([str(path)])
    warnings = expected.pop("warnings", [])
    found = facts_of(topology)
    assert {key: found[key] for key in expected} == expected
    assert len(topology.warnings) == len(warnings), topology.warnings
    for part, line in zip(warnings, topology.warnings, strict=True):
        assert part in line


@pytest.mark.parametrize("path", CASES, ids=case_id)
def test_what_was_read_can_be_written_read_again_and_shown(path):
    topology = read_files([str(path)])
    text = json.dumps(topology_to_document(topology))
    assert topology_from_bytes(text.encode(), "t.json") == topology
    assert render(topology)


def test_every_format_has_a_fixture():
    folders = {path.parent.name for path in CASES}
    assert folders | {"topotune"} == {reader.name for reader in READERS}

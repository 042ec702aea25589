"""One made-up output for each variant of a benchmark, and beside it the facts that a reader must find.

A new case is a file ``fixtures/<format>/<name>.txt`` and its ``<name>.facts.json``, whose keys are those of
`figure_facts.figure_facts_of` and ``warnings``: for each warning in turn, a part of it.
"""

import json
from pathlib import Path

import pytest
from figure_facts import figure_facts_of

from topotune.documents import document_text
from topotune.links import fit_links, measurement_from_document, measurement_to_document
from topotune.links.check import check_measurement
from topotune.links.foreign import benchmarks_among, read_measurement
from topotune.links.foreign.catalog import READERS, recognised
from topotune.report.text import describe_measurement

FOLDER = Path(__file__).parent / "fixtures"
CASES = sorted(path for path in FOLDER.glob("*/*.txt"))


def case_id(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", CASES, ids=case_id)
def test_a_reader_finds_the_facts_of_the_output_and_says_what_it_left_out(path):
    expected = json.loads(path.with_name(f"{path.stem}.facts.json").read_text())
    measurement = read_measurement([str(path)])
    warnings = expected.pop("warnings", [])
    found = figure_facts_of(measurement)
    assert {key: found[key] for key in expected} == expected
    assert len(measurement.warnings) == len(warnings), measurement.warnings
    for part, line in zip(warnings, measurement.warnings, strict=True):
        assert part in line


@pytest.mark.parametrize("path", CASES, ids=case_id)
def test_what_was_read_is_a_measurement_that_other_verbs_take(path):
    measurement = read_measurement([str(path)])
    document = json.loads(document_text(measurement_to_document(measurement)))
    assert measurement_from_document(document, "again") == measurement
    model = fit_links(measurement) if measurement.times_links else None
    assert describe_measurement(measurement, model)
    assert [finding.code for finding in check_measurement(measurement).findings] == [
        finding["code"] for finding in document["findings"]
    ]


@pytest.mark.parametrize("path", CASES, ids=case_id)
def test_an_output_is_recognised_by_what_is_in_it_and_by_its_own_reader_alone(path):
    assert benchmarks_among([str(path), str(path.with_name(f"{path.stem}.facts.json"))]) == (str(path),)
    assert [reader.name for reader in recognised(path.read_text())] == [path.parent.name]


def test_every_benchmark_has_a_fixture():
    assert {path.parent.name for path in CASES} == {reader.name for reader in READERS}

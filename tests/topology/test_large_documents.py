"""Topologies of a thousand nodes take tens of megabytes as JSON, and come back."""

from pathlib import Path

import pytest

from topotune.documents import MAX_DOCUMENT_BYTES, MAX_MEASUREMENT_BYTES, document_text
from topotune.errors import InputFileError
from topotune.topology import topology_from_bytes, topology_to_document
from topotune.topology.formats import read_files

MACHINE = Path(__file__).parent / "fixtures" / "nccl-xml" / "odd-links.xml"


def test_a_document_larger_than_a_plan_may_be_is_imported_as_it_is(tmp_path):
    topology = read_files([str(MACHINE)])
    path = tmp_path / "large.json"
    path.write_text(document_text(topology_to_document(topology)) + " " * (MAX_DOCUMENT_BYTES + 1))
    assert read_files([str(path)]) == topology


def test_a_document_is_refused_beyond_what_a_reader_can_hold():
    with pytest.raises(InputFileError, match=f"more than the {MAX_MEASUREMENT_BYTES} that such a document"):
        topology_from_bytes(b" " * (MAX_MEASUREMENT_BYTES + 1), "large.json")

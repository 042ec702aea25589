"""What optimum and simulate take for links: a file's own, a known machine's, or none, with the reason."""

import json
from pathlib import Path

import pytest
from result_files import check, measurement

from topotune.cli.described_links import links_of
from topotune.cli.described_networks import machine_fabric_network, network_of_document
from topotune.documents import read_document
from topotune.errors import InputFileError, UsageError
from topotune.links.document import to_document

PROFILES = Path(__file__).parents[2] / "profiles" / "lab"
NO_CHANGE = (None, None, False, (), ())


def written(path, document):
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def links_file(tmp_path):
    return written(tmp_path / "links.json", to_document(measurement(2, 2)))


def test_measured_links_bring_their_latency_and_warnings(links_file):
    found = links_of(links_file, *NO_CHANGE)
    assert found.graph is not None
    assert found.latency_s > 0
    assert found.warnings == ("a",)


@pytest.mark.parametrize(
    "change",
    [(None, 4, False, (), ()), (None, None, True, (), ()), (None, None, False, ("a",), ()),
     (None, None, False, (), ("a=half",))],
    ids=["--nodes", "--add-nic", "--without", "--set"],
)  # fmt: skip
def test_links_that_were_measured_are_not_to_be_changed(links_file, change):
    with pytest.raises(UsageError, match="is a topotune/measurement; what if is asked of a topology") as no:
        links_of(links_file, *change)
    assert "topotune measure --topology FILE" in no.value.hint


def test_a_machine_that_no_link_limits_has_no_graph():
    assert links_of(PROFILES / "1x4.json", *NO_CHANGE).graph is None


def test_a_document_without_links_is_refused_with_what_is_read(tmp_path):
    file = written(tmp_path / "check.json", check("a"))
    with pytest.raises(UsageError, match="is a topotune/check, which describes no links") as refused:
        links_of(file, *NO_CHANGE)
    assert refused.value.hint == "optimum reads topologies, measurements, lab and machine profiles"
    with pytest.raises(UsageError, match="describes no links") as refused:
        network_of_document(read_document(file), file, None, None)
    assert refused.value.hint.startswith("simulate reads")


def test_a_measurement_that_times_no_links_is_refused_by_its_name(tmp_path):
    document = to_document(measurement(2, 2)) | {"pairs": []}
    with pytest.raises(InputFileError) as refused:
        links_of(written(tmp_path / "empty.json", document), *NO_CHANGE)
    assert refused.value.message.startswith(f"{tmp_path}/empty.json: ")


def test_a_lab_says_itself_how_many_nodes_it_has_and_needs_links():
    file = PROFILES / "2x4.json"
    with pytest.raises(UsageError, match="says itself how many nodes it has"):
        network_of_document(read_document(file), file, None, 3)
    alone = PROFILES / "1x4.json"
    with pytest.raises(UsageError, match="all ranks share one machine, where no link is described"):
        network_of_document(read_document(alone), alone, None, None)


def test_a_fabric_is_of_known_machines_and_of_a_number_of_them():
    for profile, nodes in ((None, 8), ("dgx-h100", None)):
        with pytest.raises(UsageError, match="lay out a fabric of known machines"):
            machine_fabric_network(profile, nodes, None, None, False)
    found = machine_fabric_network("dgx-h100", 8, 4, 2.0, False)
    assert found.name == "8 x dgx-h100 on a fat tree"
    assert found.network.num_ranks == 64
    assert found.nccl is not None
    assert found.nccl.num_nodes == 8

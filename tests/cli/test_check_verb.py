"""``topotune check`` and what ``measure`` says of several nodes, as a user runs them on one machine."""

import json

import jsonschema
import pytest
from command_line import topotune

from topotune.documents import json_schema


@pytest.mark.gloo
def test_check_alone_says_that_there_are_no_other_nodes(tmp_path):
    done = topotune("check", "--nproc-per-node", "2", "--budget", "1s", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema("check"))
    assert done.returncode == (3 if any(f["severity"] != "info" for f in document["findings"]) else 0)
    assert "one-node" in [finding["code"] for finding in document["findings"]]
    assert document["num_ranks"] == 2


@pytest.mark.gloo
def test_check_reads_a_measurement_and_fails_from_the_severity_that_was_asked_for(measured):
    folder, _ = measured
    done = topotune("check", "links.json", "--fail-on", "info", "-o", "check.json", cwd=folder)
    assert done.returncode == 3
    assert "2 ranks on 1 node\n" in done.stdout
    assert "info: one-node, node " in done.stdout
    assert json.loads((folder / "check.json").read_bytes())["schema"] == "topotune/check"
    assert topotune("check", "links.json", "--fail-on", "error", cwd=folder).returncode == 0


@pytest.mark.gloo
def test_a_network_between_nodes_cannot_be_written_of_one_node(measured):
    folder, done = measured
    assert done.returncode == 2
    assert "2 ranks on 1 node" in done.stdout  # what was measured is not lost
    assert next(line for line in done.stderr.splitlines() if line.startswith("error: ")) == (
        "error: --topology network.json: all ranks are on one node, and there is no network between nodes to "
        "write"
    )
    assert (folder / "links.json").exists()
    assert not (folder / "network.json").exists()


@pytest.mark.parametrize(
    ("arguments", "first_line"),
    [
        (["--fail-on", "bad"], "error: --fail-on bad: is none of info, warning, error"),
        (["--budget", "0"], "error: '0' is no duration above 0"),
        (["nowhere.json"], "error: nowhere.json: no such file"),
        (["-o", "no/such.json"], "error: no/such.json: the folder "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_of_check_is_refused(tmp_path, arguments, first_line):
    done = topotune("check", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(first_line)

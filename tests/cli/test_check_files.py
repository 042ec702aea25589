"""``topotune check`` of descriptions, and of this machine without measuring."""

import json

import jsonschema
import pytest
from command_line import topotune

from topotune.documents import json_schema

NVLINKS = """GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-00000000-0000-0000-0000-000000000000)
\t Link 0: 25.781 GB/s
\t Link 1: 25.781 GB/s
\t Link 2: 25.781 GB/s
\t Link 3: <inactive>
\t Link 4: 25.781 GB/s
\t Link 5: <inactive>
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nvlinks.txt").write_text(NVLINKS)
    return tmp_path


def test_a_capture_is_checked_and_exits_by_severity(folder):
    done = topotune("check", "nvlinks.txt", "--fail-on", "error", "--json", cwd=folder)
    assert done.returncode == 3
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema("check"))
    (finding,) = document["findings"]
    assert (finding["code"], finding["severity"]) == ("nvlink-down", "error")
    assert document["num_ranks"] is None


def test_this_machine_is_looked_at_without_measuring(folder):
    done = topotune("check", "--no-measure", "--json", cwd=folder)
    document = json.loads(done.stdout)
    assert document["num_ranks"] is None
    assert done.returncode == (3 if any(f["severity"] != "info" for f in document["findings"]) else 0)


def test_a_profile_that_does_not_exist_is_refused_before_any_work(folder):
    done = topotune("check", "--profile", "nowhere", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no machine profile 'nowhere'")


COPIES = """nvbandwidth Version: v0.8
Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.31     12.20

SUM host_to_device_memcpy_ce 67.51
"""


def test_a_benchmarks_output_is_held_against_the_marks_of_a_machine(folder):
    (folder / "copies.txt").write_text(COPIES)
    done = topotune("check", "copies.txt", "--profile", "azure-nd96isr_h100_v5", "--json", cwd=folder)
    assert done.returncode == 3
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["code"] == "copies-below-mark"
    assert finding["evidence"].startswith(
        "GPU 1 12.2 GB/s, and a healthy azure-nd96isr_h100_v5 has at least 48"
    )


def test_a_topology_and_a_measurement_are_checked_together(folder):
    (folder / "copies.txt").write_text(COPIES)
    done = topotune(
        "check", "copies.txt", "nvlinks.txt", "--profile", "azure-nd40rs_v2", "--json", cwd=folder
    )
    codes = {finding["code"] for finding in json.loads(done.stdout)["findings"]}
    assert {"nvlink-down", "fewer-gpus"} <= codes
    two = topotune("import", "copies.txt", "-o", "copies.json", cwd=folder)
    assert two.returncode == 0
    done = topotune("check", "copies.txt", "copies.json", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: copies.json and copies.txt are two measurements")


def test_show_takes_captures_as_import_does(folder):
    (folder / "copies.txt").write_text(COPIES)
    assert "memcpy" in topotune("show", "copies.txt", cwd=folder).stdout
    assert "1 × Tesla V100-SXM2-32GB" in topotune("show", "nvlinks.txt", cwd=folder).stdout
    assert json.loads(topotune("show", "nvlinks.txt", "--json", cwd=folder).stdout)["num_gpus"] == 1
    (folder / "note.txt").write_text("hello")
    done = topotune("show", "note.txt", cwd=folder)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: note.txt: line 1 column 1: is no JSON: Expecting value",
    )

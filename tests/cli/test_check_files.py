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

"""A link that becomes slower while a job runs is told of once."""

import json
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.gloo, pytest.mark.timeout(180)]

PROFILE = {
    "schema": "topotune/lab",
    "schema_version": 1,
    "nodes": [{"name": name, "ranks": 1, "bits_per_s": 200_000_000} for name in "ab"],
}


def test_a_link_that_becomes_slower_is_told_once(start_lab, tmp_path):
    profile = tmp_path / "pair.json"
    profile.write_text(json.dumps(PROFILE))
    lab = start_lab(str(profile), "", sys.executable, str(Path(__file__).with_name("drifting.py")))
    output, errors = lab.communicate(timeout=150)
    assert lab.returncode == 0, errors
    (line,) = [line for line in output.splitlines() if "findings" in line]
    seen = json.loads(line[line.index("{") :])
    (finding,) = seen["findings"]
    assert finding in ("slower", "worse"), seen
    (warning,) = seen["warnings"]
    assert warning.startswith("topotune: world of 2 ranks: allreduce of 256 KiB by ring takes "), warning
    assert "times what was usual; the default takes " in warning

"""What plans gain on emulated clusters, by comparisons on fresh samples in a lab of their own."""

import json
import sys

import pytest

pytestmark = [pytest.mark.gloo, pytest.mark.measured, pytest.mark.timeout(1200)]

TOPOTUNE = (sys.executable, "-m", "topotune")


@pytest.fixture
def compared(start_lab, tmp_path):
    """``compared(profile)``: (a plan for 8 MiB, its comparison with the default), documents both."""

    def run(profile, *command):
        process = start_lab(profile, "", *TOPOTUNE, *command, "--sizes", "8M")
        stdout, stderr = process.communicate(timeout=360)
        assert process.returncode == 0, stderr
        return stdout

    def compare(profile):
        path = tmp_path / f"{profile}.plan.json"
        run(profile, "tune", "--fresh", "--budget", "180s", "-o", str(path))
        (row,) = json.loads(run(profile, "compare", str(path), "--budget", "40s", "--json"))["rows"]
        return json.loads(path.read_text()), row

    return compare


def test_a_plan_for_two_nodes_is_half_again_as_fast_as_the_default(compared):
    _, row = compared("2x4")
    assert row["ratio"] >= 1.5
    assert row["verdict"] == "faster"


def test_ranks_dealt_round_the_nodes_cost_the_default_half_its_speed_and_a_plan_nothing(compared):
    in_blocks, (plan, dealt) = compared("4x2")[1], compared("4x2-scattered")
    assert plan["rank_order"] == [0, 4, 1, 5, 2, 6, 3, 7]
    assert dealt["plan_median_s"] <= 1.1 * in_blocks["plan_median_s"]
    assert dealt["default_median_s"] == pytest.approx(2 * in_blocks["default_median_s"], rel=0.2)

import json
from pathlib import Path

import pytest
from closed_schema import validate_written
from command_line import topotune

PROFILES = Path(__file__).parents[2] / "profiles" / "lab"


def test_optimum_names_the_bottleneck_and_gives_times(tmp_path):
    done = topotune(
        "optimum",
        str(PROFILES / "4x2-degraded.json"),
        "--sizes",
        "8M",
        "--json",
        "-o",
        "best.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "best.json").read_text())
    validate_written(document, "optimum")
    assert document["allreduce"]["bottleneck"] == {"text": "link of node c, 50 Mbit/s", "cut": ["c"]}
    (size,) = document["sizes"]
    assert size["time_s"] == pytest.approx(8 * 2**20 / 6.25e6)
    assert size["flat_ring_time_s"] > size["time_s"]


def test_optimum_for_people_shows_what_flat_rings_reach(tmp_path):
    done = topotune("optimum", str(PROFILES / "racks-2x2x2.json"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "uplink of rack left, 100 Mbit/s" in done.stdout
    assert "57 % of the optimum" in done.stdout


def test_optimum_of_one_machine_is_refused_with_the_reason(tmp_path):
    done = topotune("optimum", str(PROFILES / "1x4.json"), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "no link limits it" in done.stderr


def test_optimum_of_a_document_without_links_says_what_it_reads(tmp_path):
    topotune("optimum", str(PROFILES / "2x4.json"), "-o", "best.json", cwd=tmp_path)
    done = topotune("optimum", "best.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "best.json" in done.stderr.splitlines()[0]


def test_optimum_of_known_machines_needs_no_file(tmp_path):
    done = topotune("optimum", "--profile", "dgx-a100", "--nodes", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["allgather"]["algbw_bytes_per_s"] == pytest.approx(346.67e9, rel=1e-4)


def test_servers_that_only_add_stand_beside_the_optimum_without(tmp_path):
    done = topotune("optimum", "--profile", "dgx-h100", "--nodes", "4", "--servers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "allreduce, servers adding" in done.stdout
    assert "2 servers that only add" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("optimum", "--profile", "dgx-a10"), "no machine profile 'dgx-a10'"),
        (("optimum", "here.json", "--profile", "dgx-a100"), "here.json and --profile dgx-a100: give one"),
        (("optimum",), "neither a file nor --profile"),
        (("show", "--profile", "a6000-4gpu", "--nodes", "2"), "no adapter"),
        (("show", "--profile", "auto"), "--profile auto"),
    ],
    ids=["unknown", "both", "neither", "nothing joins them", "no known machine"],
)
def test_a_profile_that_cannot_be_used_is_refused_in_one_line(tmp_path, arguments, words):
    done = topotune(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert words in done.stderr.splitlines()[0]


def test_show_says_what_a_known_machine_is_and_where_that_stands(tmp_path):
    done = topotune("show", "--profile", "aws-p4d.24xlarge", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 EFA ports of 100 Gbit/s" in done.stdout
    assert "sources" in done.stdout
    document = json.loads(topotune("show", "--profile", "aws-p4d.24xlarge", "--json", cwd=tmp_path).stdout)
    assert document["num_gpus"] == 8
    assert document["num_nics"] == 4

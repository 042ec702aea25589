import json
from pathlib import Path

import jsonschema
import pytest
from command_line import topotune

from topotune.documents import json_schema

PROFILES = Path(__file__).parents[2] / "profiles" / "lab"


def test_all_algorithms_stand_beside_the_optimum(tmp_path):
    done = topotune("simulate", str(PROFILES / "4x2-degraded.json"), "--sizes", "8M", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema("prediction"))
    assert document["bottleneck"]["text"] == "link of node c, 50 Mbit/s"
    (size,) = document["sizes"]
    best = size["predictions"][0]
    assert best["algorithm"] == "forest"
    assert best["time_s"] >= size["optimum_s"] >= 8 * 2**20 / 6.25e6
    assert best["percent_of_optimum"] == pytest.approx(100 * size["optimum_s"] / best["time_s"])
    named = {one["algorithm"] for one in size["predictions"]}
    assert {"ring", "double_binary_tree", "halving_doubling", "hierarchical", "forest"} <= named


def test_the_table_fits_80_columns(tmp_path):
    done = topotune("simulate", str(PROFILES / "4x2.json"), "--sizes", "1K:1G", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "the optimum" in done.stdout
    assert "NCCL" not in done.stdout


@pytest.mark.parametrize("algorithm", ["ring", "forest"])
def test_a_schedule_that_was_written_is_read_back_and_takes_the_same_time(tmp_path, algorithm):
    lab = str(PROFILES / "4x2.json")
    done = topotune(
        "simulate", lab, "--sizes", "8M", "--algorithm", algorithm, "--emit", "s.json", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    again = topotune("simulate", lab, "--sizes", "8M", "--schedule", "s.json", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    (written,), (read,) = (json.loads(one.stdout)["sizes"] for one in (done, again))
    assert read["predictions"] == [
        {**written["predictions"][0], "time_s": pytest.approx(written["predictions"][0]["time_s"])}
        | {"percent_of_optimum": pytest.approx(written["predictions"][0]["percent_of_optimum"])}
    ]


def test_a_known_machine_is_simulated_in_any_number(tmp_path):
    done = topotune(
        "simulate", "--profile", "dgx-h100", "--nodes", "2", "--sizes", "1M", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema("prediction"))
    assert document["num_ranks"] == 16
    assert document["nccl_version"] == "2.30"
    assert document["sizes"][0]["nccl"]["algorithm"] in ("ring", "tree")


def test_65536_ranks_of_a_known_machine_lie_on_a_fabric(tmp_path):
    cluster = ("--profile", "dgx-h100", "--nodes", "8192", "--oversubscription", "4", "--rails")
    done = topotune("simulate", *cluster, "--sizes", "1G", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("allreduce on 65536 ranks, 8192 x dgx-h100 on rails\n")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_dragonfly_needs_no_file(tmp_path):
    cluster = ("--dragonfly", "4x2x4", "--link-rate", "200Gbit")
    done = topotune("simulate", *cluster, "--sizes", "1M", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema("prediction"))
    assert (document["num_ranks"], document["network"]) == (32, "a dragonfly of 4x2x4")
    assert {"hierarchical", "blueconnect", "ring"} <= {
        one["algorithm"] for one in document["sizes"][0]["predictions"]
    }


def test_sides_of_a_torus_are_levels(tmp_path):
    cluster = ("--torus", "3x4x3", "--link-rate", "400Gbit")
    done = topotune("simulate", *cluster, "--sizes", "1M,1G", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("allreduce on 36 ranks, a torus of 3x4x3\n")
    assert "blueconnect" in done.stdout


@pytest.mark.slow
def test_more_ranks_than_a_plan_may_have_are_written_out_and_read_back(tmp_path):
    cluster = ("simulate", "--torus", "24x24", "--link-rate", "400Gbit", "--sizes", "1G", "--json")
    wrote = topotune(*cluster, "--algorithm", "ring", "--emit", "ring.json", cwd=tmp_path)
    assert wrote.returncode == 0, wrote.stderr
    read = topotune(*cluster, "--schedule", "ring.json", cwd=tmp_path)
    assert read.returncode == 0, read.stderr
    first, second = (json.loads(done.stdout)["sizes"][0]["predictions"] for done in (wrote, read))
    assert first[0]["time_s"] == second[0]["time_s"]


def test_racks_of_nodes_are_three_levels(tmp_path):
    done = topotune("simulate", str(PROFILES / "racks-2x2x2.json"), "--sizes", "8M", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (size,) = json.loads(done.stdout)["sizes"]
    of_three = {
        one["params"]["pieces"]: one["percent_of_optimum"]
        for one in size["predictions"]
        if one["params"].get("groups") == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    }
    assert size["optimum_s"] == pytest.approx(0.671, abs=0.001)
    assert of_three[1] == pytest.approx(67, abs=1)
    assert of_three[16] > 85


def test_a_schedule_that_is_no_allreduce_is_refused(tmp_path):
    lab = str(PROFILES / "4x2.json")
    topotune("simulate", lab, "--sizes", "8M", "--algorithm", "ring", "--emit", "s.json", cwd=tmp_path)
    document = json.loads((tmp_path / "s.json").read_text())
    document["op"][0] = 1 - document["op"][0]
    (tmp_path / "bad.json").write_text(json.dumps(document))
    done = topotune("simulate", lab, "--schedule", "bad.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: bad.json: is no allreduce")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "simulate takes a FILE or --profile NAME"),
        ((str(PROFILES / "4x2.json"), "--nodes", "2"), "says itself how many nodes it has"),
        ((str(PROFILES / "4x2.json"), "--algorithm", "fast"), "'fast': there is no such schedule"),
        ((str(PROFILES / "4x2.json"), "--emit", "s.json"), "--emit writes one schedule"),
        ((str(PROFILES / "1x4.json"),), "all ranks share one machine"),
        (("--torus", "4x4"), "--torus needs the rate of its links"),
        (("--torus", "4x4", "--link-rate", "1Gbit", "--nodes", "2"), "--torus lays out ranks by itself"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_reason(tmp_path, arguments, says):
    done = topotune("simulate", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert says in done.stderr


def test_servers_that_only_add_are_emitted_and_read_back(tmp_path):
    cluster = (
        "simulate",
        "--profile",
        "dgx-h100",
        "--nodes",
        "2",
        "--servers",
        "2",
        "--sizes",
        "1G",
        "--json",
    )
    done = topotune(*cluster, "--algorithm", "dedicated_servers", "--emit", "served.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (size,) = json.loads(done.stdout)["sizes"]
    assert json.loads((tmp_path / "served.json").read_text())["servers"] == [16, 17]
    again = topotune(*cluster, "--schedule", "served.json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    (read,) = json.loads(again.stdout)["sizes"][0]["predictions"]
    assert read["time_s"] == pytest.approx(size["predictions"][0]["time_s"])
    assert 80 < read["percent_of_optimum"] <= 100
    alone = topotune(*cluster[:5], "--schedule", "served.json", cwd=tmp_path)
    assert alone.returncode == 2
    assert "16 ranks and 2 servers, the network has 16 ranks" in alone.stderr

"""What is hidden in emulated clusters is found by measuring them, and nothing is found where nothing is."""

import json
import re
import sys

import pytest

from topotune.documents import read_document
from topotune.links import find, fit_links, infer_structure, measurement_from_document

M = 1e6 / 8  # bytes/s in a Mbit/s

pytestmark = [pytest.mark.measured, pytest.mark.timeout(600)]


@pytest.fixture
def measured(start_lab, tmp_path):
    """Runs ``topotune measure`` on every rank of a lab: ``measured(profile, budget)`` → the measurement."""

    def measure(profile: str, budget: str):
        file = tmp_path / "links.json"
        command = [sys.executable, "-m", "topotune", "measure", "--budget", budget, "-o", str(file)]
        process = start_lab(profile, "", *command)
        _, stderr = process.communicate(timeout=150)
        assert process.returncode == 0, stderr
        return measurement_from_document(read_document(file), str(file))

    return measure


def warned(measurement):
    findings = find(measurement, fit_links(measurement))
    return [(finding.code, finding.where) for finding in findings if finding.severity != "info"]


@pytest.mark.parametrize(
    ("profile", "racks", "uplink_mbit_per_s", "nodes_mbit_per_s"),
    [
        ("racks-2x2x2", [(0, 1), (2, 3)], 100, 400),
        ("racks-2x4x1", [(0, 1, 2, 3), (4, 5, 6, 7)], 200, 800),
    ],
    ids=["already single flows show them", "only concurrent flows show them"],
)
def test_racks_are_found_with_what_their_uplinks_carry(
    measured, profile, racks, uplink_mbit_per_s, nodes_mbit_per_s
):
    structure = infer_structure(measured(profile, "20s"))
    assert sorted(group.nodes for group in structure.groups) == racks, structure.no_groups
    for group in structure.groups:
        for uplink in (group.sending, group.receiving):
            assert uplink.capacity_bytes_per_s == pytest.approx(uplink_mbit_per_s * M, rel=0.15)
            expected = pytest.approx(nodes_mbit_per_s / uplink_mbit_per_s, rel=0.2)
            assert uplink.oversubscription == expected
    assert structure.faults == ()


def test_the_slow_node_is_named_with_its_rate_and_check_fails(start_lab, tmp_path):
    topotune = f"{sys.executable} -m topotune"
    script = (
        f"{topotune} measure --budget 15s --topology {tmp_path}/network.json -o {tmp_path}/links.json"
        f' > /dev/null && if [ "$RANK" = 0 ]; then {topotune} check {tmp_path}/links.json --json; fi'
    )
    process = start_lab("4x2-degraded", "", "sh", "-c", script)
    stdout, stderr = process.communicate(timeout=150)
    assert process.returncode == 3, stderr
    (finding,) = (finding for finding in json.loads(stdout)["findings"] if finding["severity"] != "info")
    assert (finding["code"], finding["where"]) == ("slow-node", "node c")
    structure = infer_structure(
        measurement_from_document(read_document(tmp_path / "links.json"), "links.json")
    )
    assert structure.groups == ()
    assert {(fault.source, fault.sink) for fault in structure.faults} == {(2, None), (None, 2)}
    for fault in structure.faults:
        assert fault.rate_bytes_per_s == pytest.approx(50 * M, rel=0.15)
        assert fault.class_bytes_per_s == pytest.approx(200 * M, rel=0.15)
        assert fault.num_slow == fault.num_runs
    network = read_document(tmp_path / "network.json", "topotune/topology")
    rates = {(link["src"], link["dst"]): link["bandwidth_bytes_per_s"] for link in network["links"]}
    assert rates["c/cpu", "spine"] == pytest.approx(50 * M, rel=0.15)
    assert rates["a/cpu", "spine"] == pytest.approx(200 * M, rel=0.15)


def test_check_under_a_launcher_says_what_the_slow_node_sends_and_others_do(start_lab):
    process = start_lab("4x2-degraded", "", sys.executable, "-m", "topotune", "check", "--json")
    stdout, stderr = process.communicate(timeout=150)
    assert process.returncode == 3, stderr
    document = json.loads(stdout)
    assert document["num_ranks"] == 8
    assert document["elapsed_s"] <= 33  # 30 s, and the message that is under way when they are over
    (finding,) = (finding for finding in document["findings"] if finding["code"] == "slow-node")
    assert finding["where"] == "node c"
    words = r"node c sends at ([\d.]+) Mbit/s where its class has ([\d.]+) Mbit/s \((\d+) of (\d+) runs\)"
    rate, of_class, num_slow, num_runs = map(float, re.match(words, finding["evidence"]).groups())
    assert (rate, of_class) == (pytest.approx(50, rel=0.15), pytest.approx(200, rel=0.15))
    assert num_slow == num_runs >= 3
    assert finding["advice"]


@pytest.mark.parametrize(("profile", "budget"), [("8x1", "15s"), ("4x2", "12s"), ("1x4", "4s")])
def test_nothing_is_found_in_healthy_clusters(measured, profile, budget):
    measurement = measured(profile, budget)
    structure = infer_structure(measurement)
    assert structure.groups == structure.faults == ()
    assert structure.no_groups
    assert warned(measurement) == []

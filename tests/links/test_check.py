import json

import jsonschema
import pytest
from made_up_links import affine, measured
from made_up_network import LINE, Network, racks

from topotune.documents import json_schema
from topotune.links.check import check_measurement, check_to_document, reaches
from topotune.links.finding import Finding
from topotune.report.text import describe_check


def warned(check):
    return [(finding.code, finding.where) for finding in check.findings if finding.severity != "info"]


def test_a_slow_node_is_named_with_its_rate_that_of_its_class_and_the_runs():
    network = Network(num_nodes=4, sending={2: LINE / 4}, receiving={2: LINE / 4}, ranks_per_node=2)
    check = check_measurement(network.explored())
    assert warned(check) == [("slow-node", "node c")]
    finding = check.findings[0]
    assert "Mbit/s where its class has" in finding.evidence
    assert "(8 of 8 runs)" in finding.evidence
    assert 40 < finding.cost_percent < 80
    text = describe_check(check_to_document(check))
    assert text.splitlines()[:2] == ["8 ranks on 4 nodes", "warning: slow-node, node c"]
    assert finding.evidence in text
    assert finding.advice in text


@pytest.mark.parametrize(
    ("uplink", "codes"),
    [(LINE / 2, {"oversubscribed-uplink"}), (LINE, set())],
    ids=["half a node's rate", "a node's rate, which costs the best allreduce nothing"],
)
def test_an_uplink_is_warned_of_where_it_costs_speed_and_told_of_in_any_case(uplink, codes):
    check = check_measurement(racks(4, 4, uplink=uplink).explored())
    assert {code for code, _ in warned(check)} == codes
    assert {"racks", "oversubscribed-uplink"} <= {finding.code for finding in check.findings}


def test_a_healthy_cluster_gives_no_warning():
    check = check_measurement(Network(num_nodes=8).explored())
    assert warned(check) == []
    assert not reaches(check.findings, "warning")


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_of_a_single_node_it_is_said_that_there_are_no_others(num_ranks):
    check = check_measurement(measured([0] * num_ranks, lambda *_: affine(1e-5, 1e9)))
    (finding,) = check.findings
    assert (finding.code, finding.severity, finding.where) == ("one-node", "info", "node a")
    assert "there are no other nodes" in finding.evidence
    assert describe_check(check_to_document(check)).startswith(f"{num_ranks} rank")


def test_the_document_fits_its_schema():
    check = check_measurement(Network(num_nodes=4, sending={2: LINE / 4}).explored())
    document = json.loads(json.dumps(check_to_document(check), allow_nan=False))
    jsonschema.validate(document, json_schema("check"))
    assert (document["schema"], document["schema_version"]) == ("topotune/check", 1)
    assert set(document["findings"][0]) == {
        "code",
        "severity",
        "where",
        "evidence",
        "cost_percent",
        "advice",
    }
    severities = [finding["severity"] for finding in document["findings"]]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)


@pytest.mark.parametrize(
    ("severity", "reached"),
    [("info", {"info"}), ("warning", {"info", "warning"}), ("error", {"info", "warning", "error"})],
)
def test_a_finding_reaches_its_own_severity_and_those_below(severity, reached):
    finding = Finding(code="slow-node", severity=severity, where="node c", evidence="", advice="")
    assert {level for level in ("info", "warning", "error") if reaches([finding], level)} == reached
    assert not reaches([], "info")

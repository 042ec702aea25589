"""The JSON form of a topology: what is written comes back, and what is wrong is refused by place."""

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings
from topologies import cluster, topologies

from topotune.errors import InputFileError
from topotune.topology import topology_from_bytes, topology_from_document, topology_to_document


@settings(deadline=None, max_examples=50)
@given(topology=topologies())
def test_a_topology_comes_back_from_json(topology):
    text = json.dumps(topology_to_document(topology))
    assert topology_from_bytes(text.encode(), "t.json") == topology


def test_equal_topologies_give_equal_text():
    assert json.dumps(topology_to_document(cluster(2))) == json.dumps(topology_to_document(cluster(2)))


def test_what_is_not_known_is_left_out():
    document = topology_to_document(cluster(1))
    assert document["schema"] == "topotune/topology"
    assert document["schema_version"] == 1
    assert document["vertices"][0] == {
        "id": "n0/numa0", "kind": "numa", "node": "n0", "index": 0, "cpus": "0", "memory_bytes": 2**30,
    }  # fmt: skip
    assert "ranks" not in document
    assert document["warnings"] == []


def changed(change):
    document = deepcopy(topology_to_document(cluster(1)))
    change(document)
    return document


def put(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(document):
        at = document
        for key in keys:
            at = at[key]
        at[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("schema", "topotune/plan"), "t.json: is a topotune/plan, not a topotune/topology"),
        (
            put("schema_version", 2),
            "t.json: made by a newer topotune: schema_version 2, this one reads 1",
        ),
        (put("vertices", 0, "kind", "tpu"), "t.json: vertices[0].kind: is 'tpu', not one of gpu, cpu"),
        (put("vertices", 0, "kind", []), "t.json: vertices[0].kind: is a list of 0, not a text"),
        (
            put("vertices", 3, "speed", -1),
            "t.json: vertices[3].speed: is -1, not a number of at least 1e-06 and",
        ),
        *(
            (
                put("links", 0, "bandwidth_bytes_per_s", rate),
                f"bandwidth_bytes_per_s: is {rate}, not a number of at least 1e-06 and at most 1e+18",
            )
            for rate in (0, 1e-320, 1.7e308)
        ),
        (
            put("vertices", 0, "pcie", {"width": 0}),
            "t.json: vertices[0].pcie.width: is 0, not a whole number",
        ),
        (put("vertices", 0, "colour", "red"), "t.json: vertices[0]: has the unknown key 'colour'"),
        (put("vertices", 1, "id", "n0/numa0"), "t.json: two vertices have the id 'n0/numa0'"),
        (put("vertices", 0, "cpus", "\x1b[2J"), "t.json: vertices[0].cpus: has the control character U+001B"),
        (put("links", 0, "dst", "nowhere"), "names 'nowhere', which is no vertex"),
        (put("links", 0, "lanes", True), "t.json: links[0].lanes: is true, not a whole number"),
        (
            put("links", 0, "latency_s", -1.0),
            "t.json: links[0].latency_s: is -1.0, not a number of at least 0",
        ),
        (put("links", 0, "origin", "guessed"), "t.json: links[0].origin: is 'guessed', not one of spec"),
        (put("links", {}), "t.json: links: is an object, not a list"),
        (put("ranks", ["n9/gpu0"]), "t.json: rank 0 is on 'n9/gpu0', which is no vertex"),
        (put("warnings", [1]), "t.json: warnings[0]: is the number 1, not a text"),
        (put("source", "facts", {"a": []}), "t.json: source.facts.a: is a list of 0, not a text"),
        (lambda document: document.pop("source"), "t.json: lacks the key 'source'"),
        (lambda document: document["vertices"][0].pop("id"), "t.json: vertices[0]: lacks the key 'id'"),
    ],
)
def test_what_is_wrong_is_refused_by_place(change, said):
    with pytest.raises(InputFileError) as refused:
        topology_from_document(changed(change), "t.json")
    assert said in refused.value.message


@pytest.mark.parametrize("document", [None, [], "text", 3, {}])
def test_what_is_no_topology_is_refused(document):
    with pytest.raises(InputFileError):
        topology_from_document(document, "t.json")


def test_too_many_vertices_are_refused_before_they_are_built():
    document = changed(put("vertices", [0] * 200_001))
    with pytest.raises(InputFileError, match=r"vertices: has 200001 vertices, more than 200000"):
        topology_from_document(document, "t.json")

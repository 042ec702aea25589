import json
from pathlib import Path

import pytest

from topotune.errors import InputFileError, UsageError
from topotune.lab import LabNode, LabProfile, LabRack, list_profiles, read_profile

M = 10**6


def document(**changes):
    return {
        "schema": "topotune/lab",
        "schema_version": 1,
        "nodes": [{"name": "a", "ranks": 1, "bits_per_s": M}, {"name": "b", "ranks": 2, "bits_per_s": 2 * M}],
    } | changes


def written(tmp_path, **changes):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(document(**changes)))
    return path


@pytest.mark.parametrize(
    ("name", "ranks", "mbit_per_s", "racks", "placement"),
    [
        ("1x4", [4], [200], [], "block"),
        ("2x4", [4, 4], [200, 200], [], "block"),
        ("4x2", [2] * 4, [200] * 4, [], "block"),
        ("4x2-degraded", [2] * 4, [200, 200, 50, 200], [], "block"),
        ("4x2-scattered", [2] * 4, [200] * 4, [], "round-robin"),
        ("8x1", [1] * 8, [200] * 8, [], "block"),
        ("racks-2x2x2", [2] * 4, [200] * 4, [100, 100], "block"),
        ("racks-2x4x1", [1] * 8, [200] * 8, [200, 200], "block"),
    ],
)
def test_shipped_profiles_are_the_reference_clusters(name, ranks, mbit_per_s, racks, placement):
    profile = read_profile(name)
    assert profile.name == name
    assert [node.ranks for node in profile.nodes] == ranks
    assert [node.bits_per_s for node in profile.nodes] == [rate * M for rate in mbit_per_s]
    assert [rack.uplink_bits_per_s for rack in profile.racks] == [rate * M for rate in racks]
    assert (profile.placement, profile.burst_bytes, profile.has_latency) == (placement, 32768, False)
    in_racks = [[node.name for node in profile.nodes if node.rack == rack.name] for rack in profile.racks]
    assert len({len(nodes) for nodes in in_racks}) <= 1, "racks are alike"


def test_eight_profiles_are_listed_by_name():
    names = [profile.name for profile in list_profiles()]
    assert len(names) == 8
    assert names == sorted(names)


def test_a_file_is_read_with_its_defaults(tmp_path):
    assert read_profile(written(tmp_path, latency_s=0.001)) == LabProfile(
        name="mine",
        nodes=(
            LabNode(name="a", ranks=1, bits_per_s=M, latency_s=0.001),
            LabNode(name="b", ranks=2, bits_per_s=2 * M, latency_s=0.001),
        ),
        racks=(),
        burst_bytes=32768,
        placement="block",
    )


def test_a_nodes_own_latency_goes_before_the_profiles(tmp_path):
    nodes = [
        {"name": "a", "ranks": 1, "bits_per_s": M, "latency_s": 0},
        {"name": "b", "ranks": 1, "bits_per_s": M},
    ]
    profile = read_profile(written(tmp_path, latency_s=0.5, nodes=nodes))
    assert [node.latency_s for node in profile.nodes] == [0.0, 0.5]
    assert profile.has_latency


@pytest.mark.parametrize(
    ("placement", "ranks", "expected"),
    [
        ("block", [2, 2], ((0, 1), (2, 3))),
        ("round-robin", [2, 2], ((0, 2), (1, 3))),
        ("block", [1, 3, 2], ((0,), (1, 2, 3), (4, 5))),
        ("round-robin", [1, 3, 2], ((0,), (1, 3, 5), (2, 4))),
    ],
)
def test_placement_numbers_every_rank_once(placement, ranks, expected):
    nodes = tuple(LabNode(name=f"n{i}", ranks=count, bits_per_s=M) for i, count in enumerate(ranks))
    profile = LabProfile(name="p", nodes=nodes, placement=placement)
    assert profile.ranks_of_nodes() == expected
    assert profile.num_ranks == sum(ranks)


RACK = {"name": "r", "uplink_bits_per_s": M}
NODE = {"name": "a", "ranks": 1, "bits_per_s": M}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "topotune/plan"}, "is a topotune/plan, not a topotune/lab"),
        ({"schema_version": 2}, "made by a newer topotune: schema_version 2, this one reads 1"),
        ({"nodes": []}, "nodes: has 0 nodes, fewer than 1"),
        ({"nodes": [NODE, NODE]}, "two nodes have the name 'a'"),
        ({"nodes": [NODE | {"name": "A_b"}]}, "nodes[0].name: 'A_b' is no host name"),
        ({"nodes": [NODE | {"name": "localhost"}]}, "nodes[0].name: 'localhost' is no host name"),
        ({"nodes": [NODE | {"ranks": 0}]}, "nodes[0].ranks: is 0, not a whole number from 1 to 64"),
        (
            {"nodes": [NODE | {"bits_per_s": 10}]},
            "nodes[0].bits_per_s: is 10, not a whole number from 1000000 to 32000000000",
        ),
        ({"nodes": [NODE | {"rack": "r"}]}, "node 'a' is in rack 'r', which is not among the racks"),
        ({"racks": [RACK]}, "node 'a' names no rack, though there are 1"),
        ({"racks": [RACK, RACK]}, "two racks have the name 'r'"),
        ({"racks": [RACK, RACK | {"name": "s"}], "nodes": [NODE | {"rack": "r"}]}, "rack 's' has no nodes"),
        ({"burst_bytes": 4096}, "burst_bytes: is 4096, not a whole number from 16384 to 16777216"),
        ({"placement": "random"}, "placement: is 'random', not one of block, round-robin"),
        ({"latency_s": -1}, "latency_s: is -1, not a number of at least 0 and at most 1"),
        ({"nods": []}, "has the unknown key 'nods'"),
    ],
)
def test_a_wrong_file_is_refused_with_file_place_and_value(tmp_path, changes, message):
    path = written(tmp_path, **changes)
    with pytest.raises(InputFileError) as caught:
        read_profile(path)
    assert caught.value.message == f"{path}: {message}"


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError) as caught:
        read_profile("2x5")
    assert caught.value.message == "there is no lab profile '2x5'"
    assert caught.value.hint is not None
    assert "did you mean 2x4?" in caught.value.hint
    assert "racks-2x4x1" in caught.value.hint


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        read_profile(tmp_path / "absent.json")


def test_contradictions_are_refused_from_python_too():
    with pytest.raises(UsageError, match="it has no nodes"):
        LabProfile(name="p", nodes=())
    with pytest.raises(UsageError, match="rack 'r' has no nodes"):
        LabProfile(
            name="p",
            nodes=(LabNode(name="a", ranks=1, bits_per_s=M, rack="s"),),
            racks=(LabRack(name="r", uplink_bits_per_s=M), LabRack(name="s", uplink_bits_per_s=M)),
        )


def test_the_example_in_the_documentation_is_a_profile(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "lab.md").read_text()
    path = tmp_path / "example.json"
    path.write_text(text[text.index("    {\n") : text.index("\n    }\n") + 6])
    profile = read_profile(path)
    assert [(node.name, node.rack, node.latency_s) for node in profile.nodes] == [
        ("a", "left", 0.0005),
        ("b", "right", 0.002),
    ]

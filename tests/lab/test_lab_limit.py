import re
from pathlib import Path

import pytest

from topotune.bounds import graph_allreduce_bound
from topotune.lab import list_profiles, read_profile
from topotune.lab.limit import line_rate_graph

MESSAGE_BYTES = 8 * 2**20
DOCUMENTED = (Path(__file__).parents[2] / "docs" / "how-to" / "lab.md").read_text()


def limit_ms(name):
    return 1e3 * graph_allreduce_bound(line_rate_graph(read_profile(name))).time_s(MESSAGE_BYTES)


@pytest.mark.parametrize(
    ("name", "expected_ms"),
    [
        ("2x4", 336),
        ("4x2", 503),
        ("4x2-scattered", 503),
        ("4x2-degraded", 1342),
        ("racks-2x2x2", 671),
        ("racks-2x4x1", 587),
        ("8x1", 587),
    ],
)
def test_limit_at_line_rate_is_the_documented_one(name, expected_ms):
    assert limit_ms(name) == pytest.approx(expected_ms, abs=0.5)
    row = next(line for line in DOCUMENTED.splitlines() if line.startswith(f"| `{name}` "))
    assert f"| {expected_ms:,} ms |" in row


def test_every_cluster_with_a_network_has_a_documented_limit():
    rows = re.findall(r"^\| `([^`]+)` .* ms \|$", DOCUMENTED, re.MULTILINE)
    assert sorted(rows) == sorted(p.name for p in list_profiles() if len(p.nodes) > 1)


def test_a_single_node_has_no_network_to_be_limited_by():
    assert line_rate_graph(read_profile("1x4")) is None


def test_ranks_sit_on_their_nodes_in_every_placement():
    assert line_rate_graph(read_profile("4x2")).compute == ("a", "a", "b", "b", "c", "c", "d", "d")
    assert line_rate_graph(read_profile("4x2-scattered")).compute == ("a", "b", "c", "d") * 2


def test_the_slow_node_and_the_uplinks_are_named_as_bottlenecks():
    assert "node c" in graph_allreduce_bound(line_rate_graph(read_profile("4x2-degraded"))).text
    assert "rack" in graph_allreduce_bound(line_rate_graph(read_profile("racks-2x2x2"))).text

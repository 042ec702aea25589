"""Which NUMA node a process is bound to."""

import pytest
from sysfs_trees import Capture

from topotune.probe.numa import own_numa_node


@pytest.mark.parametrize(
    ("cpus", "node"),
    [
        pytest.param({0}, 0, id="one-cpu"),
        pytest.param({4, 5, 6, 7}, 1, id="all-of-a-node"),
        pytest.param({3, 4}, None, id="two-nodes"),
        pytest.param(range(8), None, id="everywhere"),
        pytest.param({99}, None, id="no-cpu-of-any-node"),
    ],
)
def test_a_process_is_on_the_numa_node_that_holds_all_its_cpus(tmp_path, cpus, node):
    capture = Capture(tmp_path / "root")
    capture.numa("0-3", "4-7", "")
    assert own_numa_node(capture.root, frozenset(cpus)) == node


def test_a_machine_that_does_not_say_has_none(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    assert own_numa_node(capture.root, frozenset({0})) is None

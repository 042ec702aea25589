"""What bounds a cluster of known machines is said in the words of its owner."""

import pytest

from topotune.bounds import graph_allreduce_bound, graph_from_topology
from topotune.topology import what_if
from topotune.topology.catalog import load_profile
from topotune.topology.profile_topology import machine_network


@pytest.mark.parametrize(
    ("name", "num_nodes", "changes", "text"),
    [
        ("aws-p4d.24xlarge", 4, (), "the 4 EFA NICs of each node, 400 Gbit/s"),
        ("aws-p4d.24xlarge", 2, (), "the 4 EFA NICs of each node, 400 Gbit/s"),
        ("aws-p3dn.24xlarge", 4, (), "the EFA NIC of each node, 100 Gbit/s"),
        ("dgx-h100", 32, (), "the 8 InfiniBand NICs of each node, 3200 Gbit/s"),
        ("azure-nd40rs_v2", 2, (), "the InfiniBand NIC of each node, 100 Gbit/s"),
        ("azure-nd40rs_v2", 3, ("n1/nic0=0.4",), "the InfiniBand NIC of n1, 40 Gbit/s"),
        ("aws-p4d.24xlarge", 2, ("n1/nic0=0.5",), "the 4 EFA NICs of n1, 350 Gbit/s"),
    ],
)
def test_adapters_are_named_by_kind_and_node(name, num_nodes, changes, text):
    topology = machine_network(load_profile(name), num_nodes)
    for change in changes:
        topology = what_if.with_rate(topology, change)
    assert graph_allreduce_bound(graph_from_topology(topology)).text == text

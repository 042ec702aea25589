"""Any topology that can be written is examined without an error."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topology.topologies import topologies

from topotune.errors import UsageError
from topotune.health import examine
from topotune.links.finding import Finding
from topotune.topology import Source, Topology, Vertex

NAMES = [
    "usable_cpus",
    "num_cpus",
    "shm_bytes",
    "memlock_limit_bytes",
    "rdma_user_devices",
    "iommu",
    "container",
    "virtual_machine",
    "num_gpus_hidden",
    "kernel",
    "nvidia_module",
    "virtual_networks",
]
VALUES = (
    st.none() | st.booleans() | st.integers(-5, 2**62) | st.floats(allow_nan=False) | st.text(max_size=20)
)
FACTS = st.dictionaries(st.sampled_from([*NAMES, "kernel of a, b"]), VALUES, max_size=8)


@settings(max_examples=40, deadline=None)
@given(topology=topologies(), facts=FACTS)
def test_what_a_file_can_say_gives_findings_or_none(topology, facts):
    found = examine(replace(topology, source=Source(kind="test", facts=facts)))
    for finding in found.findings:
        assert isinstance(finding, Finding)
        assert finding.cost_percent is None or 0 <= finding.cost_percent <= 100


def test_a_node_with_more_gpus_than_a_machine_has_is_refused():
    crowd = tuple(Vertex(id=str(number), kind="gpu", node="a") for number in range(257))
    with pytest.raises(
        UsageError, match="node a has 257 vertices of kind gpu, more than the 256 of a machine"
    ):
        examine(Topology(vertices=crowd, links=(), source=Source(kind="test")))

"""The way from a device up to its processor, and what it carries."""

import pytest

from topotune.health.pci_tree import PciTree
from topotune.topology import Link, Source, Topology, Vertex

KINDS = {"numa": "numa", "root": "pcie-root", "switch": "pcie-switch", "gpu": "gpu", "nic": "nic"}


def tree(*links):
    """Of (below, above, bytes/s up, bytes/s down); a vertex is of the kind that its name begins with."""
    names = dict.fromkeys(name for link in links for name in link[:2])
    return PciTree(
        Topology(
            vertices=tuple(Vertex(id=name, kind=KINDS[name.split("-")[0]], node="a") for name in names),
            links=tuple(
                Link(src=src, dst=dst, kind="pcie", bandwidth_bytes_per_s=rate)
                for below, above, up, down in links
                for src, dst, rate in ((below, above, up), (above, below, down))
            ),
            source=Source(kind="test"),
        )
    )


def vertex(name):
    return Vertex(id=name, kind=KINDS[name.split("-")[0]], node="a")


def test_a_way_leads_over_switches_to_the_numa_node_and_stops_there():
    found = tree(
        ("gpu-0", "switch-0", 32e9, 32e9),
        ("switch-0", "root-0", 16e9, 16e9),
        ("root-0", "numa-0", None, None),
        ("numa-1", "numa-0", 64e9, 64e9),
    )
    assert found.way(vertex("gpu-0")) == (("gpu-0", "switch-0"), ("switch-0", "root-0"), ("root-0", "numa-0"))
    assert found.way(vertex("numa-0")) == ()
    assert "numa-1" not in found.parents


def test_a_root_that_no_numa_node_holds_is_a_top_itself():
    found = tree(("gpu-0", "root-0", 1e9, 1e9), ("nic-0", "root-1", 1e9, 1e9), ("root-1", "numa-0", 1e9, 1e9))
    assert found.parents == {"gpu-0": "root-0", "nic-0": "root-1", "root-1": "numa-0"}


def test_a_step_carries_what_its_lesser_direction_does():
    found = tree(
        ("gpu-0", "root-0", 8e9, 16e9), ("nic-0", "root-0", None, 4e9), ("nic-1", "root-0", None, None)
    )
    assert [found.carries(name, "root-0") for name in ("gpu-0", "nic-0", "nic-1")] == [8e9, 4e9, None]
    assert found.carries("gpu-0", "nic-0") is None


def test_the_narrowest_step_is_the_least_of_those_that_are_known():
    found = tree(
        ("gpu-0", "switch-0", 32e9, 32e9), ("switch-0", "root-0", 16e9, 16e9), ("nic-0", "root-0", None, None)
    )
    assert found.narrowest(vertex("gpu-0")) == (16e9, ("switch-0", "root-0"))
    assert found.narrowest(vertex("nic-0")) is None


@pytest.mark.parametrize("kind", ["nvlink", "numa"])
def test_links_that_are_no_pci_express_lead_nowhere(kind):
    vertices = (vertex("gpu-0"), vertex("root-0"))
    link = Link(src="gpu-0", dst="root-0", kind=kind, bandwidth_bytes_per_s=1e9)
    found = PciTree(Topology(vertices=vertices, links=(link,), source=Source(kind="test")))
    assert found.way(vertex("gpu-0")) == ()

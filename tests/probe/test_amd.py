"""AMD GPUs by what their driver's bindings answer (ROCm's amdsmi), which needs the driver to be imported."""

import sys
from enum import IntEnum

import pytest
from sysfs_trees import small

from topotune.probe import probe
from topotune.probe.amd import load_amdsmi, read_amd
from topotune.probe.faults import Faults
from topotune.topology.paths import Paths

ADDRESSES = ("0000:05:00.0", "0000:06:00.0", "0000:07:00.0")


class RecordedAmdSmi:
    """Three GPUs; the first two are joined by xGMI, of the third the driver says little."""

    class AmdSmiException(Exception):
        pass

    class AmdSmiLinkType(IntEnum):
        AMDSMI_LINK_TYPE_XGMI = 1
        AMDSMI_LINK_TYPE_PCIE = 2

    def __init__(self, addresses=ADDRESSES, refusal=None):
        self.addresses, self.refusal, self.open = addresses, refusal, 0

    def amdsmi_init(self):
        if self.refusal:
            raise self.AmdSmiException(self.refusal)
        self.open += 1

    def amdsmi_shut_down(self):
        self.open -= 1

    def amdsmi_get_processor_handles(self):
        return list(range(len(self.addresses)))

    def amdsmi_get_gpu_device_bdf(self, handle):
        return self.addresses[handle]

    def amdsmi_get_gpu_driver_info(self, handle):
        return {"driver_name": "amdgpu", "driver_version": "6.10.5"}

    def amdsmi_get_gpu_asic_info(self, handle):
        return {"market_name": "AMD Instinct MI300X" if handle < 2 else "N/A"}

    def amdsmi_get_power_cap_info(self, handle):
        if handle == 2:
            raise self.AmdSmiException("not supported")
        return {"power_cap": (600, 750_000_000)[handle], "default_power_cap": 750}

    def amdsmi_topo_get_numa_node_number(self, handle):
        return 2**32 - 1

    def amdsmi_topo_get_link_type(self, one, other):
        return {"hops": 1 if {one, other} == {0, 1} else 2, "type": 1 if {one, other} == {0, 1} else 2}

    def amdsmi_is_P2P_accessible(self, one, other):
        return {one, other} == {0, 1}

    def amdsmi_topo_get_p2p_status(self, one, other):
        return {"type": 1, "cap": {"is_iolink_atomics_64bit": 1 if {one, other} == {0, 1} else 255}}


@pytest.fixture
def capture(tmp_path):
    capture = small(tmp_path / "root")
    for number, address in enumerate(ADDRESSES):
        capture.pci(f"pci0000:00/0000:00:{number + 3:02x}.0", kind="bridge")
        capture.pci(f"pci0000:00/0000:00:{number + 3:02x}.0/{address}", kind="amd", device="0x74a1")
    return capture


def test_the_driver_adds_names_power_xgmi_and_peers_to_what_the_bus_shows(capture):
    bindings = RecordedAmdSmi()
    topology = probe(capture.root, amdsmi=bindings)
    found = {vertex.pci_address: vertex for vertex in topology.vertices if vertex.pci_address in ADDRESSES}
    first, second, third = (found[address] for address in ADDRESSES)
    assert (first.model, third.model) == ("AMD Instinct MI300X", "1002:74a1")
    assert [gpu.attributes.get("gpu.power_limit_w") for gpu in (first, second, third)] == ["600", "750", None]
    assert first.numa == small_numa(topology)
    joined = {(link.src, link.dst) for link in topology.links if link.kind == "nvlink"}
    assert joined == {(first.id, second.id), (second.id, first.id)}
    assert {frozenset((pair.a, pair.b)): (pair.path, pair.p2p) for pair in topology.pairs} == {
        frozenset((first.id, second.id)): ("XGMI", {"any": "OK", "atomics": "OK"}),
        frozenset((first.id, third.id)): (None, {"any": "NS"}),
        frozenset((second.id, third.id)): (None, {"any": "NS"}),
    }
    assert Paths(topology).between(first.id, second.id) == "XGMI"
    assert topology.source.facts["amd_driver"] == "6.10.5"
    assert bindings.open == 0


def small_numa(topology):
    """What the bus says of the node, which comes before the driver's number for "none"."""
    (numa,) = {vertex.numa for vertex in topology.vertices if vertex.kind == "gpu"}
    return numa


def test_a_driver_that_refuses_is_told_and_its_gpus_stay(capture):
    topology = probe(capture.root, amdsmi=RecordedAmdSmi(refusal="driver not loaded"))
    assert sum(vertex.pci_address in ADDRESSES for vertex in topology.vertices) == 3
    assert read_amd(RecordedAmdSmi(refusal="driver not loaded"), Faults()).absent == "driver not loaded"


def test_gpus_that_the_bus_does_not_show_are_no_vertices(capture):
    topology = probe(capture.root, amdsmi=RecordedAmdSmi(("0000:ff:00.0", "0000:fe:00.0", "junk")))
    assert not topology.pairs
    assert "left out, an AMD GPU without a PCI address: GPU 2" in topology.warnings


def test_bindings_that_are_not_there_are_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert load_amdsmi() is None
    assert read_amd(None, Faults()).absent == "the AMD SMI bindings (amdsmi, of ROCm) are not installed"

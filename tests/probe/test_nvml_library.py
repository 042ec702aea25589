"""The real bindings of NVML, on a library that is compiled here and answers by NVML's binary interface."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sysfs_trees import HGX_GPUS, hgx

from topotune.topology import Topology, topology_from_document

STUB = Path(__file__).with_name("nvml_stub.c")
COMPILER = shutil.which("gcc") or shutil.which("cc")
SCRIPT = """
import json, sys
from pathlib import Path
import pynvml
from topotune.probe import probe
from topotune.topology import topology_to_document
print(json.dumps(topology_to_document(probe(Path(sys.argv[1]), nvml=pynvml))))
"""


def probed(tmp_path, *defines: str) -> Topology:
    """An HGX machine's tree, its driver asked through a library of these defines."""
    if COMPILER is None:
        pytest.skip("no C compiler is installed")
    library = tmp_path / "lib"
    library.mkdir()
    subprocess.run(
        [
            *(COMPILER, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"),
            *(f"-D{name}" for name in defines),
            *(str(STUB), "-o", str(library / "libnvidia-ml.so.1")),
        ],
        check=True,
        timeout=120,
    )
    root = hgx(tmp_path / "root").root
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(root)],
        env=os.environ | {"LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return topology_from_document(json.loads(done.stdout), "the probe")


@pytest.fixture(scope="module")
def topology(tmp_path_factory):
    return probed(tmp_path_factory.mktemp("nvml"))


def gpu(topology, index):
    return next(vertex for vertex in topology.vertices if (vertex.kind, vertex.index) == ("gpu", index))


def test_driver_and_cuda_are_named(topology):
    facts = topology.source.facts
    assert (facts["nvidia_driver"], facts["cuda_version"], facts["nvml"]) == ("570.86.15", "12.8", "answers")


def test_each_gpu_is_what_the_driver_says(topology):
    first, second = gpu(topology, 0), gpu(topology, 1)
    assert [first.pci_address, second.pci_address] == HGX_GPUS[:2]
    assert (first.model, first.memory_bytes, first.uuid) == (
        "NVIDIA H100 80GB HBM3",
        80 * 2**30,
        "GPU-00000000-aaaa",
    )
    assert (first.mig, second.mig) == (False, True)
    assert (first.cpu_affinity, second.cpu_affinity) == ("0-1,64", "2-3")
    assert (first.numa_affinity, second.numa_affinity) == ("0", "0-1")


def test_power_clocks_and_what_limits_them_are_kept(topology):
    assert gpu(topology, 0).attributes == {
        "nvidia.performance_state": "P8",
        "gpu.power_limit_w": "700",
        "gpu.power_default_w": "700",
        "nvidia.sm_clock_mhz": "345",
        "nvidia.max_sm_clock_mhz": "1980",
    }
    second = gpu(topology, 1).attributes
    assert "nvidia.performance_state" not in second  # P32 is NVML's word for not known
    assert second["gpu.power_limit_w"] == "500"
    assert second["nvidia.clock_limits"] == "power cap, hardware thermal"


def test_nvlinks_have_far_end_generation_state_rate_and_errors(topology):
    first, second = gpu(topology, 0), gpu(topology, 1)
    switch = next(vertex for vertex in topology.vertices if vertex.pci_address == "0000:c1:00.0")
    links = {(link.src, link.dst): link for link in topology.links if link.kind == "nvlink"}
    there = links[first.id, second.id]
    assert (there.lanes, there.bandwidth_bytes_per_s) == (2, 2 * 26562e6)
    assert there.attributes == {
        "nvidia.nvlink_version": "6",
        "nvidia.nvlink_errors": f"recovery {2**33}, crc_flit {2 * 2**33}, crc_data {3 * 2**33}",
    }
    assert links[second.id, first.id].attributes == {"nvidia.nvlink_version": "6"}
    assert switch.kind == "nvswitch"
    assert links[first.id, switch.id].lanes == 1
    assert [(port.link, port.active) for port in first.nvlink_ports] == [
        (0, True),
        (1, True),
        (2, True),
        (3, False),
    ]
    assert topology.source.facts["nvlink_errors"].startswith("GPU 0 link 0: recovery 8589934592, ")


def test_what_gpus_may_do_to_each_other_is_the_worse_of_both_ways(topology):
    (pair,) = topology.pairs
    assert (pair.a, pair.b) == (gpu(topology, 0).id, gpu(topology, 1).id)
    assert pair.p2p == {"read": "OK", "write": "OK", "nvlink": "OK", "atomics": "NS"}
    assert pair.path is None


def test_a_driver_without_the_newer_names_is_asked_by_the_older(tmp_path):
    assert gpu(probed(tmp_path, "OLD_DRIVER"), 1).attributes["nvidia.clock_limits"] == (
        "power cap, hardware thermal"
    )


def test_a_driver_that_does_not_fit_its_library_is_told(tmp_path):
    topology = probed(tmp_path, "BROKEN_DRIVER")
    assert "mismatch" in topology.source.facts["nvml"]
    assert not topology.pairs

"""The machine that runs the tests, whatever it is."""

import os
import subprocess
import sys

import psutil
import pynvml

from topotune.probe import probe
from topotune.probe.faults import Faults
from topotune.probe.nvml import read_nvml
from topotune.topology import render, topology_from_document, topology_to_document


def test_this_machine_gives_plausible_facts():
    topology = probe()
    sockets = [vertex for vertex in topology.vertices if vertex.kind == "cpu"]
    assert sockets
    assert topology.source.facts["num_cpus"] >= 1
    assert topology.source.facts["memory_bytes"] == psutil.virtual_memory().total
    assert topology.source.facts["kernel"] == os.uname().release
    assert topology.source.kind == "probe"
    assert "lo" not in {vertex.name for vertex in topology.vertices if vertex.kind == "nic"}
    assert len({warning.partition(":")[0] for warning in topology.warnings}) == len(topology.warnings)
    assert topology_from_document(topology_to_document(topology), "here") == topology
    assert all(len(line) <= 80 for line in render(topology).splitlines())


def test_the_real_library_is_asked_and_its_answer_stands():
    reading = read_nvml(pynvml, Faults())
    refusal, count = None, 0
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as problem:
        refusal = str(problem)
    assert (reading.absent, len(reading.gpus)) == (refusal, count)


def test_bindings_that_are_not_installed_are_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    topology = probe()
    assert topology.source.facts["nvml"] == "the NVML bindings (nvidia-ml-py) are not installed"
    assert "NVIDIA driver: the NVML bindings (nvidia-ml-py) are not installed" in render(topology)


def test_a_probe_imports_nothing_heavy():
    script = (
        "import sys; from topotune.probe import probe; from topotune.topology import render; render(probe());"
        "print(sorted({'torch', 'numpy', 'pandas', 'pydantic', 'scipy', 'networkx'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"

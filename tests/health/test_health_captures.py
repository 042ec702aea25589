"""Real captures, where a folder of them lies beside the checkout: sound machines give no warning.

``TOPOTUNE_CAPTURES`` names the folder; without it, ``shared/captures`` beside the repository.
"""

import os
from pathlib import Path

import pytest
from hosts import grave

from topotune.health import examine
from topotune.topology.formats import read_files

FOLDER = Path(os.environ.get("TOPOTUNE_CAPTURES") or Path(__file__).parents[3] / "shared" / "captures")
KINDS = ("cloud", "hwloc", "infiniband", "lspci", "nccl-xml", "nvidia-smi-topo", "slurm")
FILES = sorted(
    str(file.relative_to(FOLDER))
    for kind in KINDS
    for file in FOLDER.glob(f"{kind}/*")
    if file.suffix != ".md"
)
FAULTY = {
    "lspci/lnksta-mi50-4gpu-gen1-x8.txt": {"pcie-width"},
    "nccl-xml/graphlog-amd-2gpu-chipset-x4.txt": {"narrow-way"},
    "nvidia-smi-topo/a100-sxm-4gpu-2hdr-two-gpus-without-nic.txt": {"nic-not-local"},
    "nvidia-smi-topo/nvlink-s-v100-two-links-down.txt": {"nvlink-down"},
    "nvidia-smi-topo/p2p-r-l4-2gpu-cns.txt": {"p2p-disabled"},
    "nvidia-smi-topo/p2p-rw-rtx5090-2gpu-gns.txt": {"p2p-disabled"},
    "nvidia-smi-topo/p40-8gpu-single-root-soc.txt": {"nic-not-local"},
}


@pytest.mark.parametrize(
    "file", FILES or [pytest.param("none", marks=pytest.mark.skip(reason=f"no captures in {FOLDER}"))]
)
def test_a_capture_is_warned_of_only_where_its_machine_has_a_fault(file):
    topology = read_files([str(FOLDER / file)])
    assert grave(examine(topology).findings) == FAULTY.get(file, set())

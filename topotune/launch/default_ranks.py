"""How many ranks a node gets where neither the user nor a platform says."""

from typing import Final

ON_PROCESSORS: Final = 2


def default_ranks(backend: str = "gloo") -> int:
    """Two on processors; one for each GPU, at least one, for ``nccl``."""
    if backend != "nccl":
        return ON_PROCESSORS
    from topotune.probe.faults import Faults
    from topotune.probe.nvml import load_nvml, read_nvml

    return max(1, len(read_nvml(load_nvml(), Faults()).gpus))

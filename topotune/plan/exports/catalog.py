"""The programs that a plan can be exported to."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from topotune.errors import UsageError, did_you_mean
from topotune.plan.exports.target import Target

MODULES: Final[Mapping[str, str]] = {
    "torch": "torch_ddp",
    "horovod": "horovod",
    "horovod-env": "horovod_env",
    "deepspeed": "deepspeed",
    "megatron": "megatron",
    "megatron-nccl": "megatron_nccl",
    "accelerate": "accelerate",
    "sagemaker": "sagemaker",
    "azureml": "azureml",
    "slurm": "slurm",
    "kubernetes": "kubernetes",
    "tensorflow": "tensorflow",
    "xla": "xla",
    "nccl-tuner": "nccl_tuner",
    "nccl-tuner-csv": "nccl_csv",
    "nccl-env": "nccl_env",
    "openmpi-tuned": "openmpi_tuned",
    "openmpi-han": "openmpi_han",
    "mpich-json": "mpich_json",
    "mpich-ch4-json": "mpich_ch4_json",
    "intel-mpi": "intel_mpi",
    "ucc": "ucc",
}
"""Target → its module in this room, in the order of ``--to list``."""


def targets() -> tuple[Target, ...]:
    """All targets."""
    return tuple(find_target(name) for name in MODULES)


def find_target(name: str) -> Target:
    """The target of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in MODULES:
        raise UsageError(
            f"--to {name}: a plan cannot be exported to that",
            hint=did_you_mean(name, MODULES) or "--to list prints the targets",
        )
    target: Target = import_module(f"topotune.plan.exports.{MODULES[name]}").TARGET
    return target

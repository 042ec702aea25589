"""One GPU for each rank: the one of its number on its node."""

from collections.abc import Mapping

import torch
import torch.distributed as dist

from topotune.errors import UsageError


def take_own_gpu(environment: Mapping[str, str]) -> None:
    """Make the GPU of this rank's number on its node the current one.

    Raises:
        UsageError: this torch has no NCCL, or the node has fewer GPUs than ranks.
    """
    if not dist.is_nccl_available():
        raise UsageError(
            f"torch {torch.__version__} is built without NCCL",
            hint="install a torch for CUDA; --backend gloo tunes gradient exchange between CPUs",
        )
    num_gpus = torch.cuda.device_count()
    num_ranks = int(environment.get("LOCAL_WORLD_SIZE", "1"))
    if num_ranks > num_gpus:
        raise UsageError(
            f"{num_ranks} ranks on this node and {num_gpus} GPUs: NCCL takes one GPU for each rank",
            hint=f"--nproc-per-node {max(1, num_gpus)}",
        )
    torch.cuda.set_device(int(environment.get("LOCAL_RANK", "0")))

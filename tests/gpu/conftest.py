"""GPU tests skip with the reason where there is no GPU, or fewer than they need."""

import pytest
import torch

from topotune.links.device_timing import why_no_devices


@pytest.fixture(autouse=True)
def _needs_a_gpu():
    why = why_no_devices()
    if why is not None:
        pytest.skip(why)


@pytest.fixture
def two_gpus():
    """How many GPUs there are, if two or more; at most 8."""
    count = torch.cuda.device_count()
    if count < 2:
        pytest.skip(f"NCCL takes one GPU for each rank, and there is {count}")
    return min(count, 8)

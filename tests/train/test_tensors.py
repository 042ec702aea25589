"""What NCCL reduces of a tensor follows from its memory, so whoever runs a call must not see its strides."""

import pytest
import torch

from topotune.train.tensors import as_it_lies, memory_of

NUMBERS = torch.arange(48.0)


@pytest.mark.parametrize(
    ("tensor", "first"),
    [
        (NUMBERS, 0),
        (NUMBERS[4:], 4),
        (NUMBERS.view(6, 8).t(), 0),
        (NUMBERS.view(1, 3, 4, 4).to(memory_format=torch.channels_last), 0),
        (NUMBERS.view(6, 8).t()[2:3, :1].view(1, 1), 2),
        (torch.tensor(0.0), 0),
    ],
    ids=["flat", "a part", "transposed", "channels last", "one element", "a number"],
)
def test_memory_in_one_piece_is_taken_as_it_lies(tensor, first):
    tensor = tensor.clone(memory_format=torch.preserve_format) if first == 0 else tensor
    flat = as_it_lies(tensor)
    assert flat.shape == (tensor.numel(),)
    assert flat.data_ptr() == tensor.data_ptr()
    assert flat.is_contiguous()
    assert sorted(flat.tolist()) == sorted(tensor.flatten().tolist())


@pytest.mark.parametrize(
    "tensor",
    [NUMBERS[::2], NUMBERS.view(6, 8)[:, :4], torch.ones(1).expand(4), NUMBERS.view(6, 8)[:, ::8]],
    ids=["every other", "half of the columns", "one for all", "a column"],
)
def test_memory_with_gaps_or_shared_elements_is_not(tensor):
    assert as_it_lies(tensor) is None


def test_memory_is_taken_on_the_device_on_which_it_lies():
    """Torch refuses storage of another device; ``meta`` stands in for a GPU."""
    tensor = torch.empty(6, 8, device="meta").t()
    assert memory_of(tensor).device == tensor.device
    assert memory_of(tensor).stride() == tensor.stride()
    assert as_it_lies(tensor).device == tensor.device

"""The tensors of a call: which of them algorithms can work on, and as what memory."""

from typing import Any, Final

import torch

_TENSOR_TYPES: Final = (torch.Tensor, torch.nn.Parameter)


def is_plain(tensor: torch.Tensor, device_type: str = "cpu") -> bool:
    """Whether it is numbers in memory of this kind, and no subclass that stands for something else."""
    return (
        type(tensor) in _TENSOR_TYPES
        and tensor.device.type == device_type
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and tensor.numel() > 0
    )


def are_equal_parts(whole: Any, part: Any, size: int) -> bool:
    """Whether two arguments are numbers in CPU memory, one tensor ``size`` times the other's first dimension.

    Gloo's all-gather refuses all other shapes, its reduce-scatter those of another ratio.
    """
    return (
        isinstance(whole, torch.Tensor)
        and isinstance(part, torch.Tensor)
        and is_plain(whole)
        and is_plain(part)
        and whole.dtype == part.dtype
        and part.dim() > 0
        and whole.shape == (size * part.size(0), *part.shape[1:])
    )


def as_it_lies(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor's memory as one piece, shape (num_elements,), in the order in which it lies there.

    That is what NCCL reduces, whatever the strides, so it must not depend on them who runs a call.

    Returns:
        None where the memory has gaps, or elements share it; NCCL refuses these.
    """
    num_below = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1:
            if stride != num_below:
                return None
            num_below *= length
    memory = memory_of(tensor)
    return memory.as_strided((memory.numel(),), (1,), memory.storage_offset())


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in the same place, without the tensor's gradient, version counter or inference flag.

    Gloo reduces memory that autograd knows nothing of, and programs may rely on it.
    """
    with torch.inference_mode(False):
        memory = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        memory.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
        return memory

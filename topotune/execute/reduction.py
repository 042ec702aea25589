"""What combines two parts of a message: by torch's name of the operation, and by number in compiled code."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

COMBINE: Final[Mapping[Any, Callable[..., torch.Tensor]]] = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
}


def combine(first: Tensor, second: Tensor, out: Tensor, reduction: int) -> None:
    """Out <- first (reduction) second, in functions that TorchScript compiles.

    Args:
        first: a part of the message.
        second: another, of the same shape and dtype.
        out: where the result goes; it may be one of the two.
        reduction: 0 adds, 1 multiplies, 2 takes the minimum, 3 the maximum.
    """
    if reduction == 0:
        torch.add(first, second, out=out)
    elif reduction == 1:
        torch.mul(first, second, out=out)
    elif reduction == 2:
        torch.minimum(first, second, out=out)
    else:
        torch.maximum(first, second, out=out)

"""What combines two parts of a message, by torch's name of the operation."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.distributed as dist

COMBINE: Final[Mapping[Any, Callable[..., torch.Tensor]]] = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
}

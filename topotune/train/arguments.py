"""What the arguments of a call of a torch process group say, in whichever of torch's forms they come."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import AllreduceOptions

from topotune.train.calls import Call


def allreduce_options(*args: Any, **kwargs: Any) -> AllreduceOptions:
    """Torch's other forms: ``allreduce(tensors, opts=…)``, ``allreduce(tensors, op, timeout)``."""
    given = dict(zip(("op", "timeout"), args, strict=False)) | kwargs
    if given.get("opts") is not None:
        options: AllreduceOptions = given["opts"]
        return options
    options = AllreduceOptions()
    if "op" in given:
        options.reduceOp = given["op"]
    if given.get("timeout") is not None:
        options.timeout = given["timeout"]
    return options


def is_async(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the caller goes on without waiting."""
    if call.blocks:
        return False
    for value in (*reversed(args), *kwargs.values()):
        said = getattr(value, "asyncOp", None)
        if said is not None:
            return bool(said)
    return True


def is_on_cpu(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the call is of memory on the CPU."""
    values = (*args, *kwargs.values())
    tensor = _first_tensor(values)
    if tensor is not None:
        return tensor.is_cpu
    # A barrier has no tensor; torch runs it by the default backend unless it names a device.
    device = next((value.device for value in values if getattr(value, "device", None) is not None), None)
    return device is not None and device.type == "cpu"


def _first_tensor(values: Any) -> torch.Tensor | None:
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, list | tuple):
            tensor = _first_tensor(value)
            if tensor is not None:
                return tensor
    return None

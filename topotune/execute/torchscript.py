"""TorchScript, where this torch has it: what it compiles runs without the interpreter lock.

Torch 2.13 deprecates ``torch.jit.script`` in favour of ``torch.compile``. That cannot take its place here:
what it compiles calls the operators of c10d from Python, with the lock, and on the CPU it needs a C++
compiler.
"""

import threading
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

if TYPE_CHECKING:
    ProcessGroup: TypeAlias = Any
    Work: TypeAlias = Any
else:
    # As TorchScript knows them; a boxed dist.ProcessGroup is the former.
    ProcessGroup, Work = torch.classes.c10d.ProcessGroup, torch.classes.c10d.Work

_COMPILING = threading.Lock()


def has_torchscript() -> bool:
    """Whether ``compiled`` compiles; not where it is switched off (PYTORCH_JIT=0) or gone from torch."""
    return hasattr(torch.jit, "script") and bool(torch.jit._state._enabled.enabled)


def compiled(subject: Any) -> Any:
    """A function or module, compiled; takes some 25 ms. ``subject`` itself where there is no TorchScript."""
    if not has_torchscript():
        return subject
    with _COMPILING, warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=r"`torch\.jit\.script` is deprecated", category=DeprecationWarning
        )
        return torch.jit.script(subject)

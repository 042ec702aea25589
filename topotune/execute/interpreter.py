"""Running a bound program: one native call for a whole allreduce.

Theory of operation. Torch's point-to-point operations are dispatcher operators (``torch.ops.c10d.send`` …),
so TorchScript can call them. ``_interpret`` is compiled once in a process; called, it goes through all the
program's operations without the interpreter lock, whatever the main thread does in Python meanwhile. Without
TorchScript the same function runs as plain Python: same results, but it needs the lock at every operation.

The function is data-driven rather than compiled for each schedule because compiling takes tens of
milliseconds, and TorchScript's own dispatch (under a microsecond an operation) is small beside a message
(tens of microseconds).

``progress`` holds the index of the operation that is running, so that an error can say what was waited for.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, List  # noqa: UP035 (TorchScript reads typing.List)

import torch
import torch.distributed as dist
from torch import Tensor

from topotune.execute.reduction import combine
from topotune.execute.torchscript import ProcessGroup, Work, compiled
from topotune.schedule.program import (
    COPY_SLOT,
    RECEIVE,
    RECEIVE_SLOT,
    REDUCE_OWN_FIRST,
    REDUCE_OWN_LAST,
    SEND,
    WAIT,
)

SUM: Final = 0
PRODUCT: Final = 1
MINIMUM: Final = 2
MAXIMUM: Final = 3

REDUCTION_OF_OP: Final[dict[Any, int]] = {
    dist.ReduceOp.SUM: SUM,
    dist.ReduceOp.AVG: SUM,
    dist.ReduceOp.PRODUCT: PRODUCT,
    dist.ReduceOp.MIN: MINIMUM,
    dist.ReduceOp.MAX: MAXIMUM,
}
"""What is done at every step; AVG is divided once, at the end, as torch's gloo does."""


def _interpret(
    ops: Tensor,
    flat: Tensor,
    scratch: Tensor,
    group: ProcessGroup,
    reduction: int,
    progress: Tensor,
) -> int:
    # TorchScript reads no constants of modules: the codes are written out, and asserted below.
    table: List[int] = ops.flatten().tolist()  # noqa: UP006
    works: List[Work] = []  # noqa: UP006
    for index in range(len(table) // 6):
        row = 6 * index
        code = table[row]
        offset = table[row + 1]
        length = table[row + 2]
        progress.fill_(index)
        if code == 3:
            works[table[row + 5]].wait()
        elif code == 2:
            mine = flat.narrow(0, offset, length)
            works.append(torch.ops.c10d.send([mine], group, table[row + 3], table[row + 4]))
        elif code == 0:
            mine = flat.narrow(0, offset, length)
            works.append(torch.ops.c10d.recv_([mine], group, table[row + 3], table[row + 4]))
        elif code == 1:
            theirs = scratch.narrow(0, table[row + 5], length)
            works.append(torch.ops.c10d.recv_([theirs], group, table[row + 3], table[row + 4]))
        else:
            mine = flat.narrow(0, offset, length)
            theirs = scratch.narrow(0, table[row + 5], length)
            if code == 6:
                mine.copy_(theirs)
            else:
                first = mine
                second = theirs
                if code == 5:
                    first = theirs
                    second = mine
                combine(first, second, mine, reduction)
    return len(works)


_CODES = (RECEIVE, RECEIVE_SLOT, SEND, WAIT, REDUCE_OWN_FIRST, REDUCE_OWN_LAST, COPY_SLOT)
assert list(_CODES) == [0, 1, 2, 3, 4, 5, 6]


@cache
def _native() -> Callable[..., int]:
    run: Callable[..., int] = compiled(_interpret)
    return run


def prepare() -> None:
    """Compile now rather than in the first call."""
    _native()


def interpret(
    ops: Tensor,
    flat: Tensor,
    scratch: Tensor,
    group: torch.ScriptObject,
    reduction: int,
    progress: Tensor,
    *,
    native: bool = True,
) -> None:
    """Run a bound program on one message, in place; blocks until this rank's part is done.

    Args:
        ops: ``BoundProgram.ops``, int64, shape (num_ops, 6), contiguous.
        flat: the message, contiguous, on the CPU, shape (num_elements,).
        scratch: same dtype as ``flat``, shape (>= scratch_elements,).
        group: a boxed process group.
        reduction: SUM, PRODUCT, MINIMUM or MAXIMUM.
        progress: int64, shape (1,): gets the index of the running operation.
        native: False runs it as plain Python even where it could be compiled.

    Raises:
        RuntimeError: a wait timed out or a connection broke (torch's own error, in words of gloo).
    """
    run = _native() if native else _interpret
    # Inference mode allows writing to every kind of tensor, and leaves the autograd dispatch out.
    with torch.inference_mode():
        run(ops, flat, scratch, group, reduction, progress)

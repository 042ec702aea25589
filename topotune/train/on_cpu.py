"""A group's allreduces on CPU memory: by the plan's algorithm in turn, else by the wrapped backend."""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from topotune.execute.executable import Executable
from topotune.train.allreduce import PlannedAllreduce
from topotune.train.planned import Algorithm
from topotune.train.planned_calls import PlannedCalls
from topotune.train.tensors import is_plain, memory_of
from topotune.train.work import QueuedWork


class OnCpu:
    """The CPU part of one group's allreduces.

    Args:
        planned: its algorithms.
        calls: of the group.
        wrapped: what serves the rest.
    """

    def __init__(self, planned: PlannedAllreduce, calls: PlannedCalls, wrapped: dist.ProcessGroup) -> None:
        self.planned = planned
        self._calls = calls
        self._wrapped = wrapped

    def allreduce(self, tensor: torch.Tensor, options: Any) -> QueuedWork | None:
        """Reduce a tensor in place, in its turn.

        Args:
            tensor: any that is not on a GPU.
            options: ``AllreduceOptions``.

        Returns:
            its work; None, with nothing done, where the wrapped backend serves it as it is.

        Raises:
            RunError: a rank did not take part within the group's timeout, or was lost.
        """
        num_bytes = tensor.numel() * tensor.element_size()
        algorithm = self._calls.choose(self.planned, num_bytes, tensor.dtype)
        is_dense = tensor.layout is torch.strided and tensor.is_contiguous()
        if (algorithm is None and is_dense) or not is_plain(tensor):
            return None
        return self._calls.turns.planned(
            partial(self._reduce, algorithm, tensor, options), [tensor], is_async=options.asyncOp
        )

    def _reduce(self, algorithm: Algorithm[Executable] | None, tensor: torch.Tensor, options: Any) -> None:
        """One allreduce in its turn, from start to end, in whichever thread."""
        dense, op = self._calls.in_one_piece(tensor, algorithm), options.reduceOp.op
        flat = dense.view(-1)
        self._calls.run(
            self.planned,
            algorithm,
            flat,
            op,
            by_plan=lambda algorithm: self.planned.run(algorithm, flat, op),
            # In its shape: with TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares it with other ranks'.
            by_default=lambda: _wait(self._wrapped.allreduce([dense], options)),
        )
        if dense.data_ptr() != tensor.data_ptr():
            memory_of(tensor).copy_(dense)


def _wait(work: dist.Work) -> None:
    work.wait()

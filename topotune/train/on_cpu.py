"""A group's allreduces on CPU memory: by the plan's algorithm in turn, watched for drift; else by gloo."""

from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from topotune.execute.executable import Executable
from topotune.plan import Row
from topotune.plan.algorithms import DEFAULT
from topotune.train.allreduce import PlannedAllreduce
from topotune.train.drift import Drift
from topotune.train.drift_record import RECORD
from topotune.train.planned import Algorithm
from topotune.train.tensors import is_plain, memory_of
from topotune.train.turns import Turns
from topotune.train.usage import GroupUsage
from topotune.train.work import QueuedWork


class OnCpu:
    """The CPU part of one group's allreduces.

    Args:
        planned: its algorithms.
        turns: of the group.
        usage: where calls are counted.
        wrapped: what serves the rest.

    Attributes:
        drift: watches the calls of the plan; None where nothing does.
    """

    def __init__(
        self, planned: PlannedAllreduce, turns: Turns, usage: GroupUsage, wrapped: dist.ProcessGroup
    ) -> None:
        self.planned = planned
        self.drift: Drift | None = None
        self._turns = turns
        self._usage = usage
        self._wrapped = wrapped

    def watch(self, store: Store, tables: Mapping[str, Sequence[Row]]) -> None:
        """Watch planned calls for drift, from the next one on.

        Args:
            store: where the ranks vote; nobody else uses the prefix.
            tables: collective → the plan's table.
        """
        self.stop_watching()
        self.drift = Drift(
            store,
            self._wrapped.rank(),
            self._wrapped.size(),
            where=self._usage.kind,
            tables=tables,
            acts=RECORD.acts,
        )
        RECORD.open(self.drift)

    def stop_watching(self) -> None:
        """Close the record of what was watched; planned calls stay with what was decided."""
        if self.drift is not None:
            RECORD.close(self.drift)

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
        algorithm = self._choose(tensor)
        is_dense = tensor.layout is torch.strided and tensor.is_contiguous()
        if (algorithm is None and is_dense) or not is_plain(tensor):
            return None
        return self._turns.planned(
            partial(self._reduce, algorithm, tensor, options), [tensor], is_async=options.asyncOp
        )

    def _choose(self, tensor: torch.Tensor) -> Algorithm[Executable] | None:
        """What shall run an allreduce; what waits in the queue may yet fall back when its turn comes."""
        num_bytes = tensor.numel() * tensor.element_size()
        algorithm = self.planned.choose(num_bytes)
        if algorithm is None or self.drift is None or not algorithm.of_plan:
            return algorithm
        return None if self.drift.has_fallen(("allreduce", num_bytes, tensor.dtype)) else algorithm

    def _reduce(self, algorithm: Algorithm[Executable] | None, tensor: torch.Tensor, options: Any) -> None:
        """One allreduce in its turn, from start to end, in whichever thread."""
        memory = memory_of(tensor)
        flat = memory.contiguous().view(-1)
        if algorithm is not None and algorithm.of_plan and self.drift is not None:
            self._reduce_watched(self.drift, algorithm, flat, options)
        else:
            self._reduce_by(algorithm, flat, options)
        if flat.data_ptr() != memory.data_ptr():
            memory.copy_(flat.view(memory.shape))

    def _reduce_by(self, algorithm: Algorithm[Executable] | None, flat: torch.Tensor, options: Any) -> None:
        """By the algorithm, if there is one and it takes such a message; else by the wrapped backend."""
        if algorithm is not None:
            with self._turns.queue.closing_on_error():
                is_reduced = self.planned.run(algorithm, flat, options.reduceOp.op)
            if is_reduced:
                self._usage.count("allreduce", algorithm.name)
                return
        self._usage.count("allreduce", DEFAULT)
        self._wrapped.allreduce([flat], options).wait()

    def _reduce_watched(
        self, drift: Drift, algorithm: Algorithm[Executable], flat: torch.Tensor, options: Any
    ) -> None:
        """By the algorithm, unless all ranks have left it for such messages, or try the default."""
        kind = ("allreduce", flat.nbytes, flat.dtype)
        with self._turns.queue.closing_on_error():
            self.planned.build(algorithm)
        if drift.has_fallen(kind) or not self.planned.serves(algorithm, flat, options.reduceOp.op):
            self._reduce_by(None, flat, options)
            return
        with self._turns.queue.closing_on_error():
            by_plan = drift.begin(kind, algorithm.name)
            start_s = perf_counter()
            self._reduce_by(algorithm if by_plan else None, flat, options)
            drift.end(kind, perf_counter() - start_s)

"""A group's calls on CPU memory that algorithms of ours may run: who runs each one, counted and watched.

Theory of operation. Who runs a call is asked twice. Where it is made, in the caller's thread, its size says
whether there is an algorithm at all: what has none goes straight to the wrapped backend. In its turn, when
all calls before it have ended, the rest is found out: whether the algorithm takes the type and the operation,
whether all ranks have left it for such calls, whether a trial gives this one to the default (`Drift`). That
is where ranks must not differ, and they do not: it follows from the calls before, and their order is the
same.

The first answer knows of a fall-back too, to spare what the default runs a turn in the queue, and there ranks
do differ: one that has many calls in flight learns of it later. It changes nothing but the way to the wrapped
backend, which gets the same call, of the same shape, at the same place of its own order.
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from topotune.execute.communicator import end_waits
from topotune.plan import Row
from topotune.plan.algorithms import DEFAULT
from topotune.plan.model import Collective
from topotune.train.drift import Drift
from topotune.train.drift_record import RECORD
from topotune.train.planned import Algorithm, PlannedCollective
from topotune.train.tensors import memory_of
from topotune.train.turns import Turns
from topotune.train.usage import GroupUsage

E = TypeVar("E")


class PlannedCalls:
    """What all of one group's collectives on CPUs share.

    Args:
        turns: of the group.
        usage: where calls are counted.
        abort: ends what waits for this rank on the connections of the algorithms.
        wrapped: the wrapped backend, whose connections end with them where a call of a trial fails.

    Attributes:
        turns: of the group.
        drift: watches the calls of the plan, whichever collective; None where nothing does.
    """

    def __init__(
        self, turns: Turns, usage: GroupUsage, abort: Callable[[], None], wrapped: dist.ProcessGroup
    ) -> None:
        self.turns = turns
        self.drift: Drift | None = None
        self._queue = turns.queue  # by the time that a call fails, another one may serve the group
        self._usage = usage
        self._abort = abort
        self._wrapped = wrapped

    def watch(
        self, store: Store, rank: int, size: int, *, where: str, tables: Mapping[Collective, Sequence[Row]]
    ) -> None:
        """Watch planned calls for drift, from the next one on.

        Args:
            store: where the ranks vote; nobody else uses the prefix.
            rank: own rank in the group.
            size: of the group, at least 2.
            where: what the group is called.
            tables: collective → the plan's table.
        """
        self.stop_watching()
        self.drift = Drift(store, rank, size, where=where, tables=tables, acts=RECORD.acts)
        RECORD.open(self.drift)

    def stop_watching(self) -> None:
        """Close the record of what was watched; planned calls stay with what was decided."""
        if self.drift is not None:
            RECORD.close(self.drift)

    def choose(
        self, planned: PlannedCollective[E], num_bytes: int, dtype: torch.dtype
    ) -> Algorithm[E] | None:
        """What shall run a call; None for the wrapped backend. From the caller's thread.

        Args:
            planned: the algorithms of its collective.
            num_bytes: of the message by which tables choose.
            dtype: of its elements.
        """
        algorithm = planned.choose(num_bytes)
        if algorithm is None or self.drift is None or not algorithm.of_plan:
            return algorithm
        return None if self.drift.has_fallen((planned.collective, num_bytes, dtype)) else algorithm

    def run(
        self,
        planned: PlannedCollective[E],
        algorithm: Algorithm[E] | None,
        message: torch.Tensor,
        op: Any,
        *,
        by_plan: Callable[[Algorithm[E]], None],
        by_default: Callable[[], None],
    ) -> None:
        """One call in its turn, from start to end, in whichever thread.

        Args:
            planned: the algorithms of its collective.
            algorithm: from `choose`.
            message: by which tables choose, flat.
            op: a ``dist.ReduceOp.RedOpType``, or None.
            by_plan: runs it by the algorithm.
            by_default: runs it by the wrapped backend.

        Raises:
            RunError: a rank did not take part within the group's timeout, or was lost.
        """
        if algorithm is not None and self._run_planned(planned, algorithm, message, op, by_plan, by_default):
            return
        self._usage.count(planned.collective, DEFAULT)
        by_default()

    def _run_planned(
        self,
        planned: PlannedCollective[E],
        algorithm: Algorithm[E],
        message: torch.Tensor,
        op: Any,
        by_plan: Callable[[Algorithm[E]], None],
        by_default: Callable[[], None],
    ) -> bool:
        """As `run`; False, with nothing done, where the default runs it and no drift is watched."""
        try:
            planned.build(algorithm)
            if not planned.serves(algorithm, message, op):
                return False
            drift = self.drift if algorithm.of_plan else None
            if drift is None:
                by_plan(algorithm)
                self._usage.count(planned.collective, algorithm.name)
                return True
            kind = (planned.collective, message.nbytes, message.dtype)
            if drift.has_fallen(kind):
                return False
            is_by_plan = drift.begin(kind, algorithm.name)
            start_s = perf_counter()
            if is_by_plan:
                by_plan(algorithm)
            else:
                by_default()
            drift.end(kind, perf_counter() - start_s)
            self._usage.count(planned.collective, algorithm.name if is_by_plan else DEFAULT)
        except BaseException as error:
            self._end_for_all(error)
            raise
        return True

    def in_one_piece(self, tensor: torch.Tensor, algorithm: Algorithm[E] | None) -> torch.Tensor:
        """The numbers of a call's tensor, contiguous: its own memory or, where that has gaps, a copy.

        Args:
            tensor: in CPU memory, strided.
            algorithm: that is to run the call, in its turn; None for the wrapped backend.

        Raises:
            RuntimeError: there is no room for a copy.
        """
        try:
            return memory_of(tensor).contiguous()
        except BaseException as error:
            if algorithm is not None:
                self._end_for_all(error)
            raise

    def _end_for_all(self, error: BaseException) -> None:
        """What all ranks must do together has failed on this one, which may be the only one that knows.

        It lost the store, has no memory left, was interrupted: if it caught the error and went on, its next
        call would meet the others' in this one. So the queue closes, and what waits for this rank ends.
        """
        try:
            self._abort()  # first: what the queue drops may call back into the script
            if self.drift is not None and self.drift.is_changing:
                end_waits(self._wrapped)  # the default may have this call, or the next one
        finally:
            self._queue.fail(error)

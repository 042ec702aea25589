"""A group's reduce-scatters and all-gathers of equal parts on CPUs: by the plan's algorithms, in turn."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import torch

from topotune.execute.parts import PartsExecutable
from topotune.schedule.model import PartCollective
from topotune.train.calls import Call
from topotune.train.parts import PlannedParts
from topotune.train.planned import Algorithm
from topotune.train.planned_calls import PlannedCalls
from topotune.train.tensors import are_equal_parts, memory_of
from topotune.train.work import QueuedWork


class Exchanges:
    """The CPU part of one group's exchanges of parts.

    Args:
        planned: the algorithms of each of the two collectives.
        calls: of the group.
        forwards: method → the wrapped backend's, which serves the rest.
        size: of the group.
    """

    def __init__(
        self,
        planned: Mapping[PartCollective, PlannedParts],
        calls: PlannedCalls,
        forwards: Mapping[str, Callable[..., Any]],
        size: int,
    ) -> None:
        self.planned = planned
        self._calls = calls
        self._forwards = forwards
        self._size = size

    def is_active(self, call: Call) -> bool:
        """Whether such a call may be by an algorithm of the plan or of an override."""
        return self._of(call).active

    def exchange(self, call: Call, whole: Any, part: Any, options: Any) -> QueuedWork | None:
        """Do a collective of ``part``, this rank's, and ``whole``, all ranks' together, in its turn.

        Args:
            call: a reduce-scatter, which fills ``part``, or an all-gather, which fills ``whole``.
            whole: any argument of such a call.
            part: the same.
            options: ``ReduceScatterOptions`` or ``AllgatherOptions``.

        Returns:
            its work; None, with nothing done, where the wrapped backend serves it.

        Raises:
            RunError: a rank did not take part within the group's timeout, or was lost.
        """
        if not are_equal_parts(whole, part, self._size):
            return None
        algorithm = self._calls.choose(self._of(call), whole.numel() * whole.element_size(), whole.dtype)
        if algorithm is None:
            return None
        outputs = [part] if _scatters(call) else list(whole.chunk(self._size))
        return self._calls.turns.planned(
            partial(self._exchange, call, algorithm, whole, part, options),
            outputs,
            is_async=options.asyncOp,
        )

    def _of(self, call: Call) -> PlannedParts:
        return self.planned[cast(PartCollective, call.collective)]

    def _exchange(
        self,
        call: Call,
        algorithm: Algorithm[PartsExecutable],
        whole: torch.Tensor,
        part: torch.Tensor,
        options: Any,
    ) -> None:
        """One call of it in its turn, from start to end, in whichever thread."""
        scatters, planned = _scatters(call), self._of(call)
        dense_whole, dense_part = (self._calls.in_one_piece(tensor, algorithm) for tensor in (whole, part))
        flat_whole, flat_part = dense_whole.view(-1), dense_part.view(-1)
        op = options.reduceOp.op if scatters else None

        def by_default() -> None:
            # In their shapes: with TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares them with other ranks'.
            given, taken = (dense_part, dense_whole) if scatters else (dense_whole, dense_part)
            self._forwards[call.method](given, taken, options).wait()

        self._calls.run(
            planned,
            algorithm,
            flat_whole,
            op,
            by_plan=lambda algorithm: planned.run(algorithm, flat_whole, flat_part, op),
            by_default=by_default,
        )
        output, dense = (part, dense_part) if scatters else (whole, dense_whole)
        if dense.data_ptr() != output.data_ptr():
            memory_of(output).copy_(dense)


def _scatters(call: Call) -> bool:
    return call.collective == "reduce_scatter"

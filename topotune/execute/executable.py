"""What runs an allreduce on a communicator: the interface of all candidates, and what runs schedules."""

import abc
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, Protocol

import torch
import torch.distributed as dist

from topotune.errors import RunError, UsageError
from topotune.execute.communicator import Communicator, cause_in_words
from topotune.execute.interpreter import REDUCTION_OF_OP, interpret, prepare
from topotune.schedule.model import Params, Schedule
from topotune.schedule.program import Program, bind, lower
from topotune.units import format_bytes

ReduceOpType = dist.ReduceOp.RedOpType

FLOAT_DTYPES: Final = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
INTEGER_DTYPES: Final = frozenset({torch.int8, torch.uint8, torch.int32, torch.int64})
"""What gloo itself reduces, but for bool and complex, which stay with the wrapped backend."""

COALESCED_BYTES: Final = 256 * 1024
"""Up to here neighbouring chunks travel as one message: what a message costs counts more than overlap."""

_BINDINGS: Final = 64  # a training job has few bucket sizes


class Executable(Protocol):
    """A way to do an allreduce, ready to run; the same on all ranks of its communicator.

    Attributes:
        algorithm, params: as in plans.
        communicator: what it runs on.
        max_message_bytes: largest message it takes; None is any.
    """

    algorithm: str
    params: Params
    communicator: Communicator
    max_message_bytes: int | None

    def supports(self, dtype: torch.dtype, op: ReduceOpType) -> bool:
        """Whether it can serve this type and operation."""
        ...

    def allreduce_(self, flat: torch.Tensor, op: ReduceOpType = dist.ReduceOp.SUM) -> None:
        """Allreduce in place; returns when this rank has the result.

        Args:
            flat: contiguous, on the CPU, shape (num_elements,); num_elements the same on all ranks.
            op: SUM, AVG, PRODUCT, MIN or MAX.

        Raises:
            RunError: a rank did not come within the communicator's timeout, or a connection broke.
        """
        ...


class OnCommunicator(abc.ABC):
    """What all that runs on a communicator shares: one call at a time, errors in words.

    Args:
        algorithm: name in plans.
        params: its parameters.
        communicator: of all ranks that take part.
    """

    def __init__(self, algorithm: str, params: Params, communicator: Communicator) -> None:
        self.algorithm = algorithm
        self.params = params
        self.communicator = communicator

    @property
    def _num_owners(self) -> int:
        """Ranks whose parts are added up."""
        return self.communicator.size

    def _guarded(self, collective: str, num_bytes: int, run: Callable[[], None]) -> None:
        """Run one call of a collective on a message of that size.

        Raises:
            RunError: a rank did not come within the communicator's timeout, or a connection broke.
        """
        communicator = self.communicator
        with communicator.lock, torch.inference_mode():
            try:
                run()
            except RunError:
                raise
            except RuntimeError as error:
                cause = f"{self._doing()}: {cause_in_words(error)}"
                communicator.fail(cause)
                raise RunError(
                    f"{collective} of {format_bytes(num_bytes)} by {self.algorithm} on communicator "
                    f"{communicator.name!r}, rank {communicator.rank} of {communicator.size}: {cause}"
                ) from error

    def _guarded_reduction(
        self,
        collective: str,
        num_bytes: int,
        op: ReduceOpType,
        reduce: Callable[[ReduceOpType], None],
        result: torch.Tensor,
    ) -> None:
        """`_guarded` for a collective that reduces: AVG is SUM, and a division of this rank's ``result``."""

        def run() -> None:
            reduce(dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op)
            if op == dist.ReduceOp.AVG:
                result.div_(self._num_owners)

        self._guarded(collective, num_bytes, run)

    @abc.abstractmethod
    def _doing(self) -> str:
        """What it was doing when an error came, in words."""


def reduces(dtype: torch.dtype, op: ReduceOpType) -> bool:
    """Whether algorithms of ours take this type and operation; what gloo refuses they do not take either."""
    if op not in REDUCTION_OF_OP:
        return False
    return dtype in FLOAT_DTYPES or (dtype in INTEGER_DTYPES and op != dist.ReduceOp.AVG)


class CommunicatorExecutable(OnCommunicator):
    """What all allreduces share; arguments as of ``OnCommunicator``."""

    max_message_bytes: int | None = None

    def supports(self, dtype: torch.dtype, op: ReduceOpType) -> bool:
        """Whether it can serve this type and operation."""
        return reduces(dtype, op)

    def allreduce_(self, flat: torch.Tensor, op: ReduceOpType = dist.ReduceOp.SUM) -> None:
        """Allreduce in place; see ``Executable``."""
        assert flat.dim() == 1, f"shape {tuple(flat.shape)} is not flat"
        assert flat.is_contiguous(), f"stride {flat.stride()} is not contiguous"
        assert self.supports(flat.dtype, op), f"{self.algorithm} does not serve {op} of {flat.dtype}"
        if self.max_message_bytes is not None and flat.nbytes > self.max_message_bytes:
            raise UsageError(
                f"{self.algorithm} takes messages up to {format_bytes(self.max_message_bytes)}, "
                f"not {format_bytes(flat.nbytes)}"
            )
        if flat.numel() == 0 or self.communicator.size == 1:
            return
        self._guarded_reduction("allreduce", flat.nbytes, op, partial(self._run, flat), flat)

    @abc.abstractmethod
    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        """The allreduce itself, on at least one element and two ranks, for an op other than AVG."""


class ScheduleExecutable(CommunicatorExecutable):
    """Runs a verified schedule by point-to-point messages, in one native call.

    A rank that is one of the schedule's servers calls it with scratch as large as the message.

    Args:
        schedule: for as many ranks as the communicator has.
        communicator: of all ranks that take part.
        native: False runs it as plain Python; same results.
    """

    def __init__(self, schedule: Schedule, communicator: Communicator, *, native: bool = True) -> None:
        super().__init__(schedule.algorithm, schedule.params, communicator)
        assert schedule.num_ranks == communicator.size, f"{schedule.num_ranks} ranks, not {communicator.size}"
        self._owners = schedule.num_owners
        self._native = native
        if native:
            prepare()
        self._coalesced = lower(schedule, communicator.rank, coalesce=True)
        self._streamed = lower(schedule, communicator.rank)
        self._bind = lru_cache(maxsize=_BINDINGS)(_bind)
        self._progress = torch.zeros(1, dtype=torch.int64)
        self._running: Callable[[int], str] | None = None

    @property
    def _num_owners(self) -> int:
        return self._owners

    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        needed = self.scratch_elements(flat.numel(), flat.itemsize)
        self.run_in_place(flat, op, self.communicator.scratch(needed, flat.dtype))

    def scratch_elements(self, num_elements: int, itemsize: int) -> int:
        """How much scratch ``run_in_place`` takes for a message of so many elements."""
        return self._bound(num_elements, itemsize)[2]

    def run_in_place(self, flat: torch.Tensor, op: ReduceOpType, scratch: torch.Tensor) -> None:
        """Run the schedule, whichever collective it does; the caller holds the communicator's lock.

        Args:
            flat: the whole message, contiguous, on the CPU, shape (num_elements,).
            op: SUM, PRODUCT, MIN or MAX.
            scratch: of the same dtype, with ``scratch_elements`` at least.
        """
        ops, self._running, _ = self._bound(flat.numel(), flat.itemsize)
        interpret(
            ops,
            flat,
            scratch,
            self.communicator.boxed,
            REDUCTION_OF_OP[op],
            self._progress,
            native=self._native,
        )

    def _bound(self, num_elements: int, itemsize: int) -> tuple[torch.Tensor, Callable[[int], str], int]:
        program = self._coalesced if num_elements * itemsize <= COALESCED_BYTES else self._streamed
        return self._bind(program, num_elements)

    def _doing(self) -> str:
        return self.doing()

    def doing(self) -> str:
        """What it was doing when an error came, in words."""
        assert self._running is not None
        return self._running(int(self._progress[0]))


def _bind(program: Program, num_elements: int) -> tuple[torch.Tensor, Callable[[int], str], int]:
    bound = bind(program, num_elements)

    def describe(index: int) -> str:
        return program.describe(int(bound.source[index]))

    return torch.from_numpy(bound.ops), describe, bound.scratch_elements


class DefaultExecutable(CommunicatorExecutable):
    """Gloo's own allreduce on the communicator: what a job without a plan gets."""

    def __init__(self, communicator: Communicator) -> None:
        super().__init__("default", {}, communicator)

    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(op)
        self.communicator.group.allreduce([flat], options).wait()

    def _doing(self) -> str:
        return f"waiting for {self.communicator.library}'s allreduce"

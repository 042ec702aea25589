"""Reduce-scatter and all-gather on a communicator: by schedules, and through shared memory.

The message is n equal parts, all ranks' together. A reduce-scatter leaves its input as it is, so a schedule,
which adds up in place, works on a copy; beside it stands what arrives. To keep both within one message of
scratch, a large one is sent in two halves: the first half of every part, then the second.

An all-gather moves bytes; it fills its output in place and needs no scratch.
"""

import abc
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

import torch
import torch.distributed as dist

from topotune.execute.communicator import Communicator
from topotune.execute.executable import (
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    OnCommunicator,
    ReduceOpType,
    ScheduleExecutable,
    reduces,
)
from topotune.execute.interpreter import REDUCTION_OF_OP
from topotune.execute.shared_memory.meeting import meeting, shared_inside
from topotune.execute.shared_memory.parts import SharedParts
from topotune.execute.shared_memory.segment import DATA_BYTES
from topotune.schedule import catalog
from topotune.schedule.hierarchical import check_groups
from topotune.schedule.model import Params, PartCollective
from topotune.schedule.parts import moved_parts

WHOLE_BYTES: Final = 1 << 20
"""Up to here a message is reduced in one go: a second one would cost as many latencies again."""


GATHERED_DTYPES: Final = FLOAT_DTYPES | INTEGER_DTYPES | {torch.bool}
"""What gloo itself gathers, but for complex numbers, which stay with the wrapped backend."""


class PartsExecutable(Protocol):
    """A way to do a reduce-scatter or an all-gather, ready to run; the same on all ranks.

    Attributes:
        collective: which of the two.
        algorithm, params: as in plans.
        communicator: what it runs on.
    """

    collective: PartCollective
    algorithm: str
    params: Params
    communicator: Communicator

    def supports(self, dtype: torch.dtype, op: ReduceOpType) -> bool:
        """Whether it can serve this type and operation; an all-gather has none."""
        ...

    def exchange(self, whole: torch.Tensor, part: torch.Tensor, op: ReduceOpType = dist.ReduceOp.SUM) -> None:
        """Do the collective; returns when this rank has the result.

        Args:
            whole: all ranks' parts in the order of ranks, contiguous, on the CPU, shape (n * m,); a
                reduce-scatter reads it, an all-gather fills it.
            part: this rank's, shape (m,), of the same dtype, contiguous; a reduce-scatter fills it, an
                all-gather reads it. It may be the memory of the own part in ``whole``.
            op: of a reduce-scatter: SUM, AVG, PRODUCT, MIN or MAX.

        Raises:
            RunError: a rank did not come within the communicator's timeout, or a connection broke.
        """
        ...


class _Parts(OnCommunicator):
    """What both kinds share.

    Args:
        collective, algorithm, params, communicator: as in ``PartsExecutable``.
        part_of_rank: the number of the part that belongs to each rank of the communicator; None where they
            are numbered alike.
    """

    def __init__(
        self,
        collective: PartCollective,
        algorithm: str,
        params: Params,
        communicator: Communicator,
        part_of_rank: Sequence[int] | None,
    ) -> None:
        super().__init__(algorithm, params, communicator)
        self.collective = collective
        size = communicator.size
        self._part_of_rank = list(range(size)) if part_of_rank is None else list(part_of_rank)
        self._own = self._part_of_rank[communicator.rank]

    def supports(self, dtype: torch.dtype, op: ReduceOpType) -> bool:
        """Whether it can serve this type and operation."""
        return dtype in GATHERED_DTYPES if self.collective == "allgather" else reduces(dtype, op)

    def exchange(self, whole: torch.Tensor, part: torch.Tensor, op: ReduceOpType = dist.ReduceOp.SUM) -> None:
        """Do the collective; see ``PartsExecutable``."""
        size = self.communicator.size
        assert whole.dim() == part.dim() == 1, f"shapes {tuple(whole.shape)}, {tuple(part.shape)}"
        assert whole.numel() == size * part.numel(), f"{whole.numel()} are not {size} times {part.numel()}"
        assert whole.is_contiguous(), f"stride {whole.stride()} is not contiguous"
        assert part.is_contiguous(), f"stride {part.stride()} is not contiguous"
        assert whole.dtype == part.dtype, f"{whole.dtype} and {part.dtype}"
        assert self.supports(whole.dtype, op), f"{self.algorithm} does not serve {op} of {whole.dtype}"
        if part.numel() == 0:
            return
        if self.collective == "allgather":
            whole, part = whole.view(torch.uint8), part.view(torch.uint8)
            own = whole.view(size, -1)[self._own]
            if own.data_ptr() != part.data_ptr():
                own.copy_(part)
            if size > 1:
                self._guarded("allgather", whole.nbytes, lambda: self._gather(whole, part))
            return
        if size == 1:
            part.copy_(whole)
            return
        self._guarded_reduction("reduce_scatter", whole.nbytes, op, partial(self._scatter, whole, part), part)

    @abc.abstractmethod
    def _scatter(self, whole: torch.Tensor, part: torch.Tensor, op: ReduceOpType) -> None:
        """The reduce-scatter itself, on two ranks or more, for an op other than AVG."""

    @abc.abstractmethod
    def _gather(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        """The all-gather itself, of bytes, on two ranks or more; the own part stands in ``whole``."""


class ScheduledParts(_Parts):
    """By a verified schedule, message by message in one native call; arguments as of ``_Parts``."""

    def __init__(
        self,
        collective: PartCollective,
        algorithm: str,
        params: Params,
        communicator: Communicator,
        part_of_rank: Sequence[int] | None = None,
    ) -> None:
        super().__init__(collective, algorithm, params, communicator, part_of_rank)
        schedule = catalog.build(algorithm, params, communicator.size, collective)
        self._schedule = ScheduleExecutable(moved_parts(schedule, part_of_rank), communicator)

    def _scatter(self, whole: torch.Tensor, part: torch.Tensor, op: ReduceOpType) -> None:
        length = part.numel()
        middle = length if whole.nbytes <= WHOLE_BYTES else -(-length // 2)
        rows = whole.view(self.communicator.size, length)
        for start, end in ((0, middle), (middle, length)):
            if end > start:
                part[start:end].copy_(self._scattered(rows[:, start:end], op))

    def _scattered(self, rows: torch.Tensor, op: ReduceOpType) -> torch.Tensor:
        """This rank's part of the same stretch of every part, in scratch."""
        num_elements = rows.numel()
        needed = self._schedule.scratch_elements(num_elements, rows.itemsize)
        scratch = self.communicator.scratch(num_elements + needed, rows.dtype)
        work = scratch[:num_elements]
        work.view(rows.shape).copy_(rows)
        self._schedule.run_in_place(work, op, scratch[num_elements:])
        return work.view(rows.shape)[self._own]

    def _gather(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        needed = self._schedule.scratch_elements(whole.numel(), 1)
        self._schedule.run_in_place(whole, dist.ReduceOp.SUM, self.communicator.scratch(needed, torch.uint8))

    def _doing(self) -> str:
        return self._schedule.doing()


class PartsThroughSharedMemory(_Parts):
    """Through shared memory inside groups, and a ring between the ranks at the same place of their groups.

    One group of all is ``shm``; several, of one size, are ``shm_hierarchical``. Where some group has no such
    memory nothing is supported, on all ranks alike.

    Args:
        collective, algorithm, params, communicator, part_of_rank: as of ``_Parts``.
        data_bytes: what slots may take in each group.

    Attributes:
        unavailable: why there is no memory, in words; "" where there is. The same on all ranks.
    """

    def __init__(
        self,
        collective: PartCollective,
        algorithm: str,
        params: Params,
        communicator: Communicator,
        part_of_rank: Sequence[int] | None = None,
        *,
        data_bytes: int = DATA_BYTES,
    ) -> None:
        super().__init__(collective, algorithm, params, communicator, part_of_rank)
        if algorithm == "shm":
            groups, inside = [list(range(communicator.size))], communicator
        else:
            groups = [list(group) for (group,) in check_groups(params["groups"], most_levels=2)]
            own = next(group for group in groups if communicator.rank in group)
            joined = communicator.subgroup(own, "inside")
            assert joined is not None
            inside = joined
        home = next(number for number, group in enumerate(groups) if communicator.rank in group)
        place = groups[home].index(communicator.rank)
        shared, self.unavailable = shared_inside(communicator, inside, data_bytes)
        self._blocks = [
            [self._part_of_rank[group[member]] for group in groups] for member in range(len(groups[home]))
        ]
        self._own_blocks = self._blocks[place]
        self._home = home
        self._shared = shared
        self._inside = None if shared is None else SharedParts(shared, self._blocks)
        self._across: ScheduleExecutable | None = None
        self._runs_across = False
        if len(groups) > 1:
            counterparts = communicator.subgroup([group[place] for group in groups], "across")
            assert counterparts is not None
            schedule = catalog.build("ring", {}, len(groups), collective)
            self._across = ScheduleExecutable(schedule, counterparts)

    def supports(self, dtype: torch.dtype, op: ReduceOpType) -> bool:
        """Whether it can serve this type and operation."""
        itemsize = 1 if self.collective == "allgather" else dtype.itemsize
        has_room = self._inside is None or self._inside.takes(itemsize)
        return not self.unavailable and has_room and super().supports(dtype, op)

    def _scatter(self, whole: torch.Tensor, part: torch.Tensor, op: ReduceOpType) -> None:
        across, self._runs_across = self._across, False
        with meeting(self.communicator, self._shared):
            if across is None:
                assert self._inside is not None
                self._inside.reduce_scatter(whole, part, REDUCTION_OF_OP[op])
                return
            blocks, rest = self._scratch_blocks(across, part)
            if self._inside is not None:
                self._inside.reduce_scatter(whole, blocks.view(-1), REDUCTION_OF_OP[op])
            else:
                for block, number in zip(blocks, self._own_blocks, strict=True):
                    block.copy_(whole.view(self.communicator.size, -1)[number])
            self._run_across(across, blocks, op, rest)
            part.copy_(blocks[self._home])

    def _gather(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        across, self._runs_across = self._across, False
        with meeting(self.communicator, self._shared):
            if across is None:
                assert self._inside is not None
                self._inside.allgather(part, whole)
                return
            blocks, rest = self._scratch_blocks(across, part)
            blocks[self._home].copy_(part)
            self._run_across(across, blocks, dist.ReduceOp.SUM, rest)
            rows = whole.view(self.communicator.size, -1)
            for block, number in zip(blocks, self._own_blocks, strict=True):
                rows[number].copy_(block)
            if self._inside is not None:
                self._inside.allgather(blocks.view(-1), whole)

    def _scratch_blocks(
        self, across: ScheduleExecutable, part: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for the parts of all ranks at this place, shape (k, m), and for what arrives of them."""
        num_blocks, length = len(self._own_blocks), part.numel()
        needed = across.scratch_elements(num_blocks * length, part.itemsize)
        scratch = self.communicator.scratch(num_blocks * length + needed, part.dtype)
        return scratch[: num_blocks * length].view(num_blocks, length), scratch[num_blocks * length :]

    def _run_across(
        self, across: ScheduleExecutable, blocks: torch.Tensor, op: ReduceOpType, scratch: torch.Tensor
    ) -> None:
        self._runs_across = True
        across.run_in_place(blocks.view(-1), op, scratch)
        self._runs_across = False

    def _doing(self) -> str:
        if self._runs_across:
            assert self._across is not None
            return f"between groups, {self._across.doing()}"
        return "meeting in shared memory"

"""Allreduce of CPU tensors through the memory that ranks of a node share: ``shm``, ``shm_hierarchical``.

They are offered where a handshake has shown that ranks share a node. Where there is no segment all the same
(a small /dev/shm, another user, a plan used on other ranks than it was made for) they support nothing, on all
ranks alike, and the call goes to the wrapped backend.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Final

import torch
import torch.distributed as dist

from topotune.errors import RunError
from topotune.execute.communicator import Communicator
from topotune.execute.executable import (
    CommunicatorExecutable,
    Executable,
    ReduceOpType,
    ScheduleExecutable,
)
from topotune.execute.interpreter import REDUCTION_OF_OP
from topotune.execute.shared_memory.collectives import SharedCollectives
from topotune.execute.shared_memory.meeting import meeting, shared_inside
from topotune.execute.shared_memory.segment import DATA_BYTES
from topotune.schedule.catalog import build
from topotune.schedule.hierarchical import between_groups, check_groups, num_parts
from topotune.schedule.model import Params


class _ThroughSharedMemory(CommunicatorExecutable):
    """What both share: the memory inside a group, and nothing supported without it.

    Args:
        algorithm, params, communicator: as for all executables.
        inside: of the ranks that share a node with this one.
        data_bytes: what slots may take on a node; counts for the first that is built on ``inside``.

    Attributes:
        unavailable: why there is no memory, in words; "" where there is. The same on all ranks.
    """

    def __init__(
        self,
        algorithm: str,
        params: Params,
        communicator: Communicator,
        inside: Communicator,
        data_bytes: int,
    ) -> None:
        super().__init__(algorithm, params, communicator)
        self._inside, self.unavailable = shared_inside(communicator, inside, data_bytes)
        self._stage = ""

    def supports(self, dtype: torch.dtype, op: ReduceOpType) -> bool:
        """Whether it can serve this type and operation."""
        return not self.unavailable and super().supports(dtype, op)

    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        self._stage = "meeting in shared memory"
        with meeting(self.communicator, self._inside):
            self._reduce(flat, op)

    @abc.abstractmethod
    def _reduce(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        """The allreduce itself."""

    def _doing(self) -> str:
        return self._stage


class SharedMemory(_ThroughSharedMemory):
    """All ranks on one node.

    Args:
        params: none.
        communicator: of all ranks.
        data_bytes: what slots may take, all ranks together.
    """

    def __init__(self, params: Params, communicator: Communicator, *, data_bytes: int = DATA_BYTES) -> None:
        super().__init__("shm", params, communicator, communicator, data_bytes)

    def _reduce(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        assert self._inside is not None
        self._inside.allreduce(flat, REDUCTION_OF_OP[op])


class SharedMemoryHierarchical(_ThroughSharedMemory):
    """Shared memory inside groups, an allreduce over the network between them.

    Groups of equal sizes: reduce-scatter inside, allreduce of each shard between the ranks that stand at the
    same place of their groups, all-gather inside. Unequal: reduce to the first rank of each group, allreduce
    among those, broadcast inside. The allreduce between groups is gloo's; where groups lie in outer groups
    (three levels) it is the schedule ``hierarchical`` over these.

    With gloo's, large messages of equal groups go in parts: while the network carries one, the node's memory
    is at work on others. How many follows from the message's bytes alone.

    Args:
        params: ``groups``, the innermost of ranks that share a node; with three levels also ``pieces``, of
            the schedule.
        communicator: of all ranks.
        data_bytes: what slots may take in each group.
    """

    def __init__(self, params: Params, communicator: Communicator, *, data_bytes: int = DATA_BYTES) -> None:
        outer = check_groups(params["groups"], communicator.size)
        groups = [group for part in outer for group in part]
        own = next(group for group in groups if communicator.rank in group)
        inside = communicator.subgroup(own, "inside")
        assert inside is not None
        super().__init__("shm_hierarchical", params, communicator, inside, data_bytes)
        self._has_equal_groups = len({len(group) for group in groups}) == 1
        place = own.index(communicator.rank) if self._has_equal_groups else 0
        self._across = communicator.subgroup([group[place] for group in groups], "across")
        self._schedule: ScheduleExecutable | None = None
        if self._across is not None and len(groups) > len(outer):
            across = build("hierarchical", between_groups(outer, params.get("pieces", 1)), len(groups))
            self._schedule = ScheduleExecutable(across, self._across)

    def _reduce(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        inside, reduction = self._inside, REDUCTION_OF_OP[op]
        if inside is None:  # alone in its group
            self._allreduce_across(flat, op)
        elif self._has_equal_groups:
            self._reduce_by_shards(inside, flat, op)
        else:
            inside.reduce_to_first(flat, reduction)
            self._allreduce_across(flat, op)
            inside.broadcast_from_first(flat)

    def _reduce_by_shards(self, inside: SharedCollectives, flat: torch.Tensor, op: ReduceOpType) -> None:
        overlaps = self._schedule is None and self._across is not None and self._across.size > 1
        parts = torch.split(flat, -(-flat.numel() // (num_parts(flat.nbytes) if overlaps else 1)))
        lengths = [inside.shard_elements(part.numel(), flat.itemsize) for part in parts]
        shards = torch.split(self.communicator.scratch(sum(lengths), flat.dtype), lengths)
        under_way = []
        for part, shard in zip(parts, shards, strict=True):
            inside.reduce_scatter(part, shard, REDUCTION_OF_OP[op])
            under_way.append(self._begin_across(shard, op))
        for part, shard, work in zip(parts, shards, under_way, strict=True):
            if work is not None:
                self._wait_across(work)
            inside.allgather(shard, part)

    def _allreduce_across(self, tensor: torch.Tensor, op: ReduceOpType) -> None:
        work = self._begin_across(tensor, op)
        if work is not None:
            self._wait_across(work)

    def _begin_across(self, tensor: torch.Tensor, op: ReduceOpType) -> dist.Work | None:
        """Gloo's allreduce across the groups, under way; None where there is nothing left to wait for."""
        if self._across is None or self._across.size == 1 or tensor.numel() == 0:
            return None
        if self._schedule is not None:
            self._stage = "running the schedule across the groups"
            try:
                self._schedule.allreduce_(tensor, op)
            except RunError as error:
                self.communicator.fail(error.message)
                raise
            self._stage = "meeting in shared memory"
            return None
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(op)
        return self._across.group.allreduce([tensor], options)

    def _wait_across(self, work: dist.Work) -> None:
        self._stage = "waiting for gloo's allreduce across the groups"
        work.wait()
        self._stage = "meeting in shared memory"


THROUGH_SHARED_MEMORY: Final[Mapping[str, Callable[[Params, Communicator], Executable]]] = {
    "shm": SharedMemory,
    "shm_hierarchical": SharedMemoryHierarchical,
}

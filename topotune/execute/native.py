"""Allreduce composed of the library's own collectives: few native calls, each as the library tuned it.

They stand beside schedules as candidates. All give the same bits on every rank: each element is reduced in
one place and copied from there, or (``native_allgather_reduce``) reduced everywhere in the order of ranks.

Calls go to the methods of the process group: the functions of ``torch.distributed`` would look the group up
in torch's world, where it is not.
"""

from collections.abc import Callable, Mapping
from typing import Final

import torch
import torch.distributed as dist

from topotune.execute.communicator import Communicator
from topotune.execute.executable import CommunicatorExecutable, Executable, ReduceOpType
from topotune.execute.reduction import COMBINE
from topotune.schedule.model import Params

ALLGATHER_REDUCE_SCRATCH_BYTES: Final = 1 << 20
"""What ``native_allgather_reduce`` may gather: it needs n messages of scratch; all others, about one."""


class _Composition(CommunicatorExecutable):
    """A sequence of collectives; remembers which one runs, for errors."""

    _stage = ""

    def _doing(self) -> str:
        return f"waiting for {self._stage}"

    def _allreduce(
        self, tensor: torch.Tensor, op: ReduceOpType, communicator: Communicator, place: str
    ) -> None:
        self._stage = f"{communicator.library}'s allreduce {place}"
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(op)
        communicator.group.allreduce([tensor], options).wait()

    def _reduce(self, tensor: torch.Tensor, op: ReduceOpType, communicator: Communicator, place: str) -> None:
        """To rank 0 of ``communicator``; the others keep nothing of use."""
        self._stage = f"{communicator.library}'s reduce {place}"
        options = dist.ReduceOptions()
        options.reduceOp = dist.ReduceOp(op)
        options.rootRank = 0
        communicator.group.reduce([tensor], options).wait()

    def _broadcast(self, tensor: torch.Tensor, communicator: Communicator, place: str) -> None:
        """From rank 0 of ``communicator``."""
        self._stage = f"{communicator.library}'s broadcast {place}"
        options = dist.BroadcastOptions()
        options.rootRank = 0
        communicator.group.broadcast([tensor], options).wait()

    def _scattered(
        self,
        flat: torch.Tensor,
        op: ReduceOpType,
        communicator: Communicator,
        place: str,
        between: Callable[[torch.Tensor], None] | None = None,
    ) -> None:
        """Reduce-scatter, ``between`` on the own shard, all-gather; padded to whole shards with zeros.

        The padding is reduced with padding only, so it changes nothing whatever the op.
        """
        num_shards = communicator.size
        shard_elements = -(-flat.numel() // num_shards)
        padded_elements = shard_elements * num_shards
        is_padded = padded_elements != flat.numel()
        scratch = self.communicator.scratch(shard_elements + is_padded * padded_elements, flat.dtype)
        shard, whole = scratch[:shard_elements], flat
        if is_padded:
            whole = scratch[shard_elements:]
            whole[: flat.numel()].copy_(flat)
            whole[flat.numel() :].zero_()
        self._stage = f"{communicator.library}'s reduce-scatter {place}"
        options = dist.ReduceScatterOptions()
        options.reduceOp = dist.ReduceOp(op)
        communicator.group.reduce_scatter_single(shard, whole, options).wait()
        if between is not None:
            between(shard)
        self._stage = f"{communicator.library}'s all-gather {place}"
        communicator.group.all_gather_single(whole, shard).wait()
        if is_padded:
            flat.copy_(whole[: flat.numel()])


class Allreduce(_Composition):
    """The library's own allreduce; worth naming where the communicator's ranks are in another order."""

    def __init__(self, params: Params, communicator: Communicator) -> None:
        super().__init__("native_allreduce", params, communicator)

    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        self._allreduce(flat, op, self.communicator, "over all ranks")


class ReduceBroadcast(_Composition):
    """Reduce to rank 0, broadcast from it."""

    def __init__(self, params: Params, communicator: Communicator) -> None:
        super().__init__("native_reduce_broadcast", params, communicator)

    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        self._reduce(flat, op, self.communicator, "to rank 0")
        self._broadcast(flat, self.communicator, "from rank 0")


class ReduceScatterAllgather(_Composition):
    """Reduce-scatter, then all-gather, both over all ranks."""

    def __init__(self, params: Params, communicator: Communicator) -> None:
        super().__init__("native_reduce_scatter_allgather", params, communicator)

    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        self._scattered(flat, op, self.communicator, "over all ranks")


class AllgatherReduce(_Composition):
    """Every rank gathers all messages and reduces them in the order of ranks; for small messages."""

    def __init__(self, params: Params, communicator: Communicator) -> None:
        super().__init__("native_allgather_reduce", params, communicator)
        self.max_message_bytes = ALLGATHER_REDUCE_SCRATCH_BYTES // communicator.size

    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        gathered = self.communicator.scratch(flat.numel() * self.communicator.size, flat.dtype)
        self._stage = f"{self.communicator.library}'s all-gather over all ranks"
        self.communicator.group.all_gather_single(gathered, flat).wait()
        rows = gathered.view(self.communicator.size, flat.numel())
        combine = COMBINE[op]
        combine(rows[0], rows[1], out=flat)
        for row in rows[2:]:
            combine(flat, row, out=flat)


class Hierarchical(_Composition):
    """Two levels, over private sub-groups.

    Groups of equal sizes: reduce-scatter inside, allreduce between the ranks that stand at the same place of
    their groups, all-gather inside. Unequal: reduce to the first rank of each group, allreduce among those,
    broadcast inside.
    """

    def __init__(self, params: Params, communicator: Communicator) -> None:
        super().__init__("native_hierarchical", params, communicator)
        groups: list[list[int]] = [list(group) for group in params["groups"]]  # type: ignore[arg-type,union-attr]
        own = next(group for group in groups if communicator.rank in group)
        self._has_equal_groups = len({len(group) for group in groups}) == 1
        inside = communicator.subgroup(own, "inside")
        assert inside is not None
        self._inside = inside
        place = own.index(communicator.rank) if self._has_equal_groups else 0
        counterparts = [group[place] for group in groups]
        self._across = communicator.subgroup(counterparts, "across")

    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        if self._has_equal_groups:
            self._scattered(
                flat, op, self._inside, "inside the group", lambda shard: self._allreduce_across(shard, op)
            )
            return
        self._reduce(flat, op, self._inside, "inside the group")
        self._allreduce_across(flat, op)
        self._broadcast(flat, self._inside, "inside the group")

    def _allreduce_across(self, tensor: torch.Tensor, op: ReduceOpType) -> None:
        if self._across is not None:
            self._allreduce(tensor, op, self._across, "across the groups")


COMPOSITIONS: Final[Mapping[str, Callable[[Params, Communicator], Executable]]] = {
    "native_allreduce": Allreduce,
    "native_reduce_broadcast": ReduceBroadcast,
    "native_reduce_scatter_allgather": ReduceScatterAllgather,
    "native_allgather_reduce": AllgatherReduce,
    "native_hierarchical": Hierarchical,
}

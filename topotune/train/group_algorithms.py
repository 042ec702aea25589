"""All algorithms of one group that are not the wrapped backend's, and what they are told together.

There are those for allreduces on CPUs; those for allreduces on GPUs, on NCCL and connections of their own;
and those for reduce-scatters and all-gathers on CPUs, on the connections of the first.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args

from torch._C._distributed_c10d import PrefixStore, Store

from topotune.execute.nccl_communicator import NcclCommunicator
from topotune.plan import Row
from topotune.plan.model import Collective
from topotune.schedule.model import PartCollective
from topotune.train.allreduce import PlannedAllreduce
from topotune.train.parts import PlannedParts
from topotune.train.planned import Override, PlannedCollective


class GroupAlgorithms:
    """The algorithms of one group, on private connections that are used until something fails.

    Args:
        store: where the members meet, of this very group.
        rank: own rank in the group.
        size: of the group.
        timeout: asks for the group's timeout as it is now.
        has_nccl: whether NCCL is wrapped.
        number: how often they were renewed; the same on all ranks.

    Attributes:
        allreduce: for messages on CPUs.
        on_cuda: allreduces of messages on GPUs; None where no NCCL is wrapped.
        parts: by collective, on CPUs.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        timeout: Callable[[], timedelta],
        has_nccl: bool,
        number: int = 0,
    ) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self.number = number
        self.allreduce = PlannedAllreduce(
            PrefixStore(f"planned {number}", store), rank, size, timeout=timeout
        )
        self.on_cuda: PlannedAllreduce | None = None
        if has_nccl:
            self.on_cuda = PlannedAllreduce(
                PrefixStore(f"planned on CUDA {number}", store),
                rank,
                size,
                timeout=timeout,
                connect=NcclCommunicator,
            )
        self.parts: Mapping[PartCollective, PlannedParts] = {
            name: PlannedParts(name, self.allreduce, size) for name in get_args(PartCollective)
        }

    @property
    def allreduces(self) -> tuple[PlannedAllreduce, ...]:
        """Those for messages on CPUs and, where NCCL is wrapped, those for messages on GPUs."""
        return (self.allreduce,) if self.on_cuda is None else (self.allreduce, self.on_cuda)

    @property
    def active_on_cpu(self) -> bool:
        """Whether any call on CPUs may be by one of them, which must then wait for what is in flight."""
        return self.allreduce.active or any(parts.active for parts in self.parts.values())

    def of(self, collective: Collective) -> PlannedCollective[Any]:
        """Those of one collective, for messages on CPUs."""
        return self.allreduce if collective == "allreduce" else self.parts[collective]

    def set_tables(
        self, tables: Mapping[Collective, Sequence[Row]], rank_order: tuple[int, ...] | None
    ) -> None:
        """Take the plan's tables for messages on CPUs, before the first call.

        Args:
            tables: collective → rows from 0 to unbounded.
            rank_order: the rank that stands at each position; None for as numbered.
        """
        self.allreduce.rank_order = rank_order
        for collective, rows in tables.items():
            self.of(collective).set_table(rows)

    def set_override(self, collective: Collective, override: Override | None) -> None:
        """An algorithm and its parameters for all calls of a collective; None for the plan's.

        Raises:
            UsageError: an algorithm or parameters that do not exist.
        """
        if collective != "allreduce":
            self.parts[collective].override = override
            return
        for part in self.allreduces:
            part.override = override

    def abort(self) -> None:
        """End what runs, in whichever thread; nothing can be run afterwards."""
        for part in self.allreduces:
            part.abort()

    def close(self) -> None:
        """Drop the connections; nothing may be running."""
        for part in self.allreduces:
            part.close()
        for parts in self.parts.values():
            parts.close()

    def renewed(self) -> "GroupAlgorithms":
        """The same on new connections, without tables and settings; all ranks do it."""
        return GroupAlgorithms(
            self._store,
            self._rank,
            self._size,
            timeout=self._timeout,
            has_nccl=self.on_cuda is not None,
            number=self.number + 1,
        )

    def take_settings(self, before: "GroupAlgorithms") -> None:
        """Be told what others were told: overrides, limits and the order of ranks."""
        for part, old in zip(self.allreduces, before.allreduces, strict=True):
            part.override, part.rank_order = old.override, old.rank_order
            part.call_limit, part.wait_limit = old.call_limit, old.wait_limit
        for collective, parts in self.parts.items():
            parts.override = before.parts[collective].override

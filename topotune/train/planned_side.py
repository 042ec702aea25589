"""What a group runs by itself beside the wrapped backend: algorithms, the calls that they serve, the watch.

All of it is made anew together (`PlannedSide.renew`) once a call of an algorithm has failed: such a call
leaves messages behind that no later one expects.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from topotune.plan import Row, find_group
from topotune.plan.model import COLLECTIVES, Collective
from topotune.train.agreement import Agreement
from topotune.train.drift_record import watching
from topotune.train.exchanges import Exchanges
from topotune.train.group_algorithms import GroupAlgorithms
from topotune.train.on_cpu import OnCpu
from topotune.train.on_stream import OnStream
from topotune.train.planned import PlannedCollective
from topotune.train.planned_calls import PlannedCalls
from topotune.train.turns import Turns
from topotune.train.usage import GroupUsage

JOIN_TIMEOUT_S: Final = 10.0
"""For the queue's thread to end, where a call of the wrapped backend may hold it."""


class PlannedSide:
    """The planned side of one group.

    Args:
        store: where the members meet, of this very group.
        wrapped: the wrapped backends, as a process group.
        forwards: method → the wrapped backend's.
        names: device type → name of the wrapped backend.
        turns: of the group.
        usage: where calls are counted.
        is_world: whether this is the default group.
        timeout: asks for the group's timeout as it is now.

    Attributes:
        algorithms: all of them.
        calls: of the algorithms on CPUs.
        allreduces: those on CPUs.
        exchanges: reduce-scatters and all-gathers on CPUs.
        on_cuda: allreduces on GPUs; None where no NCCL is wrapped.
        agreement: what the ranks have agreed on; None before.
    """

    def __init__(
        self,
        store: Store,
        wrapped: dist.ProcessGroup,
        *,
        forwards: Mapping[str, Callable[..., Any]],
        names: Mapping[str, str],
        turns: Turns,
        usage: GroupUsage,
        is_world: bool,
        timeout: Callable[[], timedelta],
    ) -> None:
        self._store = store
        self._wrapped = wrapped
        self._forwards = forwards
        self._names = names
        self._turns = turns
        self._usage = usage
        self._is_world = is_world
        self.agreement: Agreement | None = None
        self._serve_by(
            GroupAlgorithms(
                store,
                wrapped.rank(),
                wrapped.size(),
                timeout=timeout,
                has_nccl=names.get("cuda") == "nccl",
            )
        )

    def _serve_by(self, algorithms: GroupAlgorithms) -> None:
        self.algorithms = algorithms
        self.calls = PlannedCalls(self._turns, self._usage, algorithms.abort, self._wrapped)
        self.allreduces = OnCpu(algorithms.allreduce, self.calls, self._wrapped)
        self.exchanges = Exchanges(algorithms.parts, self.calls, self._forwards, self._wrapped.size())
        self.on_cuda = None if algorithms.on_cuda is None else OnStream(algorithms.on_cuda)

    def take(self, agreement: Agreement) -> None:
        """Take the tables that the agreed plan has for this group, if any, and watch their calls on CPUs."""
        self.agreement = agreement
        if agreement.plan is None:
            return
        algorithms, backend = self.algorithms, agreement.plan.fingerprint.hard.backend
        group = find_group(agreement.plan, agreement.shape())
        if group is None:
            return
        order = agreement.plan.rank_order
        tables: dict[Collective, Sequence[Row]] = {
            name: rows for name in COLLECTIVES if (rows := getattr(group, name)) is not None
        }
        if backend == self._names["cpu"]:
            algorithms.set_tables(tables, order)
            self._usage.planned = bool(tables)
            if self._wrapped.size() > 1 and algorithms.active_on_cpu and watching():
                store = PrefixStore(f"drift {algorithms.number}", self._store)
                where = self._usage.kind if self._is_world else _named(agreement.global_ranks)
                self.calls.watch(
                    store, self._wrapped.rank(), self._wrapped.size(), where=where, tables=tables
                )
        elif algorithms.on_cuda is not None and backend == self._names["cuda"]:
            algorithms.on_cuda.rank_order = order
            if group.allreduce is not None:
                self._usage.planned = True
                algorithms.on_cuda.set_table(group.allreduce)

    def build_override(self, collective: Collective, *, on_cuda: bool) -> None:
        """Make an override ready; see `ProcessGroupTopotune.build_override`.

        Raises:
            RunError: a rank did not come within the group's timeout, or was lost.
        """
        planned: PlannedCollective[Any] = self.algorithms.of(collective)
        if on_cuda:
            assert self.algorithms.on_cuda is not None, "there is no NCCL here"
            planned = self.algorithms.on_cuda
        algorithm = planned.choose(0)
        if algorithm is None:
            return
        build = partial(planned.build, algorithm)
        if on_cuda:
            build()
        else:
            self._turns.alone(build)

    def abort(self) -> None:
        """End what runs, in whichever thread; nothing more can be run until `renew`."""
        self.algorithms.abort()

    def renew(self) -> None:
        """New connections, a new queue; all ranks do it. What the wrapped backend has in flight goes on."""
        self._turns.close("was renewed")
        before = self.algorithms
        before.abort()
        self.end()
        self._turns.renew()
        self._serve_by(before.renewed())
        if self.agreement is not None:
            self.take(self.agreement)
        self.algorithms.take_settings(before)

    def adopt(self, agreement: Agreement) -> None:
        """Go over to another plan, on new connections; all ranks do it."""
        self.agreement = agreement
        self.renew()

    def end(self) -> None:
        """Drop the connections of a queue that was closed, and what the watch has up to here."""
        # A collective of the wrapped backend cannot be interrupted: its own timeout ends it, and then the
        # thread.
        if self._turns.queue.join(JOIN_TIMEOUT_S):
            self.algorithms.close()
        self.calls.stop_watching()


def _named(global_ranks: Sequence[int]) -> str:
    """What a warning calls a group inside the world, of which there may be many of one size."""
    shown = ", ".join(map(str, global_ranks[:8]))
    return f"group of ranks {shown}" + (f", … ({len(global_ranks)})" if len(global_ranks) > 8 else "")

"""The algorithms that a plan names for one group's allreduces, ready to run on private connections.

The connections are made by the first call that needs them, in its turn in the group's queue. Which call that
is depends on nothing but the calls and the plan, so it is the same one on all ranks. They meet in a clone of
the group's store: a store connection serves one waiting caller at a time, and the training script may need
its own.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from topotune.errors import RunError
from topotune.execute.build import build_executable
from topotune.execute.communicator import Communicator
from topotune.execute.executable import Executable
from topotune.train.deadline import DEADLINES
from topotune.train.planned import Algorithm, PlannedCollective

T = TypeVar("T")

CONNECTION_TIMEOUT: Final = timedelta(hours=1)
"""What waits on connections take at most at least; the group's own timeout is kept by a deadline.

A deadline closes the connections, which ends all waits but one: gloo (torch 2.13) forgets a send whose
receiver closes the connection just as it is written, and only its own timeout ends that wait.
"""


class PlannedAllreduce(PlannedCollective[Executable]):
    """Chooses the algorithm of each allreduce of one group, and runs it.

    Choosing may happen in any thread; running happens in the group's queue, one call at a time.

    Args:
        store: where the members meet; nobody else uses the prefix.
        rank: own rank in the group.
        size: of the group.
        timeout: asks for the group's timeout as it is now.
        connect: makes the private connections: by gloo, or by NCCL for messages on GPUs.

    Attributes:
        call_limit: what one call may take, once its algorithm was built, where that is less than the group's
            timeout; the same on all ranks.
        wait_limit: what one wait on the private connections may take; None for an hour, or the group's
            timeout where that is more. To be set before the first call.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        timeout: Callable[[], timedelta],
        connect: Callable[..., Communicator] = Communicator,
    ) -> None:
        super().__init__("allreduce", size)
        self._store = store
        self._connect = connect
        self._rank = rank
        self._rank_order: tuple[int, ...] | None = None
        self._timeout = timeout
        self._communicator: Communicator | None = None
        self._cloned_store: Store | None = None
        self._num_met = 0
        self.call_limit: timedelta | None = None
        self.wait_limit: timedelta | None = None

    @property
    def rank_order(self) -> tuple[int, ...] | None:
        """The rank that stands at each position of every algorithm; None where ranks stand as numbered.

        To be set before the first call.
        """
        return self._rank_order

    @rank_order.setter
    def rank_order(self, order: tuple[int, ...] | None) -> None:
        assert self._communicator is None, "connections are made in one order"
        assert order is None or sorted(order) == list(range(self._size)), f"{order} of {self._size} ranks"
        self._rank_order = order

    def run(self, algorithm: Algorithm[Executable], flat: torch.Tensor, op: Any) -> None:
        """Reduce a tensor in place. Blocks without the interpreter lock; on GPUs the current stream does.

        Args:
            algorithm: from `choose`, that was built and takes these (`serves`).
            flat: shape (num_elements,), contiguous, the same length and dtype on all ranks.
            op: a ``dist.ReduceOp.RedOpType``.

        Raises:
            RunError: a rank did not take part within the group's timeout, or was lost.
        """
        executable = self.build(algorithm)
        self.within_limit(executable.communicator, lambda: executable.allreduce_(flat, op))

    def within_limit(self, communicator: Communicator, call: Callable[[], None]) -> None:
        """Make a call on the private connections, and end it when its time is over.

        Raises:
            RunError: a rank did not take part within the group's timeout, or was lost.
        """
        timeout_s, whose = self._timeout().total_seconds(), "the group's timeout"
        if self.call_limit is not None and self.call_limit.total_seconds() < timeout_s:
            timeout_s, whose = self.call_limit.total_seconds(), "its limit"
        with DEADLINES.within(timeout_s, communicator.abort) as expiry:
            try:
                call()
            except RunError as error:
                if not expiry.passed:
                    raise
                raise RunError(
                    f"{error.message} (it had not ended after {whose} of {timeout_s:g} s)"
                ) from error

    def serves(self, algorithm: Algorithm[Executable], message: torch.Tensor, op: Any) -> bool:
        """Whether an algorithm that was built takes this dtype, op and size; the same on all ranks."""
        executable = algorithm.executable
        assert executable is not None, f"{algorithm.name} was not built"
        most = executable.max_message_bytes
        return executable.supports(message.dtype, op) and (most is None or message.nbytes <= most)

    def abort(self) -> None:
        """End what runs, in whichever thread; nothing can be run afterwards."""
        if self._communicator is not None:
            self._communicator.abort()

    def close(self) -> None:
        """Drop the connections; nothing may be running."""
        if self._communicator is not None:
            self._communicator.close()
        super().close()

    def _build_anew(self, algorithm: Algorithm[Executable]) -> Executable:
        return self.build_on(
            f"allreduce by {algorithm.name}",
            lambda communicator: build_executable(algorithm.name, algorithm.params, communicator),
        )

    def build_on(self, what: str, make: Callable[[Communicator], T]) -> T:
        """Make something on the private connections, which are made first if they are not there.

        In the group's queue, and the same on all ranks.

        Args:
            what: in words, for errors.
            make: makes it, together with all other ranks.

        Raises:
            RunError: a rank did not come within the group's timeout, or was lost.
        """
        self._meet(what)
        timeout = self._timeout()
        if self._communicator is None:
            order = self._rank_order
            self._communicator = self._connect(
                self._meeting_store(),
                self._rank if order is None else order.index(self._rank),
                self._size,
                # Messages of the communicator count positions as ranks: its name says whose.
                name="planned" if order is None else "planned, ranks by position in the plan's rank_order",
                timeout=self.wait_limit or max(timeout, CONNECTION_TIMEOUT),
                connect_within=timeout,
            )
        with DEADLINES.within(timeout.total_seconds(), self._communicator.abort):
            return make(self._communicator)

    def _meet(self, what: str) -> None:
        """Return when all ranks are here: connections are made with a long timeout, so nobody may be late."""
        store, timeout, number = self._meeting_store(), self._timeout(), self._num_met
        self._num_met += 1
        store.set(f"here {number} {self._rank}", "")
        if store.add(f"here {number}", 1) == self._size:
            store.set(f"all here {number}", "")
        try:
            store.wait([f"all here {number}"], timeout)
        except dist.DistStoreError as error:
            missing = [rank for rank in range(self._size) if not store.check([f"here {number} {rank}"])]
            raise RunError(
                f"ranks {missing} of {self._size} did not come to their first {what} "
                f"within {timeout.total_seconds():g} s"
            ) from error

    def _meeting_store(self) -> Store:
        if self._cloned_store is None:
            self._cloned_store = self._store.clone()  # type: ignore[attr-defined]  # torch's stub forgot it
        return self._cloned_store

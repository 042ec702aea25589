"""The algorithms that a plan names for one group's reduce-scatters and all-gathers.

They run on the private connections that the group's allreduces have, in the same queue. The message that a
row is chosen by is all ranks' parts together.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

import torch

from topotune.errors import UsageError
from topotune.execute.parts import PartsExecutable, build_parts_executable
from topotune.plan import Row, check_params
from topotune.plan.algorithms import DEFAULT, OF_THE_BACKEND, PART_COLLECTIVES
from topotune.schedule.model import PartCollective
from topotune.train.allreduce import Override, Params, PlannedAllreduce


class PartsAlgorithm:
    """One algorithm with its parameters, and what runs it once it has been built."""

    def __init__(self, name: str, params: Params) -> None:
        self.name = name
        self.params = params
        self.executable: PartsExecutable | None = None


class PlannedParts:
    """Chooses the algorithm of each reduce-scatter, or each all-gather, of one group, and runs it.

    Choosing may happen in any thread; running happens in the group's queue, one call at a time.

    Args:
        collective: which of the two.
        connections: of the group; its rank order and its limits count here too.
        size: of the group.
    """

    def __init__(self, collective: PartCollective, connections: PlannedAllreduce, size: int) -> None:
        assert collective in PART_COLLECTIVES, collective
        self.collective: Final = collective
        self._connections = connections
        self._size = size
        self._min_bytes: list[int] = []
        self._algorithms: list[PartsAlgorithm | None] = []
        self._override: Override | None = None
        self._forced: PartsAlgorithm | None = None
        self._built: dict[tuple[str, str], PartsExecutable] = {}

    def set_table(self, rows: Sequence[Row]) -> None:
        """Take the plan's table, sorted, from 0 to unbounded; before the first call."""
        self._min_bytes = [row.min_bytes for row in rows]
        self._algorithms = [
            None if row.algorithm in OF_THE_BACKEND else PartsAlgorithm(row.algorithm, row.params)
            for row in rows
        ]

    @property
    def active(self) -> bool:
        """Whether any call may be by an algorithm of the plan or of an override."""
        return self._forced is not None or (self._override is None and any(self._algorithms))

    @property
    def override(self) -> Override | None:
        """An algorithm and its parameters for all calls, whatever the plan says; None for the plan's."""
        return self._override

    @override.setter
    def override(self, override: Override | None) -> None:
        if override is not None:
            problem = check_params(override[0], override[1], self._size, collective=self.collective)
            if problem:
                raise UsageError(f"override: {problem}")
            if override[0] in OF_THE_BACKEND and override[0] != DEFAULT:
                raise UsageError(f"override: {override[0]} is chosen by the backend itself, not call by call")
        self._override = override
        self._forced = None if override is None or override[0] == DEFAULT else PartsAlgorithm(*override)

    def choose(self, message_bytes: int) -> PartsAlgorithm | None:
        """The algorithm for a message of this size; None for the wrapped backend's own."""
        if self._override is not None:
            return self._forced
        if not self._min_bytes:
            return None
        return self._algorithms[bisect_right(self._min_bytes, message_bytes) - 1]

    def run(self, algorithm: PartsAlgorithm, whole: torch.Tensor, part: torch.Tensor, op: Any) -> bool:
        """Do the collective. Blocks without the interpreter lock.

        Args:
            algorithm: from `choose`.
            whole: all ranks' parts, contiguous, on the CPU, shape (n * m,).
            part: this rank's, shape (m,), of the same dtype.
            op: a ``dist.ReduceOp.RedOpType``; of no meaning to an all-gather.

        Returns:
            False, with nothing done, where the algorithm does not take this dtype or op.

        Raises:
            RunError: a rank did not take part within the group's timeout, or was lost.
        """
        executable = self.build(algorithm)
        if not executable.supports(whole.dtype, op):
            return False
        self._connections.within_limit(executable.communicator, lambda: executable.exchange(whole, part, op))
        return True

    def build(self, algorithm: PartsAlgorithm) -> PartsExecutable:
        """Make an algorithm ready, if it is not. In the group's queue, as `run`: it may connect.

        Raises:
            RunError: a rank did not come within the group's timeout, or was lost.
        """
        if algorithm.executable is None:
            key = (algorithm.name, repr(sorted(algorithm.params.items())))
            if key not in self._built:
                # A communicator numbers ranks by position: whose part is whose is then said by the order.
                order = self._connections.rank_order
                self._built[key] = self._connections.build_on(
                    f"{self.collective} by {algorithm.name}",
                    lambda communicator: build_parts_executable(
                        self.collective, algorithm.name, algorithm.params, communicator, order
                    ),
                )
            algorithm.executable = self._built[key]
        return algorithm.executable

    def close(self) -> None:
        """Forget what was built; nothing may be running."""
        self._built.clear()

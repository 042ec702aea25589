"""The algorithms that a plan names for one group's reduce-scatters and all-gathers.

They run on the private connections that the group's allreduces have, in the same queue. The message that a
row is chosen by is all ranks' parts together.
"""

from typing import Any

import torch

from topotune.execute.build import build_parts_executable
from topotune.execute.parts import PartsExecutable
from topotune.schedule.model import PartCollective
from topotune.train.allreduce import PlannedAllreduce
from topotune.train.planned import Algorithm, PlannedCollective


class PlannedParts(PlannedCollective[PartsExecutable]):
    """Chooses the algorithm of each reduce-scatter, or each all-gather, of one group, and runs it.

    Choosing may happen in any thread; running happens in the group's queue, one call at a time.

    Args:
        collective: which of the two.
        connections: of the group; its rank order and its limits count here too.
        size: of the group.
    """

    def __init__(self, collective: PartCollective, connections: PlannedAllreduce, size: int) -> None:
        super().__init__(collective, size)
        self._collective: PartCollective = collective
        self._connections = connections

    def run(
        self, algorithm: Algorithm[PartsExecutable], whole: torch.Tensor, part: torch.Tensor, op: Any
    ) -> None:
        """Do the collective. Blocks without the interpreter lock.

        Args:
            algorithm: from `choose`, that was built and takes these (`serves`).
            whole: all ranks' parts, contiguous, on the CPU, shape (n * m,).
            part: this rank's, shape (m,), of the same dtype.
            op: a ``dist.ReduceOp.RedOpType``; of no meaning to an all-gather.

        Raises:
            RunError: a rank did not take part within the group's timeout, or was lost.
        """
        executable = self.build(algorithm)
        self._connections.within_limit(executable.communicator, lambda: executable.exchange(whole, part, op))

    def serves(self, algorithm: Algorithm[PartsExecutable], message: torch.Tensor, op: Any) -> bool:
        """Whether an algorithm that was built takes this dtype and op; the same on all ranks."""
        executable = algorithm.executable
        assert executable is not None, f"{algorithm.name} was not built"
        return executable.supports(message.dtype, op)

    def _build_anew(self, algorithm: Algorithm[PartsExecutable]) -> PartsExecutable:
        # A communicator numbers ranks by position: whose part is whose is then said by the order.
        order = self._connections.rank_order
        return self._connections.build_on(
            f"{self.collective} by {algorithm.name}",
            lambda communicator: build_parts_executable(
                self._collective, algorithm.name, algorithm.params, communicator, order
            ),
        )

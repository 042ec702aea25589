"""Which algorithm runs each call of one collective of a group: what the plan's table says, or an override."""

import abc
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import torch

from topotune.errors import UsageError
from topotune.plan import Row, check_params
from topotune.plan.algorithms import DEFAULT, OF_THE_BACKEND
from topotune.plan.model import Collective

E = TypeVar("E")
"""What runs an algorithm: ``Executable``, ``PartsExecutable``."""

Params = Mapping[str, Any]
Override = tuple[str, Params]


class Algorithm(Generic[E]):
    """One algorithm with its parameters, and what runs it once it has been built.

    Attributes:
        of_plan: whether a row of the plan names it, not an override.
    """

    def __init__(self, name: str, params: Params, *, of_plan: bool = False) -> None:
        self.name = name
        self.params = params
        self.of_plan = of_plan
        self.executable: E | None = None


class PlannedCollective(abc.ABC, Generic[E]):
    """Chooses the algorithm of each call of a collective of one group.

    Choosing may happen in any thread; building happens in the group's queue, one at a time.

    Args:
        collective: as in plans: ``allreduce``, ``reduce_scatter``, ``allgather``.
        size: of the group.

    Attributes:
        active: whether any call may be by an algorithm of the plan or of an override, now or when the
            override is taken back.
    """

    def __init__(self, collective: Collective, size: int) -> None:
        self.collective: Final = collective
        self.active = False
        self._size = size
        self._min_bytes: list[int] = []
        self._algorithms: list[Algorithm[E] | None] = []
        self._override: Override | None = None
        self._forced: Algorithm[E] | None = None
        self._built: dict[tuple[str, str], E] = {}

    def set_table(self, rows: Sequence[Row]) -> None:
        """Take the plan's table, sorted, from 0 to unbounded; before the first call."""
        self._min_bytes = [row.min_bytes for row in rows]
        self._algorithms = [
            None if row.algorithm in OF_THE_BACKEND else Algorithm(row.algorithm, row.params, of_plan=True)
            for row in rows
        ]
        self._set_active()

    @property
    def override(self) -> Override | None:
        """An algorithm and its parameters for all calls, whatever the plan says; None for the plan's.

        Raises:
            UsageError: on setting an algorithm or parameters that do not exist, or one of NCCL's own.
        """
        return self._override

    @override.setter
    def override(self, override: Override | None) -> None:
        if override is not None:
            name, params = override
            problem = check_params(name, params, self._size, collective=self.collective)
            if problem:
                raise UsageError(f"override: {problem}")
            if name in OF_THE_BACKEND and name != DEFAULT:
                raise UsageError(
                    f"override: {name} is chosen by NCCL itself, not call by call",
                    hint="NCCL_ALGO and NCCL_PROTO, or NCCL_TUNER_PLUGIN, set before the job tell it how",
                )
        self._override = override
        self._forced = None if override is None or override[0] == DEFAULT else Algorithm(*override)
        self._set_active()

    def choose(self, message_bytes: int) -> Algorithm[E] | None:
        """The algorithm for a message of this size; None for the wrapped backend's own."""
        if self._override is not None:
            return self._forced
        if not self._min_bytes:
            return None
        return self._algorithms[bisect_right(self._min_bytes, message_bytes) - 1]

    def build(self, algorithm: Algorithm[E]) -> E:
        """Make an algorithm ready, if it is not. In the group's queue, as its calls: it may connect.

        Raises:
            RunError: a rank did not come within the group's timeout, or was lost.
        """
        if algorithm.executable is None:
            key = (algorithm.name, repr(sorted(algorithm.params.items())))
            if key not in self._built:
                self._built[key] = self._build_anew(algorithm)
            algorithm.executable = self._built[key]
        return algorithm.executable

    def close(self) -> None:
        """Forget what was built; nothing may be running."""
        self._built.clear()

    @abc.abstractmethod
    def serves(self, algorithm: Algorithm[E], message: torch.Tensor, op: Any) -> bool:
        """Whether an algorithm that was built takes such a message; the same on all ranks.

        Args:
            algorithm: from `choose`.
            message: by whose size it was chosen; its size and dtype count.
            op: a ``dist.ReduceOp.RedOpType``; of no meaning to an all-gather.
        """

    @abc.abstractmethod
    def _build_anew(self, algorithm: Algorithm[E]) -> E:
        """What runs the algorithm; made together with all other ranks."""

    def _set_active(self) -> None:
        self.active = self._forced is not None or any(self._algorithms)

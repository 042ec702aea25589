"""What the tuner sets on a group, and what it, the report and tests ask."""

from collections import Counter
from datetime import timedelta

from topotune.plan.model import Collective
from topotune.train.agreement import Agreement
from topotune.train.planned import Override
from topotune.train.planned_side import PlannedSide
from topotune.train.usage import GroupUsage


class Controls:
    """The part of a `ProcessGroupTopotune` that torch knows nothing of."""

    _planned: PlannedSide
    _usage: GroupUsage

    @property
    def override(self) -> Override | None:
        """(algorithm, params) for every allreduce of this group, on CPUs and GPUs; None: the plan's.

        Must be set to the same on all ranks, between the same calls.

        Raises:
            UsageError: on setting an algorithm or parameters that do not exist.
        """
        return self._planned.algorithms.allreduce.override

    @override.setter
    def override(self, override: Override | None) -> None:
        self._planned.algorithms.set_override("allreduce", override)

    def set_override(self, collective: Collective, override: Override | None) -> None:
        """`override`, for any collective that plans have tables for.

        Raises:
            UsageError: an algorithm or parameters that do not exist.
        """
        self._planned.algorithms.set_override(collective, override)

    @property
    def rank_order(self) -> tuple[int, ...] | None:
        """The rank that stands at each position of a plan's or override's algorithm; None for as numbered.

        Params that name ranks (``groups``) name positions. The wrapped backend keeps its own numbering. Must
        be set to the same on all ranks, before the first such call.
        """
        return self._planned.algorithms.allreduce.rank_order

    @rank_order.setter
    def rank_order(self, order: tuple[int, ...] | None) -> None:
        for part in self._planned.algorithms.allreduces:
            part.rank_order = order

    @property
    def call_limit(self) -> timedelta | None:
        """What one call by an override or a plan may take, where that is less than the group's timeout.

        Must be set to the same on all ranks, between the same calls.
        """
        return self._planned.algorithms.allreduce.call_limit

    @call_limit.setter
    def call_limit(self, limit: timedelta | None) -> None:
        for part in self._planned.algorithms.allreduces:
            part.call_limit = limit

    @property
    def wait_limit(self) -> timedelta | None:
        """What one wait of an override or a plan may take, whatever the group's timeout; None for an hour.

        Must be set before the first such call.
        """
        return self._planned.algorithms.allreduce.wait_limit

    @wait_limit.setter
    def wait_limit(self, limit: timedelta | None) -> None:
        for part in self._planned.algorithms.allreduces:
            part.wait_limit = limit

    def build_override(self, collective: Collective = "allreduce", *, on_cuda: bool = False) -> None:
        """Make the override ready, so that its first call is like any other. Collective over the group.

        Args:
            collective: whose override.
            on_cuda: for messages on GPUs; of allreduce alone.

        Raises:
            RunError: a rank did not come within the group's timeout, or was lost. Then only `renew` helps.
        """
        self._planned.build_override(collective, on_cuda=on_cuda)

    def stop_planned(self) -> None:
        """End calls by an override or a plan, on this rank and those that wait for it; from any thread.

        The wrapped backend is left alone. The group runs nothing more until `renew`.
        """
        self._planned.abort()

    def renew(self) -> None:
        """New private connections and a new queue, after a call by an override failed; none may be running.

        All ranks do it, between the same calls. What the wrapped backend has in flight goes on.
        """
        self._planned.renew()

    @property
    def agreement(self) -> Agreement | None:
        """What the ranks have agreed on; None before."""
        return self._planned.agreement

    def adopt(self, agreement: Agreement) -> None:
        """Go over to another plan, as `renew` does to new connections and a new queue.

        All ranks do it, between the same calls, with the same agreement.
        """
        self._planned.adopt(agreement)

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """Number of calls so far by (collective, algorithm); ``default`` is the wrapped backend's own."""
        return self._usage.total()

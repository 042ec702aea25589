"""One clock for all ranks, good to a known error.

Theory of operation. A rank sends a ping to rank 0, which answers with what its clock shows. If the answer T
arrives between the local times t1 (sent) and t2 (received), rank 0's clock ran T - t somewhere in [T - t2,
T - t1]: the offset is known to half the round trip, whatever the path and however unequal its two
directions. Of k pings the one with the least round trip bounds the offset best. Between synchronisations a
clock drifts; once several synchronisations lie far enough apart, the drift is fitted to them, and until
then its worst plausible value counts in the error.

Ranks of one node read one kernel clock (CLOCK_MONOTONIC) unless they live in different time namespaces:
they need no pings among themselves, so only one rank of each node (and time namespace) talks to rank 0.

Source: ReproMPI's round-time scheme; reference: Hunold and Carpen-Amarie, "Hierarchical clock
    synchronization in
MPI", CLUSTER 2018.
"""

import os
import time
from collections import deque
from collections.abc import Sequence

import numpy as np
import torch

from topotune.links.messages import GroupLike, Messages

_NUM_PINGS = 30
_MAX_DRIFT = 5e-5  # quartz clocks, and the kernel's slewing of them under NTP, stay below 50 ppm
_KERNEL_CLOCK_ERROR_S = 1e-6  # reading one kernel clock on two cores
_FIT_SPAN_S = 1.0  # below it the drift is lost in the pings' error
_SPIN_S = 150e-6  # time.sleep wakes some 50-100 µs late (timer slack; seen on 2 shared cores, Linux 6, 2026)


class SynchronizedClock:
    """Seconds on rank 0's monotonic clock, on every rank.

    Args:
        group: a private process group; ``sync`` is collective over it.
        node_of_rank: verified node numbers (``same_node``); None treats each rank as a node of its own.
        num_pings: per node and synchronisation.
    """

    def __init__(
        self, group: GroupLike, *, node_of_rank: Sequence[int] | None = None, num_pings: int = _NUM_PINGS
    ) -> None:
        self._messages = Messages(group)
        self._nodes = list(node_of_rank) if node_of_rank is not None else list(range(self._messages.size))
        self._num_pings = num_pings
        self._leaders: list[int] | None = None
        self._history: deque[tuple[float, float, float]] = deque(maxlen=8)  # local time, offset, error
        self._synced_at_s = 0.0
        self._offset_s = 0.0
        self._drift = 0.0
        self._drift_error = _MAX_DRIFT
        self._error_s = float("inf")

    def sync(self) -> None:
        """Measure this rank's offset to rank 0 anew. Collective; repeat every few seconds.

        Raises:
            RunError: a rank did not answer.
        """
        messages = self._messages
        if self._leaders is None:
            self._leaders = self._find_leaders()
        offset_s, error_s = 0.0, 0.0
        for leader in sorted(set(self._leaders) - {0}):
            if messages.rank == 0:
                self._answer(leader)
            elif messages.rank == leader:
                offset_s, error_s = self._ask()
        results = messages.gather_numbers(offset_s, error_s)
        leader = self._leaders[messages.rank]
        self._synced_at_s = time.perf_counter()
        self._offset_s, self._error_s = results[leader]
        if leader != messages.rank:
            self._error_s += _KERNEL_CLOCK_ERROR_S
        self._history.append((self._synced_at_s, self._offset_s, self._error_s))
        self._drift, self._drift_error = fit_drift(list(self._history)) if leader != 0 else (0.0, 0.0)

    @property
    def offset_s(self) -> float:
        """What must be added to this rank's ``time.perf_counter()`` (at the last ``sync``)."""
        return self._offset_s

    @property
    def max_error_s(self) -> float:
        """Bound on the error of ``now_s`` on this rank, now; infinite before the first ``sync``."""
        return self._error_s + self._drift_error * (time.perf_counter() - self._synced_at_s)

    def now_s(self) -> float:
        """Seconds on rank 0's clock."""
        return self.global_s(time.perf_counter())

    def global_s(self, local_s: float) -> float:
        """This rank's ``time.perf_counter()`` reading on rank 0's clock."""
        return local_s + self._offset_s + self._drift * (local_s - self._synced_at_s)

    def wait_until(self, global_s: float) -> float:
        """Return at ``global_s`` on the common clock; sleeps, and spins only the last moment.

        The spin gives way at each turn, since ranks may outnumber cores.

        Returns:
            how many seconds too late this returns: microseconds where all went well. A rank that came late
            or was not given a core returns more; the caller decides what counts as a missed start.
        """
        remaining_s = global_s - self.now_s()
        if remaining_s > _SPIN_S:
            time.sleep(remaining_s - _SPIN_S)
        while (late_s := self.now_s() - global_s) < 0:
            os.sched_yield()
        return late_s

    def _find_leaders(self) -> list[int]:
        """Lowest rank that reads the same kernel clock, for each rank."""
        try:
            time_namespace = os.readlink("/proc/self/ns/time")
        except OSError:  # a kernel before 5.6, or no /proc: no time namespaces to tell apart
            time_namespace = ""
        clocks = list(zip(self._nodes, self._messages.gather(time_namespace), strict=True))
        return [clocks.index(clock) for clock in clocks]

    def _ask(self) -> tuple[float, float]:
        ping, answer = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        pings: list[tuple[float, float, float]] = []
        with self._messages.talking_to(0, "synchronising clocks"):
            for _ in range(self._num_pings):
                receiving = self._messages.start_recv(answer, 0)
                sent_s = time.perf_counter()
                self._messages.start_send(ping, 0).wait()
                receiving.wait()
                pings.append((sent_s, float(answer), time.perf_counter()))
        return offset_from_pings(pings)

    def _answer(self, leader: int) -> None:
        ping, answer = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        with self._messages.talking_to(leader, "synchronising clocks"):
            for _ in range(self._num_pings):
                self._messages.start_recv(ping, leader).wait()
                answer[0] = time.perf_counter()
                self._messages.start_send(answer, leader).wait()


def offset_from_pings(pings: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Offset of the other clock and the bound on its error, both from the fastest ping; seconds.

    Args:
        pings: (sent, what the other clock showed, received) of each, the outer two on the own clock.
    """
    sent_s, answer_s, received_s = min(pings, key=lambda ping: ping[2] - ping[0])
    return answer_s - (sent_s + received_s) / 2, (received_s - sent_s) / 2


def fit_drift(history: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Drift of a clock against rank 0's, and the error of that figure, both in s per s.

    Args:
        history: (local time, offset, error of the offset) of each synchronisation, in order, in seconds.

    Returns:
        the slope of the offsets where they pin it down better than the physics of quartz clocks does, else
        0 with that physical limit.
    """
    local_s, offsets_s, errors_s = (np.array(column) for column in zip(*history, strict=True))
    span_s = local_s[-1] - local_s[0]
    if span_s < _FIT_SPAN_S:
        return 0.0, _MAX_DRIFT
    weights = 1.0 / np.maximum(errors_s, _KERNEL_CLOCK_ERROR_S)
    slope = float(np.polyfit(local_s - local_s[-1], offsets_s, 1, w=weights)[0])
    slope_error = float((errors_s[0] + errors_s[-1]) / span_s)
    if slope_error >= _MAX_DRIFT or abs(slope) > _MAX_DRIFT + slope_error:
        return 0.0, _MAX_DRIFT
    return slope, slope_error

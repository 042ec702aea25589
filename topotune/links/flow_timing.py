"""Bulk flows in one direction that run at the same time: what each of them gets while all of them run.

Theory of operation. A sender keeps a few messages under way until the common clock says that the time is up;
the first byte of a message says whether the one so many places behind it follows. gloo lets a message go only
where a receive waits for it, so the few that are posted bound what is in flight: once the time is up a flow
is over within them, however deep the queues of the network are.

All flows of a test start at one moment of the common clock and stop at another. The receivers stamp each
message, and between two stamps the bytes are taken to have come evenly, so that each flow is counted over the
same span: from when the bursts that idle links let through are over, and connections have found their rate,
to the last moment at which all still send. A start that some rank was late for is not counted but made again.

What one rank knows is gathered after each run, and all ranks act on the same numbers, so that none can come
to another decision than its peers. Seen on emulated clusters of 4 and 8 nodes on 2 cores, links of 50 to 200
Mbit/s, messages of 64 KiB, spans of 0.2 s after 0.06 s: rates 1 to 5 % below the configured ones, sums of
flows through one link likewise, while the shares of such flows scatter by a factor of two (2026).
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from topotune.links.clock import SynchronizedClock
from topotune.links.flow_plan import FlowPlan, FlowSpan
from topotune.links.flows import FlowTest
from topotune.links.messages import Messages, Work

_UNDER_WAY = 4  # messages: while one is stamped, the others keep the link busy
_MAX_STARTS = 3  # of one run, where ranks are late
_LEAD_S = 3e-3  # from when all ranks know of a start to the start, beyond what telling them takes

Progress = Callable[[float], None]


class FlowRunner:
    """Runs flows among the ranks of a group. Its methods are collective.

    Args:
        messages: of a private group; its timeout bounds every wait.
        clock: of the same group.
        span: sizes and times, equal on all ranks.
    """

    def __init__(self, messages: Messages, clock: SynchronizedClock, span: FlowSpan) -> None:
        self._messages = messages
        self._clock = clock
        self._span = span
        self._out = [torch.zeros(span.message_bytes, dtype=torch.uint8) for _ in range(_UNDER_WAY)]
        self._into = [torch.zeros_like(tensor) for tensor in self._out]
        self._gather_s = 0.0  # what telling all ranks took last time
        self._now_s = 0.0  # the moment that all ranks know of, on the common clock
        self._lead_s = 0.0

    def run(
        self,
        plans: Sequence[FlowPlan],
        *,
        num_sweeps: int,
        first_number: int,
        time_s: float,
        progress: Progress = lambda _: None,
    ) -> list[FlowTest]:
        """Run each plan once a sweep, every second sweep backwards, so that no disturbance meets one alone.

        Args:
            plans: what runs together; equal on all ranks.
            num_sweeps: at most so many samples of each flow.
            first_number: number of the first plan's test.
            time_s: no sweep is begun that would end later than this, going by the one before it; the first is
                cut off here, after one plan at least.
            progress: called on this rank with the share that is done, 0 to 1.

        Returns:
            on all ranks the same tests, in the order of the plans, without those that did not come to run.

        Raises:
            RunError: a rank did not answer.
        """
        if not plans:
            return []
        samples: list[list[tuple[float, ...]]] = [[] for _ in plans]
        self._clock.sync()
        self._agree(0.0, 0.0)
        self._agree(0.0, 0.0)  # by now it is known how long that takes
        start_s, sweep_s = self._now_s, 0.0
        with ThreadPoolExecutor(1, thread_name_prefix="topotune-flow") as sender:
            for sweep in range(num_sweeps):
                began_s = self._now_s
                if began_s - start_s + sweep_s > time_s:
                    break
                order = list(range(len(plans)))[:: 1 if sweep % 2 == 0 else -1]
                for done, index in enumerate(order):
                    if sweep == 0 and done > 0 and self._now_s - start_s > time_s:
                        break
                    samples[index].append(self._run_once(plans[index].flows, sender))
                    progress((sweep + (done + 1) / len(plans)) / num_sweeps)
                sweep_s = self._now_s - began_s
        return [
            FlowTest(
                purpose=plan.purpose,
                flows=plan.flows,
                message_bytes=self._span.message_bytes,
                rates_bytes_per_s=tuple(zip(*of_plan, strict=True)),
                number=first_number + index,
            )
            for index, (plan, of_plan) in enumerate(zip(plans, samples, strict=True))
            if of_plan
        ]

    def _run_once(self, flows: Sequence[tuple[int, int]], sender: ThreadPoolExecutor) -> tuple[float, ...]:
        """One sample of each flow, bytes/s; a start that some rank was late for is made again, and again."""
        rank = self._messages.rank
        to = [dst for src, dst in flows if src == rank]
        source = [src for src, dst in flows if dst == rank]
        for _ in range(_MAX_STARTS):
            start_s = self._now_s + self._lead_s
            from_s = start_s + self._span.settle_s
            end_s = from_s + self._span.measured_s
            late_s, rate = 0.0, 0.0
            if to or source:
                late_s = self._clock.wait_until(start_s)
                sending = [sender.submit(self._send, peer, end_s) for peer in to]
                for peer in source:
                    stamps_s = self._receive(peer)
                    rate = rate_between(start_s, stamps_s, self._span.message_bytes, from_s, end_s)
                for future in sending:
                    future.result()
            rates, latest_s = self._agree(rate, late_s)
            if latest_s <= self._span.settle_s / 2:
                break
        return tuple(rates[dst] for _, dst in flows)

    def _agree(self, rate_bytes_per_s: float, late_s: float) -> tuple[list[float], float]:
        """Every rank's rate, and how late the latest was; sets the moment from which all ranks reckon."""
        rows = self._messages.gather_numbers(rate_bytes_per_s, late_s, self._clock.now_s(), self._gather_s)
        self._now_s = max(now_s for _, _, now_s, _ in rows)
        self._gather_s = max(0.0, self._clock.now_s() - self._now_s)
        self._lead_s = _LEAD_S + 2 * max(gather_s for _, _, _, gather_s in rows)
        return [rate for rate, _, _, _ in rows], max(late for _, late, _, _ in rows)

    def _send(self, peer: int, end_s: float) -> None:
        """Send to ``peer`` without a pause until ``end_s``, and the few messages that are promised then."""
        works: deque[Work] = deque()
        num_left = _UNDER_WAY
        position = 0
        with self._messages.talking_to(peer, "sending a flow"):
            while num_left:
                if len(works) == _UNDER_WAY:
                    works.popleft().wait()
                more = num_left == _UNDER_WAY and self._clock.now_s() < end_s
                out = self._out[position % _UNDER_WAY]
                out[0] = more
                works.append(self._messages.start_send(out, peer))
                position += 1
                num_left -= not more
            for work in works:
                work.wait()

    def _receive(self, peer: int) -> list[float]:
        """When each message of a flow from ``peer`` had come, on the common clock."""
        stamps_s = []
        with self._messages.talking_to(peer, "receiving a flow"):
            posted = deque((into, self._messages.start_recv(into, peer)) for into in self._into)
            while posted:
                into, work = posted.popleft()
                work.wait()
                stamps_s.append(self._clock.now_s())
                if into[0]:
                    posted.append((into, self._messages.start_recv(into, peer)))
        return stamps_s


def rate_between(
    start_s: float, stamps_s: Sequence[float], message_bytes: int, from_s: float, to_s: float
) -> float:
    """Bytes/s of a flow between two moments; between two stamps its bytes came evenly.

    Args:
        start_s: when the flow began.
        stamps_s: when each of its messages had come whole; one or more, ascending.
        message_bytes: of each.
        from_s: where the span begins.
        to_s: where it ends; not counted is what lies behind the last stamp. A flow of which nothing is left
            within the span is counted from its start to its last stamp.
    """
    to_s = min(to_s, stamps_s[-1])
    if to_s <= from_s:
        from_s, to_s = start_s, stamps_s[-1]
    bytes_by_then = np.arange(len(stamps_s) + 1) * float(message_bytes)
    come = np.interp([from_s, to_s], [start_s, *stamps_s], bytes_by_then)
    return float((come[1] - come[0]) / (to_s - from_s))

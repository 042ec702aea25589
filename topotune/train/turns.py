"""The order of one group's collectives on the CPU: the calls of the plan's algorithms, and gloo's.

Theory of operation. While the queue is idle, a call of the wrapped backend goes straight to it in the
caller's thread, exactly as without topotune, and what it still has in flight is remembered here: an algorithm
of the plan starts when that has ended, where gloo says when (see `Turns.remember`). While the queue is busy,
calls of either kind queue up behind.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from topotune.plan.algorithms import DEFAULT
from topotune.train.fifo import FirstInFirstOut
from topotune.train.usage import GroupUsage
from topotune.train.work import QueuedWork, done


class Turns:
    """The turns of one group's calls.

    Args:
        usage: where calls are counted; its kind names the group.

    Attributes:
        queue: of the calls that cannot go straight to the wrapped backend.
    """

    def __init__(self, usage: GroupUsage) -> None:
        self._usage = usage
        self.queue = FirstInFirstOut(usage.kind)
        self._in_flight: deque[Any] = deque()

    def planned(self, call: Callable[[], None], outputs: list[torch.Tensor], *, is_async: bool) -> QueuedWork:
        """A call by an algorithm of ours, behind all that came before.

        Args:
            call: does it, from start to end, in whichever thread.
            outputs: the tensors that hold its result.
            is_async: the caller does not wait for it here.

        Raises:
            Exception: what the call raised, where it is not ``is_async``.
        """
        before = tuple(self._in_flight)
        self._in_flight.clear()

        def in_turn() -> None:
            for work in before:
                # What it failed with reaches whoever holds it; here only its end counts.
                with suppress(RuntimeError):
                    work.wait()
            call()

        if not is_async:
            self.queue.run(in_turn)
            return done(outputs)
        work = QueuedWork()
        self.queue.submit(in_turn, work.fail, lambda _: work.finish(outputs))
        return work

    def default(self, collective: str, forward: Callable[[], Any], *, is_async: bool) -> Any:
        """A call of the wrapped backend behind what is in the queue.

        Args:
            collective: under what it is counted.
            forward: makes it; returns its work, or None where it blocks.
            is_async: the caller does not wait for it here.
        """

        def in_turn() -> Any:
            self._usage.count(collective, DEFAULT)
            inner = forward()
            if inner is not None:
                inner.wait()
            return inner

        if not is_async:
            return self.queue.run(in_turn)
        work = QueuedWork()
        self.queue.submit(lambda: _outputs(in_turn()), work.fail, work.finish)
        return work

    def alone(self, build: Callable[[], Any]) -> None:
        """Run what all ranks must end together, such as making an algorithm ready; else the queue closes."""

        def in_turn() -> None:
            with self.queue.closing_on_error():
                build()

        self.queue.run(in_turn)

    def remember(self, work: dist.Work) -> None:
        """The wrapped backend has begun this; an algorithm of the plan must wait for it.

        But not for a work that ends in its caller's wait alone, as gloo's reduce-scatter does (torch 2.13):
        every further wait would write its output anew, over what the caller has made of it since, and it
        never says that it has ended. What it exchanges goes on by itself, from a copy of its input, in gloo's
        own threads and connections, also where nobody waits for it or holds it.
        """
        if not _has_future(work):
            return
        while self._in_flight and self._in_flight[0].is_completed():
            self._in_flight.popleft()
        self._in_flight.append(work)

    def close(self, reason: str) -> None:
        """Run nothing more; what waits fails with the reason."""
        self.queue.fail(RuntimeError(f"the {self._usage.kind} {reason}"))

    def forget(self) -> None:
        """Let go of what the wrapped backend had in flight; nothing will wait for it."""
        self._in_flight.clear()

    def renew(self) -> None:
        """A new queue after `close`; what the wrapped backend has in flight still comes first."""
        self.queue = FirstInFirstOut(self._usage.kind)


def _has_future(work: dist.Work) -> bool:
    """Whether a work knows by itself when it has ended."""
    try:
        work.get_future()
    except RuntimeError:
        return False
    return True


def _outputs(work: dist.Work) -> Any:
    """The outputs of a work that has ended; none where torch keeps none (gloo's reduce-scatter)."""
    try:
        return work.get_future().value()
    except RuntimeError:
        return []

"""One first-in-first-out queue of collectives per process group.

Theory of operation. All ranks of a group call its collectives in the same order, so tasks that run in the
order of the calls run in the same order everywhere, whichever thread runs them. A task therefore runs in the
caller's own thread when the caller waits for it anyway and nothing is ahead of it, and in the queue's one
worker thread otherwise: the two never run at the same time. The worker is started by the first task that
needs it.

A task that raises fails alone, as a call of gloo does. What leaves the group in pieces (an algorithm that
stopped half way, an abort) closes the queue by `fail`: what waits in it and what comes later then fails at
once with the reason, instead of hanging until its own timeout.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

Task = Callable[[], None]
Failure = Callable[[BaseException], None]


class FirstInFirstOut:
    """The queue of one group. All methods may be called from any thread.

    Args:
        name: of the group; the worker thread carries it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.Condition()
        self._waiting: deque[tuple[Task, Failure]] = deque()
        self._running = False
        self._error: BaseException | None = None
        self._worker: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing runs, waits or has failed; read without the lock, on every call."""
        return not (self._running or self._waiting or self._error)

    def submit(self, task: Task, failed: Failure) -> None:
        """Queue a task for the worker; ``failed`` gets the error if it raises or cannot run."""
        with self._turn:
            error = self._error
            if error is None:
                self._waiting.append((task, failed))
                if self._worker is None:
                    self._worker = threading.Thread(
                        target=self._work, name=f"topotune {self._name}", daemon=True
                    )
                    self._worker.start()
                self._turn.notify_all()
        if error is not None:
            failed(_closed(error))

    def run(self, task: Callable[[], T]) -> T:
        """Run a task in its turn and wait for it; in this thread when nothing is ahead.

        Raises:
            Exception: what the task raised; RuntimeError where the queue is closed.
        """
        with self._turn:
            if self._error is not None:
                raise _closed(self._error)
            ours = not self._running and not self._waiting
            if ours:
                self._running = True
        if not ours:
            return self._run_behind(task)
        try:
            return task()
        finally:
            self._end_turn()

    def drain(self) -> None:
        """Wait until everything queued so far has run or failed; each task is bounded by its own timeout."""
        with self._turn:
            self._turn.wait_for(lambda: not self._running and not self._waiting)

    def fail(self, error: BaseException) -> None:
        """Close the queue for good: what waits fails now, what comes later fails when it comes."""
        with self._turn:
            if self._error is None:
                self._error = error
            reason = _closed(self._error)
            dropped = list(self._waiting)
            self._waiting.clear()
            self._turn.notify_all()
        for _, failed in dropped:
            failed(reason)

    def join(self, timeout_s: float) -> bool:
        """Join the worker of a queue that was closed by `fail`.

        Returns:
            Whether it ended within ``timeout_s``; it cannot while a task blocks.
        """
        worker = self._worker
        if worker is None or worker is threading.current_thread():
            return True
        worker.join(timeout_s)
        return not worker.is_alive()

    def _run_behind(self, task: Callable[[], T]) -> T:
        outcome: Future[T] = Future()

        def run() -> None:
            outcome.set_result(task())

        self.submit(run, outcome.set_exception)
        return outcome.result()

    def _work(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._error is not None or (self._waiting and not self._running))
                if not self._waiting:
                    return
                task, failed = self._waiting.popleft()
                self._running = True
            try:
                task()
            except BaseException as error:
                failed(error)
            finally:
                # The names would keep the task's tensors alive until the next one comes.
                del task, failed
                self._end_turn()

    def _end_turn(self) -> None:
        with self._turn:
            self._running = False
            self._turn.notify_all()


def _closed(error: BaseException) -> RuntimeError:
    closed = RuntimeError(f"this process group can run no more collectives: {error}")
    closed.__cause__ = error
    return closed

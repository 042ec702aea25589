"""One first-in-first-out queue of collectives per process group.

Theory of operation. All ranks of a group call its collectives in the same order, so tasks that run in the
order of the calls run in the same order everywhere, whichever thread runs them. A task therefore runs in the
caller's own thread when the caller waits for it anyway and nothing is ahead of it, and in the queue's one
worker thread otherwise: the two never run at the same time. The worker is started by the first task that
needs it.

What hangs on a collective's end (the callbacks of its future) runs in the worker too, after the task's turn:
such a callback may call collectives of the same group and wait for them, as some communication hooks of DDP
do. Then another worker takes the queue over.

A task that raises fails alone, as a call of gloo does. What leaves the group in pieces (an algorithm that
stopped half way, an abort) closes the queue by `fail`: what waits in it and what comes later then fails at
once with the reason, instead of hanging until its own timeout.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

Failure = Callable[[BaseException], None]


class FirstInFirstOut:
    """The queue of one group. All methods may be called from any thread.

    Args:
        name: of the group; the worker thread carries it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.Condition()
        self._waiting: deque[tuple[Callable[[], Any], Failure, Callable[[Any], None]]] = deque()
        self._running = False
        self._error: BaseException | None = None
        # The last one takes tasks; those before it are still busy with callbacks.
        self._workers: list[threading.Thread] = []

    @property
    def idle(self) -> bool:
        """Whether nothing runs, waits or has failed; read without the lock, on every call."""
        return not (self._running or self._waiting or self._error)

    def submit(
        self, task: Callable[[], T], failed: Failure, finished: Callable[[T], None] = lambda _: None
    ) -> None:
        """Queue a task for the worker.

        Args:
            task: what to do in its turn.
            failed: gets the error if the task raises or cannot run.
            finished: gets what the task returned, when the next task may run already.
        """
        with self._turn:
            error = self._error
            if error is None:
                self._waiting.append((task, failed, finished))
                if not self._workers or self._workers[-1] is threading.current_thread():
                    self._add_worker()
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
        for _, failed, _ in dropped:
            failed(reason)

    @contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """What stops half way leaves messages that no later call expects, or ranks that do not agree."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def join(self, timeout_s: float) -> bool:
        """Join the workers of a queue that was closed by `fail`.

        Returns:
            Whether they ended within ``timeout_s``; one cannot while its task blocks.
        """
        deadline_s = time.monotonic() + timeout_s
        workers = [worker for worker in self._workers if worker is not threading.current_thread()]
        for worker in workers:
            worker.join(max(0.0, deadline_s - time.monotonic()))
        return not any(worker.is_alive() for worker in workers)

    def _run_behind(self, task: Callable[[], T]) -> T:
        outcome: Future[T] = Future()
        self.submit(task, outcome.set_exception, outcome.set_result)
        return outcome.result()

    def _add_worker(self) -> None:
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        self._workers.append(threading.Thread(target=self._work, name=f"topotune {self._name}", daemon=True))
        self._workers[-1].start()

    def _work(self) -> None:
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """Run the next task; False where none will come, or another worker takes them now.

        A call of its own, so that nothing keeps the task's tensors alive until the next task comes.
        """
        with self._turn:
            if self._workers[-1] is not threading.current_thread():
                return False
            self._turn.wait_for(lambda: self._error is not None or (self._waiting and not self._running))
            if not self._waiting:
                return False
            task, failed, finished = self._waiting.popleft()
            self._running = True
        end: Callable[[], None]
        try:
            end = partial(finished, task())
        except BaseException as error:
            end = partial(failed, error)
        self._end_turn()
        try:
            end()
        except BaseException as error:
            self.fail(error)  # this thread ends, and nobody shall wait for it
            raise
        return True

    def _end_turn(self) -> None:
        with self._turn:
            self._running = False
            self._turn.notify_all()


def _closed(error: BaseException) -> RuntimeError:
    closed = RuntimeError(f"this process group can run no more collectives: {error}")
    closed.__cause__ = error
    return closed

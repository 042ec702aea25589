"""What an asynchronous call of the backend returns: a torch ``Work`` that a task of the queue completes."""

import threading
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work
from torch.futures import Future

_NO_TIMEOUT = timedelta(0)


class QueuedWork(Work):
    """A collective that waits in the queue, runs, or has ended.

    C++ callers (DDP's reducer, functional collectives) reach `wait` and `get_future` only; Python callers
    everything.

    Once the collective is done, `result` and the future give its output tensors.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tensors: list[Any] = []
        self._ended = threading.Event()
        self._error: BaseException | None = None
        # An exception set on a torch Future from Python is an ordinary value to C++; only a callback that
        # raises makes a future that failed for both. So what users get hangs behind a trigger.
        self._trigger: Future[None] = Future()
        self._future: Future[Any] = self._trigger.then(self._outcome)

    def finish(self, tensors: list[Any]) -> None:
        """The collective is done, and these are its outputs."""
        self._tensors = tensors
        self._end()

    def fail(self, error: BaseException) -> None:
        """The collective failed; every wait raises ``error``, now and later."""
        self._error = error
        self._end()

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Wait until the collective has ended.

        Args:
            timeout: how long at most; 0 for as long as the collective itself may take, which is the group's
            timeout.

        Raises:
            RuntimeError: it failed, or had not ended after ``timeout`` (it then goes on).
        """
        if not self._ended.wait(timeout.total_seconds() if timeout > _NO_TIMEOUT else None):
            raise RuntimeError(f"Operation timed out! It had not ended after {timeout.total_seconds()} s")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether the collective has ended, in whichever way."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Whether the collective has ended well."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """What the collective failed with; None if it has not."""
        return self._error

    def result(self) -> list[Any]:
        """The tensors that hold the result.

        Raises:
            RuntimeError: the collective has not ended, or failed.
        """
        if not self._ended.is_set():
            raise RuntimeError(
                "Work needs to be completed before calling result(). Should call wait() before result()."
            )
        if self._error is not None:
            raise self._error
        return self._tensors

    def get_future(self) -> Future[Any]:
        """A future of the tensors; it fails as `wait` does."""
        return self._future

    def synchronize(self) -> None:
        """Nothing to do: the collective worked on CPU memory."""

    def _end(self) -> None:
        self._ended.set()
        self._trigger.set_result(None)

    def _outcome(self, trigger: Future[None]) -> list[Any]:
        if self._error is not None:
            raise self._error
        return self._tensors


def done(tensors: list[torch.Tensor]) -> QueuedWork:
    """The work of a collective that has already ended well."""
    work = QueuedWork()
    work.finish(tensors)
    return work

"""What the main thread does while a collective runs: a real backward of chosen length, or pure Python."""

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import torch

_CPU: Final = torch.device("cpu")
_WIDTH, _DEPTH = 256, 4
_PROBE_BATCH: Final = 64
_LARGEST_BATCH: Final = 16384
_PROBES: Final = 5
_TURNS: Final = 200
"""Additions between two looks at the collective: tens of microseconds, as between bytecodes of real code."""


class Backward:
    """A backward through a small multilayer perceptron, repeatable, of a length that the batch sets.

    Args:
        batch: rows of the input, >= 1.
        device: that it runs on.
    """

    def __init__(self, batch: int, device: torch.device = _CPU) -> None:
        layers: list[torch.nn.Module] = []
        for _ in range(_DEPTH):
            layers += [torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU()]
        self._model = torch.nn.Sequential(*layers).to(device)
        self._loss = self._model(torch.randn(batch, _WIDTH, device=device)).square().mean()

    def run(self) -> None:
        """One backward; the gradients add up, as over micro-batches."""
        self._loss.backward(retain_graph=True)


def batch_for(target_s: float, device: torch.device = _CPU) -> int:
    """Batch with which a backward takes about ``target_s`` on this rank alone, within 1 and 16384."""
    backward = Backward(_PROBE_BATCH, device)
    backward.run()
    times_s = []
    for _ in range(_PROBES):
        start_s = time.perf_counter()
        backward.run()
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        times_s.append(time.perf_counter() - start_s)
    return max(1, min(_LARGEST_BATCH, round(_PROBE_BATCH * target_s / statistics.median(times_s))))


def python_until_done(work: Any) -> None:
    """Run Python, holding the interpreter lock as real code does, until the collective has ended.

    Args:
        work: of an asynchronous collective, which says when it has.
    """
    _python_until(work.is_completed)


def python_until_waited(work: Any) -> None:
    """The same beside a work that never says when it has ended: it is waited for in another thread.

    Gloo's reduce-scatter is such a one: it ends in its wait, and even then its `is_completed` stays False
    (torch 2.13).

    Args:
        work: of an asynchronous collective; what its wait raises, it raises again when the caller waits.
    """
    ended = threading.Event()

    def wait() -> None:
        try:
            with suppress(RuntimeError):
                work.wait()
        finally:
            ended.set()

    waiter = threading.Thread(target=wait, name="topotune waits", daemon=True)
    waiter.start()
    _python_until(ended.is_set)
    waiter.join()


def _python_until(done: Callable[[], bool]) -> None:
    total = 0
    while not done():
        for turn in range(_TURNS):
            total += turn * turn

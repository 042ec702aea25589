"""A model that makes a job's gradients at a job's pace, without the job.

Theory of operation. Autograd runs it as any model: a chain of stages, each with a parameter whose gradient
its backward returns. Before it returns them it computes for as long as the job did between those gradients,
so DDP's hooks, buckets and exchange meet the same sizes, in the same order, at the same times. Computing is
matrix multiplications on the threads that the job has (``matmul``): they fight with the exchange for cores
and memory, as a real backward does. Or it is waiting (``sleep``), where the cores of this machine stand for
more machines than there are. On a GPU it is kernels that spin on the stream of the backward
(`topotune.tune.spin`).

Parameters are never read or written, so that in a host's memory they take no room; gradients do, as in a job.
"""

import time
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import psutil
import torch

from topotune.step.gradients import ELEMENT_BYTES, Gradient, Gradients

Compute = Literal["matmul", "sleep", "spin"]

_WIDTH: Final = 160
"""Of the matrices: 8 million operations, a few hundred µs of one core, in its own cache."""

_CALIBRATION_S, _WARM_UP_S = 1.0, 0.3
_FEWEST_UNITS: Final = 24
_SLEEP_UNIT_S: Final = 1e-4
_LATEST_S: Final = 2e-3
"""What is taken off at most: a rank that got no core has computed nothing meanwhile."""


class Pace(Protocol):
    """Computing in units.

    Attributes:
        device: where gradients are.
    """

    device: torch.device

    def run(self, num_units: int) -> None:
        """Do so many units of work; on a GPU put them on the current stream."""
        ...

    def unit_s(self) -> float:
        """What a unit takes now; all ranks ask at once, since they may share cores."""
        ...

    def synchronize(self) -> None:
        """Return when the device is done with all that was called."""
        ...

    def free_bytes(self) -> float:
        """Memory for the buckets and gradients of all ranks that share it."""
        ...


class HostPace:
    """Computing on the job's threads.

    Args:
        compute: ``matmul`` or ``sleep``.
    """

    device = torch.device("cpu")

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self._matrices = torch.full((2, _WIDTH, _WIDTH), 1.0 / _WIDTH)
        self._product = torch.empty(_WIDTH, _WIDTH)
        self._overslept_s = 0.0

    def run(self, num_units: int) -> None:
        """So many units of work."""
        if self.compute == "sleep":
            self._sleep(num_units * _SLEEP_UNIT_S)
            return
        for _ in range(num_units):
            torch.mm(self._matrices[0], self._matrices[1], out=self._product)

    def _sleep(self, wanted_s: float) -> None:
        """Waking up late is taken off the next time: a hundred short sleeps last as long as one."""
        start_s = time.perf_counter()
        if wanted_s > self._overslept_s:
            time.sleep(wanted_s - self._overslept_s)
        self._overslept_s += time.perf_counter() - start_s - wanted_s
        self._overslept_s = min(self._overslept_s, _LATEST_S)

    def unit_s(self) -> float:
        """What a unit takes now; all ranks ask at once, since they may share cores."""
        if self.compute == "sleep":
            return _SLEEP_UNIT_S
        # All of the time counts: where ranks outnumber cores, a backward waits for its turns as well.
        self._units_within(_WARM_UP_S)  # cores speed up
        start_s = time.perf_counter()
        num_units = self._units_within(_CALIBRATION_S, at_least=_FEWEST_UNITS)
        return (time.perf_counter() - start_s) / num_units

    def synchronize(self) -> None:
        """Nothing: a call has ended when it returns."""

    def free_bytes(self) -> float:
        """Of this host."""
        return float(psutil.virtual_memory().available)

    def _units_within(self, time_s: float, at_least: int = 1) -> int:
        """Units that were done in this time."""
        num_units, end_s = 0, time.perf_counter() + time_s
        while num_units < at_least or time.perf_counter() < end_s:
            self.run(1)
            num_units += 1
        return num_units


class EmulatedModel(torch.nn.Module):
    """Parameters whose gradients come in a given order, after given work.

    Args:
        gradients: in the order in which they become ready.
        pace: what computes.
        num_units: of the whole backward.
    """

    def __init__(self, gradients: Gradients, pace: Pace, num_units: int) -> None:
        super().__init__()
        self._pace = pace
        # One stage for each, also where several are ready at once: autograd would take those in any order.
        stages: list[tuple[int, list[torch.nn.Parameter]]] = []
        spent = 0
        made = [_parameter(gradient, pace.device) for gradient in gradients.gradients]
        for gradient, weight in zip(gradients.gradients, made, strict=True):
            due = round(num_units * gradient.ready_s / gradients.backward_s)
            stages.append((due - spent, [weight]))
            spent = due
        stages.append((num_units - spent, []))
        self._stages = stages[::-1]  # as the forward goes
        # DDP's first step depends on the order in which they are registered, and where it never rebuilds its
        # buckets all steps do: as the job's are defined, or as the forward goes.
        order = gradients.definition_order or range(len(made))[::-1]
        self.weights = torch.nn.ParameterList(made[index] for index in order)
        self._entry = torch.zeros((), requires_grad=True, device=pace.device)

    def forward(self) -> torch.Tensor:
        """A scalar to call ``backward`` on."""
        flow = self._entry
        for num_units, weights in self._stages:
            flow = _Stage.apply(flow, self._pace, num_units, *weights)  # type: ignore[no-untyped-call]
        return flow


class _Stage(torch.autograd.Function):
    """Hands its input on; its backward computes, and returns zeros as the gradient of its parameter."""

    @staticmethod
    def forward(
        ctx: Any, flow: torch.Tensor, pace: Pace, num_units: int, *weights: torch.Tensor
    ) -> torch.Tensor:
        ctx.pace, ctx.num_units = pace, num_units
        ctx.likenesses = [(len(weight), weight.dtype, weight.device) for weight in weights]
        return flow.clone()

    @staticmethod
    def backward(ctx: Any, flow: torch.Tensor) -> Any:
        ctx.pace.run(ctx.num_units)
        zeros = [torch.zeros(count, dtype=dtype, device=device) for count, dtype, device in ctx.likenesses]
        return (flow, None, None, *zeros)


def _parameter(gradient: Gradient, device: torch.device) -> torch.nn.Parameter:
    count = gradient.num_bytes // ELEMENT_BYTES[gradient.dtype]
    return torch.nn.Parameter(torch.empty(count, dtype=getattr(torch, gradient.dtype), device=device))


def units_for(backward_s: float, unit_by_rank_s: Sequence[float]) -> int:
    """Units of a backward of this length: the same work for all ranks, of which the slowest takes longer."""
    ordered = sorted(unit_by_rank_s)
    return max(1, round(backward_s / ordered[len(ordered) // 2]))

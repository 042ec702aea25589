"""A backward on a GPU, emulated by kernels that spin on its stream.

Theory of operation. Autograd runs a backward on the stream of its forward, and DDP sends a bucket behind what
that stream holds. So a kernel that spins there until the device's clock has counted so many cycles, put ahead
of each gradient, holds gradient and bucket back as computing would, while the host runs ahead as in a job. It
keeps one block of one multiprocessor busy: the exchange has the others, and the memory, for itself. What a
real backward takes from the exchange's kernels is not in the step.

A unit is a number of cycles. How long it takes is measured by events on the stream, after the clock has had
time to rise; a clock that changes later makes backwards longer or shorter, of all arms alike, as they take
turns. One call spins for a bounded number of cycles: a display's driver ends kernels of seconds, and nothing
in torch says what its counter holds. Longer spans are several calls.
"""

from typing import Final, Protocol

import torch

UNIT_CYCLES: Final = 1 << 14
"""Of a unit: about 10 µs, of which a launch is the least part."""

MOST_CYCLES: Final = 1 << 28
"""Of one call: 0.1 to 0.3 s, far within 32 bits."""

_WARM_UP_CYCLES: Final = 1 << 29
_CALIBRATION_CYCLES: Final = 1 << 28


class Spinner(Protocol):
    """A device that can be made to spin: a GPU, or in tests something that needs none.

    Attributes:
        device: where tensors are.
    """

    device: torch.device

    def spin(self, cycles: int) -> None:
        """Keep the current stream busy for so many cycles, at most `MOST_CYCLES`; returns at once."""
        ...

    def mark(self) -> None:
        """Note the time on the current stream."""
        ...

    def between_marks_s(self) -> float:
        """Seconds between the last two marks, once the device has passed them."""
        ...

    def synchronize(self) -> None:
        """Return when the device is done with all that was called, on all streams."""
        ...

    def free_bytes(self) -> float:
        """Memory of the device that is free."""
        ...


class CudaSpinner:
    """This process's current GPU."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._marks: list[torch.cuda.Event] = []

    def spin(self, cycles: int) -> None:
        """One kernel of one block, which torch ships for its own tests."""
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]

    def mark(self) -> None:
        """An event; the last two are kept."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        self._marks = [*self._marks[-1:], event]

    def between_marks_s(self) -> float:
        """Between the last two events."""
        start, end = self._marks
        end.synchronize()
        passed_ms: float = start.elapsed_time(end)
        return passed_ms / 1e3

    def synchronize(self) -> None:
        """Wait for the whole device: DDP exchanges on streams of its own."""
        torch.cuda.synchronize(self.device)

    def free_bytes(self) -> float:
        """As the driver says, and what torch holds without using it."""
        free, _ = torch.cuda.mem_get_info(self.device)
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return float(free + unused)


class SpinPace:
    """Computing in units of cycles on a device; a `topotune.tune.emulated.Pace`.

    Args:
        spinner: the device.
    """

    def __init__(self, spinner: Spinner) -> None:
        self.device = spinner.device
        self._spinner = spinner

    def run(self, num_units: int) -> None:
        """Put so many units on the current stream."""
        self._spin(num_units * UNIT_CYCLES)

    def unit_s(self) -> float:
        """What a unit takes now, by the device's own clock and events."""
        self._spin(_WARM_UP_CYCLES)  # the clock rises
        self._spinner.mark()
        self._spin(_CALIBRATION_CYCLES)
        self._spinner.mark()
        return self._spinner.between_marks_s() * UNIT_CYCLES / _CALIBRATION_CYCLES

    def synchronize(self) -> None:
        """Wait for the device."""
        self._spinner.synchronize()

    def free_bytes(self) -> float:
        """Half of what is free: on a device the parameters of each arm take as much as its buckets."""
        return self._spinner.free_bytes() / 2

    def _spin(self, cycles: int) -> None:
        while cycles > 0:
            self._spinner.spin(min(cycles, MOST_CYCLES))
            cycles -= MOST_CYCLES

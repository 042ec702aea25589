"""A plan's algorithms for messages on GPUs: ordered by streams, without a wait of the host.

Theory of operation. A call is put on a stream of the group's own, behind what the caller's stream holds so
far, and returns. Whoever waits for it makes his stream wait for an event. Nothing on this way waits for the
device, so the caller goes on, and all of it can be captured in a CUDA graph, once each algorithm has run
outside of one: the first call connects.

NCCL's kernels occupy the device while they wait for those of other ranks. Two of them that ran in different
orders on two devices could wait for each other for ever. So all of a group's collectives on the device, the
plan's and the wrapped backend's, are one sequence: each waits, on the device, for the one before. The wrapped
backend's own calls stand on one stream, so the last of them stands for all.

What was recorded in a capture cannot be waited for outside of it, nor the reverse, and need not be: torch
waits for the device before a capture begins, and a graph is launched as a whole. So the sequence begins anew
where a capture begins or ends.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work
from torch.futures import Future

from topotune.execute.executable import Executable
from topotune.train.allreduce import PlannedAllreduce
from topotune.train.planned import Algorithm

_NO_TIMEOUT = timedelta(0)


class StreamedWork(Work):
    """A collective that stands on a stream; waiting for it is up to the stream that waits.

    Args:
        tensors: its outputs.
        end: recorded behind it.
        stream: that it stands on.
    """

    def __init__(self, tensors: list[torch.Tensor], end: torch.cuda.Event, stream: torch.cuda.Stream) -> None:
        super().__init__()
        self._tensors = tensors
        self._end = end
        self._future: Future[Any] = Future(devices=[stream.device])
        with torch.cuda.stream(stream):
            self._future.set_result(tensors)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Make the current stream wait; the host does not. The group's watchdog ends what never ends."""
        torch.cuda.current_stream(self._tensors[0].device).wait_event(self._end)
        return True

    def synchronize(self) -> None:
        """The same as `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the device is done with it."""
        return bool(self._end.query())  # type: ignore[no-untyped-call]

    def is_success(self) -> bool:
        """The same: what fails on the device ends the process, as torch's own NCCL groups do."""
        return self.is_completed()

    def exception(self) -> BaseException | None:
        """None: see `is_success`."""
        return None

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the result, for streams that waited."""
        return self._tensors

    def get_future(self) -> Future[Any]:
        """A future of the tensors; callbacks run on streams that wait for it."""
        return self._future


class OnStream:
    """The CUDA part of one group.

    Args:
        planned: its algorithms, on NCCL.
    """

    def __init__(self, planned: PlannedAllreduce) -> None:
        self.planned = planned
        self._stream: torch.cuda.Stream | None = None
        self._planned_end: tuple[bool, torch.cuda.Event] | None = None
        self._forwarded: tuple[bool, Any] | None = None

    def allreduce(
        self, algorithm: Algorithm[Executable], tensor: torch.Tensor, flat: torch.Tensor, op: Any
    ) -> StreamedWork | None:
        """Put an allreduce in place on the stream.

        Args:
            algorithm: of `planned`.
            tensor: on this process's GPU, its memory in one piece.
            flat: that memory, shape (num_elements,), in the order in which it lies there.
            op: a ``dist.ReduceOp.RedOpType``.

        Returns:
            its work; None, with nothing done, where the algorithm does not take this dtype, op or size.

        Raises:
            RunError: ranks could not be joined.
        """
        self.planned.build(algorithm)
        if not self.planned.serves(algorithm, flat, op):
            return None
        if self._stream is None:
            self._stream = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        stream, is_captured = self._stream, torch.cuda.is_current_stream_capturing()
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            if self._forwarded is not None and self._forwarded[0] == is_captured:
                self._forwarded[1].wait()
            self._forwarded = None
            self.planned.run(algorithm, flat, op)
            end = torch.cuda.Event()  # type: ignore[no-untyped-call]
            end.record(stream)
        # The caller may drop the tensor at once: its memory is not given away before the stream is done.
        tensor.record_stream(stream)
        self._planned_end = (is_captured, end)
        return StreamedWork([tensor], end, stream)

    def forward(self, call: Callable[[], Any]) -> Any:
        """A call of the wrapped backend in its turn: behind the plan's last, before the plan's next."""
        is_captured = torch.cuda.is_current_stream_capturing()
        if self._planned_end is not None and self._planned_end[0] == is_captured:
            torch.cuda.current_stream().wait_event(self._planned_end[1])
        self._planned_end = None
        work = call()
        self._forwarded = None if work is None else (is_captured, work)
        return work

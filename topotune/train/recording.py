"""Recording what a job exchanges: sizes, order and times of its gradients, while it trains.

Theory of operation. A hook behind each parameter's accumulated gradient notes when that gradient is there; a
hook on the model's output notes when the backward reaches the model, which is its start; a callback of the
autograd engine, queued from inside the backward, notes its end. On a GPU, where the host runs ahead, events
on the current stream are noted instead, and read after the last backward. The first backwards are left out:
memory is not there yet, and DDP runs other buckets in them. Times are medians over the rest, and gradients
are listed by theirs.

Nothing of the data is kept, and nothing that goes wrong here may stop the job: what cannot be written is a
warning.

`record_first_model` does the same for a job that knows nothing of topotune: it waits for the first model with
parameters that is run for training.
"""

import atexit
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook

from topotune.documents import document_text
from topotune.errors import TopotuneError, UsageError
from topotune.files import check_writable, write_whole
from topotune.step.gradients import (
    ELEMENT_BYTES,
    MAX_GRADIENTS,
    SCHEMA,
    Gradient,
    Gradients,
    gradients_to_document,
)

RECORD_VARIABLE: Final = "TOPOTUNE_RECORD"
STEPS_VARIABLE: Final = "TOPOTUNE_RECORD_STEPS"
FORCE_VARIABLE: Final = "TOPOTUNE_RECORD_FORCE"
DEFAULT_STEPS: Final = 10
_WARM_UP: Final = 3
"""Backwards that are left out at the start."""

Moment = float | torch.cuda.Event


@dataclass(kw_only=True, eq=False)
class _Backward:
    """One backward: what was noted in it."""

    start: Moment
    ready: dict[int, Moment] = field(default_factory=dict)
    end: Moment | None = None


class Recording:
    """A recording that is under way, or has ended; also a context manager.

    Args:
        model: whose parameters are watched.
        path: of the file; None writes none.
        num_steps: backwards to record, after those that are left out.
        force: a file of another kind may be replaced.
        active: False on ranks that do not record.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        path: str | None,
        num_steps: int,
        *,
        force: bool = False,
        active: bool = True,
    ) -> None:
        self._path = path
        self._num_steps = num_steps
        self._force = force
        self._name = type(getattr(model, "module", model)).__name__
        self._keeps_first_buckets = _keeps_first_buckets(model)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._backwards: list[_Backward] = []
        self._current: _Backward | None = None
        self._started: Moment | None = None
        self._written = False
        self._handles: list[Any] = []
        if not active:
            return
        for index, parameter in enumerate(self._parameters):
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._hook_of(index)))  # type: ignore[no-untyped-call]
        self._handles.append(model.register_forward_hook(self._on_output))
        atexit.register(self.close)

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def num_steps(self) -> int:
        """Backwards recorded so far, without those that are left out."""
        return max(0, len(self._backwards) - _WARM_UP)

    def close(self) -> None:
        """Take the hooks out; write the file if that has not been done and a backward was recorded."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        atexit.unregister(self.close)
        if self._path is None or self._written or not self._backwards:
            return
        self._written = True
        try:
            gradients = self.gradients()
            data = document_text(gradients_to_document(gradients)).encode()
            write_whole(self._path, data, force=self._force, renews=SCHEMA)
        except (
            TopotuneError,
            RuntimeError,
        ) as error:  # a device whose times cannot be read is no reason to stop
            warnings.warn(f"topotune: gradients were not recorded: {error}", stacklevel=2)
        else:
            sys.stderr.write(f"topotune: {gradients.in_words()}; written to {self._path}\n")

    def gradients(self) -> Gradients:
        """What was recorded so far.

        Raises:
            UsageError: no backward has ended yet; or gradients that DDP does not reduce.
        """
        taken = self._backwards[_WARM_UP:] or self._backwards[-1:]
        times = [one for one in map(_times_of, taken) if one is not None]
        if not times:
            raise UsageError(
                "no backward of the model has ended yet", hint="record over a few steps of training"
            )
        seen = Counter(index for ready, _ in times for index in ready)
        usual = [index for index, count in seen.items() if 2 * count > len(times)]
        ready_s = {index: median(ready[index] for ready, _ in times if index in ready) for index in usual}
        if self._keeps_first_buckets:
            # DDP gives unused parameters their place in buckets, and counts them as ready from the start.
            ready_s = {index: ready_s.get(index, 0.0) for index in range(len(self._parameters))}
        backward_s = max(median(end_s for _, end_s in times), *ready_s.values())
        said = []
        if missing := len(self._parameters) - len(usual):
            how = "are exchanged all the same" if self._keeps_first_buckets else "are left out"
            said.append(f"{missing} parameters got no gradient in most steps and {how}")
        in_order = sorted(ready_s, key=lambda index: (ready_s[index], -index))
        place = {index: number for number, index in enumerate(in_order)}
        if len(self._backwards) <= _WARM_UP:
            said.append(f"only {len(self._backwards)} steps ran: the times are those of a cold start")
        return Gradients(
            gradients=tuple(self._gradient(index, ready_s[index]) for index in in_order),
            backward_s=backward_s,
            timed=True,
            source=f"recorded from {self._name}"[:200],
            num_steps=len(times),
            definition_order=tuple(place[index] for index in sorted(place))
            if self._keeps_first_buckets
            else None,
            warnings=tuple(said),
        )

    def _gradient(self, index: int, ready_s: float) -> Gradient:
        parameter = self._parameters[index]
        dtype = str(parameter.dtype).removeprefix("torch.")
        if dtype not in ELEMENT_BYTES:
            raise UsageError(
                f"parameter {index} is of {dtype}, which DDP does not reduce",
                hint=f"gradients are of {', '.join(ELEMENT_BYTES)}",
            )
        return Gradient(
            num_bytes=parameter.numel() * parameter.element_size(), dtype=dtype, ready_s=max(0.0, ready_s)
        )

    def _on_output(self, _module: Any, _inputs: Any, output: Any) -> None:
        self._started = None
        for tensor in _tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(self._on_start)  # type: ignore[no-untyped-call]

    def _on_start(self, gradient: torch.Tensor) -> None:
        if self._started is None and self._current is None:
            self._started = _now(gradient)

    def _hook_of(self, index: int) -> Callable[[torch.Tensor], None]:
        def on_gradient(parameter: torch.Tensor) -> None:
            if not self._handles:  # closed in the middle of a backward
                return
            if self._current is None:
                started = _now(parameter) if self._started is None else self._started
                self._current = _Backward(start=started)
                # The engine calls it when this very backward has ended.
                engine: Any = torch.autograd.Variable._execution_engine
                engine.queue_callback(lambda: self._on_end(parameter))
            # Where a parameter is used twice its gradient is there the second time.
            self._current.ready[index] = _now(parameter)

        return on_gradient

    def _on_end(self, parameter: torch.Tensor) -> None:
        backward, self._current, self._started = self._current, None, None
        if backward is None:
            return
        backward.end = _now(parameter)
        self._backwards.append(backward)
        if len(self._backwards) >= _WARM_UP + self._num_steps:
            self.close()


def record(
    model: torch.nn.Module,
    path: str | os.PathLike[str] | None = "gradients.json",
    *,
    num_steps: int = DEFAULT_STEPS,
    force: bool = False,
) -> Recording:
    """Record the gradients of a model that is about to be trained: sizes, order, times; no weights.

    Call it before the first step, on a plain model or one in DDP. After the first three steps and
    ``num_steps`` more, the file is written and the hooks are gone; a job that ends sooner writes what there
    is. In a distributed job rank 0 alone records. The times are purest in a job of one process: under DDP
    they hold what the exchange takes from the backward. Whether DDP of the job will keep the buckets of its
    first step (``find_unused_parameters``) is only seen on a model in DDP; a plain one is taken to be wrapped
    without.

        >>> model = torch.nn.Linear(4, 2)
        >>> with record(model, path=None) as recording:
        ...     for _ in range(5):
        ...         model(torch.ones(3, 4)).sum().backward()
        >>> gradients = recording.gradients()
        >>> gradients.total_bytes, len(gradients.gradients), gradients.num_steps
        (40, 2, 2)

    Args:
        model: the model, or DDP around it.
        path: the file; one of the same kind is replaced. None writes none: `Recording.gradients` has it.
        num_steps: backwards to record.
        force: a file of another kind may be replaced, too.

    Raises:
        UsageError: a model without parameters to train, or a number of steps that is none.
        OutputFileError: a place that cannot be written.
    """
    if num_steps < 1:
        raise UsageError(f"num_steps is {num_steps}: at least one backward must be recorded")
    count = sum(parameter.requires_grad for parameter in model.parameters())
    if not 0 < count <= MAX_GRADIENTS:
        raise UsageError(f"the model has {count} parameters to train, not 1 to {MAX_GRADIENTS}")
    active = _own_rank() == 0
    if path is not None and active:
        path = str(check_writable(path, force=force, renews=SCHEMA))
    file = None if path is None else os.fspath(path)
    return Recording(model, file, num_steps, force=force, active=active)


def record_first_model(path: str, num_steps: int, *, force: bool = False) -> None:
    """Record the first model that is run for training in this process; see `record`.

    Args:
        path: the file.
        num_steps: backwards to record.
        force: a file of another kind may be replaced.
    """

    def before(module: torch.nn.Module, _inputs: Any) -> None:
        if not torch.is_grad_enabled() or not any(one.requires_grad for one in module.parameters()):
            return
        handle.remove()
        try:
            record(module, path, num_steps=num_steps, force=force)
        except TopotuneError as error:
            warnings.warn(f"topotune: gradients are not recorded: {error.message}", stacklevel=2)

    handle = register_module_forward_pre_hook(before)


def record_by_environment(environment: Mapping[str, str]) -> None:
    """What ``topotune record`` asks of a job, where it does."""
    steps = environment.get(STEPS_VARIABLE, "")
    record_first_model(
        environment[RECORD_VARIABLE],
        int(steps) if steps.isascii() and steps.isdecimal() else DEFAULT_STEPS,
        force=environment.get(FORCE_VARIABLE) == "1",
    )


def _keeps_first_buckets(model: torch.nn.Module) -> bool:
    """Whether it is in DDP that never puts gradients into other buckets (`topotune.step.buckets`)."""
    return (
        isinstance(model, torch.nn.parallel.DistributedDataParallel)
        and model.find_unused_parameters
        and not model.static_graph
    )


def _own_rank() -> int:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    # RANK means a rank only beside LOCAL_RANK: elsewhere it counts nodes.
    text = os.environ.get("RANK", "") if "LOCAL_RANK" in os.environ else ""
    return int(text) if text.isascii() and text.isdecimal() else 0


def _now(tensor: torch.Tensor) -> Moment:
    if tensor.is_cuda:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(tensor.device))
        return event
    return time.perf_counter()


def _times_of(backward: _Backward) -> tuple[dict[int, float], float] | None:
    """Seconds from the start to each gradient and to the end; None for one that did not end."""
    if backward.end is None or not backward.ready:
        return None
    return (
        {index: _seconds(backward.start, moment) for index, moment in backward.ready.items()},
        _seconds(backward.start, backward.end),
    )


def _seconds(start: Moment, end: Moment) -> float:
    if isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
        end.synchronize()
        passed_ms: float = start.elapsed_time(end)
        return passed_ms / 1e3
    if isinstance(start, float) and isinstance(end, float):
        return end - start
    raise UsageError("the model is on a GPU and on the CPU at once, whose times cannot be joined")


def _tensors_in(output: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """Tensors in what a model returned: itself, in sequences, mappings or plain objects."""
    if isinstance(output, torch.Tensor):
        yield output
    elif depth and isinstance(output, Mapping):
        for item in output.values():
            yield from _tensors_in(item, depth - 1)
    elif depth and isinstance(output, Sequence) and not isinstance(output, str | bytes):
        for item in output:
            yield from _tensors_in(item, depth - 1)
    elif depth and hasattr(output, "__dict__"):
        yield from _tensors_in(vars(output), depth - 1)

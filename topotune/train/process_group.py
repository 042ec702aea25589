"""The ``topotune`` process group: torch's whole interface, with the plan's algorithms where the plan has any.

Theory of operation. The group is a Python subclass of ``dist.ProcessGroup``. The backends that do the
ordinary work (gloo on the CPU, nccl on CUDA) are registered on it, so that everything in torch that asks a
group for its backends finds them; and on a second, plain ``ProcessGroup`` beside it, through which calls are
forwarded. (``super().broadcast(…)`` would do only inside a method named ``broadcast`` with this very
``self``: elsewhere pybind11 takes it for a new call, and finds the override again.)

A call goes to the algorithms of the plan (`topotune.train.on_cpu`, `on_stream`, `exchanges`) where they take
it, else to the wrapped backend. CPU collectives keep the order of the calls (`topotune.train.turns`).
Point-to-point messages pass the queue by: a send may be what another rank's collective waits for. CUDA
collectives are ordered by their stream, those of a plan for NCCL too.

Torch calls the few methods that its C++ trampoline knows (``PyProcessGroup.hpp``) from C++ too; the others
are reached from Python alone. One call passes us by: the ``out=`` variant of functional all-gather, which
compiled code may use, goes from C++ straight to the registered backend.
"""

import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    ProcessGroupGloo,
    ReduceScatterOptions,
    Store,
)

from topotune.errors import UsageError
from topotune.train.agreement import Agreement, missing_table
from topotune.train.arguments import allreduce_options, is_async, is_on_cpu
from topotune.train.backends import Typed, fresh_prefix, plain_group, register_backends, typed
from topotune.train.calls import CALLS, OLD_NAMES, Call
from topotune.train.controls import Controls
from topotune.train.on_stream import StreamedWork
from topotune.train.planned_side import PlannedSide
from topotune.train.source import set_in_use
from topotune.train.tensors import as_it_lies, is_plain
from topotune.train.turns import Turns
from topotune.train.usage import REPORT, GroupUsage

STANDING: Final["weakref.WeakSet[ProcessGroupTopotune]"] = weakref.WeakSet()
"""The groups of this process that were neither aborted nor shut down."""

_CPU: Final = torch.device("cpu")


class ProcessGroupTopotune(Controls, dist.ProcessGroup):
    """A process group that runs the plan's algorithms, and the wrapped backends for all else.

    Args:
        store: of the group, as torch made it.
        private_store: of this very group, also if torch makes another one of the same name later.
        rank: in the group.
        size: of the group.
        backends: device type → wrapped backend; ``cpu`` must be there.
        cpu_gloo: the gloo backend under ``backends["cpu"]``, which keeps the group's timeout.
        kind: of group, in words, for the report.
        is_world: whether this is the default group.
    """

    def __init__(
        self,
        store: Store,
        private_store: Store,
        rank: int,
        size: int,
        *,
        backends: Mapping[str, Typed],
        cpu_gloo: ProcessGroupGloo,
        kind: str,
        is_world: bool,
    ) -> None:
        # The constructor that takes a store makes an object without the Python trampoline (torch 2.13).
        dist.ProcessGroup.__init__(self, rank, size)  # type: ignore[call-arg]
        self.private_store = private_store
        self.wrapped = plain_group(store, rank, size, backends)
        register_backends(self, backends)
        self._wrapped_names = {device: backend.name() for device, (_, backend) in backends.items()}
        self._has_one_backend = len(set(self._wrapped_names.values())) == 1
        self._cpu_gloo = cpu_gloo
        self._forwards = {call.method: getattr(self.wrapped, call.method) for call in CALLS}
        self._usage = GroupUsage(kind=kind)
        self._turns = Turns(self._usage)
        self._plans_cpu: bool | None = None
        self._plans_cuda = False
        self._planned = PlannedSide(
            private_store,
            self.wrapped,
            forwards=self._forwards,
            names=self._wrapped_names,
            turns=self._turns,
            usage=self._usage,
            is_world=is_world,
            timeout=self._group_timeout,
        )
        self.is_world = is_world
        REPORT.open(self._usage)
        STANDING.add(self)

    def set_agreement(self, agreement: Agreement) -> None:
        """Take what the ranks have agreed on; once, when the group is made."""
        self._planned.take(agreement)

    # Collectives.

    def allreduce(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Reduce in place: by the plan's algorithm for this size, else by the wrapped backend."""
        options = (
            args[0] if args and type(args[0]) is AllreduceOptions else allreduce_options(*args, **kwargs)
        )
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if self._plans_cpu is None:
            self._read_config()
        if len(tensors) != 1:
            return self._forward(_ALLREDUCE, tensors, options)
        tensor = tensors[0]
        if tensor.is_cuda:
            return self._allreduce_on_cuda(tensor, tensors, options)
        work = self._planned.allreduces.allreduce(tensor, options) if self._plans_cpu else None
        return self._forward(_ALLREDUCE, tensors, options) if work is None else work

    def _allreduce_on_cuda(self, tensor: torch.Tensor, tensors: Any, options: Any) -> Any:
        """By the plan's algorithm on a stream of the group's, without a wait of the host; or forwarded."""
        work: StreamedWork | None = None
        on_cuda = self._planned.on_cuda
        if on_cuda is not None and self._plans_cuda and is_plain(tensor, "cuda"):
            algorithm = on_cuda.planned.choose(tensor.numel() * tensor.element_size())
            flat = None if algorithm is None else as_it_lies(tensor)
            if algorithm is not None and flat is not None:
                work = on_cuda.allreduce(algorithm, tensor, flat, options.reduceOp.op)
                if work is not None:
                    self._usage.count("allreduce", algorithm.name)
        if work is None:
            return self._forward(_ALLREDUCE, tensors, options)
        if not options.asyncOp:
            work.wait()
        return work

    def reduce_scatter_single(self, outputTensor: Any, inputTensor: Any, *args: Any, **kwargs: Any) -> Any:
        """Reduce equal parts to their ranks: by the plan's algorithm, else by the wrapped backend."""
        return self._exchange(_REDUCE_SCATTER, inputTensor, outputTensor, args, kwargs)

    def all_gather_single(self, output: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        """Gather equal parts on all ranks: by the plan's algorithm, else by the wrapped backend."""
        return self._exchange(_ALLGATHER, output, input, args, kwargs)

    def _exchange(
        self, call: Call, whole: Any, part: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """A reduce-scatter or an all-gather of ``part``, this rank's, and ``whole``, all ranks' together."""
        work = None
        if self._planned.exchanges.is_active(call):
            if self._plans_cpu is None:
                self._read_config()
            options: Any = args[0] if args else kwargs.get("opts")
            if options is None:
                options = ReduceScatterOptions() if call is _REDUCE_SCATTER else AllgatherOptions()
            if self._plans_cpu:
                work = self._planned.exchanges.exchange(call, whole, part, options)
        if work is not None:
            return work
        ordered = (part, whole) if call is _REDUCE_SCATTER else (whole, part)
        return self._forward(call, *ordered, *args, **kwargs)

    def _forward(self, call: Call, *args: Any, **kwargs: Any) -> Any:
        """A call of the wrapped backend: straight to it, or behind what is in the queue."""
        if self._plans_cpu is None:
            self._read_config()
        forward = self._forwards[call.method]
        is_ordered = call.way != "direct" and (self._has_one_backend or is_on_cpu(args, kwargs))
        if is_ordered and not self._turns.queue.idle:
            return self._turns.default(
                call.collective, partial(forward, *args, **kwargs), is_async=is_async(call, args, kwargs)
            )
        self._usage.straight[call.collective] += 1
        on_cuda = self._planned.on_cuda
        if (
            on_cuda is not None
            and on_cuda.planned.active
            and call.way != "direct"
            and not is_on_cpu(args, kwargs)
        ):
            return on_cuda.forward(partial(forward, *args, **kwargs))
        if is_ordered and self._planned.algorithms.active_on_cpu and is_async(call, args, kwargs):
            self._turns.remember(work := forward(*args, **kwargs))
            return work
        # Nothing between gloo's start and the caller's wait: a caller that goes on makes the kernel wake
        # gloo's thread on another processor, 50 µs where that one sleeps (2-core virtual machine, 2026).
        return forward(*args, **kwargs)

    # Life.

    def get_group_store(self) -> Store:
        """The group's store, as torch made it."""
        return self.wrapped.get_group_store()

    def split_group(
        self,
        new_ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: list[torch.device] | None = None,
    ) -> dist.ProcessGroup | None:
        """A group of some of the ranks, as torch's own; it finds its own table in the agreed plan."""
        if device_types is None and self._has_one_backend:
            # Torch would split gloo once for each device type, with the same keys in the same store: a race.
            device_types = [_CPU]
        child = self.wrapped.split_group(
            new_ranks,
            timeout,
            opts,
            None if group_name is None else dist.GroupName(group_name),
            group_desc,
            device_types,
        )
        if child is None or _CPU not in child._device_types:
            return child
        backends = {device.type: typed(child._get_backend(device)) for device in child._device_types}
        backends.setdefault("cuda", backends["cpu"])
        group = ProcessGroupTopotune(
            child.get_group_store(),
            fresh_prefix(child.get_group_store(), child.size()),
            child.rank(),
            child.size(),
            backends=backends,
            cpu_gloo=cast(ProcessGroupGloo, backends["cpu"][1]),
            kind=kind_of_group(child.size()),
            is_world=False,
        )
        if self.agreement is not None:
            inherited = self.agreement.among([self.agreement.global_ranks[rank] for rank in new_ranks])
            warning = missing_table(inherited, self.private_store)
            if warning is not None:
                warnings.warn(warning, stacklevel=2)
            group.set_agreement(inherited)
        return group

    def abort(self) -> None:
        """End what runs here, fail what waits, join the queue's thread. Peers that wait for us fail too."""
        self._turns.close("was aborted")
        self._planned.abort()
        self.wrapped.abort()
        self._end()

    def shutdown(self) -> None:
        """Let what was called end, each call by its own timeout; then join the queue's thread."""
        self._turns.queue.drain()
        self._turns.close("was shut down")
        self.wrapped.shutdown()
        self._end()

    def leave(self) -> None:
        """Take leave of the others as the script ends; only what still runs here is broken off.

        A rank that has ended all its calls owes the others nothing. They may still be in the last of them,
        and an abort would end that for them as well.
        """
        if self._turns.queue.idle:
            self.shutdown()
        else:
            self.abort()

    def _end(self) -> None:
        self._planned.end()
        self._turns.forget()
        REPORT.close(self._usage)
        STANDING.discard(self)
        if self.is_world:
            set_in_use(False)

    def _group_timeout(self) -> timedelta:
        """As it is now: ``set_timeout`` changes it in the wrapped backend."""
        timeout: timedelta = self._cpu_gloo.options._timeout
        return timeout

    def _read_config(self) -> None:
        """Find out whether CPU collectives are ours; torch knows the form only after the group was made.

        Raises:
            UsageError: the form names a backend for a device that topotune wraps another one for.
        """
        try:
            form = dist.get_backend_config(self)
        except (ValueError, TypeError):  # what torch says of a group that is in none of its tables
            form = "cpu:topotune"
        named = dict(part.split(":") for part in form.split(","))
        for device, backend in named.items():
            wrapped = self._wrapped_names.get(device)
            if backend not in ("topotune", wrapped):
                raise UsageError(
                    f"backend {form!r} asks for {backend} on {device}, "
                    f"where topotune wraps {wrapped or 'nothing'}",
                    hint="make a group of its own for that device",
                )
        self._plans_cpu = named.get("cpu") == "topotune"
        self._plans_cuda = named.get("cuda", named.get("cpu")) == "topotune"


def kind_of_group(size: int) -> str:
    """What the report calls groups of this size inside the world."""
    return "groups of 1 rank" if size == 1 else f"groups of {size} ranks"


def _method(call: Call) -> Callable[..., Any]:
    def method(self: ProcessGroupTopotune, *args: Any, **kwargs: Any) -> Any:
        return self._forward(call, *args, **kwargs)

    method.__name__ = call.method
    method.__qualname__ = f"ProcessGroupTopotune.{call.method}"
    method.__doc__ = getattr(dist.ProcessGroup, call.method).__doc__
    return method


_OWN: Final = {call.method: call for call in CALLS if call.way == "planned"}
"""The calls that have methods of their own above."""

_ALLREDUCE: Final = _OWN["allreduce"]
_REDUCE_SCATTER: Final = _OWN["reduce_scatter_single"]
_ALLGATHER: Final = _OWN["all_gather_single"]
for _call in CALLS:
    if _call.way != "planned":
        setattr(ProcessGroupTopotune, _call.method, _method(_call))
for _old, _new in OLD_NAMES.items():
    setattr(ProcessGroupTopotune, _old, getattr(ProcessGroupTopotune, _new))

"""The ``topotune`` process group: torch's whole interface, with the plan's algorithms where the plan has any.

Theory of operation. The group is a Python subclass of ``dist.ProcessGroup``. The backends that do the
ordinary work (gloo on the CPU, nccl on CUDA) are registered on it, so that everything in torch that asks a
group for its backends finds them; and on a second, plain ``ProcessGroup`` beside it, through which calls are
forwarded. (``super().broadcast(…)`` would do only inside a method named ``broadcast`` with this very
``self``: elsewhere pybind11 takes it for a new call, and finds the override again.)

CPU collectives keep the order of the calls in one queue per group. While the queue is empty, a call of the
wrapped backend goes straight to it in the caller's thread, exactly as without topotune, and what it still has
in flight is remembered: an algorithm of the plan starts when that has ended. While the queue is busy, calls
queue up behind. Point-to-point messages pass the queue by: a send may be what another rank's collective waits
for. CUDA collectives are ordered by their stream, those of a plan for NCCL too (`topotune.train.on_stream`).

Torch calls the few methods that its C++ trampoline knows (``PyProcessGroup.hpp``) from C++ too; the others
are reached from Python alone. One call passes us by: the ``out=`` variant of functional all-gather, which
compiled code may use, goes from C++ straight to the registered backend.
"""

import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import Any, Final, cast, get_args

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    PrefixStore,
    ProcessGroupGloo,
    ReduceScatterOptions,
    Store,
)

from topotune.errors import UsageError
from topotune.execute.nccl_communicator import NcclCommunicator
from topotune.plan import Row, find_group
from topotune.plan.algorithms import DEFAULT
from topotune.plan.model import Collective
from topotune.schedule.model import PartCollective
from topotune.train.agreement import Agreement, missing_table
from topotune.train.allreduce import Algorithm, Override, PlannedAllreduce
from topotune.train.backends import Typed, fresh_prefix, typed
from topotune.train.calls import CALLS, OLD_NAMES, Call
from topotune.train.drift import Drift
from topotune.train.drift_record import RECORD, watching
from topotune.train.fifo import FirstInFirstOut
from topotune.train.on_stream import OnStream, StreamedWork
from topotune.train.parts import PartsAlgorithm, PlannedParts
from topotune.train.source import set_in_use
from topotune.train.tensors import are_equal_parts, is_plain, memory_of
from topotune.train.usage import REPORT, GroupUsage
from topotune.train.work import QueuedWork, done

JOIN_TIMEOUT_S: Final = 10.0
STANDING: Final["weakref.WeakSet[ProcessGroupTopotune]"] = weakref.WeakSet()
"""The groups of this process that were neither aborted nor shut down."""

_CPU: Final = torch.device("cpu")


class ProcessGroupTopotune(dist.ProcessGroup):
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
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.private_store = private_store
        self.wrapped = plain_group(store, rank, size, backends)
        register_backends(self, backends)
        self._wrapped_names = {device: backend.name() for device, (_, backend) in backends.items()}
        self._has_one_backend = len(set(self._wrapped_names.values())) == 1
        self._cpu_gloo = cpu_gloo
        self._forwards = {call.method: getattr(self.wrapped, call.method) for call in CALLS}
        self._queue = FirstInFirstOut(kind)
        self._in_flight: deque[Any] = deque()
        self._renewals = 0
        self._allreduce = self._new_allreduce()
        self._on_cuda = self._new_on_cuda()
        self._parts = self._new_parts()
        self._usage = GroupUsage(kind=kind)
        self._plans_cpu: bool | None = None
        self._drift: Drift | None = None
        self._plans_cuda = False
        self.is_world = is_world
        self.agreement: Agreement | None = None
        REPORT.open(self._usage)
        STANDING.add(self)

    # What the tuner, the report and tests ask.

    @property
    def override(self) -> Override | None:
        """(algorithm, params) for every allreduce of this group, on CPUs and GPUs; None: the plan's.

        Must be set to the same on all ranks, between the same calls.

        Raises:
            UsageError: on setting an algorithm or parameters that do not exist.
        """
        return self._allreduce.override

    @override.setter
    def override(self, override: Override | None) -> None:
        for part in self._allreduces():
            part.override = override

    def set_override(self, collective: Collective, override: Override | None) -> None:
        """`override`, for any collective that plans have tables for.

        Raises:
            UsageError: an algorithm or parameters that do not exist.
        """
        if collective == "allreduce":
            self.override = override
        else:
            self._parts[collective].override = override

    @property
    def rank_order(self) -> tuple[int, ...] | None:
        """The rank that stands at each position of a plan's or override's algorithm; None for as numbered.

        Params that name ranks (``groups``) name positions. The wrapped backend keeps its own numbering. Must
        be set to the same on all ranks, before the first such call.
        """
        return self._allreduce.rank_order

    @rank_order.setter
    def rank_order(self, order: tuple[int, ...] | None) -> None:
        for part in self._allreduces():
            part.rank_order = order

    @property
    def call_limit(self) -> timedelta | None:
        """What one call by an override or a plan may take, where that is less than the group's timeout.

        Must be set to the same on all ranks, between the same calls.
        """
        return self._allreduce.call_limit

    @call_limit.setter
    def call_limit(self, limit: timedelta | None) -> None:
        for part in self._allreduces():
            part.call_limit = limit

    @property
    def wait_limit(self) -> timedelta | None:
        """What one wait of an override or a plan may take, whatever the group's timeout; None for an hour.

        Must be set before the first such call.
        """
        return self._allreduce.wait_limit

    @wait_limit.setter
    def wait_limit(self, limit: timedelta | None) -> None:
        for part in self._allreduces():
            part.wait_limit = limit

    def build_override(self, collective: Collective = "allreduce", *, on_cuda: bool = False) -> None:
        """Make the override ready, so that its first call is like any other. Collective over the group.

        Args:
            collective: whose override.
            on_cuda: for messages on GPUs; of allreduce alone.

        Raises:
            RunError: a rank did not come within the group's timeout, or was lost. Then only `renew` helps.
        """
        if on_cuda:
            assert self._on_cuda is not None, "there is no NCCL here"
            algorithm = self._on_cuda.planned.choose(0)
            if algorithm is not None:
                self._on_cuda.planned.build(algorithm)
            return
        if collective != "allreduce":
            parts = self._parts[collective]
            chosen = parts.choose(0)
            if chosen is not None:
                self._queue.run(lambda: self._build(partial(parts.build, chosen)))
            return
        algorithm = self._allreduce.choose(0)
        if algorithm is not None:
            self._queue.run(lambda: self._build(partial(self._allreduce.build, algorithm)))

    def stop_planned(self) -> None:
        """End calls by an override or a plan, on this rank and those that wait for it; from any thread.

        The wrapped backend is left alone. The group runs nothing more until `renew`.
        """
        for part in self._allreduces():
            part.abort()

    def renew(self) -> None:
        """New private connections and a new queue, after a call by an override failed; none may be running.

        All ranks do it, between the same calls. What the wrapped backend has in flight goes on.
        """
        self._queue.fail(RuntimeError(f"the {self._usage.kind} was renewed"))
        for part in self._allreduces():
            part.abort()
        if self._queue.join(JOIN_TIMEOUT_S):
            self._close_planned()
        self._renewals += 1
        before, self._allreduce = self._allreduce, self._new_allreduce()
        parts_before, self._parts = self._parts, self._new_parts()
        self._on_cuda = self._new_on_cuda()
        self._queue = FirstInFirstOut(self._usage.kind)
        if self.agreement is not None:
            self.set_agreement(self.agreement)
        self.override, self.call_limit = before.override, before.call_limit
        self.rank_order, self.wait_limit = before.rank_order, before.wait_limit
        for collective, parts in self._parts.items():
            parts.override = parts_before[collective].override

    def _new_allreduce(self) -> PlannedAllreduce:
        store = PrefixStore(f"planned {self._renewals}", self.private_store)
        return PlannedAllreduce(store, self.rank(), self.size(), timeout=self._group_timeout)

    def _new_on_cuda(self) -> OnStream | None:
        """The part for messages on GPUs; None where no NCCL is wrapped."""
        if self._wrapped_names.get("cuda") != "nccl":
            return None
        store = PrefixStore(f"planned on CUDA {self._renewals}", self.private_store)
        return OnStream(
            PlannedAllreduce(
                store, self.rank(), self.size(), timeout=self._group_timeout, connect=NcclCommunicator
            )
        )

    def _allreduces(self) -> tuple[PlannedAllreduce, ...]:
        """The algorithms for messages on CPUs and, where NCCL is wrapped, those for messages on GPUs."""
        return (self._allreduce,) if self._on_cuda is None else (self._allreduce, self._on_cuda.planned)

    def _close_planned(self) -> None:
        for part in self._allreduces():
            part.close()
        for parts in self._parts.values():
            parts.close()

    def _new_parts(self) -> dict[PartCollective, PlannedParts]:
        return {name: PlannedParts(name, self._allreduce, self.size()) for name in get_args(PartCollective)}

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """Number of calls so far by (collective, algorithm); ``default`` is the wrapped backend's own."""
        return self._usage.total()

    def set_agreement(self, agreement: Agreement) -> None:
        """Take what the ranks have agreed on; once, when the group is made."""
        self.agreement = agreement
        if agreement.plan is None:
            return
        backend = agreement.plan.fingerprint.hard.backend
        if backend == self._wrapped_names["cpu"]:
            part = self._allreduce
        elif self._on_cuda is not None and backend == self._wrapped_names["cuda"]:
            part = self._on_cuda.planned
        else:
            return
        group = find_group(agreement.plan, agreement.shape())
        if group is None:
            return
        if group.allreduce is not None:
            self._usage.planned = True
            part.set_table(group.allreduce, agreement.plan.rank_order)
            if part is self._allreduce and self.size() > 1 and watching():
                self._watch({"allreduce": group.allreduce})
        if part is not self._allreduce:
            return
        for collective, parts in self._parts.items():
            table = getattr(group, collective)
            if table is not None:
                self._usage.planned = True
                self._allreduce.rank_order = agreement.plan.rank_order
                parts.set_table(table)

    def _watch(self, tables: Mapping[str, Sequence[Row]]) -> None:
        """Watch planned calls for drift, from the next one on."""
        if self._drift is not None:
            RECORD.close(self._drift)
        store = PrefixStore(f"drift {self._renewals}", self.private_store)
        self._drift = Drift(
            store, self.rank(), self.size(), where=self._usage.kind, tables=tables, acts=RECORD.acts
        )
        RECORD.open(self._drift)

    # Collectives.

    def allreduce(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Reduce in place: by the plan's algorithm for this size, else by the wrapped backend."""
        options = args[0] if args and type(args[0]) is AllreduceOptions else _options(*args, **kwargs)
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if self._plans_cpu is None:
            self._read_config()
        if len(tensors) != 1:
            return self._forward(_ALLREDUCE, tensors, options)
        tensor = tensors[0]
        if tensor.is_cuda:
            return self._allreduce_on_cuda(tensor, tensors, options)
        if not self._plans_cpu:
            return self._forward(_ALLREDUCE, tensors, options)
        algorithm = self._choose(tensor)
        is_dense = tensor.layout is torch.strided and tensor.is_contiguous()
        if (algorithm is None and is_dense) or not is_plain(tensor):
            return self._forward(_ALLREDUCE, tensors, options)
        before = self._take_in_flight()
        if not options.asyncOp:
            self._queue.run(lambda: self._reduce(algorithm, tensor, options, before))
            return done(tensors)
        work = QueuedWork()
        self._queue.submit(
            lambda: self._reduce(algorithm, tensor, options, before),
            work.fail,
            lambda _: work.finish(tensors),
        )
        return work

    def _choose(self, tensor: torch.Tensor) -> Algorithm | None:
        """What shall run an allreduce; what waits in the queue may yet fall back when its turn comes."""
        num_bytes = tensor.numel() * tensor.element_size()
        algorithm = self._allreduce.choose(num_bytes)
        if algorithm is None or self._drift is None or not algorithm.of_plan:
            return algorithm
        return None if self._drift.has_fallen(("allreduce", num_bytes, tensor.dtype)) else algorithm

    def _allreduce_on_cuda(self, tensor: torch.Tensor, tensors: Any, options: Any) -> Any:
        """By the plan's algorithm on a stream of the group's, without a wait of the host; or forwarded."""
        work: StreamedWork | None = None
        algorithm: Algorithm | None = None
        if self._on_cuda is not None and self._plans_cuda and is_plain(tensor, "cuda"):
            algorithm = self._on_cuda.planned.choose(tensor.numel() * tensor.element_size())
            if algorithm is not None and tensor.is_contiguous():
                work = self._on_cuda.allreduce(
                    algorithm, tensor, memory_of(tensor).view(-1), options.reduceOp.op
                )
        if work is None or algorithm is None:
            return self._forward(_ALLREDUCE, tensors, options)
        self._usage.count("allreduce", algorithm.name)
        if not options.asyncOp:
            work.wait()
        return work

    def _reduce(
        self, algorithm: Algorithm | None, tensor: torch.Tensor, options: Any, before: Sequence[Any]
    ) -> None:
        """One allreduce in its turn, from start to end, in whichever thread."""
        for work in before:
            # What it failed with reaches whoever holds it; here only its end counts.
            with suppress(RuntimeError):
                work.wait()
        memory = memory_of(tensor)
        flat = memory.contiguous().view(-1)
        if algorithm is not None and algorithm.of_plan and self._drift is not None:
            self._reduce_watched(self._drift, algorithm, flat, options)
        else:
            self._reduce_by(algorithm, flat, options)
        if flat.data_ptr() != memory.data_ptr():
            memory.copy_(flat.view(memory.shape))

    def _reduce_by(self, algorithm: Algorithm | None, flat: torch.Tensor, options: Any) -> None:
        """By the algorithm, if there is one and it takes such a message; else by the wrapped backend."""
        if algorithm is not None and self._reduce_planned(algorithm, flat, options.reduceOp.op):
            self._usage.count("allreduce", algorithm.name)
            return
        self._usage.count("allreduce", DEFAULT)
        self.wrapped.allreduce([flat], options).wait()

    def _reduce_watched(self, drift: Drift, algorithm: Algorithm, flat: torch.Tensor, options: Any) -> None:
        """By the algorithm, unless all ranks have left it for such messages, or try the default."""
        kind = ("allreduce", flat.nbytes, flat.dtype)
        self._build(partial(self._allreduce.build, algorithm))
        if drift.has_fallen(kind) or not self._allreduce.serves(algorithm, flat, options.reduceOp.op):
            self._reduce_by(None, flat, options)
            return
        with self._closing_on_error():
            by_plan = drift.begin(kind, algorithm.name)
            start_s = perf_counter()
            self._reduce_by(algorithm if by_plan else None, flat, options)
            drift.end(kind, perf_counter() - start_s)

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        """What stops half way leaves messages that no later call expects, or ranks that do not agree."""
        try:
            yield
        except BaseException as error:
            self._queue.fail(error)
            raise

    def _reduce_planned(self, algorithm: Algorithm, flat: torch.Tensor, op: Any) -> bool:
        with self._closing_on_error():
            return self._allreduce.run(algorithm, flat, op)

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
        parts = self._parts[cast(PartCollective, call.collective)]
        scatters = call is _REDUCE_SCATTER
        algorithm = None
        if parts.active:
            if self._plans_cpu is None:
                self._read_config()
            options: Any = args[0] if args else kwargs.get("opts")
            if options is None:
                options = ReduceScatterOptions() if scatters else AllgatherOptions()
            if self._plans_cpu and are_equal_parts(whole, part, self.size()):
                algorithm = parts.choose(whole.numel() * whole.element_size())
        if algorithm is None:
            ordered = (part, whole) if scatters else (whole, part)
            return self._forward(call, *ordered, *args, **kwargs)
        before = self._take_in_flight()
        outputs = [part] if scatters else list(whole.chunk(self.size()))
        in_turn = partial(self._exchange_in_turn, call, parts, algorithm, whole, part, options, before)
        if not options.asyncOp:
            self._queue.run(in_turn)
            return done(outputs)
        work = QueuedWork()
        self._queue.submit(in_turn, work.fail, lambda _: work.finish(outputs))
        return work

    def _exchange_in_turn(
        self,
        call: Call,
        parts: PlannedParts,
        algorithm: PartsAlgorithm,
        whole: torch.Tensor,
        part: torch.Tensor,
        options: Any,
        before: Sequence[Any],
    ) -> None:
        """One call of it in its turn, from start to end, in whichever thread."""
        for work in before:
            # What it failed with reaches whoever holds it; here only its end counts.
            with suppress(RuntimeError):
                work.wait()
        scatters = call is _REDUCE_SCATTER
        flat_whole, flat_part = (memory_of(tensor).contiguous().view(-1) for tensor in (whole, part))
        op = options.reduceOp.op if scatters else None
        with self._closing_on_error():
            ran = parts.run(algorithm, flat_whole, flat_part, op)
        if ran:
            self._usage.count(call.collective, algorithm.name)
        else:
            self._usage.count(call.collective, DEFAULT)
            given, taken = (flat_part, flat_whole) if scatters else (flat_whole, flat_part)
            self._forwards[call.method](given, taken, options).wait()
        output, flat = (part, flat_part) if scatters else (whole, flat_whole)
        if flat.data_ptr() != output.data_ptr():
            memory_of(output).copy_(flat.view(output.shape))

    def _build(self, build: Callable[[], Any]) -> None:
        with self._closing_on_error():
            build()

    def _forward(self, call: Call, *args: Any, **kwargs: Any) -> Any:
        """A call of the wrapped backend: straight to it, or behind what is in the queue."""
        if self._plans_cpu is None:
            self._read_config()
        forward = self._forwards[call.method]
        is_ordered = call.way != "direct" and (self._has_one_backend or _is_on_cpu(args, kwargs))
        if is_ordered and not self._queue.idle:
            return self._forward_behind(
                call, partial(forward, *args, **kwargs), _is_async(call, args, kwargs)
            )
        self._usage.straight[call.collective] += 1
        if (
            self._on_cuda is not None
            and self._on_cuda.planned.active
            and call.way != "direct"
            and not _is_on_cpu(args, kwargs)
        ):
            return self._on_cuda.forward(partial(forward, *args, **kwargs))
        if is_ordered and self._is_active() and _is_async(call, args, kwargs):
            self._remember(work := forward(*args, **kwargs))
            return work
        # Nothing between gloo's start and the caller's wait: a caller that goes on makes the kernel wake
        # gloo's thread on another processor, 50 µs where that one sleeps (2-core virtual machine, 2026).
        return forward(*args, **kwargs)

    def _forward_behind(self, call: Call, forward: Callable[[], Any], is_async: bool) -> Any:
        def in_turn() -> Any:
            self._usage.count(call.collective, DEFAULT)
            inner = forward()
            if inner is not None:
                inner.wait()
            return inner

        if not is_async:
            return self._queue.run(in_turn)
        work = QueuedWork()
        self._queue.submit(lambda: _outputs(in_turn()), work.fail, work.finish)
        return work

    def _is_active(self) -> bool:
        """Whether any call may be by an algorithm of ours, which must then wait for what is in flight."""
        return self._allreduce.active or any(parts.active for parts in self._parts.values())

    def _take_in_flight(self) -> tuple[Any, ...]:
        """What the wrapped backend was given and may not have ended yet; forgotten here."""
        taken = tuple(self._in_flight)
        self._in_flight.clear()
        return taken

    def _remember(self, work: dist.Work) -> None:
        """The wrapped backend has begun this; an algorithm of the plan must wait for it."""
        while self._in_flight and self._in_flight[0].is_completed():
            self._in_flight.popleft()
        self._in_flight.append(work)

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
        self._queue.fail(RuntimeError(f"the {self._usage.kind} was aborted"))
        for part in self._allreduces():
            part.abort()
        self.wrapped.abort()
        self._end()

    def shutdown(self) -> None:
        """Let what was called end, each call by its own timeout; then join the queue's thread."""
        self._queue.drain()
        self._queue.fail(RuntimeError(f"the {self._usage.kind} was shut down"))
        self.wrapped.shutdown()
        self._end()

    def leave(self) -> None:
        """Take leave of the others as the script ends; only what still runs here is broken off.

        A rank that has ended all its calls owes the others nothing. They may still be in the last of them,
        and an abort would end that for them as well.
        """
        if self._queue.idle:
            self.shutdown()
        else:
            self.abort()

    def _end(self) -> None:
        # A collective of the wrapped backend cannot be interrupted: its own timeout ends it, and then the
        # thread.
        if self._queue.join(JOIN_TIMEOUT_S):
            self._close_planned()
        self._in_flight.clear()
        if self._drift is not None:
            RECORD.close(self._drift)
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


def plain_group(store: Store, rank: int, size: int, backends: Mapping[str, Typed]) -> dist.ProcessGroup:
    """Torch's own process group on these backends, in no table of torch's."""
    group = dist.ProcessGroup(store, rank, size)
    register_backends(group, backends)
    return group


def register_backends(group: dist.ProcessGroup, backends: Mapping[str, Typed]) -> None:
    """Register the backends; the default one is that of CUDA where it differs, as in torch's own groups."""
    for device, (backend_type, backend) in backends.items():
        group._register_backend(torch.device(device), backend_type, backend)
    group._set_default_backend(backends.get("cuda", backends["cpu"])[0])


def _options(*args: Any, **kwargs: Any) -> AllreduceOptions:
    """Torch's other forms: ``allreduce(tensors, opts=…)``, ``allreduce(tensors, op, timeout)``."""
    given = dict(zip(("op", "timeout"), args, strict=False)) | kwargs
    if given.get("opts") is not None:
        options: AllreduceOptions = given["opts"]
        return options
    options = AllreduceOptions()
    if "op" in given:
        options.reduceOp = given["op"]
    if given.get("timeout") is not None:
        options.timeout = given["timeout"]
    return options


def _outputs(work: dist.Work) -> Any:
    """The outputs of a work that has ended; none where torch keeps none (gloo's reduce-scatter)."""
    try:
        return work.get_future().value()
    except RuntimeError:
        return []


def _is_async(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the caller goes on without waiting."""
    if call.blocks:
        return False
    for value in (*reversed(args), *kwargs.values()):
        is_async = getattr(value, "asyncOp", None)
        if is_async is not None:
            return bool(is_async)
    return True


def _is_on_cpu(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    values = (*args, *kwargs.values())
    tensor = _first_tensor(values)
    if tensor is not None:
        return tensor.is_cpu
    # A barrier has no tensor; torch runs it by the default backend unless it names a device.
    device = next((value.device for value in values if getattr(value, "device", None) is not None), None)
    return device is not None and device.type == "cpu"


def _first_tensor(values: Any) -> torch.Tensor | None:
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, list | tuple):
            tensor = _first_tensor(value)
            if tensor is not None:
                return tensor
    return None


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

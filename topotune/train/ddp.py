"""DDP's side: its bucket sizes from the agreed plan, and a hook that brings the plan to any other backend."""

import inspect
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket, ReduceOp
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from topotune.execute import Communicator
from topotune.execute.executable import Executable
from topotune.execute.nccl_communicator import NcclCommunicator
from topotune.plan import Plan, find_group
from topotune.plan.algorithms import DEFAULT
from topotune.train.agreement import agree
from topotune.train.allreduce import PlannedAllreduce
from topotune.train.backends import fresh_prefix
from topotune.train.fifo import FirstInFirstOut
from topotune.train.on_stream import OnStream
from topotune.train.planned import Algorithm
from topotune.train.planned_side import JOIN_TIMEOUT_S
from topotune.train.process_group import STANDING
from topotune.train.source import given_source, source_of
from topotune.train.tensors import is_plain, memory_of
from topotune.train.usage import REPORT, GroupUsage
from topotune.train.work import QueuedWork

Hook = Callable[[Any, GradBucket], Future[torch.Tensor]]

_CPU: Final = torch.device("cpu")


def ddp_kwargs() -> dict[str, Any]:
    """What ``DistributedDataParallel`` should be given under the plan that the world has agreed on.

    Returns:
        ``bucket_cap_mb`` or ``bucket_cap_mb_list``; empty where no plan is used, or the plan keeps torch's
        own.
    """
    world = next((group for group in STANDING if group.is_world), None)
    plan = world.agreement.plan if world is not None and world.agreement is not None else None
    if plan is None or plan.ddp is None or plan.ddp.bucket_caps_mb is None:
        return {}
    caps = plan.ddp.bucket_caps_mb
    if expressible(caps):
        return ddp_arguments(caps)
    if dist.get_rank() == 0:
        warnings.warn(
            f"topotune: the plan has {len(caps)} bucket sizes, and DDP of torch {torch.__version__} takes "
            "one: DDP's own are used",
            stacklevel=2,
        )
    return {}


def takes_cap_list() -> bool:
    """Whether DDP of this torch takes a list of bucket sizes."""
    return "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel.__init__).parameters


def expressible(caps_mb: Sequence[float]) -> bool:
    """Whether DDP of this torch can be given these bucket sizes."""
    return len(caps_mb) == 1 or takes_cap_list()


def ddp_arguments(caps_mb: Sequence[float] | None) -> dict[str, Any]:
    """Bucket sizes as DDP takes them: none, one (the first bucket's, too), or a list where there are several.

    Args:
        caps_mb: MiB, first bucket first; None for torch's own.
    """
    if caps_mb is None:
        return {}
    if len(caps_mb) == 1:
        return {"bucket_cap_mb": caps_mb[0]}
    return {"bucket_cap_mb_list": list(caps_mb)}


def ddp_comm_hook(plan: Plan | str | os.PathLike[str] | None = None) -> Hook:
    """A DDP communication hook that averages gradients by the plan, whatever the group's backend.

    ``model.register_comm_hook(state, topotune.ddp_comm_hook("plan.json"))``, where ``state`` is the process
    group of the model, or None for the default group. The ranks agree on the plan in the first backward.
    A plan for gloo serves gradients in CPU memory, one for nccl those on GPUs; what the plan has no algorithm
    for is reduced by the group itself.

    Args:
        plan: a plan, or the path of one; None for what `use` or TOPOTUNE_PLAN says.

    Raises:
        UsageError: neither a plan nor a path.
    """
    source = given_source() if plan is None else source_of(plan)
    sides: weakref.WeakKeyDictionary[dist.ProcessGroup, _HookSide] = weakref.WeakKeyDictionary()

    def topotune_hook(state: Any, bucket: GradBucket) -> Future[torch.Tensor]:
        group = dist.group.WORLD if state is None else state
        assert isinstance(group, dist.ProcessGroup), f"state is no process group or None: {type(state)}"
        side = sides.get(group)
        if side is None:
            side = sides[group] = _HookSide(group, source)
        return side.average(group, bucket.buffer())

    return topotune_hook


class _HookSide:
    """What the hook keeps for one process group: the agreement, a queue, private connections."""

    def __init__(self, group: dist.ProcessGroup, source: Any) -> None:
        size = group.size()
        self._usage = GroupUsage(kind=f"DDP hook on {size} rank{'s' if size > 1 else ''}")
        self._queue = FirstInFirstOut(self._usage.kind)
        self._allreduce: PlannedAllreduce | None = None
        self._on_cuda: OnStream | None = None
        REPORT.open(self._usage)
        if _CPU in group._device_types:
            self._agree(group, source)
        planned = self._allreduce if self._on_cuda is None else self._on_cuda.planned
        weakref.finalize(self, _end, os.getpid(), self._usage, self._queue, planned)

    def _agree(self, group: dist.ProcessGroup, source: Any) -> None:
        def timeout() -> timedelta:
            now: timedelta = group._get_backend(_CPU).options._timeout
            return now

        store = fresh_prefix(group.get_group_store(), group.size())
        agreement = agree(
            group, store, source, global_ranks=dist.get_process_group_ranks(group), timeout=timeout()
        )
        if agreement.warning is not None:
            warnings.warn(agreement.warning, stacklevel=2)
        if dist.get_rank() == 0:
            REPORT.speak_for_the_job()
            REPORT.set_outcome(agreement.outcome)
        tables = find_group(agreement.plan, agreement.shape()) if agreement.plan is not None else None
        if agreement.plan is None or tables is None or tables.allreduce is None:
            return
        self._usage.planned = True
        is_on_cuda = agreement.plan.fingerprint.hard.backend == "nccl"
        planned = PlannedAllreduce(
            store,
            group.rank(),
            group.size(),
            timeout=timeout,
            connect=NcclCommunicator if is_on_cuda else Communicator,
        )
        planned.rank_order = agreement.plan.rank_order
        planned.set_table(tables.allreduce)
        if is_on_cuda:
            self._on_cuda = OnStream(planned)
        else:
            self._allreduce = planned

    def average(self, group: dist.ProcessGroup, gradients: torch.Tensor) -> Future[torch.Tensor]:
        gradients.div_(group.size())
        if self._on_cuda is not None and is_plain(gradients, "cuda"):
            return self._average_on_cuda(self._on_cuda, group, gradients)
        algorithm = None
        if self._allreduce is not None and is_plain(gradients):
            algorithm = self._allreduce.choose(gradients.nbytes)
        if algorithm is None or not self._serves(algorithm, gradients):
            # In this thread: the group's own calls must keep their order, on all ranks.
            self._usage.count("allreduce", DEFAULT)
            return group.allreduce([gradients]).get_future().then(_first)
        work = QueuedWork()
        self._queue.submit(
            lambda: self._reduce(algorithm, gradients), work.fail, lambda _: work.finish([gradients])
        )
        return work.get_future().then(_first)

    def _average_on_cuda(
        self, on_cuda: OnStream, group: dist.ProcessGroup, gradients: torch.Tensor
    ) -> Future[torch.Tensor]:
        """The sum, on a stream; nothing waits on the host."""
        algorithm = on_cuda.planned.choose(gradients.nbytes)
        if algorithm is not None:
            work = on_cuda.allreduce(algorithm, gradients, memory_of(gradients).view(-1), ReduceOp.SUM)
            if work is not None:
                self._usage.count("allreduce", algorithm.name)
                return work.get_future().then(_first)
        self._usage.count("allreduce", DEFAULT)
        forwarded: dist.Work = on_cuda.forward(lambda: group.allreduce([gradients]))
        return forwarded.get_future().then(_first)

    def _serves(self, algorithm: Algorithm[Executable], gradients: torch.Tensor) -> bool:
        """Whether the algorithm takes these gradients; the first call builds it, behind what is queued."""
        allreduce = self._allreduce
        assert allreduce is not None
        if algorithm.executable is None:
            with self._queue.closing_on_error():
                self._queue.run(lambda: allreduce.build(algorithm))
        return allreduce.serves(algorithm, gradients, ReduceOp.SUM)

    def _reduce(self, algorithm: Algorithm[Executable], gradients: torch.Tensor) -> None:
        assert self._allreduce is not None
        with self._queue.closing_on_error():
            self._allreduce.run(algorithm, memory_of(gradients), ReduceOp.SUM)
        self._usage.count("allreduce", algorithm.name)


def _first(future: Future[Any]) -> torch.Tensor:
    tensors: list[torch.Tensor] = future.value()
    return tensors[0]


def _end(pid: int, usage: GroupUsage, queue: FirstInFirstOut, allreduce: PlannedAllreduce | None) -> None:
    """The hook is gone, or the process ends."""
    if os.getpid() != pid:  # a forked child ends; threads, connections and shared memory are its parent's
        return
    REPORT.close(usage)
    queue.fail(RuntimeError(f"the {usage.kind} has ended"))
    if allreduce is not None:
        allreduce.abort()
        if queue.join(JOIN_TIMEOUT_S):
            allreduce.close()

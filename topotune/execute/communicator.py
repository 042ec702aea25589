"""A private gloo group that knows nothing of torch's world and that torch's world knows nothing of.

Theory of operation. Schedules may run while a training job uses its own groups, so they need connections of
their own: other tags, other sequence numbers, another order of calls. ``dist.new_group`` cannot give them: it
is collective over the whole world, and counts groups in a table that all ranks must advance together. A
``ProcessGroupGloo`` made straight on a ``PrefixStore`` is collective over its members alone. It is wrapped in
a bare ``dist.ProcessGroup``, which is what torch's dispatcher operators (``torch.ops.c10d.send`` …) take;
neither is entered in any table of ``torch.distributed``.

How waits end (torch 2.13, by trial). A wait for a peer that never answers ends after the group's timeout,
with an error. ``ProcessGroup.abort()`` and ``shutdown()`` do *not* end it: they do nothing on gloo. What does
end it is a timeout of *any* operation of the same group: gloo then closes all connections ("Application
timeout caused pair closure"), every operation of this rank fails at once, and so does whatever a peer waits
for from this rank. ``abort()`` makes use of that: it waits one millisecond for a message that nobody sends,
from the first peer whose connection still stands: where that is closed already, nothing times out, and waits
for other peers go on. A group that timed out or was aborted is of no further use, so the communicator
remembers why and says so when it is used again.
"""

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import cache
from types import TracebackType
from typing import Any, Optional, Protocol, Self, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from topotune.errors import RunError
from topotune.execute.torchscript import ProcessGroup, compiled, has_torchscript
from topotune.units import format_seconds

_ABORT_TAG = 2**31 - 1  # no schedule has this many transfers
_ABORT_WAIT = timedelta(milliseconds=1)
_LET_GO_S = 0.1  # without TorchScript: time for gloo's threads to let go of tensors, see _LastReference
_DESTROYING = threading.Lock()


class _Resource(Protocol):
    def abort(self) -> None: ...

    def close(self) -> None: ...


Messages = list[tuple[torch.Tensor, int]]
"""Tensors, each with the rank that it goes to or comes from."""

ResourceT = TypeVar("ResourceT", bound=_Resource)


class Communicator:
    """Ranks ``0 … size-1`` joined by gloo; making one is collective over them, and over nobody else.

    One thread at a time may run a collective on it; ``abort()`` may come from any thread.

    Args:
        store: where the members meet.
        rank: own number, in ``range(size)``.
        size: number of members, >= 1.
        name: of the group, in the store and in messages; new in this store, and the same on all members.
        timeout: of every wait.
        connect_within: of joining, where that shall take less than a wait; also of subgroups.

    Attributes:
        library: that does its collectives, for messages.
        device: where messages and scratch are.

    Raises:
        RunError: not all members joined in time, or no connection could be made.
    """

    library = "gloo"

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        name: str,
        timeout: timedelta = timedelta(minutes=30),
        connect_within: timedelta | None = None,
    ) -> None:
        assert 0 <= rank < size, f"rank {rank} of {size}"
        self.device = torch.device("cpu")
        self.rank = rank
        self.size = size
        self.name = name
        self.timeout = timeout
        self.connect_within = timeout if connect_within is None else min(timeout, connect_within)
        self.lock = threading.Lock()
        self._store = PrefixStore(name, store)
        self._children: dict[str, Communicator] = {}
        self._resources: dict[str, _Resource] = {}
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self._failure: str | None = None
        self._waits_ended = False
        # What one thread closes, another may not be aborting: it would use memory that is no longer mapped,
        # or be the last to hold the group. (Functions of their own: what they hold is gone before the lock.)
        self._ending = threading.Lock()
        self._group: dist.ProcessGroup | None = self._connect()
        self._boxed: torch.ScriptObject | None = self._group.boxed()

    def _connect(self) -> dist.ProcessGroup:
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._timeout = self.timeout
        options._devices = _devices()
        options._threads = 2
        try:
            backend = self._join(options)
        except (RuntimeError, TimeoutError) as error:
            raise RunError(
                f"communicator {self.name!r}: rank {self.rank} could not join the {self.size} ranks within "
                f"{format_seconds(self.connect_within.total_seconds())}: {cause_in_words(error)}",
                hint="a rank died or never came; or GLOO_SOCKET_IFNAME must name the interface to the others",
            ) from error
        group = dist.ProcessGroup(self._store, self.rank, self.size)
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
        return group

    def _join(self, options: Any) -> dist.ProcessGroupGloo:
        """Gloo's part of it. It takes one timeout for joining and for every later wait.

        Raises:
            RuntimeError, TimeoutError: not all members joined in time.
        """
        if self.connect_within == self.timeout:
            return dist.ProcessGroupGloo(self._store, self.rank, self.size, options)
        joined: Future[dist.ProcessGroupGloo] = Future()

        def join() -> None:
            try:
                joined.set_result(dist.ProcessGroupGloo(self._store, self.rank, self.size, options))
            except RuntimeError as error:
                joined.set_exception(error)

        # Nothing ends gloo's joining but its timeout: where that is too long, the thread stays behind.
        threading.Thread(target=join, name=f"joining {self.name}", daemon=True).start()
        return joined.result(self.connect_within.total_seconds())

    @property
    def store(self) -> Store:
        """Where the members met; the communicator's own part of it."""
        return self._store

    @property
    def group(self) -> dist.ProcessGroup:
        """The bare process group, with gloo registered for the CPU.

        Raises:
            RunError: the communicator failed, was aborted or closed.
        """
        if self._failure is not None or self._group is None:
            raise self._unusable()
        return self._group

    @property
    def boxed(self) -> torch.ScriptObject:
        """``group`` as torch's dispatcher operators take it.

        Raises:
            RunError: as ``group``.
        """
        if self._failure is not None or self._boxed is None:
            raise self._unusable()
        return self._boxed

    def _unusable(self) -> RunError:
        return RunError(
            f"communicator {self.name!r} cannot be used on rank {self.rank}: {self._failure}",
            hint="make a new one: gloo closes all connections of a group when one wait fails",
        )

    def subgroup(self, ranks: Sequence[int], name: str) -> "Communicator | None":
        """A communicator of some members, numbered in the order given; collective over those alone.

        It is aborted and closed with this one. Asked for again with the same ranks and name, it is the same
        one.

        Args:
            ranks: ranks of this communicator, each once.
            name: what it is for, the same on all members; disjoint groups may share one.

        Returns:
            None on ranks that are no members.
        """
        assert len(set(ranks)) == len(ranks), f"subgroup {name!r} names a rank twice: {ranks}"
        if self.rank not in ranks:
            return None
        # The ranks are part of the name: two groups that met under one would mix their addresses.
        identity = hashlib.sha256(repr(list(ranks)).encode()).hexdigest()[:16]
        full_name = f"{self.name}/{name}-{identity}"
        if full_name not in self._children:
            self._children[full_name] = self._of_members(ranks.index(self.rank), len(ranks), full_name)
        return self._children[full_name]

    def _of_members(self, rank: int, size: int, name: str) -> "Communicator":
        return Communicator(
            self._store, rank, size, name=name, timeout=self.timeout, connect_within=self.connect_within
        )

    def resource(self, name: str, make: Callable[[], ResourceT]) -> ResourceT:
        """What several users of this communicator share; made by the first, aborted and closed with this.

        Args:
            name: one for each thing.
            make: makes it; collective if it must be.
        """
        if name not in self._resources:
            self._resources[name] = make()
        return cast(ResourceT, self._resources[name])

    def scratch(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory for the holder of ``lock``; shape (num_elements,), uninitialised, on the group's device.

        There is one piece of it, as large as the largest request so far; every request returns its beginning.
        """
        num_bytes = num_elements * dtype.itemsize
        if self._scratch.numel() < num_bytes:
            self._scratch = torch.empty(num_bytes, dtype=torch.uint8, device=self.device)
        return self._scratch[:num_bytes].view(dtype)

    def exchange(self, sends: Messages, receives: Messages) -> None:
        """Send and receive at the same time. Between two ranks messages are matched by their order.

        Returns when the received messages may be used by what follows: on this communicator, in memory.
        """
        works = [self.group.recv([part], peer, 0) for part, peer in receives]
        works += [self.group.send([part], peer, 0) for part, peer in sends]
        for work in works:
            work.wait()

    def fail(self, cause: str) -> None:
        """A wait failed: later calls say why, and peers that wait for this rank fail too, in milliseconds.

        Gloo closes all connections where a wait timed out, but where one was closed by its peer, that alone.
        """
        self._remember(cause)
        self.abort()

    def _remember(self, cause: str) -> None:
        if self._failure is None:
            self._failure = cause

    def abort(self) -> None:
        """End every wait of this rank on this communicator and its subgroups, in any thread, in milliseconds.

        Peers that wait for this rank fail as well; others end by their own timeout or abort.
        """
        with self._ending:
            self._abort()

    def _abort(self) -> None:
        for part in (*self._children.values(), *self._resources.values()):
            part.abort()
        group = self._group
        if self._waits_ended or group is None:
            return
        self._remember("it was aborted")
        self._waits_ended = True
        self._end_waits(group)

    def _end_waits(self, group: dist.ProcessGroup) -> None:
        end_waits(group)

    def close(self) -> None:
        """Drop the connections. No collective may be running; ``abort()`` first if one might be."""
        with self._ending:
            self._close()

    def _close(self) -> None:
        for part in (*self._children.values(), *self._resources.values()):
            part.close()
        self._children.clear()
        self._resources.clear()
        self._remember("it was closed")
        if self._boxed is not None:
            with _DESTROYING:
                last_reference = _last_reference()
                last_reference.hold(self._boxed)
                self._group = self._boxed = None
                if not has_torchscript():
                    time.sleep(_LET_GO_S)
                last_reference.drop()
        self._scratch = torch.empty(0, dtype=torch.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _LastReference(torch.nn.Module):
    """Where a process group can be destroyed without the interpreter lock.

    Gloo's threads may still be letting go of the last call's tensors, for which they need the lock; the
    destructor of the group joins them, and Python's own reference counting runs it with the lock held: a
    deadlock (torch 2.13, seen once in some hundred closes on a loaded machine).
    """

    group: Optional[ProcessGroup]  # noqa: UP045 (| is not defined for TorchScript's classes)

    def __init__(self) -> None:
        super().__init__()
        self.group = None

    @torch.jit.export
    def hold(self, group: ProcessGroup) -> None:
        self.group = group

    @torch.jit.export
    def drop(self) -> None:
        self.group = None


@cache
def _last_reference() -> Any:
    return compiled(_LastReference())


def end_waits(group: dist.ProcessGroup) -> None:
    """End every wait of this rank on a gloo group, in any thread, in milliseconds; the group is then useless.

    Peers that wait for this rank fail as well.
    """
    for distance in range(1, group.size()):
        # A peer that is gone already fails this one message alone; a wait that times out closes everything,
        # and then the messages to all others fail at once.
        peer = (group.rank() + distance) % group.size()
        try:
            group.recv([torch.empty(1, dtype=torch.uint8)], peer, _ABORT_TAG).wait(_ABORT_WAIT)
        except RuntimeError:
            continue
        raise AssertionError(f"rank {peer} sent a message with the tag of abort")


def _devices() -> list[dist.ProcessGroupGloo.Device]:
    """The interfaces that torch's own gloo groups would take."""
    interfaces = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    if interfaces:
        return [dist.ProcessGroupGloo.create_device(interface=name) for name in interfaces]
    return [dist.ProcessGroupGloo.create_default_device()]


def cause_in_words(error: BaseException) -> str:
    """What a torch error says happened, without source positions and TorchScript tracebacks; one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    failed = [line for line in lines if line.startswith("RuntimeError: ")]
    line = failed[-1].removeprefix("RuntimeError: ") if failed else lines[0]
    return re.sub(r"^\[/[^\]]*\]\s*", "", line).split(" This is typically caused by")[0]

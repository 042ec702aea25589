"""A cluster of namespaces: made, used to start commands on its nodes, and taken down whole.

    switch                network namespace with the bridges
    node a, node b, …     network, UTS, IPC and mount namespace each: own address, host name, /dev/shm, /sys

Taking down is killing every process in the network namespaces: with the last one a namespace ends, and with
it its interfaces, bridges, token buckets and mounts.
"""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from topotune.errors import RunError, UsageError
from topotune.lab import inside, network, registry
from topotune.lab.profile import LabProfile

_SCRIPT: Final = Path(inside.__file__)
# Isolated from the user's folder and variables, and without site-packages: it starts in 10 ms.
_INSIDE: Final = (sys.executable, "-I", "-S", str(_SCRIPT))
_SWITCH: Final = "switch"
_HOLDER_TIMEOUT_S: Final = 30.0
_TEARDOWN_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Cluster:
    """A running lab cluster; use it in a ``with`` block, which takes it down however the block ends.

    Args:
        profile: what to build.
        latency: whether links get the delays of the profile.
        root: where labs are registered.

    Raises:
        UsageError: no root, no right to make namespaces, or a latency on a kernel without netem.
        RunError: the kernel lacks something else.
    """

    def __init__(self, profile: LabProfile, *, latency: bool = True, root: Path = registry.ROOT) -> None:
        self.profile = profile
        self._latency = latency and profile.has_latency
        self._root = root
        self._record: registry.LabRecord | None = None
        self._holders: list[subprocess.Popen[str]] = []
        self._started: list[subprocess.Popen[Any]] = []
        self._namespaces: dict[int, int] = {}  # inode number → descriptor, in the order of the holders
        self._kept = False

    @property
    def record(self) -> registry.LabRecord:
        """The lab as it is registered."""
        assert self._record is not None, "used outside of its with block"
        return self._record

    @property
    def folder(self) -> Path:
        """A folder that goes with the lab."""
        return registry.folder_of(self.record.id, self._root)

    def __enter__(self) -> Self:
        require_root()
        try:
            self._build()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._kept:
            self._take_down()

    def popen(self, node_index: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command inside a node, in this process's working directory.

        It is in a session of its own (Ctrl-C on the terminal does not reach it) and gets SIGTERM if this
        process dies.

        Args:
            node_index: which node of the profile.
            command: the command line.
            options: for subprocess.Popen.
        """
        holder = self._holders[1 + node_index]
        started = subprocess.Popen(
            [*_INSIDE, "enter", str(holder.pid), str(os.getpid()), "--", *command],
            start_new_session=True,
            **options,
        )
        self._started.append(started)
        return started

    def keep(self) -> None:
        """Leave the cluster up when the ``with`` block ends; `registry.remove_ownerless` takes it down."""
        registry.keep(self.record, self._root)
        self._kept = True
        for holder in self._holders:
            assert holder.stdin is not None
            holder.stdin.write(inside.KEEP.decode())
            holder.stdin.close()
        self._close_descriptors()

    def _build(self) -> None:
        self._record = registry.create(self.profile.name, self._root)
        hosts_file = self.folder / "hosts"
        hosts_file.write_text(network.hosts_text(self.profile), encoding="ascii")
        names = [_SWITCH, *(node.name for node in self.profile.nodes)]
        for name in names:
            self._holders.append(_start_holder(name, self.record.id, hosts_file))
        for holder in self._holders:
            _await_ready(holder)
            descriptor = os.open(f"/proc/{holder.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self._namespaces[os.fstat(descriptor).st_ino] = descriptor
        self._record = replace(
            self.record,
            holders={
                node.name: holder.pid
                for node, holder in zip(self.profile.nodes, self._holders[1:], strict=True)
            },
            net_inodes=tuple(self._namespaces),
        )
        registry.write(self.record, self._root)
        switch, *nodes = self._namespaces.values()
        if self._latency:
            network.require_latency(switch, self.profile)
        network.build(self.profile, switch, nodes, latency=self._latency)

    def _take_down(self) -> None:
        with _undisturbed():
            # First those that may still be on their way in.
            for started in self._started:
                started.kill()
            try:
                registry.kill_processes(self._namespaces)
            finally:
                self._close_descriptors()
            for holder in self._holders:
                # One that failed before it had a namespace of its own is not among the killed.
                holder.kill()
                for pipe in (holder.stdin, holder.stdout):
                    assert pipe is not None
                    pipe.close()
            for process in (*self._started, *self._holders):
                process.wait()
            if self._record is not None:
                registry.forget(self._record.id, self._root)

    def _close_descriptors(self) -> None:
        for descriptor in self._namespaces.values():
            os.close(descriptor)
        self._namespaces.clear()


def place_command(ranks: Sequence[int], command: Sequence[str]) -> list[str]:
    """The command line that becomes ``command`` as the rank that is placed on this local rank."""
    return [*_INSIDE, "rank", ",".join(map(str, ranks)), "--", *command]


def enter_command(holders: Mapping[str, int], node: str) -> str:
    """The command line by which a person enters a node of a kept lab."""
    return f"nsenter --target {holders[node]} --net --uts --ipc --mount"


def require_root() -> None:
    """Raise UsageError unless this is Linux and this process is root's."""
    if sys.platform != "linux":
        raise UsageError(f"topotune lab needs Linux, to make network namespaces; this is {sys.platform}")
    if os.geteuid() != 0:
        raise UsageError("topotune lab needs root, to make network namespaces")


def _start_holder(name: str, lab_id: str, hosts_file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_INSIDE, "hold", name, lab_id, str(hosts_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _await_ready(holder: subprocess.Popen[str]) -> None:
    assert holder.stdout is not None
    words = holder.stdout.readline().split()
    if words == [inside.READY]:
        holder.stdout.close()
        return
    if len(words) == 3 and words[0] == "failed":
        call, number = words[1], int(words[2])
        if number == errno.EPERM:
            raise UsageError(
                f"topotune lab may not make namespaces here: {call}: {os.strerror(number)}",
                hint="it needs CAP_SYS_ADMIN and CAP_NET_ADMIN; a container needs --privileged",
            )
        raise RunError(f"the namespaces of a lab node cannot be made: {call}: {os.strerror(number)}")
    raise RunError(f"the process that keeps a lab node ended with exit code {holder.wait(_HOLDER_TIMEOUT_S)}")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore a second Ctrl-C while a cluster is taken down, which takes a moment and must be whole."""
    # signal.signal works in the main thread alone, and no other thread gets KeyboardInterrupt anyway.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _TEARDOWN_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Which labs there are on this machine, whose they are, and removing those that are nobody's.

Each lab has a folder ``/run/topotune/labs/ID`` with ``lab.json``: the process that owns it (its id and the
time it started, since ids come again), and the network namespaces it made. A lab without a living owner is
removed by the next `topotune lab`, unless it was kept on purpose; `topotune lab --down` removes those too.

What a dead lab left running is found by its network namespaces: every process in one of them is the lab's.
The kernel gives the number of a namespace anew once it is gone, so a number alone proves nothing: a lab
writes its own id on the loopback interface of each namespace, and nothing is killed where it does not stand.

Folders come and go under a lock on ``/run/topotune`` itself; that folder goes with the last lab, and no file
stays.
"""

import errno
import fcntl
import json
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from topotune.errors import RunError, UsageError
from topotune.lab.netlink import route_in

ROOT: Final = Path("/run/topotune/labs")
_RECORD: Final = "lab.json"
_KILL_TIMEOUT_S: Final = 15.0
_KILL_INTERVAL_S: Final = 0.02
_LO_INDEX: Final = 1


@dataclass(frozen=True, kw_only=True)
class LabRecord:
    """A lab as its folder tells of it.

    Attributes:
        id: names the folder, and marks the lab's namespaces.
        profile: the profile's name.
        owner_pid: the process that made it.
        owner_start_ticks: when that process started, in clock ticks since the machine did.
        kept: it shall outlive its owner.
        holders: node name → process that keeps the node's namespaces.
        net_inodes: inode numbers of the network namespaces.
    """

    id: str
    profile: str
    owner_pid: int
    owner_start_ticks: int
    kept: bool = False
    holders: Mapping[str, int]
    net_inodes: tuple[int, ...]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        members: dict[str, Any] = json.loads(text)
        return cls(**{**members, "net_inodes": tuple(members["net_inodes"])})

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self), indent=1)


def create(profile: str, root: Path = ROOT) -> LabRecord:
    """Enter a new lab of this process; its folder is there afterwards.

    Raises:
        UsageError: the folder cannot be made.
    """
    pid = os.getpid()
    start_ticks = _start_ticks(pid)
    assert start_ticks is not None, "this process runs"
    record = LabRecord(
        id=f"lab-{secrets.token_hex(6)}",
        profile=profile,
        owner_pid=pid,
        owner_start_ticks=start_ticks,
        holders={},
        net_inodes=(),
    )
    with _locked(root):
        folder_of(record.id, root).mkdir(mode=0o700, parents=True)
        write(record, root)
    return record


def write(record: LabRecord, root: Path = ROOT) -> None:
    """Replace what a lab's folder tells of it."""
    folder = folder_of(record.id, root)
    fresh = folder / f"{_RECORD}.new"
    fresh.write_text(record.to_json(), encoding="utf-8")
    fresh.replace(folder / _RECORD)


def keep(record: LabRecord, root: Path = ROOT) -> None:
    """Let a lab outlive its owner."""
    write(replace(record, kept=True), root)


def forget(lab_id: str, root: Path = ROOT) -> None:
    """Remove a lab's folder, and the folders above it with the last one."""
    with _locked(root):
        _remove_folder(lab_id, root)


def remove_ownerless(*, kept_too: bool, root: Path = ROOT) -> tuple[LabRecord, ...]:
    """Remove every lab whose owner is gone: its processes, with them its namespaces, and its folder.

    Args:
        kept_too: also those that were kept on purpose.
        root: the folder of the labs' folders.

    Returns:
        What was removed.

    Raises:
        RunError: a process in one of them cannot be killed.
    """
    if not root.exists():
        return ()
    removed = []
    with _locked(root):
        for folder in sorted(root.iterdir()) if root.exists() else ():
            record = _read(folder)
            if record is not None:
                if _owner_lives(record) or (record.kept and not kept_too):
                    continue
                _kill_marked(record)
                removed.append(record)
            _remove_folder(folder.name, root)
    return tuple(removed)


def folder_of(lab_id: str, root: Path = ROOT) -> Path:
    """Where a lab keeps what it needs as files."""
    return root / lab_id


def kill_processes(namespaces: Mapping[int, int]) -> None:
    """Kill every process in these network namespaces, and wait until none is left.

    Args:
        namespaces: inode number → a descriptor open on that very namespace (so that the number cannot be
            another's meanwhile).

    Raises:
        RunError: a process does not die within 15 s.
    """
    for inode, descriptor in namespaces.items():
        assert os.fstat(descriptor).st_ino == inode, "the descriptor holds this namespace"
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while inside := {pid: inode for pid, inode in _net_inodes_of_processes() if inode in namespaces}:
        for pid, inode in inside.items():
            _kill_if_in(pid, inode)
        if time.monotonic() > deadline:
            pids = ", ".join(map(str, sorted(inside)))
            raise RunError(
                f"process {pids} of the lab is still there {_KILL_TIMEOUT_S:.0f} s after it was killed",
                hint="it hangs in the kernel; `topotune lab --down` tries again",
            )
        time.sleep(_KILL_INTERVAL_S)


def _kill_marked(record: LabRecord) -> None:
    """Kill what is left of a dead lab, in those of its namespaces that bear its mark."""
    open_on: dict[int, int] = {}
    try:
        for pid, inode in _net_inodes_of_processes():
            if inode in record.net_inodes and inode not in open_on:
                try:
                    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue  # it ended just now; what is left of the others still counts
                if os.fstat(descriptor).st_ino == inode and _mark_on(descriptor) == record.id:
                    open_on[inode] = descriptor
                else:
                    os.close(descriptor)
        kill_processes(open_on)
    finally:
        for descriptor in open_on.values():
            os.close(descriptor)


def _mark_on(descriptor: int) -> str | None:
    """What is written on the loopback interface of a network namespace."""
    with route_in(descriptor) as inside:
        (loopback,) = inside.get_links(_LO_INDEX)
        mark: str | None = loopback.get_attr("IFLA_IFALIAS")
        return mark


def _net_inodes_of_processes() -> Iterator[tuple[int, int]]:
    """Every process that can be looked into, with the inode number of its network namespace."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                yield int(entry), os.stat(f"/proc/{entry}/ns/net").st_ino
            except OSError as problem:
                # It ended while we looked, or has ended and nobody waited for it yet.
                if problem.errno not in (errno.ENOENT, errno.ESRCH, errno.EACCES):
                    raise


def _kill_if_in(pid: int, inode: int) -> None:
    """Kill a process if it is still the one in this namespace."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if os.stat(f"/proc/{pid}/ns/net").st_ino == inode:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass  # gone by itself
    finally:
        os.close(handle)


def _owner_lives(record: LabRecord) -> bool:
    return _start_ticks(record.owner_pid) == record.owner_start_ticks


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None if it runs no more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses and may hold blanks; see proc(5).
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def _read(folder: Path) -> LabRecord | None:
    """A lab's record; None if its owner died before it wrote one, and so before it started anything."""
    path = folder / _RECORD
    try:
        return LabRecord.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as problem:
        raise RunError(
            f"{path}: is no record of a lab: {problem}",
            hint=f"if no lab of another topotune runs, remove {folder}",
        ) from problem


def _remove_folder(lab_id: str, root: Path) -> None:
    if folder_of(lab_id, root).exists():
        shutil.rmtree(folder_of(lab_id, root))
    for folder in (root, root.parent):
        try:
            folder.rmdir()
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise
            return


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock under which labs come and go.

    The locked folder itself may be removed by whoever held the lock before; then a fresh one is locked.
    """
    anchor = root.parent
    while True:
        try:
            anchor.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(anchor, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as problem:
            if anchor.parent.exists():
                continue  # removed between the two calls
            raise UsageError(
                f"the lab keeps its state in {root}, and {anchor.parent} does not exist"
            ) from problem
        except OSError as problem:
            raise UsageError(
                f"the lab keeps its state in {root}, which cannot be made: {problem.strerror}"
            ) from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if anchor.exists() and os.path.samestat(os.fstat(descriptor), anchor.stat()):
                yield
                return
        finally:
            os.close(descriptor)

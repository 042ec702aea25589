"""What runs inside a lab node's namespaces: a script of the standard library alone (``python -I -S``).

    inside.py hold NAME LAB_ID HOSTS_FILE       makes a node's namespaces and keeps them
    inside.py enter HOLDER_PID LAB_PID -- CMD…  becomes CMD inside the namespaces that HOLDER_PID keeps
    inside.py rank RANK,RANK,… -- CMD…          becomes CMD as the rank that the profile places here

A *holder* owns the namespaces of one node; no name of them exists anywhere else, so that they end with the
last process inside. It lives while its standard input is open, and so dies with the lab however the lab dies;
a byte on it instead means that the lab stays up without its owner. The holder writes ``ready`` on standard
output once everything inside the node but the network's wires is there, or ``failed CALL ERRNO``.

Python 3.12 has os.setns and os.unshare; 3.11 and mount(2) need ctypes, so all calls go that way.
"""

import ctypes
import os
import re
import signal
import socket
import sys
from typing import NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
PR_SET_PDEATHSIG = 1

NAMESPACES = ("net", "uts", "ipc", "mnt")
KEEP = b"k"
READY = "ready"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # the shell's exit codes

_libc = ctypes.CDLL(None, use_errno=True)


class CallError(OSError):
    """A system call failed; ``filename`` holds which."""


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise CallError(number, os.strerror(number), call)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode(),
    )
    _check(result, f"mount({target})")


def hold(name: str, lab_id: str, hosts_file: str) -> None:
    """Make the namespaces of a node, say so, and keep them until standard input ends."""
    try:
        _check(_libc.unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS), "unshare")
        socket.sethostname(name)
        # A slave still sees what is mounted outside, and nothing that is mounted here is seen outside.
        _mount("none", "/", None, MS_REC | MS_SLAVE)
        _mount("tmpfs", os.path.realpath("/dev/shm"), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
        _mount_own_sysfs()
        if os.path.exists("/etc/hosts"):
            _mount(hosts_file, "/etc/hosts", None, MS_BIND)
        _prepare_network(lab_id)
    except OSError as problem:
        sys.stdout.write(f"failed {problem.filename} {problem.errno}\n")
        return
    os.chdir("/")
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    # A kept node outlives the command line; it must not hold the pipes of whoever reads that.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    if os.read(0, 1) == KEEP:
        os.dup2(null, 0)
        while True:
            signal.pause()


def _mount_own_sysfs() -> None:
    """Show the node's own interfaces: a sysfs has those of its mounter. Mounts below /sys stay there."""
    inner = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in _mounts_below("/sys/")]
    _mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for path, descriptor in inner:
        _mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND | MS_REC)
        os.close(descriptor)


def _mounts_below(prefix: str) -> list[str]:
    """Mount points below a prefix, without those below another of them."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        # The fifth field; blanks and backslashes stand there as octal escapes.
        points = {
            re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in file
        }
    below = sorted(point for point in points if point.startswith(prefix))
    return [p for p in below if not any(p.startswith(f"{other}/") for other in below)]


def _prepare_network(lab_id: str) -> None:
    """Switch IPv6 off (its chatter would draw on the token buckets), and leave the lab's mark on ``lo``."""
    for scope in ("all", "default"):
        path = f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"
        if os.path.exists(path):
            _write(path, "1")
    _write("/sys/class/net/lo/ifalias", lab_id)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def enter_namespace(descriptor: int, name: str) -> None:
    """Move this thread into the namespace that a descriptor is open on."""
    _check(_libc.setns(descriptor, 0), f"setns({name})")


def enter(holder_pid: str, lab_pid: int, command: list[str]) -> NoReturn:
    """Become a command inside the namespaces of a holder, in the same working directory."""
    folder = os.getcwd()
    descriptors = [
        os.open(f"/proc/{holder_pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES
    ]
    for name, descriptor in zip(NAMESPACES, descriptors, strict=True):
        enter_namespace(descriptor, name)
    os.chdir(folder)  # entering a mount namespace leads to its root
    # The lab may die without a chance to stop what it started, and may have died before this call.
    _check(_libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM)), "prctl")
    if os.getppid() != lab_pid:
        sys.exit(128 + signal.SIGTERM)
    _become(command)


def place(ranks: list[int], command: list[str]) -> NoReturn:
    """Become a command as the rank that is placed on this local rank; only rank 0 keeps standard output."""
    rank = ranks[int(os.environ["LOCAL_RANK"])]
    os.environ["RANK"] = os.environ["ROLE_RANK"] = str(rank)
    if rank != 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
    _become(command)


def _become(command: list[str]) -> NoReturn:
    try:
        os.execvp(command[0], command)
    except OSError as problem:
        sys.stderr.write(f"error: {command[0]}: {problem.strerror}\n")
        sys.exit(NOT_FOUND if isinstance(problem, FileNotFoundError) else NOT_EXECUTABLE)


def _main(arguments: list[str]) -> None:
    match arguments:
        case ["hold", name, lab_id, hosts_file]:
            hold(name, lab_id, hosts_file)
        case ["enter", holder_pid, lab_pid, "--", *command]:
            enter(holder_pid, int(lab_pid), command)
        case ["rank", ranks, "--", *command]:
            place([int(rank) for rank in ranks.split(",")], command)
        case _:
            raise AssertionError(f"inside.py was started with {arguments}")


if __name__ == "__main__":
    _main(sys.argv[1:])

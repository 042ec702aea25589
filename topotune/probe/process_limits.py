"""What the kernel lets this process do: memory it may lock, CPUs it may run on, shared memory it may fill."""

import re
from typing import Final

from topotune.probe.kernel_text import parse_cpulist
from topotune.probe.tree import Tree

UNLIMITED: Final = "unlimited"
_MAX_PROC_BYTES: Final = 64 * 1024
_MAX_MOUNTS_BYTES: Final = 1024 * 1024
_MEMLOCK = re.compile(r"^Max locked memory +(unlimited|[0-9]{1,20}) ", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-fA-F]{1,16})$", re.MULTILINE)
_CPUS = re.compile(r"^Cpus_allowed_list:\s*([0-9,-]{1,4000})$", re.MULTILINE)
_IPC_LOCK: Final = 14  # CAP_IPC_LOCK (capability.h): such a process may lock all that there is
_SIZE = re.compile(r"(?:^|,)size=([0-9]{1,18})([kmgt]?)(?:,|$)", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def read_process_limits(tree: Tree) -> dict[str, str | int | float | bool | None]:
    """Facts about this process; of a captured tree, about whoever captured it."""
    limits = tree.text("proc/self/limits", max_bytes=_MAX_PROC_BYTES) or ""
    status = tree.text("proc/self/status", max_bytes=_MAX_PROC_BYTES) or ""
    mounts = tree.text("proc/self/mounts", max_bytes=_MAX_MOUNTS_BYTES, cut=True)
    if mounts is None:
        mounts = tree.text("proc/mounts", max_bytes=_MAX_MOUNTS_BYTES, cut=True) or ""
    return {
        "memlock_limit_bytes": parse_memlock(limits),
        "can_lock_memory": parse_can_lock_memory(status),
        "usable_cpus": parse_usable_cpus(status),
        "shm_bytes": parse_shm_size(mounts),
    }


def parse_memlock(limits: str) -> int | str | None:
    """/proc/self/limits → bytes that may be locked, ``unlimited``, or None."""
    match = _MEMLOCK.search(limits)
    if match is None:
        return None
    return UNLIMITED if match[1] == UNLIMITED else min(int(match[1]), 2**62)


def parse_can_lock_memory(status: str) -> bool | None:
    """/proc/self/status → whether the process may lock memory beyond its limit."""
    match = _CAPABILITIES.search(status)
    return None if match is None else bool(int(match[1], 16) >> _IPC_LOCK & 1)


def parse_usable_cpus(status: str) -> str | None:
    """/proc/self/status → the CPUs on which the process may run, as the kernel lists them."""
    match = _CPUS.search(status)
    if match is None:
        return None
    try:
        parse_cpulist(match[1])
    except ValueError:
        return None
    return match[1]


def parse_shm_size(mounts: str) -> int | None:
    """/proc/self/mounts → bytes that /dev/shm may hold; None where the mount does not say."""
    found = None
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) >= 4 and words[1] == "/dev/shm" and words[2] == "tmpfs":
            match = _SIZE.search(words[3])
            found = None if match is None else int(match[1]) * _UNITS[match[2].lower()]
    return found

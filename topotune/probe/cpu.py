"""CPU sockets and what stands in /proc/cpuinfo."""

import re
from dataclasses import dataclass
from typing import Final

from topotune.probe.kernel_text import parse_cpulist, parse_index
from topotune.probe.tree import Tree

CPUS: Final = "sys/devices/system/cpu"
# About 1.5 to 3 KB for each logical CPU: enough for 1,000 CPUs, and what lies beyond would say the same.
_MAX_CPUINFO_BYTES = 4 * 2**20
_CPU = re.compile(r"cpu([0-9]{1,5})")
_DIGITS = re.compile(r"[0-9]{1,5}")
# By preference: x86 and RISC-V, POWER, some Arm boards.
_MODEL_KEYS = ("model name", "cpu", "Model", "Hardware")


@dataclass(frozen=True, kw_only=True, slots=True)
class Socket:
    """One CPU socket.

    Attributes:
        index: the kernel's package number; None where it does not say.
        cpus: its logical CPUs.
    """

    index: int | None
    cpus: frozenset[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuInfo:
    """What /proc/cpuinfo says.

    Attributes:
        model: ``AMD EPYC 7763 64-Core Processor``.
        cores_per_socket: physical cores.
        hypervisor: True where the CPU itself says that it runs below one; False where it says its flags and
            not this.
        sockets: logical CPUs by package number, where it says so.
        num_cpus: logical CPUs listed.
    """

    model: str | None = None
    cores_per_socket: int | None = None
    hypervisor: bool | None = None
    sockets: tuple[Socket, ...] = ()
    num_cpus: int = 0


def read_cpuinfo(tree: Tree) -> CpuInfo:
    """What /proc/cpuinfo says; all unknown where it is absent."""
    text = tree.text("proc/cpuinfo", max_bytes=_MAX_CPUINFO_BYTES, cut=True)
    return CpuInfo() if text is None else parse_cpuinfo(text)


def parse_cpuinfo(text: str) -> CpuInfo:
    """/proc/cpuinfo of any architecture → what it says; lines of other forms are passed over."""
    first: dict[str, str] = {}
    packages: dict[int, set[int]] = {}
    cpu: int | None = None
    num_cpus = 0
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        first.setdefault(key, value)
        if key == "processor" and _DIGITS.fullmatch(value):
            cpu = int(value)
            num_cpus += 1
        elif key == "physical id" and _DIGITS.fullmatch(value) and cpu is not None:
            packages.setdefault(int(value), set()).add(cpu)
    model = next((first[key] for key in _MODEL_KEYS if first.get(key)), None)
    if model is None and "CPU implementer" in first:
        model = f"Arm implementer {first['CPU implementer']} part {first.get('CPU part', 'unknown')}"
    cores = first.get("cpu cores", "")
    return CpuInfo(
        model=None if model is None else " ".join(model.split())[:200],
        cores_per_socket=int(cores) if _DIGITS.fullmatch(cores) and int(cores) > 0 else None,
        hypervisor="hypervisor" in first["flags"].split() if "flags" in first else None,
        sockets=tuple(Socket(index=index, cpus=frozenset(cpus)) for index, cpus in sorted(packages.items())),
        num_cpus=num_cpus,
    )


def read_sockets(tree: Tree, cpuinfo: CpuInfo) -> tuple[Socket, ...]:
    """The sockets, by number: from /sys, else from /proc/cpuinfo, else all CPUs as one without a number."""
    online = tree.value(f"{CPUS}/online", parse_cpulist)
    if not online:
        numbers = [int(match[1]) for match in map(_CPU.fullmatch, tree.children(CPUS)) if match]
        online = frozenset(numbers) or frozenset(range(cpuinfo.num_cpus))
    packages: dict[int, set[int]] = {}
    covered: set[int] = set()
    for cpu in sorted(online):
        if cpu in covered:
            continue
        folder = f"{CPUS}/cpu{cpu}/topology"
        package = tree.value(f"{folder}/physical_package_id", parse_index)
        if package is None:
            break
        # The older name is the same list.
        siblings = tree.value(f"{folder}/package_cpus_list", parse_cpulist) or tree.value(
            f"{folder}/core_siblings_list", parse_cpulist
        )
        members = {cpu, *(siblings or ())} & online
        packages.setdefault(package, set()).update(members)
        covered |= members
    if packages and covered == online:
        return tuple(Socket(index=index, cpus=frozenset(cpus)) for index, cpus in sorted(packages.items()))
    if cpuinfo.sockets:
        return cpuinfo.sockets
    tree.faults.add("CPU sockets are not known: all CPUs stand as one")
    return (Socket(index=None, cpus=online),)

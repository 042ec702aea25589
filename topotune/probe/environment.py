"""What surrounds the hardware: host name, kernel, distribution, container, virtual machine, memory."""

import re
from typing import Final

from topotune.probe.cpu import CpuInfo
from topotune.probe.kernel_text import parse_mem_total, parse_word
from topotune.probe.tree import Tree

DMI: Final = "sys/class/dmi/id"
Fact = str | int | float | bool | None

_MAX_PROC_BYTES = 64 * 1024
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}")
# Files and folders that a container runtime leaves in the root it makes.
_CONTAINER_MARKS = (
    (".dockerenv", "docker"),
    ("run/.containerenv", "podman"),
    (".singularity.d", "apptainer"),
)
_CONTAINER_CGROUPS = re.compile(r"[/-](docker|kubepods|containerd|crio|libpod|lxc|garden|podman)\b")
# Vendor or product in the firmware's tables -> hypervisor. Bare-metal instances of a cloud carry the same
# vendor, so this names a hypervisor only where the CPU says that there is one.
_HYPERVISORS = (
    ("amazon ec2", "nitro"),
    ("google", "kvm"),
    ("microsoft", "hyper-v"),
    ("vmware", "vmware"),
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("openstack", "kvm"),
    ("xen", "xen"),
    ("virtualbox", "virtualbox"),
)


def read_node_name(tree: Tree) -> str:
    """The host name; ``localhost`` where none is set."""
    for path in ("proc/sys/kernel/hostname", "etc/hostname"):
        name = tree.text(path)
        if name and _HOST.fullmatch(name):
            return name
    return "localhost"


def read_environment(tree: Tree, cpuinfo: CpuInfo) -> dict[str, Fact]:
    """Facts about the machine that are no part of its graph; None where it does not say."""
    container, evidence = _container(tree)
    vendor = tree.value(f"{DMI}/sys_vendor", parse_word)
    product = tree.value(f"{DMI}/product_name", parse_word)
    meminfo = tree.text("proc/meminfo", max_bytes=_MAX_PROC_BYTES)
    memory = None if meminfo is None else parse_mem_total(meminfo)
    if memory is None:
        tree.faults.add("memory is not known: no MemTotal in /proc/meminfo")
    return {
        "kernel": tree.value("proc/sys/kernel/osrelease", parse_word),
        "os": parse_os_name(tree.text("etc/os-release") or ""),
        "memory_bytes": memory,
        "container": container,
        "container_evidence": evidence,
        "virtual_machine": cpuinfo.hypervisor,
        "hypervisor": parse_hypervisor(f"{vendor} {product}") if cpuinfo.hypervisor else None,
        "dmi_vendor": vendor,
        "dmi_product": product,
    }


def parse_os_name(os_release: str) -> str | None:
    """``PRETTY_NAME`` of /etc/os-release, or None."""
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip("\"'")[:200] or None
    return None


def parse_hypervisor(dmi: str) -> str | None:
    """Vendor and product of the firmware's tables → hypervisor, or None."""
    return next((name for mark, name in _HYPERVISORS if mark in dmi.lower()), None)


def parse_cgroup(text: str) -> str | None:
    """The container runtime that /proc/1/cgroup names, or None."""
    match = _CONTAINER_CGROUPS.search(text)
    return None if match is None else match[1]


def _container(tree: Tree) -> tuple[str | None, str | None]:
    for mark, name in _CONTAINER_MARKS:
        if tree.has(mark):
            return name, f"/{mark}"
    manager = tree.value("run/systemd/container", parse_word)
    if manager is not None:
        return manager, "/run/systemd/container"
    runtime = parse_cgroup(tree.text("proc/1/cgroup", max_bytes=_MAX_PROC_BYTES, cut=True) or "")
    return (runtime, "/proc/1/cgroup") if runtime is not None else (None, None)

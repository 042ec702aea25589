"""What lets devices reach each other's memory, or keeps them from it: modules, IOMMU, ACS, /dev/infiniband.

ACS is read from the bridges' own configuration space, of which only root may read more than the first 64
bytes; without that it is not known.
"""

import re
import struct
from collections.abc import Iterable, Mapping
from typing import Final

from topotune.probe.pci import BUS, PciFunction
from topotune.probe.tree import Tree

_MODULES: Final = "sys/module"
_PEER_MODULES: Final = ("nvidia_peermem", "nv_peer_mem")
_VERBS: Final = "dev/infiniband"
_CONFIG_BYTES: Final = 4096
_EXTENDED: Final = (
    0x100  # where PCI Express's extended capabilities start (PCI Express Base Specification, 7.6)
)
_ACS: Final = 0x000D
_ACS_CONTROL: Final = 6
_ACS_REDIRECTS: Final = 0b1100  # P2P Request Redirect, P2P Completion Redirect
_MAX_CAPABILITIES: Final = 64
_OPEN_MODULE = re.compile(r"NVRM version: .{0,80}Open Kernel Module", re.IGNORECASE)
_NVRM = "NVRM version:"

Fact = str | int | float | bool | None


def read_peer_access(tree: Tree, pci: Mapping[str, PciFunction]) -> dict[str, Fact]:
    """Facts; None where nothing says."""
    with_acs, redirecting = _read_acs(tree, pci)
    return {
        "nvidia_module": parse_nvidia_module(tree.text("proc/driver/nvidia/version") or ""),
        "nvidia_peermem": _peer_module(tree),
        "iommu": _iommu(tree, (function.address for function in pci.values() if function.is_gpu)),
        "pci_bridges_with_acs": with_acs,
        "pci_bridges_acs_redirects": redirecting,
        "rdma_user_devices": _verbs_devices(tree),
    }


def parse_nvidia_module(version: str) -> str | None:
    """/proc/driver/nvidia/version → ``open`` or ``proprietary`` kernel modules; None without a driver."""
    if _NVRM not in version:
        return None
    return "open" if _OPEN_MODULE.search(version) else "proprietary"


def acs_control(config: bytes) -> int | None:
    """A function's configuration space → its ACS control register; None where it has none, or is cut."""
    at = _EXTENDED
    for _ in range(_MAX_CAPABILITIES):
        if at < _EXTENDED or at + 8 > len(config):
            return None
        (header,) = struct.unpack_from("<I", config, at)
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == _ACS:
            (control,) = struct.unpack_from("<H", config, at + _ACS_CONTROL)
            return int(control)
        at = header >> 20 & 0xFFC
    return None


def _peer_module(tree: Tree) -> bool | None:
    if not tree.children(_MODULES):
        return None
    return any(tree.has(f"{_MODULES}/{name}") for name in _PEER_MODULES)


def _verbs_devices(tree: Tree) -> int | None:
    """Devices by which a process uses RDMA; None where /dev is not shown at all."""
    if not tree.has("dev"):
        return None
    return sum(name.startswith("uverbs") for name in tree.children(_VERBS))


def _iommu(tree: Tree, gpus: Iterable[str]) -> str | None:
    """``translating`` where one of the GPUs is behind an IOMMU that does; ``off`` where none has a group."""
    types = []
    for address in gpus:
        group = f"{BUS}/{address}/iommu_group"
        if not tree.has(group):
            types.append("off")
        elif (text := tree.text(f"{group}/type")) is not None:
            types.append("passthrough" if text == "identity" else "translating")
    for word in ("translating", "passthrough", "off"):
        if word in types:
            return word
    return None


def _read_acs(tree: Tree, pci: Mapping[str, PciFunction]) -> tuple[int | None, int | None]:
    """Of the bridges above GPUs and adapters: those with ACS, and those of them that redirect."""
    above = {
        bridge
        for function in pci.values()
        if function.is_gpu or function.is_network
        for bridge in function.parents
    }
    controls = []
    for address in sorted(above):
        config = tree.data(f"{BUS}/{address}/config", max_bytes=_CONFIG_BYTES)
        if config is None or len(config) <= _EXTENDED:
            continue
        control = acs_control(config)
        if control is not None:
            controls.append(control)
    if not controls:
        return None, None
    return len(controls), sum(bool(control & _ACS_REDIRECTS) for control in controls)

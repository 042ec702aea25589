"""One machine, looked at: everything below a root folder → Topology."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import topotune
from topotune.probe.amd import AmdReading, load_amdsmi, read_amd
from topotune.probe.cpu import read_cpuinfo, read_sockets
from topotune.probe.devices import NvidiaCard, Reading, find_peers
from topotune.probe.environment import Fact, read_environment, read_node_name
from topotune.probe.faults import Faults
from topotune.probe.graph import build_graph
from topotune.probe.host_names import HOST_NAME_ADDRESSES, own_name_addresses
from topotune.probe.kernel_text import parse_word
from topotune.probe.netdev import INTERFACES, Interface, read_interfaces
from topotune.probe.networks import Networks, read_networks
from topotune.probe.numa import NODES, read_numa
from topotune.probe.nvml import NvmlReading, format_errors, load_nvml, read_nvml
from topotune.probe.pci import AMD, BUS, NVIDIA, read_pci
from topotune.probe.peer_access import read_peer_access
from topotune.probe.process_limits import read_process_limits
from topotune.probe.rdma import read_rdma
from topotune.probe.topo_file import topo_file_fault
from topotune.probe.tree import Tree
from topotune.topology.model import Source, Topology

_CARDS: Final = "proc/driver/nvidia/gpus"
_EXPECTED = (
    (BUS, "no PCI bus is shown here: GPUs and adapters are not placed"),
    (INTERFACES, "no network interfaces are shown here"),
    (NODES, "no NUMA nodes are shown here"),
    ("proc/cpuinfo", "CPU model is not known: there is no /proc/cpuinfo"),
)
_NCCL_TOPO_FILE: Final = "NCCL_TOPO_FILE"
_MAX_LINKS_TOLD: Final = 64
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,64}")


def probe(root: Path = Path("/"), *, nvml: Any | None = None, amdsmi: Any | None = None) -> Topology:
    """What this machine is, or what a captured copy of its /sys, /proc and /etc says it was.

    Args:
        root: the folder that holds sys, proc and etc. Any other than ``/`` is read alone: nothing of the
            running machine is asked.
        nvml: what to ask about NVIDIA GPUs in place of the module ``pynvml`` (recorded answers); asked for
            any root.
        amdsmi: likewise about AMD GPUs, in place of the module ``amdsmi``; the running machine is asked only
            where its PCI bus shows such.

    Returns:
        A topology of one node. What could not be read is missing from it and stands in its ``warnings``, one
        line for each kind of problem.

    Raises:
        UsageError: the root does not exist, is no folder, or holds neither sys nor proc.
    """
    tree = Tree(root)
    for path, warning in _EXPECTED:
        if not tree.has(path):
            tree.faults.add(warning)
    cpuinfo = read_cpuinfo(tree)
    interfaces = read_interfaces(tree)
    rdma = read_rdma(tree)
    behind = {each.pci_address for each in interfaces} | {port.pci_address for port in rdma}
    if nvml is not None or tree.live:
        driver = read_nvml(nvml if nvml is not None else load_nvml(), tree.faults)
    else:
        driver = NvmlReading(absent="not asked: this is a captured tree")
    pci = read_pci(tree, frozenset(address for address in behind if address is not None))
    amd = AmdReading()
    if amdsmi is not None or (tree.live and any(each.is_gpu and each.vendor == AMD for each in pci.values())):
        amd = read_amd(amdsmi if amdsmi is not None else load_amdsmi(), tree.faults)
    reading = Reading(
        node=read_node_name(tree),
        cpu_model=cpuinfo.model,
        sockets=read_sockets(tree, cpuinfo),
        numa=read_numa(tree),
        pci=pci,
        nvml_gpus=driver.gpus if driver.absent is None else None,
        nvml_peers=driver.peers,
        amd=amd,
        cards=_read_cards(tree),
        interfaces=interfaces,
        rdma=rdma,
        networks=read_networks(tree),
    )
    num_cards = sum(function.is_gpu and function.vendor == NVIDIA for function in reading.pci.values())
    if tree.live and driver.absent is not None and num_cards:
        tree.faults.add(
            f"the PCI bus shows {num_cards} NVIDIA GPUs, but their driver cannot be asked: {driver.absent}"
        )
    vertices, links = build_graph(reading, tree.faults)
    topo_file = _nccl_topo_file(tree)
    devices = [vertex for vertex in vertices if vertex.kind in ("gpu", "nic")]
    facts: dict[str, Fact] = {
        "cpu_model": cpuinfo.model,
        "num_sockets": len(reading.sockets),
        "num_cores": None
        if cpuinfo.cores_per_socket is None
        else cpuinfo.cores_per_socket * len(reading.sockets),
        "num_cpus": sum(len(socket.cpus) for socket in reading.sockets),
        **read_environment(tree, cpuinfo),
        HOST_NAME_ADDRESSES: own_name_addresses(tree, reading.node),
        "nvidia_driver": driver.driver_version,
        "cuda_version": driver.cuda_version,
        "nvml": driver.absent or "answers",
        "amd_driver": amd.driver_version,
        "inactive_nvlinks": _inactive_nvlinks(driver),
        "nvlink_errors": _nvlink_errors(driver),
        "virtual_interfaces": _virtual_interfaces(interfaces),
        "virtual_networks": _virtual_networks(interfaces, reading.networks),
        "default_route_interface": reading.networks.default,
        "num_gpus_hidden": max(0, num_cards - len(driver.gpus)) if driver.absent is None else None,
        **read_process_limits(tree),
        **read_peer_access(tree, reading.pci),
        "nccl_topo_file": topo_file,
        "nccl_topo_file_fault": None if topo_file is None else topo_file_fault(tree, topo_file, devices),
        "software_rdma": ", ".join(sorted({port.device for port in rdma if port.software})) or None,
    }
    if tree.live:
        facts |= _live_facts(tree.faults)
    return Topology(
        vertices=vertices,
        links=links,
        pairs=find_peers(reading, vertices),
        source=Source(
            kind="probe" if tree.live else "captured tree",
            path=None if tree.live else str(root),
            created=datetime.now(UTC).isoformat(timespec="seconds") if tree.live else None,
            topotune_version=topotune.__version__,
            facts=facts,
        ),
        warnings=tree.faults.warnings(),
    )


def _read_cards(tree: Tree) -> dict[str, NvidiaCard]:
    """What NVIDIA's kernel module says about its cards, by PCI address."""
    cards = {}
    for address in tree.children(_CARDS):
        text = tree.text(f"{_CARDS}/{address}/information")
        if text is not None:
            cards[address] = parse_card(text)
    return cards


def parse_card(text: str) -> NvidiaCard:
    """/proc/driver/nvidia/gpus/…/information → model and UUID, where it has them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    uuid = found.get("GPU UUID", "")
    try:
        model = parse_word(found.get("Model", ""))
    except ValueError:
        model = None
    return NvidiaCard(model=model, uuid=uuid if _UUID.fullmatch(uuid) else None)


def _inactive_nvlinks(driver: NvmlReading) -> str | None:
    told = [
        f"GPU {gpu.index}: {' '.join(map(str, gpu.inactive_nvlinks))}"
        for gpu in driver.gpus
        if gpu.inactive_nvlinks
    ]
    return "; ".join(told) or None


def _nvlink_errors(driver: NvmlReading) -> str | None:
    """Every NVLink whose driver counts errors, ``none``, or None where it does not count."""
    told = [
        f"GPU {gpu.index} link {end.link}: {format_errors(end.errors)}"
        for gpu in driver.gpus
        for end in gpu.nvlinks
        if any(end.errors.values())
    ]
    if not told:
        return "none" if any(end.errors for gpu in driver.gpus for end in gpu.nvlinks) else None
    more = len(told) - _MAX_LINKS_TOLD
    return "; ".join(told[:_MAX_LINKS_TOLD]) + (f"; and {more} more" if more > 0 else "")


def _virtual_interfaces(interfaces: tuple[Interface, ...]) -> str | None:
    return (
        ", ".join(f"{each.name} ({each.virtual})" for each in interfaces if each.virtual is not None) or None
    )


def _virtual_networks(interfaces: tuple[Interface, ...], networks: Networks) -> str | None:
    """Bridges of containers and virtual machines that have a network: ``docker0 172.17.0.0/16``."""
    return (
        ", ".join(
            f"{each.name} {networks.ipv4[each.name][0]}"
            for each in interfaces
            if each.virtual == "bridge" and each.state != "down" and each.name in networks.ipv4
        )
        or None
    )


def _nccl_topo_file(tree: Tree) -> str | None:
    """The topology file that NCCL is told to use: by the environment of this process, or by its own file."""
    if tree.live and (named := os.environ.get(_NCCL_TOPO_FILE)):
        return named[:200]
    for line in (tree.text("etc/nccl.conf") or "").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == _NCCL_TOPO_FILE and value.strip():
            return value.strip()[:200]
    return None


def _live_facts(faults: Faults) -> dict[str, Fact]:
    """What psutil says of the running machine: memory, cores, and the CPUs that this process may use."""
    import psutil

    try:
        return {
            "memory_bytes": psutil.virtual_memory().total,
            "num_cores": psutil.cpu_count(logical=False),
            "num_usable_cpus": len(psutil.Process().cpu_affinity()),
        }
    except (psutil.Error, OSError, ValueError, KeyError) as problem:  # parts of /proc hidden or odd
        faults.add(f"memory, cores and usable CPUs are not known: psutil says {problem!r}")
        return {}

"""RDMA that the hardware has and a job could not use, and GPUs that it cannot reach straight."""

import re
from collections.abc import Iterator
from typing import Final

from topotune.health.costs import star_cost
from topotune.health.node import Node, is_up, listed
from topotune.links.finding import Finding
from topotune.topology.model import Vertex
from topotune.units import format_bit_rate, format_bytes

_ENOUGH_MEMLOCK: Final = 2**30  # NCCL registers some MiB for each channel and peer; guides say unlimited
_DMA_BUF_KERNEL = (5, 12)  # from when RDMA drivers take dma-buf (Linux 5.12, "RDMA/umem: dma-buf")
_KERNEL = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
_NEEDS_P2P = 2
_BITS_PER_BYTE = 8


def rdma_findings(node: Node) -> Iterator[Finding]:
    """All findings about whether RDMA and GPUDirect can be used on a node."""
    yield from _unusable(node)
    yield from _memlock(node)
    yield from _gpudirect(node)
    yield from _redirected(node)


def _ports(node: Node) -> list[Vertex]:
    return [nic for nic in node.rdma_nics if is_up(nic) is not False]


def _unusable(node: Node) -> Iterator[Finding]:
    ports = _ports(node)
    if not ports or node.count("rdma_user_devices") != 0:
        return
    container = node.text("container")
    cost, words = _cost_of_sockets(node)
    yield Finding(
        code="rdma-unusable",
        severity="error",
        where=node.where(ports),
        evidence=(
            f"the kernel has {len(ports)} RDMA port{'s' if len(ports) > 1 else ''}, and there is no "
            f"/dev/infiniband/uverbs*: {words}"
        ),
        advice=(
            f"start the {container} container with --device=/dev/infiniband (Kubernetes: the RDMA device "
            "plugin)"
            if container
            else "modprobe ib_uverbs, and look whether udev makes its devices"
        ),
        cost_percent=cost,
    )


def _cost_of_sockets(node: Node) -> tuple[float | None, str]:
    """What is lost where traffic must leave by the network interfaces without RDMA."""
    fast = sum(nic.speed or 0 for nic in _ports(node))
    plain = [nic for nic in node.nics if nic not in node.rdma_nics and is_up(nic) is not False]
    slow = max((nic.speed or 0 for nic in plain), default=0)
    if not fast or not slow:
        return None, "NCCL falls back to sockets; cost not known: the rate of what is left is not"
    rates = (format_bit_rate(rate / _BITS_PER_BYTE) for rate in (slow, fast))
    words = "NCCL falls back to sockets, at {} of {}".format(*rates)
    before, after = ({host: rate / _BITS_PER_BYTE for host in "ab"} for rate in (slow, fast))
    return star_cost(before, after), words


def _memlock(node: Node) -> Iterator[Finding]:
    limit = node.count("memlock_limit_bytes")
    if not _ports(node) or limit is None or limit >= _ENOUGH_MEMLOCK or node.flag("can_lock_memory"):
        return
    yield Finding(
        code="memlock-limit",
        severity="error",
        where=node.where(),
        evidence=(
            f"a process may lock {format_bytes(limit)} of memory (ulimit -l), and RDMA registers all that it "
            "sends from: NCCL and MPI then fail, or fall back to sockets; cost not known: it depends on which"
        ),
        advice=(
            "docker run --ulimit memlock=-1; under Slurm PropagateResourceLimitsExcept=MEMLOCK and "
            "LimitMEMLOCK="
            "infinity for slurmd; elsewhere /etc/security/limits.conf"
        ),
    )


def _gpudirect(node: Node) -> Iterator[Finding]:
    """Adapters that cannot reach NVIDIA GPUs' memory: no nvidia-peermem, and no dma-buf."""
    ports = [nic for nic in _ports(node) if nic.link_layer is not None]
    nvidia = [gpu for gpu in node.gpus if _is_nvidia(gpu)]
    module, peermem = node.text("nvidia_module"), node.flag("nvidia_peermem")
    if not ports or not nvidia or module is None or peermem is not False:
        if _nccl_saw_none(node):
            yield _nccl_finding(node)
        return
    kernel = node.text("kernel") or ""
    version = _KERNEL.match(kernel)
    new_enough = version is not None and (int(version[1]), int(version[2])) >= _DMA_BUF_KERNEL
    if module == "open" and new_enough:
        return
    lacking = (
        "the driver's modules are the closed ones"
        if module != "open"
        else f"kernel {kernel} is older than 5.12"
    )
    yield Finding(
        code="gpudirect-missing",
        severity="warning",
        where=node.where(),
        evidence=(
            f"nvidia-peermem is not loaded, and dma-buf cannot stand in: {lacking}. What {len(ports)} RDMA "
            "ports "
            "send goes through host memory; cost not known: what host memory carries is not"
        ),
        advice="modprobe nvidia-peermem (and at boot), or the open kernel modules with Linux 5.12 or later",
    )


def _is_nvidia(gpu: Vertex) -> bool:
    return (
        gpu.model is None or gpu.model.startswith("10de:") or not re.search(r"AMD|Instinct|1002:", gpu.model)
    )


def _nccl_saw_none(node: Node) -> bool:
    """NCCL wrote of GPUs and RDMA ports alike that they cannot reach each other."""
    said = [gpu.attributes.get("nccl.gpu.gdr") for gpu in node.gpus]
    return bool(said) and set(said) == {"0"} and bool(node.rdma_nics)


def _nccl_finding(node: Node) -> Finding:
    return Finding(
        code="gpudirect-missing",
        severity="info",
        where=node.where(),
        evidence=(
            'NCCL wrote gdr="0" of every GPU: when it looked, no adapter could reach GPU memory; cost not '
            "known: "
            "what host memory carries is not"
        ),
        advice=(
            "modprobe nvidia-peermem (AMD: a kernel with dma-buf), then write the file anew: "
            "NCCL_TOPO_DUMP_FILE"
        ),
    )


def _redirected(node: Node) -> Iterator[Finding]:
    """ACS and IOMMU send what one device writes to another up to the root complex, or stop it."""
    partners = len(node.gpus) + bool(_ports(node) and node.gpus)
    if partners < _NEEDS_P2P or node.flag("virtual_machine"):
        return
    bridges, redirecting = node.count("pci_bridges_with_acs"), node.count("pci_bridges_acs_redirects")
    if bridges and redirecting:
        yield Finding(
            code="acs-redirects",
            severity="warning",
            where=node.where(),
            evidence=(
                f"{redirecting} of {bridges} PCI bridges with ACS redirect requests (ACSCtl: ReqRedir+ or "
                "CmpltRedir+): "
                "what GPUs and adapters write to each other goes up to the root complex, or hangs; cost not "
                "known: "
                "what the root complex carries is not"
            ),
            advice=(
                "turn ACS off in the BIOS, or for each bridge: setpci -s BRIDGE ECAP_ACS+6.w=0000 (at every "
                "boot)"
            ),
        )
    if node.text("iommu") == "translating":
        affected = listed([node.called(gpu) for gpu in node.gpus], 4)
        yield Finding(
            code="iommu-translates",
            severity="warning",
            where=node.where(node.gpus),
            evidence=(
                f"the IOMMU translates what {affected} send and receive: peers' writes go through it, or "
                "fail; "
                "cost not known: what it carries is not"
            ),
            advice=(
                "iommu=pt on the kernel's command line (intel_iommu=off or amd_iommu=off where nothing "
                "needs it)"
            ),
        )

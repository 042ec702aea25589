"""What of a node's layout is hidden, and processes bound away from their GPUs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from topotune.health.node import Node, cpus_in, listed
from topotune.links.finding import Finding
from topotune.probe.kernel_text import format_cpulist
from topotune.topology.model import Topology, Vertex

# Files with the PCI tree of a virtual machine, by the words of its firmware or its name → where they lie.
# Source: Azure/azhpc-images (topology/), aws-ofi-nccl (share/aws-ofi-nccl/xml, which its plugin sets itself).
_KNOWN_FILES: Final = (
    ("microsoft", "/opt/microsoft/nd…-topo.xml of the Azure HPC image"),
    ("amazon", "share/aws-ofi-nccl/xml/…-topo.xml of the aws-ofi-nccl plugin, which sets it by itself"),
)


def locality_findings(node: Node) -> Iterator[Finding]:
    """All findings about what is known of a node's layout."""
    yield from _hidden_tree(node)
    yield from _topo_file(node)
    yield from _numa_unknown(node)
    yield from _one_numa_node(node)
    yield from _own_affinity(node)


def _hidden_tree(node: Node) -> Iterator[Finding]:
    """A virtual machine that shows no switch: how near GPUs and adapters are is not known."""
    devices = [*node.gpus, *node.rdma_nics]
    given = node.text("nccl_topo_file")
    if not node.flag("virtual_machine") or len(node.gpus) < 2 or given is not None:
        return
    if any(_below_switch(node, device) for device in devices):
        return
    vendor = (node.text("dmi_vendor") or "").lower()
    known = next((where for word, where in _KNOWN_FILES if word in vendor), None)
    served = bool(node.rdma_nics)
    yield Finding(
        code="hidden-pci-tree",
        severity="warning" if served else "info",
        where=node.where(),
        evidence=(
            "a virtual machine, and no PCI Express switch is shown: how near GPUs and adapters are to each "
            "other is not "
            "known"
            + (", and NCCL then sends through host memory" if served else "")
            + "; cost not known: the host's layout is not"
        ),
        advice=(
            f"NCCL_TOPO_FILE={known or 'a file with the host’s layout'}; a draft: topotune probe -o "
            "machine.json, and "
            "topotune export machine.json --to nccl-topo-xml -o topo.xml; on the host, look at ACS and ATS"
        ),
    )


def _topo_file(node: Node) -> Iterator[Finding]:
    """NCCL is given a file that is of another machine."""
    fault = node.text("nccl_topo_file_fault")
    if fault is not None:
        yield Finding(
            code="topo-file-differs",
            severity="warning",
            where=node.where(),
            evidence=f"NCCL_TOPO_FILE is {node.text('nccl_topo_file')}: {fault}",
            advice=(
                "unset it, or make one of this machine: topotune probe -o machine.json, and topotune export "
                "machine.json --to nccl-topo-xml -o topo.xml"
            ),
        )


def _below_switch(node: Node, device: Vertex) -> bool:
    return any(node.vertices[above].kind == "pcie-switch" for _, above in node.tree.way(device))


def _numa_unknown(node: Node) -> Iterator[Finding]:
    """Devices without a NUMA node on a machine that has several."""
    num_numa = len(node.numa)
    unknown = [
        device
        for device in (*node.gpus, *node.nics)
        if device.numa is None and device.pci_address is not None and not _has_numa(node, device)
    ]
    if num_numa < 2 or not unknown:
        return
    yield Finding(
        code="numa-unknown",
        severity="info",
        where=node.where(unknown),
        evidence=(
            f"the firmware does not say on which of {num_numa} NUMA nodes (numa_node is -1): not node 0, "
            "but not known"
        ),
        advice=(
            "nvidia-smi topo -m may know: import it beside this; a BIOS update may mend it, and in virtual "
            "machines "
            "NCCL_TOPO_FILE"
        ),
    )


def _has_numa(node: Node, device: Vertex) -> bool:
    way = node.tree.way(device)
    return device.numa_affinity is not None or any(node.vertices[above].kind == "numa" for _, above in way)


def _one_numa_node(node: Node) -> Iterator[Finding]:
    """Several sockets in one NUMA node: what is called near may be on the other socket."""
    num_numa = len(node.numa)
    num_sockets = node.count("num_sockets") or 0
    if num_numa == 1 and num_sockets > 1 and len(node.gpus) > 1:
        yield Finding(
            code="numa-off",
            severity="info",
            where=node.where(),
            evidence=f"{num_sockets} sockets and one NUMA node: NODE may hide a way between sockets",
            advice="let the BIOS show its NUMA nodes (NUMA on, node interleaving off)",
        )


def _own_affinity(node: Node) -> Iterator[Finding]:
    """This process, and with it what a prolog starts, without any CPU near some of the GPUs."""
    usable = node.text("usable_cpus")
    if usable is None:
        return
    yield from _excluded(node, [(gpu, usable, "this process") for gpu in node.gpus])


def rank_affinity_findings(
    nodes: Sequence[Node], topology: Topology, cpus: Sequence[str]
) -> Iterator[Finding]:
    """Ranks bound away from their GPUs.

    Args:
        nodes: of the topology.
        topology: with ranks.
        cpus: on which each rank may run, as the kernel lists them.
    """
    gpus = {vertex.id: vertex for vertex in topology.vertices if vertex.kind == "gpu"}
    of_node: Mapping[str, list[tuple[Vertex, str, str]]] = {node.name: [] for node in nodes}
    for rank, (name, may_run) in enumerate(zip(topology.ranks, cpus, strict=True)):
        gpu = gpus.get(name)
        if gpu is not None and gpu.node is not None:
            of_node[gpu.node].append((gpu, may_run, f"rank {rank}"))
    for node in nodes:
        yield from _excluded(node, of_node[node.name])


def _excluded(node: Node, uses: Sequence[tuple[Vertex, str, str]]) -> Iterator[Finding]:
    bound: dict[tuple[str, str], list[tuple[Vertex, Vertex]]] = {}
    for gpu, usable, who in uses:
        home = None if gpu.numa is None else node.numa.get(gpu.numa)
        if home is None:
            continue
        near, may_run = cpus_in(home.cpus), cpus_in(usable)
        if near and may_run and not near & may_run:
            bound.setdefault((usable, who), []).append((gpu, home))
    for (usable, who), members in bound.items():
        gpus, home = [gpu for gpu, _ in members], members[0][1]
        cpus = format_cpulist({cpu for _, each in members for cpu in cpus_in(each.cpus)})
        yield Finding(
            code="cpu-affinity",
            severity="warning",
            where=node.where(gpus),
            evidence=(
                f"{who} may run on CPUs {usable}, and {listed([node.called(gpu) for gpu in gpus], 4)} "
                f"{'is' if len(gpus) == 1 else 'are'} near CPUs {cpus} (NUMA node {home.index}): all that "
                "passes the "
                "host crosses sockets; cost not known: what the way between sockets carries is not"
            ),
            advice=(
                "bind each rank to its GPU's NUMA node: numactl --cpunodebind, srun --gpus-per-task=1 "
                "--gpu-bind=closest, mpirun --map-by numa"
            ),
        )

"""All checks of a topology, node by node and of the nodes together.

Findings that several nodes share word for word are told once, with the nodes' names, so that a fault of the
image does not fill a page for each of a thousand nodes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from topotune.health.against_profile import profile_findings
from topotune.health.cluster import cluster_findings
from topotune.health.containers import container_findings
from topotune.health.costs import Costs
from topotune.health.gpu_state import gpu_state_findings
from topotune.health.host_names import host_name_findings
from topotune.health.interfaces import interface_findings
from topotune.health.locality import locality_findings, rank_affinity_findings
from topotune.health.nics import nic_findings
from topotune.health.node import Node, listed, nodes_of
from topotune.health.nvlinks import nvlink_findings
from topotune.health.pcie import pcie_findings
from topotune.health.peers import peer_findings, rank_order_findings
from topotune.health.ports import port_findings
from topotune.health.rdma import rdma_findings
from topotune.links.finding import Finding
from topotune.topology.model import Topology

if TYPE_CHECKING:
    from topotune.topology.profile import MachineProfile

_GRAVEST_FIRST: Final = ("error", "warning", "info")


@dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    """What was found.

    Attributes:
        node_names: the nodes that were looked at.
        findings: the gravest first.
    """

    node_names: tuple[str, ...]
    findings: tuple[Finding, ...]


def examine(
    topology: Topology,
    *,
    each: Sequence[Topology] = (),
    rank_cpus: Sequence[str] = (),
    profile: "MachineProfile | None" = None,
) -> Examination:
    """All findings of a topology.

    Args:
        topology: of a machine or cluster.
        each: the same nodes in the same order, each as its own probe saw it, with all its facts; left out,
            they are taken from ``topology``, where facts that nodes differ in stand for the first few alone.
        rank_cpus: on which CPUs each rank of the topology may run, as the kernel lists them; left out, what
            is known of the process that looked counts for all GPUs.
        profile: of the machine that each node is said to be.

    Raises:
        UsageError: a node with more devices than a machine has.
    """
    nodes = nodes_of(topology)
    if each:
        nodes = tuple(
            Node(node.name, replace(node.topology, source=looked.source))
            for node, looked in zip(nodes, each, strict=True)
        )
    costs = Costs()
    alone = len(nodes) == 1
    found = {node.name: list(_of_node(node, profile, costs, alone=alone)) for node in nodes}
    is_fabric = not topology.ranks and any(vertex.kind == "switch" for vertex in topology.vertices)
    together = [*rank_order_findings(topology), *cluster_findings(nodes, is_fabric=is_fabric)]
    if rank_cpus:
        for node in nodes:
            found[node.name] = [
                one for one in found[node.name] if one.code not in ("cpu-affinity", "few-cpus")
            ]
        together += rank_affinity_findings(nodes, topology, rank_cpus)
    findings = [*together, *_shared(found)]
    findings.sort(key=lambda finding: _GRAVEST_FIRST.index(finding.severity))
    return Examination(node_names=tuple(node.name for node in nodes), findings=tuple(findings))


def _of_node(node: Node, profile: "MachineProfile | None", costs: Costs, *, alone: bool) -> Iterator[Finding]:
    yield from pcie_findings(node, costs)
    yield from nvlink_findings(node, costs)
    yield from peer_findings(node)
    yield from gpu_state_findings(node)
    yield from nic_findings(node)
    yield from port_findings(node, costs)
    yield from rdma_findings(node)
    yield from locality_findings(node)
    yield from container_findings(node)
    yield from interface_findings(node)
    yield from host_name_findings(node, alone=alone)
    if profile is not None:
        yield from profile_findings(node, profile, costs)


def _shared(found: dict[str, list[Finding]]) -> Iterator[Finding]:
    """Each finding once, with all nodes that have it."""
    owners: dict[Finding, list[str]] = {}
    for name, findings in found.items():
        for finding in findings:
            where = finding.where.removesuffix(f"node {name}").removesuffix(" of ")
            owners.setdefault(replace(finding, where=where), []).append(name)
    for finding, names in owners.items():
        nodes = f"node{'s' if len(names) > 1 else ''} {listed(names)}"
        yield replace(finding, where=f"{finding.where} of {nodes}" if finding.where else nodes)

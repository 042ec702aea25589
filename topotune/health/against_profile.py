"""A node against the profile of the machine that it is said to be."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from topotune.errors import UsageError
from topotune.health.costs import Cost, Costs, costed
from topotune.health.node import Node, is_up
from topotune.health.nvlinks import module_nvlinks
from topotune.links.finding import Finding
from topotune.topology.model import Topology, Vertex
from topotune.topology.what_if import with_nic
from topotune.units import format_bit_rate

if TYPE_CHECKING:
    from topotune.topology.profile import MachineProfile


def profile_findings(node: Node, profile: "MachineProfile", costs: Costs) -> Iterator[Finding]:
    """What a node has less of than its profile says."""
    yield from _fewer_gpus(node, profile)
    yield from _nics(node, profile, costs)
    yield from _fewer_nvlinks(node, profile)


def _fewer_gpus(node: Node, profile: "MachineProfile") -> Iterator[Finding]:
    if not node.gpus or len(node.gpus) >= profile.num_gpus:
        return
    hidden = node.count("num_gpus_hidden")
    yield Finding(
        code="fewer-gpus",
        severity="info" if hidden else "error",
        where=node.where(),
        evidence=(
            f"{len(node.gpus)} GPUs, and a {profile.name} has {profile.num_gpus}"
            + (
                f": {hidden} are hidden from this process"
                if hidden
                else "; cost not known: it is one of computing"
            )
        ),
        advice=(
            "look at nvidia-smi, lspci and dmesg (Xid 79: fallen off the bus) for the ones that are missing"
        ),
    )


def _fitting_nics(node: Node, profile: "MachineProfile") -> list[Vertex]:
    """Ports that can be those of the profile: of its link layer, and with its rate where that is known."""
    assert profile.nic is not None
    other = "Ethernet" if profile.nic.kind == "infiniband" else "InfiniBand"
    ports = (node.rdma_nics if profile.nic.rdma else ()) or node.nics
    return [nic for nic in ports if nic.link_layer != other]


def _nics(node: Node, profile: "MachineProfile", costs: Costs) -> Iterator[Finding]:
    if profile.nic is None or not node.nics:
        return
    rate = profile.nic.bits_per_s or 0.0  # not known: a port of any rate will do
    ports = [nic for nic in _fitting_nics(node, profile) if is_up(nic) is not False]
    full = [
        nic for nic in ports if nic.speed is None or nic.speed >= 0.9 * rate
    ]  # some tools round, or lower on purpose
    missing = profile.num_nics - len(full)
    if missing <= 0:
        return
    slower = [nic for nic in ports if nic not in full]
    each = f"{profile.nic.kind} ports"
    if profile.nic.bytes_per_s is not None:
        each += f" of {format_bit_rate(profile.nic.bytes_per_s)}"
    slow_words = f" and {len(slower)} slower" if slower else ""
    finding = Finding(
        code="fewer-nics",
        severity="error",
        where=node.where(),
        evidence=f"{len(full)} {each} are up{slow_words}, and a {profile.name} has {profile.num_nics}",
        advice="look for adapters that are missing from lspci, down, in Ethernet mode or at a lower rate",
    )
    if not full:
        yield costed(finding, Cost(percent=None, reason="without any there is nothing to compare"))
        return
    keep = {nic.id for nic in full}

    def mended(topology: Topology) -> Topology:
        others = replace(
            topology,
            vertices=tuple(
                vertex for vertex in topology.vertices if vertex.kind != "nic" or vertex.id in keep
            ),
            links=tuple(
                link
                for link in topology.links
                if not {link.src, link.dst} & ({nic.id for nic in node.nics} - keep)
            ),
            pairs=(),
        )
        for _ in range(missing):
            others = with_nic(others)
        return others

    try:
        yield costed(finding, costs.of(node, mended))
    except UsageError as problem:
        yield costed(finding, Cost(percent=None, reason=problem.message))


def _fewer_nvlinks(node: Node, profile: "MachineProfile") -> Iterator[Finding]:
    """GPUs with fewer active NVLinks than the profile gives each of them."""
    expected = profile.nvlinks_per_gpu
    if not any(expected):
        return
    for gpu in node.gpus:
        if module_nvlinks(gpu.model) is not None:
            continue  # held against its product already
        if gpu.nvlink_ports is None or (gpu.index is None and len(set(expected)) > 1):
            continue
        should = expected[gpu.index if gpu.index is not None and gpu.index < len(expected) else 0]
        active = sum(port.active for port in gpu.nvlink_ports)
        if active < should:
            yield Finding(
                code="nvlink-down",
                severity="error",
                where=node.where([gpu]),
                evidence=(
                    f"{active} NVLinks are active, and each such GPU of a {profile.name} has {should}; cost "
                    "not known: where "
                    "the missing ones lead is not shown"
                ),
                advice="look at nvidia-smi nvlink -s and -e, dmesg (Xid 74) and the fabric manager's log",
            )

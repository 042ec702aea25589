"""Network interfaces that software would choose wrongly by itself."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from topotune.health.costs import star_cost
from topotune.health.node import Node, is_up, listed
from topotune.health.ports import hca_list
from topotune.links.finding import Finding
from topotune.topology.model import IP_NETWORKS, IPV6, Vertex
from topotune.units import format_bit_rate

_BITS_PER_BYTE = 8
_MUCH_FASTER = 2
_ADVICE: Final = "NCCL_SOCKET_IFNAME={name} GLOO_SOCKET_IFNAME={name} (topotune --interface {name})"


def interface_findings(node: Node) -> Iterator[Finding]:
    """All findings about the choice of a network interface on a node."""
    up = [nic for nic in node.nics if is_up(nic) and nic.name is not None and nic.speed is not None]
    addressed = [nic for nic in up if IP_NETWORKS in nic.attributes]
    best = max(addressed, key=lambda nic: nic.speed or 0, default=None)
    yield from _inner(node, best)
    yield from _ipv6_only(node, up, best)
    yield from _slow_default(node, addressed, best)
    yield from _same_network(node, addressed)


def _inner(node: Node, best: Vertex | None) -> Iterator[Finding]:
    """Bridges of containers and virtual machines with a network of their own."""
    networks = node.text("virtual_networks")
    if networks is None or best is None:
        return
    yield Finding(
        code="virtual-interface",
        severity="info",
        where=node.where(),
        evidence=(
            f"{networks}: networks inside this node, which Open MPI, Horovod and a host name that resolves "
            "to them may "
            f"choose, and which no other node reaches as the same; {best.name} leads out"
        ),
        advice=_ADVICE.format(name=best.name) + f", and for Open MPI --mca btl_tcp_if_include {best.name}",
    )


def _ipv6_only(node: Node, up: list[Vertex], best: Vertex | None) -> Iterator[Finding]:
    """A fast interface with IPv6 alone: what looks for IPv4 takes a slower one, or none."""
    for nic in up:
        if IPV6 not in nic.attributes or IP_NETWORKS in nic.attributes:
            continue
        faster = best is None or (nic.speed or 0) > (best.speed or 0)
        if not faster:
            continue
        cost, rates = (None, "") if best is None else _loss(best, nic)
        yield Finding(
            code="interface-ipv6-only",
            severity="warning" if cost else "info",
            where=node.where([nic]),
            evidence=(
                "it has an IPv6 address and no IPv4 network: what looks for IPv4 "
                + (f"takes {best.name} instead, {rates}" if best is not None else "finds no interface")
            ),
            advice=f"NCCL_SOCKET_FAMILY=AF_INET6 NCCL_SOCKET_IFNAME={nic.name}, or give it an IPv4 address",
            cost_percent=cost,
        )


def _slow_default(node: Node, addressed: list[Vertex], best: Vertex | None) -> Iterator[Finding]:
    """The interface of the default route, which host names resolve to, is slower than another."""
    name = node.text("default_route_interface")
    default = next((nic for nic in addressed if nic.name == name), None)
    if default is None or best is None or (best.speed or 0) < _MUCH_FASTER * (default.speed or 0):
        return
    cost, rates = _loss(default, best)
    rdma = _rdma_that_serves(node)
    advice = _ADVICE.format(name=best.name)
    yield Finding(
        code="slow-interface",
        severity="info" if rdma else "warning",
        where=node.where([default]),
        evidence=(
            f"the default route, by which gloo and others choose, leaves by {default.name}, {rates}"
            + ("; NCCL sends by RDMA, and only its start and gloo by sockets" if rdma else "")
        ),
        advice=advice + (f" NCCL_IB_HCA={hca_list(rdma)}" if rdma else ""),
        cost_percent=None if rdma else cost,
    )


def _rdma_that_serves(node: Node) -> list[Vertex]:
    """The RDMA ports by which NCCL sends, so that sockets carry little."""
    usable = node.gpus and node.count("rdma_user_devices") != 0
    return [nic for nic in node.rdma_nics if is_up(nic)] if usable else []


def _loss(slow: Vertex, fast: Vertex) -> tuple[float, str]:
    """What sending by one interface in place of another costs, and both rates in words."""
    slow_rate, fast_rate = ((nic.speed or 0) / _BITS_PER_BYTE for nic in (slow, fast))
    words = f"at {format_bit_rate(slow_rate)} where {fast.name} has {format_bit_rate(fast_rate)}"
    return star_cost(dict.fromkeys("ab", slow_rate), dict.fromkeys("ab", fast_rate)), words


def _same_network(node: Node, addressed: list[Vertex]) -> Iterator[Finding]:
    """Several interfaces in one network: the kernel answers and sends for all of them by one."""
    members: dict[str, list[Vertex]] = defaultdict(list)
    for nic in addressed:
        for text in nic.attributes[IP_NETWORKS].split():
            members[text].append(nic)
    for network, nics in members.items():
        if len(nics) < 2:
            continue
        rates = [(nic.speed or 0) / _BITS_PER_BYTE for nic in nics]
        rdma = _rdma_that_serves(node)
        yield Finding(
            code="same-subnet",
            severity="info" if rdma else "warning",
            where=node.where(nics),
            evidence=(
                f"{listed([nic.name or nic.id for nic in nics])} are all in {network}: Linux sends what "
                "goes there by "
                f"one of them, at {format_bit_rate(max(rates))} of {format_bit_rate(sum(rates))} together, "
                "and answers for "
                "any of them on all" + ("; NCCL sends by RDMA, by each port as it is" if rdma else "")
            ),
            advice=(
                "a network for each, or source-based routes (ip rule) with arp_ignore=1 and arp_announce=2; "
                "bonded "
                "ports share one address"
            ),
            cost_percent=None
            if rdma
            else star_cost(dict.fromkeys("ab", max(rates)), dict.fromkeys("ab", sum(rates))),
        )

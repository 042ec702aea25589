"""Ports of RDMA devices by their own words: down, of the wrong kind, slower than their peers."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from topotune.health.costs import Costs, costed, raised_ports
from topotune.health.node import Node, is_up, listed
from topotune.links.finding import Finding
from topotune.topology.model import Vertex
from topotune.units import format_bit_rate

_PHYSICAL_STATE: Final = "ib.physical_state"
_BITS_PER_BYTE = 8
_NEAR = ("PIX", "PXB")
_SLOT = re.compile(r"(.+)\.[0-7]")
_PORT_OF_CARD = re.compile(r"(.+)f[0-9](?:np[0-9])?")
_LINK_TYPE: Final = (
    "mlxconfig -d DEVICE set LINK_TYPE_P1=1 and a restart of the card give it back to InfiniBand"
)


def port_findings(node: Node, costs: Costs) -> Iterator[Finding]:
    """All findings about the RDMA ports of a node that its ports alone show."""
    yield from _down(node, costs)
    yield from _wrong_layer(node)
    yield from _slower(node, costs)
    yield from _mixed(node)


def _active(node: Node, layer: str | None = None) -> list[Vertex]:
    return [nic for nic in node.rdma_nics if is_up(nic) and layer in (None, nic.link_layer)]


def _down(node: Node, costs: Costs) -> Iterator[Finding]:
    """Ports without a link beside ports that have one.

    A port that somebody disabled, the second port of a card whose first is cabled, and an Ethernet port
    beside an InfiniBand fabric are mostly meant.
    """
    active = _active(node)
    for nic in node.rdma_nics:
        if is_up(nic) is not False or not active:
            continue
        physical = nic.attributes.get(_PHYSICAL_STATE)
        peers = [peer for peer in active if peer.link_layer == nic.link_layer and peer.model == nic.model]
        reason = None
        if physical == "Disabled":
            reason = "somebody disabled it"
        elif any(_same_card(nic, other) for other in active):
            reason = "another port of its card is cabled"
        elif not peers or nic.link_layer is None:
            reason = "no port of its kind is up here, so that it may be meant"
        state = nic.state or "down"
        finding = Finding(
            code="port-down",
            severity="info" if reason else "error",
            where=node.where([nic]),
            evidence=(
                f"{nic.link_layer or 'RDMA'} port is {state}{f', {physical}' if physical else ''}, while "
                f"{len(peers) or len(active)} of {len(node.rdma_nics)} ports are up"
                + (f"; {reason}" if reason else "")
            ),
            advice=(
                "nothing, if it is not cabled; else look at cable, transceiver, switch port and subnet "
                "manager "
                "(Polling: no peer answers; INIT: no subnet manager)"
            ),
        )
        rates = Counter(peer.speed for peer in peers if peer.speed is not None)
        if reason is None and rates:
            usual = rates.most_common(1)[0][0]
            assert usual is not None
            finding = costed(finding, costs.of(node, raised_ports([nic], usual)))
        yield finding


def _same_card(a: Vertex, b: Vertex) -> bool:
    for pattern, first, second in (
        (_SLOT, a.pci_address, b.pci_address),
        (_PORT_OF_CARD, a.name or a.rdma_device, b.name or b.rdma_device),
    ):
        if first and second and first != second:
            one, other = pattern.fullmatch(first), pattern.fullmatch(second)
            if one and other and one[1] == other[1]:
                return True
    return False


def _wrong_layer(node: Node) -> Iterator[Finding]:
    """A port in Ethernet mode where its like are InfiniBand; a fault where it stands for one of them."""
    layers = {nic.model: Counter[str | None]() for nic in node.rdma_nics}
    for nic in node.rdma_nics:
        layers[nic.model][nic.link_layer] += 1
    for nic in node.rdma_nics:
        num_infiniband = layers[nic.model]["InfiniBand"]
        if (
            nic.link_layer != "Ethernet"
            or num_infiniband < 2
            or num_infiniband <= layers[nic.model]["Ethernet"]
        ):
            continue
        alone = [gpu for gpu in node.gpus if _only_near(node, gpu, nic)]
        finding = Finding(
            code="port-ethernet-mode",
            severity="warning" if alone else "info",
            where=node.where([nic]),
            evidence=(
                f"the port is in Ethernet mode, and {num_infiniband} of its model "
                f"({nic.model or 'not known'}) are "
                "InfiniBand"
                + (
                    f"; it is the only one near {listed([node.called(gpu) for gpu in alone])}; cost not "
                    "known: what "
                    "the fabric carries for others is not"
                    if alone
                    else ": a port for storage or management is mostly meant so"
                )
            ),
            advice=f"if it belongs to the fabric, {_LINK_TYPE}; else leave it out: NCCL_IB_HCA",
        )
        yield finding


def _only_near(node: Node, gpu: Vertex, nic: Vertex) -> bool:
    near = [other for other in node.rdma_nics if node.paths.between(gpu.id, other.id) in _NEAR]
    return nic in near and all(other.link_layer == "Ethernet" for other in near)


def _slower(node: Node, costs: Costs) -> Iterator[Finding]:
    """A port at a lower rate than all others of its kind."""
    alike: dict[tuple[str | None, str | None], list[Vertex]] = defaultdict(list)
    for nic in node.rdma_nics:
        if nic.speed is not None and is_up(nic) is not False:
            alike[nic.link_layer, nic.model].append(nic)
    for members in alike.values():
        rates = Counter(nic.speed for nic in members)
        usual, number = rates.most_common(1)[0]
        slow = [nic for nic in members if (nic.speed or 0) < (usual or 0)]
        if not slow or usual is None:
            continue
        # One that is slow among many is a fault; several may be of another network, unless GPUs hang on them.
        faulty = [nic for nic in slow if _serves_gpus(node, nic)] or (
            slow if len(slow) == 1 and number > 2 else []
        )
        rate = min(nic.speed or 0 for nic in slow)
        finding = Finding(
            code="port-slow",
            severity="warning" if faulty else "info",
            where=node.where(faulty or slow),
            evidence=(
                f"{format_bit_rate(rate / _BITS_PER_BYTE)} where {number} of {len(members)} ports of its "
                "kind have "
                f"{format_bit_rate(usual / _BITS_PER_BYTE)}" + ("" if faulty else ": perhaps another network")
            ),
            advice=(
                "look at cable, transceiver and the switch port's rate: mlxlink -d DEVICE shows what was "
                "negotiated"
            ),
        )
        yield costed(finding, costs.of(node, raised_ports(faulty, usual))) if faulty else finding


def _serves_gpus(node: Node, nic: Vertex) -> bool:
    return any(node.paths.between(gpu.id, nic.id) in _NEAR for gpu in node.gpus)


def _mixed(node: Node) -> Iterator[Finding]:
    """Slow RDMA ports that NCCL would use beside fast ones: which to name."""
    active = [nic for nic in node.rdma_nics if is_up(nic) is not False and nic.speed is not None]
    fastest = max((nic.speed or 0 for nic in active), default=0)
    fast = [nic for nic in active if nic.speed == fastest]
    rest = [nic for nic in active if (nic.speed or 0) < fastest]
    layers = {nic.link_layer for nic in active}
    if not rest or (len(layers) == 1 and fastest < 2 * max(nic.speed or 0 for nic in rest)):
        return
    yield Finding(
        code="mixed-rdma-ports",
        severity="info",
        where=node.where(rest),
        evidence=(
            f"{_rates(rest)} beside {_rates(fast)}: NCCL may use them together, and then waits for the slower"
        ),
        advice=f"NCCL_IB_HCA={hca_list(fast)}",
    )


def _rates(nics: Sequence[Vertex]) -> str:
    kinds = Counter((nic.link_layer or "RDMA", nic.speed or 0) for nic in nics)
    return listed(
        [
            f"{number} {layer} port{'s' if number > 1 else ''} of {format_bit_rate(speed / _BITS_PER_BYTE)}"
            for (layer, speed), number in kinds.items()
        ]
    )


def hca_list(nics: Sequence[Vertex]) -> str:
    """A value for NCCL_IB_HCA that names these ports and no other (``=``: names in full)."""
    return "=" + ",".join(dict.fromkeys(nic.rdma_device or nic.name or nic.id for nic in nics))

"""PCI Express links narrower or slower than both their ends can be, and devices behind a narrow way.

A GPU at rest lowers the rate of its link, to 2.5 or 5 GT/s, and raises it again under load; it keeps its
width. So a width below what both ends can do is a fault at any time, and a low rate of a GPU is one only
where it cannot be rest: the GPU is known to be at work, or the rate is above those of rest. Where a source
gives one figure (NCCL writes what the link can do, not what it does), devices are compared with their like.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from topotune.health.costs import Cost, Costs, costed, raised_links
from topotune.health.node import Node
from topotune.links.finding import Finding
from topotune.topology.model import PERFORMANCE_STATE, PcieLink, Vertex
from topotune.topology.rates import pcie_bandwidth_bytes_per_s, pcie_generation
from topotune.units import format_rate

_RATES_AT_REST = (2.5, 5.0)  # GT/s: to what GPUs go down when idle
_STATES_AT_WORK = ("P0", "P1", "P2")
_CHECKED: Final = ("gpu", "nic", "pci-device")
_NARROW = 0.75  # of the way that its peers have: beyond what encodings and rounding make
_MIN_LIKE = 4  # devices of one model: fewer do not tell which of them is odd
_HWLOC_RATE = "hwloc.pci_link_speed"  # of the moment: at rest it says nothing
_SEATING: Final = (
    "reseat the card; look at riser and slot (their wiring, and how the BIOS splits it); compare LnkSta with "
    "LnkCap of both ends in lspci -vv"
)


def pcie_findings(node: Node, costs: Costs) -> Iterator[Finding]:
    """All findings about a node's PCI Express links."""
    told: set[str] = set()
    for vertex in node.topology.vertices:
        if vertex.kind in _CHECKED and vertex.pcie is not None:
            problem = _own_problem(vertex, vertex.pcie)
            if problem is not None:
                told.add(vertex.id)
                yield _slow_link(node, vertex, *problem, costs)
    for vertex, code, evidence, able in _odd_ones(node, told):
        told.add(vertex.id)
        yield _slow_link(node, vertex, code, evidence, able, costs)
    yield from _narrow_ways(node, told, costs)


def _own_problem(vertex: Vertex, pcie: PcieLink) -> tuple[str, str, PcieLink] | None:
    """Code, evidence, and what the link could be, where it is less than both its ends can do."""
    slow = _below(pcie.speed_gt_per_s, pcie.max_speed_gt_per_s)
    able = PcieLink(
        speed_gt_per_s=pcie.max_speed_gt_per_s or pcie.speed_gt_per_s, width=pcie.max_width or pcie.width
    )
    if _below(pcie.width, pcie.max_width):
        also = f", and {pcie.speed_gt_per_s:g} GT/s of {able.speed_gt_per_s:g}" if slow else ""
        return "pcie-width", f"x{pcie.width} where both ends can do x{pcie.max_width}{also}", able
    if slow and not _may_rest(vertex, pcie):
        state = vertex.attributes.get(PERFORMANCE_STATE)
        at_work = f", in performance state {state}" if state else ""
        evidence = (
            f"{pcie.speed_gt_per_s:g} GT/s where both ends can do {able.speed_gt_per_s:g} GT/s{at_work}"
        )
        return "pcie-speed", evidence, able
    return None


def _below(now: float | None, able: float | None) -> bool:
    return now is not None and able is not None and now < able


def _may_rest(vertex: Vertex, pcie: PcieLink) -> bool:
    if vertex.kind != "gpu":
        return vertex.kind == "pci-device"  # nobody says what it is: perhaps a GPU
    state = vertex.attributes.get(PERFORMANCE_STATE)
    return state not in _STATES_AT_WORK and (state is not None or pcie.speed_gt_per_s in _RATES_AT_REST)


def _odd_ones(node: Node, told: set[str]) -> Iterator[tuple[Vertex, str, str, PcieLink]]:
    """Devices whose link is less than that of nearly all of their model, where the ends do not say."""
    alike: dict[tuple[str, str], list[tuple[Vertex, PcieLink]]] = defaultdict(list)
    for vertex in node.topology.vertices:
        pcie = vertex.pcie
        if vertex.kind in ("gpu", "nic") and pcie is not None and (vertex.model or vertex.kind == "gpu"):
            alike[vertex.kind, vertex.model or ""].append((vertex, pcie))
    for members in alike.values():
        one_figure = all(pcie.max_width is None and pcie.max_speed_gt_per_s is None for _, pcie in members)
        if len(members) < _MIN_LIKE or not one_figure:
            continue
        links = Counter((pcie.speed_gt_per_s, pcie.width) for _, pcie in members)
        (speed, width), number = links.most_common(1)[0]
        if speed is None or width is None or 4 * number < 3 * len(members):
            continue
        for vertex, pcie in members:
            if vertex.id in told:
                continue
            usual = f"{number} of {len(members)} like it have x{width} at {speed:g} GT/s"
            able = PcieLink(speed_gt_per_s=speed, width=width)
            if _below(pcie.width, width):
                yield vertex, "pcie-width", f"x{pcie.width} where {usual}", able
            elif _below(pcie.speed_gt_per_s, speed):
                yield vertex, "pcie-speed", f"{pcie.speed_gt_per_s:g} GT/s where {usual}", able


def _slow_link(node: Node, vertex: Vertex, code: str, evidence: str, able: PcieLink, costs: Costs) -> Finding:
    finding = Finding(
        code=code,
        severity="warning",
        where=node.where([vertex]),
        evidence=f"its PCI Express link has {evidence}",
        advice=_SEATING,
    )
    way = node.tree.way(vertex)
    speed, width = able.speed_gt_per_s, able.width
    if not way or speed is None or width is None or pcie_generation(speed) is None or width < 1:
        return costed(finding, Cost(percent=None, reason="the links around it are not shown"))
    rate = pcie_bandwidth_bytes_per_s(speed, width)
    return costed(finding, costs.of(node, raised_links({frozenset(way[0]): rate})))


def _narrow_ways(node: Node, told: set[str], costs: Costs) -> Iterator[Finding]:
    """GPUs whose way to the processor carries less than that of the node's best placed GPU."""
    ways = {
        gpu.id: narrowest
        for gpu in node.gpus
        if _HWLOC_RATE not in gpu.attributes and (narrowest := node.tree.narrowest(gpu)) is not None
    }
    if len(ways) < 2:
        return
    widest = max(rate for rate, _ in ways.values())
    groups: dict[tuple[str, str], list[Vertex]] = defaultdict(list)
    for gpu in node.gpus:
        if gpu.id in ways and gpu.id not in told and ways[gpu.id][0] < _NARROW * widest:
            groups[ways[gpu.id][1]].append(gpu)
    for step, gpus in groups.items():
        rate = ways[gpus[0].id][0]
        steps = {
            frozenset(each): widest
            for gpu in gpus
            for each in node.tree.way(gpu)
            if (carries := node.tree.carries(*each)) is not None and carries < widest
        }
        finding = Finding(
            code="narrow-way",
            severity="warning",
            where=node.where(gpus),
            evidence=(
                f"the way to the processor carries {format_rate(rate)} at {step[0]}, and "
                f"{format_rate(widest)} from the best placed GPU"
            ),
            advice=(
                "move the card to a slot that the processor itself drives with all lanes; a chipset's slots "
                "share few"
            ),
        )
        yield costed(finding, costs.of(node, raised_links(steps)))

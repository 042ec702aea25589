"""A cluster as a drawing (SVG): one card for nodes that look the same, the fabric beside them.

In a card, from top to bottom: sockets and NUMA nodes, host bridges, PCI Express switches, then GPUs and NICs
in the order of the tree above them, then NVSwitches. To the right stand the fabric's switches by tier, equal
ones folded. Links are as wide as they are fast; what is slower than its class is dashed. Their colour tells
their kind, and red the slow ones, or the share that each has of the median rate of its class: a page switches
between both by CSS (``by-share``, see ``report/html``). Each thing says more when it is pointed at.
"""

import html
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from topotune.report.content import Drawing
from topotune.report.pictures.axes import plain
from topotune.report.pictures.folded import SLOW_SHARE, Folded, NodeGroup, SwitchGroup, Trunk, Wire, fold
from topotune.topology.model import Topology, Vertex
from topotune.units import format_rate

MAX_CARDS: Final = 16
_MAX_BOXES_A_ROW: Final = 40
_MAX_SWITCH_GROUPS: Final = 40
_MAX_TRUNKS: Final = 400

_BOX_W, _BOX_H, _GAP = 64, 26, 8
_ROW_STEP: Final = 62
_PAD: Final = 16
_HEAD: Final = 30
_FABRIC_W, _FABRIC_GAP = 170, 130

_ROWS: Final[tuple[frozenset[str], ...]] = (
    frozenset({"cpu", "numa"}),
    frozenset({"pcie-root"}),
    frozenset({"pcie-switch"}),
    frozenset({"gpu", "nic"}),
    frozenset({"nvswitch", "switch"}),
)
_SWITCHES, _LEAVES = 2, 3
_SHARES: Final = (
    ("share-4", 0.9, "90 % of its class and more"),
    ("share-3", 0.75, "75 to 90 %"),
    ("share-2", 0.5, "50 to 75 %"),
    ("share-1", 0.0, "below 50 %"),
)
"""Class of a line, the least share that it stands for, and what the legend says."""
_NO_SHARE: Final = ("share-0", "nothing to compare with")
LINK_WORDS: Final = {
    "nvlink": "NVLink",
    "pcie": "PCI Express",
    "numa": "between NUMA nodes",
    "infiniband": "InfiniBand",
    "roce": "RoCE",
    "efa": "EFA",
    "ethernet": "Ethernet",
    "shm": "shared memory",
    "unknown": "of unknown kind",
}


@dataclass(frozen=True, slots=True)
class _Box:
    """Where something stands, by its centre."""

    x: float
    y: float
    width: float


def cluster_drawing(topology: Topology) -> Drawing | None:
    """Draw a topology; None where it has no vertices."""
    folded = fold(topology)
    if not folded.nodes and not folded.switches:
        return None
    shown = folded.nodes[:MAX_CARDS]
    parts: list[str] = []
    ends: dict[int, tuple[float, float]] = {}
    top, card_w = _PAD, 260.0
    cards = [_card(group, _members_in_words(group)) for group in shown]
    card_w = max([card_w, *(width for _, width, _ in cards)])
    for number, (markup, _, height) in enumerate(cards):
        parts.append(f'<g transform="translate({_PAD},{top})">{_frame(card_w, height)}{markup}</g>')
        ends[number] = (_PAD + card_w, top + height / 2)
        top += int(height) + _PAD
    if len(folded.nodes) > len(shown):
        rest = folded.nodes[len(shown) :]
        text = (
            f"and {len(rest)} more kinds of nodes ({sum(len(one.nodes) for one in rest)} nodes), in the table"
        )
        parts.append(f'<text class="more" x="{_PAD}" y="{top + 14}">{text}</text>')
        top += 30
    fabric, fabric_ends, right, bottom = _fabric(folded, _PAD + card_w + _FABRIC_GAP, top)
    ends |= fabric_ends
    height = max(top, bottom) + 4
    trunks = [one for one in folded.trunks[:_MAX_TRUNKS] if one.a in ends and one.b in ends]
    lines = [_trunk(trunk, ends, len(folded.nodes)) for trunk in trunks]
    counts = [_count_along(trunk, ends, len(folded.nodes)) for trunk in trunks]
    width = math.ceil(right if folded.switches else _PAD * 2 + card_w + (60 if lines else 0))
    kinds = sorted({link.kind for link in topology.links}, key=list(LINK_WORDS).index)
    slow = any(
        wire.is_slow
        for wires in (*(group.wires for group in shown), *(trunk.wires for trunk in folded.trunks))
        for wire in wires
    )
    legend, legend_h = _legends(kinds, slow, height, width)
    alt = _alt(folded)
    svg = (
        f'<svg class="cluster" viewBox="0 0 {width} {math.ceil(height + legend_h)}" role="img" '
        f'aria-label="{html.escape(alt)}">{"".join(lines)}{"".join(parts)}{fabric}{"".join(counts)}{legend}</svg>'
    )
    return Drawing(title="The cluster", svg=svg, alt=alt, width_px=min(width, 900))


def _alt(folded: Folded) -> str:
    num_nodes = sum(len(group.nodes) for group in folded.nodes)
    num_switches = sum(len(group.names) for group in folded.switches)
    kinds = len(folded.nodes)
    return (
        f"{num_nodes} node{'s' * (num_nodes != 1)} of {kinds} kind{'s' * (kinds != 1)}"
        f"{f', {num_switches} fabric switches' if num_switches else ''}"
    )


def _members_in_words(group: NodeGroup) -> str:
    names = group.nodes
    if len(names) == 1:
        return plain(names[0], 60)
    return f"{len(names)} nodes alike: {plain(names[0], 30)} … {plain(names[-1], 30)}"


def _frame(width: float, height: float) -> str:
    return f'<rect class="card" width="{width:.0f}" height="{height:.0f}" rx="8"/>'


def _card(group: NodeGroup, title: str) -> tuple[str, float, float]:
    """Markup of a card, its width and height."""
    rows = _rows(group)
    boxes: dict[str, _Box] = {}
    width = _place(rows, group.wires, boxes)
    used = [number for number, row in enumerate(rows) if row]
    y_of = {number: _HEAD + _BOX_H / 2 + 10 + at * _ROW_STEP for at, number in enumerate(used)}
    placed = {
        vertex.id: _Box(boxes[vertex.id].x, y_of[number], _BOX_W)
        for number in used
        for vertex in rows[number]
    }
    hidden = len(group.vertices) - len(placed)
    lowest = y_of[used[-1]] if used else _HEAD + _BOX_H / 2
    height = lowest + _BOX_H / 2 + 16 + _depth_below(group, placed, lowest)
    markup = [f'<text class="title" x="12" y="20">{title}</text>']
    markup.extend(
        _wire(wire, placed[wire.a], placed[wire.b])
        for wire in sorted(group.wires, key=lambda wire: wire.is_slow)
        if wire.a in placed and wire.b in placed
    )
    markup.extend(_vertex(vertex, placed[vertex.id]) for number in used for vertex in rows[number])
    said = []
    if hidden:
        said.append(f"{hidden} more are not drawn")
    if group.num_left_out:
        said.append(f"{group.num_left_out} other PCI devices")
    if said:
        markup.append(f'<text class="more" x="12" y="{height + 2:.0f}">{", ".join(said)}</text>')
        height += 12
    return "".join(markup), width, height


def _depth_below(group: NodeGroup, placed: Mapping[str, _Box], y: float) -> float:
    """How far arcs between boxes of the row at ``y`` hang below it: half as deep as their control point."""
    ends = [(placed[wire.a], placed[wire.b]) for wire in group.wires if {wire.a, wire.b} <= placed.keys()]
    return max((_arc_depth(a, b) / 2 for a, b in ends if a.y == b.y == y), default=0.0)


def _arc_depth(a: _Box, b: _Box) -> float:
    return min(44.0, 14.0 + abs(a.x - b.x) / 14)


def _rows(group: NodeGroup) -> list[list[Vertex]]:
    rank = {one: at for at, one in enumerate(_tree_order(group))}
    rows: list[list[Vertex]] = []
    for kinds in _ROWS:
        row = sorted((v for v in group.vertices if v.kind in kinds), key=lambda v: rank[v.id])
        rows.append(row[:_MAX_BOXES_A_ROW])
    return rows


def _tree_order(group: NodeGroup) -> list[str]:
    """Vertices as a walk down the PCI Express tree meets them, so that few lines cross."""
    level = {vertex.id: _level(vertex) for vertex in group.vertices}
    below: dict[str, list[str]] = defaultdict(list)
    for wire in group.wires:
        if wire.kind in ("pcie", "numa"):
            high, low = sorted((wire.a, wire.b), key=level.__getitem__)
            below[high].append(low)
    order: dict[str, None] = {}
    starts = sorted(level, key=lambda one: level[one])
    for start in starts:
        stack = [start]
        while stack:
            here = stack.pop()
            if here not in order:
                order[here] = None
                deeper = [one for one in below[here] if level[one] > level[here] or level[here] == _SWITCHES]
                stack.extend(reversed(deeper))
    return list(order)


def _level(vertex: Vertex) -> int:
    return next(number for number, kinds in enumerate(_ROWS) if vertex.kind in kinds)


def _place(rows: Sequence[Sequence[Vertex]], wires: Iterable[Wire], boxes: dict[str, _Box]) -> float:
    """Centres along x: leaves side by side, others above what hangs on them; the width of all."""
    step = _BOX_W + _GAP
    widest = max((len(row) for row in rows), default=1)
    width = max(260.0, 2 * 12 + widest * step - _GAP)
    neighbours: dict[str, list[str]] = defaultdict(list)
    for wire in wires:
        neighbours[wire.a].append(wire.b)
        neighbours[wire.b].append(wire.a)
    leaves = rows[_LEAVES] or max(rows, key=len)
    start = (width - (len(leaves) * step - _GAP)) / 2 + _BOX_W / 2
    for at, vertex in enumerate(leaves):
        boxes[vertex.id] = _Box(start + at * step, 0, _BOX_W)
    for number in (2, 1, 0, 3, 4):
        row = [vertex for vertex in rows[number] if vertex.id not in boxes]
        wished = []
        for at, vertex in enumerate(row):
            near = [boxes[one].x for one in neighbours[vertex.id] if one in boxes]
            wished.append((sum(near) / len(near) if near else (at + 0.5) * width / len(row), vertex.id))
        for x, name in _spread(sorted(wished), step, width):
            boxes[name] = _Box(x, 0, _BOX_W)
    return width


def _spread(wished: Sequence[tuple[float, str]], step: float, width: float) -> list[tuple[float, str]]:
    """The wished centres, pushed apart to ``step`` and back inside the width."""
    found: list[list[float]] = []
    for x, _ in wished:
        found.append([max(x, found[-1][0] + step) if found else max(x, 12 + _BOX_W / 2)])
    limit = width - 12 - _BOX_W / 2
    for one in reversed(found):
        one[0] = min(one[0], limit)
        limit = one[0] - step
    return [(x[0], name) for x, (_, name) in zip(found, wished, strict=True)]


def _vertex(vertex: Vertex, box: _Box) -> str:
    x, y = box.x - _BOX_W / 2, box.y - _BOX_H / 2
    said = [vertex.id, vertex.model, vertex.pci_address]
    if vertex.speed is not None:
        said.append(f"{vertex.speed / 1e9:g} Gbit/s")
    if vertex.state is not None:
        said.append(vertex.state)
    title = plain(" · ".join(one for one in said if one), 200)
    return (
        f'<g class="v {vertex.kind}"><title>{title}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{_BOX_W}" height="{_BOX_H}" rx="4"/>'
        f'<text x="{box.x:.1f}" y="{box.y + 4:.1f}">{plain(_label(vertex), 10)}</text></g>'
    )


def _label(vertex: Vertex) -> str:
    number = "" if vertex.index is None else f" {vertex.index}"
    match vertex.kind:
        case "gpu":
            return f"GPU{number}"
        case "nic":
            return vertex.name or f"NIC{number}"
        case "numa":
            return f"NUMA{number}"
        case "cpu":
            return f"CPU{number}"
        case "pcie-root":
            return "bridge"
        case "pcie-switch":
            return "PCIe sw."
        case _:
            return "NVSwitch" if vertex.kind == "nvswitch" else "switch"


def _wire(wire: Wire, a: _Box, b: _Box) -> str:
    if a.y == b.y:
        depth = _arc_depth(a, b)
        low = a.y + _BOX_H / 2
        way = f"M{a.x:.1f} {low:.1f}Q{(a.x + b.x) / 2:.1f} {low + depth:.1f} {b.x:.1f} {low:.1f}"
    else:
        top, bottom = (a, b) if a.y < b.y else (b, a)
        way = f"M{top.x:.1f} {top.y + _BOX_H / 2:.1f}L{bottom.x:.1f} {bottom.y - _BOX_H / 2:.1f}"
    return _line(way, _look(wire.kind, wire.share), _stroke(wire), _wire_in_words(wire))


def _look(kind: str, share: float | None) -> str:
    """Classes of a line: its kind, its share, and whether that is slow."""
    if share is None:
        return f"l {kind} {_NO_SHARE[0]}"
    name = next(name for name, least, _ in _SHARES if share >= least)
    return f"l {kind} {name}{' slow' if share < SLOW_SHARE else ''}"


def _line(way: str, classes: str, stroke: float, title: str) -> str:
    style = f"stroke-width:{stroke:.1f}"
    return f'<path class="{classes}" style="{style}" d="{way}"><title>{title}</title></path>'


def _stroke(wire: Wire) -> float:
    rate = wire.bandwidth_bytes_per_s
    return 1.2 if rate is None else min(5.0, max(1.0, math.log10(rate) - 8.8))


def _wire_in_words(wire: Wire) -> str:
    lanes = f" × {wire.lanes}" if wire.lanes and wire.lanes > 1 else ""
    rate = "" if wire.bandwidth_bytes_per_s is None else f", {format_rate(wire.bandwidth_bytes_per_s)}"
    share = f", {100 * wire.share:.0f} % of its class" if wire.share is not None else ""
    return f"{plain(wire.a, 60)} – {plain(wire.b, 60)}: {LINK_WORDS[wire.kind]}{lanes}{rate}{share}"


def _fabric(
    folded: Folded, left: float, height: float
) -> tuple[str, dict[int, tuple[float, float]], float, float]:
    """Markup of the switches, where lines may end, the right and the lower edge."""
    columns: dict[int, list[tuple[int, SwitchGroup]]] = defaultdict(list)
    for number, group in enumerate(folded.switches[:_MAX_SWITCH_GROUPS]):
        columns[group.tier or 0].append((len(folded.nodes) + number, group))
    parts: list[str] = []
    ends: dict[int, tuple[float, float]] = {}
    bottom = 0.0
    for column, tier in enumerate(sorted(columns, key=lambda tier: tier or math.inf)):
        x = left + column * (_FABRIC_W + _FABRIC_GAP)
        step = max(64.0, height / (len(columns[tier]) + 1))
        for at, (number, group) in enumerate(columns[tier]):
            y = step * (at + 1) if height >= 64 * (len(columns[tier]) + 1) else 40 + 64.0 * at
            parts.append(_switches(group, x, y))
            ends[number] = (x, y)
            bottom = max(bottom, y + 40)
    right = left + max(1, len(columns)) * (_FABRIC_W + _FABRIC_GAP) - _FABRIC_GAP + _PAD
    return "".join(parts), ends, right, bottom


def _switches(group: SwitchGroup, x: float, y: float) -> str:
    count = len(group.names)
    tier = "not reached" if group.tier is None else f"tier {group.tier}"
    head = plain(group.names[0], 22) if count == 1 else f"{count} switches alike"
    names = plain(", ".join(group.names[:5]) + (" …" if count > 5 else ""), 200)
    return (
        f'<g class="v switch"><title>{names}</title><rect x="{x:.1f}" y="{y - 20:.1f}" width="{_FABRIC_W}" '
        f'height="40" rx="4"/><text x="{x + _FABRIC_W / 2:.1f}" y="{y - 3:.1f}">{head}</text>'
        f'<text x="{x + _FABRIC_W / 2:.1f}" y="{y + 12:.1f}">{tier}</text></g>'
    )


def _trunk(trunk: Trunk, ends: Mapping[int, tuple[float, float]], num_nodes: int) -> str:
    x1, y1 = ends[trunk.a]
    x2, y2 = ends[trunk.b]
    title = _trunk_in_words(trunk)
    shares = [wire.share for wire in trunk.wires if wire.share is not None]
    look = _look(trunk.wires[0].kind, min(shares, default=None))
    stroke = max(_stroke(wire) for wire in trunk.wires) + 1
    if trunk.a == trunk.b:
        out = x1 + (28 if trunk.a < num_nodes else 20)
        return _line(f"M{x1} {y1 - 14}C{out} {y1 - 14} {out} {y1 + 14} {x1} {y1 + 14}", look, stroke, title)
    if trunk.b < num_nodes:  # two cards, one below the other
        out = x1 + 24 + 4 * (trunk.b - trunk.a)
        return _line(f"M{x1} {y1}C{out} {y1} {out} {y2} {x2} {y2}", look, stroke, title)
    x1 = _leaves_at(trunk, ends, num_nodes)
    middle = (x1 + x2) / 2
    return _line(f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}", look, stroke, title)


def _leaves_at(trunk: Trunk, ends: Mapping[int, tuple[float, float]], num_nodes: int) -> float:
    """Where a line begins: at the right edge of a switch that has its other end beside it."""
    x1, x2 = ends[trunk.a][0], ends[trunk.b][0]
    return x1 + _FABRIC_W if trunk.a >= num_nodes and x1 != x2 else x1


def _count_along(trunk: Trunk, ends: Mapping[int, tuple[float, float]], num_nodes: int) -> str:
    """How many links a line to a switch stands for, in its middle."""
    if trunk.a == trunk.b or trunk.b < num_nodes:
        return ""
    (_, y1), (x2, y2) = ends[trunk.a], ends[trunk.b]
    x = (_leaves_at(trunk, ends, num_nodes) + x2) / 2
    count = f"{len(trunk.wires)} link{'s' * (len(trunk.wires) > 1)}"
    return f'<text class="along" x="{x:.0f}" y="{(y1 + y2) / 2 - 5:.0f}">{count}</text>'


def _trunk_in_words(trunk: Trunk) -> str:
    rates = sorted(
        wire.bandwidth_bytes_per_s for wire in trunk.wires if wire.bandwidth_bytes_per_s is not None
    )
    kinds = ", ".join(sorted({LINK_WORDS[wire.kind] for wire in trunk.wires}))
    said = f"{len(trunk.wires)} links, {kinds}"
    if rates:
        span = format_rate(rates[0])
        said += f", {span if rates[0] == rates[-1] else f'{span} to {format_rate(rates[-1])}'} each"
    slow = sum(wire.is_slow for wire in trunk.wires)
    return f"{said}, {slow} of them slower than their class" if slow else said


def _legends(kinds: Sequence[str], slow: bool, top: float, width: int) -> tuple[str, float]:
    """What colours mean, by kind and by share, in one place: a page shows one of them. And their height."""
    by_kind = [(kind, LINK_WORDS[kind]) for kind in kinds]
    by_share = [*((name, words) for name, _, words in _SHARES), _NO_SHARE]
    parts = [
        _legend("by-kind", [*by_kind, *([("slow", "slower than its class")] if slow else [])], top, width),
        _legend("by-share", by_share, top, width),
    ]
    return "".join(markup for markup, _ in parts), max(height for _, height in parts)


def _legend(name: str, entries: Sequence[tuple[str, str]], top: float, width: int) -> tuple[str, float]:
    parts = []
    x, y = float(_PAD), top + 22
    for classes, words in entries:
        room = 40 + 7.2 * len(words)
        if x + room > width and x > _PAD:
            x, y = float(_PAD), y + 20
        parts.append(
            f'<path class="l {classes}" style="stroke-width:3" d="M{x:.0f} {y - 4:.0f}h24"/>'
            f'<text class="more" x="{x + 30:.0f}" y="{y:.0f}">{words}</text>'
        )
        x += room
    return f'<g class="legend {name}">{"".join(parts)}</g>', y - top + 10

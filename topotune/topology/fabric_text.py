"""The fabric between nodes as text: its switches tier by tier, what they lead to, and how fast."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from topotune.topology.model import Topology, Vertex
from topotune.topology.tiers import switch_tiers
from topotune.units import format_line_rate

_NAMED = 3


def fabric_lines(topology: Topology) -> Iterator[str]:
    """A heading, and one line for each tier, the hosts' first; nothing where there is no fabric.

    ``tier 1   8 switches   17 to 18 adapters and 34 cables up each   400 Gbit/s``
    """
    fabric = [vertex for vertex in topology.vertices if vertex.node is None]
    if not fabric:
        return
    switches = {vertex.id: vertex for vertex in fabric if vertex.kind == "switch"}
    others = Counter(vertex.kind for vertex in fabric if vertex.kind != "switch")
    more = "".join(f", {number} {kind}" for kind, number in sorted(others.items()))
    yield f"fabric: {_counted(len(switches), 'switch')}{more}"
    tiers = switch_tiers(topology)
    below, above, rates = _links_by_switch(topology, switches, tiers)
    by_tier: dict[int | None, list[Vertex]] = defaultdict(list)
    for switch in switches.values():
        by_tier[tiers[switch.id]].append(switch)
    for tier in sorted(by_tier, key=lambda tier: tier or 10**9):
        group = by_tier[tier]
        label = "apart " if tier is None else f"tier {tier}"
        downwards = _range([below[switch.id] for switch in group], "adapter" if tier == 1 else "link down")
        upwards = _range([above[switch.id] for switch in group], "link up")
        each = ", ".join(part for part in (downwards, upwards) if part)
        found = sorted({rate for switch in group for rate in rates[switch.id]})
        speed = "" if not found else format_line_rate(found[0])
        if len(found) > 1:
            speed += f" to {format_line_rate(found[-1])}"
        names = ", ".join(_name(switch) for switch in group[:_NAMED])
        rest = f" and {len(group) - _NAMED} more" if len(group) > _NAMED else ""
        yield "  " + "   ".join(
            part for part in (label, _counted(len(group), "switch"), each and f"each {each}", speed) if part
        )
        yield f"          {names}{rest}"


def _links_by_switch(
    topology: Topology, switches: dict[str, Vertex], tiers: dict[str, int | None]
) -> tuple[Counter[str], Counter[str], dict[str, set[float]]]:
    """Of each switch: links to adapters and lower tiers, to the same or higher ones, rates in bits/s."""
    below: Counter[str] = Counter()
    above: Counter[str] = Counter()
    rates: dict[str, set[float]] = defaultdict(set)
    for link in topology.links:
        if link.src not in switches:
            continue
        here, there = tiers[link.src], tiers.get(link.dst)
        upwards = link.dst in switches and here is not None and there is not None and there >= here
        (above if upwards else below)[link.src] += link.lanes or 1
        if link.bandwidth_bytes_per_s is not None:
            rates[link.src].add(link.bandwidth_bytes_per_s * 8 / (link.lanes or 1))
    return below, above, rates


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 'es' if what == 'switch' else 's'}"


def _range(numbers: list[int], what: str) -> str:
    """``17 to 18 adapters``; nothing for none."""
    low, high = min(numbers), max(numbers)
    if not high:
        return ""
    word, _, rest = what.partition(" ")
    plural = f"{word}{'' if high == 1 else 's'}{' ' + rest if rest else ''}"
    return f"{high} {plural}" if low == high else f"{low} to {high} {plural}"


def _name(switch: Vertex) -> str:
    return switch.name or switch.guid or switch.id.rpartition("/")[2]

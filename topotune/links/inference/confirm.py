"""Which flows to run afresh, so that a suspicion becomes a verdict.

For each suspected group and direction: 1, 2, 4, … flows at once across its boundary, up to as many as there
are nodes on the smaller side; beside them as many flows inside groups, which load the same nodes and the
machine as much and the uplinks not at all. Flows are paired anew in a second variant, so that one slow path
is not taken for a narrow link. Each suspected node or path is run by itself.
"""

from collections.abc import Sequence

from topotune.links.flow_plan import FlowPlan
from topotune.links.flows import Purpose
from topotune.links.inference.structure import Hypothesis, Suspect
from topotune.links.measurement import Measurement
from topotune.links.rounds import members_of_nodes

NUM_SWEEPS = 4
"""How often all plans should run: with two variants that makes 8 fresh samples across and 8 inside."""
_NUM_VARIANTS = 2
_NUM_PARTNERS = 2  # of a suspected node: if it is slow with both it is not the path

NodeFlow = tuple[int, int]
_Urgency = int
_FIRST, _SUSPECT, _SECOND, _RAMP = range(4)


def confirming_tests(hypothesis: Hypothesis, measurement: Measurement) -> tuple[FlowPlan, ...]:
    """Plans to be run on fresh samples, all ``NUM_SWEEPS`` times in turn; () where nothing is suspected.

    What comes last can be left out where there is no time for all: first comes what a verdict cannot do
    without, then suspects, then variants, then the steps between one flow and all.

    Args:
        hypothesis: what ``suspected_groups`` found.
        measurement: where it found it: which ranks the nodes have. Flows run between the nodes' first ranks.
    """
    first = [ranks[0] for ranks in members_of_nodes(measurement.node_of_rank)]
    groups = [group.nodes for group in hypothesis.groups]
    planned: list[tuple[_Urgency, Purpose, tuple[NodeFlow, ...]]] = []
    seen_from_outside: set[frozenset[int]] = set()
    most = 0
    for index, group in enumerate(hypothesis.groups):
        outside = surroundings(groups, group.parent, group.nodes, len(first))
        if frozenset(group.nodes) in seen_from_outside:
            continue  # one of two halves: what leaves it enters the other
        seen_from_outside.add(frozenset(outside))
        inside = spread(group.nodes, _children(groups, index))
        outside = spread(outside, _siblings(groups, hypothesis, index))
        size = min(len(inside), len(outside))
        most = max(most, size)
        for count in _ramp(size):
            for variant in range(_NUM_VARIANTS if count in (1, size) else 1):
                out = [
                    (inside[(place + variant) % len(inside)], outside[(place + 2 * variant) % len(outside)])
                    for place in range(count)
                ]
                urgency = _SECOND if variant else _FIRST if count in (1, size) else _RAMP
                into = [(sink, source) for source, sink in out]
                planned += [(urgency, "boundary", tuple(sorted(flows))) for flows in (out, into)]
    # The more boundaries are judged, the surer each must be; controls are the cheapest samples for that.
    for variant in range(0 if not groups else _NUM_VARIANTS if len(groups) <= 2 else 2 * _NUM_VARIANTS):
        flows = _inside_groups(groups, most, variant)
        planned.append((_SECOND if variant else _FIRST, "control", tuple(flows)))
    for suspect in hypothesis.suspects:
        suspected = _flows_of(suspect, hypothesis, groups, len(first))
        planned += [(_SUSPECT, "isolated", (flow,)) for flow in suspected]
    planned.sort(key=lambda plan: plan[0])
    plans = (
        FlowPlan(purpose=purpose, flows=tuple((first[source], first[sink]) for source, sink in flows))
        for _, purpose, flows in planned
    )
    return tuple(dict.fromkeys(plans))


def surroundings(
    groups: Sequence[Sequence[int]], parent: int | None, nodes: Sequence[int], num_nodes: int
) -> list[int]:
    """The nodes around a group that nothing but its own uplink parts from it: those in the same outer group.

    Where there are fewer than two of those, all nodes outside.
    """
    inside = set(nodes)
    near = [node for node in (range(num_nodes) if parent is None else groups[parent]) if node not in inside]
    return near if len(near) > 1 else [node for node in range(num_nodes) if node not in inside]


def spread(nodes: Sequence[int], parts: Sequence[Sequence[int]]) -> list[int]:
    """The nodes in turn from each part, so that the first k load all alike; the rest is a part as well."""
    wanted, in_parts = set(nodes), {node for part in parts for node in part}
    queues = [[node for node in part if node in wanted] for part in parts]
    queues.append([node for node in nodes if node not in in_parts])
    dealt = []
    for place in range(max(map(len, queues))):
        dealt += [queue[place] for queue in queues if place < len(queue)]
    return dealt


def _children(groups: Sequence[Sequence[int]], index: int) -> list[Sequence[int]]:
    """The innermost groups inside a group."""
    inside = [nodes for nodes in groups if set(nodes) < set(groups[index])]
    return [nodes for nodes in inside if not any(set(other) < set(nodes) for other in inside)]


def _siblings(groups: Sequence[Sequence[int]], hypothesis: Hypothesis, index: int) -> list[Sequence[int]]:
    parent = hypothesis.groups[index].parent
    return [
        group.nodes
        for other, group in enumerate(hypothesis.groups)
        if other != index and group.parent == parent
    ]


def _ramp(size: int) -> list[int]:
    """1, 2, 4, … and the size itself."""
    counts = [2**power for power in range(size.bit_length()) if 2**power < size]
    return [*counts, size]


def _inside_groups(groups: Sequence[Sequence[int]], most: int, variant: int) -> list[NodeFlow]:
    """At most so many flows, spread over the innermost groups; no node sends and receives."""
    innermost = [nodes for nodes in groups if not any(set(other) < set(nodes) for other in groups)]
    flows = []
    for nodes in innermost:
        turned = [*nodes[variant % len(nodes) :], *nodes[: variant % len(nodes)]]
        flows.append(list(zip(turned[::2], turned[1::2], strict=False)))
    dealt = [
        of_group[place]
        for place in range(max(map(len, flows)))
        for of_group in flows
        if place < len(of_group)
    ]
    return sorted(dealt[:most])


def _flows_of(
    suspect: Suspect, hypothesis: Hypothesis, groups: Sequence[Sequence[int]], num_nodes: int
) -> list[NodeFlow]:
    """A node with some others of its group, not suspected if possible; a path, and its ends with others."""
    doubted = {end for other in hypothesis.suspects for end in (other.source, other.sink)}

    def partners(node: int) -> list[int]:
        around = [nodes for nodes in groups if node in nodes]
        others = [other for other in (around[-1] if around else range(num_nodes)) if other != node]
        found = [other for other in others if other not in (suspect.source, suspect.sink)] or others
        return sorted(found, key=lambda other: other in doubted)

    source, sink = suspect.source, suspect.sink
    if source is not None and sink is not None:
        return [(source, sink), (source, partners(source)[0]), (partners(sink)[0], sink)]
    if source is not None:
        return [(source, partner) for partner in partners(source)[:_NUM_PARTNERS]]
    assert sink is not None
    return [(partner, sink) for partner in partners(sink)[:_NUM_PARTNERS]]

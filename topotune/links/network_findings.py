"""What the structure of the network says unasked: racks and their uplinks, slow nodes, slow paths."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from topotune.bounds import NoBound, allreduce_bound
from topotune.links.finding import Finding
from topotune.links.inference import Fault, Group, Structure
from topotune.links.inference.ends import crossing_paths
from topotune.links.measurement import Measurement
from topotune.links.model import LinkModel, PairsAcross, SharedCapacity
from topotune.links.network import group_in_words
from topotune.units import format_bit_rate

_MAX_COSTED_NODES = 24  # beyond, bounds with and without each fault take seconds
_MIN_COST_PERCENT = 1.0
_MAX_GROUPS_NAMED = 4


def network_findings(measurement: Measurement, model: LinkModel, structure: Structure) -> list[Finding]:
    """Groups, uplinks, slow nodes and paths; or that no groups were found, if they were looked for.

    What something costs is by how much the provable optimum of allreduce would be faster without it.
    """
    names = measurement.node_names
    if structure.num_nodes == 1 or not (measurement.flow_tests or measurement.round_trips):
        return []
    return [
        *(_groups(structure.groups, names) if structure.groups else [_flat(structure)]),
        *_uplinks(model, structure.groups, names),
        *_slow_nodes(model, structure.faults, names),
        *_slow_paths(structure.faults, names),
    ]


def is_explained(pairs: Sequence[tuple[int, int]], measurement: Measurement, structure: Structure) -> bool:
    """Whether each of these slow rank pairs crosses a group's boundary or touches a slow node or path."""
    crossing = crossing_paths([group.nodes for group in structure.groups], structure.num_nodes)
    nodes = measurement.node_of_rank

    def one(source: int, sink: int) -> bool:
        return bool(crossing[source, sink]) or any(
            fault.source in (None, source) and fault.sink in (None, sink) for fault in structure.faults
        )

    return all(one(nodes[src], nodes[dst]) for src, dst in pairs)


def _groups(groups: Sequence[Group], names: Sequence[str]) -> list[Finding]:
    shown = ", ".join(group_in_words(group, names) for group in groups[:_MAX_GROUPS_NAMED])
    more = f" and {len(groups) - _MAX_GROUPS_NAMED} more" if len(groups) > _MAX_GROUPS_NAMED else ""
    reasons = sorted(frozenset[str]().union(*(group.reasons for group in groups)))
    if reasons == ["round trips"]:
        p_value = max(group.latency_p_value or 0.0 for group in groups)
        seen = f"seen in round trips (p = {p_value:.3f}); their uplinks carry all that their nodes send"
    else:
        seen = f"seen in {', '.join(reasons)}, and confirmed by fresh runs"
    return [
        Finding(
            code="racks",
            severity="info",
            where=shown + more,
            evidence=f"{len(groups)} groups of nodes, {seen}",
            advice="nothing to do: predictions, bounds and rank order count with them",
        )
    ]


def _flat(structure: Structure) -> Finding:
    return Finding(
        code="no-racks",
        severity="info",
        where="network between the nodes",
        evidence=structure.no_groups,
        advice="nothing to do, unless you know of racks: then measure for longer",
    )


def _uplinks(model: LinkModel, groups: Sequence[Group], names: Sequence[str]) -> list[Finding]:
    """One finding a group; of two halves of a cluster one stands for both, whose boundary is the same."""
    findings = []
    seen_from_outside: list[frozenset[int]] = []
    everything = frozenset(range(len(names)))
    for group in sorted(groups, key=lambda group: group.name):
        if not group.uplinks or frozenset(group.nodes) in seen_from_outside:
            continue
        seen_from_outside.append(everything - frozenset(group.nodes))
        said = []
        for uplink in group.uplinks:
            low, high = (format_bit_rate(rate) for rate in uplink.capacity_ci_bytes_per_s)
            said.append(
                f"{uplink.direction} {format_bit_rate(uplink.capacity_bytes_per_s)} (95 % interval {low} to "
                f"{high}, {uplink.num_samples} fresh runs) for nodes that reach "
                f"{format_bit_rate(uplink.members_bytes_per_s)}, {uplink.oversubscription:.1f} times as much"
            )
        ranks = frozenset(rank for rank, node in enumerate(model.node_of_rank) if node in set(group.nodes))
        cost = _cost_percent(model, _without_boundary(ranks))
        findings.append(
            Finding(
                code="oversubscribed-uplink",
                severity="warning" if cost is not None and cost >= _MIN_COST_PERCENT else "info",
                where=f"uplink of {group_in_words(group, names)}",
                evidence="; ".join(said),
                advice="send across it once, not once a node: hierarchical algorithms and rank order do",
                cost_percent=cost,
            )
        )
    return findings


def _slow_nodes(model: LinkModel, faults: Sequence[Fault], names: Sequence[str]) -> list[Finding]:
    """One finding a node, both directions together."""
    by_node: dict[int, list[Fault]] = {}
    for fault in faults:
        if fault.source is None or fault.sink is None:
            node = fault.source if fault.source is not None else fault.sink
            assert node is not None
            by_node.setdefault(node, []).append(fault)
    findings = []
    for node, its_faults in by_node.items():
        said = " and ".join(
            f"{'receives' if fault.source is None else 'sends'} at {format_bit_rate(fault.rate_bytes_per_s)} "
            f"where its class has {format_bit_rate(fault.class_bytes_per_s)} "
            f"({fault.num_slow} of {fault.num_runs} runs)"
            for fault in sorted(its_faults, key=lambda fault: fault.source is None)
        )
        like_others = {
            f"link of node {names[node]}, {'receiving' if fault.source is None else 'sending'}": (
                fault.class_bytes_per_s
            )
            for fault in its_faults
        }
        cost = _cost_percent(model, _at_least(like_others))
        findings.append(
            Finding(
                code="slow-node",
                severity="warning",
                where=f"node {names[node]}",
                evidence=f"node {names[node]} {said}",
                advice="look at its network device, negotiated rate, cable and switch port",
                cost_percent=cost,
            )
        )
    return findings


def _slow_paths(faults: Sequence[Fault], names: Sequence[str]) -> list[Finding]:
    return [
        Finding(
            code="slow-path",
            severity="warning",
            where=f"path from node {names[fault.source]} to node {names[fault.sink]}",
            evidence=(
                f"{format_bit_rate(fault.rate_bytes_per_s)} where both its ends reach "
                f"{format_bit_rate(fault.class_bytes_per_s)} with others "
                f"({fault.num_slow} of {fault.num_runs} runs)"
            ),
            advice="look at the links between the two: one of several parallel ones may be down or slow",
        )
        for fault in faults
        if fault.source is not None and fault.sink is not None
    ]


def _cost_percent(
    model: LinkModel, mended: Callable[[Sequence[SharedCapacity]], tuple[SharedCapacity, ...]]
) -> float | None:
    """By how much of its time the provable optimum would be shorter; None where there is no bound."""
    if len(set(model.node_of_rank)) > _MAX_COSTED_NODES:
        return None
    with_it = allreduce_bound(model)
    without = allreduce_bound(replace(model, shared=mended(model.shared)))
    if isinstance(with_it, NoBound) or isinstance(without, NoBound):
        return None
    return max(0.0, 100.0 * (1.0 - without.s_per_byte / with_it.s_per_byte))


def _without_boundary(
    ranks: frozenset[int],
) -> Callable[[Sequence[SharedCapacity]], tuple[SharedCapacity, ...]]:
    """Without what limits all traffic out of and into a set of ranks."""

    def stands_around(one: SharedCapacity) -> bool:
        if not isinstance(one.pairs, PairsAcross):
            return False
        return one.pairs.members in (ranks, frozenset(range(one.pairs.num_ranks)) - ranks)

    def mended(shared: Sequence[SharedCapacity]) -> tuple[SharedCapacity, ...]:
        return tuple(one for one in shared if not stands_around(one))

    return mended


def _at_least(rates: Mapping[str, float]) -> Callable[[Sequence[SharedCapacity]], tuple[SharedCapacity, ...]]:
    """With some limits raised to what others have."""

    def mended(shared: Sequence[SharedCapacity]) -> tuple[SharedCapacity, ...]:
        return tuple(
            replace(one, capacity_bytes_per_s=max(one.capacity_bytes_per_s, rates.get(one.name, 0.0)))
            for one in shared
        )

    return mended

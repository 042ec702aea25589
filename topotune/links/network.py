"""What the inferred structure of the network means for the costs of pairs. Pure.

Ping-pongs of pairs run in rounds, many pairs at once, since each pair alone would take forever. Behind a
narrow uplink that nobody knew of, such pairs slowed each other down, and their times are not those of an idle
network. What single flows reached tells: where they are as fast across the uplink as inside, pairs across
cost what pairs inside do; where they are not, their cost per byte is what single flows say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from topotune.links.classes import ByPair, Pair
from topotune.links.inference import Fault, Group, Structure
from topotune.links.inference.ends import crossing_paths
from topotune.links.inference.observations import best_of_paths, node_flows, reached
from topotune.links.measurement import Measurement, PairTiming
from topotune.links.model import LinkCost, PairsAcross, SharedCapacity

_FASTER = 1.25  # times what ping-pongs say: below it the two ways to measure may differ by themselves
_BULK_BYTES = 4 * 1024**2  # what a flow of a fraction of a second stands for
_MAX_NAMED = 4


def with_bulk(by_pair: ByPair, measurement: Measurement) -> ByPair:
    """The timings, with what large messages between nodes take as single flows say, where none were timed.

    On slow links large messages are too dear to be timed pair by pair, and small ones fit into the bursts
    that links let pass; a flow runs on until it shows what the link carries.
    """
    largest = max(
        (
            size
            for pair, timings in by_pair.items()
            if not measurement.is_within_node(*pair)
            for size in timings
        ),
        default=0,
    )
    if not 0 < largest < _BULK_BYTES:
        return by_pair
    samples: dict[Pair, list[float]] = {}
    for test in measurement.flow_tests:
        if len(test.flows) == 1:
            samples.setdefault(test.flows[0], []).extend(
                _BULK_BYTES / rate for rate in test.rates_bytes_per_s[0]
            )
    extended = {pair: dict(timings) for pair, timings in by_pair.items()}
    for (src, dst), times_s in samples.items():
        extended.setdefault((src, dst), {})[_BULK_BYTES] = PairTiming(
            src=src,
            dst=dst,
            message_bytes=_BULK_BYTES,
            one_way_s=tuple(times_s),
            half_round_trip_s=tuple(times_s),
        )
    return extended


class _Members(Protocol):
    """A class of pairs."""

    @property
    def members(self) -> Sequence[Pair]: ...


def undisturbed(by_pair: ByPair, measurement: Measurement, structure: Structure) -> ByPair:
    """The timings without those that pairs across an uplink took from each other.

    Left out are pairs across groups that neither single flows nor round trips show, as long as pairs inside
    groups are there to stand in for them.
    """
    shy = [group.nodes for group in structure.groups if group.reasons == {"concurrent flows"}]
    if not shy:
        return by_pair
    crossing = crossing_paths(shy, structure.num_nodes)
    nodes = measurement.node_of_rank
    kept = {
        pair: timings for pair, timings in by_pair.items() if not crossing[nodes[pair[0]], nodes[pair[1]]]
    }
    return kept if any(nodes[src] != nodes[dst] for src, dst in kept) else by_pair


def as_fast_as_lone_flows(
    costs: Sequence[LinkCost], classes: Sequence[_Members], measurement: Measurement, structure: Structure
) -> tuple[LinkCost, ...]:
    """The costs of classes of pairs across uplinks, with no cost per byte above what single flows had.

    Args:
        costs: one a class.
        classes: their pairs.
        measurement: with flows alone, or the costs stay.
        structure: whose groups' uplinks may have slowed pairs down.
    """
    crossing = crossing_paths([group.nodes for group in structure.groups], structure.num_nodes)
    lone = [test for test in node_flows(measurement) if len(test.sources) == 1]
    if not crossing.any() or not lone:
        return tuple(costs)
    rates = best_of_paths(lone, structure.num_nodes)
    nodes = np.asarray(measurement.node_of_rank)
    corrected = []
    for cost, pair_class in zip(costs, classes, strict=True):
        ends = np.asarray(pair_class.members).reshape(-1, 2)
        paths = nodes[ends[:, 0]], nodes[ends[:, 1]]
        known = rates[paths][crossing[paths] & ~np.isnan(rates[paths])]
        rate = float(np.median(known)) if len(known) and crossing[paths].all() else 0.0
        if rate > _FASTER * cost.bandwidth_bytes_per_s:
            least_s = 1.0 / rate
            cost = replace(
                cost,
                beta_s_per_byte=tuple(min(beta, least_s) for beta in cost.beta_s_per_byte),
                bandwidth_ci_bytes_per_s=(float(known.min()), float(known.max())),
            )
        corrected.append(cost)
    return tuple(corrected)


def reached_by_nodes(measurement: Measurement) -> Mapping[tuple[int, str], float]:
    """``[node, "sending" or "receiving"]`` → the best median of any flow there, bytes/s."""
    tests = node_flows(measurement)
    found: dict[tuple[int, str], float] = {}
    for duplex in (False, True):
        ends = reached(tests, len(measurement.node_names), duplex=duplex)
        for direction, rates in (("sending", ends.sending), ("receiving", ends.receiving)):
            for node in np.flatnonzero(~np.isnan(rates)).tolist():
                found[node, direction] = max(float(rates[node]), found.get((node, direction), 0.0))
    return found


def uplinks(measurement: Measurement, structure: Structure) -> list[SharedCapacity]:
    """What the uplink of each group carries, each direction that is known, as a limit.

    As much as anything got through it, the upper interval end if that is more: what is lower proves nothing.
    """
    shared = []
    for group in structure.groups:
        ranks = ranks_of(group, measurement)
        where = group_in_words(group, measurement.node_names)
        shared += [
            SharedCapacity(
                name=f"uplink of {where}, {uplink.direction}",
                capacity_bytes_per_s=uplink.most_bytes_per_s,
                pairs=PairsAcross(ranks, measurement.num_ranks, leaving=uplink.direction == "sending"),
                is_limit=True,
            )
            for uplink in group.uplinks
        ]
    return shared


def ranks_of(group: Group, measurement: Measurement) -> frozenset[int]:
    """The ranks on the nodes of a group."""
    inside = set(group.nodes)
    return frozenset(rank for rank, node in enumerate(measurement.node_of_rank) if node in inside)


def group_in_words(group: Group, node_names: Sequence[str]) -> str:
    """``rack 1 (nodes a, b)``."""
    return f"{group.name} ({nodes_in_words(group.nodes, node_names)})"


def fault_in_words(fault: Fault, node_names: Sequence[str]) -> str:
    """``node c, sending``, ``path from node a to node b``."""
    if fault.source is not None and fault.sink is not None:
        return f"path from node {node_names[fault.source]} to node {node_names[fault.sink]}"
    if fault.source is not None:
        return f"node {node_names[fault.source]}, sending"
    assert fault.sink is not None
    return f"node {node_names[fault.sink]}, receiving"


def nodes_in_words(nodes: Sequence[int], node_names: Sequence[str]) -> str:
    """``nodes a, b``; of many the first few and how many more."""
    names = [node_names[node] for node in nodes]
    if len(names) > _MAX_NAMED:
        return f"nodes {', '.join(names[: _MAX_NAMED - 1])} and {len(names) - _MAX_NAMED + 1} more"
    return f"node{'s' if len(names) > 1 else ''} {', '.join(names)}"

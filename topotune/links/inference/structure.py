"""What is suspected of a network, and what is known of it after fresh runs. Nodes are named by number."""

from dataclasses import dataclass
from typing import Literal

Direction = Literal["sending", "receiving"]
Reason = Literal["rates alone", "concurrent flows", "round trips"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SuspectedGroup:
    """Nodes that seem to share a link to the rest.

    Attributes:
        nodes: ascending; at least 2, and at least 2 nodes are outside.
        parent: index, among the suspected groups, of the smallest one around it; None for the outermost.
        reasons: what raised the suspicion.
        latency_p_value: of the permutation test on round trips, where they are among the reasons.
    """

    nodes: tuple[int, ...]
    parent: int | None
    reasons: frozenset[Reason]
    latency_p_value: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """A node, in one direction, or a path from one node to another that seems slower than its class.

    Attributes:
        source: the sending node; None where a node's receiving is suspected.
        sink: the receiving node; None where a node's sending is suspected.
        rate_bytes_per_s: what it reached.
        class_bytes_per_s: what its like reach: the median of all nodes in this direction; of a path, the rate
            of its slower end.
    """

    source: int | None
    sink: int | None
    rate_bytes_per_s: float
    class_bytes_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Hypothesis:
    """What first measurements suggest; it takes fresh runs to believe it.

    Attributes:
        groups: any two are nested or disjoint; outer ones before what they contain.
        suspects: slow nodes and paths, the slowest first.
        no_groups: why no groups are suspected, in words; empty where some are.
        unplaced: nodes of which rates do not say which group they are in.
    """

    groups: tuple[SuspectedGroup, ...]
    suspects: tuple[Suspect, ...]
    no_groups: str = ""
    unplaced: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Uplink:
    """One direction of what joins a group to the rest, filled in fresh runs.

    Attributes:
        direction: of the group: ``sending`` out of it.
        capacity_bytes_per_s: median of what got through while it was full.
        capacity_ci_bytes_per_s: 95 % interval of that median.
        most_bytes_per_s: the most that any runs got through (their median), or the interval's upper end if
            that is more, and what nodes could add of which it is not known which side they are on: as a
            limit no figure below it can be right.
        members_bytes_per_s: what the group's nodes can send, or receive, together.
        num_samples: fresh runs in which it was full.
        p_value: chance of so slow fresh runs if flows across were as fast as those inside groups.
    """

    direction: Direction
    capacity_bytes_per_s: float
    capacity_ci_bytes_per_s: tuple[float, float]
    most_bytes_per_s: float
    members_bytes_per_s: float
    num_samples: int
    p_value: float

    @property
    def oversubscription(self) -> float:
        """What the nodes can send or receive over what the uplink carries."""
        return self.members_bytes_per_s / self.capacity_bytes_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Nodes that are near to each other: a rack, in most places.

    Attributes:
        name: ``rack 1``; of groups that contain groups ``group of racks 1``.
        nodes: ascending.
        parent: index, among the structure's groups, of the smallest one around it.
        sending, receiving: its uplink in each direction; None where its nodes did not fill it.
        reasons: what confirmed it.
        latency_p_value: of the permutation test on round trips, where they confirmed it.
    """

    name: str
    nodes: tuple[int, ...]
    parent: int | None
    sending: Uplink | None
    receiving: Uplink | None
    reasons: frozenset[Reason]
    latency_p_value: float | None = None

    @property
    def uplinks(self) -> tuple[Uplink, ...]:
        """Those that are known."""
        return tuple(uplink for uplink in (self.sending, self.receiving) if uplink is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A node, in one direction, or a path that fresh runs by themselves showed to be slow.

    Attributes:
        source, sink: as of a ``Suspect``.
        rate_bytes_per_s: median of the fresh runs.
        class_bytes_per_s: what its like reach.
        num_slow, num_runs: fresh runs that were slow, and all.
    """

    source: int | None
    sink: int | None
    rate_bytes_per_s: float
    class_bytes_per_s: float
    num_slow: int
    num_runs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Structure:
    """What is known of the network between the nodes.

    Attributes:
        num_nodes: N >= 1.
        groups: confirmed; any two nested or disjoint, outer ones before what they contain.
        faults: confirmed, the costliest rate first.
        sending_bytes_per_s, receiving_bytes_per_s: what each node reached by itself; None where unknown.
        no_groups: why there are none, in words (``flat, or hidden: …``); empty where there are groups.
        unplaced: nodes of which it is not known which group they are in; uplinks may carry theirs besides
            what was counted, or not.
        false_group_rate: the rate at which this procedure finds a group in a flat network, at most.
    """

    num_nodes: int
    groups: tuple[Group, ...]
    faults: tuple[Fault, ...]
    sending_bytes_per_s: tuple[float | None, ...]
    receiving_bytes_per_s: tuple[float | None, ...]
    no_groups: str
    unplaced: tuple[int, ...]
    false_group_rate: float

"""The bound of a collective that several groups run at the same time, each with a message of its own.

Theory. The groups share the network, and the time is that until the last of them has ended. What each must
move over a limit of the network adds up there. The limits that a link model knows form a tree
(`topotune.bounds.graph_from_links`), so each stands around a set S of ranks, and all between S and the rest
passes through it. A group of n ranks, s of them in S and 0 < s < n, with a message of M bytes (of a
reduce-scatter or all-gather: all ranks' parts together) must send out of S at least

    s/n M in an all-gather: what it holds in S, for those outside;
    (n-s)/n M in a reduce-scatter: for each part that is wanted outside, one sum over what is in S;
    M in an allreduce.

The sum over all groups, over what the limit lets through, bounds the time. For one group's all-gather or
reduce-scatter the largest of these is the optimum: on a tree the tightest cut is a single link.

An allreduce needs more than its cuts say: among k parts of the network that hold ranks of a group, each
byte's sum takes 2(k-1) messages between the parts (`topotune.bounds.star`). The sum of these over groups,
over what the links of all parts let through together, is a bound, too. Parts are the hosts of the network
(those of all groups, of groups that share hosts, and of each group), and what falls apart without a switch.

These are facts about all groups together, and none of them is proved to be reached: like that of a single
group the bound is never above what the network allows, and it may lie below. Group by group, it is at least
the bound that the same facts give for that group alone.

Complexity: O(V (G + S)) for V vertices of the tree, S of them switches, and G groups.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from topotune.bounds.bound import (
    Bound,
    NoBound,
    allreduce_bound,
    arcs_in_words,
    is_open,
    smaller_side,
    together_in_words,
)
from topotune.bounds.graph import Arc, CapacityGraph, graph_from_links
from topotune.links.model import LinkModel
from topotune.plan.model import Collective

Counts = npt.NDArray[np.int64]

_NO_EXCHANGE: Final = NoBound(reason="a single rank exchanges nothing")
_ONE_MACHINE: Final = NoBound(
    reason="all ranks of each group share one machine's memory, where no link bounds them"
)
_NO_LIMITS: Final = NoBound(reason="no limit of the links between the nodes is known")
_NOT_PARTED: Final = NoBound(reason="no links with a known limit separate the ranks of a group")


def concurrent_bound(
    model: LinkModel, groups: Sequence[Sequence[int]], collective: Collective
) -> Bound | NoBound:
    """The bound of a collective among the ranks of each group, all groups at the same time. Pure.

    Args:
        model: what the links between all ranks cost, and what limits them.
        groups: ranks of each, disjoint.
        collective: that all of them run.

    Returns:
        the bound per byte of one group's message; its cut names ranks of the model.
    """
    if max(map(len, groups)) == 1:
        return _NO_EXCHANGE
    if collective == "allreduce" and len(groups) == 1 and len(groups[0]) == model.num_ranks:
        return allreduce_bound(model)
    if all(len({model.node_of_rank[rank] for rank in group}) == 1 for group in groups):
        return _ONE_MACHINE
    graph = graph_from_links(model)
    if graph is None:
        return _NO_LIMITS
    network = _Network.of(graph, groups)
    facts: list[_Fact] = []
    if collective == "allreduce":  # of facts that say the same the first is told: all links together
        facts += [*network.hosts_together(), *network.around_switches()]
    facts += network.limits(collective)
    best = max(facts, key=lambda fact: fact.s_per_byte, default=None)
    return _NOT_PARTED if best is None else network.in_words(best)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fact:
    """What some links must carry.

    Attributes:
        s_per_byte: in that time, per byte of a message.
        arcs: the links, each with a known limit.
        num_groups: whose messages they are.
        ends: hosts that the links are of; () where they are one link.
    """

    s_per_byte: float
    arcs: tuple[Arc, ...]
    num_groups: int
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Network:
    """The tree of limits, hung up at one vertex, with the groups' ranks in it.

    Attributes:
        graph: a tree: an arc each way between neighbours.
        neighbours: of each vertex.
        parent: of each vertex but the root.
        here: ranks on each vertex, by group.
        below: ranks on each vertex and all that hang on it, by group.
        sizes: ranks of each group.
    """

    graph: CapacityGraph
    neighbours: Mapping[str, Sequence[str]]
    parent: Mapping[str, str]
    here: Mapping[str, Counts]
    below: Mapping[str, Counts]
    sizes: Counts

    @classmethod
    def of(cls, graph: CapacityGraph, groups: Sequence[Sequence[int]]) -> "_Network":
        """The network of a tree of limits."""
        neighbours: dict[str, list[str]] = {vertex: [] for vertex in graph.vertices}
        for src, dst in graph.capacities:
            neighbours[src].append(dst)
        order = [graph.vertices[0]]
        parent: dict[str, str] = {}
        for vertex in order:  # grows while it is walked
            for other in neighbours[vertex]:
                if other != parent.get(vertex):
                    parent[other] = vertex
                    order.append(other)
        assert len(order) == len(graph.vertices) == len(graph.capacities) // 2 + 1, "limits form a tree"
        here = {vertex: np.zeros(len(groups), dtype=np.int64) for vertex in order}
        for number, group in enumerate(groups):
            for rank in group:
                here[graph.compute[rank]][number] += 1
        below = {vertex: counts.copy() for vertex, counts in here.items()}
        for vertex in reversed(order[1:]):
            below[parent[vertex]] += below[vertex]
        sizes = np.array([len(group) for group in groups], dtype=np.int64)
        return cls(graph=graph, neighbours=neighbours, parent=parent, here=here, below=below, sizes=sizes)

    def limits(self, collective: Collective) -> Iterator[_Fact]:
        """What each limit must let through."""
        for vertex, above in self.parent.items():
            for arc, inside in (
                ((vertex, above), self.below[vertex]),
                ((above, vertex), self.sizes - self.below[vertex]),
            ):
                parted = (inside > 0) & (inside < self.sizes)
                if not parted.any() or is_open(self.graph, [arc]):
                    continue
                sent = {
                    "allgather": inside / self.sizes,
                    "reduce_scatter": 1 - inside / self.sizes,
                    "allreduce": np.ones(len(self.sizes)),
                }[collective]
                messages = float(sent[parted].sum())
                yield _Fact(
                    s_per_byte=messages / self.graph.capacities[arc],
                    arcs=(arc,),
                    num_groups=int(parted.sum()),
                )

    def hosts_together(self) -> Iterator[_Fact]:
        """What the hosts of some groups must send, and receive, in allreduces."""
        hosts = [vertex for vertex, counts in self.here.items() if counts.any()]
        on_host = np.array([self.here[host] > 0 for host in hosts])
        everyone = np.ones(len(self.sizes), dtype=bool)
        families = [everyone, *_that_share(on_host), *np.eye(len(self.sizes), dtype=bool)]
        for family in {one.tobytes(): one for one in families}.values():
            held = on_host[:, family]
            own = [frozenset({hosts[index]}) for index in np.flatnonzero(held.any(axis=1))]
            yield from self._together(own, held.sum(axis=0))

    def around_switches(self) -> Iterator[_Fact]:
        """What the parts that hang on a switch must send, and receive, in allreduces."""
        for switch in sorted(set(self.graph.vertices) - self.graph.hosts):
            above = self.parent.get(switch)
            parts = [(self._under(one), self.below[one]) for one in self.neighbours[switch] if one != above]
            if above is not None:
                rest = frozenset(self.graph.vertices) - self._under(switch)
                parts.append((rest, self.sizes - self.below[switch]))
            with_ranks = [(part, counts) for part, counts in parts if counts.any()]
            num_parts = np.sum([counts > 0 for _, counts in with_ranks], axis=0)
            yield from self._together([part for part, _ in with_ranks], num_parts)

    def _together(self, parts: Sequence[frozenset[str]], num_parts: Counts) -> Iterator[_Fact]:
        """What disjoint parts must move between them.

        Args:
            parts: all that hold ranks of the groups.
            num_parts: of each group, on how many of them it has ranks.
        """
        messages = int((2 * (num_parts[num_parts > 1] - 1)).sum())
        if messages == 0:
            return
        part_of = {vertex: number for number, part in enumerate(parts) for vertex in part}
        leaving = [
            (vertex, other)
            for vertex, part in part_of.items()
            for other in self.neighbours[vertex]
            if part_of.get(other) != part
        ]
        for arcs in (leaving, [(dst, src) for src, dst in leaving]):
            if not is_open(self.graph, arcs):
                yield _Fact(
                    s_per_byte=messages / sum(self.graph.capacities[arc] for arc in arcs),
                    arcs=tuple(arcs),
                    num_groups=int((num_parts > 1).sum()),
                    ends=tuple(sorted(part_of.keys() & self.graph.hosts)),
                )

    def in_words(self, fact: _Fact) -> Bound:
        """The bound that follows from a fact."""
        if fact.ends:
            text, cut = together_in_words(self.graph, fact.arcs), fact.ends
        else:
            ((src, dst),) = fact.arcs
            lower = src if self.parent.get(src) == dst else dst
            text = arcs_in_words(self.graph, fact.arcs)
            cut = smaller_side(self.graph, self._under(lower))
        bound = Bound(s_per_byte=fact.s_per_byte, text=text, cut=cut)
        if fact.num_groups > 1:
            bound = replace(bound, text=f"{text}, shared by {fact.num_groups} groups")
        return bound

    def _under(self, vertex: str) -> frozenset[str]:
        """A vertex and all that hangs on it."""
        found = [vertex]
        for one in found:  # grows while it is walked
            found += [other for other in self.neighbours[one] if other != self.parent.get(one)]
        return frozenset(found)


def _that_share(on_host: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.bool_]]:
    """Groups in sets that share no host with each other; shape (groups,) each.

    Args:
        on_host: whether each group has ranks on each host, shape (hosts, groups).
    """
    families: list[npt.NDArray[np.bool_]] = []
    for held in on_host:
        touching = [family for family in families if (family & held).any()]
        joined = np.logical_or.reduce([held, *touching])
        families = [family for family in families if not (family & held).any()] + [joined]
    return families

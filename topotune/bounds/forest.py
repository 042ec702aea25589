"""Spanning forests that reach the all-gather optimum: trees out of every rank, packed into the network.

Theory of operation. In the best all-gather every rank v sends its part along spanning trees out of v, and
all trees together fill the bottleneck cut. Count capacity in units of one tree: with U units for each byte/s,
k trees out of each of N ranks fit if from a super-source that feeds every rank k units the flow to every
rank is N k (Edmonds). The time is then M/(N k) U, whatever the latencies. Four steps:

1. *k and U.* Exact: from 1/x* = p/q, U = p/gcd(q, all capacities), k = U x*. With k given: the least U for
   which capacities of floor(U b) units still carry k trees each.
2. *Switches are removed*, since they can neither add nor copy. For arcs (u, w), (w, t) through a switch w, as
   many units as the flows allow become a direct arc (u, t): as many as the tightest cut that would lose by
   it has to spare, cuts with u and t on one side and w on the other. As much enters a switch as leaves it, so
   it can be emptied without loss (Bang-Jensen, Frank and Jackson). What ways the direct arcs take is kept.
3. *Trees are packed* arc by arc (`topotune.bounds.tree_packing`).
4. *Direct arcs become ways* through the network again.

Source: Zhao et al., "ForestColl", arXiv 2402.06787, sections 4 and 5; Bang-Jensen, Frank, Jackson,
"Preserving and increasing local edge-connectivity in mixed graphs", 1995.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd

from topotune.bounds.cut import allgather_bound
from topotune.bounds.graph import CapacityGraph
from topotune.bounds.maxflow import Arc, max_flow
from topotune.bounds.tree_packing import pack

Path = tuple[str, ...]
MAX_TREES = 65536


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """Some equal trees out of one vertex.

    Attributes:
        parents: of each host (or rank) the one it hears from; -1 for the root.
        multiplicity: how many units of the message take it.
    """

    parents: tuple[int, ...]
    multiplicity: int

    @property
    def root(self) -> int:
        """Whose part it carries."""
        return self.parents.index(-1)

    @property
    def height(self) -> int:
        """Arcs from the root to what is farthest away."""
        depth = [-1] * len(self.parents)
        depth[self.root] = 0
        for vertex in range(len(self.parents)):
            way = []
            while depth[vertex] < 0:
                way.append(vertex)
                vertex = self.parents[vertex]
            for step, below in enumerate(reversed(way), start=1):
                depth[below] = depth[vertex] + step
        return max(depth)


@dataclass(frozen=True, kw_only=True, slots=True)
class Forest:
    """Trees between hosts, out of every host as many as its share.

    Attributes:
        hosts: the vertices that hold ranks, by their first rank.
        members: the ranks of each host.
        units_per_byte_per_s: U: a link of b bytes/s carries floor(U b) trees.
        trees: over hosts.
        routes: for each pair of hosts (by index) that trees use, the ways through the network, and how many
            units take each: vertices of the graph, the hosts' own first and last.
    """

    hosts: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    units_per_byte_per_s: Fraction
    trees: tuple[Tree, ...]
    routes: Mapping[Arc, tuple[tuple[Path, int], ...]]

    @property
    def num_trees(self) -> int:
        """Each counted as often as it stands for."""
        return sum(tree.multiplicity for tree in self.trees)

    @property
    def algbw_bytes_per_s(self) -> float:
        """What all trees carry away from their roots together: the rate of an all-gather of their shares."""
        return float(self.num_trees / self.units_per_byte_per_s)

    @property
    def height(self) -> int:
        """Of the highest tree, between hosts."""
        return max(tree.height for tree in self.trees)

    def over_ranks(self) -> list[Tree]:
        """The trees over ranks: on each host one rank speaks for the others, which take turns at it."""
        return [tree for (tree,) in over_ranks([(tree,) for tree in self.trees], self.members)]


def over_ranks(
    alike: Sequence[tuple[Tree, ...]], members: Sequence[Sequence[int]], *, most: int = MAX_TREES
) -> list[tuple[Tree, ...]]:
    """Trees over hosts → trees over ranks.

    Args:
        alike: tuples of trees with one root and multiplicity; those of a tuple keep one root.
        members: the ranks of each host. One of them speaks for the others; they take turns at it, and trees
            that stand for several are divided among them.
        most: tuples that dividing may lead to.
    """
    turns = max(1, min(max(map(len, members)), most // len(alike)))
    found: list[tuple[Tree, ...]] = []
    for trees in alike:
        multiplicity = trees[0].multiplicity
        parts = min(turns, multiplicity)
        for part in range(parts):
            speakers = [ranks[len(found) % len(ranks)] for ranks in members]
            share = multiplicity // parts + (part < multiplicity % parts)
            found.append(
                tuple(
                    Tree(parents=_parents_of_ranks(tree, members, speakers), multiplicity=share)
                    for tree in trees
                )
            )
    return found


def _parents_of_ranks(
    tree: Tree, members: Sequence[Sequence[int]], speakers: Sequence[int]
) -> tuple[int, ...]:
    parents = [-1] * sum(map(len, members))
    for host, ranks in enumerate(members):
        for rank in ranks:
            parents[rank] = speakers[host]
        above = tree.parents[host]
        parents[speakers[host]] = -1 if above < 0 else speakers[above]
    return tuple(parents)


def spanning_forest(graph: CapacityGraph, *, trees_per_rank: int | None = None) -> Forest:
    """The forest of an all-gather in which every rank has an equal share.

    Args:
        graph: ranks on at least two vertices; as much enters every switch as leaves it.
        trees_per_rank: k; None for the one that reaches the optimum exactly, however large.

    Raises:
        ValueError: the ranks cannot all reach each other, a switch is out of balance, or there would be more
            than ``MAX_TREES`` trees.
    """
    network = Network.of(graph)
    if trees_per_rank is None:
        trees_per_rank, units = _exact(graph)
    else:
        units = _fewest_units(network, network.wanted(trees_per_rank))
    wanted = network.wanted(trees_per_rank)
    if sum(wanted) > MAX_TREES:
        raise ValueError(
            f"{trees_per_rank} trees for each of {len(graph.compute)} ranks are more than {MAX_TREES} trees"
        )
    network.scale(units)
    return network.forest(units, wanted)


@dataclass(kw_only=True)
class Network:
    """Vertices by number, hosts first; what arcs carry, and by which ways.

    Attributes:
        members: the ranks of each host; hosts are the vertices 0 … len(members) - 1.
        names: of all vertices in the graph.
        capacities: in bytes/s until `scale`, then in units.
        ways: of each arc, pieces of its capacity and the vertices they go through.
    """

    members: tuple[tuple[int, ...], ...]
    names: list[str]
    capacities: dict[Arc, int]
    ways: dict[Arc, list[tuple[Path, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: CapacityGraph) -> "Network":
        """A graph's links in bytes/s.

        Raises:
            ValueError: a switch that more enters than leaves, or the reverse.
        """
        ranks_at: dict[str, list[int]] = {}
        for rank, vertex in enumerate(graph.compute):
            ranks_at.setdefault(vertex, []).append(rank)
        names = [*ranks_at, *(vertex for vertex in graph.vertices if vertex not in ranks_at)]
        number = {name: index for index, name in enumerate(names)}
        for vertex in names[len(ranks_at) :]:
            entering = sum(capacity for (_, head), capacity in graph.capacities.items() if head == vertex)
            leaving = sum(capacity for (tail, _), capacity in graph.capacities.items() if tail == vertex)
            if entering != leaving:
                raise ValueError(
                    f"{entering} bytes/s enter {vertex!r} and {leaving} leave it: a forest needs as much"
                )
        return cls(
            members=tuple(tuple(ranks) for ranks in ranks_at.values()),
            names=names,
            capacities={(number[a], number[b]): capacity for (a, b), capacity in graph.capacities.items()},
        )

    @property
    def hosts(self) -> list[str]:
        """The vertices that hold ranks."""
        return self.names[: len(self.members)]

    def wanted(self, trees_per_rank: int) -> list[int]:
        """Trees out of each host."""
        return [trees_per_rank * len(ranks) for ranks in self.members]

    def forest(self, units: Fraction, wanted: Sequence[int]) -> Forest:
        """So many trees out of each host, which the network carries; it is used up."""
        trees = _trees(self, wanted)
        taken: Counter[Arc] = Counter()
        for tree in trees:
            for host, parent in enumerate(tree.parents):
                if parent >= 0:
                    taken[parent, host] += tree.multiplicity
        return Forest(
            hosts=tuple(self.hosts),
            members=self.members,
            units_per_byte_per_s=units,
            trees=trees,
            routes={arc: self.take_ways(arc, amount) for arc, amount in sorted(taken.items())},
        )

    def scale(self, units: Fraction) -> None:
        """From bytes/s to whole units; arcs that carry none are gone."""
        amounts = {arc: int(units * capacity) for arc, capacity in self.capacities.items()}
        self.capacities = {arc: amount for arc, amount in amounts.items() if amount > 0}
        self.ways = {
            (tail, head): [((self.names[tail], self.names[head]), amount)]
            for (tail, head), amount in self.capacities.items()
        }

    def take_ways(self, arc: Arc, amount: int) -> tuple[tuple[Path, int], ...]:
        """Ways for so many units of an arc, which lose them."""
        taken: list[tuple[Path, int]] = []
        pieces = self.ways[arc]
        while amount > 0:
            way, available = pieces.pop()
            used = min(available, amount)
            taken.append((way, used))
            if used < available:
                pieces.append((way, available - used))
            amount -= used
        return tuple(taken)

    def split_off(self, tail: int, switch: int, head: int, amount: int) -> None:
        """Turn so many units of tail → switch → head into a direct arc; a loop is lost."""
        for arc in ((tail, switch), (switch, head)):
            self.capacities[arc] -= amount
            if self.capacities[arc] == 0:
                del self.capacities[arc]
        first = self.take_ways((tail, switch), amount)
        second = self.take_ways((switch, head), amount)
        if tail == head:
            return
        self.capacities[tail, head] = self.capacities.get((tail, head), 0) + amount
        self.ways.setdefault((tail, head), []).extend(_joined(first, second))


def _joined(
    first: Sequence[tuple[Path, int]], second: Sequence[tuple[Path, int]]
) -> Iterator[tuple[Path, int]]:
    """Ways end to end, piece by piece; both have as many units."""
    ahead = list(second)
    for way, amount in first:
        while amount > 0:
            onward, available = ahead.pop()
            used = min(amount, available)
            yield (*way, *onward[1:]), used
            amount -= used
            if used < available:
                ahead.append((onward, available - used))


def _trees(network: Network, wanted: Sequence[int]) -> tuple[Tree, ...]:
    """The trees themselves; the network's switches are taken out."""
    for switch in range(len(network.members), len(network.names)):
        _remove_switch(network, switch, wanted)
    return tuple(
        Tree(parents=tuple(batch.parents), multiplicity=batch.multiplicity)
        for batch in sorted(pack(network.capacities, wanted), key=lambda batch: (batch.root, batch.parents))
    )


def _exact(graph: CapacityGraph) -> tuple[int, Fraction]:
    """The k and U that reach the optimum."""
    inverse_rate = allgather_bound(graph).inverse_rate
    divisor = gcd(inverse_rate.denominator, *graph.capacities.values())
    return inverse_rate.denominator // divisor, Fraction(inverse_rate.numerator, divisor)


def _fewest_units(network: Network, wanted: Sequence[int]) -> Fraction:
    """The least U with which so many trees fit: one where some link gains a unit."""

    def fits(units: Fraction) -> bool:
        scaled = {arc: int(units * capacity) for arc, capacity in network.capacities.items()}
        return carries(scaled, network, wanted)

    best: Fraction | None = None
    for capacity in sorted(set(network.capacities.values())):
        # No link needs to carry more than all trees.
        low, high = 0, sum(wanted) if best is None else min(sum(wanted), int(best * capacity))
        if high < 1 or not fits(Fraction(high, capacity)):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(Fraction(middle, capacity)) else (middle, high)
        if best is None or Fraction(high, capacity) < best:
            best = Fraction(high, capacity)
    if best is None:
        raise ValueError("the ranks cannot all reach each other")
    return best


def carries(capacities: Mapping[Arc, int], network: Network, wanted: Sequence[int]) -> bool:
    """Whether so many trees out of each rank fit."""
    source, needed = len(network.names), sum(wanted)
    arcs = {arc: min(amount, needed) for arc, amount in capacities.items() if amount > 0}
    arcs |= _feeds(source, wanted)
    return all(max_flow(source + 1, arcs, source, host) >= needed for host in range(len(wanted)))


def _feeds(source: int, wanted: Sequence[int]) -> dict[Arc, int]:
    """Arcs from the super-source to every host that is a root."""
    return {(source, host): trees for host, trees in enumerate(wanted) if trees > 0}


def _remove_switch(network: Network, switch: int, wanted: Sequence[int]) -> None:
    """Replace all arcs through a switch by direct ones between its neighbours."""
    entering = {tail: amount for (tail, head), amount in network.capacities.items() if head == switch}
    leaving = {head: amount for (tail, head), amount in network.capacities.items() if tail == switch}
    # First each pair its even share, so that direct arcs join many and trees stay low: all at once where
    # that loses nothing, as between equal neighbours.
    even = _even_shares(entering, leaving)
    if carries(_after(network.capacities, switch, even), network, wanted):
        for (tail, head), amount in even.items():
            network.split_off(tail, switch, head, amount)
    # Then all that is left. Loops last: they give capacity away.
    for loops in (False, True):
        for head in sorted(leaving):
            for tail in sorted(entering):
                most = min(
                    network.capacities.get((tail, switch), 0), network.capacities.get((switch, head), 0)
                )
                if most and (tail == head) == loops:
                    amount = _spare(network, (tail, switch, head), most, wanted)
                    if amount > 0:
                        network.split_off(tail, switch, head, amount)
    if any(switch in arc for arc in network.capacities):
        raise ValueError(f"switch {network.names[switch]!r} cannot be taken out of the graph")


def _even_shares(entering: Mapping[int, int], leaving: Mapping[int, int]) -> dict[Arc, int]:
    """Whole units for each pair of different neighbours, in proportion to what both carry."""
    total, room = sum(entering.values()), dict(entering)
    shares: dict[Arc, int] = {}
    for head, carries in sorted(leaving.items()):
        for tail, brings in sorted(entering.items()):
            others = total - entering.get(head, 0)
            amount = min(room[tail], brings * carries // others if tail != head else 0)
            if amount > 0:
                shares[tail, head] = amount
                room[tail] -= amount
    return shares


def _after(capacities: Mapping[Arc, int], switch: int, shares: Mapping[Arc, int]) -> dict[Arc, int]:
    """Capacities once these units through a switch are direct arcs."""
    changed = Counter(capacities)
    for (tail, head), amount in shares.items():
        changed[tail, head] += amount
        changed[tail, switch] -= amount
        changed[switch, head] -= amount
    return dict(changed)


def _spare(network: Network, way: tuple[int, int, int], most: int, wanted: Sequence[int]) -> int:
    """How many units of a way tail → switch → head may become direct without a loss to any flow."""
    tail, switch, head = way
    source, needed = len(network.names), sum(wanted)
    without_limit = needed + most
    arcs = {arc: min(amount, without_limit) for arc, amount in network.capacities.items()}
    arcs |= _feeds(source, wanted)
    # Cuts with both ends before the switch, or both behind it.
    before = arcs | {(source, tail): without_limit, (source, head): without_limit}
    behind = arcs | {(source, switch): without_limit}
    amount = most
    for host in range(len(wanted)):
        sides = [(behind, [(end, host) for end in {tail, head} - {host}])]
        if host not in (tail, head):
            sides.append((before, [(switch, host)]))
        for graph, merged in sides:
            value = max_flow(source + 1, graph | {arc: without_limit for arc in merged}, source, host)
            amount = min(amount, value - needed)
            if amount <= 0:
                return 0
    return amount

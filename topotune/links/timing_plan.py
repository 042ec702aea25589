"""What to time, for how long, within a budget: a pure function of what a first look at the links said.

Between nodes one pair of ranks stands for each two nodes: all ranks of a node share its links, and what one
of them finds the others would. Up to 64 nodes every two nodes are timed. Beyond it the work does not grow
with the nodes: each node meets 8 others drawn at random, in the two sizes that say latency and bandwidth, and
a few pairs stand for the rest in all sizes.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topotune.links.flow_plan import EVERY_NODE_PAIR_UP_TO, NUM_PEERS, matchings
from topotune.links.rounds import Pair, members_of_nodes, num_rounds_of, round_of, rounds

SIZES = (8, 128, 1024, 8 * 1024, 64 * 1024, 256 * 1024, 1024**2, 4 * 1024**2, 16 * 1024**2)
MIN_SAMPLES = 4  # of one pair and size, over all sweeps and after warming up
MAX_SAMPLES = 100
NUM_SWEEPS = (
    2  # each pair at two moments, so that a passing disturbance does not pass for a property of the pair
)
MIN_EXCHANGES = 4  # of the slowest pair of a group
EVERY_PAIR_UP_TO = 32  # ranks; with more, pairs are left out rather than the budget exceeded
_WARMUPS_EXPECTED = 1
_NECESSARY = (8, 1024, 64 * 1024)
_BANDWIDTH_BYTES = 1024**2  # where two sizes must do, the larger one is the largest up to this
_NUM_REPRESENTATIVES = 8  # pairs of each kind that are timed in all sizes where the others are not
_BY_VALUE = (
    1024**2,
    8 * 1024,
    128,
    256 * 1024,
    4 * 1024**2,
    16 * 1024**2,
)  # what a size adds to a fit, best first
# Rounds and size of exchanges, best first. Links are shaped in bursts of tens of KiB, so 1 MiB tells more
# than rounds.
_EXCHANGES_BY_VALUE = tuple(
    (num_rounds, size)
    for size, choices in (
        (4 * 1024**2, (8,)),
        (1024**2, (8, 4, 2)),
        (256 * 1024, (8, 4, 2)),
        (64 * 1024, (4, 2)),
    )
    for num_rounds in choices
)
_LAST_RESORT_BYTES = 64 * 1024
_FAN = 4  # nodes that one node exchanges with at once, to see what its own link carries
_PING_PONG_SHARE, _EXCHANGE_SHARE = 0.6, 0.3  # of the budget; the rest is for gathering results and reducing
_SETUP_S = 1e-3  # a barrier and what comes with it

Kind = bool  # True: both ranks on one node
FirstLook = Mapping[Kind, Mapping[int, float]]  # one-way time of each size that was looked at, seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class TimingGroup:
    """Disjoint pairs that ping-pong at the same time, and the sizes that they do."""

    pairs: tuple[Pair, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExchangeGroup:
    """(leader, follower) pairs that exchange at the same time, and for how long."""

    pairs: tuple[Pair, ...]
    slice_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TimingPlan:
    """The work of one measurement; equal on all ranks.

    Attributes:
        groups: the ping-pongs; each group is visited once a sweep.
        slice_s: for each group, size and sweep, how long a ping-pong may go on once it has its least samples.
        exchange_bytes: sizes of the two-way exchanges, ascending.
        exchanges: what exchanges together: whole rounds, fans of one rank to several nodes, pairs alone.
        ping_pong_s: what all ping-pongs may take.
        warnings: what had to be left out.
    """

    groups: tuple[TimingGroup, ...]
    slice_s: float
    exchange_bytes: tuple[int, ...]
    exchanges: tuple[ExchangeGroup, ...]
    ping_pong_s: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """Groups of one kind that are timed in the same sizes: all that are chosen, or two of them."""

    kind: Kind
    groups: list[list[Pair]]
    two_sizes: bool = False

    def sizes(self, chosen: Mapping[Kind, set[int]]) -> tuple[int, ...]:
        sizes = sorted(chosen[self.kind])
        if self.two_sizes:
            return tuple(sorted({sizes[0], max(size for size in sizes if size <= _BANDWIDTH_BYTES)}))
        return tuple(sizes)


def plan_timing(
    node_of_rank: Sequence[int], first_look: FirstLook, budget_s: float, sizes: Sequence[int] = SIZES
) -> TimingPlan:
    """Choose sizes, pairs and times so that all of it takes about ``budget_s``.

    What gives way, in this order: repetitions, the sizes that tell least, having each pair alone on its
    node; then pairs where there are many ranks, else the budget.

    Args:
        node_of_rank: node number of each of n >= 2 ranks.
        first_look: rough one-way times by kind of pair and size; sizes that took too long may be missing.
        budget_s: what is left for ping-pongs, exchanges and all else.
        sizes: candidates, ascending.
    """
    ping_pong_s = budget_s * _PING_PONG_SHARE
    looked_at = {kind: [size for size in sizes if size in times] for kind, times in first_look.items()}
    chosen = {kind: {sizes[0], *set(found).intersection(_NECESSARY)} for kind, found in looked_at.items()}
    members = members_of_nodes(node_of_rank)
    warnings = []
    parts = _parts(members, alone=True)

    def least_s() -> float:
        return sum(_least_s(part, chosen, first_look) for part in parts)

    if len(members) > EVERY_NODE_PAIR_UP_TO:
        warnings.append(f"{len(members)} nodes: each was timed with {NUM_PEERS} others, drawn at random")
    if least_s() > ping_pong_s:
        parts = _parts(members, alone=False)
        if least_s() > ping_pong_s and len(node_of_rank) > EVERY_PAIR_UP_TO:
            share = ping_pong_s / least_s()
            num_all = sum(len(pairs) for part in parts for pairs in part.groups)
            parts = [_some_groups(part, share) for part in parts]
            num_timed = sum(len(pairs) for part in parts for pairs in part.groups)
            warnings.append(f"the budget allowed {num_timed} of {num_all} pairs of ranks to be timed")
    by_value = [size for size in _BY_VALUE if size in sizes]
    by_value += [size for size in sizes if size not in _BY_VALUE + _NECESSARY]
    for size in by_value:
        for kind in sorted(chosen):
            if size in looked_at[kind]:
                chosen[kind].add(size)
                if least_s() > ping_pong_s:
                    chosen[kind].remove(size)
    spare_s = max(0.0, ping_pong_s - least_s())
    groups = [
        TimingGroup(pairs=tuple(pairs), sizes=part.sizes(chosen)) for part in parts for pairs in part.groups
    ]
    exchanges, bulk = _exchanges(node_of_rank, chosen, first_look, budget_s * _EXCHANGE_SHARE)
    return TimingPlan(
        groups=tuple(groups),
        slice_s=spare_s / (sum(len(group.sizes) for group in groups) * NUM_SWEEPS),
        exchange_bytes=tuple(sorted({sizes[0], bulk})),
        exchanges=exchanges,
        ping_pong_s=ping_pong_s,
        warnings=tuple(warnings),
    )


def first_groups(node_of_rank: Sequence[int]) -> dict[Kind, list[Pair]]:
    """Of each kind of pair that there is, some that share no node."""
    return {part.kind: part.groups[0] for part in _parts(members_of_nodes(node_of_rank), alone=True)}


def rounds_of_nodes(node_of_rank: Sequence[int], *, seed: int = 0) -> list[list[Pair]]:
    """Each two nodes once, or 8 peers of each node, in rounds, by a rank of each; its ranks take turns."""
    return _rounds_of_nodes(members_of_nodes(node_of_rank), seed=seed)


def _parts(members: Sequence[Sequence[int]], *, alone: bool) -> list[_Part]:
    """All that is to be timed: within nodes first, whose pairs are alone on their node or not."""
    inside, across = _pairs_inside(members, alone=alone), _rounds_of_nodes(members)
    parts = [_Part(kind, groups) for kind, groups in ((True, inside), (False, across)) if groups]
    if len(members) <= EVERY_NODE_PAIR_UP_TO:
        return parts
    # What stands for the others comes first: it is also looked at first.
    few = [_Part(part.kind, [part.groups[0][:_NUM_REPRESENTATIVES]]) for part in parts]
    return few + [_Part(part.kind, _without(part.groups, few), two_sizes=True) for part in parts]


def _without(groups: Sequence[Sequence[Pair]], few: Sequence[_Part]) -> list[list[Pair]]:
    """The groups without the pairs that stand for them; each group keeps some."""
    taken = {pair for part in few for pairs in part.groups for pair in pairs}
    return [[pair for pair in pairs if pair not in taken] for pairs in groups]


def _pairs_inside(members: Sequence[Sequence[int]], *, alone: bool) -> list[list[Pair]]:
    """Every pair of each node, all nodes at the same time: one pair of each node, or a round of each."""
    of_nodes = []
    for ranks in members:
        of_node = [[(ranks[a], ranks[b]) for a, b in pairs] for pairs in rounds(len(ranks))]
        of_nodes.append([[pair] for pairs in of_node for pair in pairs] if alone else of_node)
    return [
        [pair for of_node in of_nodes if number < len(of_node) for pair in of_node[number]]
        for number in range(max(map(len, of_nodes)))
    ]


def _rounds_of_nodes(members: Sequence[Sequence[int]], *, seed: int = 0) -> list[list[Pair]]:
    num_nodes = len(members)
    of_nodes = (
        rounds(num_nodes)
        if num_nodes <= EVERY_NODE_PAIR_UP_TO
        else matchings(num_nodes, NUM_PEERS, seed=seed)
    )
    return [
        [
            _sorted_pair(members[a][number % len(members[a])], members[b][number % len(members[b])])
            for a, b in pairs
        ]
        for number, pairs in enumerate(of_nodes)
    ]


def _sorted_pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def _kind(pair: Pair, node_of_rank: Sequence[int]) -> Kind:
    return node_of_rank[pair[0]] == node_of_rank[pair[1]]


def _least_s(part: _Part, chosen: Mapping[Kind, set[int]], first_look: FirstLook) -> float:
    """Seconds for the least number of samples of every pair of a part."""
    once_s = sum(first_look[part.kind].get(size, 0.0) for size in part.sizes(chosen))
    group_s = (MIN_SAMPLES + NUM_SWEEPS * _WARMUPS_EXPECTED) * 2 * once_s + NUM_SWEEPS * _SETUP_S
    return len(part.groups) * group_s


def _some_groups(part: _Part, share: float) -> _Part:
    """About this share of a part's groups, evenly spread; one at least."""
    num_groups = max(1, int(len(part.groups) * share))
    chosen = [part.groups[i * len(part.groups) // num_groups] for i in range(num_groups)]
    return _Part(part.kind, chosen, part.two_sizes)


def _exchanges(
    node_of_rank: Sequence[int], chosen: Mapping[Kind, set[int]], first_look: FirstLook, budget_s: float
) -> tuple[tuple[ExchangeGroup, ...], int]:
    """What exchanges together and in what size: the first choice that fits, by what tells most.

    Messages that share a node are taken to share its link or memory.
    """
    common = set.intersection(*chosen.values())
    last_resort = max(size for size in common if size <= _LAST_RESORT_BYTES)
    choices = [(num_rounds, size) for num_rounds, size in _EXCHANGES_BY_VALUE if size in common]
    for num_rounds, size in [*choices, (1, last_resort)]:
        groups = _exchange_groups(node_of_rank, num_rounds)
        least_s = [
            MIN_EXCHANGES
            * max(first_look[_kind(pair, node_of_rank)][size] for pair in pairs)
            * 2
            * max(num_sharing_nodes(pairs, node_of_rank))
            for pairs in groups
        ]
        spare_s = budget_s - sum(least_s)
        if spare_s >= 0:
            break
    return tuple(
        ExchangeGroup(pairs=pairs, slice_s=slice_s + max(0.0, spare_s) / len(groups))
        for pairs, slice_s in zip(groups, least_s, strict=True)
    ), size


def _exchange_groups(node_of_rank: Sequence[int], num_rounds: int) -> tuple[tuple[Pair, ...], ...]:
    """At most so many rounds, spread, all within nodes, fans from nodes, a pair of each kind alone.

    There is a fan from each node up to 64 nodes, and beyond that from so many of them, spread.
    """
    num_all = num_rounds_of(len(node_of_rank))
    numbers = range(0, num_all, math.ceil(num_all / num_rounds))
    groups = [tuple(round_of(len(node_of_rank), number)) for number in numbers]
    members = members_of_nodes(node_of_rank)
    within = [pair for ranks in members for pair in zip(ranks[::2], ranks[1::2], strict=False)]
    if within:
        groups.append(tuple(within))
    leaders = [ranks[0] for ranks in members]
    if len(leaders) > 2:
        for position in range(0, len(leaders), math.ceil(len(leaders) / EVERY_NODE_PAIR_UP_TO)):
            steps = range(1, min(_FAN, len(leaders) - 1) + 1)
            groups.append(
                tuple((leaders[position], leaders[(position + step) % len(leaders)]) for step in steps)
            )
    groups += [(pairs[0],) for pairs in first_groups(node_of_rank).values()]
    return tuple(dict.fromkeys(groups))


def num_sharing_nodes(pairs: Sequence[Pair], node_of_rank: Sequence[int]) -> list[int]:
    """For each pair, how many of them touch the one of its nodes that is touched most, itself included."""
    nodes_of_pairs = [{node_of_rank[a], node_of_rank[b]} for a, b in pairs]
    touched = Counter(node for nodes in nodes_of_pairs for node in nodes)
    return [max(touched[node] for node in nodes) for nodes in nodes_of_pairs]

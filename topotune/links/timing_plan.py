"""What to time, for how long, within a budget: a pure function of what a first look at the links said."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topotune.links.rounds import Pair, rounds, waves

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
_LARGEST_OF_ALL = (
    64 * 1024
)  # larger messages between nodes go between one pair of ranks for each pair of nodes
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


def plan_timing(
    node_of_rank: Sequence[int], first_look: FirstLook, budget_s: float, sizes: Sequence[int] = SIZES
) -> TimingPlan:
    """Choose sizes, pairs and times so that all of it takes about ``budget_s``.

    What gives way, in this order: repetitions, the sizes that tell least, having each pair alone on its
    nodes; then pairs where there are many ranks, else the budget.

    Args:
        node_of_rank: node number of each of n >= 2 ranks.
        first_look: rough one-way times by kind of pair and size; sizes that took too long may be missing.
        budget_s: what is left for ping-pongs, exchanges and all else.
        sizes: candidates, ascending.
    """
    ping_pong_s = budget_s * _PING_PONG_SHARE
    looked_at = {kind: [size for size in sizes if size in times] for kind, times in first_look.items()}
    chosen = {kind: {sizes[0], *set(found).intersection(_NECESSARY)} for kind, found in looked_at.items()}
    every_pair = pairs_alone(node_of_rank)
    node_rounds = _rounds_of_nodes(node_of_rank)
    warnings = []

    def least_s() -> float:
        return _least_s(_kinds(every_pair, node_of_rank), len(node_rounds), chosen, first_look)

    if least_s() > ping_pong_s:
        every_pair = rounds(len(node_of_rank))
        if least_s() > ping_pong_s and len(node_of_rank) > EVERY_PAIR_UP_TO:
            num_fitting = int(len(every_pair) * ping_pong_s / least_s())
            every_pair = _some_rounds(every_pair, node_of_rank, max(1, num_fitting))
            num_timed, num_all = sum(map(len, every_pair)), math.comb(len(node_of_rank), 2)
            warnings.append(f"the budget allowed {num_timed} of {num_all} pairs of ranks to be timed")
    kinds_of_groups = _kinds(every_pair, node_of_rank)
    by_value = [size for size in _BY_VALUE if size in sizes]
    by_value += [size for size in sizes if size not in _BY_VALUE + _NECESSARY]
    for size in by_value:
        for kind in sorted(chosen):
            if size in looked_at[kind]:
                chosen[kind].add(size)
                if _least_s(kinds_of_groups, len(node_rounds), chosen, first_look) > ping_pong_s:
                    chosen[kind].remove(size)
    spare_s = max(0.0, ping_pong_s - least_s())
    groups = [
        TimingGroup(pairs=tuple(pairs), sizes=_sizes(kinds, chosen))
        for pairs, kinds in zip(every_pair, kinds_of_groups, strict=True)
    ]
    large = _large_sizes(chosen)
    if large:
        groups += [TimingGroup(pairs=tuple(pairs), sizes=large) for pairs in node_rounds]

    exchanges, bulk = _exchanges(node_of_rank, chosen, first_look, budget_s * _EXCHANGE_SHARE)
    return TimingPlan(
        groups=tuple(groups),
        slice_s=spare_s / (sum(len(group.sizes) for group in groups) * NUM_SWEEPS),
        exchange_bytes=tuple(sorted({sizes[0], bulk})),
        exchanges=exchanges,
        ping_pong_s=ping_pong_s,
        warnings=tuple(warnings),
    )


def pairs_alone(node_of_rank: Sequence[int]) -> list[list[Pair]]:
    """All pairs in waves that share no node, those within nodes before those between nodes."""
    ordered: list[list[Pair]] = []
    for within in (True, False):
        of_kind = [
            [pair for pair in pairs if _kind(pair, node_of_rank) == within]
            for pairs in rounds(len(node_of_rank))
        ]
        ordered += waves(of_kind, node_of_rank)
    return ordered


def _kind(pair: Pair, node_of_rank: Sequence[int]) -> Kind:
    return node_of_rank[pair[0]] == node_of_rank[pair[1]]


def _kinds(groups: Sequence[Sequence[Pair]], node_of_rank: Sequence[int]) -> list[frozenset[Kind]]:
    return [frozenset(_kind(pair, node_of_rank) for pair in pairs) for pairs in groups]


def _sizes(kinds: frozenset[Kind], chosen: Mapping[Kind, set[int]]) -> tuple[int, ...]:
    """What a group of all pairs sends: large messages only within nodes."""
    if kinds == {True}:
        return tuple(sorted(chosen[True]))
    return tuple(sorted({size for sizes in chosen.values() for size in sizes if size <= _LARGEST_OF_ALL}))


def _large_sizes(chosen: Mapping[Kind, set[int]]) -> tuple[int, ...]:
    """What each two nodes send each other once."""
    return tuple(sorted(size for size in chosen.get(False, ()) if size > _LARGEST_OF_ALL))


def _least_s(
    kinds_of_groups: Sequence[frozenset[Kind]],
    num_node_rounds: int,
    chosen: Mapping[Kind, set[int]],
    first_look: FirstLook,
) -> float:
    """Seconds for the least number of samples of every pair."""

    def group_s(kinds: frozenset[Kind], sizes: Sequence[int]) -> float:
        slowest_s = max(sum(first_look[kind].get(size, 0.0) for size in sizes) for kind in kinds)
        return (MIN_SAMPLES + NUM_SWEEPS * _WARMUPS_EXPECTED) * 2 * slowest_s + NUM_SWEEPS * _SETUP_S

    total_s = sum(
        count * group_s(kinds, _sizes(kinds, chosen)) for kinds, count in Counter(kinds_of_groups).items()
    )
    large = _large_sizes(chosen)
    return total_s + (num_node_rounds * group_s(frozenset({False}), large) if large else 0.0)


def _rounds_of_nodes(node_of_rank: Sequence[int]) -> list[list[Pair]]:
    """Each two nodes once, in rounds, by a rank of each; the ranks of a node take turns."""
    members = _members(node_of_rank)
    return [
        [
            _sorted_pair(members[a][number % len(members[a])], members[b][number % len(members[b])])
            for a, b in pairs
        ]
        for number, pairs in enumerate(rounds(len(members)))
    ]


def _sorted_pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def _members(node_of_rank: Sequence[int]) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in range(max(node_of_rank) + 1)]
    for rank, node in enumerate(node_of_rank):
        members[node].append(rank)
    return members


def _some_rounds(
    all_rounds: Sequence[list[Pair]], node_of_rank: Sequence[int], num_fitting: int
) -> list[list[Pair]]:
    """So many rounds, evenly spread, and more until each kind of pair is among them."""
    chosen = sorted({i * len(all_rounds) // num_fitting for i in range(num_fitting)})
    kinds = {_kind(pair, node_of_rank) for i in chosen for pair in all_rounds[i]}
    for index, pairs in enumerate(all_rounds):
        of_round = {_kind(pair, node_of_rank) for pair in pairs}
        if not of_round <= kinds:
            chosen.append(index)
            kinds |= of_round
    return [all_rounds[i] for i in sorted(chosen)]


def _exchanges(
    node_of_rank: Sequence[int], chosen: Mapping[Kind, set[int]], first_look: FirstLook, budget_s: float
) -> tuple[tuple[ExchangeGroup, ...], int]:
    """What exchanges together and in what size: the first choice that fits, by what tells most.

    Messages that share a node are taken to share its link or memory.
    """
    common = set.intersection(*chosen.values())
    last_resort = max(size for size in common if size <= _LARGEST_OF_ALL)
    choices = [(num_rounds, size) for num_rounds, size in _EXCHANGES_BY_VALUE if size in common]
    for num_rounds, size in [*choices, (1, last_resort)]:
        groups = _exchange_groups(node_of_rank, num_rounds)
        least_s = [
            MIN_EXCHANGES
            * max(first_look[_kind(pair, node_of_rank)][size] for pair in pairs)
            * max(2 * num_sharing_nodes(pair, pairs, node_of_rank) for pair in pairs)
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
    """At most so many rounds, spread, all within nodes, a fan from each node, a pair of each kind alone."""
    all_rounds = rounds(len(node_of_rank))
    groups = [tuple(pairs) for pairs in all_rounds[:: math.ceil(len(all_rounds) / num_rounds)]]
    members = _members(node_of_rank)
    within = [pair for ranks in members for pair in zip(ranks[::2], ranks[1::2], strict=False)]
    if within:
        groups.append(tuple(within))
    leaders = [ranks[0] for ranks in members]
    if len(leaders) > 2:
        for position, leader in enumerate(leaders):
            steps = range(1, min(_FAN, len(leaders) - 1) + 1)
            groups.append(tuple((leader, leaders[(position + step) % len(leaders)]) for step in steps))
    seen: set[Kind] = set()
    for pair in (pair for pairs in all_rounds for pair in pairs):
        if _kind(pair, node_of_rank) not in seen:
            seen.add(_kind(pair, node_of_rank))
            groups.append((pair,))
    return tuple(dict.fromkeys(groups))


def num_sharing_nodes(pair: Pair, pairs: Sequence[Pair], node_of_rank: Sequence[int]) -> int:
    """How many of the pairs touch the node of this pair that is touched most, this one included."""
    return max(
        sum(node_of_rank[rank] in (node_of_rank[a], node_of_rank[b]) for a, b in pairs) for rank in pair
    )

"""What to time, for how long, within a budget: a pure function of what a first look at the links said."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topotune.links.rounds import Pair, rounds, waves

SIZES = (8, 128, 1024, 8 * 1024, 64 * 1024, 256 * 1024, 1024**2, 4 * 1024**2, 16 * 1024**2)
MIN_SAMPLES = 5  # of one pair and size, over all sweeps and after warming up
MAX_SAMPLES = 100
NUM_SWEEPS = (
    2  # each pair at two moments, so that a passing disturbance does not pass for a property of the pair
)
MIN_EXCHANGES = 4
EVERY_PAIR_UP_TO = 32  # ranks; with more, pairs are left out rather than the budget exceeded
_WARMUPS_EXPECTED = 2
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
_EXCHANGE_SIZES = (4 * 1024**2, 1024**2, 256 * 1024, 64 * 1024)
_MOST_ROUNDS = 8  # of exchanges
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
class TimingPlan:
    """The work of one measurement; equal on all ranks.

    Attributes:
        groups: the ping-pongs; each group is visited once a sweep.
        slice_s: for each group, size and sweep, how long a ping-pong may go on once it has its least samples.
        exchange_bytes: sizes of the two-way exchanges, ascending.
        exchanges: sets of (leader, follower) pairs that exchange at the same time: whole rounds, fans of one
            rank to several nodes, pairs alone.
        ping_pong_s: what all ping-pongs may take.
        exchange_s: what all exchanges may take.
        warnings: what had to be left out.
    """

    groups: tuple[TimingGroup, ...]
    slice_s: float
    exchange_bytes: tuple[int, ...]
    exchanges: tuple[tuple[Pair, ...], ...]
    ping_pong_s: float
    exchange_s: float
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
    chosen = {
        kind: {s for s in found if s in _NECESSARY} or set(found[:1]) for kind, found in looked_at.items()
    }
    every_pair = pairs_alone(node_of_rank)
    warnings = []

    def least_s() -> float:
        return _least_s(_groups(node_of_rank, every_pair, chosen), node_of_rank, first_look)

    if least_s() > ping_pong_s:
        every_pair = rounds(len(node_of_rank))
        if least_s() > ping_pong_s and len(node_of_rank) > EVERY_PAIR_UP_TO:
            num_fitting = int(len(every_pair) * ping_pong_s / least_s())
            every_pair = _some_rounds(every_pair, node_of_rank, max(1, num_fitting))
            num_timed, num_all = sum(map(len, every_pair)), math.comb(len(node_of_rank), 2)
            warnings.append(f"the budget allowed {num_timed} of {num_all} pairs of ranks to be timed")
    by_value = [size for size in _BY_VALUE if size in sizes]
    by_value += [size for size in sizes if size not in _BY_VALUE + _NECESSARY]
    for size in by_value:
        for kind in sorted(chosen):
            if size in looked_at[kind]:
                chosen[kind].add(size)
                if least_s() > ping_pong_s:
                    chosen[kind].remove(size)
    groups = _groups(node_of_rank, every_pair, chosen)
    spare_s = max(0.0, ping_pong_s - _least_s(groups, node_of_rank, first_look))

    exchanges = _exchange_groups(node_of_rank)
    exchange_s = budget_s * _EXCHANGE_SHARE
    return TimingPlan(
        groups=tuple(groups),
        slice_s=spare_s / (sum(len(group.sizes) for group in groups) * NUM_SWEEPS),
        exchange_bytes=_exchange_bytes(node_of_rank, exchanges, chosen, first_look, exchange_s),
        exchanges=exchanges,
        ping_pong_s=ping_pong_s,
        exchange_s=exchange_s,
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


def _groups(
    node_of_rank: Sequence[int], every_pair: Sequence[Sequence[Pair]], chosen: Mapping[Kind, set[int]]
) -> list[TimingGroup]:
    """All pairs, with large messages only within nodes; then each two nodes with large ones."""
    groups = []
    for pairs in every_pair:
        if all(_kind(pair, node_of_rank) for pair in pairs):
            sizes = chosen[True]
        else:
            sizes = {size for kind in chosen for size in chosen[kind] if size <= _LARGEST_OF_ALL}
        groups.append(TimingGroup(pairs=tuple(pairs), sizes=tuple(sorted(sizes))))
    large = tuple(sorted(size for size in chosen.get(False, ()) if size > _LARGEST_OF_ALL))
    if large:
        groups += [TimingGroup(pairs=tuple(pairs), sizes=large) for pairs in _rounds_of_nodes(node_of_rank)]
    return groups


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


def _least_s(groups: Sequence[TimingGroup], node_of_rank: Sequence[int], first_look: FirstLook) -> float:
    """Seconds for the least number of samples of every pair."""
    round_trips = MIN_SAMPLES + NUM_SWEEPS * _WARMUPS_EXPECTED
    total_s = 0.0
    for group in groups:
        kinds = {_kind(pair, node_of_rank) for pair in group.pairs}
        slowest_s = max(sum(first_look[kind].get(size, 0.0) for size in group.sizes) for kind in kinds)
        total_s += round_trips * 2 * slowest_s + NUM_SWEEPS * _SETUP_S
    return total_s


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


def _exchange_groups(node_of_rank: Sequence[int]) -> tuple[tuple[Pair, ...], ...]:
    """What exchanges together: some rounds, spread, a fan from each node, a pair of each kind alone."""
    all_rounds = rounds(len(node_of_rank))
    groups = [tuple(pairs) for pairs in all_rounds[:: math.ceil(len(all_rounds) / _MOST_ROUNDS)]]
    leaders = [ranks[0] for ranks in _members(node_of_rank)]
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


def _exchange_bytes(
    node_of_rank: Sequence[int],
    exchanges: Sequence[Sequence[Pair]],
    chosen: Mapping[Kind, set[int]],
    first_look: FirstLook,
    budget_s: float,
) -> tuple[int, ...]:
    """The smallest size of all, and the largest whose exchanges fit into the budget; both among the
    ping-pongs'.

    Messages that share a node are taken to share its link or memory.
    """
    common = set.intersection(*chosen.values())
    candidates = [size for size in _EXCHANGE_SIZES if size in common] or [max(common)]

    def takes_s(size: int) -> float:
        total_s = 0.0
        for pairs in exchanges:
            slowest_s = max(first_look[_kind(pair, node_of_rank)][size] for pair in pairs)
            total_s += 2 * slowest_s * max(num_sharing_nodes(pair, pairs, node_of_rank) for pair in pairs)
        return total_s * MIN_EXCHANGES

    bulk = next((size for size in candidates if takes_s(size) <= budget_s), candidates[-1])
    return tuple(sorted({min(common), bulk}))


def num_sharing_nodes(pair: Pair, pairs: Sequence[Pair], node_of_rank: Sequence[int]) -> int:
    """How many of the pairs touch the node of this pair that is touched most, this one included."""
    return max(
        sum(node_of_rank[rank] in (node_of_rank[a], node_of_rank[b]) for a, b in pairs) for rank in pair
    )

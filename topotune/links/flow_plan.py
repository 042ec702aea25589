"""Which bulk flows run together, and for how long: pure functions of the nodes and of a budget.

A flow goes between two nodes, never between more of their ranks than one each: what is looked for lies
between nodes. Whole rounds, in which each node sends to one other and receives from it, show what flows that
run together take from each other; flows by themselves show what each path carries when nothing else runs. Up
to 64 nodes all n - 1 rounds are run, so that each two nodes meet once. Beyond it the number of rounds stays
the same and does not grow with the nodes: each node meets a few others, drawn at random, and those of which
the rates do not say enough meet a few more.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from topotune.links.flows import Purpose
from topotune.links.rounds import Pair, members_of_nodes, num_rounds_of, round_of, rounds

EVERY_NODE_PAIR_UP_TO = 64  # nodes
NUM_PEERS = 8  # of each node where there are more
_MESSAGE_S = 2.5e-3  # a message of a lone flow takes about so long: often enough stamped, and seldom enough
_MESSAGE_BYTES = (16 * 1024, 8 * 1024**2)
_BURSTS_BYTES = 1024**2  # what idle links may let through at once, many times over
# A connection has found its rate by then, and what idle links had saved up is spent (by trial on emulated
# links of 50 to 200 Mbit/s, 2026).
_SETTLE_S = 0.05
_MEASURED_S = (0.12, 2.0)
_MAX_SWEEPS = 3  # of the rounds
_FEWEST_FRESH_SWEEPS = 3  # with fewer samples no test tells anything from chance
# Of a budget, for 1, 2 and more nodes: pairs, first flows, fresh ones. Two nodes have nobody to share with.
_SHARES = ((1.0, 0.0, 0.0), (0.6, 0.25, 0.15), (0.35, 0.25, 0.4))
_BETWEEN_RUNS_S = 0.04  # the messages that are under way when the time is up, and agreeing on the next start


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowPlan:
    """Flows to run at the same time.

    Attributes:
        purpose: why, in the words of ``FlowTest``.
        flows: (sending rank, receiving rank) of each; no rank sends in two or receives in two.
    """

    purpose: Purpose
    flows: tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowSpan:
    """Sizes and times of all flows of a measurement.

    Attributes:
        message_bytes: a flow is cut into messages of this size, sent without a pause.
        settle_s: from the start of a flow; not counted.
        measured_s: what is counted, after that.
    """

    message_bytes: int
    settle_s: float
    measured_s: float

    @property
    def run_s(self) -> float:
        """About what one run takes, from start to start."""
        return self.settle_s + self.measured_s + _BETWEEN_RUNS_S


def flow_span(bytes_per_s: float) -> FlowSpan:
    """Sizes and times for links of about this rate.

    A flow alone sends many times what links let through in a burst. Messages are a power of 2, which all
    ranks find equally whatever their mathematics library.
    """
    low, high = _MESSAGE_BYTES
    message_bytes = 1 << (int(min(max(bytes_per_s * _MESSAGE_S, low), high)).bit_length() - 1)
    shortest_s, longest_s = _MEASURED_S
    return FlowSpan(
        message_bytes=message_bytes,
        settle_s=_SETTLE_S,
        measured_s=min(max(_BURSTS_BYTES / bytes_per_s, shortest_s), longest_s),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowTime:
    """Seconds for flows between nodes.

    Attributes:
        first_s: for those that are always run.
        fresh_s: for those that are run where the first ones look odd; else it is not spent.
    """

    first_s: float
    fresh_s: float


def split_budget(budget_s: float, num_nodes: int) -> tuple[float, FlowTime | None]:
    """What of a budget goes to pairs, and what to flows, which need two nodes."""
    pairs, first, fresh = (budget_s * share for share in _SHARES[min(num_nodes, len(_SHARES)) - 1])
    return pairs, FlowTime(first_s=first, fresh_s=fresh) if num_nodes > 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstFlows:
    """What is run before anything is known.

    Attributes:
        rounds: each is run once a sweep.
        num_sweeps: of the rounds; 0 where there is no time for one.
        alone: flows by themselves, run once.
        needed_s: what one sweep takes.
    """

    rounds: tuple[FlowPlan, ...]
    num_sweeps: int
    alone: tuple[FlowPlan, ...]
    needed_s: float


def first_flows(node_of_rank: Sequence[int], span: FlowSpan, time_s: float, *, seed: int = 0) -> FirstFlows:
    """Share out the time for flows: whole rounds first, again and again, then flows by themselves.

    Args:
        node_of_rank: node number of each rank, of 2 nodes or more.
        span: of each run.
        time_s: for these.
        seed: of what is drawn.
    """
    rounds_first = round_plans(node_of_rank, seed=seed)
    num_nodes, num_rounds = max(node_of_rank) + 1, len(rounds_first)
    num_runs = int(time_s / span.run_s)
    num_sweeps = min(_MAX_SWEEPS, num_runs // num_rounds)
    while num_sweeps > 1 and num_sweeps * num_rounds + num_nodes > num_runs:
        num_sweeps -= 1  # a flow by itself from each node says more than another sweep
    num_alone = num_runs - num_sweeps * num_rounds if num_sweeps else 0
    return FirstFlows(
        rounds=tuple(rounds_first),
        num_sweeps=num_sweeps,
        alone=tuple(alone_plans(node_of_rank, num_alone, seed=seed)),
        needed_s=num_rounds * span.run_s,
    )


def fitting_plans(plans: Sequence[FlowPlan], span: FlowSpan, time_s: float) -> list[FlowPlan]:
    """The first of these plans, as many as can be run 3 times: fewer runs of each would show nothing."""
    return list(plans[: int(time_s / span.run_s / _FEWEST_FRESH_SWEEPS)])


def round_plans(node_of_rank: Sequence[int], *, seed: int = 0) -> list[FlowPlan]:
    """Whole rounds of nodes, both directions of each pair at once: every two nodes, or 8 peers of each node.

    The ranks that send and receive are the nodes' first; where peers are drawn, each round takes the next of
    the ranks that all nodes have, so that what hangs on one of them is met as well, and both ends of a flow
    are of the same local rank (one rail, where the network has rails).

    Args:
        node_of_rank: node number of each rank.
        seed: of the peers that are drawn.
    """
    members = members_of_nodes(node_of_rank)
    num_nodes = len(members)
    if num_nodes <= EVERY_NODE_PAIR_UP_TO:
        of_nodes = [(pairs, 0) for pairs in rounds(num_nodes)]
    else:
        fewest_ranks = min(map(len, members))
        drawn = matchings(num_nodes, NUM_PEERS, seed=seed)
        of_nodes = [(pairs, number % fewest_ranks) for number, pairs in enumerate(drawn)]
    return [
        FlowPlan(
            purpose="round",
            flows=tuple(
                (members[src][local_rank], members[dst][local_rank])
                for a, b in pairs
                for src, dst in ((a, b), (b, a))
            ),
        )
        for pairs, local_rank in of_nodes
    ]


def more_peers(
    node_of_rank: Sequence[int], doubtful: Sequence[int], met: Set[frozenset[int]], *, seed: int = 0
) -> list[FlowPlan]:
    """More rounds for some nodes, each with others that it has not met; none where all have met.

    Args:
        node_of_rank: node number of each rank.
        doubtful: the nodes; they meet each other only where nobody else is left.
        met: pairs of nodes.
        seed: of the peers.
    """
    first = [ranks[0] for ranks in members_of_nodes(node_of_rank)]
    rng = np.random.default_rng(seed)
    doubted, known = set(doubtful), set(met)
    plans = []
    for _ in range(NUM_PEERS):
        others = sorted(rng.permutation(len(first)).tolist(), key=lambda node: node in doubted)
        busy: set[int] = set()
        flows: list[Pair] = []
        for node in doubtful:
            peers = (peer for peer in others if peer not in busy and {node, peer} not in known)
            peer = next((peer for peer in peers if peer != node), None)
            if node not in busy and peer is not None:
                busy |= {node, peer}
                known.add(frozenset((node, peer)))
                flows += [(first[node], first[peer]), (first[peer], first[node])]
        if not flows:
            break
        plans.append(FlowPlan(purpose="round", flows=tuple(flows)))
    return plans


def alone_plans(node_of_rank: Sequence[int], max_plans: int, *, seed: int = 0) -> list[FlowPlan]:
    """Single flows between first ranks of nodes: each node sends in as many as any other, and receives.

    Args:
        node_of_rank: node number of each rank.
        max_plans: at most so many, of the nodes' ordered pairs.
        seed: of what is drawn where there are more.
    """
    first = [ranks[0] for ranks in members_of_nodes(node_of_rank)]
    num_nodes = len(first)
    rng = np.random.default_rng(seed)
    # All nodes send to the node so many places on: n flows in which each sends once and receives once.
    steps = (rng.permutation(num_nodes - 1) + 1).tolist()
    plans: list[FlowPlan] = []
    for step in steps:
        for node in rng.permutation(num_nodes).tolist():
            if len(plans) >= max_plans:
                return plans
            flow = (first[node], first[(node + step) % num_nodes])
            plans.append(FlowPlan(purpose="alone", flows=(flow,)))
    return plans


def matchings(num_nodes: int, num_rounds: int, *, seed: int) -> list[list[Pair]]:
    """Rounds of disjoint pairs drawn at random, no pair twice; of an odd number of nodes one idles in each.

    The rounds are some of those of the circle method, on nodes that have been numbered at random.

    Args:
        num_nodes: 2 or more.
        num_rounds: at most as many as the circle method has.
        seed: of the numbering and of the rounds.
    """
    rng = np.random.default_rng(seed)
    name = rng.permutation(num_nodes).tolist()
    chosen = rng.choice(num_rounds_of(num_nodes), size=num_rounds, replace=False).tolist()
    return [
        sorted((min(name[a], name[b]), max(name[a], name[b])) for a, b in round_of(num_nodes, number))
        for number in chosen
    ]

"""Networks of known structure that run flow tests: max-min fair shares, with the noise that TCP adds.

Seen on emulated links (2026): rates of lone flows scatter by 1 to 5 %, flows that share a link split it
unevenly, by a quarter and more, while their sum fills it, and now and then a flow is a fifth slow.
"""

from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np

from topotune.links import ExchangeTiming, FlowTest, Measurement, PairTiming, RoundTripTimes
from topotune.links.flow_plan import alone_plans, round_plans
from topotune.links.inference import confirming_tests, suspected_groups
from topotune.links.inference.confirm import NUM_SWEEPS
from topotune.links.inference.fair_shares import fair_shares

LINE = 25e6  # bytes/s: 200 Mbit/s
INSIDE = 1e9  # bytes/s within a node


@dataclass(frozen=True, kw_only=True)
class Network:
    """Nodes are numbers; ``groups`` are (nodes, uplink in bytes/s), nested ones too; ``paths``: slow ones."""

    num_nodes: int
    groups: tuple[tuple[tuple[int, ...], float], ...] = ()
    sending: dict[int, float] = field(default_factory=dict)
    receiving: dict[int, float] = field(default_factory=dict)
    paths: dict[tuple[int, int], float] = field(default_factory=dict)
    ranks_per_node: int = 1
    duplex_share: float = 0.95  # what software reaches one way while it sends the other way as well
    noise: float = 0.03
    unevenness: float = 0.25
    slow_flows: float = 0.02
    seed: int = 0

    @property
    def node_of_rank(self):
        return tuple(rank // self.ranks_per_node for rank in range(self.num_nodes * self.ranks_per_node))

    def first_look(self, *, num_samples=3, max_alone=60, round_trips=()):
        """A measurement before anything is suspected."""
        tests = self.run(round_plans(self.node_of_rank, seed=self.seed), num_samples=num_samples)
        alone = alone_plans(self.node_of_rank, max_alone, seed=self.seed)
        tests += self.run(alone, num_samples=1, first_number=len(tests))
        return self.measurement(tests, round_trips)

    def look_again(self, measurement, *, num_sweeps=NUM_SWEEPS):
        """The same with fresh runs of what it makes suspicious."""
        plans = confirming_tests(suspected_groups(measurement), measurement)
        tests = list(measurement.flow_tests)
        tests += self.run(plans, num_samples=num_sweeps, first_number=len(tests))
        return self.measurement(tests, measurement.round_trips)

    def explored(self, **options):
        """First look and fresh runs."""
        return self.look_again(self.first_look(**options))

    def run(self, plans, *, num_samples, first_number=0):
        """Flow tests of these plans."""
        rng = np.random.default_rng((self.seed, first_number))
        return [
            FlowTest(
                purpose=plan.purpose,
                flows=plan.flows,
                message_bytes=65536,
                rates_bytes_per_s=tuple(map(tuple, self._rates(plan.flows, num_samples, rng).tolist())),
                number=first_number + index,
            )
            for index, plan in enumerate(plans)
        ]

    def alone_s(self, a, b, size):
        """Time of a message between two ranks with nothing else under way."""
        if self.node_of_rank[a] == self.node_of_rank[b]:
            return 2e-5 + size / INSIDE
        rates, uses, capacities = self._limits(np.array([[a, b]]) // self.ranks_per_node)
        return 1e-4 + size / float(fair_shares(rates, uses, capacities)[0])

    def measurement(self, tests=(), round_trips=(), sizes=(8, 2**20, 2**22)):
        """These tests, timings of pairs, and fans of exchanges that show each node's link to be a limit."""
        nodes, ranks = self.node_of_rank, range(len(self.node_of_rank))
        every_pair = (
            [(a, b) for a in ranks for b in ranks if a != b] if len(ranks) <= 16 else [(0, 1), (1, 0)]
        )
        pairs = tuple(
            PairTiming(
                src=a, dst=b, message_bytes=size, one_way_s=(time_s,) * 6, half_round_trip_s=(time_s,) * 6
            )
            for a, b in every_pair
            for size in sizes
            for time_s in (self.alone_s(a, b, size),)
        )
        first = [nodes.index(node) for node in range(self.num_nodes)] if len(ranks) <= 16 else []
        fans = [[(min(a, b), max(a, b)) for b in first if b != a][:3] for a in first if self.num_nodes > 2]
        exchanges = tuple(
            ExchangeTiming(
                a=a,
                b=b,
                message_bytes=2**22,
                group=group,
                num_concurrent=len(fan),
                samples_s=(max(len(fan) * 2**22 / self._link(group), self.alone_s(a, b, 2**22)),) * 5,
            )
            for group, fan in enumerate(fans)
            for a, b in fan
        )
        return Measurement(
            num_ranks=len(nodes),
            node_of_rank=nodes,
            node_names=names(self.num_nodes),
            pairs=pairs,
            exchanges=exchanges,
            flow_tests=tuple(tests),
            round_trips=tuple(round_trips),
        )

    def _link(self, node):
        return min(self.sending.get(node, LINE), self.receiving.get(node, LINE))

    def _limits(self, nodes):
        """What flows between these nodes get by themselves, and the uplinks that they share."""
        sources, sinks = nodes.T
        own = np.array(
            [
                min(self.sending.get(a, LINE), self.receiving.get(b, LINE), self.paths.get((a, b), np.inf))
                for a, b in nodes.tolist()
            ]
        )
        columns, capacities = [np.zeros(len(own), dtype=bool)], [np.inf]
        for members, uplink in self.groups:
            inside, outside = np.isin(sources, members), np.isin(sinks, members)
            columns += [inside & ~outside, ~inside & outside]
            capacities += [uplink, uplink]
        return own, np.stack(columns, axis=1), np.asarray(capacities)

    def _rates(self, flows, num_samples, rng):
        nodes = np.asarray(flows) // self.ranks_per_node
        own, uses, capacities = self._limits(nodes)
        duplex = np.isin(nodes[:, 0], nodes[:, 1]) | np.isin(nodes[:, 1], nodes[:, 0])
        own = own * np.where(duplex, self.duplex_share, 1.0)
        fair = fair_shares(own, uses, capacities)
        rates = np.repeat(fair[:, None], num_samples, axis=1)
        for column, capacity in zip(uses.T, capacities, strict=True):
            if column.sum() > 1 and fair[column].sum() > 0.99 * capacity:
                uneven = rates[column] * np.exp(
                    self.unevenness * rng.standard_normal((column.sum(), num_samples))
                )
                uneven *= rates[column].sum(axis=0) / uneven.sum(axis=0)
                rates[column] = np.minimum(uneven, own[column, None])
        rates = rates * np.exp(self.noise * rng.standard_normal(rates.shape))
        return rates * np.where(rng.random(rates.shape) < self.slow_flows, 0.8, 1.0)


def names(num_nodes):
    return (
        tuple("abcdefghijklmnop"[:num_nodes]) if num_nodes <= 16 else tuple(f"n{i}" for i in range(num_nodes))
    )


def racks(*sizes, uplink, **others):
    """Racks of so many nodes, in order, each with this uplink (bytes/s)."""
    starts = np.cumsum([0, *sizes]).tolist()
    groups = tuple((tuple(range(a, b)), uplink) for a, b in pairwise(starts))
    return Network(num_nodes=starts[-1], groups=groups, **others)


def round_trips(distance_s, num_nodes, *, noise=0.03, pairs=None, seed=0):
    """Of these pairs of nodes, else all, of one rank each: the fastest of 21 is little above the distance."""
    rng = np.random.default_rng(seed)
    trips = []
    for a, b in pairs or combinations(range(num_nodes), 2):
        samples = np.sort(distance_s(a, b) * np.exp(noise * np.abs(rng.standard_normal(21)))).tolist()
        trips.append(RoundTripTimes(a=a, b=b, min_s=samples[0], samples_s=tuple(samples)))
    return trips

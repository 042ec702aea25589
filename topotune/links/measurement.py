"""What was timed between the ranks: facts, every sample kept. Medians, intervals, fits are derived."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from topotune.links.device_copy import CopyTiming
from topotune.links.figures import CollectiveFigure, LinkFigure
from topotune.links.flows import FlowTest, RoundTripTimes

SCHEMA = "topotune/measurement"
SCHEMA_VERSION = 1

_MAX_CLOCK_SHARE = 0.05  # a one-way time is used where the clocks' error is at most this share of it
_EXACT_ORDER_STATISTICS = 1000


def median_ci(samples: Sequence[float]) -> tuple[float, float]:
    """Distribution-free 95 % interval of the median, by order statistics.

    The number of samples below the true median is binomial(n, 1/2) whatever the distribution, so that the
    k-th smallest and the k-th largest sample enclose it with a probability that depends on k and n alone.
    Below 6 samples no k reaches 95 %: the interval is then all of them.

    Args:
        samples: one or more, in any order.
    """
    ordered = sorted(samples)
    n = len(ordered)
    if n > _EXACT_ORDER_STATISTICS:
        k = math.floor(n / 2 - statistics.NormalDist().inv_cdf(0.975) * math.sqrt(n) / 2)
    else:
        k, below = 0, 1  # below: how many of the 2**n outcomes leave at most k samples on one side
        while below <= 0.025 * 2**n:
            k += 1
            below += math.comb(n, k)
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTiming:
    """One message size from ``src`` to ``dst``; nothing else was sent unless ``num_concurrent`` > 1.

    Each sample comes from one ping-pong of two messages of this size, taken two ways: as the time from the
    start of the sending on one clock to the end of the receiving on the other (``one_way_s``), and as half
    of the round trip without the time that the other rank took to turn it round (``half_round_trip_s``).
    The first knows the direction and carries the clocks' error, which is the same in all samples and does
    not average out; the second is free of clocks and cannot tell the directions apart. So the first is used
    where that error is small beside it, which it is for all but small messages between nodes.

    Attributes:
        src, dst: ranks.
        message_bytes: at least 1.
        one_way_s, half_round_trip_s: the steady samples, in the order taken.
        warmup_s: what came before them, one way.
        clock_error_s: bound on the error that the clocks put on all of ``one_way_s``.
        num_concurrent: pairs that talked at the same time on one of its nodes, this one included.
        steady: False where warming up ended at its cap and not because the times had settled.
    """

    src: int
    dst: int
    message_bytes: int
    one_way_s: tuple[float, ...]
    half_round_trip_s: tuple[float, ...]
    warmup_s: tuple[float, ...] = ()
    clock_error_s: float = 0.0
    num_concurrent: int = 1
    steady: bool = True

    def __post_init__(self) -> None:
        if self.src == self.dst:
            raise ValueError(f"a timing from rank {self.src} to itself")
        if self.message_bytes < 1:
            raise ValueError(f"a message of {self.message_bytes} bytes")
        if not self.half_round_trip_s or len(self.one_way_s) != len(self.half_round_trip_s):
            raise ValueError(
                f"{len(self.one_way_s)} one-way times and {len(self.half_round_trip_s)} half round trips: "
                "must be as many, and one at least"
            )
        if not all(0 < time_s < math.inf for time_s in self.half_round_trip_s):
            raise ValueError("a half round trip is not above 0 s")
        if not all(math.isfinite(time_s) for time_s in (*self.one_way_s, *self.warmup_s)):
            raise ValueError("a one-way time is not finite")
        if not 0 <= self.clock_error_s < math.inf or self.num_concurrent < 1:
            raise ValueError(
                f"a clock error of {self.clock_error_s} s with {self.num_concurrent} concurrent pairs"
            )

    @property
    def samples_s(self) -> tuple[float, ...]:
        """The samples that count: one-way times where the clocks are good enough, else half round trips."""
        trustworthy = self.clock_error_s <= _MAX_CLOCK_SHARE * statistics.median(self.half_round_trip_s)
        return self.one_way_s if trustworthy and min(self.one_way_s) > 0 else self.half_round_trip_s

    @property
    def median_s(self) -> float:
        """Median of the samples that count."""
        return statistics.median(self.samples_s)

    @property
    def ci_s(self) -> tuple[float, float]:
        """95 % interval of the median."""
        return median_ci(self.samples_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExchangeTiming:
    """Two ranks sending each other a message at the same time, while other pairs do the same or nobody does.

    Attributes:
        a, b: the two ranks, ``a < b``.
        message_bytes: each way.
        group: number of the set of pairs that exchanged together; timings of one group ran at the same time.
        num_concurrent: pairs in that group.
        samples_s: from both ranks' start to ``a``'s end, of exchanges while all pairs of the group were at
            it.
    """

    a: int
    b: int
    message_bytes: int
    group: int
    num_concurrent: int
    samples_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.a < self.b:
            raise ValueError(f"an exchange between ranks {self.a} and {self.b}")
        if self.message_bytes < 1 or self.num_concurrent < 1:
            raise ValueError(f"an exchange of {self.message_bytes} bytes among {self.num_concurrent} pairs")
        if not self.samples_s or not all(0 < time_s < math.inf for time_s in self.samples_s):
            raise ValueError("an exchange needs samples, all above 0 s")

    @property
    def median_s(self) -> float:
        """Median time of one exchange."""
        return statistics.median(self.samples_s)

    @property
    def bytes_per_s(self) -> float:
        """Both directions together, over all samples: a mean, since what is shared goes round in turns."""
        return 2 * self.message_bytes / statistics.fmean(self.samples_s)


def is_of_a_link(figure: LinkFigure) -> bool:
    """Whether a figure is of one way between two ranks, alone and by the path that a job would take."""
    return (
        None not in (figure.src, figure.dst)
        and figure.src != figure.dst
        and figure.duplex is None
        and figure.direct
        and figure.num_concurrent == 1
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """All that was timed between the ranks of one group, by topotune or, as figures, by other tools.

    Attributes:
        num_ranks: n; 0 where there are only figures of collectives, of groups that differ or are not known.
        node_of_rank: verified node number of each rank, 0-based, without gaps; of figures alone, empty where
            the tool does not say where its ranks were.
        node_names: one a node, for reports; unique.
        pairs: of each two ranks, each way, each size.
        exchanges: pairs that send both ways at once, all of a round together and some alone.
        flow_tests: bulk flows between nodes, one way each, together and alone; by their ``number``.
        round_trips: of small messages between two ranks of each two nodes that were timed.
        link_figures: what another tool says of single links.
        collectives: what benchmarks say of whole collectives.
        device_copies: what GPUs' copy engines and NCCL's point-to-point were timed at.
        reduce_s_per_byte: samples of combining two float32 buffers while all ranks do so, per received byte.
        created: ISO 8601, UTC.
        budget_s, elapsed_s: what it was allowed to take, and took.
        facts: versions and what else describes the run.
        warnings: what stood in the way.
    """

    num_ranks: int
    node_of_rank: tuple[int, ...]
    node_names: tuple[str, ...]
    pairs: tuple[PairTiming, ...]
    exchanges: tuple[ExchangeTiming, ...] = ()
    flow_tests: tuple[FlowTest, ...] = ()
    round_trips: tuple[RoundTripTimes, ...] = ()
    link_figures: tuple[LinkFigure, ...] = ()
    collectives: tuple[CollectiveFigure, ...] = ()
    device_copies: tuple[CopyTiming, ...] = ()
    reduce_s_per_byte: tuple[float, ...] = ()
    created: str | None = None
    budget_s: float | None = None
    elapsed_s: float | None = None
    facts: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check_ranks()
        if sorted(set(self.node_of_rank)) != list(range(len(self.node_names))):
            raise ValueError(
                f"nodes are numbered {sorted(set(self.node_of_rank))} and {len(self.node_names)} have names"
            )
        if len(set(self.node_names)) != len(self.node_names):
            raise ValueError(f"two nodes have one name: {', '.join(self.node_names)}")
        seen: set[tuple[int, int, int]] = set()
        for pair in self.pairs:
            if not (0 <= pair.src < self.num_ranks and 0 <= pair.dst < self.num_ranks):
                raise ValueError(f"a timing from rank {pair.src} to {pair.dst} among {self.num_ranks} ranks")
            key = (pair.src, pair.dst, pair.message_bytes)
            if key in seen:
                raise ValueError(
                    f"two timings from rank {pair.src} to {pair.dst} of {pair.message_bytes} bytes"
                )
            seen.add(key)
        for exchange in self.exchanges:
            if exchange.b >= self.num_ranks:
                raise ValueError(
                    f"an exchange between ranks {exchange.a} and {exchange.b} among {self.num_ranks} ranks"
                )
        self._check_flows()
        if not all(0 < sample < math.inf for sample in self.reduce_s_per_byte):
            raise ValueError("a reduction cost is not above 0 s per byte")

    @property
    def times_links(self) -> bool:
        """Whether costs of links can be fitted to it: timings, or bandwidths between placed ranks."""
        from topotune.links.figure_fit import has_costs_of_all_kinds  # which needs this class

        return not self.has_only_figures or has_costs_of_all_kinds(self)

    @property
    def has_only_figures(self) -> bool:
        """Whether all that it holds is what other tools say."""
        own = (self.pairs, self.exchanges, self.flow_tests, self.round_trips)
        return not any(own) and bool(self.link_figures or self.collectives)

    def is_within_node(self, a: int, b: int) -> bool:
        """Whether two ranks share a node."""
        return self.node_of_rank[a] == self.node_of_rank[b]

    def _check_ranks(self) -> None:
        unplaced = self.has_only_figures and not self.node_of_rank and not self.node_names
        if not unplaced and (self.num_ranks < 1 or len(self.node_of_rank) != self.num_ranks):
            raise ValueError(
                f"node_of_rank names {len(self.node_of_rank)} ranks, num_ranks is {self.num_ranks}"
            )
        for figure in self.link_figures:
            for rank in (figure.src, figure.dst):
                if rank is not None and not 0 <= rank < self.num_ranks:
                    raise ValueError(f"a figure of rank {rank} among {self.num_ranks} ranks")

    def _check_flows(self) -> None:
        numbers = [test.number for test in self.flow_tests]
        if numbers != sorted(set(numbers)):
            raise ValueError("flow tests are not in the order of their numbers, each number once")
        for test in self.flow_tests:
            for ends in test.flows:
                self._check_between_nodes(ends, "a flow")
        for trips in self.round_trips:
            self._check_between_nodes((trips.a, trips.b), "round trips")
        if len({(trips.a, trips.b) for trips in self.round_trips}) < len(self.round_trips):
            raise ValueError("round trips of two ranks stand twice")

    def _check_between_nodes(self, ends: tuple[int, int], what: str) -> None:
        if max(ends) >= self.num_ranks or self.is_within_node(*ends):
            raise ValueError(
                f"{what} between ranks {ends[0]} and {ends[1]} among {self.num_ranks} ranks: "
                "must be ranks of two nodes"
            )

"""What the links between ranks cost: the fitted values that prediction, bounds and plans work on."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import permutations, product
from operator import itemgetter

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkCost:
    """Time of one message over an otherwise idle link: piecewise affine in its size, jumps allowed.

    Segment i holds for sizes in ``[from_bytes[i], from_bytes[i+1])`` and costs ``alpha_s[i] +
    beta_s_per_byte[i] * size``.

    Attributes:
        from_bytes: first size of each segment, ascending, the first 0.
        alpha_s: seconds, never negative.
        beta_s_per_byte: seconds per byte, never negative.
        alpha_ci_s, bandwidth_ci_bytes_per_s: 95 % intervals of the latency (small messages) and of the
            bandwidth (largest messages); None where there were too few samples.
        max_relative_error: worst |fit / median - 1| over the measured sizes.
    """

    from_bytes: tuple[int, ...]
    alpha_s: tuple[float, ...]
    beta_s_per_byte: tuple[float, ...]
    alpha_ci_s: tuple[float, float] | None = None
    bandwidth_ci_bytes_per_s: tuple[float, float] | None = None
    max_relative_error: float | None = None

    def __post_init__(self) -> None:
        if not (len(self.from_bytes) == len(self.alpha_s) == len(self.beta_s_per_byte) >= 1):
            raise ValueError("a link cost needs as many alphas and betas as segments, and one at least")
        if self.from_bytes[0] != 0 or list(self.from_bytes) != sorted(set(self.from_bytes)):
            raise ValueError(f"segments start at {self.from_bytes}: must ascend from 0")
        if min(self.alpha_s) < 0 or min(self.beta_s_per_byte) < 0:
            raise ValueError(f"negative cost: alpha {self.alpha_s}, beta {self.beta_s_per_byte}")

    def time_s(self, message_bytes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Seconds for messages of these sizes (any shape; bytes)."""
        sizes = np.asarray(message_bytes, dtype=np.float64)
        segment = np.searchsorted(np.asarray(self.from_bytes), sizes, side="right") - 1
        alpha = np.asarray(self.alpha_s)[segment]
        beta = np.asarray(self.beta_s_per_byte)[segment]
        time: npt.NDArray[np.float64] = alpha + beta * sizes
        return time

    @property
    def latency_s(self) -> float:
        """Cost of the smallest message."""
        return self.alpha_s[0]

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Slope of the last segment; infinite where no cost per byte was seen."""
        return 1.0 / self.beta_s_per_byte[-1] if self.beta_s_per_byte[-1] > 0 else float("inf")


Pair = tuple[int, int]
"""A directed pair of ranks: (src, dst)."""


class PairsAcross(Set[Pair]):
    """All pairs out of a set of ranks, or all into it: a set of pairs that need not be listed.

    Thousands of ranks have too many pairs to hold: what leaves one node of 8 among 8,192 ranks are 65,472.

    Args:
        members: the ranks on one side.
        num_ranks: n; the other side are the rest of the ranks 0 … n-1.
        leaving: True for pairs out of ``members``, False for those into it.
    """

    __slots__ = ("leaving", "members", "num_ranks")

    def __init__(self, members: frozenset[int], num_ranks: int, *, leaving: bool) -> None:
        self.members = members
        self.num_ranks = num_ranks
        self.leaving = leaving

    @classmethod
    def _from_iterable(cls, it: Iterator[Pair]) -> frozenset[Pair]:  # type: ignore[override]
        return frozenset(it)

    def __contains__(self, pair: object) -> bool:
        if not isinstance(pair, tuple) or len(pair) != 2:
            return False
        inside, outside = pair if self.leaving else pair[::-1]
        return inside in self.members and outside in range(self.num_ranks) and outside not in self.members

    def __iter__(self) -> Iterator[Pair]:
        inside = sorted(self.members)
        outside = [rank for rank in range(self.num_ranks) if rank not in self.members]
        return product(inside, outside) if self.leaving else product(outside, inside)

    def __len__(self) -> int:
        return len(self.members) * (self.num_ranks - len(self.members))

    def __hash__(self) -> int:
        return self._hash()

    def __repr__(self) -> str:
        side = sorted(self.members)
        return f"PairsAcross({side}, {self.num_ranks}, leaving={self.leaving})"


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedCapacity:
    """Something that several pairs share when they send at once: a NIC, an uplink, the memory of one machine.

    Attributes:
        name: in words, as it will stand in reports (``memory of node a``, ``link of node b, sending``).
        capacity_bytes_per_s: what all its pairs together get.
        pairs: the directed (src, dst) rank pairs that load it; a `PairsAcross` where they are many.
        is_limit: True where the figure is a limit of the hardware or network that no algorithm can pass
            (then a bound may use it); False where it is only what this software reached (then only
            predictions use it).
    """

    name: str
    capacity_bytes_per_s: float
    pairs: Set[Pair]
    is_limit: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkModel:
    """Costs between every two ranks.

    Attributes:
        num_ranks: n >= 1.
        classes: the distinct costs.
        pair_class: ``pair_class[src][dst]`` indexes ``classes``; the diagonal is -1. Rows of any kind of
            sequence (arrays take least memory).
        class_names: one a class, in words (``within a node``, ``between nodes``).
        shared: what limits concurrent transfers.
        node_of_rank: node number of each rank (0-based, by verified shared-memory handshake).
        reduce_s_per_byte: cost of combining one received byte with one of one's own.
        call_overhead_s: fixed cost of one collective call, beyond its transfers.
        near: sets of ranks on several nodes that are near to each other (racks), whether or not a limit was
            seen around them: some show by their latencies alone.
    """

    num_ranks: int
    classes: tuple[LinkCost, ...]
    pair_class: Sequence[Sequence[int]]
    class_names: tuple[str, ...]
    node_of_rank: tuple[int, ...]
    shared: tuple[SharedCapacity, ...] = ()
    reduce_s_per_byte: float = 0.0
    call_overhead_s: float = 0.0
    near: tuple[frozenset[int], ...] = ()

    def __post_init__(self) -> None:
        if len(self.pair_class) != self.num_ranks or any(
            len(row) != self.num_ranks for row in self.pair_class
        ):
            raise ValueError(f"pair_class is not {self.num_ranks} x {self.num_ranks}")
        if len(self.class_names) != len(self.classes):
            raise ValueError("each class needs one name")
        if len(self.node_of_rank) != self.num_ranks:
            raise ValueError(f"node_of_rank names {len(self.node_of_rank)} ranks, not {self.num_ranks}")

    def cost(self, src: int, dst: int) -> LinkCost:
        """Cost of the directed pair ``src`` → ``dst``."""
        return self.classes[self.pair_class[src][dst]]

    def least_latency_s(self, ranks: Sequence[int]) -> float | None:
        """The shortest time of a smallest message between nodes, at the low end of its interval.

        Args:
            ranks: between whose nodes; the first rank of each stands for it.

        Returns:
            None where all of them are on one node. O(nodes²).
        """
        first_of = {self.node_of_rank[rank]: rank for rank in reversed(ranks)}
        pairs = permutations(first_of.values(), 2)
        costs = [self.classes[index] for index in {self.pair_class[src][dst] for src, dst in pairs}]
        lowest_s = (one.latency_s if one.alpha_ci_s is None else one.alpha_ci_s[0] for one in costs)
        return min(lowest_s, default=None)

    def reordered(self, order: Sequence[int] | None) -> "LinkModel":
        """The same links with the ranks numbered by position, as algorithms under a rank order see them.

        Args:
            order: the rank that stands at each position, each rank once; None for as numbered.
        """
        if order is None or self.num_ranks == 1:
            return self
        position_of = {rank: position for position, rank in enumerate(order)}
        chosen = itemgetter(*order)
        return replace(
            self,
            pair_class=tuple(chosen(self.pair_class[rank]) for rank in order),
            node_of_rank=tuple(self.node_of_rank[rank] for rank in order),
            shared=tuple(replace(one, pairs=_renumbered(one.pairs, position_of)) for one in self.shared),
            near=tuple(frozenset(position_of[rank] for rank in members) for members in self.near),
        )

    def among(self, ranks: Sequence[int], *, num_alike: int = 1) -> "LinkModel":
        """The links of some ranks, numbered in the order given.

        Args:
            ranks: each once; at least one.
            num_alike: how many sets of ranks like this one exchange at the same time: what they share with
                each other each has that part of.
        """
        position_of = {rank: position for position, rank in enumerate(ranks)}
        inside = set(ranks)
        shared = []
        for one in self.shared:
            pairs = frozenset(
                (position_of[src], position_of[dst])
                for src in ranks
                for dst in inside - {src}
                if (src, dst) in one.pairs
            )
            if pairs:
                # What lies outside the set takes part in what is shared where any of its pairs does.
                users = num_alike if len(pairs) < len(one.pairs) else 1
                capacity = one.capacity_bytes_per_s / users
                shared.append(replace(one, pairs=pairs, capacity_bytes_per_s=capacity))
        nodes = {node: number for number, node in enumerate(dict.fromkeys(self._nodes_of(ranks)))}
        return replace(
            self,
            num_ranks=len(ranks),
            pair_class=tuple(tuple(self.pair_class[src][dst] for dst in ranks) for src in ranks),
            node_of_rank=tuple(nodes[node] for node in self._nodes_of(ranks)),
            shared=tuple(shared),
            near=tuple(
                members
                for members in (frozenset(position_of[rank] for rank in near & inside) for near in self.near)
                if 0 < len(members) < len(ranks)
            ),
        )

    def _nodes_of(self, ranks: Sequence[int]) -> list[int]:
        return [self.node_of_rank[rank] for rank in ranks]


def _renumbered(pairs: Set[Pair], position_of: dict[int, int]) -> Set[Pair]:
    if isinstance(pairs, PairsAcross):
        members = frozenset(position_of[rank] for rank in pairs.members)
        return PairsAcross(members, pairs.num_ranks, leaving=pairs.leaving)
    return frozenset((position_of[src], position_of[dst]) for src, dst in pairs)

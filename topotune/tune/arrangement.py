"""How a run arranges its ranks: their order, and what is worth trying and to be expected in that order.

The order follows from the fitted links alone and is settled before the search, so that all that is measured
is measured as the job will run it: every candidate in the order that the plan will carry. The default keeps
the ranks as numbered; that is what a job without a plan gets.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from topotune.bounds import (
    allreduce_forest,
    forest_params,
    graph_from_links,
    with_equal_ways,
)
from topotune.bounds.allreduce_forest import is_limited
from topotune.bounds.servers import server_params
from topotune.execute.native import ALLGATHER_REDUCE_SCRATCH_BYTES
from topotune.links.model import LinkModel
from topotune.links.placement import Placement, placement_of, rank_order, reordered_numa
from topotune.schedule.candidates import candidates
from topotune.schedule.model import Params
from topotune.simulate import predict_candidate
from topotune.tune.shortlist import PredictedTime
from topotune.tune.trial import DEFAULT, Candidate

_FOREST_PIECES: Final = (1, 4, 16, 32)
_MOST_FOREST_HOSTS: Final = 32
"""Of a forest: all ranks wait while it is sought, about a second for as many unequal hosts."""

_MOST_FOREST_RANKS: Final = 128
"""A plan names every rank's parent in every tree."""

_MOST_FOREST_TRANSFERS: Final = 2**20
"""Of what is cut in pieces: more take seconds to build, to prove and to predict."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrangement:
    """The ranks in their order.

    Attributes:
        rank_order: the rank that stands at each position; None for as numbered.
        as_numbered: what the links cost between ranks; None for a single rank, which has none.
        by_position: what they cost between positions.
        placement: how positions lie in the cluster.
    """

    rank_order: tuple[int, ...] | None
    as_numbered: LinkModel | None
    by_position: LinkModel | None
    placement: Placement

    @classmethod
    def of(cls, model: LinkModel | None, numa_of_rank: Sequence[int | None] | None = None) -> Self:
        """The arrangement that follows from what is known.

        Args:
            model: fitted links; None for a single rank.
            numa_of_rank: NUMA node of each rank on its node; None for a rank that may run on several.
        """
        if model is None:
            return cls(
                rank_order=None, as_numbered=None, by_position=None, placement=Placement(node_of_rank=(0,))
            )
        order = rank_order(model, numa_of_rank)
        by_position = model.reordered(order)
        return cls(
            rank_order=order,
            as_numbered=model,
            by_position=by_position,
            placement=placement_of(by_position, reordered_numa(numa_of_rank, order)),
        )

    def candidates(self) -> list[Candidate]:
        """All that is worth considering, without the default; params name positions."""
        found = candidates(self.placement, is_reordered=self.rank_order is not None)
        fitted = (*self._servers(), *self._forests())
        return [Candidate.of(algorithm, params) for algorithm, params in (*found, *fitted)]

    def _servers(self) -> list[tuple[str, Params]]:
        """Parameter servers with the shares that unequal hosts call for."""
        graph = None if self.by_position is None else graph_from_links(self.by_position)
        params = None if graph is None else server_params(with_equal_ways(graph))
        if params is None:
            return []
        return [("parameter_server", {**params, "pieces": pieces}) for pieces in _FOREST_PIECES]

    def _forests(self) -> list[tuple[str, Params]]:
        """The forest that the measured limits call for, cut in pieces; none where they say nothing."""
        graph = None if self.by_position is None else graph_from_links(self.by_position)
        if graph is None or not 2 <= len(graph.hosts) <= _MOST_FOREST_HOSTS:
            return []
        if len(graph.compute) > _MOST_FOREST_RANKS:
            return []
        graph = with_equal_ways(graph)
        if not is_limited(graph):
            return []
        params = forest_params(allreduce_forest(graph))
        transfers = 2 * (len(graph.compute) - 1) * len(params["weights"])
        return [
            ("forest", {**params, "pieces": pieces})
            for pieces in _FOREST_PIECES
            if pieces == 1 or transfers * pieces <= _MOST_FOREST_TRANSFERS
        ]

    def predictor(self, sizes: Iterable[int]) -> PredictedTime:
        """The simulator's time of a candidate at a size; infinite where it does not take the size.

        Args:
            sizes: that are likely to be asked for: they are predicted together.
        """
        usual = set(sizes)
        curves: dict[Candidate, dict[int, float]] = {}

        def predicted_s(candidate: Candidate, message_bytes: int) -> float:
            model = self.as_numbered if candidate == DEFAULT else self.by_position
            if model is None:
                return 0.0  # a single rank has the default alone, which exchanges nothing
            if candidate.algorithm == "native_allgather_reduce" and (
                message_bytes * model.num_ranks > ALLGATHER_REDUCE_SCRATCH_BYTES
            ):
                return math.inf
            curve = curves.setdefault(candidate, {})
            if message_bytes not in curve:
                asked = sorted({*usual, message_bytes})
                times_s = predict_candidate(candidate.algorithm, candidate.params, model, asked)
                curve.update(zip(asked, times_s.tolist(), strict=True))
            return curve[message_bytes]

        return predicted_s

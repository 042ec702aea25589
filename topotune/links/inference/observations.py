"""Flow tests as nodes see them: arrays of sending and receiving nodes and of rates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from topotune.links.flows import FlowTest, Purpose
from topotune.links.measurement import Measurement

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFlows:
    """One flow test between nodes.

    Attributes:
        purpose, number: as of the ``FlowTest``.
        sources, sinks: nodes, shape (num_flows,).
        rates: bytes/s, shape (num_flows, num_repetitions).
        medians: over the repetitions, shape (num_flows,).
        duplex: some node sends and receives at the same time, which software often does more slowly than
            either; only tests that are alike in this are compared.
    """

    purpose: Purpose
    number: int
    sources: IntArray
    sinks: IntArray
    rates: FloatArray
    medians: FloatArray
    duplex: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """What each node sends and receives by itself, bytes/s, shape (num_nodes,); NaN where unknown."""

    sending: FloatArray
    receiving: FloatArray

    def completed(self, other: "Ends") -> "Ends":
        """The same, with what another knows of nodes of which this knows nothing."""
        return Ends(
            sending=np.where(np.isnan(self.sending), other.sending, self.sending),
            receiving=np.where(np.isnan(self.receiving), other.receiving, self.receiving),
        )

    def expected(self, sources: IntArray, sinks: IntArray) -> FloatArray:
        """Rates of flows that only their ends limit: links in series carry what the slower does."""
        slower: FloatArray = np.fmin(self.sending[sources], self.receiving[sinks])
        return slower


def node_flows(measurement: Measurement, purposes: Iterable[Purpose] | None = None) -> list[NodeFlows]:
    """The flow tests of a measurement, those of some purposes or all, in their order in time."""
    wanted = None if purposes is None else frozenset(purposes)
    nodes = np.asarray(measurement.node_of_rank, dtype=np.int64)
    return [
        _of_nodes(test, nodes)
        for test in sorted(measurement.flow_tests, key=lambda test: test.number)
        if wanted is None or test.purpose in wanted
    ]


def _of_nodes(test: FlowTest, nodes: IntArray) -> NodeFlows:
    sources, sinks = nodes[np.asarray(test.flows, dtype=np.int64).T]
    rates = np.asarray(test.rates_bytes_per_s, dtype=np.float64)
    return NodeFlows(
        purpose=test.purpose,
        number=test.number,
        sources=sources,
        sinks=sinks,
        rates=rates,
        medians=np.median(rates, axis=1),
        duplex=bool(np.isin(sources, sinks).any()),
    )


def reached(tests: Sequence[NodeFlows], num_nodes: int, *, duplex: bool) -> Ends:
    """The best that each node did in any test, as sender and as receiver: what nobody took from it.

    Only tests that are duplex, or only those that are not. A maximum errs upwards by the noise, which is why
    medians over repetitions go into it; it does not err where all but one of a node's peers lie behind a
    narrow link.
    """
    sending, receiving = np.full(num_nodes, np.nan), np.full(num_nodes, np.nan)
    for test in tests:
        if test.duplex == duplex:
            medians = test.medians
            # No node sends in two flows of a test, or receives in two.
            sending[test.sources] = np.fmax(sending[test.sources], medians)
            receiving[test.sinks] = np.fmax(receiving[test.sinks], medians)
    return Ends(sending=sending, receiving=receiving)


def path_rates(tests: Sequence[NodeFlows], num_nodes: int) -> FloatArray:
    """The best that each path did in any test, bytes/s, shape (num_nodes, num_nodes); NaN where unknown.

    Rates of duplex tests stand in for paths that no other test has, scaled by what the two kinds differ in at
    nodes that have done both.
    """
    one_way, both_ways = (reached(tests, num_nodes, duplex=duplex).sending for duplex in (False, True))
    ratios = one_way / both_ways
    known = ratios[~np.isnan(ratios)]
    scale = float(np.median(known)) if len(known) else 1.0
    one_way_rates = best_of_paths([test for test in tests if not test.duplex], num_nodes)
    stand_ins = scale * best_of_paths([test for test in tests if test.duplex], num_nodes)
    return np.where(np.isnan(one_way_rates), stand_ins, one_way_rates)


def best_of_paths(tests: Sequence[NodeFlows], num_nodes: int) -> FloatArray:
    """The best median of each path, as it is, bytes/s, ``[source, sink]``; NaN where unknown."""
    best = np.full((num_nodes, num_nodes), np.nan)
    for test in tests:
        best[test.sources, test.sinks] = np.fmax(best[test.sources, test.sinks], test.medians)
    return best

"""What flows should get if groups of nodes have uplinks of the best rates that were seen through them."""

from collections.abc import Sequence

import numpy as np

from topotune.links.inference.fair_shares import fair_shares
from topotune.links.inference.observations import BoolArray, Ends, FloatArray, IntArray, NodeFlows
from topotune.links.inference.partition import Parts, labels


def predicted_rates(
    tests: Sequence[NodeFlows], ends: dict[bool, Ends], levels: Sequence[Parts], num_nodes: int
) -> list[FloatArray]:
    """Max-min fair rates of the flows of each test, bytes/s, shape (num_flows,) each.

    Args:
        tests: what was run.
        ends: by whether tests are duplex: what the nodes reach by themselves.
        levels: partitions of the nodes; the uplinks of all count.
        num_nodes: N.
    """
    groups = [labels(parts, num_nodes) for parts in levels]
    links = {
        duplex: [_seen_through(tests, label, duplex=duplex) for label in groups] for duplex in (False, True)
    }
    rates = []
    for test in tests:
        columns: list[BoolArray] = []
        capacities: list[FloatArray] = []
        for label, (sending, receiving) in zip(groups, links[test.duplex], strict=True):
            crosses = label[test.sources] != label[test.sinks]
            for table, nodes in ((sending, test.sources), (receiving, test.sinks)):
                columns.append(crosses[:, None] & (label[nodes][:, None] == np.arange(len(table))))
                capacities.append(table)
        own = ends[test.duplex].expected(test.sources, test.sinks)
        rates.append(fair_shares(own, np.concatenate(columns, axis=1), np.concatenate(capacities)))
    return rates


def misfit(tests: Sequence[NodeFlows], ends: dict[bool, Ends], parts: Parts, num_nodes: int) -> float:
    """How far sums through the groups' uplinks are from predicted ones: squared logarithms, added up."""
    label = labels(parts, num_nodes)
    total = 0.0
    for test, fair in zip(tests, predicted_rates(tests, ends, [parts], num_nodes), strict=True):
        crosses = label[test.sources] != label[test.sinks]
        for nodes in (test.sources, test.sinks):
            seen, due = (
                np.bincount(label[nodes], rates * crosses, minlength=len(parts))
                for rates in (test.medians, fair)
            )
            total += float(np.sum(np.log(seen[due > 0] / due[due > 0]) ** 2))
    return total


def _seen_through(
    tests: Sequence[NodeFlows], label: IntArray, *, duplex: bool
) -> tuple[FloatArray, FloatArray]:
    """What each group was seen to send to others, and to receive, at most; infinite where it did neither."""
    num_groups = int(label.max()) + 1
    sending, receiving = np.zeros(num_groups), np.zeros(num_groups)
    for test in tests:
        if test.duplex == duplex:
            crosses = label[test.sources] != label[test.sinks]
            for table, nodes in ((sending, test.sources), (receiving, test.sinks)):
                sums = np.bincount(label[nodes], test.medians * crosses, minlength=num_groups)
                np.maximum(table, sums, out=table)
    return np.where(sending > 0, sending, np.inf), np.where(receiving > 0, receiving, np.inf)

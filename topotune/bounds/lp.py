"""The optimum of allreduce on any capacity graph, by linear programming.

Theory. An allreduce that adds each piece once, along one tree, and then copies the sum along another, is a
packing of pairs of trees with a common root: each host v roots a share x_v of the message. Of every link's
capacity b_e a part b^B_e serves the copying and a part b^R_e the adding, b^B_e + b^R_e <= b_e. By Edmonds'
theorem trees of total rate sum x_v fit into b^B exactly if for every host t the flow from a super-source
that feeds each v with x_v reaches sum x_v inside b^B; adding is the same with all arrows reversed. Switches
neither copy nor add: what enters them must leave them, in each part by itself. The largest sum x_v is the
best possible algbw.

Doubling the all-gather time gives the same where hosts are alike; where they are not, equal shares x_v are
wrong, by up to 2 times (one slow host among many).

Source: Edmonds, "Edge-disjoint branchings", 1973; Bang-Jensen, Frank and Jackson 1995 for switches; the
unequal shares follow BytePS (Jiang et al., OSDI 2020), whose star is the case of one switch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from topotune.bounds.cut import tightest_split
from topotune.bounds.graph import Arc, CapacityGraph


@dataclass(frozen=True, kw_only=True, slots=True)
class AllreduceOptimum:
    """The best rate of allreduce.

    Attributes:
        algbw_bytes_per_s: message size over time.
        shares: which part of the message each host should own; sums to 1. Other shares may be as good.
        copying_bytes_per_s, adding_bytes_per_s: of each link's capacity, what serves copying and adding.
    """

    algbw_bytes_per_s: float
    shares: Mapping[str, float]
    copying_bytes_per_s: Mapping[Arc, float]
    adding_bytes_per_s: Mapping[Arc, float]

    def time_s(self, message_bytes: float) -> float:
        """Shortest time of an allreduce of ``message_bytes`` on each rank."""
        return message_bytes / self.algbw_bytes_per_s


def allreduce_lp(graph: CapacityGraph) -> AllreduceOptimum:
    """The optimum of allreduce by linear programming.

    Args:
        graph: ranks on at least two vertices.

    Raises:
        ValueError: the ranks cannot all reach each other, or all sit on one vertex.

    Complexity: a linear programme of 2 (hosts)(links) flow variables; seconds from about 30 hosts.
    """
    hosts, links = sorted(graph.hosts), list(graph.capacities)
    if len(hosts) < 2:
        raise ValueError("all ranks sit on one vertex: no link bounds them")
    num_hosts, num_links = len(hosts), len(links)
    host_index = {host: number for number, host in enumerate(hosts)}
    # The rate is between half of it and all; links may be millions of times as fast (as in cut_planes).
    scale, most = float(tightest_split(graph)[0]), 2.0 * num_hosts
    if scale == 0.0:
        raise ValueError("the ranks cannot all reach each other")
    # Columns: x (hosts), b^B (links), b^R (links), then for each part and each sink t a flow (links) and
    # feeds (hosts).
    first_flow = num_hosts + 2 * num_links
    block = num_links + num_hosts
    num_columns = first_flow + 2 * num_hosts * block
    equal, at_most = _Rows(), _Rows()
    for link in range(num_links):
        at_most.add(
            {num_hosts + link: 1.0, num_hosts + num_links + link: 1.0},
            min(most, graph.capacities[links[link]] / scale),
        )
    switches = [vertex for vertex in graph.vertices if vertex not in host_index]
    for part in (0, 1):
        capacity_column = num_hosts + part * num_links
        ends = [(src, dst) if part == 0 else (dst, src) for src, dst in links]
        for switch in switches:
            row = {
                capacity_column + link: float(ends[link][1] == switch) - float(ends[link][0] == switch)
                for link in range(num_links)
                if switch in ends[link]
            }
            equal.add(row, 0.0)
        for sink_index, sink in enumerate(hosts):
            flow_column = first_flow + (part * num_hosts + sink_index) * block
            feed_column = flow_column + num_links
            for link in range(num_links):
                at_most.add({flow_column + link: 1.0, capacity_column + link: -1.0}, 0.0)
            for host in range(num_hosts):
                at_most.add({feed_column + host: 1.0, host: -1.0}, 0.0)
            for vertex in graph.vertices:
                if vertex == sink:
                    continue
                row = {
                    flow_column + link: float(ends[link][1] == vertex) - float(ends[link][0] == vertex)
                    for link in range(num_links)
                    if vertex in ends[link]
                }
                if vertex in host_index:
                    row[feed_column + host_index[vertex]] = 1.0
                equal.add(row, 0.0)
            row = {
                flow_column + link: float(ends[link][1] == sink) - float(ends[link][0] == sink)
                for link in range(num_links)
                if sink in ends[link]
            }
            row[feed_column + sink_index] = 1.0
            equal.add({**row, **{host: -1.0 for host in range(num_hosts)}}, 0.0)
    objective = np.zeros(num_columns)
    objective[:num_hosts] = -1.0
    solution = _solve(objective, equal, at_most)
    assert solution.status == 0, "half of the tightest split is always reached"
    shares = np.maximum(solution.x[:num_hosts], 0.0)
    parts = np.maximum(solution.x[num_hosts:first_flow], 0.0) * scale
    return AllreduceOptimum(
        algbw_bytes_per_s=-float(solution.fun) * scale,
        shares=dict(zip(hosts, (shares / shares.sum()).tolist(), strict=True)),
        copying_bytes_per_s=dict(zip(links, parts[:num_links].tolist(), strict=True)),
        adding_bytes_per_s=dict(zip(links, parts[num_links:].tolist(), strict=True)),
    )


def _solve(
    objective: npt.NDArray[np.float64], equal: "_Rows", at_most: "_Rows"
) -> "scipy.optimize.OptimizeResult":
    return scipy.optimize.linprog(
        objective,
        A_ub=at_most.matrix(len(objective)),
        b_ub=at_most.limits,
        A_eq=equal.matrix(len(objective)),
        b_eq=equal.limits,
        method="highs",
    )


class _Rows:
    """Sparse rows of a linear programme, collected one by one."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self._entries: list[tuple[int, int, float]] = []

    def add(self, row: Mapping[int, float], limit: float) -> None:
        number = len(self.limits)
        self._entries += [(number, column, value) for column, value in row.items() if value]
        self.limits.append(limit)

    def matrix(self, num_columns: int) -> "scipy.sparse.coo_array":
        rows, columns, values = zip(*self._entries, strict=True) if self._entries else ((), (), ())
        return scipy.sparse.coo_array((values, (rows, columns)), shape=(len(self.limits), num_columns))

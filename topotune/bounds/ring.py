"""The ceiling of flat rings on a capacity graph: what the usual default can reach at best.

Theory. In a ring allreduce of M bytes each of the N ranks sends 2(N-1)/N M bytes to the rank behind it.
Several rings in the same order of hosts (channels, one for each network device) add up to one flow from
each host to the next, which may take every way the graph offers. The largest rate x at which all N flows
fit at once is a maximum concurrent flow: a linear programme with one flow a pair of neighbouring hosts.
algbw = x N / (2 (N-1)).

All rates are in those of the tightest split of the ranks, whose sides the rings join: x is at most all of it,
and the N-th part of it can be had by each flow where all share alike. No link needs more than all flows at
that rate. So links may be millions of times as fast as others, as in `topotune.bounds.cut_planes`.

Source: the ring and its cost, Patarasuk and Yuan, JPDC 2009; concurrent flow, Shahrokhi and Matula, 1990.
"""

from itertools import pairwise

import numpy as np
import scipy

from topotune.bounds.cut import tightest_split
from topotune.bounds.graph import CapacityGraph

_MAX_VARIABLES = 200_000  # above, the linear programme takes longer than seconds


def ring_algbw_bytes_per_s(graph: CapacityGraph) -> float | None:
    """Message size over time of the best flat rings through the ranks in their order.

    Args:
        graph: ranks on at least two vertices, which can all reach each other.

    Returns:
        None where no link limits the rings, the graph is too large for the linear programme, or its solver
        gives up.

    Raises:
        ValueError: all ranks sit on one vertex, or they cannot all reach each other.
    """
    num_ranks = len(graph.compute)
    if len(graph.hosts) < 2:
        raise ValueError("all ranks sit on one vertex: no link bounds them")
    flows: dict[tuple[str, str], int] = {}
    for pair in pairwise((*graph.compute, graph.compute[0])):
        if pair[0] != pair[1]:
            flows[pair] = flows.get(pair, 0) + 1
    links = list(graph.capacities)
    if len(flows) * len(links) > _MAX_VARIABLES:
        return None
    split, _ = tightest_split(graph)
    if split == 0:
        raise ValueError("the ranks cannot all reach each other")
    rate = _concurrent_rate(graph, flows, float(split))
    if rate is None:
        return None
    if graph.unlimited and rate >= min(graph.capacities[arc] for arc in graph.unlimited) / num_ranks:
        return None
    return rate * num_ranks / (2 * (num_ranks - 1))


def _concurrent_rate(graph: CapacityGraph, flows: dict[tuple[str, str], int], scale: float) -> float | None:
    """The largest x at which each flow carries x times its weight, all at once; bytes/s."""
    links, vertices = list(graph.capacities), graph.vertices
    index = {vertex: number for number, vertex in enumerate(vertices)}
    tails = np.array([index[tail] for tail, _ in links])
    heads = np.array([index[head] for _, head in links])
    num_links, num_vertices, num_flows = len(links), len(vertices), len(flows)
    most = float(sum(flows.values()))
    # Columns: x, then for each flow what it puts on each link. Rows: for each flow, what enters less what
    # leaves each vertex.
    columns = 1 + np.arange(num_flows)[:, None] * num_links + np.arange(num_links)
    first_rows = np.arange(num_flows)[:, None] * num_vertices
    row_parts = [(first_rows + heads).ravel(), (first_rows + tails).ravel()]
    column_parts = [columns.ravel(), columns.ravel()]
    value_parts = [np.ones(columns.size), -np.ones(columns.size)]
    for number, ((source, sink), weight) in enumerate(flows.items()):
        row_parts.append(number * num_vertices + np.array([index[source], index[sink]]))
        column_parts.append(np.zeros(2, dtype=np.intp))
        value_parts.append(np.array([weight, -weight], dtype=np.float64))
    num_columns = 1 + num_flows * num_links
    balance = scipy.sparse.coo_array(
        (np.concatenate(value_parts), (np.concatenate(row_parts), np.concatenate(column_parts))),
        shape=(num_flows * num_vertices, num_columns),
    )
    load = scipy.sparse.coo_array(
        (np.ones(columns.size), (np.tile(np.arange(num_links), num_flows), columns.ravel())),
        shape=(num_links, num_columns),
    )
    objective = np.zeros(num_columns)
    objective[0] = -1.0
    solution = scipy.optimize.linprog(
        objective,
        A_ub=load,
        b_ub=np.array([min(most, graph.capacities[link] / scale) for link in links]),
        A_eq=balance,
        b_eq=np.zeros(num_flows * num_vertices),
        method="highs",
    )
    return -float(solution.fun) * scale if solution.status == 0 else None

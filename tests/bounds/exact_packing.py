"""The optimum of allreduce in whole fractions: all pairs of trees of a few hosts, and a simplex on them."""

from fractions import Fraction
from itertools import pairwise, product


def exact_algbw(graph):
    """The optimum of a network in which one way alone leads from each host to each other."""
    arcs = list(graph.capacities)
    hosts = sorted(graph.hosts)
    crossed = {(a, b): way(graph, a, b) for a in hosts for b in hosts if a != b}
    columns = set()
    for root in hosts:
        trees = list(trees_out_of(root, hosts))
        for down, up in product(trees, trees):
            load = [0] * len(arcs)
            for host in hosts:
                if host != root:
                    for arc in (*crossed[down[host], host], *crossed[host, up[host]]):
                        load[arcs.index(arc)] += 1
            columns.add(tuple(load))
    return largest_sum(sorted(columns), [graph.capacities[arc] for arc in arcs])


def trees_out_of(root, hosts):
    others = [host for host in hosts if host != root]
    for parents in product(hosts, repeat=len(others)):
        above = dict(zip(others, parents, strict=True))
        if all(leads_to(host, root, above) for host in others):
            yield above


def leads_to(host, root, above):
    for _ in above:
        host = above.get(host, host)
    return host == root


def way(graph, a, b):
    """Arcs of the only way."""
    ways = [(a,)]
    for path in ways:
        if path[-1] == b:
            return list(pairwise(path))
        ways += [(*path, dst) for src, dst in graph.capacities if src == path[-1] and dst not in path]
    raise AssertionError(f"no way from {a} to {b}")


def largest_sum(columns, limits):
    """The largest sum of amounts >= 0 of columns that keep within limits > 0; Bland's rule."""
    rows, width = len(limits), len(columns)
    table = [
        [Fraction(column[row]) for column in columns]
        + [Fraction(int(row == slack)) for slack in range(rows)]
        + [Fraction(limits[row])]
        for row in range(rows)
    ]
    gain = [Fraction(1)] * width + [Fraction(0)] * (rows + 1)
    basis = list(range(width, width + rows))
    while (entering := next((c for c in range(width + rows) if gain[c] > 0), None)) is not None:
        _, _, pivot = min(
            (table[row][-1] / table[row][entering], basis[row], row)
            for row in range(rows)
            if table[row][entering] > 0
        )
        over = table[pivot][entering]
        table[pivot] = [value / over for value in table[pivot]]
        for row in (*(table[r] for r in range(rows) if r != pivot), gain):
            if factor := row[entering]:
                row[:] = [
                    value - factor * there if there else value
                    for value, there in zip(row, table[pivot], strict=True)
                ]
        basis[pivot] = entering
    return -gain[-1]

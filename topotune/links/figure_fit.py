"""From other tools' figures of links to costs: one latency and one bandwidth for each class of pairs. Pure.

A figure has no samples, so that a cost has no intervals and no segments. Where several figures tell of one
way (by copy engine and by kernel, of many sizes), the link is as fast as the best of them shows.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from topotune.errors import UsageError
from topotune.links.figures import LinkFigure
from topotune.links.measurement import Measurement, is_of_a_link
from topotune.links.model import LinkCost, LinkModel, Pair

# As for timings, pairs differ in kind where their bandwidths are a quarter apart: copies between GPUs of one
# machine differ by some per cent from pair to pair.
_MIN_BANDWIDTH_GAP = 1.25
_MIN_GROWTH = 2.0  # of the time from the smallest to the largest message, for a bandwidth to be read off it


def fit_figures(measurement: Measurement) -> LinkModel:
    """The cost of every pair, by figures alone.

    A pair without any takes the cost of its other way, or else that of the fastest of its kind.

    Raises:
        UsageError: no figure is of a link between ranks whose nodes are known, or none of some kind (within
            a node, between nodes) that its ranks have.
    """
    if not measurement.times_links:
        lacks = "of each kind between ranks of known nodes" if measurement.link_figures else ""
        raise UsageError(
            f"holds no bandwidths of links {lacks}".rstrip(),
            hint="topotune measure -o links.json times them; so do p2pBandwidthLatencyTest and nvbandwidth",
        )
    costs = _costs(measurement.link_figures)
    ranks = range(measurement.num_ranks)
    names: list[str] = []
    classes: list[LinkCost] = []
    table = [[-1] * measurement.num_ranks for _ in ranks]
    for kind, within in (("within a node", True), ("between nodes", False)):
        members = [
            (src, dst)
            for src in ranks
            for dst in ranks
            if src != dst and measurement.is_within_node(src, dst) == within
        ]
        if not members:
            continue
        groups = _by_speed([pair for pair in members if pair in costs], costs)
        first = len(classes)
        for src, dst in members:
            table[src][dst] = first
        for index, group in enumerate(groups):
            for src, dst in group:
                table[src][dst] = first + index
            names.append(kind if len(groups) == 1 else f"{kind}, {index + 1} of {len(groups)} by speed")
            classes.append(
                LinkCost(
                    from_bytes=(0,),
                    alpha_s=(statistics.median(costs[pair][0] for pair in group),),
                    beta_s_per_byte=(statistics.median(costs[pair][1] for pair in group),),
                )
            )
    return LinkModel(
        num_ranks=measurement.num_ranks,
        classes=tuple(classes),
        pair_class=tuple(tuple(row) for row in table),
        class_names=tuple(names),
        node_of_rank=measurement.node_of_rank,
    )


def has_costs_of_all_kinds(measurement: Measurement) -> bool:
    """Whether some link has a bandwidth, and one of each kind does: within a node, between nodes."""
    nodes = measurement.node_of_rank
    if not nodes:
        return False
    num_nodes = len(set(nodes))
    needed = ({True} if num_nodes < len(nodes) else set()) | ({False} if num_nodes > 1 else set())
    known = {measurement.is_within_node(src, dst) for src, dst in _costs(measurement.link_figures)}
    return bool(known) and needed <= known


def num_unknown_pairs(measurement: Measurement) -> int:
    """How many directed pairs have no bandwidth, neither way."""
    num_pairs = measurement.num_ranks * (measurement.num_ranks - 1)
    return num_pairs - len(_costs(measurement.link_figures))


def _costs(figures: Iterable[LinkFigure]) -> dict[Pair, tuple[float, float]]:
    """Seconds, and seconds per byte, of each pair that has a bandwidth, this way or the other."""
    by_pair: dict[Pair, list[LinkFigure]] = defaultdict(list)
    for figure in figures:
        if figure.src is not None and figure.dst is not None and is_of_a_link(figure):
            by_pair[figure.src, figure.dst].append(figure)
    costs = {}
    for pair, of_pair in by_pair.items():
        rates = [
            figure.bandwidth_bytes_per_s for figure in of_pair if figure.bandwidth_bytes_per_s is not None
        ]
        latencies = [figure for figure in of_pair if figure.latency_s is not None]
        alpha_s = min((figure.latency_s or 0.0 for figure in latencies), default=0.0)
        beta = 1 / max(rates) if rates else _cost_per_byte(latencies)
        if beta is not None:
            costs[pair] = alpha_s, beta
    return {pair[::-1]: cost for pair, cost in costs.items()} | costs


def _cost_per_byte(latencies: Sequence[LinkFigure]) -> float | None:
    """By how much the largest message takes longer than the smallest; None where that is little."""
    sized = sorted(
        (figure.message_bytes, figure.latency_s)
        for figure in latencies
        if figure.message_bytes is not None and figure.latency_s is not None
    )
    if not sized or sized[-1][1] < _MIN_GROWTH * sized[0][1]:
        return None
    return (sized[-1][1] - sized[0][1]) / (sized[-1][0] - sized[0][0])


def _by_speed(pairs: Iterable[Pair], costs: dict[Pair, tuple[float, float]]) -> list[list[Pair]]:
    """Pairs in groups of like bandwidth, the fastest first."""
    groups: list[list[Pair]] = []
    for pair in sorted(pairs, key=lambda pair: (costs[pair][1], pair)):
        if groups and costs[pair][1] < _MIN_BANDWIDTH_GAP * costs[groups[-1][-1]][1]:
            groups[-1].append(pair)
        else:
            groups.append([pair])
    return groups

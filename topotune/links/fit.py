"""From timings to costs: classes of like pairs, a piecewise cost for each, and what pairs share. Pure."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from topotune.links.classes import ByPair, Pair, PairClass, classify, crossing_pairs
from topotune.links.figure_fit import fit_figures
from topotune.links.inference import Structure, infer_structure
from topotune.links.measurement import ExchangeTiming, Measurement, PairTiming
from topotune.links.model import LinkCost, LinkModel, SharedCapacity
from topotune.links.network import (
    as_fast_as_lone_flows,
    ranks_of,
    reached_by_nodes,
    undisturbed,
    uplinks,
    with_bulk,
)
from topotune.links.piecewise import PiecewiseFit, boundaries, fit_piecewise, fit_segment
from topotune.plan.model import LinkClass

FloatArray = npt.NDArray[np.float64]

_NUM_RESAMPLES = 200
# Two cells measured seconds apart differ by more than their samples say: machines drift. Below this
# relative error nothing is told apart (repeated measurements of one pair on an idle 2-core machine: 2-5 %,
# 2026).
_MIN_RELATIVE_ERROR = 0.03
# Two flows that share a bottleneck get half each; below this share of what they get alone, noise does not
# explain it.
_SATURATED = 0.75
_SUSTAINED_BYTES = 1024**2  # smaller messages may pass as bursts, faster than a link lets more of them pass
_MIN_EXCHANGES = 3  # fewer say little about what pairs reach together: they may have taken turns


def fit_links(measurement: Measurement, *, seed: int = 0, structure: Structure | None = None) -> LinkModel:
    """The cost of every pair and of what they share, fitted to a measurement.

    Pairs that were not timed take the cost of the fastest class of their kind (within a node, or between
    nodes).

    Args:
        measurement: timings of at least one pair of each kind that its nodes have.
        seed: of the resampling behind the intervals.
        structure: of the network between the nodes, if it has been inferred from this measurement already.

    Raises:
        ValueError: no pair of a kind was timed; or there are only figures of other tools, and none of links
            (`Measurement.times_links`).
    """
    if measurement.has_only_figures:
        return fit_figures(measurement)
    structure = structure or infer_structure(measurement)
    all_timings = with_bulk(timings_by_pair(measurement.pairs), measurement)
    by_pair = undisturbed(all_timings, measurement, structure)
    classes = classify(measurement, by_pair)
    rng = np.random.default_rng(seed)
    costs = tuple(fit_class([by_pair[pair] for pair in pair_class.timed], rng) for pair_class in classes)
    costs = as_fast_as_lone_flows(costs, classes, measurement, structure)
    table = [[-1] * measurement.num_ranks for _ in range(measurement.num_ranks)]
    for index, pair_class in enumerate(classes):
        for src, dst in pair_class.members:
            table[src][dst] = index
    return LinkModel(
        num_ranks=measurement.num_ranks,
        classes=costs,
        pair_class=tuple(tuple(row) for row in table),
        class_names=tuple(pair_class.name for pair_class in classes),
        node_of_rank=measurement.node_of_rank,
        shared=(
            *_memory_of_nodes(measurement),
            *_links_of_nodes(measurement, all_timings, classes, costs),
            *uplinks(measurement, structure),
        ),
        reduce_s_per_byte=statistics.median(measurement.reduce_s_per_byte)
        if measurement.reduce_s_per_byte
        else 0.0,
        call_overhead_s=_call_overhead_s(measurement, costs),
        near=tuple(ranks_of(group, measurement) for group in structure.groups),
    )


def link_classes(model: LinkModel) -> tuple[LinkClass, ...]:
    """The classes of a model as they stand in plans and reports."""
    return tuple(
        LinkClass(
            name=name,
            num_pairs=sum(row.count(index) for row in model.pair_class),
            latency_s=cost.latency_s,
            latency_ci_s=cost.alpha_ci_s,
            bandwidth_bytes_per_s=cost.bandwidth_bytes_per_s,
            bandwidth_ci_bytes_per_s=cost.bandwidth_ci_bytes_per_s,
            max_relative_error=cost.max_relative_error,
        )
        for index, (name, cost) in enumerate(zip(model.class_names, model.classes, strict=True))
    )


def timings_by_pair(pairs: Iterable[PairTiming]) -> dict[Pair, dict[int, PairTiming]]:
    """``[src, dst][message_bytes]``, sizes ascending."""
    by_pair: dict[Pair, dict[int, PairTiming]] = {}
    for timing in sorted(pairs, key=lambda pair: (pair.src, pair.dst, pair.message_bytes)):
        by_pair.setdefault((timing.src, timing.dst), {})[timing.message_bytes] = timing
    return by_pair


def fit_class(pairs: Sequence[Mapping[int, PairTiming]], rng: np.random.Generator) -> LinkCost:
    """One cost for several like pairs: piecewise through the medians of each size, with intervals.

    The intervals come from resampling pairs, and within a pair its median: the median of a resample of n
    samples is an order statistic of the original ones, whose rank follows a beta distribution.

    Args:
        pairs: timings by size, one mapping a pair; at least one pair. Not every pair needs every size.
        rng: where the resamples come from.
    """
    sizes = sorted({size for timings in pairs for size in timings})
    centre_s = np.empty(len(sizes))
    resampled_s = np.empty((_NUM_RESAMPLES, len(sizes)))
    for column, size in enumerate(sizes):
        timed = [np.sort(timings[size].samples_s) for timings in pairs if size in timings]
        centre_s[column] = np.median([np.median(samples_s) for samples_s in timed])
        medians_s = np.array([_resampled_medians(samples_s, rng) for samples_s in timed])
        chosen = rng.integers(len(timed), size=(len(timed), _NUM_RESAMPLES))
        resampled_s[:, column] = np.median(np.take_along_axis(medians_s, chosen, axis=0), axis=0)
    errors = np.maximum(np.std(resampled_s, axis=0) / centre_s, _MIN_RELATIVE_ERROR)
    fit = _with_visible_bandwidth(
        fit_piecewise(sizes, centre_s.tolist(), errors.tolist()), sizes[-1], centre_s[-1]
    )
    alpha_ci_s, bandwidth_ci = _intervals(fit, sizes, resampled_s, errors)
    cost = LinkCost(
        from_bytes=boundaries(fit, sizes),
        alpha_s=fit.alpha_s,
        beta_s_per_byte=fit.beta_s_per_byte,
        alpha_ci_s=alpha_ci_s,
        bandwidth_ci_bytes_per_s=bandwidth_ci,
    )
    return replace(cost, max_relative_error=float(np.max(np.abs(cost.time_s(sizes) / centre_s - 1))))


def _resampled_medians(sorted_samples_s: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Medians of resamples, shape (num_resamples,)."""
    half = (len(sorted_samples_s) + 1) / 2
    quantiles = rng.beta(half, half, size=_NUM_RESAMPLES)
    return sorted_samples_s[(quantiles * len(sorted_samples_s)).astype(np.intp)]


def _with_visible_bandwidth(fit: PiecewiseFit, message_bytes: int, time_s: float) -> PiecewiseFit:
    """The same with a last cost per byte that the errors could have hidden, where none was seen.

    Larger messages than the largest that was timed are not free.
    """
    least = float(_MIN_RELATIVE_ERROR * time_s / message_bytes)
    return replace(fit, beta_s_per_byte=(*fit.beta_s_per_byte[:-1], max(fit.beta_s_per_byte[-1], least)))


def _intervals(
    fit: PiecewiseFit, sizes: Sequence[int], resampled_s: FloatArray, errors: FloatArray
) -> tuple[tuple[float, float], tuple[float, float] | None]:
    """95 % intervals of the first segment's latency and the last one's bandwidth, the segments' places kept.

    The bandwidth has none where some resample shows no cost per byte.
    """
    exact = np.asarray(sizes, dtype=np.float64)
    first = slice(0, fit.starts[1] if len(fit.starts) > 1 else len(sizes))
    last = slice(fit.starts[-1], len(sizes))
    alphas = [fit_segment(exact[first], times[first], errors[first])[0] for times in resampled_s]
    betas = [fit_segment(exact[last], times[last], errors[last])[1] for times in resampled_s]
    low_s, high_s = np.quantile(alphas, (0.025, 0.975))
    alpha_ci_s = (min(float(low_s), fit.alpha_s[0]), max(float(high_s), fit.alpha_s[0]))
    if not min(betas) > 0:
        return alpha_ci_s, None
    low, high = (1.0 / float(beta) for beta in np.quantile(betas, (0.975, 0.025)))
    bandwidth = 1.0 / fit.beta_s_per_byte[-1]
    return alpha_ci_s, (min(low, bandwidth), max(high, bandwidth))


def _memory_of_nodes(measurement: Measurement) -> list[SharedCapacity]:
    """What all pairs within a node get together when all of them send both ways at once.

    A figure of this software and its copies, not a limit of the hardware. Of the sets of pairs that exchanged
    together, those with the most pairs on the node count, with their largest message, and of these the
    median.
    """
    shared = []
    for node, name in enumerate(measurement.node_names):
        ranks = [rank for rank, its_node in enumerate(measurement.node_of_rank) if its_node == node]
        inside = [
            exchange
            for exchange in measurement.exchanges
            if measurement.node_of_rank[exchange.a] == measurement.node_of_rank[exchange.b] == node
        ]
        if not inside:
            continue
        largest = max(exchange.message_bytes for exchange in inside)
        groups = _groups(exchange for exchange in inside if exchange.message_bytes == largest)
        fullest = max(len(group) for group in groups)
        rates = [sum(pair.bytes_per_s for pair in group) for group in groups if len(group) == fullest]
        pairs = frozenset((src, dst) for src in ranks for dst in ranks if src != dst)
        shared.append(
            SharedCapacity(
                name=f"memory of node {name}", capacity_bytes_per_s=statistics.median(rates), pairs=pairs
            )
        )
    return shared


def _links_of_nodes(
    measurement: Measurement, by_pair: ByPair, classes: Sequence[PairClass], costs: Sequence[LinkCost]
) -> list[SharedCapacity]:
    """Each node's link to the others, both directions: the best rate that anything measured got through.

    It errs upwards, since it serves as a limit: the upper interval end of the best pair, of a class's fit
    where no flow ran long enough to show more, or what concurrent pairs reached together if that is more
    (unless in small messages, where flows show what large ones get).
    It is called a limit only where it was seen to be the node's own: what several pairs reach at once stays
    well below what they reach alone. Else the other ends may have been the limit, all the time. Between two
    nodes that cannot be told apart and makes no difference.
    """
    if len(measurement.node_names) == 1:
        return []
    alone = _rates_between_nodes(measurement, by_pair)
    duplex = _duplex_share(measurement, alone)
    by_flows = reached_by_nodes(measurement)
    shared = []
    for node, name in enumerate(measurement.node_names):
        for direction, pairs in zip(("sending", "receiving"), crossing_pairs(measurement, node), strict=True):
            rates = _best_rates([by_pair[pair] for pair in pairs if pair in by_pair])
            if (node, direction) in by_flows:
                rates.append(by_flows[node, direction])
            else:
                rates += [
                    cost.bandwidth_ci_bytes_per_s[1]
                    for pair_class, cost in zip(classes, costs, strict=True)
                    if cost.bandwidth_ci_bytes_per_s and not pairs.isdisjoint(pair_class.timed)
                ]
            is_limit = len(measurement.node_names) == 2
            for message_bytes, together, one_by_one in _concurrent_rates(measurement, pairs, alone):
                if message_bytes >= _SUSTAINED_BYTES or (node, direction) not in by_flows:
                    rates.append(together)
                is_limit = is_limit or together < _SATURATED * duplex * one_by_one
            if rates:
                shared.append(
                    SharedCapacity(
                        name=f"link of node {name}, {direction}",
                        capacity_bytes_per_s=max(rates),
                        pairs=pairs,
                        is_limit=is_limit,
                    )
                )
    return shared


def _best_rates(pairs: Sequence[Mapping[int, PairTiming]]) -> list[float]:
    """Upper interval ends of the rates of the largest message; smaller ones may fit into buffers."""
    largest = max((size for timings in pairs for size in timings), default=0)
    return [largest / timings[largest].ci_s[0] for timings in pairs if largest in timings]


def _rates_between_nodes(measurement: Measurement, by_pair: ByPair) -> dict[tuple[int, int, int], float]:
    """Bytes/s of one pair alone by (sending node, receiving node, message size), the median over pairs."""
    rates: dict[tuple[int, int, int], list[float]] = {}
    for (src, dst), timings in by_pair.items():
        nodes = measurement.node_of_rank[src], measurement.node_of_rank[dst]
        for size, timing in timings.items():
            rates.setdefault((*nodes, size), []).append(size / timing.median_s)
    return {key: statistics.median(found) for key, found in rates.items()}


def _concurrent_rates(
    measurement: Measurement, pairs: frozenset[Pair], alone: Mapping[tuple[int, int, int], float]
) -> list[tuple[int, float, float]]:
    """For each set of pairs that exchanged: message size, bytes/s of those in ``pairs`` together, and alone.

    Sets with a pair that exchanged too rarely, or nodes that were not timed alone at that size, are left out.
    """
    across: list[tuple[ExchangeTiming, Pair]] = []
    for exchange in measurement.exchanges:
        directed = (exchange.a, exchange.b) if (exchange.a, exchange.b) in pairs else (exchange.b, exchange.a)
        if directed in pairs:
            across.append((exchange, directed))
    largest = max((exchange.message_bytes for exchange, _ in across), default=0)
    rates: dict[int, list[tuple[float, float]]] = {}
    for exchange, (src, dst) in across:
        if exchange.message_bytes == largest:
            nodes = measurement.node_of_rank[src], measurement.node_of_rank[dst]
            known = len(exchange.samples_s) >= _MIN_EXCHANGES
            one_way = alone.get((*nodes, largest), math.nan) if known else math.nan
            rates.setdefault(exchange.group, []).append((exchange.bytes_per_s / 2, one_way))
    sums = [
        (sum(together for together, _ in group), sum(one for _, one in group)) for group in rates.values()
    ]
    return [(largest, together, one_by_one) for together, one_by_one in sums if not math.isnan(one_by_one)]


def _duplex_share(measurement: Measurement, alone: Mapping[tuple[int, int, int], float]) -> float:
    """What a lone pair between nodes moves each way at once, over what it moves one way; at most 1."""
    shares = []
    largest = max((exchange.message_bytes for exchange in measurement.exchanges), default=0)
    for exchange in measurement.exchanges:
        nodes = measurement.node_of_rank[exchange.a], measurement.node_of_rank[exchange.b]
        one_way = alone.get((*nodes, largest)) if exchange.message_bytes == largest else None
        if exchange.num_concurrent == 1 and nodes[0] != nodes[1] and one_way is not None:
            shares.append(exchange.bytes_per_s / 2 / one_way)
    return min([1.0, *shares])


def _groups(exchanges: Iterable[ExchangeTiming]) -> list[list[ExchangeTiming]]:
    """Exchanges by the set of pairs that ran together."""
    groups: dict[int, list[ExchangeTiming]] = {}
    for exchange in exchanges:
        groups.setdefault(exchange.group, []).append(exchange)
    return list(groups.values())


def _call_overhead_s(measurement: Measurement, costs: Sequence[LinkCost]) -> float:
    """What calling all at once costs: the smallest exchange of all ranks, beyond one message alone."""
    together = [exchange for exchange in measurement.exchanges if exchange.num_concurrent > 1]
    if not together or not costs:
        return 0.0
    smallest = min(exchange.message_bytes for exchange in together)
    slowest = [
        max(exchange.median_s for exchange in group)
        for group in _groups(exchange for exchange in together if exchange.message_bytes == smallest)
    ]
    return max(0.0, statistics.median(slowest) - max(float(cost.time_s(smallest)) for cost in costs))

"""Measurements as data frames."""

import pandas as pd

from topotune.frames.frame import ends, frame
from topotune.links.fit import fit_links
from topotune.links.fit import link_classes as classes_of
from topotune.links.measurement import Measurement


def pair_timings(measurement: Measurement) -> pd.DataFrame:
    """One row for each pair of ranks, direction and message size.

    ``bandwidth_bytes_per_s`` is message size over median: it tells of a link where the size is large.
    """
    nodes, names = measurement.node_of_rank, measurement.node_names

    def node(rank: int) -> str | None:
        return names[nodes[rank]] if nodes else None

    return frame(
        (
            "src", "dst", "src_node", "dst_node", "message_bytes", "median_s", "median_s_low",
            "median_s_high", "num_samples", "bandwidth_bytes_per_s", "num_concurrent", "steady",
        ),
        (
            (
                pair.src, pair.dst, node(pair.src), node(pair.dst), pair.message_bytes, pair.median_s,
                *pair.ci_s, len(pair.samples_s), pair.message_bytes / pair.median_s, pair.num_concurrent,
                pair.steady,
            )
            for pair in measurement.pairs
        ),
    )  # fmt: skip


def exchanges(measurement: Measurement) -> pd.DataFrame:
    """One row for each two ranks that sent both ways at once: alone, or with others of their ``group``."""
    return frame(
        ("a", "b", "message_bytes", "group", "num_concurrent", "median_s", "both_ways_bytes_per_s"),
        (
            (one.a, one.b, one.message_bytes, one.group, one.num_concurrent, one.median_s, one.bytes_per_s)
            for one in measurement.exchanges
        ),
    )


def flows(measurement: Measurement) -> pd.DataFrame:
    """One row for each bulk flow of each test; ``rate_bytes_per_s`` is the mean of its samples."""
    return frame(
        ("test", "purpose", "src", "dst", "message_bytes", "num_flows", "num_samples", "rate_bytes_per_s"),
        (
            (
                test.number, test.purpose, src, dst, test.message_bytes, len(test.flows), len(rates),
                sum(rates) / len(rates) if rates else None,
            )
            for test in measurement.flow_tests
            for (src, dst), rates in zip(test.flows, test.rates_bytes_per_s, strict=True)
        ),
    )  # fmt: skip


def round_trips(measurement: Measurement) -> pd.DataFrame:
    """One row for each two ranks of two nodes: the shortest round trip of a small message."""
    return frame(
        ("a", "b", "min_s", "num_samples"),
        ((trips.a, trips.b, trips.min_s, len(trips.samples_s)) for trips in measurement.round_trips),
    )


def link_figures(measurement: Measurement) -> pd.DataFrame:
    """One row for each figure of another tool; an end that is missing is the memory of the host."""
    return frame(
        (
            "src", "dst", "method", "bandwidth_bytes_per_s", "latency_s", "duplex", "direct",
            "num_concurrent", "message_bytes", "num_iterations",
        ),
        (
            (
                one.src, one.dst, one.method, one.bandwidth_bytes_per_s, one.latency_s, one.duplex,
                one.direct, one.num_concurrent, one.message_bytes, one.num_iterations,
            )
            for one in measurement.link_figures
        ),
    )  # fmt: skip


def collectives(measurement: Measurement) -> pd.DataFrame:
    """One row for each figure of a benchmark of collectives."""
    return frame(
        (
            "collective", "run", "in_place", "num_ranks", "num_nodes", "message_bytes", "of_part", "time_s",
            "min_s", "max_s", "algbw_bytes_per_s", "busbw_bytes_per_s", "num_wrong", "dtype", "op", "origin",
        ),
        (
            (
                one.collective, one.run, one.in_place, one.num_ranks, one.num_nodes, one.message_bytes,
                one.of_part, one.time_s, one.min_s, one.max_s, one.algbw_bytes_per_s, one.busbw,
                one.num_wrong, one.dtype, one.op, one.origin,
            )
            for one in measurement.collectives
        ),
    )  # fmt: skip


def link_classes(measurement: Measurement) -> pd.DataFrame:
    """One row for each class of links that was fitted; none where no times of links were measured."""
    model = fit_links(measurement) if measurement.times_links else None
    return frame(
        (
            "links", "num_pairs", "latency_s", "latency_s_low", "latency_s_high", "bandwidth_bytes_per_s",
            "bandwidth_bytes_per_s_low", "bandwidth_bytes_per_s_high", "fit_error_percent",
        ),
        (
            (
                one.name, one.num_pairs, one.latency_s, *ends(one.latency_ci_s), one.bandwidth_bytes_per_s,
                *ends(one.bandwidth_ci_bytes_per_s),
                None if one.max_relative_error is None else 100 * one.max_relative_error,
            )
            for one in (() if model is None else classes_of(model))
        ),
    )  # fmt: skip

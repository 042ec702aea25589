"""Measurements of networks whose costs are known, with seeded noise."""

import numpy as np

from topotune.links import ExchangeTiming, Measurement, PairTiming

SIZES = (8, 128, 1024, 8192, 65536, 262144, 2**20, 2**22, 2**24)


def affine(alpha_s, bytes_per_s):
    return lambda size: alpha_s + size / bytes_per_s


def measured(
    node_of_rank,
    cost,
    *,
    sizes=SIZES,
    noise=0.01,
    num_samples=25,
    exchanges=(),
    clock_error_s=0.0,
    seed=0,
    names=None,
):
    """Each pair timed as ``cost(src, dst)(size)`` says, times log-normal noise."""
    rng = np.random.default_rng(seed)
    num_ranks, num_nodes = len(node_of_rank), max(node_of_rank) + 1
    pairs = []
    for src in range(num_ranks):
        for dst in range(num_ranks):
            for size in sizes if src != dst else ():
                factors = np.exp(noise * rng.standard_normal(num_samples))
                samples = tuple((cost(src, dst)(size) * factors).tolist())
                halves = samples if clock_error_s == 0 else tuple(2 * sample for sample in samples)
                pairs.append(
                    PairTiming(
                        src=src,
                        dst=dst,
                        message_bytes=size,
                        one_way_s=samples,
                        half_round_trip_s=halves,
                        clock_error_s=clock_error_s,
                    )
                )
    return Measurement(
        num_ranks=num_ranks,
        node_of_rank=tuple(node_of_rank),
        node_names=tuple(names or "abcdefgh"[:num_nodes]),
        pairs=tuple(pairs),
        exchanges=tuple(exchanges),
        reduce_s_per_byte=(2e-10, 3e-10, 4e-10),
    )


def exchange(group, pairs, size, time_s, num_samples=5):
    """Pairs that exchange together, all in the same time."""
    return [
        ExchangeTiming(
            a=a,
            b=b,
            message_bytes=size,
            group=group,
            num_concurrent=len(pairs),
            samples_s=(time_s,) * num_samples,
        )
        for a, b in pairs
    ]

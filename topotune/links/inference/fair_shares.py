"""Rates of flows that share links fairly: none can have more without another, not faster one having less."""

import numpy as np

from topotune.links.inference.observations import BoolArray, FloatArray


def fair_shares(own_limits: FloatArray, uses: BoolArray, capacities: FloatArray) -> FloatArray:
    """Max-min fair rates, by progressive filling.

    Args:
        own_limits: what each flow gets by itself, bytes/s, shape (num_flows,).
        uses: which flows use which shared link, shape (num_flows, num_links).
        capacities: of the shared links, bytes/s, shape (num_links,); infinite ones limit nothing.

    Returns:
        bytes/s, shape (num_flows,).

    Source: Bertsekas and Gallager, "Data Networks", 2nd edition, section 6.5.2.
    """
    rates = np.zeros(len(own_limits))
    left = capacities.astype(np.float64)
    rising = np.ones(len(own_limits), dtype=np.bool_)
    while rising.any():
        load = uses[rising].sum(axis=0)
        shares = np.where(load > 0, left / np.maximum(load, 1), np.inf)
        level = np.min(np.where(uses[rising], shares, np.inf), axis=1, initial=np.inf)
        level = np.minimum(level, own_limits[rising])
        least = level.min()
        chosen = np.flatnonzero(rising)[level <= least * (1 + 1e-12)]
        rates[chosen] = least
        left = np.maximum(left - least * uses[chosen].sum(axis=0), 0.0)
        rising[chosen] = False
    return rates

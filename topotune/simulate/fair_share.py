"""How long flows take that begin together and share links fairly.

Theory of operation. At each moment rates are max-min fair: no flow could go faster without slowing one that
is no faster than it (Bertsekas and Gallager, Data Networks, 6.5.2). When a flow ends, what it leaves free is
shared anew. All flows begin at once and their bytes are shares of one message, so the times are proportional
to its size and are found once for all sizes. Rates are found by filling: every link names the rate at which
the flows over it that are not settled would fill it; a link whose flows all are slowest there settles them.
"""

from typing import Final

import numpy as np

from topotune.simulate.network import FloatArray, IntArray

_TOLERANCE: Final = 1e-9
_MAX_REDISTRIBUTIONS: Final = 64
"""After so many ends of flows, those that are left keep their rates: no time is then too short."""


def finish_times(
    fraction: FloatArray,
    count: IntArray,
    flow: IntArray,
    link: IntArray,
    share: FloatArray,
    bandwidth_bytes_per_s: FloatArray,
) -> FloatArray:
    """Seconds per byte of the message until each flow ends; 0 for flows that load no link.

    Args:
        fraction: of the message, what each flow carries; shape (num_flows,).
        count: how many such flows there are, side by side.
        flow: rows (flow, link, share) say which share of a flow goes over which link.
        link: of each row.
        share: of each row.
        bandwidth_bytes_per_s: of every link; infinite ones limit nothing.
    """
    limited = np.isfinite(bandwidth_bytes_per_s[link]) & (fraction[flow] > 0)
    flow, link, share = flow[limited], link[limited], share[limited]
    is_used = np.zeros(len(bandwidth_bytes_per_s), dtype=np.bool_)
    is_used[link] = True
    bandwidth = bandwidth_bytes_per_s[is_used]
    link = (np.cumsum(is_used) - 1)[link]
    load = share * count[flow]
    left = np.where(np.bincount(flow, minlength=len(fraction)) > 0, fraction, 0.0)
    ends = np.zeros(len(fraction))
    now = 0.0
    for _ in range(_MAX_REDISTRIBUTIONS):
        if not len(flow):
            return ends
        rate = _fair_rates(len(fraction), flow, link, load, bandwidth)
        running = np.flatnonzero(rate)
        needs = left[running] / rate[running]
        soonest = float(needs.min())
        done = needs <= soonest * (1 + _TOLERANCE)
        now += soonest
        ends[running[done]] = now
        left[running] -= rate[running] * soonest
        over = np.zeros(len(fraction), dtype=np.bool_)
        over[running[done]] = True
        kept = ~over[flow]
        flow, link, load = flow[kept], link[kept], load[kept]
    rate = _fair_rates(len(fraction), flow, link, load, bandwidth)
    running = np.flatnonzero(rate)
    ends[running] = now + left[running] / rate[running]
    return ends


def _fair_rates(
    num_flows: int, flow: IntArray, link: IntArray, load: FloatArray, bandwidth: FloatArray
) -> FloatArray:
    """Max-min fair rate of each flow with rows; 0 for the others."""
    rate = np.zeros(num_flows)
    room = bandwidth.copy()
    while len(flow):
        weight = np.bincount(link, load, minlength=len(bandwidth))
        level = np.divide(room, weight, out=np.full(len(bandwidth), np.inf), where=weight > 0)
        slowest = np.full(num_flows, np.inf)
        np.minimum.at(slowest, flow, level[link])
        waits = slowest[flow] < level[link] * (1 - _TOLERANCE)
        settles = np.bincount(link, waits, minlength=len(bandwidth)) == 0
        settled = np.zeros(num_flows, dtype=np.bool_)
        settled[flow[settles[link]]] = True
        rate[settled] = slowest[settled]
        over = settled[flow]
        room -= np.bincount(link[over], (load * rate[flow])[over], minlength=len(bandwidth))
        np.maximum(room, 0.0, out=room)
        flow, link, load = flow[~over], link[~over], load[~over]
    return rate

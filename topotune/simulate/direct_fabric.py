"""Clusters whose ranks or routers are joined to each other: tori and dragonflies, and the bound on them.

Theory of the bound. Cut the ranks into k parts in any way: 2(k-1) messages' worth of bytes must leave parts
(each byte's sum is joined by k - 1 parts, and heard by the k - 1 that did not finish it), so that an
allreduce of M bytes takes at least 2(k-1)M over what all parts can send out together. A torus is cut into its
ranks, a dragonfly into ranks, routers and groups.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

from topotune.bounds.bound import Bound
from topotune.errors import UsageError
from topotune.simulate.fabrics import dragonfly, torus
from topotune.simulate.machine_fabric import MAX_RANKS
from topotune.simulate.network import GPU_CALL_OVERHEAD_S, Network
from topotune.units import format_rate, parse_bit_rate

MAX_DIMENSIONS: Final = 6
_BITS_PER_BYTE: Final = 8


def parse_counts(text: str, option: str, least: int, most: int) -> list[int]:
    """``16x64x64`` → its numbers.

    Args:
        text: as the user wrote it.
        option: that it stands behind, for errors.
        least: fewest numbers.
        most: most numbers.

    Raises:
        UsageError: no such numbers, more than 131,072 in all, or too few or too many of them.
    """
    counts = [int(part) for part in text.split("x")] if re.fullmatch(r"\d{1,6}(x\d{1,6}){0,9}", text) else []
    if not least <= len(counts) <= most or min(counts, default=0) < 1:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise UsageError(f"{option} {text!r:.60}: is no list of {wanted} counts", hint=f"{option} 4x8x8")
    if math.prod(counts) > MAX_RANKS:
        raise UsageError(f"{option} {text}: is {math.prod(counts)} ranks, more than {MAX_RANKS}")
    return counts


def parse_link_rates(text: str | None, option: str, most: int) -> list[float]:
    """``50GB/s``, or one for each of ``most`` kinds of links: ``200Gbit,400Gbit,400Gbit``; in bytes/s.

    Raises:
        UsageError: none, no rate, or another number of them.
    """
    if text is None:
        raise UsageError(f"{option} needs the rate of its links", hint="--link-rate 400Gbit")
    parts = text.split(",")
    if len(parts) not in (1, most):
        wanted = "one rate" if most == 1 else f"one rate, or {most}"
        raise UsageError(f"--link-rate {text!r:.60}: is {len(parts)} rates; {option} takes {wanted}")
    rates = [parse_bit_rate(part) / _BITS_PER_BYTE for part in parts]
    return rates * (most // len(rates))


def torus_cluster(sides: Sequence[int], link_bytes_per_s: float) -> tuple[Network, Bound]:
    """GPUs at every place of a torus.

    Raises:
        UsageError: a side below 3, or no positive rate.
    """
    network = torus(sides, link_bytes_per_s=link_bytes_per_s, call_overhead_s=GPU_CALL_OVERHEAD_S)
    num_ranks, out = network.num_ranks, 2 * len(sides) * link_bytes_per_s
    text = f"the {2 * len(sides)} links of each rank, {format_rate(out)} together"
    return network, Bound(s_per_byte=2 * (num_ranks - 1) / num_ranks / out, text=text, cut=())


def dragonfly_cluster(counts: Sequence[int], rates: Sequence[float]) -> tuple[Network, Bound]:
    """GPUs below the routers of a dragonfly.

    Args:
        counts: groups, routers of each, ranks of each.
        rates: of the links of ranks, those between the routers of a group, those between groups; bytes/s.

    Raises:
        UsageError: fewer than two groups, or no positive rate.
    """
    groups, routers, ranks = counts
    of_rank, inside, between = rates
    network = dragonfly(
        groups,
        routers,
        ranks,
        rank_bytes_per_s=of_rank,
        local_bytes_per_s=inside,
        global_bytes_per_s=between,
        call_overhead_s=GPU_CALL_OVERHEAD_S,
    )
    all_between = groups * (groups - 1) * between
    all_inside = groups * routers * (routers - 1) * inside
    num_ranks, num_routers = network.num_ranks, groups * routers
    levels = [
        (2 * (num_ranks - 1) / (num_ranks * of_rank), f"the link of each rank, {format_rate(of_rank)}"),
        (
            2 * (num_routers - 1) / (all_inside + all_between),
            f"the links between routers, {format_rate((all_inside + all_between) / num_routers)} out of each",
        ),
        (
            2 * (groups - 1) / all_between,
            f"the links between groups, {format_rate(all_between / groups)} out of each",
        ),
    ]
    slowest_s, text = max(reversed(levels), key=lambda level: level[0])
    return network, Bound(s_per_byte=slowest_s, text=text, cut=())

"""DDP's buckets: which gradients torch sends together, given what a job passes to DDP.

The rule of torch's reducer, as of torch 2.13 (``reducer.cpp``, ``compute_bucket_assignment_by_size`` and
``rebuild_buckets``; ``nn/parallel/distributed.py``). Gradients are taken in the order in which they became
ready in the first step. For each type of gradient there is one open bucket; a gradient joins it, and when its
size reaches the limit it closes: buckets overshoot by up to one gradient, and no gradient is split. The next
bucket of that type has the next limit; the last limit repeats. What is open at the end follows. A bucket is
sent when it and all ahead of it are complete.

With nothing given, limits are 1 MiB and then 25 MiB; an explicit cap counts for the first bucket, too; a list
of caps names one limit for each bucket. The first step (two with a static graph) runs other buckets, from the
order of the parameters, unless a list was given.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from topotune.step.gradients import Gradient
from topotune.units import MIB

DEFAULT_LIMITS: Final = (MIB, 25 * MIB)
"""``dist._DEFAULT_FIRST_BUCKET_BYTES`` and ``_DEFAULT_BUCKET_CAP_MB`` of torch, in bytes."""

Buckets = tuple[tuple[int, ...], ...]
"""For each bucket, in the order of sending, the indices of its gradients."""


def limits_of(caps_mb: Sequence[float] | None) -> tuple[int, ...]:
    """Limits in bytes that DDP makes of caps in MiB: one of ``bucket_cap_mb``, several of a list; or None."""
    if caps_mb is None:
        return DEFAULT_LIMITS
    return tuple(int(cap * MIB) for cap in caps_mb)


def caps_of(layout_bytes: Sequence[int]) -> tuple[float, ...]:
    """Caps in MiB that make exactly these buckets of gradients of one type; floats hold them exactly."""
    return tuple(num_bytes / MIB for num_bytes in layout_bytes)


def assign_buckets(gradients: Sequence[Gradient], limits: Sequence[int]) -> Buckets:
    """The buckets of DDP from its second or third step on.

    Args:
        gradients: in the order in which they become ready.
        limits: in bytes, at least one; see `limits_of`.

    Returns:
        Buckets in the order of sending. Where several types leave a bucket open at the end, torch does not
        define which goes first; here it is the one whose first gradient was ready first.
    """
    assert limits
    closed: list[tuple[int, ...]] = []
    opened: dict[str, list[int]] = {}
    filled: dict[str, int] = {}
    position: dict[str, int] = {}
    for index, gradient in enumerate(gradients):
        bucket = opened.setdefault(gradient.dtype, [])
        bucket.append(index)
        filled[gradient.dtype] = filled.get(gradient.dtype, 0) + gradient.num_bytes
        at = position.get(gradient.dtype, 0)
        if filled[gradient.dtype] >= limits[at]:
            closed.append(tuple(bucket))
            opened[gradient.dtype], filled[gradient.dtype] = [], 0
            position[gradient.dtype] = min(at + 1, len(limits) - 1)
    left = sorted((bucket for bucket in opened.values() if bucket), key=lambda bucket: bucket[0])
    return (*closed, *map(tuple, left))


def layout_of(gradients: Sequence[Gradient], buckets: Buckets) -> tuple[int, ...]:
    """Bytes of each bucket."""
    return tuple(sum(gradients[index].num_bytes for index in bucket) for bucket in buckets)


def distinct_layouts(sizes: Sequence[int], *, most: int) -> list[tuple[int, tuple[int, ...]]]:
    """All layouts that one cap can make of gradients of one type, with the largest cap of each, ascending.

    A cap changes nothing until it passes the size of a closed bucket, so the smallest of those gives the next
    cap to look at. Where there are more than ``most`` layouts, caps lie further apart than that.

    Args:
        sizes: bytes of each gradient, in order.
        most: layouts to return at most, about.

    Returns:
        (cap in bytes, layout in bytes) each.
    """
    sums = list(accumulate(sizes))
    stride = (sums[-1] / max(1, min(sizes))) ** (1 / max(1, most))
    found: list[tuple[int, tuple[int, ...]]] = []
    cap = 1
    while True:
        layout, closed = _fill(sums, cap)
        if not found or found[-1][1] != layout:
            # What lies below the smallest bucket that it must close makes the same ones.
            found.append((min(layout[:-1], default=layout[0]), layout))
        if len(layout) == 1 or not closed:
            return found
        following = min(closed) + 1
        cap = max(following, int(cap * stride)) if len(found) * 2 > most else following


def _fill(sums: Sequence[int], cap: int) -> tuple[tuple[int, ...], list[int]]:
    """Buckets of one cap over gradients with these running sums, and those of them that the cap closed."""
    layout: list[int] = []
    start, closed = 0, 0
    while start < sums[-1]:
        end = bisect_left(sums, start + cap)
        if end == len(sums):
            layout.append(sums[-1] - start)
            break
        layout.append(sums[end] - start)
        closed += 1
        start = sums[end]
    return tuple(layout), layout[:closed]

"""DDP's buckets: which gradients torch sends together, given what a job passes to DDP.

The rule of torch's reducer, as of torch 2.13 (``reducer.cpp``, ``compute_bucket_assignment_by_size`` and
``rebuild_buckets``; ``nn/parallel/distributed.py``). Gradients are taken in the order in which they became
ready in the first step. For each type of gradient there is one open bucket; a gradient joins it, and when its
size reaches the limit it closes: buckets overshoot by up to one gradient, and no gradient is split. The next
bucket of that type has the next limit; the last limit repeats. What is open at the end follows. A bucket is
sent when it and all ahead of it are complete.

With nothing given, limits are 1 MiB and then 25 MiB; an explicit cap counts for the first bucket, too; a list
of caps names one limit for each bucket, so a list of two is any pair of a first limit and the others'. The
first step (two with a static graph) runs other buckets, from the order of the parameters, unless a list was
given.

With ``find_unused_parameters``, and no static graph, DDP never rebuilds its buckets (``reducer.hpp``,
``should_rebuild_buckets``): the same rule runs over the parameters as the model defines them, the first limit
counts for the first of those, and the buckets are sent the other way round. ``gradient_as_bucket_view``
changes no bucket.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from topotune.step.gradients import Gradient, Gradients
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
    """Caps in MiB that make exactly these buckets of gradients of one type; floats hold them exactly.

    Args:
        layout_bytes: in the order in which DDP fills them, which is not that of sending where it buckets
            parameters as they are defined.
    """
    return tuple(num_bytes / MIB for num_bytes in layout_bytes)


def filling_order(gradients: Gradients) -> tuple[int, ...]:
    """Indices of the gradients in the order in which DDP puts them into buckets."""
    return gradients.definition_order or tuple(range(len(gradients.gradients)))


def ddp_buckets(gradients: Gradients, limits: Sequence[int]) -> Buckets:
    """The buckets that DDP of the job keeps: see the module's head.

    Args:
        gradients: of the job.
        limits: in bytes, at least one; see `limits_of`.

    Returns:
        Buckets in the order of sending.
    """
    if gradients.definition_order is None:
        return assign_buckets(gradients.gradients, limits)
    order = gradients.definition_order
    filled = assign_buckets([gradients.gradients[index] for index in order], limits)
    # Without an order of readiness torch sorts them by their first parameters; DDP sends the last ones first.
    return tuple(tuple(order[place] for place in bucket) for bucket in sorted(filled, reverse=True))


def assign_buckets(gradients: Sequence[Gradient], limits: Sequence[int]) -> Buckets:
    """DDP's rule over gradients in one order.

    Args:
        gradients: in the order in which they fill buckets.
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


def distinct_buckets(gradients: Sequence[Gradient], *, most: int) -> list[int]:
    """Caps that together make all buckets that one cap can make, ascending; no two the same ones.

    All types share the cap, and each fills buckets of its own. A cap changes nothing until it passes the size
    of a closed bucket of any type, so the smallest of those gives the next cap to look at. Which buckets stay
    open counts, too, where there are several types: open ones are sent last. Where there are more than
    ``most``, caps lie further apart than that.

    Args:
        gradients: in the order in which they fill buckets.
        most: caps to return at most, about.

    Returns:
        Caps in bytes, for each set of buckets the largest that makes it (where one bucket of each type stays
        open, any larger one does, too).
    """
    of_types: dict[str, _OneType] = {}
    for index, gradient in enumerate(gradients):
        of_types.setdefault(gradient.dtype, _OneType()).append(index, gradient.num_bytes)
    smallest = min(gradient.num_bytes for gradient in gradients)
    stride = (sum(one.sums[-1] for one in of_types.values()) / smallest) ** (1 / max(1, most))
    caps: dict[tuple[int, ...], int] = {}
    cap = 1
    while True:
        closed: list[tuple[int, int]] = []
        left: list[tuple[int, int]] = []
        for one in of_types.values():
            own_closed, first = one.filled(cap)
            closed += own_closed
            left += [] if first is None else [(first, one.indices[-1])]
        # A bucket is known by its last gradient. With several types some come back: the last to close is sent
        # in the same place where it stays open.
        sent = (*(last for last, _ in sorted(closed)), *(last for _, last in sorted(left)))
        smallest_closed = min((num_bytes for _, num_bytes in closed), default=cap)
        if not closed:
            caps.setdefault(sent, smallest_closed)
            return sorted(caps.values())
        caps[sent] = smallest_closed
        following = smallest_closed + 1
        cap = max(following, int(cap * stride)) if len(caps) * 2 > most else following


class _OneType:
    """Gradients of one type: their places among all, and the running sums of their bytes."""

    def __init__(self) -> None:
        self.indices: list[int] = []
        self.sums: list[int] = []

    def append(self, index: int, num_bytes: int) -> None:
        """The next one."""
        self.indices.append(index)
        self.sums.append(num_bytes + (self.sums[-1] if self.sums else 0))

    def filled(self, cap: int) -> tuple[list[tuple[int, int]], int | None]:
        """Of each bucket that a cap closes (last gradient, bytes); and the first gradient of an open one."""
        closed: list[tuple[int, int]] = []
        first, start = 0, 0
        while first < len(self.sums):
            end = bisect_left(self.sums, start + cap)
            if end == len(self.sums):
                return closed, self.indices[first]
            closed.append((self.indices[end], self.sums[end] - start))
            first, start = end + 1, self.sums[end]
        return closed, None

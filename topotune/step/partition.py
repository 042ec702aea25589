"""The best buckets of all: an exact dynamic programme over the places where one may end.

Let r(i) be the time at which gradient i is ready, S(i) the bytes of the first i, and f(i) the earliest time
by which the first i can be exchanged. The last of their buckets holds gradients j+1 to i and begins when i is
ready and all ahead of it are exchanged, so

    f(i) = min over j < i of max(f(j), r(i)) + T(S(i) - S(j)),    f(0) = 0.

A later f(j) never helps what follows, so keeping the smallest alone is exact, for any T: O(n^2) for the
optimum over all 2^(n-1) partitions.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from topotune.step.curve import Floats

_MOST_PLACES = 4096
"""Places where a bucket may end, a second's work; of more gradients, neighbours are taken as one."""


def best_layout(
    sizes: Sequence[int], ready_s: Sequence[float], times_of: Callable[[Floats], Floats]
) -> tuple[tuple[int, ...], float]:
    """The partition of gradients into buckets that is exchanged first, and when that is.

    Args:
        sizes: bytes of each gradient, in the order in which they become ready; all of one type.
        ready_s: when each is ready, never falling.
        times_of: seconds of allreduces of so many bytes, element by element.

    Returns:
        (bytes of each bucket, end of the last). Of equally good ones that with fewer buckets at the end.
    """
    sizes, ready_s = _merged(sizes, ready_s)
    count = len(sizes)
    sums = np.concatenate(([0.0], np.cumsum(np.asarray(sizes, dtype=np.float64))))
    ends_s = np.zeros(count + 1)
    previous = np.zeros(count + 1, dtype=np.int64)
    for i in range(1, count + 1):
        reached = np.maximum(ends_s[:i], ready_s[i - 1]) + times_of(sums[i] - sums[:i])
        previous[i] = int(np.argmin(reached))
        ends_s[i] = reached[previous[i]]
    places = [count]
    while places[-1]:
        places.append(int(previous[places[-1]]))
    places.reverse()
    layout = tuple(sum(sizes[first:last]) for first, last in pairwise(places))
    return layout, float(ends_s[count])


def _merged(sizes: Sequence[int], ready_s: Sequence[float]) -> tuple[list[int], list[float]]:
    """Few enough places: neighbours join until they have a share of all bytes."""
    if len(sizes) <= _MOST_PLACES:
        return list(sizes), list(ready_s)
    # Groups of at least this many bytes, the last aside, are at most half as many as places.
    least = 2 * sum(sizes) / _MOST_PLACES
    merged_sizes: list[int] = []
    merged_ready_s: list[float] = []
    filled = 0
    for size, ready in zip(sizes, ready_s, strict=True):
        filled += size
        if filled >= least:
            merged_sizes.append(filled)
            merged_ready_s.append(ready)
            filled = 0
    if filled:
        merged_sizes.append(filled)
        merged_ready_s.append(ready_s[-1])
    return merged_sizes, merged_ready_s

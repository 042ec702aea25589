"""Points of confirmation: where finalists must hold.

Theory of operation. A finalist holds for the sizes between its first and its last confirmed size, so its
range is tested where it ends, at every searched size in it, and at a size of an odd number of elements
between each two. At a switch, both neighbours are tested at the odd size between their sizes, which becomes
the boundary if both hold there. A row needs an odd size inside: where a point fails, what is left on either
side of it is a row only if it has one, and so single sizes, and a largest size that larger ones inherit from,
have more odd sizes near them.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from topotune.tune.judge import Point
from topotune.tune.trial import DEFAULT, Candidate

ELEMENT_BYTES: Final = 4
"""Messages are timed as float32."""


def odd_between(low_bytes: int, high_bytes: int) -> int | None:
    """A size of an odd number of elements strictly between, near the geometric mean; None if none is."""
    elements = int(math.sqrt(low_bytes * high_bytes)) // ELEMENT_BYTES | 1
    for wanted in (elements, elements - 2, elements + 2):
        if low_bytes < wanted * ELEMENT_BYTES < high_bytes:
            return wanted * ELEMENT_BYTES
    return None


def confirmation_points(
    finalists: Mapping[int, Candidate],
    *,
    short: frozenset[int] = frozenset(),
    close: bool = False,
    last_apart: bool = False,
) -> list[Point]:
    """Where the finalists must hold, ascending.

    A single searched size reaches up to the boundary towards its neighbour and gets odd sizes halfway there,
    and halfway again: where its gain ends before the boundary, the row that is left has an odd size inside.
    If it is the only size at all, it reaches down halfway to a quarter of it. Nothing larger than the largest
    size asked for is sent: it may take longer than all the rest.

    Args:
        finalists: of each searched size.
        short: sizes that reach down instead of up where the default follows them: that takes less time.
        close: single sizes reach only halfway to a boundary behind which the default stands.
        last_apart: the largest size, which larger ones inherit from, has a row even if its candidate fails at
            all smaller ones.
    """
    sizes = sorted(finalists)
    wanted: dict[int, dict[Candidate, None]] = {}

    def want(message_bytes: int | None, *candidates: Candidate) -> None:
        if message_bytes is not None and (able := [one for one in candidates if one != DEFAULT]):
            wanted.setdefault(message_bytes, {}).update(dict.fromkeys(able))

    for size in sizes:
        want(size, finalists[size])
    between = dict(
        zip(pairwise(sizes), (odd_between(low, high) for low, high in pairwise(sizes)), strict=True)
    )
    ends_here = {size for size in before_default(finalists) if size in short and size > sizes[0]}
    singles = alone(finalists)

    def reaches(size: int, other: int) -> bool:
        """Whether the row of a size goes up to its boundary towards this neighbour."""
        if size < other and size in ends_here:
            return False
        return not (close and size in singles and finalists[other] == DEFAULT)

    for (low, high), odd in between.items():
        for size, other in ((low, high), (high, low)):
            if reaches(size, other):
                want(odd, finalists[size])
    if last_apart and len(sizes) > 1 and sizes[-1] not in singles:
        want(_odd_towards(between[sizes[-2], sizes[-1]], sizes[-1]), finalists[sizes[-1]])
    if len(sizes) == 1:
        end = odd_between(sizes[0] // 4, sizes[0])
        want(end, finalists[sizes[0]])
        want(_odd_towards(end, sizes[0]), finalists[sizes[0]])
        singles.clear()
    for size in sorted(singles):
        index = sizes.index(size)
        reaches_up = index + 1 < len(sizes) and size not in ends_here
        neighbour = sizes[index + 1] if reaches_up else sizes[index - 1]
        halfway = _odd_towards(between[min(size, neighbour), max(size, neighbour)], size)
        want(halfway, finalists[size])
        if not close or not reaches(size, neighbour):
            want(_odd_towards(halfway, size), finalists[size])
    return [
        Point(message_bytes=size, candidates=tuple(candidates), searched=size in finalists)
        for size, candidates in sorted(wanted.items())
    ]


def _odd_towards(end: int | None, size: int) -> int | None:
    """`odd_between` an end and a size, whichever is larger; None where there is no end."""
    return None if end is None else odd_between(*sorted((end, size)))


def alone(finalists: Mapping[int, Candidate]) -> set[int]:
    """Sizes with a finalist that no neighbouring size has."""
    sizes = sorted(finalists)
    return {
        size
        for index, size in enumerate(sizes)
        if finalists[size] != DEFAULT
        and all(
            finalists[other] != finalists[size]
            for other in (*sizes[max(0, index - 1) : index], *sizes[index + 1 : index + 2])
        )
    }


def before_default(finalists: Mapping[int, Candidate]) -> list[int]:
    """Sizes with a finalist that the default follows."""
    return [
        low
        for low, high in pairwise(sorted(finalists))
        if finalists[low] != DEFAULT and finalists[high] == DEFAULT
    ]

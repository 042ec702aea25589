"""Looking again: confirmation that goes on where it is still open, at the same rate of false wins.

Theory of operation. A large gain is told by the first passes; a close one needs more of them. To go on until
it passes would let noise pass in the end. So each look at the samples of a point spends a share of the error
rate that was settled beforehand: the first half of it, the second a quarter, and so on; however many there
are, they spend no more than all of it (alpha spending, Lan and DeMets 1983; put together by the union bound,
whatever looks have to do with each other). Before each look the number of a point's passes doubles, and a
pass has the rounds that were planned for it, whatever was seen. To stop after a look, because the row has
passed, or is not worth its time, or time is out, costs nothing: it can only take wins away.

With many rows, those that have passed leave the correction, in a look and for later ones (Holm's steps within
a group-sequential plan: Ye, Li, Liu and Yao 2013). The first row to pass wrongly does so while at least as
many rows are corrected for as there are rows that should not pass: over all of these and all looks the chance
is no more than the error rate.

Time that is left may do two more things. A point that larger sizes inherit from is looked at again although
it has passed, until its interval speaks for them. And where a searched size passed but not what lies beside
it, new points near it make a row of it; they are corrected for from the beginning, as `NEAR` comparisons
more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from topotune.tune.judge import PASSES, Confirmation, Point, margin_twice_over
from topotune.tune.points import ELEMENT_BYTES, odd_between
from topotune.tune.trial import Candidate

FIRST_SHARE: Final = 0.5
"""Of the error rate: what the first of several looks spends."""

NEAR: Final = 4
"""Points at most that are added near searched sizes whose neighbours did not pass."""

_MOST_ROUNDS: Final = 1500
"""A point that would have more rounds after its next look is left as it is: to judge so many takes long,
and all ranks wait."""

_MOST_TIMES: Final = 8.0
"""A row that would need this many times its samples is left as it is."""

_UNLIKELY_TIMES: Final = 1.5
"""A neighbour that would need more than so many times its samples is not waited for; a look doubles them."""

Key = tuple[int, Candidate]
"""A comparison: the index of its point, and which candidate."""


def error_share(look: int) -> float:
    """Share of the error rate that a look at a point spends, counted from 0."""
    return FIRST_SHARE * 0.5**look


def passes_of(look: int) -> int:
    """How many passes a look is preceded by, not counting those that the look before it has seen."""
    return PASSES * 2**look // 2 if look else PASSES


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """What could be done next.

    Attributes:
        indices: points that are visited.
        new: points that are new, and are visited together or not at all.
        num_passes: how many.
        cost_s: expected wall time, without that of new connections.
        per_weight_s: the same, times how many times its samples a point needs, over what its size matters.
    """

    indices: tuple[int, ...] = ()
    new: tuple[Point, ...] = ()
    num_passes: int
    cost_s: float
    per_weight_s: float


def next_visits(
    points: Mapping[int, Point],
    looks: Mapping[int, int],
    found: Mapping[Key, Confirmation],
    *,
    min_gain: float,
    num_near: int,
    slowness: float,
    renewal_s: float,
    time_s: float,
) -> list[Visit]:
    """What time goes to after a look: as much as it holds, first what costs the least for what it matters.

    Args:
        points: all of them, by index.
        looks: how often each was looked at.
        found: what the last look at each comparison found.
        min_gain: the margin.
        num_near: how many points may still be added.
        slowness: wall time of what was run over what it was planned to take.
        renewal_s: wall time of new connections, which each pass has, of however many points.
        time_s: wall time that there is.
    """
    visits = []
    aims = _aims(points, found, min_gain)
    for index, point in points.items():
        wanted = [
            more_samples(found[key], aims[index] if found[key].passed else 1 + min_gain)
            for key in ((index, candidate) for candidate in point.candidates)
            if key in found and not (found[key].passed and found[key].comparison.low > aims[index])
        ]
        times = min(wanted, default=math.inf)
        num_rounds = point.num_rounds * 2 ** looks[index]
        if times <= _MOST_TIMES and num_rounds <= _MOST_ROUNDS:
            cost_s = slowness * point.passes_s(passes_of(looks[index]))
            visits.append(
                Visit(
                    indices=(index,),
                    num_passes=passes_of(looks[index]),
                    cost_s=cost_s,
                    per_weight_s=cost_s * times / point.weight,
                )
            )
    for new in points_near(points, found, min_gain=min_gain):
        cost_s = slowness * sum(point.passes_s(PASSES) for point in new)
        visits.append(Visit(new=new, num_passes=PASSES, cost_s=cost_s, per_weight_s=cost_s / new[0].weight))
    chosen: list[Visit] = []
    num_passes = 0
    for one in sorted(visits, key=lambda one: one.per_weight_s):
        # Points share the connections of a pass: only more passes than others have cost more of them.
        cost_s = one.cost_s + renewal_s * max(0, one.num_passes - num_passes)
        if cost_s <= time_s and len(one.new) <= num_near:
            time_s -= cost_s
            num_near -= len(one.new)
            num_passes = max(num_passes, one.num_passes)
            chosen.append(one)
    return chosen


def points_near(
    points: Mapping[int, Point], found: Mapping[Key, Confirmation], *, min_gain: float
) -> list[tuple[Point, ...]]:
    """Points that would make rows of searched sizes whose neighbours are not likely to pass.

    A row needs two ends and an odd size between them. Of what passed around a searched size, without an odd
    size between, the ends are taken, and only that is added; of a size alone, the size itself and a new end
    halfway (in log-size) towards the neighbour above it, or else below, if that does not pass soon.
    """
    sizes = sorted({point.message_bytes for point in points.values()})
    made = []
    for candidate, run in _runs(points, found):
        own = {points[index].message_bytes: index for index, other in found if other == candidate}
        if any(_is_odd(size) for size in run[1:-1]) or not any(points[own[size]].searched for size in run):
            continue
        beside = [found[own[size], candidate] for size in _beside(sizes, run) if size in own]
        if len(run) == 1 and any(more_samples(one, 1 + min_gain) <= _UNLIKELY_TIMES for one in beside):
            continue
        like = points[own[run[-1]]]
        if new := _row_of(run, sizes):
            made.append(
                tuple(
                    replace(
                        like,
                        message_bytes=size,
                        candidates=(candidate,),
                        searched=False,
                        aim=0.0,
                        # At most: what a call costs beside its bytes does not grow.
                        round_s=like.round_s * max(1.0, size / like.message_bytes),
                        call_s=like.call_s * max(1.0, size / like.message_bytes),
                    )
                    for size in new
                )
            )
    return made


def _aims(
    points: Mapping[int, Point], found: Mapping[Key, Confirmation], min_gain: float
) -> dict[int, float]:
    """What the interval of each point should clear: the margin, or more where a searched size is alone."""
    aims = {index: max(1 + min_gain, point.aim) for index, point in points.items()}
    if len({point.message_bytes for point in points.values() if point.searched}) > 1:
        for candidate, run in _runs(points, found):
            searched = [
                index
                for index, other in found
                if other == candidate and points[index].searched and points[index].message_bytes in run
            ]
            if len(searched) == 1:
                aims[searched[0]] = max(aims[searched[0]], margin_twice_over(min_gain))
    return aims


def _runs(
    points: Mapping[int, Point], found: Mapping[Key, Confirmation]
) -> list[tuple[Candidate, list[int]]]:
    """Sizes that a candidate passed at one after another, ascending; of each candidate all such runs."""
    sizes = sorted({point.message_bytes for point in points.values()})
    runs: list[tuple[Candidate, list[int]]] = []
    for candidate in dict.fromkeys(candidate for _, candidate in found):
        passed = {
            points[index].message_bytes
            for index, other in found
            if other == candidate and found[index, other].passed
        }
        goes_on = False
        for size in sizes:
            if size in passed and goes_on:
                runs[-1][1].append(size)
            elif size in passed:
                runs.append((candidate, [size]))
            goes_on = size in passed
    return runs


def _beside(sizes: Sequence[int], run: Sequence[int]) -> list[int]:
    first, last = sizes.index(run[0]), sizes.index(run[-1])
    return [*sizes[max(0, first - 1) : first], *sizes[last + 1 : last + 2]]


def _row_of(run: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Sizes to confirm so that the run is a row; none where there is no room."""
    ends = [run[0], run[-1]]
    if len(run) == 1:
        for other in reversed(_beside(sizes, run)):
            if (end := odd_between(*sorted((run[0], other)))) is not None:
                ends = sorted((run[0], end))
                break
    inside = odd_between(*ends) if ends[0] < ends[1] else None
    if inside is None:
        return []
    return [size for size in (inside, *ends) if size not in run]


def _is_odd(message_bytes: int) -> bool:
    return message_bytes // ELEMENT_BYTES % 2 == 1


def more_samples(one: Confirmation, aim: float) -> float:
    """How many times its samples a row may need until its interval lies above; infinite if it hardly will.

    An interval shrinks with the root of their number. Its ratio is thought to be too low by half of the way
    to the interval's high end, as it well may be.
    """
    compared = one.comparison
    if compared.low <= 0:
        return 1.0
    above = math.log(math.sqrt(compared.ratio * compared.high) / aim)
    return math.inf if above <= 0 else max(1.0, (math.log(compared.ratio / compared.low) / above) ** 2)

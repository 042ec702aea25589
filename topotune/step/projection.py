"""From the best buckets to what DDP's arguments can express, and what is lost on the way.

Where DDP takes a list of caps, a cap equal to the bytes wanted closes a bucket exactly there, so that every
partition of gradients of one type can be had; those of a first cap and another for the rest are among them.
Where it takes a single cap, all buckets that one cap can make are tried. Gradients of several types fill
buckets of their own under the same caps: then the best partition, which does not know of types, is a bound,
and what DDP makes of caps is what counts: of a single one, of those of the best partition, of those of the
best partition of each type alone, and of each first cap before the best single one.

Where DDP keeps buckets by the order of definition (`topotune.step.buckets`), gradients are partitioned in the
order in which it sends them, each ready when all ahead of it are.

Each bucket more must gain a little by the model: it costs a copy and a launch that the model leaves out, and
the times of the curve are not known any better.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from topotune.step.buckets import (
    Buckets,
    caps_of,
    ddp_buckets,
    distinct_buckets,
    filling_order,
    layout_of,
    limits_of,
)
from topotune.step.curve import Curve, Floats
from topotune.step.gradients import Gradients
from topotune.step.partition import best_layout
from topotune.step.timeline import timeline_of
from topotune.units import MIB

_MOST_LAYOUTS: Final = 2000
"""Of single caps that are tried; each is tens of microseconds of work."""

_MOST_PAIRS: Final = 500
"""Of a first cap and another that are tried where there are several types of gradients."""

_MOST_CAPS: Final = 4096
"""What a plan can hold."""

LEAST_GAIN: Final = 1e-3
"""What a bucket more must gain, as a share of the best step that there could be."""

DEAR_GAIN: Final = 5e-3
"""What it must gain where ranks are short of processors, which copying and launching take, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Buckets that DDP can make.

    Attributes:
        caps_mb: what DDP is given; None for nothing.
        buckets: that follow.
        layout_bytes: bytes of each.
        step_s: of the model.
    """

    caps_mb: tuple[float, ...] | None
    buckets: Buckets
    layout_bytes: tuple[int, ...]
    step_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """The best buckets, and what can be had of them.

    Attributes:
        optimum_s: step of the best partition of all.
        default: with nothing given.
        single: with the best single cap.
        listed: with a list of caps; None where DDP takes none, or one cap says the same.
        shorter: likewise, where each bucket more must gain `DEAR_GAIN`.
    """

    optimum_s: float
    default: Layout
    single: Layout
    listed: Layout | None
    shorter: Layout | None

    @property
    def best(self) -> Layout:
        """The better of what DDP takes; a single cap where a list gains nothing."""
        if self.listed is not None and self._price_s(self.listed) < self._price_s(self.single):
            return self.listed
        return self.single

    def _price_s(self, layout: Layout) -> float:
        return layout.step_s + LEAST_GAIN * self.optimum_s * len(layout.layout_bytes)

    @property
    def loss(self) -> float:
        """What the best that DDP takes loses against the optimum (0.01 is 1 % of a step)."""
        return max(0.0, self.best.step_s / self.optimum_s - 1)


def project(gradients: Gradients, curve: Curve, *, takes_list: bool) -> Projection:
    """Find the best buckets and project them to DDP's arguments.

    Args:
        gradients: with times.
        curve: of one allreduce.
        takes_list: whether this torch's DDP takes ``bucket_cap_mb_list``.
    """
    _, end_s = best_layout(*_as_sent(gradients), curve)
    optimum_s = max(gradients.backward_s, end_s)
    single = _best_single(gradients, curve, LEAST_GAIN * optimum_s)
    return Projection(
        optimum_s=optimum_s,
        default=layout_with(gradients, curve, None),
        single=single,
        listed=_listed(gradients, curve, LEAST_GAIN * optimum_s, single) if takes_list else None,
        shorter=_listed(gradients, curve, DEAR_GAIN * optimum_s, single) if takes_list else None,
    )


def layout_with(gradients: Gradients, curve: Curve, caps_mb: Sequence[float] | None) -> Layout:
    """What DDP makes of caps, and the step with it."""
    buckets = ddp_buckets(gradients, limits_of(caps_mb))
    return Layout(
        caps_mb=None if caps_mb is None else tuple(caps_mb),
        buckets=buckets,
        layout_bytes=layout_of(gradients.gradients, buckets),
        step_s=timeline_of(gradients, buckets, curve.time_s).step_s,
    )


def _best_single(gradients: Gradients, curve: Curve, price_s: float) -> Layout:
    in_order = [gradients.gradients[index] for index in filling_order(gradients)]
    caps = distinct_buckets(in_order, most=_MOST_LAYOUTS)
    return _cheapest(gradients, curve, price_s, [(cap / MIB,) for cap in reversed(caps)])


def _listed(gradients: Gradients, curve: Curve, price_s: float, single: Layout) -> Layout | None:
    """The best list of caps where each bucket costs this more; ``single``: of one cap."""

    def times_of(sizes: Floats) -> Floats:
        return curve(sizes) + price_s

    of_types = {one.dtype for one in gradients.gradients}
    places: list[Sequence[int]] = [range(len(gradients.gradients))]
    if len(of_types) > 1:
        places += [
            [index for index, one in enumerate(gradients.gradients) if one.dtype == dtype]
            for dtype in sorted(of_types)
        ]
    lists: list[tuple[float, ...]] = []
    for members in places:
        layout, _ = best_layout(*_as_sent(gradients, members), times_of)
        lists.append(caps_of(layout if gradients.definition_order is None else layout[::-1]))
    if len(of_types) > 1:
        lists += _pairs(gradients, single)
    lists = [caps for caps in lists if 1 < len(caps) <= _MOST_CAPS]
    return _cheapest(gradients, curve, price_s, lists) if lists else None


def _pairs(gradients: Gradients, single: Layout) -> list[tuple[float, ...]]:
    """Each distinct first cap, before the best single one."""
    assert single.caps_mb is not None
    in_order = [gradients.gradients[index] for index in filling_order(gradients)]
    return [(cap / MIB, *single.caps_mb) for cap in distinct_buckets(in_order, most=_MOST_PAIRS)]


def _cheapest(
    gradients: Gradients, curve: Curve, price_s: float, choices: Sequence[tuple[float, ...]]
) -> Layout:
    """Of caps those with the fastest step, where each bucket costs this more; of equal ones the first."""
    known: dict[float, float] = {}

    def time_of(num_bytes: float) -> float:
        if num_bytes not in known:
            known[num_bytes] = curve.time_s(num_bytes)
        return known[num_bytes]

    def step_s(caps_mb: tuple[float, ...]) -> float:
        buckets = ddp_buckets(gradients, limits_of(caps_mb))
        return timeline_of(gradients, buckets, time_of).step_s + len(buckets) * price_s

    return layout_with(gradients, curve, min(choices, key=step_s))


def _as_sent(
    gradients: Gradients, members: Sequence[int] | None = None
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Bytes of gradients in the order of sending, and when each and all ahead of it are ready.

    Args:
        gradients: of the job.
        members: indices of those that are meant, ascending; None for all.
    """
    wanted = set(range(len(gradients.gradients)) if members is None else members)
    order = filling_order(gradients)
    if gradients.definition_order is not None:
        order = order[::-1]
    sent = [gradients.gradients[index] for index in order if index in wanted]
    return tuple(one.num_bytes for one in sent), tuple(accumulate((one.ready_s for one in sent), max))

"""From the best buckets to what DDP's arguments can express, and what is lost on the way.

Where DDP takes a list of caps, a cap equal to the bytes wanted closes a bucket exactly there, so that every
partition of gradients of one type can be had. Where it takes a single cap, all layouts that one cap can make
are tried. Gradients of several types fill buckets of their own: then the best partition, which does not know
of types, is a bound, and what DDP makes of its caps is what counts.

Each bucket more must gain a little by the model: it costs a copy and a launch that the model leaves out, and
the times of the curve are not known any better.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topotune.step.buckets import Buckets, assign_buckets, caps_of, distinct_layouts, layout_of, limits_of
from topotune.step.curve import Curve
from topotune.step.gradients import Gradients
from topotune.step.partition import best_layout
from topotune.step.timeline import timeline_of
from topotune.units import MIB

_MOST_LAYOUTS: Final = 2000
"""Of single caps that are tried; each is tens of microseconds of work."""

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
    _, end_s = best_layout(gradients.sizes, gradients.ready_s, curve)
    optimum_s = max(gradients.backward_s, end_s)
    return Projection(
        optimum_s=optimum_s,
        default=layout_with(gradients, curve, None),
        single=_best_single(gradients, curve, LEAST_GAIN * optimum_s),
        listed=_listed(gradients, curve, LEAST_GAIN * optimum_s) if takes_list else None,
        shorter=_listed(gradients, curve, DEAR_GAIN * optimum_s) if takes_list else None,
    )


def layout_with(gradients: Gradients, curve: Curve, caps_mb: Sequence[float] | None) -> Layout:
    """What DDP makes of caps, and the step with it."""
    buckets = assign_buckets(gradients.gradients, limits_of(caps_mb))
    return Layout(
        caps_mb=None if caps_mb is None else tuple(caps_mb),
        buckets=buckets,
        layout_bytes=layout_of(gradients.gradients, buckets),
        step_s=timeline_of(gradients, buckets, curve.time_s).step_s,
    )


def _best_single(gradients: Gradients, curve: Curve, price_s: float) -> Layout:
    candidates = distinct_layouts(gradients.sizes, most=_MOST_LAYOUTS)
    known: dict[int, float] = {}

    def time_of(num_bytes: float) -> float:
        if num_bytes not in known:
            known[int(num_bytes)] = curve.time_s(num_bytes)
        return known[int(num_bytes)]

    def step_s(cap: int) -> float:
        buckets = assign_buckets(gradients.gradients, (cap,))
        return timeline_of(gradients, buckets, time_of).step_s + len(buckets) * price_s

    best = min(reversed(candidates), key=lambda candidate: step_s(candidate[0]))
    return layout_with(gradients, curve, (best[0] / MIB,))


def _listed(gradients: Gradients, curve: Curve, price_s: float) -> Layout | None:
    """The best list of caps where each bucket costs this more."""
    layout, _ = best_layout(gradients.sizes, gradients.ready_s, lambda sizes: curve(sizes) + price_s)
    if not 1 < len(layout) <= _MOST_CAPS:
        return None
    return layout_with(gradients, curve, caps_of(layout))

"""Choosing DDP's buckets, and comparing a step under a plan with one without: rank 0's decisions.

Theory of operation. The best buckets follow from the plan's measured rows (`topotune.step.projection`), but a
model knows nothing of cores and memory that backward and exchange take from each other, so its choice is only
a proposal. What it proposes runs in real DDP steps beside the default, a few rounds; the fastest is confirmed
on fresh rounds, whose number is fixed before the first. It enters the plan where the interval of
default / buckets lies above the margin; else the plan says that torch's own stay. The same rounds hold the
step without the plan, which tells what the plan as a whole does to a step, and what bounds it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from topotune.plan import Evidence, Plan, Row
from topotune.plan.model import Ddp
from topotune.step.bottleneck import StepBound, bound_of_step
from topotune.step.buckets import assign_buckets, layout_of, limits_of
from topotune.step.curve import Curve, curves_of_rows
from topotune.step.gradients import Gradients
from topotune.step.projection import Layout, Projection, project
from topotune.step.timeline import timeline_of, timeline_to_document
from topotune.tune.compare import verdict_of
from topotune.tune.judge import CONFIDENCE
from topotune.tune.statistics import Comparison, compare_arms, minimum_rounds
from topotune.tune.step_bench import StepBench, StepFailedError, balanced, slowest
from topotune.tune.step_ranks import WARM_UP
from topotune.units import format_bytes, format_seconds

JOB, UNDER_PLAN, ALONE = "without the plan", "under the plan", "backward alone"

_LOOK_ROUNDS: Final = 3
"""Of all arms, before it is known how long a step takes."""

_FEWEST_ROUNDS: Final = minimum_rounds(CONFIDENCE) + 2
_MOST_ROUNDS: Final = 60
_OVERHEAD: Final = 1.1
_LONGEST_STEP_S: Final = 60.0
"""Half of what the ranks wait for each other: a step may take longer than the model says."""

_LEAST_PREDICTED: Final = 0.002
"""Buckets that the model says gain less than this share of a step are not tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepChoice:
    """What came of choosing buckets.

    Attributes:
        ddp: for the plan.
        warnings: one line each.
    """

    ddp: Ddp
    warnings: tuple[str, ...] = ()


@dataclass(kw_only=True)
class _Step:
    """What the choice works on."""

    bench: StepBench
    gradients: Gradients
    curve: Curve
    default_curve: Curve
    warnings: list[str]
    now_s: Callable[[], float]
    deadline_s: float
    seed: int

    def rounds_left(self, round_s: float) -> int:
        """How many rounds of this length the time holds."""
        left = (self.deadline_s - self.now_s()) / (_OVERHEAD * round_s)
        return max(0, min(_MOST_ROUNDS, math.floor(left)))


def choose_buckets(
    bench: StepBench,
    plan: Plan,
    gradients: Gradients,
    *,
    takes_list: bool,
    min_gain: float,
    seed: int,
    now_s: Callable[[], float],
    deadline_s: float,
) -> StepChoice:
    """DDP's buckets for a plan whose rows are chosen.

    Args:
        bench: measures steps.
        plan: all but its ``ddp``; the ``topotune`` group is made to run it.
        gradients: of the job; where they are not timed the backward is as long as the default's exchange.
        takes_list: whether this torch's DDP takes a list of caps.
        min_gain: what buckets must gain.
        seed: of the bootstrap.
        now_s: the run's clock.
        deadline_s: when this must be over, by it.
    """
    own_layout = layout_of(gradients.gradients, assign_buckets(gradients.gradients, limits_of(None)))
    rows = plan.groups[0].allreduce or ()
    curves = curves_of_rows(rows)
    if curves is None:
        return _untried(
            gradients, bench, own_layout, "no row of the plan was measured, so no buckets follow from it"
        )
    curve, default_curve = curves
    gradients = balanced(gradients, default_curve, own_layout)
    step = _Step(
        bench=bench,
        gradients=gradients,
        curve=curve,
        default_curve=default_curve,
        warnings=list(gradients.warnings),
        now_s=now_s,
        deadline_s=deadline_s,
        seed=seed,
    )
    found = project(gradients, curve, takes_list=takes_list)
    proposals = proposals_of(found)
    longest_s = _longest_s(gradients, own_layout, (curve, default_curve))
    num_arms = 3 + len(proposals)
    if longest_s > _LONGEST_STEP_S:
        return _untried(gradients, bench, own_layout, _too_long(longest_s))
    least_s = longest_s * ((WARM_UP + _LOOK_ROUNDS) * num_arms + 3 * _FEWEST_ROUNDS)
    if now_s() + least_s > deadline_s:
        return _untried(
            gradients,
            bench,
            own_layout,
            f"no time to run training steps of up to {format_seconds(longest_s)}: "
            "torch's own buckets stay; a larger --budget gives it time",
        )
    if not bench.holds(gradients, num_arms):
        return _untried(
            gradients,
            bench,
            own_layout,
            f"no memory to run training steps with {format_bytes(gradients.total_bytes)} of gradients "
            f"({format_bytes(bench.memory_bytes)} for each rank): torch's own buckets stay",
        )
    bench.begin(gradients)
    bench.adopt(plan)
    try:
        return _measured(step, found.loss, proposals, min_gain)
    except StepFailedError as error:
        return _untried(
            gradients,
            bench,
            own_layout,
            f"training steps under the plan failed ({error.why}): check the plan",
        )


def compare_steps(
    bench: StepBench,
    rows: Sequence[Row],
    gradients: Gradients,
    *,
    caps_mb: Sequence[float] | None,
    seed: int,
    now_s: Callable[[], float],
    deadline_s: float,
) -> tuple[dict[str, Any] | None, list[str]]:
    """A step under the plan in use against one without, as JSON for the comparison; and warnings.

    Args:
        bench: measures steps.
        rows: of the plan in use by the ``topotune`` group, for these ranks.
        gradients: of the job.
        caps_mb: the plan's bucket sizes as this torch can take them.
        seed: of the bootstrap.
        now_s: the run's clock.
        deadline_s: when this should be over, by it; the fewest rounds are run even beyond.
    """
    own_layout = layout_of(gradients.gradients, assign_buckets(gradients.gradients, limits_of(None)))
    curves = curves_of_rows(rows)
    if curves is None and not gradients.timed:
        return None, ["the plan has no times from which a backward follows: give --backward for the step"]
    curve, default_curve = (None, None) if curves is None else curves
    if default_curve is not None:
        gradients = balanced(gradients, default_curve, own_layout)
        longest_s = _longest_s(gradients, own_layout, curves or ())
        if longest_s > _LONGEST_STEP_S:
            return None, [_too_long(longest_s)]
    if not bench.holds(gradients, 3):
        return None, [
            f"no memory to run training steps with {format_bytes(gradients.total_bytes)} of gradients "
            f"({format_bytes(bench.memory_bytes)} for each rank)"
        ]
    bench.begin(gradients)
    alone = bench.stand(ALONE, "alone")
    job = bench.stand(JOB, "raw")
    try:
        planned = bench.stand(UNDER_PLAN, "plan", caps_mb)
        names = (JOB, UNDER_PLAN, ALONE)
        round_s = alone.step_s + job.step_s + planned.step_s
        left = (deadline_s - now_s()) / (_OVERHEAD * round_s)
        num_rounds = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, math.floor(left)))
        taken = bench.rounds(names, num_rounds)
    except StepFailedError as error:
        return None, [f"training steps under the plan failed: {error.why}"]
    compared = compare_arms(slowest(taken[JOB]), slowest(taken[UNDER_PLAN]), confidence=CONFIDENCE, seed=seed)
    layout = job.layout_bytes or own_layout
    planned_layout = planned.layout_bytes or ()
    # Without measured rows the exchange's share is not known, only what it adds.
    bound = None if default_curve is None else _bound(taken, layout, default_curve)
    return {
        "default_median_s": compared.default_median_s,
        "plan_median_s": compared.median_s,
        "ratio": compared.ratio,
        "ratio_ci": [compared.low, compared.high],
        "num_samples": compared.num_rounds,
        "verdict": verdict_of(compared.low, compared.high),
        "gradients": gradients.in_words(),
        "backward_s": gradients.backward_s,
        "compute": bench.compute,
        "num_threads": bench.num_threads,
        "default_layout_bytes": list(layout),
        "plan_layout_bytes": list(planned_layout),
        "default_timeline": _timeline(gradients, None, layout, default_curve),
        "plan_timeline": _timeline(gradients, caps_mb, planned_layout, curve),
        "bound": None if bound is None else {"kind": bound.kind, "text": bound.text},
    }, []


def proposals_of(found: Projection) -> dict[str, Layout]:
    """What is worth trying against torch's own buckets, by name; no two with the same buckets.

    Those with fewer buckets may lose by the model and win in a step: what a bucket costs beside its exchange
    is not in it.
    """
    proposals: dict[str, Layout] = {}
    seen = {found.default.layout_bytes}
    for name, layout in (
        ("a list of caps", found.listed),
        ("a shorter list of caps", found.shorter),
        ("one cap", found.single),
    ):
        if (
            layout is not None
            and layout.layout_bytes not in seen
            and layout.step_s < (1 - _LEAST_PREDICTED) * found.default.step_s
        ):
            proposals[name] = layout
            seen.add(layout.layout_bytes)
    return proposals


def _measured(
    step: _Step, projection_loss: float, proposals: dict[str, Layout], min_gain: float
) -> StepChoice:
    bench = step.bench
    bench.stand(ALONE, "alone")
    job = bench.stand(JOB, "raw")
    own = bench.stand(UNDER_PLAN, "plan")
    layouts = {UNDER_PLAN: own.layout_bytes}
    for name, layout in proposals.items():
        layouts[name] = bench.stand(name, "plan", layout.caps_mb).layout_bytes or layout.layout_bytes
        if layouts[name] != layout.layout_bytes:
            step.warnings.append(
                f"DDP made other buckets of {name} than expected: {_listed(layouts[name])} in place of "
                f"{_listed(layout.layout_bytes)}"
            )
    look = bench.rounds((ALONE, JOB, UNDER_PLAN, *proposals), _LOOK_ROUNDS)
    default_layout = job.layout_bytes or own.layout_bytes
    assert default_layout is not None
    bound = _bound(look, default_layout, step.default_curve)
    best = min(proposals, key=lambda name: float(np.median(slowest(look[name]))), default=None)
    if best is not None and len(proposals) > 1:
        bench.drop(*(name for name in proposals if name != best))
    bench.drop(ALONE)
    names = (JOB, UNDER_PLAN) if best is None else (JOB, UNDER_PLAN, best)
    num_rounds = step.rounds_left(sum(float(np.median(slowest(look[name]))) for name in names))
    if num_rounds < _FEWEST_ROUNDS:
        return _untried(
            step.gradients,
            bench,
            default_layout,
            "no time to confirm buckets: torch's own stay; a larger --budget gives it time",
            bound=bound,
        )
    taken = bench.rounds(names, num_rounds)
    own_s = slowest(taken[UNDER_PLAN])
    chosen, evidence = None, None
    if best is not None:
        compared = compare_arms(own_s, slowest(taken[best]), confidence=CONFIDENCE, seed=step.seed)
        if compared.low > 1 + min_gain:
            chosen = proposals[best]
            evidence = _evidence(compared, step.gradients, chosen.step_s)
        else:
            step.warnings.append(
                f"torch's own buckets stay: the best of others ({_listed(layouts[best])}) made the step "
                f"{compared.ratio:.3f} times as fast ({compared.low:.3f} … {compared.high:.3f})"
            )
    whole = compare_arms(
        slowest(taken[JOB]),
        own_s if best is None or chosen is None else slowest(taken[best]),
        confidence=CONFIDENCE,
        seed=step.seed,
    )
    if verdict_of(whole.low, whole.high) == "slower":
        step.warnings.append(
            f"a training step under the plan is slower than without it: {whole.ratio:.3f} times as fast "
            f"({whole.low:.3f} … {whole.high:.3f}); topotune compare --step looks again"
        )
    ddp = Ddp(
        bucket_caps_mb=None if chosen is None else chosen.caps_mb,
        layout_bytes=default_layout if chosen is None or best is None else layouts[best],
        projected_from=step.curve.sizes,
        evidence=evidence or _default_evidence(own_s, step.gradients),
        projection_loss=projection_loss,
        gradients=step.gradients.in_words(),
        compute=bench.compute,
        bound=bound.text,
    )
    return StepChoice(ddp=ddp, warnings=tuple(step.warnings))


def _timeline(
    gradients: Gradients, caps_mb: Sequence[float] | None, layout_bytes: Sequence[int], curve: Curve | None
) -> dict[str, Any] | None:
    """When the model sends buckets, as JSON; None where no times are known, or DDP made other buckets."""
    buckets = assign_buckets(gradients.gradients, limits_of(caps_mb))
    if curve is None or layout_of(gradients.gradients, buckets) != tuple(layout_bytes):
        return None
    return timeline_to_document(timeline_of(gradients, buckets, curve.time_s))


def _longest_s(gradients: Gradients, layout_bytes: Sequence[int], curves: Sequence[Curve]) -> float:
    """A step at worst: everything one after the other."""
    return gradients.backward_s + sum(max(curve.time_s(one) for curve in curves) for one in layout_bytes)


def _too_long(longest_s: float) -> str:
    return f"training steps of up to {format_seconds(longest_s)} are too long to be run: give fewer gradients"


def _bound(taken: dict[str, Any], layout_bytes: Sequence[int], curve: Curve) -> StepBound:
    return bound_of_step(
        float(np.median(slowest(taken[JOB]))),
        [float(time_s) for time_s in np.median(taken[ALONE], axis=1)],
        layout_bytes,
        curve,
    )


def _evidence(compared: Comparison, gradients: Gradients, predicted_s: float) -> Evidence:
    return Evidence(
        median_s=compared.median_s,
        default_median_s=compared.default_median_s,
        ratio=compared.ratio,
        ratio_ci=(compared.low, compared.high),
        num_samples=compared.num_rounds,
        measured_bytes=gradients.total_bytes,
        predicted_s=predicted_s,
    )


def _default_evidence(own_s: Any, gradients: Gradients) -> Evidence:
    median_s = float(np.median(own_s))
    return Evidence(
        median_s=median_s,
        default_median_s=median_s,
        ratio=1.0,
        ratio_ci=(1.0, 1.0),
        num_samples=len(own_s),
        measured_bytes=gradients.total_bytes,
    )


def _untried(
    gradients: Gradients,
    bench: StepBench,
    layout_bytes: Sequence[int],
    why: str,
    *,
    bound: StepBound | None = None,
) -> StepChoice:
    """Torch's own buckets, because nothing else was confirmed."""
    ddp = Ddp(
        layout_bytes=tuple(layout_bytes),
        gradients=gradients.in_words(),
        compute=bench.compute,
        bound=None if bound is None else bound.text,
    )
    return StepChoice(ddp=ddp, warnings=(*gradients.warnings, why))


def _listed(layout_bytes: Sequence[int] | None) -> str:
    shown = ", ".join(format_bytes(num_bytes) for num_bytes in (layout_bytes or ())[:8])
    return f"{shown} …" if len(layout_bytes or ()) > 8 else shown

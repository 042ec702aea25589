"""Choosing DDP's buckets: rank 0's decisions.

Theory of operation. The best buckets follow from the plan's measured rows (`topotune.step.projection`), but a
model knows nothing of cores and memory that backward and exchange take from each other, so its choice is only
a proposal. What it proposes runs in real DDP steps beside the default, a few rounds; the fastest is confirmed
on fresh rounds, whose number is fixed before the first. Where the interval of default / buckets lies above
the margin, as many rounds are run once more on new connections (`topotune.tune.step_looks`); buckets enter
the plan where both looks say so, else the plan says that torch's own stay. The same rounds hold the step
without the plan, which tells what the plan as a whole does to a step, and what bounds it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from topotune.plan import Evidence, Plan
from topotune.plan.model import Ddp
from topotune.step.bottleneck import StepBound
from topotune.step.buckets import ddp_buckets, layout_of, limits_of
from topotune.step.curve import Curve, curves_of_rows
from topotune.step.gradients import Gradients
from topotune.step.projection import Layout, Projection, project
from topotune.tune.compare import verdict_of
from topotune.tune.judge import CONFIDENCE
from topotune.tune.statistics import Comparison, Samples, minimum_rounds
from topotune.tune.step_bench import StepBench, StepFailedError, balanced, slowest
from topotune.tune.step_looks import (
    ALONE,
    JOB,
    LONGEST_STEP_S,
    MOST_ROUNDS,
    OVERHEAD,
    UNDER_PLAN,
    Rounds,
    all_looks,
    bound_in,
    judged,
    longest_s,
    stand_anew,
    step_warnings,
    too_long,
)
from topotune.tune.step_ranks import WARM_UP, Way
from topotune.units import format_bytes, format_seconds

_LOOK_ROUNDS: Final = 3
"""Of all arms, before it is known how long a step takes."""

_FEWEST_ROUNDS: Final = minimum_rounds(CONFIDENCE)
"""Of each of two looks."""

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

    def rounds_of_look(self, step_s: Mapping[str, float]) -> int:
        """How many rounds of all these arms, and as many of any two that begin anew, the time holds."""
        left_s = (self.deadline_s - self.now_s()) / OVERHEAD
        two_s = sum(sorted(step_s.values())[-2:])
        return min(MOST_ROUNDS, math.floor((left_s - WARM_UP * two_s) / (sum(step_s.values()) + two_s)))

    def rounds_again(self, again_s: Sequence[float]) -> int:
        """How many rounds of these arms, which begin anew, the time holds, or the fewest that tell."""
        left_s = (self.deadline_s - self.now_s()) / OVERHEAD
        return max(_FEWEST_ROUNDS, math.floor(left_s / sum(again_s)) - WARM_UP)


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
    own_layout = layout_of(gradients.gradients, ddp_buckets(gradients, limits_of(None)))
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
    at_most_s = longest_s(gradients, own_layout, (curve, default_curve))
    num_arms = 3 + len(proposals)
    if at_most_s > LONGEST_STEP_S:
        return _untried(gradients, bench, own_layout, too_long(at_most_s))
    # Steps are shorter than at worst: whether there is time for a second look is asked when that is known.
    least_s = at_most_s * ((WARM_UP + _LOOK_ROUNDS) * num_arms + 3 * _FEWEST_ROUNDS)
    if now_s() + least_s > deadline_s:
        return _untried(
            gradients,
            bench,
            own_layout,
            f"no time to run training steps of up to {format_seconds(at_most_s)}: "
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
    bound = bound_in(look, default_layout, step.default_curve)
    best = min(proposals, key=lambda name: float(np.median(slowest(look[name]))), default=None)
    if best is not None and len(proposals) > 1:
        bench.drop(*(name for name in proposals if name != best))
    bench.drop(ALONE)
    names = (JOB, UNDER_PLAN) if best is None else (JOB, UNDER_PLAN, best)
    step_s = {name: float(np.median(slowest(look[name]))) for name in names}
    num_rounds = step.rounds_of_look(step_s)
    if num_rounds < _FEWEST_ROUNDS:
        return _untried(
            step.gradients,
            bench,
            default_layout,
            "no time to confirm buckets: torch's own stay; a larger --budget gives it time",
            bound=bound,
        )
    looks: list[Rounds] = [bench.rounds(names, num_rounds)]
    if again := _to_see_again(looks[0], best, min_gain, step.seed):
        arms: dict[str, tuple[Way, Sequence[float] | None]] = {JOB: ("raw", None), UNDER_PLAN: ("plan", None)}
        if best is not None:
            arms[best] = ("plan", proposals[best].caps_mb)
        stand_anew(bench, {name: arms[name] for name in again})
        looks.append(
            bench.rounds(again, min(num_rounds, step.rounds_again([step_s[name] for name in again])))
        )
    chosen, evidence = None, None
    if best is not None:
        compared = judged(looks, UNDER_PLAN, best, seed=step.seed)
        if compared.low > 1 + min_gain:
            chosen = proposals[best]
            evidence = _evidence(compared, step.gradients, chosen.step_s)
        else:
            step.warnings.append(
                f"torch's own buckets stay: the best of others ({_listed(layouts[best])}) made the step "
                f"{compared.ratio:.3f} times as fast ({compared.low:.3f} … {compared.high:.3f})"
            )
    under_plan = UNDER_PLAN if best is None or chosen is None else best
    whole = judged(looks, JOB, under_plan, seed=step.seed)
    step.warnings.extend(step_warnings(all_looks(looks, JOB), all_looks(looks, under_plan)))
    if (
        sum(JOB in look and under_plan in look for look in looks) > 1
        and verdict_of(whole.low, whole.high) == "slower"
    ):
        step.warnings.append(
            f"a training step under the plan is slower than without it: {whole.ratio:.3f} times as fast "
            f"({whole.low:.3f} … {whole.high:.3f}); topotune compare --step looks again"
        )
    ddp = Ddp(
        bucket_caps_mb=None if chosen is None else chosen.caps_mb,
        layout_bytes=default_layout if chosen is None or best is None else layouts[best],
        projected_from=step.curve.sizes,
        evidence=evidence or _default_evidence(all_looks(looks, UNDER_PLAN), step.gradients),
        projection_loss=projection_loss,
        gradients=step.gradients.in_words(),
        compute=bench.compute,
        bound=bound.text,
    )
    return StepChoice(ddp=ddp, warnings=tuple(step.warnings))


def _to_see_again(look: Rounds, best: str | None, min_gain: float, seed: int) -> tuple[str, ...]:
    """The arms of what this look says that only counts if a second one says it, too; none for nothing."""
    gains = best is not None and judged([look], UNDER_PLAN, best, seed=seed).low > 1 + min_gain
    under_plan = best if best is not None and gains else UNDER_PLAN
    whole = judged([look], JOB, under_plan, seed=seed)
    slower = verdict_of(whole.low, whole.high) == "slower"
    wanted = {UNDER_PLAN, under_plan} if gains else set()
    if slower:
        wanted |= {JOB, under_plan}
    return tuple(name for name in look if name in wanted)


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


def _default_evidence(own_s: Samples, gradients: Gradients) -> Evidence:
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

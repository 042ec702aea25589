"""A training step under a plan against one without: rank 0's decisions.

Theory of operation. DDP on the raw group with torch's own buckets, DDP under the plan with the plan's, and
the backward alone take turns. Where the plan's step seems slower, new groups are made, and the same number
of rounds is run again: "slower" ends scripts, so it has to be seen on two sets of connections, as of a
message size (`topotune.tune.compare`). Several launches are judged together, a launch as the unit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from topotune.plan import Row
from topotune.step.buckets import ddp_buckets, layout_of, limits_of
from topotune.step.curve import Curve, curves_of_rows
from topotune.step.gradients import Gradients
from topotune.step.timeline import timeline_of, timeline_to_document
from topotune.tune.blocks import Block, compare_launches, scatter_of_launches
from topotune.tune.compare import verdict_of
from topotune.tune.judge import CONFIDENCE
from topotune.tune.statistics import Comparison, minimum_rounds
from topotune.tune.step_bench import StepBench, StepFailedError, balanced
from topotune.tune.step_looks import (
    ALONE,
    JOB,
    LONGEST_STEP_S,
    MOST_ROUNDS,
    OVERHEAD,
    UNDER_PLAN,
    all_looks,
    bound_in,
    judged,
    longest_s,
    samples_of_step,
    stand_anew,
    step_warnings,
    too_long,
)
from topotune.units import format_bytes

_FEWEST_ROUNDS: Final = minimum_rounds(CONFIDENCE) + 2


def compare_steps(
    bench: StepBench,
    rows: Sequence[Row],
    gradients: Gradients,
    *,
    caps_mb: Sequence[float] | None,
    seed: int,
    now_s: Callable[[], float],
    deadline_s: float,
    on_step: Callable[[Block], None] = lambda _samples: None,
) -> tuple[dict[str, Any] | None, list[str]]:
    """A step under the plan in use against one without, as JSON for the comparison; and warnings.

    Args:
        bench: measures steps.
        rows: of the plan in use by the ``topotune`` group, for these ranks.
        gradients: of the job.
        caps_mb: the plan's bucket sizes as this torch can take them.
        seed: of the bootstrap.
        now_s: the run's clock.
        deadline_s: when a first look should be over, by it; the fewest rounds are run even beyond, and a
            second look takes as many rounds once more.
        on_step: gets the samples, of both looks where there were two.
    """
    own_layout = layout_of(gradients.gradients, ddp_buckets(gradients, limits_of(None)))
    curves = curves_of_rows(rows)
    if curves is None and not gradients.timed:
        return None, ["the plan has no times from which a backward follows: give --backward for the step"]
    curve, default_curve = (None, None) if curves is None else curves
    if default_curve is not None:
        gradients = balanced(gradients, default_curve, own_layout)
        at_most_s = longest_s(gradients, own_layout, curves or ())
        if at_most_s > LONGEST_STEP_S:
            return None, [too_long(at_most_s)]
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
        round_s = alone.step_s + job.step_s + planned.step_s
        left = (deadline_s - now_s()) / (OVERHEAD * round_s)
        num_rounds = max(_FEWEST_ROUNDS, min(MOST_ROUNDS, math.floor(left)))
        looks = [bench.rounds((JOB, UNDER_PLAN, ALONE), num_rounds)]
        compared = judged(looks, JOB, UNDER_PLAN, seed=seed)
        if verdict_of(compared.low, compared.high) == "slower":
            stand_anew(bench, {JOB: ("raw", None), UNDER_PLAN: ("plan", caps_mb)})
            looks.append(bench.rounds((JOB, UNDER_PLAN), num_rounds))
            compared = judged(looks, JOB, UNDER_PLAN, seed=seed)
    except StepFailedError as error:
        return None, [f"training steps under the plan failed: {error.why}"]
    samples = all_looks(looks, JOB), all_looks(looks, UNDER_PLAN)
    on_step(samples)
    layout = job.layout_bytes or own_layout
    planned_layout = planned.layout_bytes or ()
    # Without measured rows the exchange's share is not known, only what it adds.
    bound = None if default_curve is None else bound_in(looks[0], layout, default_curve)
    return {
        **_verdict(compared, samples),
        "gradients": gradients.in_words(),
        "backward_s": gradients.backward_s,
        "compute": bench.compute,
        "num_threads": bench.num_threads,
        "default_layout_bytes": list(layout),
        "plan_layout_bytes": list(planned_layout),
        "default_timeline": _timeline(gradients, None, layout, default_curve),
        "plan_timeline": _timeline(gradients, caps_mb, planned_layout, curve),
        "bound": None if bound is None else {"kind": bound.kind, "text": bound.text},
    }, [*gradients.warnings, *step_warnings(*samples)]


def joined_steps(
    steps: Sequence[Mapping[str, Any]], blocks: Sequence[Block], *, seed: int
) -> dict[str, Any] | None:
    """The step of several launches, a launch as the unit; None where none of them compared one.

    Args:
        steps: what `compare_steps` gave in each launch that compared one, the first first.
        blocks: their samples.
        seed: of the bootstrap.
    """
    if not steps:
        return None
    if len(steps) == 1:  # its looks on connections of their own say more than its rounds
        return dict(steps[0])
    compared = compare_launches(
        blocks, scatter=scatter_of_launches([blocks]), confidence=CONFIDENCE, seed=seed
    )
    default_s, other_s = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return {**steps[0], **_verdict(compared, (default_s, other_s))}


def _verdict(compared: Comparison, samples: Block) -> dict[str, Any]:
    return {
        "default_median_s": compared.default_median_s,
        "plan_median_s": compared.median_s,
        "ratio": compared.ratio,
        "ratio_ci": [compared.low, compared.high],
        "num_samples": compared.num_rounds,
        "verdict": verdict_of(compared.low, compared.high),
        **samples_of_step(*samples),
    }


def _timeline(
    gradients: Gradients, caps_mb: Sequence[float] | None, layout_bytes: Sequence[int], curve: Curve | None
) -> dict[str, Any] | None:
    """When the model sends buckets, as JSON; None where no times are known, or DDP made other buckets."""
    buckets = ddp_buckets(gradients, limits_of(caps_mb))
    if curve is None or layout_of(gradients.gradients, buckets) != tuple(layout_bytes):
        return None
    return timeline_to_document(timeline_of(gradients, buckets, curve.time_s))

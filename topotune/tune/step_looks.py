"""Looks at a training step: rounds of its arms, judged alone and with a second look on new connections.

Theory of operation. All steps of one look run over the same connections, whose luck no number of rounds shows
(`topotune.tune.blocks`). So what decides something (buckets that enter a plan, a verdict "slower") is
looked at again on new groups, which have connections of their own, and only what both looks say holds: the
interval is the hull of both looks' intervals. What one look denies needs no second one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from topotune.step.bottleneck import StepBound, bound_of_step
from topotune.step.curve import Curve
from topotune.step.gradients import Gradients
from topotune.tune.blocks import hull_of_looks
from topotune.tune.diagnosis import Seen, look_at, sample_warnings
from topotune.tune.judge import CONFIDENCE
from topotune.tune.statistics import Comparison, Samples, compare_arms
from topotune.tune.step_bench import StepBench, slowest
from topotune.tune.step_ranks import Way
from topotune.units import format_seconds

JOB, UNDER_PLAN, ALONE = "without the plan", "under the plan", "backward alone"

MOST_ROUNDS: Final = 60
OVERHEAD: Final = 1.1
"""Of a round, on what its steps take."""

LONGEST_STEP_S: Final = 60.0
"""Half of what the ranks wait for each other: a step may take longer than the model says."""

Rounds = Mapping[str, Samples]
"""Of one look: seconds of each arm, by rank and round, shape (ranks, rounds)."""


def stand_anew(bench: StepBench, arms: Mapping[str, tuple[Way, Sequence[float] | None]]) -> None:
    """The same arms on new connections.

    Args:
        bench: measures steps.
        arms: by name, how each runs, and its caps.

    Raises:
        StepFailedError: an arm under the plan did not work.
    """
    bench.renew()
    for name, (way, caps_mb) in arms.items():
        bench.stand(name, way, caps_mb)


def judged(looks: Sequence[Rounds], default: str, other: str, *, seed: int) -> Comparison:
    """One arm against another over all looks that hold both: the hull of the looks' intervals.

    Args:
        looks: at least one with both.
        default: name of the one.
        other: name of the other.
        seed: of the bootstrap.
    """
    blocks = [
        (slowest(look[default]), slowest(look[other])) for look in looks if default in look and other in look
    ]
    each = [compare_arms(*block, confidence=CONFIDENCE, seed=seed) for block in blocks]
    return hull_of_looks(each, blocks)


def samples_of_step(default_s: Samples, other_s: Samples) -> dict[str, Any]:
    """How the samples of a step look, as JSON: as those of a row."""
    default, other = look_at(default_s), look_at(other_s)
    return {
        "outlier_share": (default.outlier_share + other.outlier_share) / 2,
        "autocorrelation": default.autocorrelation,
        "two_modes": default.modes is not None or other.modes is not None,
    }


def step_warnings(default_s: Samples, other_s: Samples) -> list[str]:
    """What a reader should know of the samples of a step; one line each."""
    seen = [
        Seen(what="a step", arm=arm, look=look_at(samples_s))
        for arm, samples_s in (("default", default_s), ("plan", other_s))
    ]
    return [f"training steps: {line}" for line in sample_warnings(seen)]


def all_looks(looks: Sequence[Rounds], name: str) -> Samples:
    """The steps of an arm in all looks, slowest rank."""
    return np.concatenate([slowest(look[name]) for look in looks if name in look])


def bound_in(look: Rounds, layout_bytes: Sequence[int], curve: Curve) -> StepBound:
    """What bounds the step without the plan, by a look that holds the backward alone, too."""
    return bound_of_step(
        float(np.median(slowest(look[JOB]))),
        [float(time_s) for time_s in np.median(look[ALONE], axis=1)],
        layout_bytes,
        curve,
    )


def longest_s(gradients: Gradients, layout_bytes: Sequence[int], curves: Sequence[Curve]) -> float:
    """A step at worst: everything one after the other."""
    return gradients.backward_s + sum(max(curve.time_s(one) for curve in curves) for one in layout_bytes)


def too_long(longest_s: float) -> str:
    """Why such steps are not run."""
    return f"training steps of up to {format_seconds(longest_s)} are too long to be run: give fewer gradients"

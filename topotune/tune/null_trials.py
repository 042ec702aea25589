"""Null trials: the default against itself, through the rule of confirmation; how often it "wins".

The other arm runs on connections of its own, as every candidate does, so that luck of connections is in the
rate, as it is in what candidates are thought to gain.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from topotune.tune.confirm import OVERHEAD, RENEWAL_S, take_samples
from topotune.tune.judge import CONFIDENCE, PASSES, Point, PointSamples, judge
from topotune.tune.sampling import Sampling, num_warmups
from topotune.tune.statistics import clopper_pearson, corrected, minimum_rounds
from topotune.tune.trial import TWIN

_FEWEST_NULL_TRIALS, _MOST_NULL_TRIALS = 4, 60


@dataclass(frozen=True, kw_only=True, slots=True)
class NullTrials:
    """Default against default by the rule of confirmation."""

    num_trials: int
    num_wins: int

    @property
    def rate(self) -> float | None:
        """Share of wins; None without trials."""
        return self.num_wins / self.num_trials if self.num_trials else None

    @property
    def rate_ci(self) -> tuple[float, float] | None:
        """Its 95 % interval (Clopper-Pearson); None without trials."""
        return clopper_pearson(self.num_wins, self.num_trials) if self.num_trials else None


def run_null_trials(
    sampling: Sampling,
    default_s: Mapping[int, float],
    *,
    comparisons: int,
    min_gain: float,
    seed: int,
    deadline_s: float,
    after_trial: Callable[[], None] = lambda: None,
) -> NullTrials:
    """Default against default on other connections, sizes in turn, as many as fit in time (at most 60).

    Sizes of which less than four trials would fit are left out: many trials say more than large ones.

    Args:
        sampling: where samples come from.
        default_s: of each size, what the default takes.
        comparisons: number of comparisons that confirmation corrected for; the same correction is used here.
        min_gain: the same margin.
        seed: of the bootstrap.
        deadline_s: on the clock of ``now_s``.
        after_trial: called after each.
    """
    num_rounds = minimum_rounds(corrected(CONFIDENCE, comparisons)) + 4
    costs_s = {
        size: OVERHEAD * 2 * time_s * (num_rounds + (PASSES - 1) * num_warmups(time_s, again=True))
        for size, time_s in sorted(default_s.items())
    }
    left_s = deadline_s - sampling.now_s() - PASSES * RENEWAL_S
    costs_s = {size: cost_s for size, cost_s in costs_s.items() if _FEWEST_NULL_TRIALS * cost_s <= left_s}
    trials: list[Point] = []
    while costs_s and len(trials) < _MOST_NULL_TRIALS and min(costs_s.values()) <= left_s:
        for size, cost_s in costs_s.items():
            if cost_s <= left_s and len(trials) < _MOST_NULL_TRIALS:
                left_s -= cost_s
                trials.append(
                    Point(
                        message_bytes=size,
                        candidates=(TWIN,),
                        searched=True,
                        num_rounds=num_rounds,
                        round_s=OVERHEAD * 2 * default_s[size],
                        call_s=default_s[size],
                    )
                )
    taken = take_samples(trials, sampling, fewest=0, deadline_s=deadline_s, after_point=after_trial)
    samples = [
        PointSamples(point=point, candidate=TWIN, blocks=by_candidate[TWIN])
        for point, by_candidate in zip(trials, taken, strict=True)
        if TWIN in by_candidate and sum(len(one) for one, _ in by_candidate[TWIN]) >= num_rounds
    ]
    # Each is judged as one of as many comparisons as confirmation made, by its first step.
    judged = judge(
        samples, num_comparisons=comparisons, min_gain=min_gain, seed=seed, correction="bonferroni"
    )
    return NullTrials(num_trials=len(judged), num_wins=sum(one.passed for one in judged))

"""Jobs under the watch for drift. Its clock says what a test wants: a busy machine changes nothing."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import job_plan
import torch.distributed as dist

import topotune
from topotune.plan.model import COLLECTIVES
from topotune.train import drift
from topotune.train.detector import Rules
from topotune.train.drift import DriftOptions

QUICK = DriftOptions(rules=Rules(skip=2, window=4, order=1, learn=4, least_s=0.0), check_every_ns=10_000_000)
DEFAULT_S = 2.0


def join(num_ranks: int, timeout: timedelta = timedelta(seconds=60)) -> None:
    """A world under a plan, with detectors in a hurry."""
    drift.OPTIONS = QUICK
    topotune.use(job_plan.job_plan(num_ranks))
    dist.init_process_group("topotune", timeout=timeout)


def watch_of(group: Any = None) -> Any:
    """The watch of a group, or of the world."""
    return (dist.group.WORLD if group is None else group)._planned.calls.drift


def set_clock(group: Any = None) -> dict[str, float]:
    """Tell a group's watch that calls by the plan take what is returned, by collective, others DEFAULT_S."""
    watch = watch_of(group)
    takes_s = dict.fromkeys(COLLECTIVES, 1.0)
    begin, end = watch.begin, watch.end
    by_plan = []

    def begin_by(kind: Any, algorithm: str) -> bool:
        by_plan[:] = [begin(kind, algorithm)]
        return by_plan[0]

    watch.begin = begin_by
    watch.end = lambda kind, _: end(kind, takes_s[kind[0]] if by_plan[0] else DEFAULT_S)
    return takes_s


def call_until(ends: Callable[[], bool], call: Callable[[], object], *, most: int) -> int:
    """Call until ``ends()``, which must be so at the same call on all ranks; how often."""
    for number in range(1, most):
        call()
        if ends():
            return number
    raise AssertionError(f"nothing ended {most} calls")


def is_learnt() -> bool:
    """Calls are the same on all ranks, and so is how many of them teach."""
    return all(known.detector.usual_s is not None for known in watch_of().kinds.values())


def fallen(group: Any = None) -> set[str]:
    """The collectives of which calls have fallen back to the default."""
    return {known.kind[0] for known in watch_of(group).kinds.values() if known.fallen}

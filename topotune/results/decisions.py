"""What a tuning run decided at each message size, and why, from its journal alone."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from topotune.plan.lookup import find_row
from topotune.plan.model import Row
from topotune.results.tuning import Arm, TuningRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """One message size of a tuning run.

    Attributes:
        message_bytes: buffer on each rank.
        num_timed: candidates that the search timed to its end.
        num_given_up: that it left as hopeless.
        num_failed: that failed.
        best: the fastest candidate of the search; None where none was timed.
        best_ratio: default / best, in the search.
        finalist: what was to be confirmed; None where the default stayed.
        confirm_ratio: default / finalist, of medians over the fresh samples; None where there are none.
        num_confirm_samples: of the finalist.
        chosen: what the plan runs; None where the run did not end.
        why: in a sentence.
    """

    message_bytes: int
    num_timed: int
    num_given_up: int
    num_failed: int
    best: Arm | None
    best_ratio: float | None
    finalist: Arm | None
    confirm_ratio: float | None
    num_confirm_samples: int
    chosen: Arm | None
    why: str


def decisions_of(run: TuningRun) -> tuple[Decision, ...]:
    """One decision for each size that the default was timed at, ascending."""
    rows = () if run.plan is None else run.plan.groups[0].allreduce or ()
    sizes = sorted({trial.message_bytes for trial in run.trials if trial.purpose in ("pilot", "search")})
    return tuple(_decision(run, size, rows) for size in sizes)


def _decision(run: TuningRun, size: int, rows: Sequence[Row]) -> Decision:
    told = [one for one in run.told if one.message_bytes == size]
    best = min(
        (one for one in told if one.log_ratio is not None),
        key=lambda one: one.log_ratio or 0.0,
        default=None,
    )
    finalist = next((arm for at, arm in run.finalists if at == size and not arm.is_default), None)
    default_s, finalist_s = _confirmed(run, size, finalist)
    ratio = statistics.median(default_s) / statistics.median(finalist_s) if finalist_s else None
    decision = Decision(
        message_bytes=size,
        num_timed=sum(one.state == "COMPLETE" for one in told),
        num_given_up=sum(one.state == "PRUNED" for one in told),
        num_failed=sum(one.state == "FAIL" for one in told),
        best=None if best is None else best.arm,
        best_ratio=None if best is None or best.log_ratio is None else math.exp(-best.log_ratio),
        finalist=finalist,
        confirm_ratio=ratio,
        num_confirm_samples=len(finalist_s),
        chosen=_arm_of(find_row(rows, size)) if rows else None,
        why="",
    )
    margin = 0.0 if run.plan is None else run.plan.certificate.min_gain
    return replace(decision, why=_why(decision, margin))


def _why(one: Decision, margin: float) -> str:
    if one.chosen is None:
        return "the run ended before its decision"
    if not one.chosen.is_default:
        if one.finalist == one.chosen:
            return "confirmed on fresh samples, here and at the ends of its range"
        return "in the range of an algorithm that was confirmed at both ends of it"
    if not one.num_timed + one.num_given_up + one.num_failed:
        return "not searched: the budget has no time for this size"
    if one.finalist is not None:
        if one.confirm_ratio is None:
            return f"no time to confirm {one.finalist.label}"
        return f"the gain of {one.finalist.label} did not clear the margin in all of its range"
    if one.best is None or one.best_ratio is None:
        return "no candidate could be timed"
    if one.best_ratio <= 1 + margin:
        return f"no candidate was faster by {100 * margin:g} % in the search"
    return (
        f"{one.best.label} was faster in the search, but is unfit or untried beside a backward, or alone "
        "among its neighbours"
    )


def _confirmed(run: TuningRun, size: int, finalist: Arm | None) -> tuple[list[float], list[float]]:
    """Fresh samples of the default and of the finalist."""
    default_s: list[float] = []
    finalist_s: list[float] = []
    for trial in run.trials:
        if trial.purpose == "confirm" and trial.message_bytes == size and finalist in trial.arms:
            for index, arm in enumerate(trial.arms):
                if arm == finalist:
                    finalist_s.extend(trial.samples_s(index))
                elif arm.is_default:
                    default_s.extend(trial.samples_s(index))
    return (default_s, finalist_s) if default_s and finalist_s else ([], [])


def _arm_of(row: Row) -> Arm:
    return Arm(
        algorithm=row.algorithm,
        params_json=json.dumps(dict(row.params), sort_keys=True, separators=(",", ":")),
    )

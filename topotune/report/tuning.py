"""A tuning run's journal as text, and as a short document."""

import math
from collections import Counter
from typing import Any, Final

from topotune.report.columns import align
from topotune.results.tuning import Told, TuningRun
from topotune.units import format_bytes, format_seconds

SCHEMA: Final = "topotune/tuning-run"
SCHEMA_VERSION: Final = 1


def _best(run: TuningRun) -> dict[int, Told]:
    """Of each size the fastest candidate that was measured to the end."""
    best: dict[int, Told] = {}
    for one in run.told:
        if one.state != "COMPLETE" or one.log_ratio is None:
            continue
        before = best.get(one.message_bytes)
        if before is None or before.log_ratio is None or one.log_ratio < before.log_ratio:
            best[one.message_bytes] = one
    return dict(sorted(best.items()))


def tuning_run_to_document(run: TuningRun) -> dict[str, Any]:
    """What a journal tells, in short: counts of trials by purpose, the best at each size, how it ended."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "topotune_version": run.topotune_version,
        "num_ranks": run.num_ranks,
        "budget_s": run.budget_s,
        "num_trials": dict(sorted(Counter(trial.purpose for trial in run.trials).items())),
        "num_unfinished": sum(trial.end_s is None for trial in run.trials),
        "num_resumed": run.num_resumed,
        "ended": run.plan is not None,
        "best": [
            {
                "message_bytes": size,
                "algorithm": one.arm.label,
                "ratio": math.exp(-(one.log_ratio or 0.0)),
                "num_rounds": one.num_rounds,
            }
            for size, one in _best(run).items()
        ],
        "warnings": list(run.problems),
    }


def describe_tuning_run(run: TuningRun) -> str:
    """The run for people; the best of many looks better than it is, and the plan says what was confirmed."""
    ranks = "" if run.num_ranks is None else f" of {run.num_ranks} ranks"
    budget = "" if run.budget_s is None else f", budget {format_seconds(run.budget_s)}"
    ended = "it ended with a plan" if run.plan is not None else "it did not come to its end"
    counts = Counter(trial.purpose for trial in run.trials)
    parts = [
        f"tuning run{ranks}{budget}: {ended}",
        "trials: " + (", ".join(f"{number} {name}" for name, number in counts.items()) or "none"),
    ]
    if run.num_resumed:
        parts.append(f"resumed {run.num_resumed} times")
    best = _best(run)
    if best:
        parts.append(
            align(
                ["message size", "best in the search", "default / it", "rounds"],
                [
                    [
                        format_bytes(size),
                        one.arm.label,
                        f"{math.exp(-(one.log_ratio or 0.0)):.2f}",
                        str(one.num_rounds),
                    ]
                    for size, one in best.items()
                ],
                left=(0, 1),
            )
        )
    parts.extend(f"warning: {problem}" for problem in run.problems)
    return "\n".join(parts)

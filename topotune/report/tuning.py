"""A tuning run's journal as text, and as a short document."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from topotune.report.columns import align
from topotune.results.tuning import Told, Trial, TuningRun
from topotune.units import format_bytes, format_seconds

SCHEMA: Final = "topotune/tuning-run"
SCHEMA_VERSION: Final = 1


def _best(told: Sequence[Told]) -> dict[int, Told]:
    """Of each size the fastest candidate that was measured to the end."""
    best: dict[int, Told] = {}
    for one in told:
        if one.state != "COMPLETE" or one.log_ratio is None:
            continue
        before = best.get(one.message_bytes)
        if before is None or before.log_ratio is None or one.log_ratio < before.log_ratio:
            best[one.message_bytes] = one
    return dict(sorted(best.items()))


def tuning_run_to_document(run: TuningRun) -> dict[str, Any]:
    """What a journal tells, in short: counts of trials by purpose, the best at each size, how it ended.

    Counts and sizes are of the world's allreduce; the tables beside it stand under ``tables``.
    """
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "topotune_version": run.topotune_version,
        "num_ranks": run.num_ranks,
        "budget_s": run.budget_s,
        **_counted(run.trials, run.told),
        "num_resumed": run.num_resumed,
        "ended": run.plan is not None,
        "tables": [
            {
                "collective": table.collective,
                "group": table.group,
                **_counted(table.trials, table.told),
                "chosen": table.chosen,
            }
            for table in run.tables
        ],
        "warnings": list(run.problems),
    }


def _counted(trials: Sequence[Trial], told: Sequence[Told]) -> dict[str, Any]:
    """Counts of a table's trials, and the best of its search."""
    return {
        "num_trials": dict(sorted(Counter(trial.purpose for trial in trials).items())),
        "num_unfinished": sum(trial.end_s is None for trial in trials),
        "best": [
            {
                "message_bytes": size,
                "algorithm": one.arm.label,
                "ratio": math.exp(-(one.log_ratio or 0.0)),
                "num_rounds": one.num_rounds,
            }
            for size, one in _best(told).items()
        ],
    }


def describe_tuning_run(run: TuningRun) -> str:
    """The run for people; the best of many looks better than it is, and the plan says what was confirmed."""
    ranks = "" if run.num_ranks is None else f" of {run.num_ranks} ranks"
    budget = "" if run.budget_s is None else f", budget {format_seconds(run.budget_s)}"
    ended = "it ended with a plan" if run.plan is not None else "it did not come to its end"
    parts = [f"tuning run{ranks}{budget}: {ended}", _trials_in_words(run.trials)]
    if run.num_resumed:
        parts.append(f"resumed {run.num_resumed} times")
    parts.extend(_best_in_words(run.told))
    for table in run.tables:
        state = "its rows were chosen" if table.chosen else "its rows were not chosen yet"
        parts.append(f"\n{table.title}: {state}")
        parts.append(_trials_in_words(table.trials))
        parts.extend(_best_in_words(table.told))
    parts.extend(f"warning: {problem}" for problem in run.problems)
    return "\n".join(parts)


def _trials_in_words(trials: Sequence[Trial]) -> str:
    counts = Counter(trial.purpose for trial in trials)
    return "trials: " + (", ".join(f"{number} {name}" for name, number in counts.items()) or "none")


def _best_in_words(told: Sequence[Told]) -> list[str]:
    """A table of the best at each size; nothing where nothing was searched to its end."""
    best = _best(told)
    if not best:
        return []
    rows = [
        [
            format_bytes(size),
            one.arm.label,
            f"{math.exp(-(one.log_ratio or 0.0)):.2f}",
            str(one.num_rounds),
        ]
        for size, one in best.items()
    ]
    return [align(["message size", "best in the search", "default / it", "rounds"], rows, left=(0, 1))]

"""Tuning runs as data frames."""

import math
import statistics
from collections.abc import Iterator
from typing import Any

import pandas as pd

from topotune.frames.frame import frame
from topotune.results.decisions import decisions_of
from topotune.results.tuning import Arm, Trial, TunedTable, TuningRun


def trials(run: TuningRun) -> pd.DataFrame:
    """One row for each arm of each trial: of the world's allreduce, then of the tables beside it.

    In the order in which they began. ``ratio`` is default / arm by their medians, where the default ran in
    the same trial; ``end_s`` is missing in a trial that never ended. Each table has a clock of its own.
    """
    return frame(
        (
            "number", "purpose", "message_bytes", "condition", "start_s", "end_s", "arm", "num_samples",
            "median_s", "ratio", "num_missed", "problem", "collective", "group",
        ),
        (
            (*row, *whose)
            for table, whose in _tables(run)
            for trial in table.trials
            for row in _arms(trial)
        ),
    )  # fmt: skip


def _tables(run: TuningRun) -> Iterator[tuple[TuningRun | TunedTable, tuple[str, str]]]:
    """All tables of a run, with their collective and group."""
    yield run, ("allreduce", "world")
    for table in run.tables:
        yield table, (table.collective, table.group)


def _arms(trial: Trial) -> Iterator[tuple[Any, ...]]:
    samples = [trial.samples_s(index) for index in range(len(trial.arms))]
    medians = [statistics.median(own) if own else None for own in samples]
    default_s = next(
        (own for arm, own in zip(trial.arms, medians, strict=True) if arm.is_default and own is not None),
        None,
    )
    for arm, own, median_s in zip(trial.arms, samples, medians, strict=True):
        ratio = None
        if default_s is not None and median_s is not None and not arm.is_default:
            ratio = default_s / median_s
        yield (
            trial.number, trial.purpose, trial.message_bytes, trial.condition, trial.start_s, trial.end_s,
            arm.label, len(own), median_s, ratio, trial.num_missed, trial.problem,
        )  # fmt: skip


def candidates(run: TuningRun) -> pd.DataFrame:
    """One row for each arm and message size, over all trials beside an idle main thread."""

    def order(item: tuple[Arm, object]) -> tuple[bool, str]:
        return not item[0].is_default, item[0].label

    return frame(
        (
            "arm", "message_bytes", "median_s", "median_s_low", "median_s_high", "num_samples", "collective",
            "group",
        ),
        (
            (arm.label, size, median_s, *interval_s, count, *whose)
            for table, whose in _tables(run)
            for arm, sizes in sorted(table.curves().items(), key=order)
            for size, (median_s, interval_s, count) in sizes.items()
        ),
    )  # fmt: skip


def decisions(run: TuningRun) -> pd.DataFrame:
    """One row a message size: what was tried, what came first, what the plan runs, and why.

    Of the world's allreduce. ``ratio_in_search`` is default / best, ``ratio_confirmed`` default / finalist on
    fresh samples.
    """
    return frame(
        (
            "message_bytes", "chosen", "why", "num_timed", "num_given_up", "num_failed", "best",
            "ratio_in_search", "finalist", "ratio_confirmed", "num_confirm_samples",
        ),
        (
            (
                one.message_bytes, _label(one.chosen), one.why, one.num_timed, one.num_given_up,
                one.num_failed, _label(one.best), one.best_ratio, _label(one.finalist), one.confirm_ratio,
                one.num_confirm_samples,
            )
            for one in decisions_of(run)
        ),
    )  # fmt: skip


def _label(arm: Arm | None) -> str | None:
    return None if arm is None else arm.label


def verdicts(run: TuningRun) -> pd.DataFrame:
    """One row for each candidate that the search was done with; ``ratio`` is default / candidate."""
    return frame(
        (
            "message_bytes", "candidate", "verdict", "ratio", "num_rounds", "finalist", "problem",
            "collective", "group",
        ),
        (
            (
                one.message_bytes, one.arm.label, one.state.lower(),
                None if one.log_ratio is None else math.exp(-one.log_ratio), one.num_rounds,
                (one.message_bytes, one.arm) in table.finalists, one.problem, *whose,
            )
            for table, whose in _tables(run)
            for one in table.told
        ),
    )  # fmt: skip

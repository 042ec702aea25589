"""The training step's part in ``tune`` and ``compare``, on rank 0: with what options, and how long."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from topotune.plan import Plan, Row
from topotune.plan.nccl import NCCL
from topotune.step.gradients import Gradients
from topotune.train.ddp import expressible, takes_cap_list
from topotune.tune.blocks import Block
from topotune.tune.options import CompareOptions, TuneOptions
from topotune.tune.progress import OnProgress, Progress
from topotune.tune.step_bench import StepBench
from topotune.tune.step_choice import choose_buckets
from topotune.tune.step_compare import compare_steps
from topotune.tune.timing import TorchBench

ROWS_SHARE: Final = 0.7
"""Of the budget, where a training step is measured, too: what the rows may take."""

_STEP_ENDS: Final = 0.97


def rows_progress(report: OnProgress, budget_s: float) -> OnProgress:
    """For the rows' part of a run that goes on with a step: their share of the whole; they end nothing."""

    def on_progress(now: Progress) -> None:
        if now.phase != "done":
            later_s = (1 - ROWS_SHARE) * budget_s
            report(replace(now, done=ROWS_SHARE * now.done, seconds_left=now.seconds_left + later_s))

    return on_progress


def with_buckets(plan: Plan, gradients: Gradients, options: TuneOptions, bench: TorchBench) -> Plan:
    """The plan with DDP's buckets, chosen in what is left of the budget.

    Args:
        plan: with its rows.
        gradients: of the job.
        options: of the run; with a step.
        bench: of rank 0.
    """
    assert options.step is not None
    choice = choose_buckets(
        StepBench(
            bench.command, options.step.compute_on(options.backend), np.random.default_rng(options.seed)
        ),
        plan,
        gradients,
        takes_list=takes_cap_list(),
        min_gain=options.min_gain,
        seed=options.seed,
        now_s=bench.now_s,
        deadline_s=_STEP_ENDS * options.budget_s,
    )
    return replace(
        plan,
        ddp=choice.ddp,
        context=replace(plan.context, elapsed_s=bench.now_s()),
        warnings=(
            *plan.warnings,
            *without_settings(plan.groups[0].allreduce or ()),
            *choice.warnings,
        ),
    )


def compared_step(
    plan: Plan,
    rows: Sequence[Row],
    gradients: Gradients,
    options: CompareOptions,
    bench: TorchBench,
    *,
    on_step: Callable[[Block], None] = lambda _samples: None,
) -> tuple[dict[str, Any] | None, list[str]]:
    """A step under the plan against one without, as JSON; and warnings.

    Args:
        plan: in use by the ``topotune`` group.
        rows: its table for these ranks.
        gradients: of the job.
        options: of the comparison; with a step.
        bench: of rank 0.
        on_step: gets the samples.
    """
    assert options.step is not None
    caps = None if plan.ddp is None else plan.ddp.bucket_caps_mb
    step, warnings = compare_steps(
        StepBench(
            bench.command, options.step.compute_on(options.backend), np.random.default_rng(options.seed)
        ),
        rows,
        gradients,
        # What a job under the plan gets.
        caps_mb=caps if caps is not None and expressible(caps) else None,
        seed=options.seed,
        now_s=bench.now_s,
        deadline_s=options.budget_s,
        on_step=on_step,
    )
    return step, [*(without_settings(rows) if step is not None else ()), *warnings]


def without_settings(rows: Sequence[Row]) -> list[str]:
    """That steps ran without some rows: NCCL's settings act by its tuner plugin, which is not loaded here."""
    count = sum(row.algorithm == NCCL for row in rows)
    if not count:
        return []
    return [
        f"{count} row{'s' * (count > 1)} of NCCL's own settings act{'s' * (count == 1)} through its tuner "
        "plugin alone: buckets follow from the times there, "
        "but the training steps that were run had NCCL's own choice there"
    ]

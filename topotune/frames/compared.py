"""Comparisons, predictions, optima, checks and schedules as data frames."""

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from topotune.frames.frame import frame
from topotune.links.check import Check
from topotune.plan.describe import params_in_words
from topotune.results.comparison import ComparedSize, Comparison
from topotune.results.optimum import OptimumResult
from topotune.schedule.model import REDUCE, Schedule
from topotune.simulate.document import Prediction
from topotune.step.timeline import Timeline


def compared_sizes(comparison: Comparison) -> pd.DataFrame:
    """One row a message size of the allreduce over all ranks; ``ratio`` is default / plan."""
    return frame(_SIZE_COLUMNS, map(_of_size, comparison.sizes))


def compared_tables(comparison: Comparison) -> pd.DataFrame:
    """One row for each message size of each other collective and group; ``num_ranks`` is of one group."""
    return frame(
        ("collective", "group", "num_ranks", *_SIZE_COLUMNS),
        (
            (table.collective, table.group, table.num_ranks, *_of_size(one))
            for table in comparison.tables
            for one in table.sizes
        ),
    )


_SIZE_COLUMNS: Final = (
    "message_bytes", "default_median_s", "plan_median_s", "ratio", "ratio_low", "ratio_high",
    "num_samples", "verdict", "algorithm",
)  # fmt: skip


def _of_size(one: ComparedSize) -> tuple[Any, ...]:
    return (
        one.message_bytes, one.default_median_s, one.plan_median_s, one.ratio, *one.ratio_ci,
        one.num_samples, one.verdict, one.algorithm,
    )  # fmt: skip


def compared_steps(comparison: Comparison) -> pd.DataFrame:
    """One row where a training step was compared; ``ratio`` is default / plan."""
    step = comparison.step
    return frame(
        (
            "default_median_s", "plan_median_s", "ratio", "ratio_low", "ratio_high", "num_samples", "verdict",
            "gradients", "compute", "bound",
        ),
        []
        if step is None
        else [
            (
                step.default_median_s, step.plan_median_s, step.ratio, *step.ratio_ci, step.num_samples,
                step.verdict, step.gradients, step.compute, step.bound,
            )
        ],
    )  # fmt: skip


def step_buckets(comparison: Comparison) -> pd.DataFrame:
    """One row for each bucket of the compared step, as `topotune.frames.timeline_buckets`, by the model."""
    step = comparison.step
    found = () if step is None else (("default", step.default_timeline), ("plan", step.plan_timeline))
    return timeline_buckets({way: timeline for way, timeline in found if timeline is not None})


def timeline_buckets(timelines: Mapping[str, Timeline]) -> pd.DataFrame:
    """One row for each bucket of some steps, in the order of sending; times are from the backward's start.

    ``exposed_s`` is the part of its exchange that lies behind the end of the backward.

    Args:
        timelines: of each way to run the step, by its name.
    """
    return frame(
        ("way", "number", "bucket_bytes", "complete_s", "start_s", "end_s", "exposed_s", "backward_s"),
        (
            (
                way, number, size, complete_s, start_s, end_s,
                max(0.0, end_s - max(start_s, timeline.backward_s)), timeline.backward_s,
            )
            for way, timeline in timelines.items()
            for number, (size, complete_s, start_s, end_s) in enumerate(
                zip(timeline.sizes, timeline.complete_s, timeline.starts_s, timeline.ends_s, strict=True)
            )
        ),
    )  # fmt: skip


def predictions(prediction: Prediction) -> pd.DataFrame:
    """One row for each algorithm with its parameters at each message size, fastest first."""
    return frame(
        ("message_bytes", "algorithm", "params", "time_s", "optimum_s", "of_optimum_percent"),
        (
            (
                size.message_bytes, one.algorithm,
                ", ".join(f"{name}={words}" for name, words in params_in_words(one.params).items()),
                one.time_s, size.optimum_s, one.percent_of_optimum,
            )
            for size in prediction.sizes
            for one in size.predictions
        ),
    )  # fmt: skip


def nccl_choices(prediction: Prediction) -> pd.DataFrame:
    """One row for each message size: what NCCL would run, and the time that it expects itself."""
    return frame(
        ("message_bytes", "nccl_version", "algorithm", "protocol", "time_s", "of_optimum_percent"),
        (
            (
                size.message_bytes, prediction.nccl_version, size.nccl.algorithm, size.nccl.protocol,
                size.nccl.time_s, size.nccl.percent_of_optimum,
            )
            for size in prediction.sizes
            if size.nccl is not None
        ),
    )  # fmt: skip


def optima(result: OptimumResult) -> pd.DataFrame:
    """One row a collective: the best rates, and what holds them back; allreduce also where switches add."""
    found = result.optima
    return frame(
        ("collective", "algbw_bytes_per_s", "busbw_bytes_per_s", "exact", "bottleneck", "num_in_cut"),
        (
            (name, one.algbw_bytes_per_s, one.busbw_bytes_per_s, one.exact, one.text, len(one.cut))
            for name, one in (
                ("allreduce", found.allreduce),
                ("allgather", found.allgather),
                ("reduce_scatter", found.reduce_scatter),
                ("allreduce, switches adding", found.allreduce_in_network),
                ("allreduce, servers adding", found.allreduce_served),
            )
            if one is not None
        ),
    )


def least_times(result: OptimumResult) -> pd.DataFrame:
    """One row for each message size that was asked for: what an allreduce takes at least."""
    return frame(
        ("message_bytes", "time_s", "flat_ring_time_s"),
        ((one.message_bytes, one.time_s, one.flat_ring_time_s) for one in result.sizes),
    )


def findings(check: Check) -> pd.DataFrame:
    """One row a finding, the gravest first; ``cost_percent`` is of allreduce time."""
    return frame(
        ("severity", "code", "where", "evidence", "cost_percent", "advice"),
        (
            (one.severity, one.code, one.where, one.evidence, one.cost_percent, one.advice)
            for one in check.findings
        ),
    )


def transfers(schedule: Schedule) -> pd.DataFrame:
    """One row a transfer; ``share_percent`` is of the message."""
    share_percent = 100 * schedule.chunk_fractions()
    return pd.DataFrame(
        {
            "step": schedule.step,
            "channel": schedule.channel,
            "src": schedule.src,
            "dst": schedule.dst,
            "chunk": schedule.chunk,
            "op": pd.Series(schedule.op == REDUCE).map({True: "reduce", False: "copy"}),
            "share_percent": share_percent[schedule.chunk],
        }
    )

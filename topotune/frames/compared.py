"""Comparisons, predictions, optima, checks and schedules as data frames."""

import pandas as pd

from topotune.frames.frame import frame
from topotune.links.check import Check
from topotune.plan.describe import params_in_words
from topotune.results.comparison import Comparison
from topotune.results.optimum import OptimumResult
from topotune.schedule.model import REDUCE, Schedule
from topotune.simulate.document import Prediction


def compared_sizes(comparison: Comparison) -> pd.DataFrame:
    """One row a message size; ``ratio`` is default / plan."""
    return frame(
        (
            "message_bytes", "default_median_s", "plan_median_s", "ratio", "ratio_low", "ratio_high",
            "num_samples", "verdict", "algorithm",
        ),
        (
            (
                one.message_bytes, one.default_median_s, one.plan_median_s, one.ratio, *one.ratio_ci,
                one.num_samples, one.verdict, one.algorithm,
            )
            for one in comparison.sizes
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

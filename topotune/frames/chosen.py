"""Plans as data frames."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from topotune.frames.frame import ends, frame
from topotune.plan.describe import params_in_words
from topotune.plan.model import COLLECTIVES, Plan, Row
from topotune.units import MIB


def plan_rows(plan: Plan) -> pd.DataFrame:
    """One row for each size range of each table of each group, with its evidence.

    ``max_bytes`` is exclusive, missing in the last row of a table; ``ratio`` is default / plan.
    """
    return frame(
        (
            "group", "num_ranks", "num_nodes", "ranks_per_node", "collective", "min_bytes", "max_bytes",
            "algorithm", "params", "measured_bytes", "default_median_s", "plan_median_s", "ratio",
            "ratio_low", "ratio_high", "num_samples", "extrapolated", "predicted_s",
            "of_optimum_percent", "bottleneck", "no_bound_reason",
        ),
        _rows(plan),
    )  # fmt: skip


def _rows(plan: Plan) -> Iterator[tuple[Any, ...]]:
    for number, group in enumerate(plan.groups):
        shape = group.shape
        for collective in COLLECTIVES:
            table: tuple[Row, ...] | None = getattr(group, collective)
            for row in table or ():
                evidence = row.evidence
                yield (
                    number, shape.num_ranks, shape.num_nodes, shape.ranks_per_node, collective,
                    row.min_bytes, row.max_bytes, row.algorithm,
                    ", ".join(f"{name}={words}" for name, words in params_in_words(row.params).items()),
                    *(
                        (None,) * 9
                        if evidence is None
                        else (
                            evidence.measured_bytes, evidence.default_median_s, evidence.median_s,
                            evidence.ratio, *evidence.ratio_ci, evidence.num_samples, evidence.extrapolated,
                            evidence.predicted_s,
                        )
                    ),
                    row.percent_of_optimum, None if row.bottleneck is None else row.bottleneck.text,
                    row.no_bound_reason,
                )  # fmt: skip


def plan_links(plan: Plan) -> pd.DataFrame:
    """One row for each fitted class of links, as `topotune.frames.link_classes`."""
    return frame(
        (
            "links", "num_pairs", "latency_s", "latency_s_low", "latency_s_high", "bandwidth_bytes_per_s",
            "bandwidth_bytes_per_s_low", "bandwidth_bytes_per_s_high", "fit_error_percent",
        ),
        (
            (
                one.name, one.num_pairs, one.latency_s, *ends(one.latency_ci_s), one.bandwidth_bytes_per_s,
                *ends(one.bandwidth_ci_bytes_per_s),
                None if one.max_relative_error is None else 100 * one.max_relative_error,
            )
            for one in plan.links
        ),
    )  # fmt: skip


def plan_step(plan: Plan) -> pd.DataFrame:
    """One row where buckets were chosen: what a training step takes with them.

    ``ratio`` is torch's own / plan; figures are missing where no step was run.
    """
    ddp = plan.ddp
    if ddp is None:
        rows = []
    else:
        evidence = ddp.evidence
        rows = [
            (
                "torch's own" if ddp.bucket_caps_mb is None else "the plan's",
                *(
                    (None,) * 6
                    if evidence is None
                    else (
                        evidence.default_median_s, evidence.median_s, evidence.ratio, *evidence.ratio_ci,
                        evidence.num_samples,
                    )
                ),
                None if ddp.projection_loss is None else 100 * ddp.projection_loss,
                ddp.gradients, ddp.compute, ddp.bound,
            )
        ]  # fmt: skip
    return frame(
        (
            "buckets", "default_median_s", "plan_median_s", "ratio", "ratio_low", "ratio_high", "num_samples",
            "projection_loss_percent", "gradients", "compute", "bound",
        ),
        rows,
    )  # fmt: skip


def plan_buckets(plan: Plan) -> pd.DataFrame:
    """One row for each bucket that results, in the order of sending.

    ``cap_bytes`` is missing where the rule is torch's own.
    """
    layout = () if plan.ddp is None else plan.ddp.layout_bytes or ()
    caps = None if plan.ddp is None else plan.ddp.bucket_caps_mb
    return frame(
        ("number", "bucket_bytes", "cap_bytes"),
        (
            (number, size, None if caps is None else int(caps[min(number, len(caps) - 1)] * MIB))
            for number, size in enumerate(layout)
        ),
    )


def certificate(plan: Plan) -> pd.DataFrame:
    """One row: how the choice was confirmed."""
    one = plan.certificate
    rate, ci = one.false_win_rate, one.false_win_rate_ci
    return frame(
        (
            "method", "num_comparisons", "correction", "confidence_percent", "min_gain_percent",
            "false_win_percent", "false_win_percent_low", "false_win_percent_high", "num_null_trials",
        ),
        [
            (
                one.method, one.num_comparisons, one.correction, 100 * one.confidence, 100 * one.min_gain,
                None if rate is None else 100 * rate,
                *ends(None if ci is None else (100 * ci[0], 100 * ci[1])), one.num_null_trials,
            )
        ],
    )  # fmt: skip

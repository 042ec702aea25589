"""Gradients and training steps as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from topotune.plan.model import Ddp
from topotune.report.columns import align
from topotune.step.buckets import ddp_buckets, layout_of, limits_of
from topotune.step.gradients import Gradients
from topotune.units import format_bytes, format_seconds

_SHOWN = 12


def describe_gradients(gradients: Gradients) -> str:
    """What a job exchanges, and what DDP makes of it by itself; the largest gradients, in their order."""
    layout = layout_of(gradients.gradients, ddp_buckets(gradients, limits_of(None)))
    largest = sorted(gradients.gradients, key=lambda one: -one.num_bytes)[:_SHOWN]
    least = largest[-1].num_bytes
    shown = [(index, one) for index, one in enumerate(gradients.gradients) if one.num_bytes >= least][:_SHOWN]
    rows = []
    for index, one in shown:
        share = one.ready_s / gradients.backward_s
        ready = format_seconds(one.ready_s) if gradients.timed else "–"
        rows.append([str(index), format_bytes(one.num_bytes), one.dtype, ready, f"{share:.0%}"])
    parts = [
        gradients.in_words(),
        _sizes("DDP's own buckets: ", layout),
        align(["gradient", "size", "type", "ready", "of the backward"], rows, left=(2,)),
    ]
    if len(gradients.gradients) > len(shown):
        parts.append(f"  and {len(gradients.gradients) - len(shown)} smaller ones")
    parts.extend(f"warning: {warning}" for warning in gradients.warnings)
    return "\n".join(parts)


def describe_buckets(ddp: Ddp) -> str:
    """What a plan says about DDP's buckets, and on what evidence."""
    if ddp.bucket_caps_mb is None:
        lines = ["DDP buckets: torch's own" + _sizes(": ", ddp.layout_bytes)]
    else:
        caps = ", ".join(f"{cap:.4g} MiB" for cap in ddp.bucket_caps_mb[:_SHOWN])
        more = f" … ({len(ddp.bucket_caps_mb)} in all)" if len(ddp.bucket_caps_mb) > _SHOWN else ""
        lines = [f"DDP buckets: caps {caps}{more}" + _sizes(", which makes ", ddp.layout_bytes)]
    if ddp.gradients is not None:
        by = "" if ddp.compute is None else f"; the backward emulated by {ddp.compute}"
        lines.append(f"  {ddp.gradients}{by}")
    if ddp.bound is not None:
        lines.append(f"  {ddp.bound}")
    evidence = ddp.evidence
    if evidence is not None and ddp.bucket_caps_mb is not None:
        low, high = evidence.ratio_ci
        own = format_seconds(evidence.default_median_s)
        lines.append(
            f"  a step of {format_seconds(evidence.median_s)} against {own} with torch's own: "
            f"ratio {evidence.ratio:.2f} ({low:.2f} … {high:.2f}), {evidence.num_samples} steps"
        )
    if ddp.projection_loss is not None and ddp.bucket_caps_mb is not None:
        lines.append(
            f"  by the model {100 * ddp.projection_loss:.1f} % off the best buckets that there could be"
        )
    return "\n".join(lines)


def describe_step(step: Mapping[str, Any]) -> str:
    """A step of a comparison."""
    low, high = step["ratio_ci"]
    threads = step["num_threads"]
    plural = "s" if threads > 1 else ""
    where = "GPUs" if step["compute"] == "spin" else f"{threads} thread{plural}"
    lines = [
        f"training step: {format_seconds(step['plan_median_s'])} under the plan, "
        f"{format_seconds(step['default_median_s'])} without: ratio {step['ratio']:.2f} "
        f"({low:.2f} … {high:.2f}), {step['verdict']}, {step['num_samples']} pairs",
        f"  {step['gradients']}; the backward emulated by {step['compute']} on {where}",
    ]
    if step.get("outlier_share") is not None:
        lines.append(
            f"  {step['outlier_share']:.1%} of the samples were outliers, none was removed, neighbours "
            f"correlate by {step['autocorrelation']:.2f}, "
            + ("times have two modes" if step["two_modes"] else "none has two modes")
        )
    if step["bound"] is not None:
        lines.append(f"  without the plan it is {step['bound']['text']}")
    lines.append(f"  DDP's own buckets: {_sizes('', step['default_layout_bytes'])}")
    if step["plan_layout_bytes"] and step["plan_layout_bytes"] != step["default_layout_bytes"]:
        lines.append(f"  the plan's: {_sizes('', step['plan_layout_bytes'])}")
    return "\n".join(lines)


def _sizes(before: str, layout_bytes: Sequence[int] | None) -> str:
    if not layout_bytes:
        return ""
    shown = ", ".join(format_bytes(num_bytes) for num_bytes in layout_bytes[:_SHOWN])
    return before + shown + (f" … ({len(layout_bytes)} in all)" if len(layout_bytes) > _SHOWN else "")

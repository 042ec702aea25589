"""Gradients and training steps as text."""

from topotune.report.text import align
from topotune.step.buckets import assign_buckets, layout_of, limits_of
from topotune.step.gradients import Gradients
from topotune.units import format_bytes, format_seconds

_SHOWN = 12


def describe_gradients(gradients: Gradients) -> str:
    """What a job exchanges, and what DDP makes of it by itself; the largest gradients, in their order."""
    layout = layout_of(gradients.gradients, assign_buckets(gradients.gradients, limits_of(None)))
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
        "DDP's own buckets: "
        + ", ".join(format_bytes(num_bytes) for num_bytes in layout[:_SHOWN])
        + (f" … ({len(layout)} in all)" if len(layout) > _SHOWN else ""),
        align(["gradient", "size", "type", "ready", "of the backward"], rows, left=(2,)),
    ]
    if len(gradients.gradients) > len(shown):
        parts.append(f"  and {len(gradients.gradients) - len(shown)} smaller ones")
    parts.extend(f"warning: {warning}" for warning in gradients.warnings)
    return "\n".join(parts)

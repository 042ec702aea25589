"""What bounds a training step, in one line with figures: what to look at before any knob is turned.

One cause is named, the first of these that holds. Ranks wait longer for the slowest backward than the
exchange adds: skew. The exchange adds next to nothing: compute. Most of what it adds would be there if all
bytes went at the best rate that any size reaches: wire. Most of the exchange is what a call costs however
small it is: launch. The last bucket, which begins when the backward ends, takes most of what the exchange
adds: tail-bucket. Else, wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from topotune.step.curve import Curve
from topotune.units import format_bytes, format_rate, format_seconds

Kind = Literal["compute", "skew", "launch", "tail-bucket", "wire"]

_HIDDEN: Final = 0.05
"""An exchange that adds less than this share to the step is hidden: the rest is the backward's."""

_MOST_OF: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBound:
    """What bounds a step.

    Attributes:
        kind: ``compute``: the backward hides the exchange; ``skew``: ranks wait for the slowest backward;
            ``launch``: what each bucket costs, however small; ``tail-bucket``: the last bucket; ``wire``: the
            bytes.
        text: one line with figures.
        step_s: measured, from the common start to the last rank's end.
        backward_s: of the slowest rank, alone.
        exposed_s: what the exchange adds.
        exchange_s: what all buckets take, one after the other.
        tail_s: what the last bucket takes.
        skew_s: between the fastest and the slowest rank's backward.
    """

    kind: Kind
    text: str
    step_s: float
    backward_s: float
    exposed_s: float
    exchange_s: float
    tail_s: float
    skew_s: float


def bound_of_step(
    step_s: float, backward_by_rank_s: Sequence[float], layout_bytes: Sequence[int], curve: Curve
) -> StepBound:
    """What bounds a step that was measured.

    Args:
        step_s: median, from the common start to the last rank's end.
        backward_by_rank_s: each rank's backward alone, without exchange.
        layout_bytes: the buckets.
        curve: of one allreduce.
    """
    backward_s = max(backward_by_rank_s)
    skew_s = backward_s - min(backward_by_rank_s)
    exposed_s = max(0.0, step_s - backward_s)
    times_s = [curve.time_s(num_bytes) for num_bytes in layout_bytes]
    exchange_s, tail_s, total = sum(times_s), times_s[-1], sum(layout_bytes)
    launch_s = len(layout_bytes) * curve.launch_s
    # However the bytes are cut, and however well the backward hides them, so much would be left over.
    left_over_s = total * curve.best_seconds_per_byte - backward_s
    count = f"{len(layout_bytes)} buckets" if len(layout_bytes) > 1 else "1 bucket"
    step, backward, exposed = map(format_seconds, (step_s, backward_s, exposed_s))
    adds = f"the exchange adds {exposed} to a backward of {backward}"
    kind: Kind
    if skew_s > _HIDDEN * step_s and skew_s >= exposed_s:
        kind = "skew"
        text = (
            f"ranks wait {format_seconds(skew_s)} of a step of {step} for the slowest backward "
            f"({format_seconds(min(backward_by_rank_s))} to {backward})"
        )
    elif exposed_s <= _HIDDEN * step_s:
        kind = "compute"
        text = f"a step of {step} hides all but {exposed} of {format_seconds(exchange_s)} of exchange"
    elif left_over_s < _MOST_OF * exposed_s and launch_s >= _MOST_OF * exchange_s:
        kind = "launch"
        text = (
            f"{adds}; {count} cost {format_seconds(curve.launch_s)} each however small, "
            f"{format_seconds(launch_s)} of {format_seconds(exchange_s)} of exchange"
        )
    elif left_over_s < _MOST_OF * exposed_s and tail_s >= _MOST_OF * exposed_s:
        kind = "tail-bucket"
        text = (
            f"{adds}; the last bucket of {format_bytes(layout_bytes[-1])} alone takes "
            f"{format_seconds(tail_s)}"
        )
    else:
        kind = "wire"
        text = (
            f"{adds}; {format_bytes(total)} in {count} take {format_seconds(exchange_s)}, "
            f"{format_rate(total / exchange_s)}"
        )
    return StepBound(
        kind=kind,
        text=f"{kind}-bound: {text}",
        step_s=step_s,
        backward_s=backward_s,
        exposed_s=exposed_s,
        exchange_s=exchange_s,
        tail_s=tail_s,
        skew_s=skew_s,
    )

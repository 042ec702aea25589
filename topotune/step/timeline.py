"""When buckets are exchanged beside a backward, and what of the exchange the backward does not hide.

The model. One exchange runs at a time, in the order of the buckets; a bucket begins when it is complete and
the one ahead of it has ended: start(i) = max(ready(i), end(i-1)), end(i) = start(i) + T(bytes of i). The step
ends with the backward or the last bucket, whichever is later. What exchange and backward cost each other
(cores, memory) is not in it: measuring finds that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from topotune.step.buckets import Buckets
from topotune.step.gradients import Gradients

TimeOf = Callable[[float], float]
"""Seconds of one allreduce of so many bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """A step as the model sees it.

    Attributes:
        sizes: bytes of each bucket, in the order of sending.
        complete_s: when each may be sent, it and all ahead of it being complete.
        starts_s, ends_s: of each bucket's exchange. All times are from the start of the backward.
        backward_s: the backward's length.
    """

    sizes: tuple[int, ...]
    complete_s: tuple[float, ...]
    starts_s: tuple[float, ...]
    ends_s: tuple[float, ...]
    backward_s: float

    @property
    def step_s(self) -> float:
        """From the start of the backward until gradients are exchanged."""
        return max(self.backward_s, self.ends_s[-1])

    @property
    def exposed_s(self) -> float:
        """What the exchange adds to the backward."""
        return self.step_s - self.backward_s

    @property
    def exchange_s(self) -> float:
        """Of all buckets together."""
        return sum(end - start for start, end in zip(self.starts_s, self.ends_s, strict=True))

    @property
    def tail_s(self) -> float:
        """Of the last bucket, which nothing can hide once the backward is over."""
        return self.ends_s[-1] - self.starts_s[-1]


def timeline_of(gradients: Gradients, buckets: Buckets, time_of: TimeOf) -> Timeline:
    """The step with these buckets.

    Args:
        gradients: with times.
        buckets: in the order of sending.
        time_of: of one allreduce.
    """
    sizes: list[int] = []
    completes: list[float] = []
    starts: list[float] = []
    ends: list[float] = []
    complete_s, end_s = 0.0, 0.0
    for bucket in buckets:
        members = [gradients.gradients[index] for index in bucket]
        sizes.append(sum(one.num_bytes for one in members))
        # A bucket waits for those ahead of it, also where they are complete later.
        complete_s = max(complete_s, *(one.ready_s for one in members))
        completes.append(complete_s)
        starts.append(max(complete_s, end_s))
        end_s = starts[-1] + time_of(sizes[-1])
        ends.append(end_s)
    return Timeline(
        sizes=tuple(sizes),
        complete_s=tuple(completes),
        starts_s=tuple(starts),
        ends_s=tuple(ends),
        backward_s=gradients.backward_s,
    )


def timeline_to_document(timeline: Timeline) -> dict[str, Any]:
    """As a comparison has it: the backward's length, and for each bucket its bytes and times in seconds."""
    buckets = zip(timeline.sizes, timeline.complete_s, timeline.starts_s, timeline.ends_s, strict=True)
    return {
        "backward_s": timeline.backward_s,
        "buckets": [
            {"num_bytes": size, "complete_s": complete_s, "start_s": start_s, "end_s": end_s}
            for size, complete_s, start_s, end_s in buckets
        ],
    }

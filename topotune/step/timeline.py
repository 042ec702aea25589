"""When buckets are exchanged beside a backward, and what of the exchange the backward does not hide.

The model. One exchange runs at a time, in the order of the buckets; a bucket begins when it is complete and
the one ahead of it has ended: start(i) = max(ready(i), end(i-1)), end(i) = start(i) + T(bytes of i). The step
ends with the backward or the last bucket, whichever is later. What exchange and backward cost each other
(cores, memory) is not in it: measuring finds that.
"""

from collections.abc import Callable
from dataclasses import dataclass

from topotune.step.buckets import Buckets
from topotune.step.gradients import Gradients

TimeOf = Callable[[float], float]
"""Seconds of one allreduce of so many bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """A step as the model sees it.

    Attributes:
        starts_s, ends_s: of each bucket's exchange, from the start of the backward.
        backward_s: the backward's length.
    """

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
    starts: list[float] = []
    ends: list[float] = []
    complete_s, end_s = 0.0, 0.0
    for bucket in buckets:
        members = [gradients.gradients[index] for index in bucket]
        # A bucket waits for those ahead of it, also where they are complete later.
        complete_s = max(complete_s, *(one.ready_s for one in members))
        starts.append(max(complete_s, end_s))
        end_s = starts[-1] + time_of(sum(one.num_bytes for one in members))
        ends.append(end_s)
    return Timeline(starts_s=tuple(starts), ends_s=tuple(ends), backward_s=gradients.backward_s)

"""The two measuring loops: ping-pongs of one pair, and two-way exchanges of several pairs at once.

The first byte of each message says whether another follows, so that the leading rank alone decides when to
stop. Each loop has its next receive posted before it sends, as a collective would.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from topotune.links.messages import Messages

_MIN_WARMUPS, _MAX_WARMUPS = 1, 30
_TREND_WINDOW = 6
_TREND_Z = 2.58  # 1 % of steady series are called a trend


@dataclass(slots=True)
class PingPong:
    """Local time stamps of one pair's ping-pongs, in order; seconds on this rank's own clock.

    On the leader a row is (start, answer has come), on the follower (message has come,): posting the next
    receive counts towards the way back, as posting the first one does towards the way there, for so it is
    in a collective. The first ``num_warmups`` rows are warm-up; only the leader knows how many.
    """

    stamps_s: list[tuple[float, ...]] = field(default_factory=list)
    num_warmups: int = 0


class Buffers:
    """Memory for messages up to a size, touched once so that no page is new when time is taken."""

    def __init__(self, max_bytes: int) -> None:
        self.out = torch.zeros(max_bytes, dtype=torch.uint8)
        self._into = [torch.zeros(max_bytes, dtype=torch.uint8)]

    def into(self, index: int) -> torch.Tensor:
        """Where the messages of the ``index``-th peer arrive."""
        while len(self._into) <= index:
            self._into.append(torch.zeros_like(self.out))
        return self._into[index]


def lead_ping_pong(
    messages: Messages,
    buffers: Buffers,
    peer: int,
    message_bytes: int,
    *,
    min_samples: int,
    max_samples: int,
    slice_s: float,
) -> PingPong:
    """Send to ``peer`` and await its answer, again and again: until steady, then as long as asked.

    Args:
        messages: of the group.
        buffers: of at least ``message_bytes``.
        peer: the rank that follows.
        message_bytes: each way.
        min_samples: at least so many after warming up.
        max_samples: at most so many.
        slice_s: it ends when so much time has passed since it was warm, within these numbers.
    """
    out, into = buffers.out[:message_bytes], buffers.into(0)[:message_bytes]
    result = PingPong()
    round_trips_s: list[float] = []
    warmup_end_s = end_s = math.inf
    more = True
    with messages.talking_to(peer, "timing links"):
        while more:
            warm = result.num_warmups > 0
            num_samples = len(result.stamps_s) + 1 - result.num_warmups
            more = (
                not warm
                or num_samples < min_samples
                or (num_samples < max_samples and time.perf_counter() < end_s)
            )
            out[0] = more
            start_s = time.perf_counter()
            receiving = messages.start_recv(into, peer)
            messages.start_send(out, peer).wait()
            receiving.wait()
            back_s = time.perf_counter()
            result.stamps_s.append((start_s, back_s))
            round_trips_s.append(back_s - start_s)
            if not warm:
                if len(round_trips_s) == _MIN_WARMUPS:
                    warmup_end_s = back_s + slice_s / 2  # warming up may take half of the time
                steady = len(round_trips_s) >= _TREND_WINDOW and not has_trend(round_trips_s[-_TREND_WINDOW:])
                if steady or len(round_trips_s) >= _MAX_WARMUPS or back_s >= warmup_end_s:
                    result.num_warmups = len(round_trips_s)
                    end_s = back_s + slice_s
    return result


def follow_ping_pong(messages: Messages, buffers: Buffers, peer: int, message_bytes: int) -> PingPong:
    """Answer ``peer`` until it says that there is no more."""
    out = buffers.out[:message_bytes]
    current, following = buffers.into(0)[:message_bytes], buffers.into(1)[:message_bytes]
    result = PingPong()
    with messages.talking_to(peer, "timing links"):
        receiving = messages.start_recv(current, peer)
        more = True
        while more:
            receiving.wait()
            came_s = time.perf_counter()
            more = bool(current[0])
            if more:
                receiving = messages.start_recv(following, peer)
            messages.start_send(out, peer).wait()
            result.stamps_s.append((came_s,))
            current, following = following, current
    return result


def exchange(
    messages: Messages,
    buffers: Buffers,
    peers: Sequence[int],
    message_bytes: int,
    *,
    leads: bool,
    min_samples: int,
    slice_s: float,
) -> list[tuple[float, float]]:
    """Send to all ``peers`` and receive from them at the same time, again and again.

    Args:
        messages: of the group.
        buffers: of at least ``message_bytes``.
        peers: the followers of a leader; the one leader of a follower.
        message_bytes: to and from each peer.
        leads: whether this rank says when it ends.
        min_samples: at least so many exchanges.
        slice_s: it ends when so much time has passed; the same for all that exchange together.

    Returns:
        (start, end) of each exchange on this rank's own clock.
    """
    out = buffers.out[:message_bytes]
    into = [buffers.into(index)[:message_bytes] for index in range(len(peers))]
    stamps_s: list[tuple[float, float]] = []
    end_s = time.perf_counter() + slice_s
    more = True
    with messages.talking_to(peers[0], "timing links"):
        while more:
            start_s = time.perf_counter()
            if leads:
                more = len(stamps_s) + 1 < min_samples or start_s < end_s
                out[0] = more
            works = [messages.start_recv(tensor, peer) for tensor, peer in zip(into, peers, strict=True)]
            works += [messages.start_send(out, peer) for peer in peers]
            for work in works:
                work.wait()
            stamps_s.append((start_s, time.perf_counter()))
            if not leads:
                more = bool(into[0][0])
    return stamps_s


def has_trend(samples: Sequence[float]) -> bool:
    """Whether a series rises or falls, by the Mann-Kendall test at 1 %; False below 5 samples."""
    n = len(samples)
    if n < 5:
        return False
    values = np.asarray(samples)
    score = float(np.sum(np.triu(np.sign(values[None, :] - values[:, None]), 1)))
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return (abs(score) - 1) / deviation > _TREND_Z

"""What a network did with flows that ran at the same time, and how long small messages took to return: facts.

A flow is one direction of bulk traffic between two ranks of different nodes. Flows of one test ran together,
again and again; which ones is the business of ``flow_plan`` and ``inference.confirm``, what follows from
their rates that of ``inference``.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Literal

Purpose = Literal["alone", "round", "boundary", "control", "isolated"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowTest:
    """One-directional bulk flows that ran at the same time, repeatedly.

    No node sends in two flows of a test, and none receives in two; a node may send in one and receive in
    another (links are full duplex).

    Attributes:
        purpose: why it ran. ``alone``: one flow by itself. ``round``: a whole matching of nodes, each pair
            in one direction or in both. ``boundary``: k flows out of a suspected group, or into it.
            ``control``: as many flows inside groups. ``isolated``: a fresh run of one suspected flow, alone.
        flows: (sending rank, receiving rank) of each.
        message_bytes: of each message of a flow.
        rates_bytes_per_s: for each flow its samples, one a repetition, each measured while all flows ran.
        number: order in time among the tests of a measurement, from 0.
    """

    purpose: Purpose
    flows: tuple[tuple[int, int], ...]
    message_bytes: int
    rates_bytes_per_s: tuple[tuple[float, ...], ...]
    number: int

    def __post_init__(self) -> None:
        if not self.flows or any(src == dst or min(src, dst) < 0 for src, dst in self.flows):
            raise ValueError(f"flows {self.flows}: must be one at least, each between two ranks")
        senders, receivers = ([flow[end] for flow in self.flows] for end in (0, 1))
        if len(set(senders)) < len(senders) or len(set(receivers)) < len(receivers):
            raise ValueError(f"flows {self.flows}: a rank sends or receives in two of them")
        if self.message_bytes < 1 or self.number < 0:
            raise ValueError(f"flows of {self.message_bytes} bytes with number {self.number}")
        if len(self.rates_bytes_per_s) != len(self.flows):
            raise ValueError(f"{len(self.flows)} flows and rates of {len(self.rates_bytes_per_s)}")
        lengths = {len(rates) for rates in self.rates_bytes_per_s}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(f"flows with {sorted(lengths)} samples: must be as many for all, one at least")
        if not all(0 < rate < math.inf for rates in self.rates_bytes_per_s for rate in rates):
            raise ValueError("a flow's rate is not above 0 bytes/s")

    @property
    def num_repetitions(self) -> int:
        """How often the flows ran."""
        return len(self.rates_bytes_per_s[0])

    @property
    def median_rates_bytes_per_s(self) -> tuple[float, ...]:
        """Median of each flow's samples, in the order of ``flows``."""
        return tuple(statistics.median(rates) for rates in self.rates_bytes_per_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundTripTimes:
    """Round trips of small messages between two ranks, with nothing else under way.

    Attributes:
        a, b: the ranks, ``a < b``.
        min_s: the fastest: what wires and switches cost, with the least of what hosts added.
        samples_s: a few quantiles or all samples, ascending; the first may be above ``min_s``.
    """

    a: int
    b: int
    min_s: float
    samples_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.a < self.b:
            raise ValueError(f"round trips between ranks {self.a} and {self.b}")
        if not self.samples_s or list(self.samples_s) != sorted(self.samples_s):
            raise ValueError("round trips need samples, ascending")
        if not 0 < self.min_s <= self.samples_s[0] or not self.samples_s[-1] < math.inf:
            raise ValueError(f"a fastest round trip of {self.min_s} s among {self.samples_s[:3]} s …")

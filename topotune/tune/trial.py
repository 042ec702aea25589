"""What the tuner measures, as values, and the interface of whatever does the measuring.

A round times every arm once, in an order drawn anew for each round. A block is a number of rounds of the same
arms at one message size, agreed by all ranks at once. Statistics work on rounds: two arms are compared within
a round, so that drift of the machine cancels.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from topotune.plan.describe import params_in_words
from topotune.plan.model import DEFAULT_ALGORITHM

Condition = Literal["idle", "backward", "busy"]
"""What the main thread does while the collective runs: nothing but wait, a real backward, or pure Python."""

Scheme = Literal["clock", "barrier"]
"""How ranks start together: at an agreed time on synchronised clocks, or by a barrier before each sample."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to do an allreduce: an algorithm and its parameters. Equal where algorithm and parameters are.

    Attributes:
        algorithm: a name that plans use.
        params_json: its parameters as canonical JSON, which makes candidates hashable.
    """

    algorithm: str
    params_json: str = "{}"

    @classmethod
    def of(cls, algorithm: str, params: Mapping[str, Any]) -> "Candidate":
        """The candidate with these parameters."""
        return cls(algorithm, json.dumps(dict(params), sort_keys=True, separators=(",", ":")))

    @property
    def params(self) -> dict[str, Any]:
        """Its parameters."""
        parsed: dict[str, Any] = json.loads(self.params_json)
        return parsed

    @property
    def label(self) -> str:
        """For people: ``ring channels=2 pieces=4``; groups of many ranks are counted, not listed."""
        words = params_in_words(self.params)
        return " ".join((self.algorithm, *(f"{name}={value}" for name, value in words.items())))

    def to_json(self) -> dict[str, Any]:
        """Its JSON form."""
        return {"algorithm": self.algorithm, "params": self.params}


DEFAULT: Final = Candidate(DEFAULT_ALGORITHM)
"""The wrapped library's own allreduce, on a raw group."""

PLANNED: Final = Candidate("plan")
"""Whatever the plan in use says, through the ``topotune`` group; an arm of comparisons, never a row."""

TWIN: Final = Candidate("default", '{"connections":"its own"}')
"""The default once more, on connections of its own, as every candidate has: an arm of null trials."""

WRAPPED: Final = Candidate("default", '{"connections":"of the plan"}')
"""The default on the connections of the group under the ``topotune`` group: where a plan says "default" both
arms of a comparison send over the same ones, so that only the dispatch between them can differ."""

DISPATCHED: Final = Candidate("default", '{"connections":"of the plan","through":"dispatch"}')
"""The default as a job calls it where a plan says "default": through the ``topotune`` group, over the same
connections as `WRAPPED`."""

DEFAULTS: Final = frozenset({DEFAULT, TWIN, WRAPPED, DISPATCHED})
"""Arms that run the wrapped library's own allreduce, on whatever connections and however called."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Rounds that all ranks run after one agreement.

    Attributes:
        message_bytes: buffer on each rank; a multiple of 4, the elements are float32.
        arms: what is timed. The same arm may stand twice (default against default).
        orders: for each round, the order in which the arms run (a permutation of their indices).
        expected_s: for each arm, how long a call is expected to take at most; starts are spaced by it.
        warmups: for each arm, untimed calls before the first round.
        limits_s: for each arm, what a call may take until it is cut off; None: the group's timeout.
        condition: what the main thread does meanwhile.
        scheme: how ranks start together.
    """

    message_bytes: int
    arms: tuple[Candidate, ...]
    orders: tuple[tuple[int, ...], ...]
    expected_s: tuple[float, ...]
    warmups: tuple[int, ...]
    limits_s: tuple[float | None, ...]
    condition: Condition = "idle"
    scheme: Scheme = "clock"

    def to_json(self) -> dict[str, Any]:
        """Its JSON form, as rank 0 sends it to the others."""
        return {
            "message_bytes": self.message_bytes,
            "arms": [arm.to_json() for arm in self.arms],
            "orders": [list(order) for order in self.orders],
            "expected_s": list(self.expected_s),
            "warmups": list(self.warmups),
            "limits_s": list(self.limits_s),
            "condition": self.condition,
            "scheme": self.scheme,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Block":
        """The block that ``to_json`` wrote."""
        return cls(
            message_bytes=document["message_bytes"],
            arms=tuple(Candidate.of(arm["algorithm"], arm["params"]) for arm in document["arms"]),
            orders=tuple(tuple(order) for order in document["orders"]),
            expected_s=tuple(document["expected_s"]),
            warmups=tuple(document["warmups"]),
            limits_s=tuple(document["limits_s"]),
            condition=document["condition"],
            scheme=document["scheme"],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """A call that was cut off after its limit, or broke down; every rank has left it.

    Attributes:
        arm: index of the arm whose call it was.
        why: in words.
    """

    arm: int
    why: str


class CandidateFailedError(Exception):
    """A trial ended because a call of this candidate was cut off or broke down.

    Args:
        candidate: which.
        why: in words.
    """

    def __init__(self, candidate: Candidate, why: str) -> None:
        super().__init__(f"{candidate.label}: {why}")
        self.candidate = candidate
        self.why = why


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What came of checking a candidate at one size.

    Attributes:
        problem: what is wrong with its result, or None.
        call_s: what its faster call of two took, last rank's; NaN where none ended.
        broken: why its call was cut off or broke down, or None.
    """

    problem: str | None
    call_s: float
    broken: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class BlockTimes:
    """What a block gave.

    Attributes:
        times_s: from the common start to the last rank's end, seconds; shape (rounds, arms). NaN where a rank
            missed the common start, and the sample was dropped.
        num_missed: how many were.
        scheme: how the ranks started together; with ``barrier``, times are the slowest rank's own.
        broken: where a call was cut off or broke down; the block's times are then of no use.
    """

    times_s: npt.NDArray[np.float64]
    num_missed: int
    scheme: Scheme
    broken: Broken | None = None


class Bench(Protocol):
    """Whatever measures: real ranks, or a made-up clock in tests. Rank 0 holds one; the others follow."""

    def now_s(self) -> float:
        """Seconds since the ranks joined."""
        ...

    def check(self, candidate: Candidate, message_bytes: int, *, limit_s: float | None) -> Check:
        """Run the candidate twice on known numbers, each call for ``limit_s`` at most."""
        ...

    def run(self, block: Block) -> BlockTimes:
        """Run a block on all ranks."""
        ...

    def renew(self) -> None:
        """Give the default and all candidates new connections."""
        ...

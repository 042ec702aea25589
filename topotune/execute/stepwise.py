"""Runs a schedule step by step, each step's messages as one group: the form that NCCL's point-to-point takes.

Theory of operation. NCCL's send does not buffer: two ranks that both send first, and receive then, wait for
each other for ever. Messages that are posted as one group (``ncclGroupStart`` … ``ncclGroupEnd``) run
together. So all that a rank sends and receives in a step of the schedule is one group, and both ends of every
message stand in the same step. Between two ranks messages of a group are matched by their order, so both ends
list them in that of (channel, chunk). In a step all read what stood there when it began: what is reduced, or
would overwrite a chunk that is being sent in the same step, is received beside and put in its place after.

Nothing here waits for the device: on CUDA a wait makes the current stream wait. The reductions run on that
stream, in the order of the schedule, so results are the same bits as those of any other executor.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch

from topotune.execute.communicator import Communicator, Messages
from topotune.execute.executable import CommunicatorExecutable, ReduceOpType
from topotune.execute.reduction import COMBINE
from topotune.schedule.model import REDUCE, Schedule

_BINDINGS: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Send:
    """A message of a step: the chunk, and the rank it goes to."""

    chunk: int
    peer: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Receive:
    """A message of a step.

    Attributes:
        chunk: where it belongs.
        peer: the rank it comes from.
        reduces: it is combined with what stands there.
        beside: it is received into scratch first.
        own_first: the rank's own part stands first in the combination; else the received one. Both ends of
            an exchange then combine in the same order, and have the same bits.
    """

    chunk: int
    peer: int
    reduces: bool
    beside: bool
    own_first: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RankStep:
    """What one rank does in one step: both lists in the order in which their peers list them."""

    sends: tuple[Send, ...]
    receives: tuple[Receive, ...]


def steps_of(schedule: Schedule, rank: int) -> tuple[RankStep, ...]:
    """The steps in which a rank takes part. Steps of all channels run together: number by number."""
    columns = (schedule.step, schedule.channel, schedule.chunk, schedule.src, schedule.dst, schedule.op)
    by_step: dict[int, list[tuple[int, ...]]] = {}
    for step, *rest in sorted(zip(*(column.tolist() for column in columns), strict=True)):
        if rank in (rest[2], rest[3]):
            by_step.setdefault(step, []).append(tuple(rest))
    found = []
    for transfers in by_step.values():
        sends = tuple(Send(chunk=chunk, peer=dst) for _, chunk, src, dst, _ in transfers if src == rank)
        sent = {send.chunk for send in sends}
        receives = tuple(
            Receive(
                chunk=chunk,
                peer=src,
                reduces=op == REDUCE,
                beside=op == REDUCE or chunk in sent,
                own_first=rank < src,
            )
            for _, chunk, src, dst, op in transfers
            if dst == rank
        )
        found.append(RankStep(sends=sends, receives=receives))
    return tuple(found)


class StepwiseExecutable(CommunicatorExecutable):
    """A verified schedule on point-to-point messages, a group of them a step.

    Args:
        schedule: for as many ranks as the communicator has.
        communicator: of all ranks that take part.
    """

    def __init__(self, schedule: Schedule, communicator: Communicator) -> None:
        super().__init__(schedule.algorithm, schedule.params, communicator)
        assert schedule.num_ranks == communicator.size, f"{schedule.num_ranks} ranks, not {communicator.size}"
        self._steps = steps_of(schedule, communicator.rank)
        self._bounds = lru_cache(maxsize=_BINDINGS)(schedule.element_bounds)
        self._at = 0

    def _run(self, flat: torch.Tensor, op: ReduceOpType) -> None:
        bounds = self._bounds(flat.numel())
        most = max((_beside(step, bounds) for step in self._steps), default=0)
        scratch = self.communicator.scratch(most, flat.dtype)
        for at, step in enumerate(self._steps):
            self._at = at
            self._do(step, flat, scratch, bounds, op)

    def _do(
        self, step: RankStep, flat: torch.Tensor, scratch: torch.Tensor, bounds: list[int], op: ReduceOpType
    ) -> None:
        used = 0
        sends: Messages = []
        receives: Messages = []
        after: list[tuple[Receive, torch.Tensor, torch.Tensor]] = []
        for send in step.sends:
            part = flat[bounds[send.chunk] : bounds[send.chunk + 1]]
            if part.numel():
                sends.append((part, send.peer))
        for receive in step.receives:
            own = flat[bounds[receive.chunk] : bounds[receive.chunk + 1]]
            if not own.numel():
                continue
            place = own
            if receive.beside:
                place = scratch[used : used + own.numel()]
                used += own.numel()
                after.append((receive, own, place))
            receives.append((place, receive.peer))
        self.communicator.exchange(sends, receives)
        for receive, own, theirs in after:
            if not receive.reduces:
                own.copy_(theirs)
            elif receive.own_first:
                COMBINE[op](own, theirs, out=own)
            else:
                COMBINE[op](theirs, own, out=own)

    def _doing(self) -> str:
        step = self._steps[self._at]
        peers = sorted({send.peer for send in step.sends} | {receive.peer for receive in step.receives})
        return f"in step {self._at + 1} of {len(self._steps)}, with ranks {', '.join(map(str, peers))}"


def _beside(step: RankStep, bounds: list[int]) -> int:
    """Elements that a step receives into scratch."""
    return sum(bounds[each.chunk + 1] - bounds[each.chunk] for each in step.receives if each.beside)

"""A schedule as an MSCCL program: thread blocks that send and receive chunks (MSCCL, RCCL).

Theory of operation. The message is cut into as many equal chunks as make every chunk of the schedule a whole
number of them. On each GPU there is one thread block for each (channel, peer, direction); its steps run in
order, and the n-th send to a peer meets the n-th receive there, since both stand in the order of (step,
chunk). All works in place, in the input buffer.

What one thread block must not overtake in another is said by dependencies, per chunk: a send waits for the
receive that wrote the chunk last; a receive waits for the sends that read the chunk since, or, where none
did, for that receive (in a step all read before anything is written, so sends of a step stand before its
receives). A step can wait for one other; more waits stand before it as ``nop`` steps. Every wait is for a
lower (step, chunk), or for a send of the same one, so nothing waits in a circle, however few buffers a
connection has.

Sources: the parser and interpreter of Microsoft's msccl (limits, nops, dependencies), RCCL's for its limits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Final, Literal

from topotune.errors import UsageError
from topotune.schedule.model import REDUCE, Schedule

MAX_RANKS: Final = 1024
MAX_CHUNKS: Final = 4096
MAX_CHANNELS: Final = 32
MAX_STEPS: Final = 256
MAX_BLOCKS: Final = 128
"""Of one GPU; dependencies name them by 8 bits with a sign."""

MAX_PEERS: Final = 32
"""Of one channel of one GPU, in each direction."""

MAX_COUNT: Final = 71
"""Chunks that one step moves."""

MAX_BYTES: Final = 2**40
"""The first size that the program is not offered for; left out it would be 128 MiB."""

Kind = Literal["s", "r", "rrc", "nop"]
KINDS: Final[tuple[Kind, ...]] = ("s", "r", "rrc", "nop")
"""Send; receive; receive and reduce; only wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of a thread block.

    Attributes:
        kind: what it does.
        chunk: the first chunk, in the buffer of either side.
        count: how many.
        waits_for: thread block and step of the same GPU; None for nothing.
        is_waited_for: whether another step waits for it.
    """

    kind: Kind
    chunk: int
    count: int
    waits_for: tuple[int, int] | None
    is_waited_for: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One thread block.

    Attributes:
        channel: of its connection.
        sends_to: the peer; -1 where it receives.
        receives_from: the peer; -1 where it sends.
        steps: in order.
    """

    channel: int
    sends_to: int
    receives_from: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """An allreduce for MSCCL.

    Attributes:
        name: for logs.
        num_chunks: the message's equal parts.
        num_channels: that it uses.
        gpus: the thread blocks of each rank.
    """

    name: str
    num_chunks: int
    num_channels: int
    gpus: tuple[tuple[Block, ...], ...]


def msccl_program(schedule: Schedule) -> Program:
    """The program of a verified schedule.

    Raises:
        UsageError: more ranks, chunks, channels, thread blocks or steps than MSCCL takes.
    """
    assert schedule.collective == "allreduce", schedule.collective
    name = f"topotune_{schedule.algorithm}"
    if schedule.servers:
        raise UsageError(
            f"{name} has {len(schedule.servers)} servers that own no part; MSCCL adds what every GPU holds",
            hint="export a schedule in which all ranks take part alike",
        )
    unit = reduce(gcd, schedule.chunk_bounds)
    bounds = [bound // unit for bound in schedule.chunk_bounds]
    _check("ranks", schedule.num_ranks, MAX_RANKS, name)
    _check("chunks", bounds[-1], MAX_CHUNKS, name)
    making = [_Gpu() for _ in range(schedule.num_ranks)]
    for transfers in _steps(schedule):
        for channel, src, dst, chunk, _ in transfers:
            for part in _parts(bounds[chunk], bounds[chunk + 1]):
                making[src].send(channel, dst, part)
        for channel, src, dst, chunk, op in transfers:
            for part in _parts(bounds[chunk], bounds[chunk + 1]):
                making[dst].receive(channel, src, part, reduces=op == REDUCE)
    gpus = tuple(gpu.blocks() for gpu in making)
    for blocks in gpus:
        _check_limits(blocks, name)
    channels = {block.channel for blocks in gpus for block in blocks}
    return Program(name=name, num_chunks=bounds[-1], num_channels=1 + max(channels, default=0), gpus=gpus)


def _steps(schedule: Schedule) -> Iterable[list[tuple[int, int, int, int, int]]]:
    """The transfers (channel, src, dst, chunk, op) of each step, sorted by chunk."""
    columns = (schedule.step, schedule.chunk, schedule.channel, schedule.src, schedule.dst, schedule.op)
    rows = sorted(zip(*(column.tolist() for column in columns), strict=True))
    now: list[tuple[int, int, int, int, int]] = []
    last = -1
    for step, chunk, channel, src, dst, op in rows:
        if step != last and now:
            yield now
            now = []
        last = step
        now.append((channel, src, dst, chunk, op))
    if now:
        yield now


def _parts(start: int, end: int) -> Iterable[tuple[int, int]]:
    """(first, count) of a chunk's equal parts; none for an empty chunk."""
    return ((first, min(MAX_COUNT, end - first)) for first in range(start, end, MAX_COUNT))


_Place = tuple[int, int]  # thread block, step


class _Gpu:
    """One GPU's thread blocks while they are made, and who touched each chunk last."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int, bool], int] = {}  # (channel, peer, sends) -> thread block
        self._steps: list[list[tuple[Kind, tuple[int, int], _Place | None]]] = []
        self._waited_for: set[_Place] = set()
        self._written: dict[int, _Place] = {}
        self._read: dict[int, set[_Place]] = {}

    def send(self, channel: int, peer: int, part: tuple[int, int]) -> None:
        waits = {self._written[chunk] for chunk in _chunks(part) if chunk in self._written}
        here = self._append((channel, peer, True), "s", part, waits)
        for chunk in _chunks(part):
            self._read.setdefault(chunk, set()).add(here)

    def receive(self, channel: int, peer: int, part: tuple[int, int], *, reduces: bool) -> None:
        waits: set[_Place] = set()
        for chunk in _chunks(part):
            if chunk in self._read:
                waits |= self._read.pop(chunk)
            elif chunk in self._written:
                waits.add(self._written[chunk])
        here = self._append((channel, peer, False), "rrc" if reduces else "r", part, waits)
        self._written |= dict.fromkeys(_chunks(part), here)

    def blocks(self) -> tuple[Block, ...]:
        """What was made."""
        return tuple(
            Block(
                channel=channel,
                sends_to=peer if sends else -1,
                receives_from=-1 if sends else peer,
                steps=tuple(
                    Step(
                        kind=kind,
                        chunk=first,
                        count=count,
                        waits_for=wait,
                        is_waited_for=(number, index) in self._waited_for,
                    )
                    for index, (kind, (first, count), wait) in enumerate(self._steps[number])
                ),
            )
            for (channel, peer, sends), number in self._numbers.items()
        )

    def _append(
        self, connection: tuple[int, int, bool], kind: Kind, part: tuple[int, int], waits: set[_Place]
    ) -> _Place:
        """A step at the end of a connection's thread block, with its waits before it; its place."""
        number = self._numbers.setdefault(connection, len(self._steps))
        if number == len(self._steps):
            self._steps.append([])
        latest: dict[int, int] = {}
        for block, step in waits:
            if block != number:  # its own steps run in order
                latest[block] = max(step, latest.get(block, -1))
        self._waited_for |= set(latest.items())
        listed: list[_Place | None] = [*sorted(latest.items())] or [None]
        steps = self._steps[number]
        steps += [("nop", (0, 0), wait) for wait in listed[:-1]]
        steps.append((kind, part, listed[-1]))
        return number, len(steps) - 1


def _chunks(part: tuple[int, int]) -> range:
    first, count = part
    return range(first, first + count)


def _check_limits(blocks: Sequence[Block], name: str) -> None:
    _check("thread blocks of a GPU", len(blocks), MAX_BLOCKS, name)
    for block in blocks:
        _check("channels", block.channel + 1, MAX_CHANNELS, name)
        _check("steps of a thread block", len(block.steps), MAX_STEPS, name)
        sends = block.sends_to >= 0
        peers = sum(other.channel == block.channel and (other.sends_to >= 0) == sends for other in blocks)
        _check("peers in one channel", peers, MAX_PEERS, name)


def _check(what: str, count: int, most: int, name: str) -> None:
    if count > most:
        raise UsageError(
            f"--to msccl-xml: {name} takes {count} {what}, and MSCCL at most {most}",
            hint="a schedule with fewer ranks, pieces or channels",
        )

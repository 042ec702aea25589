"""A schedule as an MSCCL++ execution plan: thread blocks that put chunks into their peers' scratch.

Theory of operation. The message is cut into as many equal chunks as make every chunk of the schedule a whole
number of them. On each GPU there is one thread block for each channel of the schedule, since nothing orders
the steps of two channels; its operations run in order, with all threads. In each step it puts what it sends
into scratch of the receiver, a place of its own for every transfer, and signals; then it waits for its own
peers' signals and reduces or copies what arrived. As no place is written twice, nothing has to wait for a
place to be free, but for the call before: so a call begins with a signal to every rank that will put here,
which waits for it before its first put.

Source: MSCCL++ 0.10, ``execution_plan.cc`` (keys, what ids count), ``execution_common.hpp`` (limits), and the
plans of its executor's tests.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Final, Literal

from topotune.errors import UsageError
from topotune.schedule.model import REDUCE, Schedule

MAX_OPERATIONS: Final = 64
"""Of one thread block."""

MAX_PEERS: Final = 16
"""Channels of one thread block."""

MAX_PEERS_OF_OPERATION: Final = 8
MAX_BLOCKS: Final = 64
MAX_RANKS: Final = 1024
MAX_CHUNKS: Final = 4096
MAX_SCRATCH: Final = 2**16

Kind = Literal["put", "signal", "wait", "re", "copy", "nop"]
KINDS: Final[tuple[Kind, ...]] = ("put", "signal", "wait", "re", "copy", "nop")
"""Send; tell peers; wait for peers; reduce, or copy, from scratch; all threads meet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One operation of a thread block.

    Attributes:
        kind: what it does.
        peers: positions in the thread block's list of peers; of ``put`` one, of ``signal`` and ``wait`` one
            to eight, of others none.
        chunk: in this GPU's message; of ``put``, ``re``, ``copy``.
        slot: in scratch, the peer's (``put``) or this GPU's; of the same.
        count: of chunks; of the same.
    """

    kind: Kind
    peers: tuple[int, ...] = ()
    chunk: int = 0
    slot: int = 0
    count: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One thread block.

    Attributes:
        peers: ranks that it talks to, ascending.
        operations: in order.
    """

    peers: tuple[int, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU's part: its thread blocks, and how many chunks of scratch they need."""

    scratch_chunks: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionPlan:
    """An allreduce for MSCCL++.

    Attributes:
        name: for logs.
        num_chunks: the message's equal parts.
        gpus: by rank.
    """

    name: str
    num_chunks: int
    gpus: tuple[Gpu, ...]


_Transfer = tuple[int, int, int, int]  # chunk, src, dst, op


def execution_plan(schedule: Schedule) -> ExecutionPlan:
    """The plan of a verified schedule.

    Raises:
        UsageError: it takes more ranks, chunks, peers or operations than MSCCL++ has room for.
    """
    name = f"topotune_{schedule.algorithm}"
    if schedule.servers:
        raise UsageError(
            f"{name} has {len(schedule.servers)} servers that own no part; MSCCL++ adds what every GPU holds",
            hint="export a schedule in which all ranks take part alike",
        )
    unit = reduce(gcd, schedule.chunk_bounds)
    bounds = [bound // unit for bound in schedule.chunk_bounds]
    _check("ranks", schedule.num_ranks, MAX_RANKS, name)
    _check("chunks", bounds[-1], MAX_CHUNKS, name)
    used = [0] * schedule.num_ranks
    blocks: list[list[Block]] = [[] for _ in range(schedule.num_ranks)]
    for steps in _by_channel(schedule):
        slots = {}
        for number, transfers in enumerate(steps):
            for chunk, src, dst, _ in transfers:
                slots[number, chunk, src, dst] = used[dst]
                used[dst] += bounds[chunk + 1] - bounds[chunk]
        for rank in range(schedule.num_ranks):
            block = _block(rank, steps, slots, bounds)
            if block is not None:
                blocks[rank].append(block)
    for of_gpu, scratch in zip(blocks, used, strict=True):
        _check("thread blocks of a GPU", len(of_gpu), MAX_BLOCKS, name)
        _check("chunks of scratch", scratch, MAX_SCRATCH, name)
        for block in of_gpu:
            _check("peers of a thread block", len(block.peers), MAX_PEERS, name)
            _check("operations of a thread block", len(block.operations), MAX_OPERATIONS, name)
    gpus = tuple(
        Gpu(scratch_chunks=scratch, blocks=tuple(of_gpu))
        for of_gpu, scratch in zip(blocks, used, strict=True)
    )
    return ExecutionPlan(name=name, num_chunks=bounds[-1], gpus=gpus)


def _by_channel(schedule: Schedule) -> Iterable[list[list[_Transfer]]]:
    """The steps of each channel, each a list of transfers by chunk; empty chunks are left out."""
    columns = (schedule.channel, schedule.step, schedule.chunk, schedule.src, schedule.dst, schedule.op)
    channels: dict[int, dict[int, list[_Transfer]]] = {}
    for channel, step, chunk, src, dst, op in sorted(zip(*(c.tolist() for c in columns), strict=True)):
        if schedule.chunk_bounds[chunk + 1] > schedule.chunk_bounds[chunk]:
            channels.setdefault(channel, {}).setdefault(step, []).append((chunk, src, dst, op))
    return [list(steps.values()) for steps in channels.values()]


def _block(
    rank: int,
    steps: list[list[_Transfer]],
    slots: dict[tuple[int, int, int, int], int],
    bounds: list[int],
) -> Block | None:
    """What a rank does in one channel; None where it takes no part."""
    to = {dst for transfers in steps for _, src, dst, _ in transfers if src == rank}
    fro = {src for transfers in steps for _, src, dst, _ in transfers if dst == rank}
    peers = sorted(to | fro)
    if not peers:
        return None
    number_of = {peer: at for at, peer in enumerate(peers)}

    def with_peers(kind: Kind, ranks: Iterable[int]) -> list[Operation]:
        numbers = [number_of[peer] for peer in sorted(ranks)]
        parts = (
            numbers[at : at + MAX_PEERS_OF_OPERATION] for at in range(0, len(numbers), MAX_PEERS_OF_OPERATION)
        )
        return [Operation(kind=kind, peers=tuple(part)) for part in parts]

    def moved(kind: Kind, step: int, transfer: _Transfer) -> Operation:
        chunk, src, dst, _ = transfer
        return Operation(
            kind=kind,
            peers=(number_of[dst],) if kind == "put" else (),
            chunk=bounds[chunk],
            slot=slots[step, chunk, src, dst],
            count=bounds[chunk + 1] - bounds[chunk],
        )

    meet = Operation(kind="nop")
    operations = [*with_peers("signal", fro), *with_peers("wait", to), meet]
    for step, transfers in enumerate(steps):
        sent = [transfer for transfer in transfers if transfer[1] == rank]
        received = [transfer for transfer in transfers if transfer[2] == rank]
        if sent:
            operations += [moved("put", step, transfer) for transfer in sent]
            operations += [meet, *with_peers("signal", {transfer[2] for transfer in sent})]
        if received:
            operations += [*with_peers("wait", {transfer[1] for transfer in received}), meet]
            operations += [moved("re" if one[3] == REDUCE else "copy", step, one) for one in received]
            operations.append(meet)
    return Block(peers=tuple(peers), operations=tuple(operations))


def _check(what: str, count: int, most: int, name: str) -> None:
    if count > most:
        raise UsageError(
            f"--to mscclpp-json: {name} takes {count} {what}, and MSCCL++ has room for {most}",
            hint="an algorithm of fewer steps (halving_doubling, …), or fewer ranks or pieces",
        )

"""One rank's part of a schedule as a flat list of operations, for any message size.

Theory of operation. The executor knows six operations: post a receive (into the message itself, or into
scratch), post a send, wait for something posted, reduce or copy scratch into the message. Posting never
blocks; waiting does. ``lower`` decides the order, once per schedule and rank.

*Values.* Within a channel, a transfer reads what stood in its chunk when its step began. So on each rank a
chunk sees a fixed sequence of accesses: by step, and within a step first the sends, then the one receive. A
send may be posted once the receives before it were applied; a receive may be applied (reduced, copied) once
the sends before it are complete, because a send reads the memory until then. The receive itself goes to
scratch, at the chunk's own offset in one of ``num_slots`` copies of the message, and may be posted as soon as
that slot is free, however far ahead. A COPY may be received in place when the accesses before it are
complete: no copy afterwards, but its receive is posted later. That is done unless the rank sends the same
chunk in the same step: the peer of that send may be waiting for us in turn.

*Waiting.* Waits for received messages come in the order of (step, channel). All that a wait makes possible is
posted at once. A send is waited for as late as possible: before its chunk is written again, else at the end.
A COPY in place needs the sends of its chunk complete *before* its receive is posted; that wait stands one
step after the send, or right before the COPY's own step if that is sooner.

*No deadlock*, for any schedule. Claim: a rank that has finished its waits of all steps below s has posted all
its transfers of steps up to s. Sends: the receives before them have steps below s and were applied. Receives
in scratch: a slot is held only by receives of the same chunk, which are posted in order, so those before it,
all of steps below s, have freed it. Receives in place: posted before the first wait of their own step, as
said. Now a wait that stands in step s waits for a transfer of a step t <= s that the peer must have posted
(gloo moves it on its own threads after that). If all ranks finish all steps below s, then by the claim all
transfers of steps up to s are posted, so every wait of step s ends, and all ranks finish step s. (A wait for
a send that stands before a COPY in place of step s belongs to an earlier step: its send does.) A rank without
transfers in a step has nothing to wait for in it. The channels' steps need not mean the same moment: any
numbering that all ranks share will do.

*Messages.* With ``coalesce``, transfers of one step and channel between the same two ranks with the same op
and neighbouring chunks travel as one message: fewer, for small sizes; without, each chunk is reduced while
the next is on its way. Both ends derive the same messages and the same tags from the schedule, so all ranks
must lower with the same options.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from topotune.schedule.model import COPY, Schedule

RECEIVE: Final = 0  # post a receive into the message
RECEIVE_SLOT: Final = 1  # post a receive into scratch
SEND: Final = 2  # post a send
WAIT: Final = 3  # wait for what was posted
REDUCE_OWN_FIRST: Final = 4  # message <- message (op) scratch
REDUCE_OWN_LAST: Final = 5  # message <- scratch (op) message
COPY_SLOT: Final = 6  # message <- scratch

_POSTS = (RECEIVE, RECEIVE_SLOT, SEND)
Columns = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """What one rank does, in order.

    Attributes:
        rank, num_ranks: whose part of how many.
        chunk_bounds: as in the schedule.
        num_slots: copies of the message that scratch must hold.
        ops: int64, shape (num_ops, 7): code, first chunk, end chunk, peer, tag, handle, step. ``handle`` is
            the slot of RECEIVE_SLOT, REDUCE_* and COPY_SLOT. The posts are numbered in order, from 0; of
            WAIT, ``handle`` is the number of the post it waits for. The chunks, peer, tag and step of a WAIT
            are those of its post.
    """

    rank: int
    num_ranks: int
    chunk_bounds: tuple[int, ...]
    num_slots: int
    ops: Columns

    def describe(self, index: int) -> str:
        """Operation ``index`` in words, for errors: what was waited for."""
        code, first, end, peer, _tag, _handle, step = (int(value) for value in self.ops[index])
        chunks = f"chunk {first}" if end == first + 1 else f"chunks {first} to {end - 1}"
        if code == WAIT:
            posted = self.ops[np.isin(self.ops[:, 0], _POSTS)][int(self.ops[index, 5])]
            code = int(posted[0])
            what = f"{chunks} to be taken by rank {peer}" if code == SEND else f"{chunks} from rank {peer}"
            return f"waiting for {what} (step {step})"
        names = {
            RECEIVE: f"receiving {chunks} from rank {peer}",
            RECEIVE_SLOT: f"receiving {chunks} from rank {peer}",
            SEND: f"sending {chunks} to rank {peer}",
            REDUCE_OWN_FIRST: f"reducing {chunks}",
            REDUCE_OWN_LAST: f"reducing {chunks}",
            COPY_SLOT: f"copying {chunks}",
        }
        return f"{names[code]} (step {step})"


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundProgram:
    """A program for messages of one number of elements.

    Attributes:
        ops: int64, shape (num_ops, 6): code, offset in the message, number of elements, peer, tag, extra.
            Offsets and counts in elements. ``extra`` is the offset in scratch, or, of WAIT, the number of the
            post.
        source: int64, shape (num_ops,): row of the program that each operation comes from.
        scratch_elements: how much scratch it needs.
    """

    ops: Columns
    source: Columns
    scratch_elements: int


def bind(program: Program, num_elements: int) -> BoundProgram:
    """Offsets for a message of ``num_elements``; what has no elements is left out, on both sides alike."""
    bounds = np.array(
        [num_elements * bound // program.chunk_bounds[-1] for bound in program.chunk_bounds], dtype=np.int64
    )
    code, first, end, peer, tag, handle, _step = program.ops.T
    offset = bounds[first]
    length = bounds[end] - offset
    kept = length > 0
    is_post = np.isin(code, _POSTS)
    number_of_post = np.cumsum(kept[is_post]) - 1
    in_slot = np.isin(code, (RECEIVE_SLOT, REDUCE_OWN_FIRST, REDUCE_OWN_LAST, COPY_SLOT))
    extra = np.where(in_slot, handle * num_elements + offset, 0)
    is_wait = code == WAIT
    extra[is_wait] = number_of_post[handle[is_wait]]
    uses_scratch = bool((in_slot & kept).any())
    return BoundProgram(
        ops=np.ascontiguousarray(np.stack([code, offset, length, peer, tag, extra], axis=1)[kept]),
        source=np.flatnonzero(kept),
        scratch_elements=program.num_slots * num_elements if uses_scratch else 0,
    )


@dataclass(eq=False, slots=True)
class _Message:
    """A transfer of this rank, or several coalesced; with how far it has come."""

    step: int
    channel: int
    peer: int
    first: int
    end: int
    tag: int
    is_send: bool
    is_copy: bool
    is_in_place: bool = False
    slot: int = 0
    post: int = -1  # its number; -1 while it is not posted
    is_done: bool = False  # waited for

    @property
    def chunks(self) -> range:
        return range(self.first, self.end)

    @property
    def order(self) -> tuple[int, bool, int, int]:
        return (self.step, self.is_send, self.channel, self.tag)


def lower(schedule: Schedule, rank: int, *, coalesce: bool = False, num_slots: int = 1) -> Program:
    """The program of ``rank``; O(transfers of this rank × chunks per message).

    Args:
        schedule: a verified schedule.
        rank: in ``range(schedule.num_ranks)``.
        coalesce: neighbouring chunks travel as one message.
        num_slots: scratch in messages, >= 1; more lets receives be posted further ahead.
    """
    assert 0 <= rank < schedule.num_ranks, f"rank {rank} of {schedule.num_ranks}"
    assert num_slots >= 1, f"{num_slots} slots"
    messages = sorted(
        _messages(schedule, rank, coalesce), key=lambda message: (message.step, message.channel, message.tag)
    )
    lowering = _Lowering(messages, rank, schedule.num_chunks, num_slots)
    lowering.run()
    return Program(
        rank=rank,
        num_ranks=schedule.num_ranks,
        chunk_bounds=schedule.chunk_bounds,
        num_slots=num_slots,
        ops=np.array(lowering.ops, dtype=np.int64).reshape(-1, 7),
    )


def _messages(schedule: Schedule, rank: int, coalesce: bool) -> Iterator[_Message]:
    """This rank's messages; their tag is the lowest row of their transfers: unique, the same on both ends."""
    rows = np.flatnonzero((schedule.src == rank) | (schedule.dst == rank))
    columns = (schedule.step, schedule.channel, schedule.src, schedule.dst, schedule.op, schedule.chunk)
    keyed = sorted(zip(*(column[rows].tolist() for column in columns), rows.tolist(), strict=True))
    for (step, channel, src, dst, op), group in groupby(keyed, key=lambda row: row[:5]):
        transfers = [(row[5], row[6]) for row in group]
        while transfers:
            length = 1
            while coalesce and length < len(transfers) and transfers[length][0] == transfers[0][0] + length:
                length += 1
            part, transfers = transfers[:length], transfers[length:]
            yield _Message(
                step=step,
                channel=channel,
                peer=dst if src == rank else src,
                first=part[0][0],
                end=part[-1][0] + 1,
                tag=min(row for _, row in part),
                is_send=src == rank,
                is_copy=op == COPY,
            )


class _Lowering:
    """The pass over one rank's messages: what is posted, what holds which slot, what was emitted."""

    def __init__(self, messages: list[_Message], rank: int, num_chunks: int, num_slots: int) -> None:
        self.rank = rank
        self.ops: list[tuple[int, int, int, int, int, int, int]] = []
        self.num_posts = 0
        self.messages = messages
        # By chunk, in the order of its accesses; a coalesced message stands in the queues of all its chunks.
        self.to_send: list[deque[_Message]] = [deque() for _ in range(num_chunks)]
        self.to_receive: list[deque[_Message]] = [deque() for _ in range(num_chunks)]
        self.to_apply: list[deque[_Message]] = [deque() for _ in range(num_chunks)]
        self.sending: list[list[_Message]] = [[] for _ in range(num_chunks)]
        self.holder_of_slot: list[list[_Message | None]] = [[None] * num_slots for _ in range(num_chunks)]

    def run(self) -> None:
        """Emit everything."""
        receives = [message for message in self.messages if not message.is_send]
        in_place = deque(sorted(self._enqueue(), key=lambda pair: (pair[0], pair[1].order)))
        self._post({chunk for message in self.messages for chunk in message.chunks})
        for message in receives:
            while in_place and in_place[0][0] < message.step:
                _, early = in_place.popleft()
                if early.post < 0:
                    self._complete_sends(early)
                    self._post(set(early.chunks))
            self._finish(message)
        for message in self.messages:
            if message.is_send and not message.is_done:
                self._wait(message)

    def _enqueue(self) -> Iterator[tuple[int, _Message]]:
        """Fill the queues; yield receives in place that follow a send, with the step to post them after."""
        last_send = [-1] * len(self.to_send)
        for step, group in groupby(self.messages, key=lambda message: message.step):
            of_step = list(group)
            for message in of_step:
                if message.is_send:
                    for chunk in message.chunks:
                        self.to_send[chunk].append(message)
                        last_send[chunk] = step
            for message in of_step:
                if message.is_send:
                    continue
                for chunk in message.chunks:
                    self.to_receive[chunk].append(message)
                    self.to_apply[chunk].append(message)
                sent_at = max(last_send[chunk] for chunk in message.chunks)
                message.is_in_place = message.is_copy and sent_at < step
                if message.is_in_place and sent_at >= 0:
                    yield (min(sent_at + 1, step - 1), message)

    def _post(self, chunks: set[int]) -> None:
        """Post all that is possible on these chunks, earliest step first, receives before sends."""
        ready = [(message.order, message) for chunk in chunks for message in self._ready(chunk)]
        heapify(ready)
        while ready:
            _, message = heappop(ready)
            if message.post >= 0:
                continue  # it stood there once for each of its chunks
            self._emit_post(message)
            for chunk in message.chunks:
                for following in self._ready(chunk):
                    heappush(ready, (following.order, following))

    def _ready(self, chunk: int) -> Iterator[_Message]:
        """What can be posted and comes next on this chunk."""
        send = next(iter(self.to_send[chunk]), None)
        if send is not None and all(self._is_value_ready(send, other) for other in send.chunks):
            yield send
        receive = next(iter(self.to_receive[chunk]), None)
        if receive is None or any(self.to_receive[other][0] is not receive for other in receive.chunks):
            return
        if receive.is_in_place:
            if all(self._is_untouched(receive, other) for other in receive.chunks):
                yield receive
        elif self._free_slot(receive) is not None:
            yield receive

    def _is_value_ready(self, send: _Message, chunk: int) -> bool:
        return self.to_send[chunk][0] is send and not (
            self.to_apply[chunk] and self.to_apply[chunk][0].step < send.step
        )

    def _is_untouched(self, receive: _Message, chunk: int) -> bool:
        """Nothing before ``receive`` will read or write this chunk any more."""
        return (
            self.to_apply[chunk][0] is receive
            and not self.sending[chunk]
            and not (self.to_send[chunk] and self.to_send[chunk][0].step <= receive.step)
        )

    def _free_slot(self, receive: _Message) -> int | None:
        for slot in range(len(self.holder_of_slot[receive.first])):
            if all(self.holder_of_slot[chunk][slot] is None for chunk in receive.chunks):
                return slot
        return None

    def _emit_post(self, message: _Message) -> None:
        message.post = self.num_posts
        self.num_posts += 1
        if message.is_send:
            for chunk in message.chunks:
                self.to_send[chunk].popleft()
                self.sending[chunk].append(message)
            self._emit(SEND, message, 0)
            return
        for chunk in message.chunks:
            self.to_receive[chunk].popleft()
        if message.is_in_place:
            self._emit(RECEIVE, message, 0)
            return
        slot = self._free_slot(message)
        assert slot is not None
        message.slot = slot
        for chunk in message.chunks:
            self.holder_of_slot[chunk][slot] = message
        self._emit(RECEIVE_SLOT, message, slot)

    def _finish(self, message: _Message) -> None:
        """Wait for a receive, apply it, and post what that makes possible."""
        self._wait(message)
        if not message.is_in_place:
            self._complete_sends(message)
            reduce = REDUCE_OWN_FIRST if self.rank < message.peer else REDUCE_OWN_LAST
            self._emit(COPY_SLOT if message.is_copy else reduce, message, message.slot)
            for chunk in message.chunks:
                self.holder_of_slot[chunk][message.slot] = None
        for chunk in message.chunks:
            applied = self.to_apply[chunk].popleft()
            assert applied is message, f"chunk {chunk} is received twice in step {message.step}"
        self._post(set(message.chunks))

    def _complete_sends(self, message: _Message) -> None:
        for chunk in message.chunks:
            for send in tuple(self.sending[chunk]):
                self._wait(send)

    def _wait(self, message: _Message) -> None:
        assert message.post >= 0, f"{message} is waited for before it is posted"
        self._emit(WAIT, message, message.post)
        message.is_done = True
        if message.is_send:
            for chunk in message.chunks:
                self.sending[chunk].remove(message)

    def _emit(self, code: int, message: _Message, handle: int) -> None:
        self.ops.append((code, message.first, message.end, message.peer, message.tag, handle, message.step))

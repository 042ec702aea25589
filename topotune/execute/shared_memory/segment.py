"""One piece of memory that the ranks of a node share: made, proved to be the same one, and nameless at once.

Theory of operation. The first rank makes a file in /dev/shm (mode 0600, its own user's) and reserves all its
pages, so that a full file system is an error here and not a SIGBUS in the middle of an allreduce. All ranks
open it and read a secret there: a name alone proves nothing, since every node has a /dev/shm. Then the name
is removed, within milliseconds of its making: from there on the memory lives as long as a process that maps
it, however that process ends. Should a rank die while the name stands, the others remove it; should all die
at once, the next handshake of this user does (`topotune.links.same_node`, whose rules for names and locks are
followed).

Either all ranks have the segment or none has: what stood in the way on one is told to all.

A rank that is killed is noticed by its record lock: each rank locks a byte of its own, and the kernel drops
the lock with the process, in whatever container it ran. (Record locks are not inherited by forked children,
so data loader workers do not keep a dead rank's lock.)
"""

import contextlib
import fcntl
import mmap
import os
import secrets
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from topotune.execute.communicator import Communicator
from topotune.execute.shared_memory.semaphores import SEMAPHORE_BYTES, Semaphore
from topotune.links.messages import Messages
from topotune.links.same_node import PREFIX, SHM, remove_abandoned
from topotune.units import format_bytes

CACHE_LINE_BYTES: Final = 128
"""Of the widest processors; what is written by different ranks never shares one."""

NUM_BUFFERS: Final = 3
"""Of every rank: one that is written, one that is reduced, one that is read out, at the same time."""

DATA_BYTES: Final = 24 << 20
"""Of all slots together at most: about one message, whatever the number of ranks.

More gains nothing: on the machine named in ``semaphores`` 8 MiB took the same time within 10 % with 24 to
96 MiB, and nearly twice as long with 3 MiB. (2 ranks would be 20 % faster with 12 MiB where nothing else
runs; but they meet twice as often, which costs most where the main thread is busy.)
"""

MIN_SLOT_BYTES: Final = 64 << 10
"""With less, an allreduce of some MiB meets so often that gloo is faster: then there is no segment."""

_SECRET_BYTES: Final = 32
_HEADER_BYTES: Final = 4096
_MAX_BEGINNINGS: Final = 1024  # a training job has few bucket sizes
_GAVE_UP_AT: Final = 64  # a byte: some rank gave up, whatever is waited for will not come
_NUM_CPUS_AT: Final = 128  # an int64


class Segment:
    """Memory of all ranks of a communicator: semaphores between them, and slots for their data.

    Args:
        communicator: of ranks that share the memory.
        file: of the memory, open for reading and writing; the segment closes it.
        slot_bytes: size of a slot, a multiple of ``CACHE_LINE_BYTES``.

    Attributes:
        next_buffer: of the next slice that any collective puts into the slots.
    """

    def __init__(self, communicator: Communicator, file: int, slot_bytes: int) -> None:
        self.communicator = communicator
        self.slot_bytes = slot_bytes
        self._file = file
        size = communicator.size
        memory = mmap.mmap(file, _segment_bytes(size, slot_bytes))
        self._bytes = torch.frombuffer(memory, dtype=torch.uint8)  # keeps the mapping alive, as do its views
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, communicator.rank)
        first = self._bytes.data_ptr() + _HEADER_BYTES
        self._semaphores = [
            [Semaphore(first + (waiter * size + poster) * SEMAPHORE_BYTES) for poster in range(size)]
            for waiter in range(size)
        ]
        self._rooms: dict[torch.dtype, list[torch.Tensor]] = {}
        self._slots: dict[torch.dtype, list[list[torch.Tensor]]] = {}
        self._beginnings: dict[tuple[int, torch.dtype, int], list[torch.Tensor]] = {}
        self.next_buffer = 0
        self._close_file = weakref.finalize(self, os.close, file)  # last: until here the caller closes it

    def initialise(self, secret: bytes) -> None:
        """The first rank's part, before any other opens it."""
        for row in self._semaphores:
            for semaphore in row:
                semaphore.initialise()
        self._bytes[:_SECRET_BYTES].copy_(torch.frombuffer(bytearray(secret), dtype=torch.uint8))
        self._num_cpus[0] = os.cpu_count() or 1

    @property
    def secret(self) -> bytes:
        """What proves that two ranks see the same memory."""
        return bytes(self._bytes[:_SECRET_BYTES].tolist())

    @property
    def num_cpus(self) -> int:
        """Logical CPUs of the node, by which plans know it too, whether ranks may use all of them or not."""
        return int(self._num_cpus)

    @property
    def _num_cpus(self) -> torch.Tensor:
        return self._bytes[_NUM_CPUS_AT : _NUM_CPUS_AT + 8].view(torch.int64)

    def semaphore(self, waiter: int, poster: int) -> Semaphore:
        """The semaphore that ``poster`` posts and ``waiter`` waits for."""
        return self._semaphores[waiter][poster]

    def rooms(self, dtype: torch.dtype) -> list[torch.Tensor]:
        """All slots of a buffer as one piece of memory, by buffer; shape (size * slot_bytes // itemsize,)."""
        if dtype not in self._rooms:
            data = self._bytes[_data_at(self.communicator.size) :].view(NUM_BUFFERS, -1)
            self._rooms[dtype] = [room.view(dtype) for room in data]
        return self._rooms[dtype]

    def slots(self, dtype: torch.dtype) -> list[list[torch.Tensor]]:
        """Slots by buffer and rank, each of shape (slot_bytes // itemsize,)."""
        if dtype not in self._slots:
            size = self.communicator.size
            self._slots[dtype] = [list(room.view(size, -1)) for room in self.rooms(dtype)]
        return self._slots[dtype]

    def beginnings(self, num_elements: int, dtype: torch.dtype, buffer: int) -> list[torch.Tensor]:
        """The beginning of each rank's slot of one buffer, each of shape (num_elements,)."""
        key = (num_elements, dtype, buffer)
        found = self._beginnings.get(key)
        if found is None:
            if len(self._beginnings) >= _MAX_BEGINNINGS:
                self._beginnings.clear()
            found = self._beginnings[key] = [slot[:num_elements] for slot in self.slots(dtype)[buffer]]
        return found

    def use_buffers(self, num_slices: int) -> None:
        """Go on behind so many slices."""
        self.next_buffer = (self.next_buffer + num_slices) % NUM_BUFFERS

    def is_alive(self, rank: int) -> bool:
        """Whether another rank's process exists."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)
        except OSError:
            return True
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, rank)
        return False

    @property
    def gave_up(self) -> bool:
        """Whether a rank has given up."""
        return bool(self._bytes[_GAVE_UP_AT])

    def give_up(self) -> None:
        """End every wait of every rank; the segment is of no use afterwards. From any thread."""
        self._bytes[_GAVE_UP_AT] = 1
        for row in self._semaphores:
            for semaphore in row:
                semaphore.post()

    def close(self) -> None:
        """Let go of the memory; nothing may be running."""
        self._rooms.clear()
        self._slots.clear()
        self._beginnings.clear()
        self._semaphores = []
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._close_file()


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What came of asking for shared memory: a segment, or why there is none; the same on all ranks.

    Attributes:
        segment: None where there is none, or a rank is alone and needs none.
        problem: what stood in the way, in words; "" if nothing did.
    """

    segment: Segment | None
    problem: str = ""

    def abort(self) -> None:
        """End all waits."""
        if self.segment is not None:
            self.segment.give_up()

    def close(self) -> None:
        """Let go of the memory."""
        if self.segment is not None:
            self.segment.close()


def open_memory(communicator: Communicator, *, shm: Path = SHM, data_bytes: int = DATA_BYTES) -> NodeMemory:
    """Make a segment for all ranks of a communicator; collective over them.

    Args:
        communicator: of ranks that should share memory.
        shm: where to make it.
        data_bytes: what the slots of all ranks take together at most; less where there is less room.

    Raises:
        RunError: a rank did not answer; no name is left.
    """
    if communicator.size == 1:
        return NodeMemory(None)
    messages = Messages(communicator.group)
    path = shm / str(messages.gather(PREFIX + secrets.token_hex(16))[0])
    secret = secrets.token_bytes(_SECRET_BYTES)
    segment: Segment | None = None
    problem: str | None = None
    try:
        if communicator.rank == 0:
            try:
                segment = _make(path, communicator, data_bytes, secret)
            except OSError as error:
                problem = f"no segment in {shm}: {error.strerror}"
        made = messages.gather([problem, segment.slot_bytes if segment else 0, secret.hex()])
        problem, slot_bytes, wanted = made[0]
        if problem is None and segment is None:
            try:
                segment = _join(path, communicator, slot_bytes)
            except OSError as error:
                problem = f"rank {communicator.rank} cannot open the segment in {shm}: {error.strerror}"
        if segment is not None and segment.secret.hex() != wanted:
            problem = f"rank {communicator.rank} does not share the memory of rank 0"
        problems = [problem for problem in messages.gather(problem) if problem]
    finally:
        with contextlib.suppress(FileNotFoundError):  # another rank was faster, or it was never made
            path.unlink()
    if not problems:
        return NodeMemory(segment)
    if segment is not None:
        segment.close()
    return NodeMemory(None, problems[0])


def _make(path: Path, communicator: Communicator, data_bytes: int, secret: bytes) -> Segment:
    """The first rank's segment, as large as there is room for.

    Raises:
        OSError: too little room, or no right to make it.
    """
    remove_abandoned(path.parent)
    slot_bytes = _slot_bytes(communicator.size, data_bytes)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # shows that its maker lives
        while True:
            try:
                os.posix_fallocate(file, 0, _segment_bytes(communicator.size, slot_bytes))
                break
            except OSError:
                os.ftruncate(file, 0)
                slot_bytes = _slot_bytes(communicator.size, data_bytes := data_bytes // 2)
        segment = Segment(communicator, file, slot_bytes)
    except BaseException:
        os.close(file)
        raise
    segment.initialise(secret)
    return segment


def _join(path: Path, communicator: Communicator, slot_bytes: int) -> Segment:
    """Another rank's view of the segment.

    Raises:
        OSError: it cannot be opened, or is not as large as the first rank made it.
    """
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(file).st_size
        wanted = _segment_bytes(communicator.size, slot_bytes)
        if found != wanted:
            raise OSError(0, f"it has {found} bytes, not {wanted}")
        return Segment(communicator, file, slot_bytes)
    except BaseException:
        os.close(file)
        raise


def _slot_bytes(size: int, data_bytes: int) -> int:
    """Whole cache lines for each slot.

    Raises:
        OSError: it comes to less than ``MIN_SLOT_BYTES``.
    """
    slot_bytes = data_bytes // (NUM_BUFFERS * size * CACHE_LINE_BYTES) * CACHE_LINE_BYTES
    if slot_bytes < MIN_SLOT_BYTES:
        needed = NUM_BUFFERS * size * MIN_SLOT_BYTES
        raise OSError(0, f"{size} ranks need {format_bytes(needed)} at least")
    return slot_bytes


def _data_at(size: int) -> int:
    """Where the slots begin: on a page of their own."""
    used = _HEADER_BYTES + size * size * SEMAPHORE_BYTES
    return -(-used // mmap.PAGESIZE) * mmap.PAGESIZE


def _segment_bytes(size: int, slot_bytes: int) -> int:
    return _data_at(size) + NUM_BUFFERS * size * slot_bytes

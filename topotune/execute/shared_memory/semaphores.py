"""Waiting for other processes through shared memory: POSIX semaphores, called from the C library.

Why semaphores. A rank must sleep while it waits, since ranks may outnumber cores and the trainer's own
threads want them; a wait must end by a deadline; and what a rank wrote before it signalled must be seen by
whom it wakes, on every processor. Semaphores give all three: POSIX (base definitions, 4.12) lists
``sem_post`` and the waits among the functions that synchronise memory, and glibc's keep to it between
processes as well. Flags in the memory itself would give none of them: plain tensor stores have no order on
aarch64, and polling them from TorchScript, which has nothing to sleep on, cost 3 to 30 ms a barrier where
four ranks shared two busy cores, against 35 µs with semaphores (Xeon, 2 cores, under load, 2026).

The interpreter lock. Only a wait that sleeps lets go of it: who does may have to wait 5 ms
(``sys.getswitchinterval``) to get it back when the main thread runs Python, a hundred times what the call
itself takes. (To sleep for 0.2 or 1 ms with the lock before letting go was tried: with busy main threads it
cost more than it saved.)
"""

import ctypes
import time
from functools import cache
from typing import Any, Final

SEMAPHORE_BYTES: Final = 128
"""Room for one: sem_t has 32 bytes on 64-bit Linux, and neighbours shall not share a cache line."""


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _LibC:
    """The calls that are needed; all but ``wait_until`` keep the interpreter lock."""

    def __init__(self) -> None:
        holding, releasing = ctypes.PyDLL(None), ctypes.CDLL(None)
        pointer, timespec = ctypes.c_void_p, ctypes.POINTER(_Timespec)
        self.init = _function(holding, "sem_init", pointer, ctypes.c_int, ctypes.c_uint)
        self.post = _function(holding, "sem_post", pointer)
        self.try_wait = _function(holding, "sem_trywait", pointer)
        self.let_others_run = _function(holding, "sched_yield")
        self.has_clock_wait = hasattr(releasing, "sem_clockwait")
        if self.has_clock_wait:
            self.wait_until = _function(releasing, "sem_clockwait", pointer, ctypes.c_int, timespec)
        else:  # before glibc 2.30 the clock of the day must do, which may be set
            self.wait_until = _function(releasing, "sem_timedwait", pointer, timespec)


def _function(library: ctypes.CDLL, name: str, *arguments: Any) -> Any:
    function = library[name]  # by index each is a new object, with argument types of its own
    function.argtypes = arguments
    function.restype = ctypes.c_int
    return function


@cache
def _libc() -> _LibC:
    return _LibC()


class Semaphore:
    """A process-shared semaphore at an address.

    Args:
        address: of ``SEMAPHORE_BYTES`` of shared memory, which must outlive this.
    """

    def __init__(self, address: int) -> None:
        self._address = address
        self._libc = _libc()

    def initialise(self) -> None:
        """Set it to zero, once, before anyone uses it."""
        failed = self._libc.init(self._address, 1, 0)
        assert not failed, "sem_init"

    def post(self) -> None:
        """Let one wait pass; all that was written before is seen after that wait."""
        failed = self._libc.post(self._address)
        assert not failed, "sem_post"

    def wait(self, timeout_s: float, *, spin_s: float = 0.0) -> bool:
        """Wait until it is posted, for about ``timeout_s``, or until a signal comes; whether it was posted.

        Args:
            timeout_s: seconds, >= 0.
            spin_s: how long to poll before sleeping, seconds; other threads may have the core between.
        """
        libc = self._libc
        if libc.try_wait(self._address) == 0:
            return True
        if spin_s:
            spin_until_s = time.perf_counter() + spin_s
            while time.perf_counter() < spin_until_s:
                libc.let_others_run()
                if libc.try_wait(self._address) == 0:
                    return True
        if timeout_s <= 0:
            return False
        clock = time.CLOCK_MONOTONIC if libc.has_clock_wait else time.CLOCK_REALTIME
        deadline = _Timespec(*divmod(time.clock_gettime_ns(clock) + round(timeout_s * 1e9), 10**9))
        arguments = (clock, deadline) if libc.has_clock_wait else (deadline,)
        return bool(libc.wait_until(self._address, *arguments) == 0)

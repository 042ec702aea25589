"""SIGTERM, answered by a thread at once, though the main thread is in a native call.

A launcher whose rank has died ends the others of that node by SIGTERM within a tenth of a second. Python's
own handlers run in the main thread, when it next runs Python: not before the collective ends that waits for
the dead rank. But the interpreter's part in C writes each signal's number into a socket at once.
"""

import ctypes
import os
import signal
import socket
import threading
from typing import NoReturn


class Termination:
    """Has SIGTERM written into a socket instead of ending the process; does so in the main thread alone.

    Where a program answers SIGTERM by itself it is left to it.

    Args:
        wakes: gets the number, one byte; made non-blocking.
    """

    def __init__(self, wakes: socket.socket) -> None:
        wakes.setblocking(False)
        self._takes = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if self._takes:
            signal.signal(signal.SIGTERM, lambda number, frame: None)
            self._former = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)

    def restore(self) -> None:
        """Have SIGTERM end the process again; in the main thread."""
        if self._takes:
            self._takes = False
            signal.set_wakeup_fd(self._former)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def terminate() -> NoReturn:
    """End this process as SIGTERM does; in any thread, which Python's own functions do not allow."""
    ctypes.CDLL(None).signal(int(signal.SIGTERM), 0)  # SIG_DFL
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(128 + signal.SIGTERM)

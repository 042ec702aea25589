"""Who is still there: a rank or node that dies ends the run of all others within seconds, by name.

Theory of operation. Gloo notices a process that was killed only where a message is due from it, and a node
whose network vanished not at all until its timeout. So every rank keeps one TCP connection to rank 0 on which
nothing is said. The kernel watches it: a process that ends, however it ends, closes it at once; a node that
does not answer the kernel's keep-alive probes (40 bytes every 2 s) is given up by it after 7 s. That needs no
thread that wakes up, so it costs measurements nothing, and a process that is busy or stopped is not taken for
a dead one: the kernel answers for it. (Candidates that hang have deadlines of their own.)

Rank 0 is the hub. When it loses a rank it waits a moment for others that went with it (a node; the ranks
that a launcher ends after the first), and tells the *loss*, one and the same, to all that are left; who loses
the hub names rank 0 by itself. A rank that leaves says so first, and why if it failed. On a loss each rank
ends its own waits, by functions that were given for that; what then fails in its main thread is replaced by
the loss when the ``with`` block is left. A rank whose main thread does not come out (it waits in a native
call that nothing ends) says the loss and ends its process.

A rank also watches the process that started it: a launcher that is killed does not end its ranks, which would
run on, on their own. And SIGTERM is answered here, at once: a launcher that sees a rank die sends it to the
others of that node, rank 0 among them, which must still say who died.
"""

import contextlib
import errno
import hmac
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from topotune.errors import RunError, TopotuneError, UsageError
from topotune.liveness.connection import Line, connect, listen
from topotune.liveness.hub import Hub
from topotune.liveness.loss import How, Loss
from topotune.liveness.termination import Termination, terminate

_VERDICT_S: Final = 4.0
"""How long a rank whose messages failed waits to hear of a loss: it fails sooner than the hub decides."""

_COME_SHARE: Final = 0.9
"""Of the timeout: after it, ranks that have not come are named."""

_LEAVE: Final = b"\0"  # no signal has this number

_COME_OUT_S: Final = 3.0
"""How long the main thread has after a loss before its process is ended."""

_MAX_REASON: Final = 500
_UNANSWERED: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})


class Watch:
    """This rank's part of the watch; a context manager. Making one is collective.

    Args:
        store: where all ranks meet; used while this is made, and not later.
        rank: own number.
        size: number of ranks.
        timeout: within which all ranks must have come.
        say: gets the error of a loss, in another thread, when this process is about to be ended: its main
            thread does not come out of a native call, or its launcher ends it because of that loss.

    Raises:
        RunError: on leaving the block, in place of whatever failed, if a rank was lost.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        timeout: timedelta,
        say: Callable[[TopotuneError], None] = lambda _error: None,
    ) -> None:
        self._rank = rank
        self._size = size
        self._host = socket.gethostname()
        # Before whatever else waits for all ranks gives up, without their names.
        self._within_s = _COME_SHARE * timeout.total_seconds()
        self._come_by_s = time.monotonic() + self._within_s
        self._say = say
        self._lock = threading.Lock()
        self._enders: list[Callable[[Loss], None]] = []
        self._loss: Loss | None = None
        self._agreed: TopotuneError | None = None
        self._decided = threading.Event()
        self._is_known = threading.Event()  # to rank 0; or it cannot be any more
        self._main_is_out = threading.Event()
        self._over = False
        self._lines: dict[int, Line] = {}
        self._selector = selectors.DefaultSelector()
        self._waking, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, "woken")
        self._termination = Termination(self._waking)
        self._launcher: int | None = None
        if rank == 0:
            self._listener, secret = listen(store)
            self._hub = Hub(secret, self._host)
            self._selector.register(self._listener, selectors.EVENT_READ, "listener")
        else:
            self._lines[0] = connect(store, rank, self._host, timeout)
            self._selector.register(self._lines[0].socket, selectors.EVENT_READ, self._lines[0])
        with contextlib.suppress(OSError):  # an old kernel, or a sandbox, has no process descriptors
            self._launcher = os.pidfd_open(os.getppid())
            self._selector.register(self._launcher, selectors.EVENT_READ, "launcher")
        work = self._serve if rank == 0 else self._listen_to_hub
        self._thread = threading.Thread(target=work, name="topotune liveness", daemon=True)
        self._thread.start()
        if rank != 0:
            # Until rank 0 has let this one in, it would end without a word to it.
            self._is_known.wait(self._within_s)

    @property
    def loss(self) -> Loss | None:
        """What was lost; None while all is well."""
        return self._loss

    def on_loss(self, end: Callable[[Loss], None]) -> None:
        """Have ``end`` called on a loss, in another thread: it ends waits of this rank, in milliseconds."""
        with self._lock:
            self._enders.append(end)
            loss = self._loss
        if loss is not None:
            end(loss)

    def __enter__(self) -> Self:
        return self

    def agree(self, error: TopotuneError) -> None:
        """Say that all ranks raise this very error: then none of them is lost, and none need say why.

        Of wrong use that is known.
        """
        self._agreed = error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or error is self._agreed or isinstance(error, UsageError):
            self._leave(None)
            return
        if isinstance(error, RuntimeError) and not self._over:
            # Its cause may be a loss of which the hub has not told yet.
            self._decided.wait(_VERDICT_S)
        self._main_is_out.set()
        self._termination.restore()
        if self._loss is not None:
            if self._rank != 0:
                # The hub's connections stay open until its process ends: others may not have read all yet.
                self._thread.join(_COME_OUT_S)
                self._close()
            raise self._loss.error() from error
        self._leave((str(error).strip().splitlines() or [""])[0] or type(error).__name__)

    # What both kinds of rank do.

    def _leave(self, reason: str | None) -> None:
        """Stop watching; the others hear why if this rank failed alone."""
        self._main_is_out.set()
        self._termination.restore()
        with self._lock:
            if self._over:
                return
            self._over = True
            if self._rank == 0:
                said: dict[str, Any] = {"end": True}
                if reason is not None:
                    said = {"loss": self._own_failure(reason).to_json()}
                for line in self._lines.values():
                    line.say(said)
            else:
                self._lines[0].say({"bye": reason})
        self._waking.send(_LEAVE)
        self._thread.join()
        self._close()

    def _own_failure(self, reason: str, how: How = "failed") -> Loss:
        return Loss(rank=self._rank, host=self._host, how=how, why=reason[:_MAX_REASON])

    def _close(self) -> None:
        self._selector.close()
        for line in self._lines.values():
            line.socket.close()
        self._lines.clear()
        self._waking.close()
        self._woken.close()
        if self._launcher is not None:
            os.close(self._launcher)
            self._launcher = None

    def _lose(self, loss: Loss) -> None:
        """End what the main thread waits for, and the process if it does not come out."""
        with self._lock:
            if self._over:
                return
            self._over = True
            self._loss = loss
            self._is_known.set()
            enders = list(self._enders)
        threading.Thread(target=self._last_resort, args=(loss,), daemon=True).start()
        for end in enders:
            # One that fails must not keep the others from ending what they are for.
            with contextlib.suppress(Exception):
                end(loss)
        self._decided.set()

    def _last_resort(self, loss: Loss) -> None:
        if not self._main_is_out.wait(_COME_OUT_S):
            error = loss.error()
            self._say(error)
            os._exit(error.exit_code)

    # Ranks other than 0.

    def _listen_to_hub(self) -> None:
        line = self._lines[0]
        while True:
            for key, _ in self._selector.select():
                if key.data == "woken":
                    if signal.SIGTERM not in (woken := self._woken.recv(64)):
                        if _LEAVE in woken:
                            return
                        continue
                    line.say({"terminated": True})
                    terminate()
                if key.data == "launcher":
                    line.say({"orphaned": True})
                    self._lose(self._own_failure("", "orphaned"))
                    return
                try:
                    heard = line.hear()
                except OSError as problem:
                    self._lose(Loss(rank=0, host=line.host, how=_how(problem)))
                    return
                for words in heard:
                    if "hub" in words:
                        line.host = str(words["hub"])
                        self._is_known.set()
                    elif "loss" in words:
                        self._lose(Loss.from_json(words["loss"]))
                        return
                    else:  # the end: rank 0 is done, and with it the run
                        self._selector.unregister(line.socket)

    # Rank 0.

    def _serve(self) -> None:
        hub = self._hub
        while True:
            wait_s = hub.wait_s(self._come_by_s if len(hub.come) < self._size - 1 else None)
            terminated = False
            for key, _ in self._selector.select(wait_s):
                if key.data == "woken":
                    woken = self._woken.recv(64)
                    terminated = signal.SIGTERM in woken
                    if _LEAVE in woken:
                        self._listener.close()
                        return
                elif key.data == "listener":
                    self._accept()
                elif key.data == "launcher":
                    self._selector.unregister(key.fd)
                    hub.lose(0, self._host, "orphaned", "")
                else:
                    self._hear(key.data)
            if terminated:
                self._let_in()
            loss = hub.verdict(at_once=terminated)
            if loss is None and terminated:
                loss = self._own_failure("", "terminated")
            if loss is None and len(hub.come) < self._size - 1 and time.monotonic() > self._come_by_s:
                loss = self._absent()
            if loss is not None:
                with self._lock:
                    for line in self._lines.values():
                        line.say({"loss": loss.to_json()})
                self._listener.close()
                self._lose(loss)
                if terminated:
                    if loss.how != "terminated":
                        # All ranks may be of this node, and end as this one does: then nobody else says it.
                        self._say(loss.error())
                    terminate()
                self._hear_out()
                return

    def _hear_out(self) -> None:
        """Take what the others still say: ending with it unread would tear up what they have not read."""
        while self._lines:
            for key, _ in self._selector.select():
                if isinstance(key.data, Line):
                    try:
                        key.data.hear()
                    except OSError:
                        self._drop(key.data)
                else:
                    self._selector.unregister(key.fileobj)

    def _let_in(self) -> None:
        """Take in all who have knocked, so that they too hear why this process ends."""
        while self._accept():
            pass
        for line in list(self._hub.strangers):
            self._hear(line)

    def _accept(self) -> bool:
        """Let one in that has knocked; whether there was one."""
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # nobody, or whoever it was has gone again
            return False
        line = Line(accepted)
        if len(self._hub.strangers) >= 2 * self._size:  # they have said nothing: make room
            self._drop(self._hub.strangers[0])
        self._hub.strangers.append(line)
        self._selector.register(accepted, selectors.EVENT_READ, line)
        return True

    def _hear(self, line: Line) -> None:
        hub = self._hub
        try:
            heard = line.hear()
        except OSError as problem:
            if line.rank is not None and line.rank not in hub.left:
                hub.lose(line.rank, line.host, _how(problem), "")
            self._drop(line)
            return
        for words in heard:
            if line.rank is None:
                if not self._introduced(line, words):
                    self._drop(line)
                    return
            elif "orphaned" in words:
                hub.lose(line.rank, line.host, "orphaned", "")
            elif "terminated" in words:
                hub.lose(line.rank, line.host, "terminated", "")
            elif "bye" in words:
                hub.left.add(line.rank)
                if words["bye"] is not None:
                    hub.lose(line.rank, line.host, "failed", str(words["bye"])[:_MAX_REASON])

    def _introduced(self, line: Line, words: dict[str, Any]) -> bool:
        """Take a rank in that knows the secret and was not here before."""
        rank, host = words.get("rank"), words.get("host")
        knows = hmac.compare_digest(str(words.get("secret")).encode(), self._hub.secret.encode())
        if not knows or not isinstance(rank, int) or not 0 < rank < self._size or rank in self._hub.come:
            return False
        line.rank, line.host = rank, str(host)[:255]
        self._hub.strangers.remove(line)
        self._hub.come.add(rank)
        with self._lock:
            self._lines[rank] = line
        line.say({"hub": self._host})
        return True

    def _drop(self, line: Line) -> None:
        self._selector.unregister(line.socket)
        if line in self._hub.strangers:
            self._hub.strangers.remove(line)
        with self._lock:
            if line.rank is not None:
                self._lines.pop(line.rank, None)
        line.socket.close()

    def _absent(self) -> Loss:
        missing = [rank for rank in range(1, self._size) if rank not in self._hub.come]
        return Loss(
            rank=missing[0],
            host="",
            how="absent",
            why=f"it did not come within {self._within_s:.0f} s",
            others=tuple((rank, "") for rank in missing[1:]),
        )


@contextmanager
def watched_ranks(
    *, timeout: timedelta, say: Callable[[TopotuneError], None] = lambda _error: None
) -> Iterator[tuple[Store, int, int, Watch]]:
    """Meet all ranks of the environment that torchrun gives, and watch over them.

    Args:
        timeout: of the store, and within which all ranks must have come.
        say: as for `Watch`.

    Yields:
        a part of the ranks' store that nothing has been left in, own rank, their number, and the watch.

    Raises:
        RunError: the store could not be reached; on leaving the block, a rank was lost.
    """
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]
    except (RuntimeError, ValueError) as problem:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        words = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        raise RunError(
            f"rank {os.environ.get('RANK')} did not reach the store of all ranks at {where}: {words}",
            hint="MASTER_ADDR and MASTER_PORT must name the node of rank 0",
        ) from problem
    store.set_timeout(timeout)
    part = _unused(store, size)
    with Watch(part, rank, size, timeout=timeout, say=say) as watch:
        yield part, rank, size, watch


def _unused(store: Store, size: int) -> PrefixStore:
    """A part of the store in which no earlier watch of the same ranks, and nobody else, has left anything.

    A job that makes a process group on the whole store afterwards, or has made one before, would else meet
    addresses of ours: torch's keys are the same for each default group.
    """
    number = (store.add("topotune watches", 1) - 1) // size
    return PrefixStore(f"topotune watch {number}", store)


def _how(problem: OSError) -> How:
    return "silent" if problem.errno in _UNANSWERED else "ended"

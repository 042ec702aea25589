"""Whether a node is reached at an address, and how fast: plain TCP, bounded in time, bytes and connections.

Each node opens a *door*: a listener at each of its candidates' addresses, and at no other, on a port that
the kernel chooses. Others *knock* with the door's secret, which they have from the store; the door's answer
proves that it is this door and no other listener at the same address (on many nodes docker0 has the same
one). Who does not know the secret gets nothing. Connections are not bound to an interface on the caller's
side, as gloo's are not: the kernel's routes decide, here and there.

A rate is what arrives, first byte to last, of what a caller sends for a moment: what waits in queues on the
way is waited for, so that the next measurement finds them empty.
"""

import hashlib
import hmac
import os
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Sequence
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self

from topotune.units import MIB

KNOCK_WITHIN_S: Final = 3.0
"""A lost first packet is sent again after 1 s."""
SEND_FOR_S: Final = 0.2
_MOST_BYTES: Final = 512 * MIB
_DRAIN_WITHIN_S: Final = 3.0
_GREETING_WITHIN_S: Final = 3.0
_MAX_GUESTS: Final = 64
_SECRET_BYTES: Final = 32
_KNOCK, _SEND = b"k", b"s"
_RATE: Final = struct.Struct("!d")
_UNSENT_BYTES: Final = MIB // 4
"""What the kernel may hold that is not under way yet: it would be waited for at the end."""


class Door:
    """Listeners at some addresses of this node; use it in a ``with`` block, which closes them.

    Args:
        addresses: numeric.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.secret = secrets.token_hex(_SECRET_BYTES // 2)
        self._listeners = [_listen(address) for address in addresses]
        self._guests: dict[threading.Thread, socket.socket] = {}
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="topotune door", daemon=True)

    @property
    def ports(self) -> tuple[int | None, ...]:
        """By address; None where nothing can listen there."""
        return tuple(None if listener is None else listener.getsockname()[1] for listener in self._listeners)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wake.close()
        self._thread.join()
        with self._lock:
            guests = dict(self._guests)
        for connection in guests.values():
            _hang_up(connection)
        for thread in guests:
            thread.join()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector, self._woken:
            listeners = [listener for listener in self._listeners if listener is not None]
            for each in (*listeners, self._woken):
                selector.register(each, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._woken in ready:
                    break
                for listener in listeners:
                    if listener in ready:
                        self._let_in(listener)
            for listener in listeners:
                listener.close()

    def _let_in(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # the caller has gone again
            return
        thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
        with self._lock:
            if len(self._guests) >= _MAX_GUESTS:
                connection.close()
                return
            self._guests[thread] = connection
        thread.start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(_GREETING_WITHIN_S)
            greeting = _receive(connection, 1 + _SECRET_BYTES)
            if not hmac.compare_digest(greeting[1:], self.secret.encode()):
                return
            connection.sendall(_proof(self.secret))
            if greeting[:1] == _SEND:
                connection.sendall(_RATE.pack(_arriving(connection)))
        except OSError:  # a stranger, or a caller who gave up: nobody is there to be told
            return
        finally:
            with self._lock:
                connection.close()
                del self._guests[threading.current_thread()]


def knock(address: str, port: int | None, secret: str) -> str | None:
    """Whether the door with this secret is there; None, or why not, in words."""
    if port is None:
        return "nothing can listen there"
    try:
        with _call(address, port, secret, _KNOCK):
            return None
    except OSError as problem:
        return _in_words(problem)


def send_for_a_moment(address: str, port: int | None, secret: str) -> float:
    """The rate at which bytes arrive there, in bytes/s; 0 where they do not."""
    if port is None:
        return 0.0
    block = os.urandom(_UNSENT_BYTES)  # nothing on the way shall compress it
    try:
        with _call(address, port, secret, _SEND) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
            sent, end_s = 0, time.monotonic() + SEND_FOR_S
            while sent < _MOST_BYTES and (left_s := end_s - time.monotonic()) > 0:
                connection.settimeout(left_s)
                try:
                    sent += connection.send(block)
                except TimeoutError:
                    break
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(2 * _DRAIN_WITHIN_S)
            rate: float = _RATE.unpack(_receive(connection, _RATE.size))[0]
            return rate
    except OSError:
        return 0.0


def _call(address: str, port: int, secret: str, purpose: bytes) -> socket.socket:
    connection = socket.create_connection((address, port), timeout=KNOCK_WITHIN_S)
    try:
        connection.sendall(purpose + secret.encode())
        if not hmac.compare_digest(_receive(connection, len(_proof(secret))), _proof(secret)):
            raise ConnectionError("another listener answers there")
    except BaseException:
        connection.close()
        raise
    return connection


def _proof(secret: str) -> bytes:
    return hashlib.sha256(b"topotune door " + secret.encode()).digest()


def _listen(address: str) -> socket.socket | None:
    family = socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
    try:
        return socket.create_server((address, 0), family=family, backlog=_MAX_GUESTS)
    except OSError:  # the address has gone since it was read
        return None


def _receive(connection: socket.socket, num_bytes: int) -> bytes:
    received = b""
    while len(received) < num_bytes:
        part = connection.recv(num_bytes - len(received))
        if not part:
            raise ConnectionError("another listener answers there")
        received += part
    return received


def _arriving(connection: socket.socket) -> float:
    """Bytes/s from the first byte to the last; what the first read brings does not count."""
    buffer = bytearray(MIB)
    give_up_s = time.monotonic() + SEND_FOR_S + _DRAIN_WITHIN_S
    connection.settimeout(_DRAIN_WITHIN_S)
    total, first_s = 0, 0.0
    last_s = first_s
    while total < 2 * _MOST_BYTES and time.monotonic() < give_up_s:
        count = connection.recv_into(buffer)
        if not count:
            break
        last_s = time.monotonic()
        if first_s:
            total += count
        else:
            first_s = last_s
    return total / (last_s - first_s) if last_s > first_s else 0.0


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # it has ended by itself
        return


def _in_words(problem: OSError) -> str:
    if isinstance(problem, TimeoutError):
        return f"no answer within {KNOCK_WITHIN_S:g} s"
    return (problem.strerror or str(problem)).lower()

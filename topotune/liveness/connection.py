"""The connections between rank 0 and the others by which `topotune.liveness.watch` watches over ranks.

The hub (rank 0) listens where gloo does (GLOO_SOCKET_IFNAME, MASTER_ADDR), on loopback alone if all ranks are
on one node. Whoever connects must say a secret that stands in the ranks' store.
"""

import contextlib
import errno
import json
import os
import secrets
import socket
from datetime import timedelta
from typing import Any, Final

import psutil
from torch.distributed import Store  # type: ignore[attr-defined]

from topotune.errors import RunError

PROBE_EVERY_S: Final = 2
"""How often the kernel probes a silent connection."""

SILENT_S: Final = 7
"""How long a node may leave probes unanswered; it is seen up to 2 s later."""

_CONNECT_S: Final = 5.0
_MAX_LINE_BYTES: Final = 1 << 20


class Line:
    """One connection, on which JSON documents go, one a line; its kernel watches whether the other end lives.

    Attributes:
        rank: at the other end; None until it has introduced itself.
        host: its node's host name.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.rank: int | None = None
        self.host = ""
        self._buffer = b""
        connected.setblocking(False)
        for option, value in (
            (socket.TCP_KEEPIDLE, PROBE_EVERY_S),
            (socket.TCP_KEEPINTVL, 1),
            (socket.TCP_KEEPCNT, SILENT_S),
            # Counts for data that is on its way too, where the kernel sends no probes.
            (socket.TCP_USER_TIMEOUT, 1000 * SILENT_S),
            (socket.TCP_NODELAY, 1),
        ):
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def say(self, words: dict[str, Any]) -> None:
        """Send a document; it fits the kernel's buffer, so this never waits. Who has gone hears nothing."""
        with contextlib.suppress(OSError):
            self.socket.send(json.dumps(words).encode() + b"\n")

    def hear(self) -> list[dict[str, Any]]:
        """What has arrived.

        Raises:
            OSError: the other end is gone, or says what cannot be read.
        """
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _MAX_LINE_BYTES:
            raise OSError(errno.EPROTO, "a line without an end")
        try:
            documents = [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as problem:
            raise OSError(errno.EPROTO, "no JSON") from problem
        if not all(isinstance(document, dict) for document in documents):
            raise OSError(errno.EPROTO, "no JSON object")
        return documents


def listen(store: Store) -> tuple[socket.socket, str]:
    """The hub's listening socket, and the secret; both are told in the store."""
    secret = secrets.token_hex(16)
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE"):
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        addresses = ["127.0.0.1"]
    else:
        if socket.has_dualstack_ipv6():
            listener = socket.create_server(
                ("", 0), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True
            )
        else:
            listener = socket.create_server(("", 0), backlog=1024)
        addresses = [*_chosen_addresses(), os.environ.get("MASTER_ADDR", "")]
    listener.setblocking(False)
    told = {"addresses": addresses, "port": listener.getsockname()[1], "secret": secret}
    store.set("hub", json.dumps(told))
    return listener, secret


def _chosen_addresses() -> list[str]:
    """Addresses of the interfaces that gloo was told to use on this node."""
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    known = psutil.net_if_addrs()
    return [
        address.address
        for name in names
        for address in known.get(name, ())
        if address.family in (socket.AF_INET, socket.AF_INET6) and "%" not in address.address
    ]


def connect(store: Store, rank: int, host: str, timeout: timedelta) -> Line:
    """This rank's connection to the hub.

    Raises:
        RunError: rank 0 did not come, or cannot be reached.
    """
    try:
        store.wait(["hub"], timeout)
    except RuntimeError as problem:
        raise RunError(
            f"rank {rank} on node {host} heard nothing from rank 0 within {timeout.total_seconds():g} s",
            hint="look at what rank 0 printed last",
        ) from problem
    told = json.loads(store.get("hub"))
    problems = []
    for address in dict.fromkeys(told["addresses"]):
        try:
            line = Line(socket.create_connection((address, told["port"]), timeout=_CONNECT_S))
        except OSError as problem:
            problems.append(f"{address} ({problem.strerror or problem})")
            continue
        line.say({"secret": told["secret"], "rank": rank, "host": host})
        return line
    raise RunError(
        f"rank {rank} on node {host} does not reach rank 0 at port {told['port']} of {', '.join(problems)}",
        hint="a firewall may close all ports but the launcher's; GLOO_SOCKET_IFNAME names another interface",
    )

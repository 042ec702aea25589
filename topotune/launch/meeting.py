"""The store at which processes on several machines meet: serving it, finding it, telling it from others.

torch's TCPStore has no names: whoever listens on a port is taken for the store that was sought. Ports are
derived from job numbers, and an address such as 172.17.0.1 is every machine's own. So the one who serves a
store leaves a token in it, and whoever connects looks for that before using it.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import psutil
import torch.distributed as dist

from topotune.errors import RunError

TIMEOUT_S: Final = 600.0
"""How long processes wait for each other to be started: nodes of a cloud come up minutes apart."""
_CONNECT_S: Final = 3.0
_RETRY_S: Final = 0.25
_REPORT_AFTER_S: Final = 10.0
_TOKEN: Final = "topotune/token"
_STORE_TIMEOUT: Final = timedelta(seconds=30)

Address = tuple[str, int]


def serve(port: int, token: str, *, interface: str = "", port_hint: str | None = None) -> Any:
    """Serve a store.

    Args:
        port: 0 takes one that is free.
        token: by what others know it.
        interface: the address to listen at; "" for all of IPv4, "::" for all.
        port_hint: how the user can choose another port.

    Returns:
        A TCPStore; it is served as long as this object lives.

    Raises:
        RunError: the port is taken.
    """
    try:
        listener = _listener(interface, port)
    except OSError as problem:
        reason = os.strerror(problem.errno or 0)
        raise RunError(
            f"port {port} of this machine cannot be listened on: {reason}", hint=port_hint
        ) from problem
    port = listener.getsockname()[1]
    local = "::1" if listener.family == socket.AF_INET6 else "127.0.0.1"
    store = dist.TCPStore(  # type: ignore[attr-defined]
        local,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=_STORE_TIMEOUT,
        master_listen_fd=listener.detach(),
    )
    store.set(_TOKEN, token)
    return store


def find(
    places: Sequence[Address],
    token: str,
    *,
    what: str,
    stopped: Callable[[], bool] = lambda: False,
    report: Callable[[str], None] = lambda line: None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Any, Address]:
    """Connect to the store that has a token.

    Args:
        places: host and port, the likeliest first.
        token: of the store that is sought.
        what: is sought, in words, for messages.
        stopped: asked again and again; True gives up.
        report: takes a line for the user when the wait gets long.
        timeout_s: how long to try.

    Returns:
        A TCPStore, and where it was found.

    Raises:
        RunError: it was not found in time, or the wait was stopped.
    """
    start_s = time.monotonic()
    reported = False
    last = "nothing was tried"
    while not stopped():
        for host, port in places:
            try:
                store = _try(host, port, token)
            except (OSError, RuntimeError) as problem:  # torch raises DistError, a RuntimeError
                last = f"{host}:{port}: {str(problem).splitlines()[0]}"
            else:
                return store, (host, port)
        waited_s = time.monotonic() - start_s
        if waited_s > timeout_s:
            break
        if waited_s > _REPORT_AFTER_S and not reported:
            report(f"waiting for {what}: {last}")
            reported = True
        time.sleep(_RETRY_S)
    raise RunError(
        f"{what} was not found within {time.monotonic() - start_s:.0f} s: {last}",
        hint="is it started there with the same command, and does the network let this machine reach it?",
    )


def own_addresses() -> tuple[str, ...]:
    """Addresses of interfaces that are up, IPv4 first, without loopback and link-local ones."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    found: dict[socket.AddressFamily, list[str]] = {socket.AF_INET: [], socket.AF_INET6: []}
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if (
                name in up
                and each.family in found
                and not each.address.startswith(("127.", "::1", "fe80:", "169.254."))
            ):
                found[socket.AddressFamily(each.family)].append(each.address)
    return (*found[socket.AF_INET], *found[socket.AF_INET6])


def is_here(host: str) -> bool:
    """A host name or address is this machine's."""
    try:
        resolved = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return any(address in own_addresses() or address.startswith(("127.", "::1")) for address in resolved)


def interface_for(host: str) -> str:
    """Where to listen if others call this machine by this name or address: IPv6 if that has no IPv4."""
    try:
        families = {info[0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return ""
    return "" if socket.AF_INET in families else "::"


def _listener(interface: str, port: int) -> socket.socket:
    # Of both only where asked: such a socket sees IPv4 peers under mapped addresses, whose names torch asks
    # for, and warns of where nobody knows them.
    if ":" in interface:
        return socket.create_server(
            (interface, port), family=socket.AF_INET6, dualstack_ipv6=socket.has_dualstack_ipv6()
        )
    return socket.create_server((interface, port))


def _try(host: str, port: int, token: str) -> Any:
    # By a plain socket first: torch's own attempt takes long to fail, and writes to standard error meanwhile.
    socket.create_connection((host, port), timeout=_CONNECT_S).close()
    store = dist.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=False, wait_for_workers=False, timeout=_STORE_TIMEOUT
    )
    store.wait([_TOKEN], timedelta(seconds=_CONNECT_S))
    found = bytes(store.get(_TOKEN)).decode(errors="replace")
    if found != token:
        raise RunError(f"there is the store of another run ({found[:80]!r} instead of {token[:80]!r})")
    return store

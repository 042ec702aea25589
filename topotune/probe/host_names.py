"""What host names resolve to on this machine, within a bound of time: name servers that are gone take long.

Distributions give a machine's own name the address 127.0.1.1 in /etc/hosts. Whatever publishes its name, or
listens where its name points to (gloo by itself, torchrun's rendezvous, MPI's daemons), is then found by no
other node.
"""

import queue
import socket
import threading
import time
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from topotune.probe.tree import Tree

HOST_NAME_ADDRESSES: Final = "host_name_addresses"
"""Fact: what the machine's own name resolves to on it; ``none`` where to nothing; null where nobody knows."""
NAMES_UNRESOLVED: Final = "host_names_unresolved"
NAMES_ON_LOOPBACK: Final = "host_names_on_loopback"
"""Facts: names of other nodes that resolve to nothing here, or to this machine's own loopback addresses."""

OWN_WITHIN_S: Final = 2.0
_MAX_THREADS: Final = 32
_MAX_SHOWN: Final = 16
NO_ADDRESS: Final = "none"


def own_name_addresses(tree: Tree, name: str) -> str | None:
    """The fact `HOST_NAME_ADDRESSES`: a running machine is asked, a captured one's etc/hosts is read."""
    if tree.live:
        return addresses_in_words(resolve((name,), OWN_WITHIN_S).get(name))
    hosts = tree.text("etc/hosts")
    return None if hosts is None else addresses_in_words(parse_hosts(hosts).get(name.lower()))


def addresses_in_words(addresses: Sequence[str] | None) -> str | None:
    """``10.0.0.1, fd00::1``; ``none`` without any; None where nobody knows."""
    return None if addresses is None else ", ".join(addresses[:_MAX_SHOWN]) or NO_ADDRESS


def parse_hosts(text: str) -> dict[str, tuple[str, ...]]:
    """/etc/hosts → addresses by name in lower case; lines that are none are passed over."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        try:
            ip_address(address.partition("%")[0])
        except ValueError:
            continue
        for name in names:
            known = found.get(name.lower(), ())
            found[name.lower()] = known if address in known else (*known, address)
    return found


def only_loopback(addresses: Sequence[str]) -> bool:
    """Whether there are addresses, all of which stay inside the machine."""
    return bool(addresses) and all(ip_address(each.partition("%")[0]).is_loopback for each in addresses)


def facts_of_others(names: Sequence[str], within_s: float) -> dict[str, str]:
    """`NAMES_UNRESOLVED` and `NAMES_ON_LOOPBACK` of other nodes' names, but those that take too long."""
    resolved = resolve(names, within_s)
    unresolved = [name for name, addresses in resolved.items() if not addresses]
    on_loopback = [name for name, addresses in resolved.items() if only_loopback(addresses)]
    told = {NAMES_UNRESOLVED: unresolved, NAMES_ON_LOOPBACK: on_loopback}
    return {fact: _listed(names) for fact, names in told.items() if names}


def resolve(names: Sequence[str], within_s: float) -> dict[str, tuple[str, ...]]:
    """The addresses of names, none for one that there is not; what takes longer than this is missing from it.

    A look-up cannot be cut off, so each runs in a thread that is left behind when the time is over.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...] | None]] = queue.SimpleQueue()
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        waiting.put(name)

    def work() -> None:
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            answers.put((name, _look_up(name)))

    for _ in range(min(_MAX_THREADS, len(wanted))):
        threading.Thread(target=work, name="topotune-names", daemon=True).start()
    found: dict[str, tuple[str, ...]] = {}
    give_up_s = time.monotonic() + within_s
    for _ in wanted:
        try:
            name, addresses = answers.get(timeout=max(0.0, give_up_s - time.monotonic()))
        except queue.Empty:
            break
        if addresses is not None:
            found[name] = addresses
    return {name: found[name] for name in wanted if name in found}


def _look_up(name: str) -> tuple[str, ...] | None:
    """Its addresses; none where there is no such name, None where the name server does not answer."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as problem:
        return None if problem.errno == socket.EAI_AGAIN else ()
    except (OSError, UnicodeError):
        return None
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(names[:_MAX_SHOWN]) + more

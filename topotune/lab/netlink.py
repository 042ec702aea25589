"""Speaking to the kernel about a network namespace that this process is not in.

pyroute2 would open its socket in a forked child. A fork of this process carries its signal handlers and its
``with`` blocks along, and the SIGTERM by which pyroute2 ends that child would take the lab down from inside
the child. A thread may enter a namespace too, and ends without a trace; sockets stay in the namespace where
they were opened.
"""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyroute2 import IPRoute

from topotune.lab import inside


@contextmanager
def route_in(namespace: int) -> Iterator[IPRoute]:
    """Links, addresses and queues of a network namespace.

    Args:
        namespace: a descriptor open on it.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        opened = pool.submit(_open_socket, namespace).result()
    with IPRoute(fileno=opened.detach()) as route:
        yield route


def _open_socket(namespace: int) -> socket.socket:
    inside.enter_namespace(namespace, "net")
    return socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)

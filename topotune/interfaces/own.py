"""This machine's interfaces as candidates for gloo, which one is forced, which the kernel and gloo prefer."""

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final

import psutil

from topotune.errors import UsageError
from topotune.interfaces.choice import Candidate
from topotune.probe.netdev import Interface, read_interfaces
from topotune.probe.node_launchers import read_interface
from topotune.probe.tree import Tree

OWN_VARIABLE: Final = "TOPOTUNE_INTERFACE"
GLOO_VARIABLE: Final = "GLOO_SOCKET_IFNAME"
_FORCING: Final = {OWN_VARIABLE: "--interface or TOPOTUNE_INTERFACE", GLOO_VARIABLE: GLOO_VARIABLE}
"""What forces interfaces, the strongest first → what to call it."""
MAX_CANDIDATES: Final = 8
_INNER: Final = frozenset({"bridge", "veth", "tun", "dummy", "ifb", "vxlan", "wireguard", "geneve"})
"""Software that mostly joins containers and virtual machines of one node: tried last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forced:
    """Interfaces that somebody named.

    Attributes:
        names: one or more.
        by: what named them, in words.
    """

    names: tuple[str, ...]
    by: str


def force(names: str) -> None:
    """Have this process and its children use interfaces, as a user named them: ``eth0``, ``eth0,eth1``.

    Raises:
        UsageError: there is no name.
    """
    if not _names(names):
        raise UsageError(f"--interface {names!r}: names no interface", hint="--interface eth0")
    os.environ[OWN_VARIABLE] = names


def read_forced(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Forced | None:
    """What the environment, or the platform's files below a root folder, force; None leaves the choice free.

    Raises:
        UsageError: what the platform names cannot be an interface.
    """
    for variable, words in _FORCING.items():
        names = _names(environment.get(variable, ""))
        if names:
            return Forced(names=names, by=words)
    of_platform = read_interface(environment, root)
    return None if of_platform is None else Forced(names=(of_platform,), by="SageMaker")


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def read_candidates(forced: Forced | None = None) -> tuple[Candidate, ...]:
    """The interfaces at which gloo could listen, at most 8, in the kernel's order; or those that are forced.

    Raises:
        UsageError: one that is forced is not there, is down, or has no address.
    """
    kinds = {interface.name: interface for interface in read_interfaces(Tree(Path("/")))}
    addresses, states = psutil.net_if_addrs(), psutil.net_if_stats()
    found = [
        _candidate(name, address, kinds.get(name))
        for name in addresses
        if name in states and states[name].isup and (address := gloo_address(addresses[name])) is not None
    ]
    if forced is None:
        usual = [each for each in found if not ip_address(each.address).is_loopback]
        plainest_first = sorted(usual, key=lambda each: each.software in _INNER)
        return tuple(each for each in usual if each in plainest_first[:MAX_CANDIDATES])
    by_name = {each.name: each for each in found}
    for name in forced.names:
        if name not in by_name:
            there = "is down, or has no address" if name in addresses else "does not exist"
            raise UsageError(
                f"network interface {name!r} of node {socket.gethostname()}, forced by {forced.by}, {there}",
                hint=f"it has {', '.join(each.name for each in found) or 'none that is up'}",
            )
    return tuple(by_name[name] for name in forced.names)


def _candidate(name: str, address: str, interface: Interface | None) -> Candidate:
    return Candidate(
        name=name,
        address=address,
        speed_bits_per_s=None if interface is None else interface.speed_bits_per_s,
        software=None if interface is None else interface.virtual,
    )


def gloo_address(addresses: Iterable[Any]) -> str | None:
    """The address at which gloo listens on an interface: its first, IPv4 before IPv6 (torch 2.13).

    None where there is none, or where that is a link-local one of IPv6, which other nodes cannot name.

    Args:
        addresses: of the interface, as psutil lists them.
    """
    for address in addresses:
        if address.family in (socket.AF_INET, socket.AF_INET6):
            parsed = ip_address(address.address)
            return None if isinstance(parsed, IPv6Address) and parsed.is_link_local else str(parsed)
    return None


def interface_towards(host: str) -> str | None:
    """The interface by which the kernel would send to a host; None where that cannot be told."""
    try:
        family, kind, _, _, destination = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(destination)  # of a datagram socket: looks up the route, sends nothing
            return _interface_with(probe.getsockname()[0])
    except OSError:
        return None


def gloo_default() -> str | None:
    """The interface that gloo takes by itself: the one with the host name's first address (torch 2.13)."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return _interface_with("127.0.0.1")
    for family, kind, _, _, address in found:
        with socket.socket(family, kind) as listener:
            try:
                listener.bind(address)
            except OSError:
                continue
        return _interface_with(str(address[0]))
    return _interface_with("127.0.0.1")


def _interface_with(address: str) -> str | None:
    wanted = ip_address(address)
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family in (socket.AF_INET, socket.AF_INET6) and ip_address(each.address) == wanted:
                return str(name)
    # 127.0.1.1, Debian's address of the host's name, stands at no interface; all of 127/8 is loopback's.
    return _interface_with("127.0.0.1") if wanted.is_loopback and address != "127.0.0.1" else None

"""The IP networks of interfaces, from the kernel's own tables: /proc/net/route and /proc/net/if_inet6."""

from collections import defaultdict
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from topotune.probe.tree import Tree

ROUTES: Final = "proc/net/route"
_ADDRESSES6: Final = "proc/net/if_inet6"
_MAX_BYTES: Final = 1024 * 1024
_MAX_ROUTES: Final = 4096
_UP: Final = 0x1
_GATEWAY: Final = 0x2
_LINK_SCOPE: Final = 0x20
_HOST_SCOPE: Final = 0x10


@dataclass(frozen=True, kw_only=True, slots=True)
class Networks:
    """What stands in the kernel's tables.

    Attributes:
        ipv4: interface → networks that it has an address in.
        ipv6: interfaces with an address beyond their own link.
        default: the interface of the default route with the lowest metric.
    """

    ipv4: dict[str, tuple[IPv4Network, ...]] = field(default_factory=dict)
    ipv6: frozenset[str] = frozenset()
    default: str | None = None


def read_networks(tree: Tree) -> Networks:
    """The networks of all interfaces; empty where the tree shows no tables."""
    routes = tree.text(ROUTES, max_bytes=_MAX_BYTES, cut=True) or ""
    ipv4, default = parse_routes(routes)
    return Networks(
        ipv4=ipv4,
        ipv6=parse_addresses6(tree.text(_ADDRESSES6, max_bytes=_MAX_BYTES, cut=True) or ""),
        default=default,
    )


def parse_routes(text: str) -> tuple[dict[str, tuple[IPv4Network, ...]], str | None]:
    """/proc/net/route → the networks straight on each interface, and the interface of the default route.

    Lines that are no route are passed over: the table holds one heading, and is written while it is read.
    """
    networks: dict[str, dict[IPv4Network, None]] = defaultdict(dict)
    defaults: list[tuple[int, str]] = []
    for line in text.splitlines()[1 : _MAX_ROUTES + 1]:
        words = line.split()
        if len(words) < 8:
            continue
        try:
            # Addresses are written as the machine holds them: lowest byte first wherever topotune runs.
            destination, mask = (
                int.from_bytes(bytes.fromhex(word)[::-1], "big") for word in (words[1], words[7])
            )
            flags, metric = int(words[3], 16), int(words[6])
            network = IPv4Network((IPv4Address(destination), str(IPv4Address(mask))))
        except ValueError:
            continue
        if not flags & _UP:
            continue
        if flags & _GATEWAY:
            if not mask:
                defaults.append((metric, words[0]))
        elif 0 < network.prefixlen < 32 and not network.is_link_local:
            networks[words[0]][network] = None
    return {name: tuple(each) for name, each in networks.items()}, min(defaults, default=(0, None))[1]


def parse_addresses6(text: str) -> frozenset[str]:
    """/proc/net/if_inet6 → interfaces with an address that is neither of the link nor of the host."""
    found = set()
    for line in text.splitlines():
        words = line.split()
        if len(words) != 6:
            continue
        try:
            scope = int(words[3], 16)
        except ValueError:
            continue
        if scope not in (_LINK_SCOPE, _HOST_SCOPE):
            found.add(words[5])
    return frozenset(found)

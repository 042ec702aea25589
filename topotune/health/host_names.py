"""Names of nodes that lead nowhere: what starts by name, or listens where its name leads to, is not met."""

from collections.abc import Iterator
from typing import Final

from topotune.health.node import Node
from topotune.links.finding import Finding
from topotune.probe.host_names import (
    HOST_NAME_ADDRESSES,
    NAMES_ON_LOOPBACK,
    NAMES_UNRESOLVED,
    NO_ADDRESS,
    only_loopback,
)

_MET: Final = (
    "gloo, torchrun and MPI listen at it or tell others to meet there; cost not known: it is one of starting"
)
_ADVICE: Final = (
    "give the name the address of its network interface in /etc/hosts or DNS; or name what is meant: "
    "GLOO_SOCKET_IFNAME, torchrun --local-addr, an address in MASTER_ADDR"
)


def host_name_findings(node: Node, *, alone: bool) -> Iterator[Finding]:
    """All findings about the names that a node has and knows.

    Args:
        node: it.
        alone: no other node was looked at: then nothing shows that the name matters to anybody.
    """
    yield from _own(node, alone)
    yield from _others(node)


def _own(node: Node, alone: bool) -> Iterator[Finding]:
    said = node.text(HOST_NAME_ADDRESSES)
    if said == NO_ADDRESS:
        yield Finding(
            code="host-name-unresolved",
            severity="info",
            where=node.where(),
            evidence=f"its own name has no address: {_MET}",
            advice=_ADVICE,
        )
    elif said is not None and only_loopback(said.split(", ")):
        yield Finding(
            code="host-name-loopback",
            severity="info" if alone else "warning",
            where=node.where(),
            evidence=f"its own name resolves to {said}, which leads every node to itself: {_MET}",
            advice=_ADVICE,
        )


def _others(node: Node) -> Iterator[Finding]:
    on_loopback, unresolved = node.text(NAMES_ON_LOOPBACK), node.text(NAMES_UNRESOLVED)
    told = [
        *([] if on_loopback is None else [f"to its own loopback: {on_loopback}"]),
        *([] if unresolved is None else [f"to no address: {unresolved}"]),
    ]
    if told:
        yield Finding(
            code="peer-names-unresolved",
            severity="info" if on_loopback is None else "warning",
            where=node.where(),
            evidence=f"names of other nodes resolve {'; '.join(told)}; cost not known: it is one of starting",
            advice="give all nodes the same /etc/hosts or name server; MASTER_ADDR may be an address",
        )

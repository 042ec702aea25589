"""The wires of a lab: a link per node into its rack's bridge, a spine that joins racks, every end shaped.

    node a: eth0 ══ node0 ┐                          ┌ node2 ══ eth0 :node c
                          rack0 ═ up0 ══ down0 ═ spine ═ down1 ══ up1 ═ rack1
    node b: eth0 ══ node1 ┘                          └ node3 ══ eth0 :node d

Bridges and the inner ends of the links live in a namespace of their own, the *switch*. ``══`` is a pair of
veth interfaces; what leaves an end is shaped there, so a link is shaped in both directions by a token bucket
on each end. Without racks there is one bridge and no spine.

Packets may hold 9000 bytes, as on the Ethernet of a cluster: headers then cost under 1 % of the rate. Queues
are long enough to lose nothing (a lost packet costs TCP up to 200 ms, which would drown what the lab is there
to show).
"""

import errno
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from topotune.errors import RunError, UsageError
from topotune.lab.netlink import route_in
from topotune.lab.profile import LabNode, LabProfile

INTERFACE: Final = "eth0"
PREFIX_LENGTH: Final = 24
_FIRST_ADDRESS: Final = IPv4Address("10.18.0.1")
_MTU_BYTES: Final = 9000
_QUEUE_BYTES: Final = 32 * 2**20
_QUEUE_PACKETS: Final = 65536
_TBF_HANDLE: Final = 0x10000  # "1:"
_TBF_CLASS: Final = 0x10001  # "1:1"
_LO_INDEX: Final = 1
_FEATURES: Final = {
    "bridge": "network bridges (CONFIG_BRIDGE)",
    "veth": "veth interfaces (CONFIG_VETH)",
    "tbf": "token buckets (CONFIG_NET_SCH_TBF)",
}


def address_of(index: int) -> str:
    """The IPv4 address of the node at an index; it means nothing outside the lab's namespaces."""
    return str(_FIRST_ADDRESS + index)


def hosts_text(profile: LabProfile) -> str:
    """The lab's ``/etc/hosts``: names of nodes resolve inside, whatever the machine's name server says.

    A server that listens on IPv6 sees its IPv4 clients under mapped addresses, and torch's store asks for
    their names; without an answer here it warns of each. That name differs, so that a node's own has one
    address.
    """
    lines = ["127.0.0.1 localhost", "::ffff:127.0.0.1 localhost.mapped"]
    for index, node in enumerate(profile.nodes):
        lines += [f"{address_of(index)} {node.name}", f"::ffff:{address_of(index)} {node.name}.mapped"]
    return "".join(f"{line}\n" for line in lines)


def require_latency(switch_namespace: int, profile: LabProfile) -> None:
    """Refuse a profile with a latency on a kernel that cannot add one.

    Args:
        switch_namespace: a descriptor open on the network namespace of the bridges.
        profile: one with a latency.

    Raises:
        UsageError: it has no netem.
    """
    slow = next(node for node in profile.nodes if node.latency_s > 0)
    with route_in(switch_namespace) as switch:
        try:
            # On the switch's loopback, which is down and carries nothing.
            switch.tc("add", "netem", index=_LO_INDEX, handle="1:", delay=1)
        except NetlinkError as problem:
            if problem.code != errno.ENOENT:
                raise
            raise UsageError(
                f"lab profile {profile.name}: node {slow.name!r} has latency_s {slow.latency_s:g}, and this"
                " kernel has no netem (CONFIG_NET_SCH_NETEM) to add a delay",
                hint="--no-latency leaves the delays out",
            ) from problem


def build(
    profile: LabProfile, switch_namespace: int, node_namespaces: Sequence[int], *, latency: bool
) -> None:
    """Lay and shape every link.

    Args:
        profile: the cluster.
        switch_namespace: a descriptor open on the network namespace of the bridges.
        node_namespaces: the same per node.
        latency: whether links get the delays of the profile.

    Raises:
        RunError: the kernel lacks something, or refuses a request.
    """
    racks = profile.racks
    index_of_rack = {rack.name: index for index, rack in enumerate(racks)}
    with route_in(switch_namespace) as switch:
        if racks:
            _add_bridge(switch, "spine")
        for index, rack in enumerate(racks):
            _add_bridge(switch, f"rack{index}")
            inner, outer = f"up{index}", f"down{index}"
            _request(
                "veth", switch, "add", ifname=inner, mtu=_MTU_BYTES, peer={"ifname": outer, "mtu": _MTU_BYTES}
            )
            for end, bridge in ((inner, f"rack{index}"), (outer, "spine")):
                _shape(switch, end, rack.uplink_bits_per_s, profile.burst_bytes)
                _plug(switch, end, bridge)
        if not racks:
            _add_bridge(switch, "rack0")
        for index, (node, namespace) in enumerate(zip(profile.nodes, node_namespaces, strict=True)):
            port, delay_s = f"node{index}", node.latency_s if latency else 0.0
            _request(
                "veth",
                switch,
                "add",
                ifname=port,
                mtu=_MTU_BYTES,
                peer={"ifname": INTERFACE, "mtu": _MTU_BYTES, "net_ns_fd": namespace},
            )
            _shape(switch, port, node.bits_per_s, profile.burst_bytes, delay_s)
            _plug(switch, port, f"rack{index_of_rack[node.rack] if node.rack is not None else 0}")
            _build_node(node, index, namespace, profile.burst_bytes, delay_s)


def _build_node(node: LabNode, index: int, namespace: int, burst_bytes: int, delay_s: float) -> None:
    with route_in(namespace) as inside:
        inside.link("set", index=_LO_INDEX, state="up")
        _shape(inside, INTERFACE, node.bits_per_s, burst_bytes, delay_s)
        end = _index(inside, INTERFACE)
        inside.addr("add", index=end, address=address_of(index), prefixlen=PREFIX_LENGTH)
        inside.link("set", index=end, state="up")


def _add_bridge(switch: IPRoute, name: str) -> None:
    _request("bridge", switch, "add", ifname=name, mtu=_MTU_BYTES, state="up")


def _plug(switch: IPRoute, port: str, bridge: str) -> None:
    switch.link("set", index=_index(switch, port), master=_index(switch, bridge), state="up")


def _shape(route: IPRoute, interface: str, bits_per_s: int, burst_bytes: int, delay_s: float = 0.0) -> None:
    """Let an end of a link send at a rate, and each packet only after a delay."""
    end = _index(route, interface)
    try:
        route.tc(
            "add",
            "tbf",
            index=end,
            handle=_TBF_HANDLE,
            rate=bits_per_s // 8,
            burst=burst_bytes,
            limit=_QUEUE_BYTES,
        )
    except NetlinkError as problem:
        raise _lacking("tbf", problem) from problem
    if delay_s > 0:
        route.tc(
            "add",
            "netem",
            index=end,
            parent=_TBF_CLASS,
            handle=_TBF_HANDLE * 2,
            delay=round(delay_s * 1e6),  # microseconds
            limit=_QUEUE_PACKETS,
        )


def _request(kind: str, route: IPRoute, command: str, **members: object) -> None:
    try:
        route.link(command, kind=kind, **members)
    except NetlinkError as problem:
        raise _lacking(kind, problem) from problem


def _lacking(kind: str, problem: NetlinkError) -> RunError:
    if problem.code in (errno.ENOENT, errno.EOPNOTSUPP):
        return RunError(
            f"the lab needs {_FEATURES[kind]}, which this kernel does not have",
            hint="load the module, or use a kernel that has it",
        )
    return RunError(f"the kernel refused a {kind} for the lab: {problem}")


def _index(route: IPRoute, interface: str) -> int:
    (index,) = route.link_lookup(ifname=interface)
    return int(index)

"""Network interfaces, from /sys/class/net: hardware told apart from what is only software."""

import re
from dataclasses import dataclass
from typing import Final

from topotune.probe.kernel_text import parse_index, parse_whole, parse_word
from topotune.probe.pci import pci_address_of
from topotune.probe.tree import Tree

INTERFACES: Final = "sys/class/net"
MAX_MBIT_PER_S: Final = 6_400_000

_VIRTUAL_FOLDER = "sys/devices/virtual/"
_NAME = re.compile(r"[^\s/]{1,64}")
_LOOPBACK_TYPE = "772"  # ARPHRD_LOOPBACK
# SPEED_UNKNOWN of the kernel, as signed, unsigned and 16-bit drivers print it.
_SPEED_UNKNOWN = {"-1", "4294967295", "65535"}
_VIRTUAL_DEVTYPES = {
    "bridge",
    "bond",
    "vlan",
    "vxlan",
    "macvlan",
    "macvtap",
    "ipvlan",
    "geneve",
    "gre",
    "wireguard",
}
# By name, where a captured tree lost the links that tell hardware from software.
_VIRTUAL_NAMES = (
    (re.compile(r"lo"), "loopback"),
    (re.compile(r"docker\d+|br-.+|virbr\d+|cni\d+|lxcbr\d+|lxdbr\d+"), "bridge"),
    (re.compile(r"veth.+|cali.+|lxc.+"), "veth"),
    (re.compile(r"ifb\d+"), "ifb"),
    (re.compile(r"dummy\d+"), "dummy"),
    (re.compile(r"(?:tun|tap|vnet)\d+.*"), "tun"),
    (re.compile(r"(?:flannel|cilium|vxlan).*"), "vxlan"),
    (re.compile(r"wg\d+"), "wireguard"),
)
# An eSwitch's stand-in for a virtual function or scalable function: a port of the host's software, no card.
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """One network interface.

    Attributes:
        name: ``eth0``.
        virtual: what kind of software it is (``loopback``, ``bridge``, ``veth``, …); None for hardware.
        state: the kernel's operstate.
        speed_bits_per_s: line rate; None where it is not known, and for software, whose figures are made up.
        pci_address: the PCI function behind it.
        port: its number on that function, from 0.
        enslaved: it is a port of a bridge or bond.
    """

    name: str
    virtual: str | None
    state: str | None
    speed_bits_per_s: float | None
    pci_address: str | None
    port: int | None
    enslaved: bool

    @property
    def carries_traffic(self) -> bool:
        """Software that can be a container's way to the outside: its end of a veth pair, a macvlan."""
        return self.virtual in ("veth", "macvlan", "macvtap", "ipvlan", "virtual") and not self.enslaved


def read_interfaces(tree: Tree) -> tuple[Interface, ...]:
    """All interfaces, by name."""
    names = [
        name for name in tree.children(INTERFACES) if _NAME.fullmatch(name) and _is_interface(tree, name)
    ]
    return tuple(_read_interface(tree, name) for name in names)


def _is_interface(tree: Tree, name: str) -> bool:
    # /sys/class/net also holds plain files (bonding_masters).
    return bool(tree.children(f"{INTERFACES}/{name}"))


def _read_interface(tree: Tree, name: str) -> Interface:
    folder = f"{INTERFACES}/{name}"
    uevent = tree.text(f"{folder}/uevent") or ""
    virtual = virtual_kind(
        name,
        real_path=tree.resolve(folder) or "",
        has_device=tree.has(f"{folder}/device"),
        entries=frozenset(tree.children(folder)),
        arp_type=tree.text(f"{folder}/type"),
        devtype=parse_devtype(uevent),
        port_name=tree.value(f"{folder}/phys_port_name", parse_word),
        has_peer=tree.value(f"{folder}/iflink", parse_index) != tree.value(f"{folder}/ifindex", parse_index),
    )
    state = tree.value(f"{folder}/operstate", parse_word)
    speed = None
    if virtual is None:
        speed = tree.value(f"{folder}/speed", parse_speed)
        if speed is None and state == "up":
            tree.faults.add("network speed not known", name)
    return Interface(
        name=name,
        virtual=virtual,
        state=state,
        speed_bits_per_s=speed,
        pci_address=pci_address_of(tree, f"{folder}/device") if virtual is None else None,
        port=tree.value(f"{folder}/dev_port", parse_index),
        enslaved=tree.has(f"{folder}/master"),
    )


def virtual_kind(
    name: str,
    *,
    real_path: str,
    has_device: bool,
    entries: frozenset[str],
    arp_type: str | None,
    devtype: str | None,
    port_name: str | None,
    has_peer: bool,
) -> str | None:
    """What kind of software an interface is; None for hardware, and where nothing says that it is software.

    Args:
        name: of the interface.
        real_path: where its folder really lies.
        has_device: a device stands behind it.
        entries: names in its folder.
        arp_type: of the file ``type``.
        devtype: of its uevent.
        port_name: of the file ``phys_port_name``.
        has_peer: it is linked to another interface (``iflink`` differs from ``ifindex``).
    """
    if has_device:
        return "representor" if port_name is not None and _REPRESENTOR.fullmatch(port_name) else None
    if arp_type == _LOOPBACK_TYPE:
        return "loopback"
    for entry, kind in (("bridge", "bridge"), ("bonding", "bond"), ("tun_flags", "tun")):
        if entry in entries:
            return kind
    if devtype in _VIRTUAL_DEVTYPES:
        return devtype
    for pattern, kind in _VIRTUAL_NAMES:
        if pattern.fullmatch(name):
            return kind
    if real_path.startswith(_VIRTUAL_FOLDER):
        return "veth" if has_peer else "virtual"
    return None


def parse_devtype(uevent: str) -> str | None:
    """``DEVTYPE=…`` of an interface's uevent, or None."""
    for line in uevent.splitlines():
        key, _, value = line.partition("=")
        if key == "DEVTYPE" and value.isidentifier():
            return value
    return None


def parse_speed(text: str) -> float | None:
    """Mbit/s as the kernel writes them → bits/s; None for its ways of saying that it does not know.

    Raises:
        ValueError: no number, or more than any network card runs at.
    """
    if text in _SPEED_UNKNOWN:
        return None
    mbit_per_s = parse_whole(text, maximum=MAX_MBIT_PER_S)
    return mbit_per_s * 1e6 if mbit_per_s else None

"""The kernel's small texts: what each means, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topotune.probe.kernel_text import (
    MAX_CPUS,
    format_cpulist,
    parse_cpulist,
    parse_hex,
    parse_mem_total,
    parse_word,
)
from topotune.probe.netdev import parse_speed, virtual_kind
from topotune.probe.numa import parse_distances
from topotune.probe.pci import normalise_address, parse_link_speed, parse_link_width, parse_way
from topotune.probe.rdma import parse_link_layer, parse_rate, parse_state


@given(cpus=st.frozensets(st.integers(0, MAX_CPUS - 1), max_size=40))
def test_a_cpu_list_comes_back(cpus):
    assert parse_cpulist(format_cpulist(cpus)) == cpus


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_cpulist, "0-3,48-49,64", frozenset({0, 1, 2, 3, 48, 49, 64})),
        (parse_cpulist, "", frozenset()),
        (parse_hex, "0x10de", 0x10DE),
        (parse_hex, "N/A", None),
        (parse_word, "  Dell   Inc. ", "Dell Inc."),
        (parse_word, "Not Specified", None),
        (parse_link_speed, "2.5 GT/s PCIe", 2.5),
        (parse_link_speed, "8 GT/s", 8.0),
        (parse_link_speed, "64.0 GT/s PCIe", 64.0),
        (parse_link_speed, "Unknown speed", None),
        (parse_link_width, "16", 16),
        (parse_link_width, "0", None),
        (parse_link_width, "255", None),
        (parse_state, "4: ACTIVE", "ACTIVE"),
        (parse_state, "1: DOWN", "DOWN"),
        (parse_rate, "400 Gb/sec (4X NDR)", 400e9),
        (parse_rate, "2.5 Gb/sec (1X SDR)", 2.5e9),
        (parse_rate, "0 Gb/sec", None),
        (parse_link_layer, "Ethernet", "Ethernet"),
        (parse_link_layer, "Unspecified", None),
        (parse_speed, "25000", 25e9),
        (parse_speed, "-1", None),
        (normalise_address, "00000000:3B:00.0", "0000:3b:00.0"),
        (normalise_address, "00010000:01:00.0", "10000:01:00.0"),
        (normalise_address, "garbage", None),
        (parse_mem_total, "Node 1 MemTotal:       8 kB\nNode 1 MemFree: 4 kB", 8192),
        (parse_mem_total, "MemFree: 4 kB", None),
    ],
)
def test_what_a_text_means(parse, text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_cpulist, "3-1"),
        (parse_cpulist, "0-4000000000"),
        (parse_cpulist, "0-99999"),
        (parse_cpulist, "a"),
        (parse_hex, "10de"),
        (parse_hex, "0x123456789"),
        (parse_word, "x" * 201),
        (parse_link_speed, "7 GT/s"),
        (parse_link_speed, "16"),
        (parse_link_width, "3"),
        (parse_link_width, "1٣"),
        (parse_state, "ACTIVE"),
        (parse_rate, "400"),
        (parse_rate, "99999 Gb/sec"),
        (parse_link_layer, "Carrier pigeon"),
        (parse_speed, "100000000"),
        (parse_speed, "fast"),
    ],
)
def test_what_is_not_understood_is_refused(parse, text):
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)


@pytest.mark.parametrize("text", ["10", "10 21 21", "10 256", "10 0", "10 -1", "10 x"])
def test_numa_distances_are_one_figure_for_each_node(text):
    assert parse_distances("10 21", [0, 8]) == {0: 10, 8: 21}
    with pytest.raises(ValueError, match="distance"):
        parse_distances(text, [0, 8])


@pytest.mark.parametrize(
    ("path", "address", "expected"),
    [
        (
            "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0",
            "0000:17:00.0",
            ("pci0000:15", ("0000:15:01.0", "0000:16:00.0")),
        ),
        # Intel VMD: a PCI tree of its own behind a device of the first.
        (
            "sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0",
            "10000:e1:00.0",
            ("pci10000:e0", ("10000:e0:01.0",)),
        ),
        # Hyper-V: a host bridge for each device.
        (
            "sys/devices/LNXSYSTM:00/LNXSYBUS:00/VMBUS:01/0001-guid/pci0001:00/0001:00:00.0",
            "0001:00:00.0",
            ("pci0001:00", ()),
        ),
        ("sys/bus/pci/devices/0000:17:00.0", "0000:17:00.0", (None, ())),
    ],
    ids=["switch", "VMD", "Hyper-V", "no links"],
)
def test_the_way_to_a_device_is_read_off_its_path(path, address, expected):
    assert parse_way(path, address) == expected


REAL = {
    "real_path": "sys/devices/virtual/net/x", "has_device": False, "entries": frozenset(),
    "arp_type": "1", "devtype": None, "port_name": None, "has_peer": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "kind"),
    [
        ("eth0", {"real_path": "sys/devices/pci0000:00/x", "has_device": True}, None),
        ("enp1s0f0_0", {"has_device": True, "port_name": "pf0vf0"}, "representor"),
        ("enp1s0f0np0", {"has_device": True, "port_name": "p0"}, None),
        ("eth0", {"real_path": "sys/class/net/eth0"}, None),
        ("lo", {"arp_type": "772"}, "loopback"),
        ("mybridge", {"entries": frozenset({"bridge"})}, "bridge"),
        ("bond7", {"entries": frozenset({"bonding"})}, "bond"),
        ("office", {"entries": frozenset({"tun_flags"})}, "tun"),
        ("eth0.7", {"devtype": "vlan"}, "vlan"),
        ("docker0", {"real_path": ""}, "bridge"),
        ("eth0", {"has_peer": True}, "veth"),
        ("strange", {}, "virtual"),
    ],
)
def test_software_is_told_from_hardware(name, change, kind):
    assert virtual_kind(name, **(REAL | change)) == kind

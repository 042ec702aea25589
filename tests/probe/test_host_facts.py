"""What a probe reads of process limits, IP networks and peer access, from the kernel's own texts."""

from ipaddress import IPv4Network

import pytest

from topotune.probe.networks import parse_addresses6, parse_routes
from topotune.probe.peer_access import acs_control, parse_nvidia_module
from topotune.probe.process_limits import (
    parse_can_lock_memory,
    parse_memlock,
    parse_shm_size,
    parse_usable_cpus,
)

HEADING = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("Max locked memory         8388608              8388608              bytes     ", 8388608),
        ("Max locked memory         unlimited            unlimited            bytes     ", "unlimited"),
        ("Max stack size            8388608              unlimited            bytes     ", None),
        ("Max locked memory         99999999999999999999 unlimited            bytes     ", 2**62),
        ("", None),
    ],
)
def test_the_soft_limit_of_locked_memory_counts(text, limit):
    assert parse_memlock(f"Limit Soft Hard Units\n{text}") == limit


@pytest.mark.parametrize(
    ("status", "expected"),
    [("CapEff:\t000001ffffffffff", True), ("CapEff:\t00000000a80425fb", False), ("CapPrm:\tff", None)],
)
def test_a_capability_lifts_the_limit(status, expected):
    assert parse_can_lock_memory(f"Name:\tx\n{status}\nSeccomp:\t0") is expected


@pytest.mark.parametrize(
    ("line", "cpus"),
    [("Cpus_allowed_list:\t0-3,8", "0-3,8"), ("Cpus_allowed_list:\t8-3", None), ("Cpus_allowed:\tff", None)],
)
def test_usable_cpus_are_the_kernels_list(line, cpus):
    assert parse_usable_cpus(f"{line}\nMems_allowed_list:\t0") == cpus


@pytest.mark.parametrize(
    ("mounts", "size"),
    [
        ("shm /dev/shm tmpfs rw,nosuid,size=65536k,inode64 0 0", 64 * 2**20),
        ("tmpfs /dev/shm tmpfs rw,size=2g 0 0", 2 * 2**30),
        ("tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0", None),
        ("tmpfs /run tmpfs rw,size=65536k 0 0", None),
        ("tmpfs /dev/shm tmpfs rw,size=1k 0 0\nshm /dev/shm tmpfs rw,size=4m 0 0", 4 * 2**20),
        ("overlay /dev/shm", None),
    ],
)
def test_the_last_mount_on_dev_shm_says_its_size(mounts, size):
    assert parse_shm_size(mounts) == size


def test_networks_are_those_straight_on_an_interface():
    rows = [
        "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0",
        "ib0\t00000000\t0101000A\t0003\t0\t0\t50\t00000000\t0\t0\t0",
        "eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0",
        "eth0\t0000FEA9\t00000000\t0001\t0\t0\t1000\t0000FFFF\t0\t0\t0",
        "ib0\t0000000A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0",
        "ib0\t0000010A\t00000000\t0000\t0\t0\t0\t0000FFFF\t0\t0\t0",
        "eth0\tnonsense\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
        "eth0\t00000000\t00000000",
    ]
    networks, default = parse_routes("\n".join([HEADING, *rows]))
    assert networks == {"eth0": (IPv4Network("192.168.1.0/24"),), "ib0": (IPv4Network("10.0.0.0/16"),)}
    assert default == "ib0"
    assert parse_routes("") == ({}, None)


def test_an_ipv6_address_of_the_link_or_host_alone_leads_nowhere():
    rows = [
        "00000000000000000000000000000001 01 80 10 80       lo",
        "fe800000000000000000000000000001 02 40 20 80     eth0",
        "fd000000000000000000000000000002 03 40 00 80      ib0",
        "cut off",
        "fd00 03 40 zz 80 x",
    ]
    assert parse_addresses6("\n".join(rows)) == {"ib0"}


@pytest.mark.parametrize(
    ("version", "module"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19", "proprietary"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release", "open"),
        ("", None),
    ],
)
def test_open_and_closed_driver_modules_are_told_apart(version, module):
    assert parse_nvidia_module(version) == module


def config(*capabilities: tuple[int, int, bytes]) -> bytes:
    """Configuration space with extended capabilities of (number, offset of the next, body)."""
    data = bytearray(4096)
    at = 0x100
    for number, following, body in capabilities:
        data[at : at + 4] = (number | 1 << 16 | following << 20).to_bytes(4, "little")
        data[at + 4 : at + 4 + len(body)] = body
        at = following
    return bytes(data)


@pytest.mark.parametrize(
    ("space", "control"),
    [
        (config((1, 0x140, b""), (0xD, 0, b"\x5f\x00\x1d\x00")), 0x1D),
        (config((1, 0, b"")), None),
        (config((1, 0x100, b"")), None),
        (config((1, 0x140, b""), (2, 0x40, b"")), None),
        (bytes(64), None),
        (b"\xff" * 4096, None),
        (config((1, 0xFFC, b""))[:0x110], None),
    ],
    ids=["second", "absent", "in circles", "backwards into the head", "64 bytes", "no answer", "cut"],
)
def test_acs_is_found_in_the_list_of_capabilities(space, control):
    assert acs_control(space) == control

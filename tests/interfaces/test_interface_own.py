"""What this machine has, and what is forced on it."""

import os
import socket
from collections import namedtuple

import pytest

from topotune.errors import UsageError
from topotune.interfaces.choice import Candidate
from topotune.interfaces.own import (
    Forced,
    force,
    gloo_address,
    gloo_default,
    interface_towards,
    read_candidates,
    read_forced,
)

Address = namedtuple("Address", "family address")


def of(*addresses: str) -> list[Address]:
    packet = Address(socket.AF_PACKET, "02:00:00:00:00:01")
    return [Address(socket.AF_INET6 if ":" in each else socket.AF_INET, each) for each in addresses] + [
        packet
    ]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["10.0.0.1", "fd00::2"], "10.0.0.1"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1"),
        (["fd00::2", "fe80::1%eth0"], "fd00::2"),
        (["fe80::1%eth0", "fd00::2"], None),
        (["169.254.3.4"], "169.254.3.4"),
        ([], None),
    ],
    ids=["IPv4 first", "the first", "IPv6", "gloo takes a link-local one", "link-local of IPv4", "none"],
)
def test_the_address_is_the_one_that_gloo_takes(addresses, expected):
    assert gloo_address(of(*addresses)) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"GLOO_SOCKET_IFNAME": ""}, None),
        ({"GLOO_SOCKET_IFNAME": " , "}, None),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, Forced(names=("eth0",), by="GLOO_SOCKET_IFNAME")),
        (
            {"GLOO_SOCKET_IFNAME": "eth0", "TOPOTUNE_INTERFACE": "ib0, ib1,ib0"},
            Forced(names=("ib0", "ib1"), by="--interface or TOPOTUNE_INTERFACE"),
        ),
        ({"SM_NETWORK_INTERFACE_NAME": "eth1"}, Forced(names=("eth1",), by="SageMaker")),
        (
            {"SM_NETWORK_INTERFACE_NAME": "eth1", "GLOO_SOCKET_IFNAME": "eth0"},
            Forced(names=("eth0",), by="GLOO_SOCKET_IFNAME"),
        ),
    ],
    ids=["nothing", "empty", "blank", "gloo's", "topotune's first", "the platform's", "gloo's before that"],
)
def test_what_is_forced(environment, expected, tmp_path):
    assert read_forced(environment, tmp_path) == expected


def test_force_reaches_child_processes(monkeypatch):
    monkeypatch.setenv("TOPOTUNE_INTERFACE", "")
    force("eth0,eth1")
    assert os.environ["TOPOTUNE_INTERFACE"] == "eth0,eth1"


def test_force_wants_a_name():
    with pytest.raises(UsageError, match=r"--interface ' ,': names no interface"):
        force(" ,")


def test_loopback_is_a_candidate_only_where_it_is_forced():
    assert all(each.name != "lo" for each in read_candidates())
    assert read_candidates(Forced(names=("lo",), by="--interface")) == (
        Candidate(name="lo", address="127.0.0.1", software="loopback"),
    )


def test_an_interface_that_is_not_there_is_refused_with_what_is():
    with pytest.raises(UsageError) as caught:
        read_candidates(Forced(names=("lo", "eth77"), by="--interface"))
    host = socket.gethostname()
    assert caught.value.message == (
        f"network interface 'eth77' of node {host}, forced by --interface, does not exist"
    )
    assert "lo" in caught.value.hint


def test_the_way_to_this_machine_is_loopback_and_to_nowhere_there_is_none():
    assert interface_towards("127.0.0.1") == "lo"
    assert interface_towards("127.0.1.1") == "lo"
    assert interface_towards("no-such-host.invalid") is None


def test_gloos_own_choice_is_an_interface_of_this_machine():
    assert gloo_default() in [name for _, name in socket.if_nameindex()]

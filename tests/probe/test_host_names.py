"""What names resolve to: files of hosts, and look-ups within a bound of time."""

import socket
import time

import pytest

from topotune.probe import host_names
from topotune.probe.host_names import facts_of_others, only_loopback, parse_hosts, resolve


def test_a_file_of_hosts_gives_all_addresses_of_a_name_whatever_its_case():
    text = (
        "127.0.1.1\tBox.example Box # own\nfd00::1 box\n10.0.0.1 other\nnot.an.address box\n# 1.2.3.4 box\n"
    )
    found = parse_hosts(text)
    assert found["box"] == ("127.0.1.1", "fd00::1")
    assert found["box.example"] == ("127.0.1.1",)
    assert found["other"] == ("10.0.0.1",)


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (("127.0.1.1", "::1"), True),
        (("127.0.0.1", "10.0.0.1"), False),
        ((), False),
        (("fe80::1%eth0",), False),
    ],
)
def test_loopback_is_what_no_other_node_reaches(addresses, expected):
    assert only_loopback(addresses) is expected


def test_localhost_is_resolved_and_counts_as_loopback():
    (addresses,) = resolve(("localhost",), 60.0).values()
    assert only_loopback(addresses)
    assert facts_of_others(["localhost"], 60.0) == {host_names.NAMES_ON_LOOPBACK: "localhost"}


def test_no_names_take_no_time():
    assert resolve((), 60.0) == {}


def look_up(name, *_args, **_options):
    if name == "slow":
        time.sleep(30.0)
    if name == "busy":
        raise socket.gaierror(socket.EAI_AGAIN, "try again")
    raise socket.gaierror(socket.EAI_NONAME, "no such name")


def test_names_that_take_too_long_are_not_known_and_others_are_told(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert facts_of_others(["slow", "busy", "gone"], 2.0) == {host_names.NAMES_UNRESOLVED: "gone"}

"""Doors and those who knock: real sockets on loopback."""

import socket
import threading

import pytest

from topotune.interfaces import reach
from topotune.interfaces.reach import Door, knock, send_for_a_moment

HERE = "127.0.0.1"


@pytest.fixture
def door():
    before = threading.active_count()
    with Door([HERE]) as door:
        yield door
    assert threading.active_count() == before


def test_a_door_is_reached_by_who_knows_its_secret(door):
    assert knock(HERE, door.ports[0], door.secret) is None


def test_another_door_at_the_address_is_not_taken_for_it(door):
    with Door([HERE]) as other:
        assert knock(HERE, other.ports[0], door.secret) == "another listener answers there"


def test_a_listener_that_answers_something_is_not_taken_for_a_door():
    with socket.create_server((HERE, 0)) as server:

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(100) * 2)

        thread = threading.Thread(target=echo)
        thread.start()
        assert knock(HERE, server.getsockname()[1], "0" * 32) == "another listener answers there"
        thread.join()


def test_a_port_at_which_nobody_listens_refuses():
    with Door([HERE]) as door:
        port = door.ports[0]
    assert knock(HERE, port, door.secret) == "connection refused"


def test_a_listener_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(reach, "KNOCK_WITHIN_S", 0.2)
    with socket.create_server((HERE, 0)) as server:
        assert knock(HERE, server.getsockname()[1], "0" * 32) == "no answer within 0.2 s"


def test_an_address_that_is_not_this_machines_gets_no_door():
    with Door([HERE, "192.0.2.77"]) as door:
        assert door.ports[1] is None
        assert knock("192.0.2.77", door.ports[1], door.secret) == "nothing can listen there"
        assert send_for_a_moment("192.0.2.77", door.ports[1], door.secret) == 0.0


def test_a_door_listens_at_its_addresses_alone(door):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", door.ports[0]), timeout=60).close()


def test_a_stranger_gets_nothing_and_keeps_nobody_out(door, monkeypatch):
    monkeypatch.setattr(reach, "_MAX_GUESTS", 3)
    with socket.create_connection((HERE, door.ports[0]), timeout=60) as stranger:
        stranger.sendall(b"k" + b"x" * 32)
        assert stranger.recv(1) == b""
    silent = [socket.create_connection((HERE, door.ports[0]), timeout=60) for _ in range(2)]
    assert knock(HERE, door.ports[0], door.secret) is None
    for connection in silent:
        connection.close()


def test_who_is_one_too_many_is_turned_away_at_once(door, monkeypatch):
    monkeypatch.setattr(reach, "_MAX_GUESTS", 1)
    with socket.create_connection((HERE, door.ports[0]), timeout=60):
        assert knock(HERE, door.ports[0], door.secret) in (
            "another listener answers there",
            "connection reset by peer",
            "broken pipe",
        )


def test_a_rate_is_of_what_arrives_and_sending_ends_by_itself(door):
    rate = send_for_a_moment(HERE, door.ports[0], door.secret)
    assert rate > 0


def test_a_rate_breaks_off_with_the_connection():
    with socket.create_server((HERE, 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].close())
        thread.start()
        assert send_for_a_moment(HERE, server.getsockname()[1], "0" * 32) == 0.0
        thread.join()


def test_a_door_closes_while_somebody_stands_in_it(monkeypatch):
    monkeypatch.setattr(reach, "_GREETING_WITHIN_S", 600.0)
    with Door([HERE]) as door:
        guest = socket.create_connection((HERE, door.ports[0]), timeout=60)
        guest.sendall(b"k")
        assert knock(HERE, door.ports[0], door.secret) is None  # so the guest before it was let in
    with guest:
        assert guest.recv(1) == b""


def test_ipv6_is_as_good():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with Door(["::1"]) as door:
        if door.ports[0] is None:
            pytest.skip("no IPv6 loopback here")
        assert knock("::1", door.ports[0], door.secret) is None

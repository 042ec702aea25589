"""Signals are noted while ranks are started and ended, and acted on afterwards."""

import os
import signal
import threading

import pytest

from topotune.launch.noted_signals import SIGNALS, act_on, noted_signals


@pytest.fixture(autouse=True)
def handlers():
    """As they were, whatever a test leaves."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_interrupts_nothing_inside_and_is_acted_on_afterwards():
    reached = False
    with noted_signals() as noted:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        reached = True
    assert reached
    assert noted.signals == [signal.SIGINT, signal.SIGTERM]
    with pytest.raises(KeyboardInterrupt):
        noted.act()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_but_ctrl_c_leave_with_128_and_their_number(number):
    with pytest.raises(SystemExit) as left:
        act_on(number)
    assert left.value.code == 128 + number


def test_without_a_signal_nothing_is_done():
    with noted_signals() as noted:
        pass
    noted.act()
    assert noted.signals == []


def test_handlers_stand_again_afterwards_also_after_an_error():
    def handler(number, frame):
        pass

    def fail():
        with noted_signals():
            assert signal.getsignal(signal.SIGTERM) is not handler
            raise RuntimeError("inside")

    signal.signal(signal.SIGTERM, handler)
    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert signal.getsignal(signal.SIGTERM) is handler


def test_what_nohup_ignores_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with noted_signals() as noted:
        os.kill(os.getpid(), signal.SIGHUP)
    assert noted.signals == []
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_thread_leaves_signals_as_they_are():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with noted_signals() as noted:
            seen.append((signal.getsignal(signal.SIGTERM), noted.signals))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(before, [])]

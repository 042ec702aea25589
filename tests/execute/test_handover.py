"""The interpreter's switch interval: short while a collective runs, and as it was before afterwards."""

import ctypes
import os
import sys
import threading

import pytest

from topotune.execute.handover import PromptHandover
from topotune.execute.shared_memory.collectives import copy_holding_lock


@pytest.fixture(autouse=True)
def interval():
    """What a job has; put back for other tests, whatever happens."""
    former_s = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(former_s)


def test_the_interval_is_short_inside_and_as_before_outside():
    handover = PromptHandover(1e-4)
    with handover:
        assert sys.getswitchinterval() == pytest.approx(1e-4)
    assert sys.getswitchinterval() == 0.005


def test_it_is_put_back_after_an_error():
    with pytest.raises(KeyError), PromptHandover(1e-4):
        raise KeyError
    assert sys.getswitchinterval() == 0.005


def test_it_stays_short_until_the_last_thread_leaves():
    handover = PromptHandover(1e-4)
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with handover:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    with handover:
        assert sys.getswitchinterval() == pytest.approx(1e-4)
    assert sys.getswitchinterval() == pytest.approx(1e-4)
    leave.set()
    thread.join()
    assert sys.getswitchinterval() == 0.005


def test_what_the_job_sets_meanwhile_stays():
    with PromptHandover(1e-4):
        sys.setswitchinterval(0.002)
    assert sys.getswitchinterval() == 0.002


def test_an_interval_that_is_shorter_already_stays():
    sys.setswitchinterval(1e-5)
    with PromptHandover(1e-4):
        assert sys.getswitchinterval() == pytest.approx(1e-5)
    assert sys.getswitchinterval() == pytest.approx(1e-5)


def in_child(function):
    """What a function returns in a forked child, which then ends at once."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr(function()).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return eval(said)


def test_a_child_that_is_forked_meanwhile_has_the_jobs_interval_and_can_use_it_itself():
    handover = PromptHandover(1e-4)

    def look():
        before_s = sys.getswitchinterval()
        with handover:
            inside_s = sys.getswitchinterval()
        return before_s, inside_s, sys.getswitchinterval()

    with handover:
        seen = in_child(look)
    assert seen == (0.005, pytest.approx(1e-4), 0.005)


def other_thread_runs_during(copy):
    """Whether a thread that only waits for the interpreter lock gets it while 16 MiB are copied."""
    source, target = (ctypes.create_string_buffer(1 << 24) for _ in range(2))
    ran = []
    gate = threading.Lock()
    gate.acquire()

    def other():
        gate.acquire()
        ran.append(True)

    thread = threading.Thread(target=other)
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(100.0)  # from here on nobody gets the lock who is not given it
    try:
        thread.start()
        gate.release()
        copy(ctypes.addressof(target), ctypes.addressof(source), 1 << 24)
        return bool(ran)
    finally:
        sys.setswitchinterval(usual_s)
        thread.join()


def test_a_small_copy_into_shared_memory_keeps_the_interpreter_lock():
    assert not other_thread_runs_during(copy_holding_lock)

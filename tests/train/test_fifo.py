import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from topotune.train.deadline import Deadlines
from topotune.train.fifo import FirstInFirstOut
from topotune.train.work import QueuedWork


def fail_test(error):
    raise AssertionError("a task failed") from error


def test_tasks_run_in_the_order_of_the_calls_in_whichever_thread():
    queue, order, go = FirstInFirstOut("test"), [], threading.Event()
    queue.run(lambda: order.append((0, threading.current_thread().name)))
    queue.submit(go.wait, fail_test)
    for number in range(1, 5):
        queue.submit(lambda number=number: order.append((number, threading.current_thread().name)), fail_test)
    threading.Timer(0.1, go.set).start()
    queue.run(lambda: order.append((5, threading.current_thread().name)))
    queue.drain()
    queue.run(lambda: order.append((6, threading.current_thread().name)))
    assert [number for number, _ in order] == list(range(7))
    main, worker = threading.current_thread().name, "topotune test"
    assert [name for _, name in order] == [main, *[worker] * 5, main]
    queue.fail(RuntimeError("the end"))
    assert queue.join(10)


def test_two_tasks_never_run_at_the_same_time():
    queue, inside, most = FirstInFirstOut("test"), [], []

    def task():
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.001)
        inside.pop()

    threads = [threading.Thread(target=lambda: [queue.run(task) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 40
    queue.fail(RuntimeError("the end"))


def test_a_task_that_raises_fails_alone():
    queue, failed = FirstInFirstOut("test"), []
    queue.submit(lambda: 1 / 0, failed.append)
    with pytest.raises(KeyError):
        queue.run(lambda: {}["key"])
    assert queue.run(lambda: "fine") == "fine"
    assert [type(error) for error in failed] == [ZeroDivisionError]
    queue.fail(RuntimeError("the end"))


def test_what_hangs_on_the_end_of_a_task_may_run_tasks_of_the_queue_and_wait_for_them():
    queue, go, results, ended = FirstInFirstOut("test"), threading.Event(), [], threading.Event()

    def finished(value):
        inner = threading.Event()
        queue.submit(lambda: results.append(value), fail_test, lambda _: inner.set())
        assert inner.wait(10)
        results.append(queue.run(lambda: "run"))
        ended.set()

    queue.submit(lambda: go.wait() and "outer", fail_test, finished)
    queue.submit(lambda: results.append("behind"), fail_test)
    go.set()
    assert ended.wait(30), results
    assert results == ["behind", "outer", "run"]
    queue.fail(RuntimeError("the end"))
    assert queue.join(10)
    assert not [thread for thread in threading.enumerate() if thread.name == "topotune test"]


def test_a_closed_queue_fails_what_waits_and_what_comes():
    queue, failed, started, go = FirstInFirstOut("test"), [], threading.Event(), threading.Event()
    queue.submit(lambda: (started.set(), go.wait()), failed.append)
    assert started.wait(30)
    queue.submit(lambda: pytest.fail("ran"), failed.append)
    queue.fail(ValueError("rank 3 is gone"))
    assert not queue.join(0.05)
    go.set()
    assert queue.join(10)
    queue.submit(lambda: pytest.fail("ran"), failed.append)
    with pytest.raises(RuntimeError, match="can run no more collectives: rank 3 is gone"):
        queue.run(lambda: pytest.fail("ran"))
    assert [str(error) for error in failed] == [
        "this process group can run no more collectives: rank 3 is gone"
    ] * 2
    assert not queue.idle


def test_a_work_gives_its_outputs_to_waits_and_futures():
    work, outputs = QueuedWork(), [torch.ones(2)]
    chained = work.get_future().then(lambda future: future.value()[0] + 1)
    assert (work.is_completed(), work.is_success(), work.exception()) == (False, False, None)
    with pytest.raises(RuntimeError, match=r"Should call wait\(\) before result\(\)"):
        work.result()
    with pytest.raises(RuntimeError, match="Operation timed out"):
        work.wait(timedelta(milliseconds=1))
    work.finish(outputs)
    assert work.wait()
    assert work.result() is outputs
    assert work.get_future().wait() is outputs
    assert chained.wait().tolist() == [2, 2]
    assert (work.is_completed(), work.is_success()) == (True, True)


def test_a_failed_work_raises_on_every_wait_and_in_its_future():
    work = QueuedWork()
    work.fail(RuntimeError("rank 3 is gone"))
    for wait in (work.wait, work.wait, work.result, work.get_future().wait, work.get_future().wait):
        with pytest.raises(RuntimeError, match="rank 3 is gone"):
            wait()
    assert (work.is_completed(), work.is_success()) == (True, False)
    assert isinstance(work, dist.Work)


def test_a_deadline_that_passes_is_acted_on_and_one_that_does_not_is_not():
    deadlines, expired = Deadlines(), threading.Event()
    with deadlines.within(60, lambda: pytest.fail("expired")) as expiry:
        pass
    assert not expiry.passed
    with deadlines.within(0.01, expired.set) as expiry:
        assert expired.wait(30)
    assert expiry.passed


def test_a_deadline_whose_action_fails_is_logged_and_the_next_one_is_kept(caplog):
    deadlines, failed, expired = Deadlines(), threading.Event(), threading.Event()

    def fail():
        failed.set()
        raise IndexError("closed meanwhile")

    with deadlines.within(0.01, fail):
        assert failed.wait(30)
    with deadlines.within(0.01, expired.set):
        assert expired.wait(30)
    assert "IndexError: closed meanwhile" in caplog.text

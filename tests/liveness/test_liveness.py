"""Whoever dies is named by all that are left, with one voice and in time; whoever lives is left in peace."""

import json
import os
import signal
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from gloo_world import run_world

from topotune.errors import RankFailedError, RunError, UsageError
from topotune.liveness.hub import Hub
from topotune.liveness.loss import Loss

pytestmark = pytest.mark.gloo

TIMEOUT = timedelta(seconds=60)
HOST = socket.gethostname()


def await_all(store, num_ranks, name="here"):
    store.add(name, 1)
    deadline = time.monotonic() + 60
    while store.add(name, 0) < num_ranks:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def victims_and_others(rank, num_ranks, store, victims):
    from topotune.liveness.watch import watched_ranks

    ended = threading.Event()
    try:
        with watched_ranks(timeout=TIMEOUT) as (common, own, size, watch):
            assert (own, size) == (rank, num_ranks)
            watch.on_loss(lambda loss: ended.set())
            await_all(common, num_ranks)
            if rank in victims:
                os.kill(os.getpid(), signal.SIGKILL)
            assert ended.wait(60)
            raise RuntimeError("a message did not arrive")
    except RankFailedError as error:
        return error.rank, error.message, type(error.__cause__).__name__


@pytest.mark.parametrize("victims", [[2], [0], [1, 3]], ids=["a rank", "rank 0", "two at once"])
def test_a_killed_rank_is_named_by_all_others_with_the_same_words(victims):
    results = run_world(4, victims_and_others, victims, deaths=victims)
    left = [result for result in results if result is not None]
    assert len(left) == 4 - len(victims)
    assert len(set(left)) == 1
    rank, message, cause = left[0]
    assert rank in victims
    assert cause == "RuntimeError"
    others = [other for other in victims if other != rank]
    assert message == f"rank {rank} failed: its process on node {HOST} ended without a word" + (
        f", and with it rank {others[0]} of that node" if others else ""
    )


def is_gone(pid):
    """Whether a process has ended, as who waits for it sees: with its last thread, which closes its sockets.

    Who started it may have reaped it already.
    """
    try:
        is_zombie = "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
        return is_zombie and len(os.listdir(f"/proc/{pid}/task")) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def is_ended_as_launchers_do(rank, num_ranks, store, victims, terminated, folder):
    """Rank 3 does what a launcher does: it sees that the victims are gone, and ends others by SIGTERM."""
    from topotune.liveness.watch import watched_ranks

    def say(error):
        (Path(folder) / f"said-{rank}").write_text(error.message)

    ended = threading.Event()
    try:
        with watched_ranks(timeout=TIMEOUT, say=say) as (common, _, _, watch):
            watch.on_loss(lambda loss: ended.set())
            common.set(f"pid {rank}", str(os.getpid()))
            await_all(common, num_ranks)
            if rank in victims:
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == 3:
                for victim in victims:
                    while not is_gone(int(common.get(f"pid {victim}"))):
                        time.sleep(0.001)
                for other in terminated:
                    os.kill(int(common.get(f"pid {other}")), signal.SIGTERM)
            # In a native call, where Python's own handlers do not run.
            store.wait(["never"], timedelta(seconds=60) if rank in terminated else timedelta(seconds=1))
    except RankFailedError as error:
        return error.message


@pytest.mark.parametrize(
    ("victims", "terminated", "words"),
    [
        ([2], [0, 1], "rank 2 failed: its process on node {} ended without a word"),
        ([], [0], "rank 0 failed: its process on node {} was ended by SIGTERM"),
        ([], [1], "rank 1 failed: its process on node {} was ended by SIGTERM"),
    ],
    ids=["after another's death", "rank 0 alone", "another rank alone"],
)
def test_what_a_launcher_ends_is_not_taken_for_what_died(victims, terminated, words, tmp_path):
    world = (victims, terminated, str(tmp_path))
    results = run_world(4, is_ended_as_launchers_do, *world, deaths=[*victims, *terminated])
    assert all(results[rank] is None for rank in terminated)
    assert results[3].startswith(words.format(HOST))
    # Rank 0 says who died before it is ended too: where a launcher ends all ranks, nobody else could.
    said = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert said.get("said-0") == (results[3] if victims else None)
    assert set(said.values()) <= {results[3]}, "with one voice, whoever else has time to"


def is_ended_before_it_let_anyone_in(rank, num_ranks, store):
    """Rank 0 sees nobody knock until SIGTERM comes, which it does when all others have knocked."""
    from topotune.liveness import watch as liveness

    class SignalsAlone(liveness.selectors.DefaultSelector):
        def select(self, timeout=None):
            while True:
                if woken := [event for event in super().select(timeout) if event[0].data == "woken"]:
                    return woken
                time.sleep(0.001)

    def knock(*arguments):
        line = connect(*arguments)
        store.set(f"knocked {rank}", "")
        return line

    def end_rank_0(store):
        store.wait([f"knocked {other}" for other in range(1, num_ranks)], TIMEOUT)
        os.kill(int(store.get("pid")), signal.SIGTERM)

    if rank == 0:
        liveness.selectors.DefaultSelector = SignalsAlone
        store.set("pid", str(os.getpid()))
    else:
        connect, liveness.connect = liveness.connect, knock
    if rank == 1:
        threading.Thread(target=end_rank_0, args=(store.clone(),)).start()
    try:
        with liveness.watched_ranks(timeout=TIMEOUT):
            store.wait(["never"], TIMEOUT if rank == 0 else timedelta(seconds=1))
    except RankFailedError as error:
        return error.message


def test_who_has_only_just_knocked_at_rank_0_hears_why_it_ends():
    none, *messages = run_world(4, is_ended_before_it_let_anyone_in, deaths=[0])
    assert none is None
    assert messages == [f"rank 0 failed: its process on node {HOST} was ended by SIGTERM"] * 3


def raises(rank, num_ranks, store, own_errors):
    from topotune.liveness.watch import watched_ranks

    ended = threading.Event()
    try:
        with watched_ranks(timeout=TIMEOUT) as (common, _, _, watch):
            watch.on_loss(lambda loss: ended.set())
            await_all(common, num_ranks)
            if rank in own_errors:
                raise own_errors[rank]
            assert ended.wait(60)
            raise RuntimeError("a message did not arrive")
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_fails_alone_tells_the_others_why(rank):
    results = run_world(3, raises, {rank: ValueError("no such thing")})
    assert results[rank] == ("ValueError", "no such thing")
    failed = ("RankFailedError", f"rank {rank} failed: on node {HOST}: no such thing")
    assert [result for other, result in enumerate(results) if other != rank] == [failed] * 2


def test_wrong_use_on_all_ranks_names_none_of_them():
    errors = {rank: UsageError("--sizes: none were given") for rank in range(3)}
    assert run_world(3, raises, errors) == [("UsageError", "--sizes: none were given")] * 3


def agrees(rank, num_ranks, store):
    from topotune.liveness.watch import watched_ranks

    error = RunError("the machine is too busy")
    began_s = time.monotonic()
    try:
        with watched_ranks(timeout=TIMEOUT) as (common, _, _, watch):
            await_all(common, num_ranks)
            watch.agree(error)
            raise error
    except RunError as caught:
        return caught is error, time.monotonic() - began_s


def test_an_error_that_all_agree_on_is_no_loss():
    assert all(same for same, _ in run_world(3, agrees))


def ends_well(rank, num_ranks, store):
    from topotune.liveness.watch import watched_ranks

    for turn in range(2):
        with watched_ranks(timeout=TIMEOUT) as (common, _, _, watch):
            await_all(common, num_ranks, f"turn {turn}")
        assert watch.loss is None
    descriptors = [
        os.readlink(f"/proc/self/fd/{entry}")
        for entry in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{entry}")
    ]
    return [thread.name for thread in threading.enumerate() if "liveness" in thread.name], any(
        "pidfd" in one for one in descriptors
    )


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_a_run_that_ends_well_leaves_nothing_and_another_may_follow(num_ranks):
    assert run_world(num_ranks, ends_well) == [([], False)] * num_ranks


def meets_at_a_slow_hub(rank, num_ranks, store):
    from topotune.liveness.watch import Watch, watched_ranks

    accept = Watch._accept

    def accept_late(self):
        time.sleep(0.5)
        return accept(self)

    if rank == 0:
        Watch._accept = accept_late
    with watched_ranks(timeout=TIMEOUT) as (common, _, _, watch):
        await_all(common, num_ranks)
        if rank != 0:
            time.sleep(2)  # rank 0 has left meanwhile
    return watch.loss


def test_ranks_that_have_met_are_known_to_rank_0_however_slowly_it_lets_them_in():
    assert run_world(3, meets_at_a_slow_hub) == [None] * 3


def comes_late(rank, num_ranks, store):
    from topotune.liveness.watch import watched_ranks

    if rank == 2:
        return None
    ended = threading.Event()
    try:
        with watched_ranks(timeout=timedelta(seconds=6)) as (*_, watch):
            watch.on_loss(lambda loss: ended.set())
            assert ended.wait(60)
            raise RuntimeError("a group could not be made")
    except RankFailedError as error:
        return error.message


def test_a_rank_that_never_comes_is_named():
    words = "rank 2 failed: it did not come within 5 s"
    assert run_world(3, comes_late) == [words, words, None]


def is_bothered(rank, num_ranks, store):
    from topotune.liveness import watch as liveness
    from topotune.liveness.watch import watched_ranks

    told = []
    listen = liveness.listen

    def listen_and_tell(inner_store):
        listener, secret = listen(inner_store)
        told.append((listener.getsockname()[1], secret))
        return listener, secret

    liveness.listen = listen_and_tell
    with watched_ranks(timeout=TIMEOUT) as (common, _, _, watch):
        await_all(common, num_ranks)
        if rank == 0:
            ((port, secret),) = told
            lines = [
                b"GET / HTTP/1.1\r\n\r\n",
                b"[" * 100_000 + b"\n",
                b"x" * (1 << 21),
                b'{"secret": "wrong", "rank": 1, "host": "evil"}\n',
                json.dumps({"secret": secret, "rank": 1, "host": "twice"}).encode() + b"\n",
                json.dumps({"secret": secret, "rank": "1"}).encode() + b"\n",
                b'{"bye": "I am rank 1"}\n',
            ]
            for line in lines:
                with socket.create_connection(("127.0.0.1", port), timeout=20) as stranger:
                    try:
                        stranger.sendall(line)
                        assert stranger.recv(1) == b"", "it was hung up on"
                    except ConnectionError:
                        pass
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        await_all(common, num_ranks, "bothered")
        assert watch.loss is None
        if rank == 0:
            for stranger in silent:
                stranger.close()
    return watch.loss


def test_strangers_are_hung_up_on_and_change_nothing():
    assert run_world(2, is_bothered) == [None, None]


def is_stuck(rank, num_ranks, store, folder):
    from topotune.liveness.watch import watched_ranks

    def say(error):
        (Path(folder) / f"said-{rank}").write_text(error.message)

    with watched_ranks(timeout=TIMEOUT, say=say) as (common, _, _, _):
        await_all(common, num_ranks)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)


def test_a_rank_that_does_not_come_out_of_its_call_says_the_loss_and_ends(tmp_path):
    run_world(3, is_stuck, str(tmp_path), deaths=[0, 1, 2])
    said = {path.name: path.read_text() for path in tmp_path.iterdir()}
    words = f"rank 1 failed: its process on node {HOST} ended without a word"
    assert said == {"said-0": words, "said-2": words}


def is_stopped(rank, num_ranks, store):
    from topotune.liveness.connection import SILENT_S
    from topotune.liveness.watch import watched_ranks

    with watched_ranks(timeout=TIMEOUT) as (common, _, _, watch):
        common.set(f"pid {rank}", str(os.getpid()))
        await_all(common, num_ranks)
        if rank == 0:
            pid = int(common.get("pid 1"))
            os.kill(pid, signal.SIGSTOP)
            time.sleep(SILENT_S + 4)
            os.kill(pid, signal.SIGCONT)
        await_all(common, num_ranks, "again")
        return watch.loss


@pytest.mark.slow
def test_a_process_that_stands_still_is_not_taken_for_dead():
    assert run_world(2, is_stopped) == [None, None]


def test_who_was_ended_by_a_launcher_is_not_the_cause_even_if_seen_first():
    hub = Hub("secret", "a")
    hub.lose(1, "a", "terminated", "")
    hub.lose(2, "a", "ended", "")
    assert hub.verdict() is None, "others that went too have not shown it yet"
    assert hub.verdict(at_once=True) == Loss(rank=2, host="a", how="ended", others=((1, "a"),))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (
            Loss(rank=4, host="b", how="silent", others=((5, "b"), (6, "b"), (0, "a"))),
            "its node b has not answered for 7 s, and with it ranks 5, 6 of that node and rank 0 on node a",
        ),
        (Loss(rank=4, host="b", how="orphaned"), "its launcher on node b ended"),
        (Loss(rank=4, host="b", how="terminated"), "its process on node b was ended by SIGTERM"),
        (Loss(rank=4, host="b", how="failed", why="disk full"), "on node b: disk full"),
        (
            Loss(rank=4, host="", how="absent", why="it did not come", others=((5, ""),)),
            "it did not come, and with it rank 5",
        ),
    ],
)
def test_a_loss_says_who_and_how_and_travels_as_json(loss, words):
    assert loss.error().message == f"rank 4 failed: {words}"
    assert Loss.from_json(json.loads(json.dumps(loss.to_json()))) == loss

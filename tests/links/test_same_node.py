import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import link_workers
import pytest
from gloo_world import run_world
from hypothesis import given
from hypothesis import strategies as st

from topotune.links.same_node import PREFIX, SHM, _read, nodes_from_sight, remove_abandoned


def segments(folder=SHM):
    return {path.name for path in Path(folder).glob(f"{PREFIX}*")}


@pytest.mark.gloo
def test_ranks_that_share_memory_share_a_node_and_leave_nothing():
    before = segments()
    verdicts = run_world(3, link_workers.handshake, [str(SHM)] * 3)
    assert {verdict.node_of_rank for verdict in verdicts} == {(0, 0, 0)}
    assert verdicts[0].warnings == ()
    assert segments() <= before


@pytest.mark.gloo
def test_ranks_with_other_shared_memory_are_other_nodes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    folders = [str(tmp_path / name) for name in "abab"]
    verdicts = run_world(4, link_workers.handshake, folders)
    assert {verdict.node_of_rank for verdict in verdicts} == {(0, 1, 0, 1)}
    assert segments(tmp_path / "a") == segments(tmp_path / "b") == set()


@pytest.mark.gloo
def test_a_rank_without_shared_memory_is_a_node_of_its_own_and_says_so(tmp_path):
    missing = str(tmp_path / "missing")
    verdicts = run_world(3, link_workers.handshake, [str(tmp_path), missing, str(tmp_path)])
    for verdict in verdicts:
        assert verdict.node_of_rank == (0, 1, 0)
        assert verdict.warnings == (
            "rank 1 counts as a node of its own: "
            f"cannot make a segment in {missing}: No such file or directory",
        )


@pytest.mark.gloo
def test_the_segment_of_a_killed_rank_is_removed_by_the_others(tmp_path):
    results = run_world(3, link_workers.die_in_handshake, str(tmp_path), 1, deaths=[1])
    assert results[1] is None
    for rank in (0, 2):
        kind, message = results[rank]
        assert kind == "RunError"
        assert message.startswith(f"rank {rank}: a rank did not answer while exchanging results: ")
    assert segments(tmp_path) == set()


def test_segments_are_private():
    from topotune.links.same_node import _create

    name = SHM / f"{PREFIX}test-{os.getpid()}"
    descriptor, problem = _create(name, "secret")
    try:
        assert problem is None
        assert name.stat().st_mode & 0o777 == 0o600
        assert _create(name, "other") == (None, f"cannot make a segment in {SHM}: File exists")
    finally:
        name.unlink()
        os.close(descriptor)


def test_cleaning_never_takes_the_lock_of_a_segment_that_is_being_made(tmp_path, monkeypatch):
    import fcntl

    locked = []
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, _: locked.append(os.fstat(descriptor).st_size))
    (tmp_path / f"{PREFIX}made").touch()  # its maker locks it next, and does not wait
    remove_abandoned(tmp_path)
    assert locked == []


def test_where_nothing_can_be_locked_no_rank_fails_alone(tmp_path, monkeypatch):
    import fcntl

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    path = tmp_path / f"{PREFIX}old"
    path.write_text("secret")
    os.utime(path, (time.time() - 3600,) * 2)
    monkeypatch.setattr(fcntl, "flock", refuse)
    remove_abandoned(tmp_path)
    assert path.exists()
    path.unlink()
    path.mkdir()  # what can be opened and not be read
    assert _read(path) is None


def test_only_old_segments_without_a_living_maker_are_abandoned(tmp_path):
    import fcntl

    old_s = time.time() - 3600
    for name in ("dead", "alive", "new", "foreign"):
        path = tmp_path / (name if name == "foreign" else PREFIX + name)
        path.write_text("secret")
        if name != "new":
            os.utime(path, (old_s, old_s))
    with (tmp_path / f"{PREFIX}alive").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{PREFIX}alive", f"{PREFIX}new", "foreign"}
    remove_abandoned(tmp_path / "missing")


def test_cleaning_up_leaves_this_process_its_record_locks_on_a_segment_in_the_making(tmp_path):
    import fcntl

    path = tmp_path / f"{PREFIX}new"
    path.write_text("secret")
    take = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    with path.open("r+") as own:
        fcntl.lockf(own, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        remove_abandoned(tmp_path)
        other = subprocess.run([sys.executable, "-c", take, path], capture_output=True, text=True)
    assert "BlockingIOError" in other.stderr


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_ranks_of_one_node_all_see_each_other(seen):
    nodes, warnings = nodes_from_sight(seen)
    ranks = range(len(seen))
    assert all(nodes[i] != nodes[j] or i == j or (seen[i][j] and seen[j][i]) for i in ranks for j in ranks)
    assert sorted(set(nodes)) == list(range(len(set(nodes))))
    split = any(seen[i][j] and nodes[i] != nodes[j] for i in ranks for j in ranks if i != j)
    assert bool(warnings) == split


def test_being_seen_one_sidedly_parts_no_others():
    nodes, warnings = nodes_from_sight([[True, True, True], [True, True, False], [False, False, True]])
    assert nodes == [0, 0, 1]
    assert len(warnings) == 1


def test_partial_sight_is_warned_of():
    nodes, warnings = nodes_from_sight([[True, True, False], [True, True, True], [False, True, True]])
    assert nodes == [0, 1, 2]
    assert warnings == [
        "shared memory is visible one-sidedly or in part (0 sees 1, 1 sees 0, 1 sees 2, 2 sees 1): "
        "those ranks count as different nodes"
    ]

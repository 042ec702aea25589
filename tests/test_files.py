import os
import stat
import subprocess
import sys

import pytest

from topotune.errors import OutputFileError
from topotune.files import check_writable, write_whole

PLAN = b'{"schema": "topotune/plan", "schema_version": 7}'


def test_a_new_file_holds_all_and_has_the_permissions_that_the_umask_leaves(tmp_path):
    path = tmp_path / "plan.json"
    former = os.umask(0o027)
    try:
        write_whole(path, b"data")
    finally:
        os.umask(former)
    assert path.read_bytes() == b"data"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["plan.json"]


def test_checking_leaves_nothing_behind_and_changes_nothing(tmp_path):
    path = tmp_path / "plan.json"
    assert check_writable(path) == path
    path.write_bytes(PLAN)
    check_writable(path, renews="topotune/plan")
    assert path.read_bytes() == PLAN
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(b"old")
    path.chmod(0o604)
    write_whole(path, b"new", force=True)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_plan_is_renewed_whatever_its_version(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(PLAN)
    write_whole(path, b"new", renews="topotune/plan")
    assert path.read_bytes() == b"new"


def test_a_link_is_written_through(tmp_path):
    folder, link = tmp_path / "folder", tmp_path / "link.json"
    folder.mkdir()
    link.symlink_to(folder / "plan.json")
    write_whole(link, b"data")
    assert link.is_symlink()
    assert (folder / "plan.json").read_bytes() == b"data"


@pytest.mark.parametrize("write", [check_writable, lambda path, **how: write_whole(path, b"new", **how)])
@pytest.mark.parametrize(
    ("contents", "how", "problem"),
    [
        (b"old", {}, "exists already"),
        (b"old", {"renews": "topotune/plan"}, "exists and is no topotune/plan"),
        (b"", {"renews": "topotune/plan"}, "exists and is no topotune/plan"),
        (PLAN[:-1], {"renews": "topotune/plan"}, "exists and is no topotune/plan"),
        (PLAN, {"renews": "topotune/topology"}, "exists and is no topotune/topology"),
        (b"[" * 200_000, {"renews": "topotune/plan"}, "exists and is no topotune/plan"),
    ],
    ids=["unasked", "something else", "empty", "cut off", "another kind", "hostile"],
)
def test_an_existing_file_is_not_overwritten_unasked(tmp_path, write, contents, how, problem):
    path = tmp_path / "plan.json"
    path.write_bytes(contents)
    with pytest.raises(OutputFileError) as caught:
        write(path, **how)
    assert (str(caught.value), caught.value.hint) == (f"{path}: {problem}", "--force overwrites it")
    assert caught.value.exit_code == 2
    assert path.read_bytes() == contents
    assert os.listdir(tmp_path) == ["plan.json"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("none/plan.json", "the folder {tmp}/none does not exist"),
        ("file/plan.json", "the folder {tmp}/file does not exist"),
        ("folder", "is a folder"),
        ("pipe", "is a pipe or device, not a file"),
        ("null", "is a pipe or device, not a file"),
        ("x" * 300, "cannot be written: File name too long"),
        ("a\0b", "cannot be written: embedded null byte"),
    ],
)
def test_a_place_where_no_file_can_be_is_refused_before_the_work(tmp_path, name, problem):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "null").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "pipe")
    path = f"{tmp_path}/{name}"
    with pytest.raises(OutputFileError) as caught:
        check_writable(path, force=True)
    assert str(caught.value) == f"{path}: {problem.format(tmp=tmp_path)}"


def test_minus_is_no_file():
    with pytest.raises(OutputFileError) as caught:
        check_writable("-")
    assert str(caught.value) == "-: is no file"


AS_NOBODY = """
import os, sys
from topotune.errors import OutputFileError
from topotune.files import check_writable
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for arguments in ({}, {"renews": "topotune/plan"}):
    try:
        check_writable(sys.argv[1], **arguments)
    except OutputFileError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "problem"),
    [
        (0o555, None, "the folder {folder} is not writable: Permission denied"),
        (0o777, 0o444, "exists and is read-only"),
    ],
    ids=["folder", "file"],
)
def test_permissions_are_kept(tmp_path_factory, folder_mode, file_mode, problem):
    if os.getuid() != 0:
        pytest.skip("becoming another user needs root")
    folder = tmp_path_factory.mktemp("open")
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o011)
    path = folder / "plan.json"
    if file_mode is not None:
        path.write_bytes(PLAN)
        path.chmod(file_mode)
    folder.chmod(folder_mode)
    result = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(path)], capture_output=True, text=True, check=True
    )
    assert f"{path}: {problem.format(folder=folder)}" in result.stdout.splitlines()


def test_a_full_disk_leaves_the_file_of_before_and_nothing_else(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(b"old")
    script = (
        "import resource, signal, sys; from topotune.files import write_whole;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "write_whole(sys.argv[1], b'x' * 5000, force=True)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert f"OutputFileError: {path}: cannot be written: File too large" in result.stderr
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["plan.json"]

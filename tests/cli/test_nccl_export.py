"""``topotune export plan.json --to nccl-…``, run as a user does."""

import ctypes
import json
import shutil

import pytest
from command_line import topotune
from nccl_plans import ON_GLOO, THREE_ROWS, exported

from topotune.plan import file_bytes

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler"
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plan.json").write_bytes(file_bytes(THREE_ROWS))
    (tmp_path / "gloo.json").write_bytes(file_bytes(ON_GLOO))
    return tmp_path


@needs_compiler
def test_the_plugin_and_its_table_are_written_side_by_side(folder):
    name = "libnccl-tuner-topotune"
    done = topotune("export", "plan.json", "--to", "nccl-tuner", "-o", f"{name}.so", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [f"written to {name}.table", f"written to {name}.so"]
    assert done.stdout.startswith(f"export NCCL_TUNER_PLUGIN={folder / name}.so ")
    assert (folder / f"{name}.table").read_text() == exported("nccl-tuner", THREE_ROWS)[0]
    assert hasattr(ctypes.CDLL(str(folder / f"{name}.so")), "ncclTunerPlugin_v6")

    done = topotune("export", "plan.json", "--to", "nccl-tuner", "-o", f"{name}.so", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {name}.so: exists already")


@needs_compiler
def test_nothing_is_written_where_a_table_stands_in_the_way(folder):
    (folder / "a.table").write_text("mine")
    done = topotune("export", "plan.json", "--to", "nccl-tuner", "-o", "a.so", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: a.table: exists already")
    assert not (folder / "a.so").exists()
    done = topotune("export", "plan.json", "--to", "nccl-tuner", "-o", "a.so", "--force", cwd=folder)
    assert done.returncode == 0, done.stderr


def test_the_table_alone_needs_no_compiler(folder, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    done = topotune("export", "plan.json", "--to", "nccl-tuner", "-o", "a.table", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"export TOPOTUNE_NCCL_TABLE={folder / 'a.table'} ")
    done = topotune("export", "plan.json", "--to", "nccl-tuner", "-o", "a.so", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: CC=no-such-compiler: there is no such program")


@pytest.mark.parametrize("target", ["nccl-tuner", "nccl-tuner-csv", "nccl-env"])
def test_without_a_place_the_text_is_printed(folder, target):
    done = topotune("export", "plan.json", "--to", target, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == exported(target, THREE_ROWS)[0]


def test_a_plan_of_gloo_warns_and_the_stock_plugin_refuses_it(folder):
    done = topotune("export", "gloo.json", "--to", "nccl-env", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    [warning] = json.loads(done.stdout)["warnings"]
    assert warning.startswith("the plan was measured on gloo, which is no evidence about NCCL")
    done = topotune("export", "gloo.json", "--to", "nccl-tuner-csv", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: nccl-tuner-csv: the plan was measured on gloo")


def test_the_version_is_asked_for(folder):
    done = topotune("export", "plan.json", "--to", "nccl-tuner-csv", "--for", "2.20", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --for 2.20: not a version of NCCL from 2.24 to 2.30")

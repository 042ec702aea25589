"""``topotune export`` of plans and schedules, run as a user does."""

import json
import shutil

import pytest
from command_line import topotune
from mpi_golden import FOLDER, OWN_SELECTION, PLAN

from topotune.plan import file_bytes
from topotune.schedule import ring, to_document
from topotune.schedule.msccl import msccl_program
from topotune.schedule.msccl_xml import write_msccl


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plan.json").write_bytes(file_bytes(PLAN))
    (tmp_path / "ring.json").write_text(json.dumps(to_document(ring(4))))
    (tmp_path / "own.json").write_bytes(OWN_SELECTION)
    return tmp_path


def test_a_plan_is_written_with_what_is_lost_and_how_to_use_it(folder):
    done = topotune(
        "export", "plan.json", "--to", "openmpi-han", "--for", "5.0", "-o", "han.conf", cwd=folder
    )
    assert done.returncode == 0
    assert (folder / "han.conf").read_text() == (FOLDER / "openmpi-5.0-han.conf").read_text()
    assert "--mca coll_han_dynamic_rules_filename $(realpath han.conf)" in done.stdout
    *warnings, last = done.stderr.splitlines()
    assert last == "written to han.conf"
    assert len(warnings) == 3
    assert all(warning.startswith("warning: ") for warning in warnings)


def test_stdout_is_the_file_or_one_document(folder):
    done = topotune("export", "plan.json", "--to", "mpich-json", "--base", "own.json", cwd=folder)
    assert done.stdout == (FOLDER / "mpich-algorithms.json").read_text()
    done = topotune("export", "plan.json", "--to", "ucc", "--json", cwd=folder)
    document = json.loads(done.stdout)
    assert document["text"] == (FOLDER / "ucc.conf").read_text()
    assert "verification" not in document


def test_a_schedule_becomes_an_msccl_program(folder):
    done = topotune("export", "ring.json", "--to", "msccl-xml", cwd=folder)
    assert done.returncode == 0
    assert done.stdout == write_msccl(msccl_program(ring(4)))


def test_the_list_names_every_kind(folder):
    done = topotune("export", "--to", "list", "--json", cwd=folder)
    of = {entry["name"]: entry["of"] for entry in json.loads(done.stdout)["formats"]}
    assert (of["openmpi-tuned"], of["msccl-xml"], of["dot"]) == ("plan", "schedule", "topology")


@pytest.mark.parametrize(
    ("arguments", "first_line"),
    [
        (["plan.json", "--to", "msccl-xml"], "error: --to msccl-xml: a plan cannot be exported to that"),
        (["ring.json", "--to", "ucc"], "error: --to ucc: a schedule cannot be exported to that"),
        (
            ["ring.json", "--to", "msccl-xml", "--verify"],
            "error: --verify: ring.json is a schedule, and that",
        ),
        (
            ["plan.json", "--to", "ucc", "--node", "a"],
            "error: --node a: plan.json is a plan, which is for all",
        ),
        (["plan.json", "--to", "ucc", "--verify"], "error: --verify: there is no self-test of ucc"),
        (
            ["plan.json", "--to", "mpich-json"],
            "error: --to mpich-json: MPICH takes a file for all collectives",
        ),
        (["plan.json", "--to", "mpich-json", "--base", "no.so"], "error: no.so: no such file"),
        (
            ["plan.json", "--to", "openmpi-tuned", "--for", "3.1"],
            "error: --for 3.1: this export is for Open MPI",
        ),
        (["plan.json", "--to", "ucc", "-o", "plan.json"], "error: plan.json: exists already"),
    ],
)
def test_wrong_use_exits_2_with_the_reason(folder, arguments, first_line):
    done = topotune("export", *arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(first_line)


@pytest.mark.skipif(
    shutil.which("mpirun.openmpi") is None, reason="no mpirun.openmpi (apt install openmpi-bin)"
)
def test_verify_shows_each_size_and_writes_the_file(folder):
    done = topotune(
        "export",
        "plan.json",
        "--to",
        "openmpi-tuned",
        "--for",
        "4.1",
        "--verify",
        "-o",
        "tuned.conf",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "tuned.conf").read_text() == (FOLDER / "openmpi-4.1-tuned.conf").read_text()
    rows = [line.split() for line in done.stderr.splitlines() if line.startswith("  ")]
    assert ["8191", "B", "recursive_doubling"] in [row[:3] for row in rows]
    assert not any("NOT" in row for row in rows)


def test_verify_without_the_program_exits_1_and_writes_nothing(folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    done = topotune(
        "export",
        "plan.json",
        "--to",
        "openmpi-tuned",
        "--for",
        "4.1",
        "--verify",
        "-o",
        "tuned.conf",
        cwd=folder,
    )
    assert done.returncode == 1
    assert (
        "error: --verify: Open MPI is not installed here (no mpirun of it on PATH): nothing was verified"
        in (done.stderr)
    )
    assert not (folder / "tuned.conf").exists()

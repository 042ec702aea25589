"""Self-tests of exports: the real programs, where they are installed."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mpi_plans import alternating, plan_of

from topotune.errors import RunError, UsageError
from topotune.export_check import Observation, Verification, find_check, watched
from topotune.export_check.openmpi import find_open_mpi
from topotune.export_check.sizes import MAX_BYTES, MAX_SIZES, check_num_ranks, probed_sizes
from topotune.export_check.verification import is_slower
from topotune.plan.exports import BaseFile, ExportOptions, find_target
from topotune.plan.exports.counterparts import choices_of
from topotune.plan.exports.mpich_json import counterpart
from topotune.report.columns import shown_on
from topotune.report.verification import describe_verification

ROWS = [("recursive_doubling", 1000), ("ring", 50_000), ("default", 100_000), ("halving_doubling", None)]
SIZES = [0, 31, 999, 1000, 7070, 49_999, 50_000, 70_710, 99_999, 100_000, 323_817, 2**20 + 1]
OPEN_MPI = ExportOptions(version="4.1")


def open_mpi_version():
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if mpirun is None:
        return ""
    said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=60)
    match = re.search(r"\((?:Open MPI|OpenRTE)\) (\d)", said.stdout)
    return match[1] if match else ""


needs_open_mpi = pytest.mark.skipif(
    open_mpi_version() not in ("4", "5"),
    reason="no mpirun of Open MPI 4 or 5 on PATH (apt install openmpi-bin)",
)


WITH_OWN_PROGRAMS = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent)))
"""PATH, and last of all where pip puts programs: its mpirun is MPICH's, which is not to hide Open MPI's."""


@pytest.fixture(autouse=True)
def _finds_programs_of_pip(monkeypatch):
    monkeypatch.setenv("PATH", WITH_OWN_PROGRAMS)


def mpich_prefix():
    """Of the MPICH on PATH, or beside this Python, with its library beside it, as PyPI's mpich has it."""
    found = shutil.which("mpiexec.hydra", path=WITH_OWN_PROGRAMS)
    library = Path(found).parent.parent / "lib" / "libmpi.so.12" if found else None
    return library if library and library.is_file() else None


needs_mpich = pytest.mark.skipif(mpich_prefix() is None, reason="no MPICH on PATH (pip install mpich)")


def verdicts(verification):
    return [(seen.message_bytes, seen.expected, seen.verdict) for seen in verification.observations]


@needs_open_mpi
def test_open_mpi_switches_algorithms_at_the_plans_sizes():
    verification = find_check("openmpi-tuned")(plan_of(*ROWS), find_target("openmpi-tuned"), OPEN_MPI)
    assert verification.holds
    assert verification.program.startswith("Open MPI ")
    words = ["recursive_doubling"] * 3 + ["ring"] * 3 + [None] * 3 + ["rabenseifner"] * 3
    seen = verdicts(verification)
    assert [(size, word) for size, word, _ in seen] == list(zip(SIZES, words, strict=True))
    # What Open MPI does by itself at the other sizes is its version's affair.
    by_size = {size: verdict for size, _, verdict in seen}
    assert by_size[1000] == by_size[49_999] == "chosen"
    assert by_size[50_000] == by_size[99_999] == "own"
    assert all(observation.median_s > 0 for observation in verification.observations)


@needs_open_mpi
def test_a_file_that_switches_elsewhere_is_found_out():
    target = find_target("openmpi-tuned")
    late = replace(target, write=lambda document: target.write(document).replace("1000 4", "1001 4"))
    verification = find_check("openmpi-tuned")(plan_of(*ROWS), late, OPEN_MPI)
    assert not verification.holds
    assert [size for size, _, verdict in verdicts(verification) if verdict == "other"] == [1000]


@needs_open_mpi
@pytest.mark.slow
def test_a_file_that_open_mpi_drops_is_found_out():
    target = find_target("openmpi-tuned")
    broken = replace(target, write=lambda document: "rule-file-version-9\n" + target.write(document))
    verification = find_check("openmpi-tuned")(plan_of(("ring", None)), broken, OPEN_MPI)
    assert not verification.holds


@needs_open_mpi
def test_an_export_for_another_open_mpi_is_not_run():
    with pytest.raises(UsageError, match=r"is installed, and the export is not for it$"):
        find_check("openmpi-tuned")(plan_of(*ROWS), find_target("openmpi-tuned"), ExportOptions())


@needs_open_mpi
@pytest.mark.slow
@pytest.mark.parametrize("name", ["recursive_doubling", "ring"])
def test_open_mpi_alone_or_with_odd_ranks_is_no_trouble(name):
    for ranks_per_node in ((1,), (3,)):
        plan = plan_of((name, None), ranks_per_node=ranks_per_node)
        assert find_check("openmpi-tuned")(plan, find_target("openmpi-tuned"), OPEN_MPI).holds


@needs_open_mpi
@pytest.mark.slow
def test_a_plan_of_defaults_leaves_open_mpi_as_it_is():
    check, target = find_check("openmpi-tuned"), find_target("openmpi-tuned")
    verification = check(plan_of(("default", 4096), ("native_allreduce", None)), target, OPEN_MPI)
    assert {verdict for _, _, verdict in verdicts(verification)} == {"own"}


@needs_open_mpi
def test_open_mpi_reads_every_rule_of_a_han_file(tmp_path):
    rows = [("ring", 4096), ("default", 8192), ("hierarchical", None, {"groups": [[0, 1], [2, 3]]})]
    target = find_target("openmpi-han")
    document = target.from_plan(plan_of(*rows, ranks_per_node=(2, 2)), OPEN_MPI).document
    path = tmp_path / "han.conf"
    path.write_text(target.write(document))
    launcher, _ = find_open_mpi()
    rules = {"coll_han_use_dynamic_file_rules": "1", "coll_han_dynamic_rules_filename": str(path)}
    shown = {"coll_han_priority": "90", "coll_han_dump_dynamic_rules": "1", "coll_base_verbose": "30"}
    said = subprocess.run(
        [
            *(*launcher.command, "-np", "2"),
            *(word for name, value in (rules | shown).items() for word in ("--mca", name, value)),
            *(sys.executable, "-I", "-S", watched.__file__, "openmpi", launcher.library, "1", "8"),
        ],
        env=os.environ | launcher.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.returncode == 0, said.stderr
    assert f"read {sum(len(table.rules) for table in document.tables)} rules from {path}" in said.stderr
    size = r"configuration size (\d+) mesage size (\d+) -> collective component \d+ \((\w+)\)"
    read = sorted({(int(n), int(first), name) for n, first, name in re.findall(size, said.stderr)})
    assert read == [
        (table.min_ranks, rule.min_bytes, rule.component) for table in document.tables for rule in table.rules
    ]


@needs_mpich
@pytest.mark.slow
def test_mpich_switches_algorithms_at_the_plans_sizes():
    base = BaseFile(source="libmpi.so", data=mpich_prefix().read_bytes())
    check, target = find_check("mpich-json"), find_target("mpich-json")
    verification = check(plan_of(*ROWS, ranks_per_node=(2, 2)), target, ExportOptions(base=base))
    assert verification.holds
    by_size = {size: verdict for size, _, verdict in verdicts(verification)}
    assert by_size[1000] == by_size[49_999] == "chosen"
    assert by_size[999] in ("chosen", "same")
    assert by_size[50_000] == by_size[100_000] == "not shown"


@pytest.mark.parametrize(
    ("name", "program"), [("openmpi-tuned", "Open MPI"), ("mpich-json", "MPICH")], ids=["openmpi", "mpich"]
)
def test_a_program_that_is_not_here_is_said_to_be_missing(monkeypatch, tmp_path, name, program):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError) as raised:
        find_check(name)(plan_of(*ROWS), find_target(name), OPEN_MPI)
    assert raised.value.message.startswith(f"--verify: {program} is not installed here (no mpi")
    assert raised.value.message.endswith(": nothing was verified")


def test_a_launcher_that_fails_is_told_with_what_it_said(monkeypatch, tmp_path):
    mpirun = tmp_path / "mpirun"
    version, fails = 'echo "mpirun (Open MPI) 4.1.9"', 'echo "Error: no slots" >&2; exit 3'
    mpirun.write_text(f'#!/bin/sh\ncase "$*" in *version*) {version} ;; *) {fails} ;; esac\n')
    mpirun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.setattr("topotune.export_check.openmpi._PROGRAMS", ("mpirun",))
    with pytest.raises(RunError, match=r"^Open MPI 4\.1\.9: a job failed \(exit code 3\): Error: no slots$"):
        find_check("openmpi-tuned")(plan_of(*ROWS), find_target("openmpi-tuned"), OPEN_MPI)


def test_exports_without_a_self_test_say_which_have_one():
    with pytest.raises(UsageError, match=r"^--verify: there is no self-test of ucc$") as raised:
        find_check("ucc")
    assert raised.value.hint == "there is one of openmpi-tuned, mpich-json"


def test_more_ranks_than_one_machine_carries_are_refused():
    with pytest.raises(
        UsageError, match=r"^--verify: the plan is for 65 ranks, and a self-test starts at most 64$"
    ):
        check_num_ranks(65)


def sizes_of(*rows, num_ranks=4):
    return probed_sizes(choices_of(plan_of(*rows).groups[0].allreduce, counterpart), num_ranks)


def test_both_ends_of_each_range_are_run():
    assert [size for size, _ in sizes_of(*ROWS)] == SIZES
    assert sizes_of(("ring", 1), ("default", 3), ("ring", None)) == [
        (0, "ring"),
        (1, None),
        (2, None),
        (3, "ring"),
        (1773, "ring"),
        (2**20 + 1, "ring"),
    ]


def test_sizes_are_bounded_in_bytes_and_number():
    many = sizes_of(*alternating(200))
    assert len(many) == MAX_SIZES
    assert (many[0][0], many[-1][0]) == (0, 2**20 + 1)
    assert sizes_of(("ring", 2 * MAX_BYTES), ("default", None)) == [(0, "ring"), (5792, "ring")]
    assert sizes_of(("ring", 2**23 + 2), ("default", None), num_ranks=64) == [(0, "ring"), (2896, "ring")]


def test_the_table_says_what_was_seen():
    seen = [
        Observation(message_bytes=0, expected="ring", verdict="chosen", median_s=1e-5, own_median_s=2e-5),
        Observation(message_bytes=999, expected=None, verdict="other", median_s=1e-5, own_median_s=1e-5),
        Observation(message_bytes=1000, expected=None, verdict="not shown", reason="it may change"),
    ]
    verification = Verification(program="Open MPI 4.1.4", num_ranks=4, observations=tuple(seen))
    assert describe_verification(verification).splitlines() == [
        "Open MPI 4.1.4, 4 ranks: what ran, and its median time with the export and without",
        "  message size  of the plan    with  without  what ran",
        "           0 B  ring          10 µs    20 µs  as the plan says",
        "         999 B  own decision  10 µs    10 µs  NOT what the plan says",
        "        1000 B  own decision      –        –  not shown: it may change",
        "at no size slower here with the export than without it",
    ]
    slow = replace(verification, observations=(replace(seen[0], is_slower=True), *seen[1:]))
    assert describe_verification(slow).splitlines()[-1] == "slower here with the export than without it: 0 B"
    never_run = replace(verification, observations=(seen[2],))
    assert len(describe_verification(never_run).splitlines()) == 3


def test_the_table_never_wraps_on_a_terminal():
    same = Observation(
        message_bytes=49999, expected="recursive_doubling", verdict="same", median_s=1e-5, own_median_s=2e-5
    )
    verification = Verification(program="Open MPI 4.1.4", num_ranks=4, observations=(same,))
    for columns in (40, 80):
        with shown_on(columns):
            _, *table, _ = describe_verification(verification).splitlines()
        assert max(map(len, table)) <= columns
        assert "as the plan says" in " ".join(line.strip() for line in table)


@pytest.mark.parametrize(
    ("times_s", "slower"),
    [
        ((2.0, 2.1, 2.2, 2.3), True),
        ((1.0, 1.1, 1.2, 1.3), False),
        ((0.1, 0.2, 0.3, 0.4), False),
        ((1.1, 1.2, 9.0, 9.0), False),
    ],
    ids=["all slower", "alike", "faster", "a few late calls"],
)
def test_slower_is_what_lies_apart(times_s, slower):
    assert is_slower(times_s, (1.0, 1.1, 1.2, 1.3)) == slower

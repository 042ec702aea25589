import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import topotune
from plan_example import example as plan_document

from topotune.cli import completion
from topotune.cli.app import app
from topotune.cli.ranks import find_launcher
from topotune.documents import KINDS
from topotune.links.check import SEVERITIES
from topotune.tune.options import COMPUTES

REPOSITORY = Path(__file__).parents[2]
VERBS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(tmp_path, verb):
    done = topotune(verb, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"Example: topotune {verb}" in " ".join(done.stdout.split())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_in_the_readme(verb):
    assert f"`topotune {verb}" in (REPOSITORY / "README.md").read_text()


def test_help_imports_nothing_heavy():
    script = (
        "import sys; sys.argv = ['topotune', '--help']\n"
        "import topotune.cli\n"
        "try: topotune.cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'scipy', 'optuna', 'pydantic', 'psutil', 'pynvml', 'pyroute2'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_refusal_waits_for_no_library_of_the_work_that_was_refused(tmp_path):
    refused = (
        ("tune", "--sizes", "big"),
        ("measure", "--nproc-per-node", "-3"),
        ("compare", "nowhere.json"),
        ("check", "nowhere.json"),
        ("show", "nowhere.json"),
        ("simulate", "nowhere.json"),
    )
    script = (
        "import sys, topotune.cli\n"
        f"for arguments in {refused}:\n"
        "    sys.argv = ['topotune', *arguments]\n"
        "    try: topotune.cli.main()\n"
        "    except SystemExit as left: assert left.code == 2, arguments\n"
        "parts = ('cluster', 'optimize', 'sparse', 'spatial', 'stats')\n"
        "print([name for name in ('torch', *map('scipy.{}'.format, parts)) if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_topotune_alone_says_what_to_do_first_and_what_there_is(tmp_path):
    done = topotune(cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Where to begin:\n  topotune probe ")
    assert all(f"  {verb}" in done.stdout for verb in VERBS)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "..." not in done.stdout, "a verb's first sentence is too long for the list"


def test_where_a_plan_is_topotune_alone_says_what_to_do_with_it(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    assert topotune(cwd=tmp_path).stdout.startswith("plan.json is here. What next?\n")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("topotune com", ["compare"]),
        ("topotune tune --bud", ["--budget"]),
        ("topotune show --profile dgx-h", ["dgx-h100"]),
    ],
)
def test_the_shell_completes_verbs_options_and_names(tmp_path, words, completed):
    asked = {"_TOPOTUNE_COMPLETE": "complete_bash", "COMP_WORDS": words}
    done = subprocess.run(
        [sys.executable, "-m", "topotune"],
        env=os.environ | asked | {"COMP_CWORD": str(len(words.split()) - 1)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == completed, done.stderr


@pytest.mark.parametrize(
    ("names", "typed", "completed"),
    [
        (completion.MACHINES, "a6", ["a6000-4gpu"]),
        (completion.LABS, "racks-2x4", ["racks-2x4x1"]),
        (completion.EXPORTS, "nccl-t", ["nccl-tuner", "nccl-tuner-csv", "nccl-topo-xml"]),
        (completion.CAPTURES, "lspci-", ["lspci-tree"]),
        (completion.KINDS, "pl", ["plan"]),
        (completion.SEVERITIES, "", list(SEVERITIES)),
        (completion.COMPUTES, "", [name for names in COMPUTES.values() for name in names]),
        (completion.BACKENDS, "x", []),
    ],
)
def test_names_are_completed_by_their_beginning(names, typed, completed):
    assert names(typed) == completed


def test_the_help_of_schema_names_every_kind_of_document_and_no_other(tmp_path):
    said = " ".join(topotune("schema", "--help", cwd=tmp_path).stdout.split())
    assert f"{', '.join(KINDS)}." in said


def test_what_stands_behind_the_dashes_is_the_jobs(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(plan_document()))
    done = topotune("run", "--plan", "plan.json", "--", "echo", "--debug", cwd=tmp_path)
    assert done.stdout == "--debug\n"


@pytest.mark.parametrize(
    ("environment", "speaks"),
    [
        ({}, True),
        ({"RANK": "3"}, True),
        ({"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "a"}, False),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "a"}, True),
    ],
    ids=["alone", "a batch system's own RANK", "rank 3", "rank 0"],
)
def test_one_rank_speaks(monkeypatch, environment, speaks):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find_launcher().speaks is speaks


def test_the_version_is_the_packages(tmp_path):
    from topotune import __version__

    assert topotune("--version", cwd=tmp_path).stdout == f"topotune {__version__}\n"

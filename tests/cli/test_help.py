import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import topotune
from plan_example import example as plan_document

from topotune.cli.app import app
from topotune.cli.ranks import find_launcher
from topotune.documents import KINDS

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


def test_topotune_alone_says_what_there_is(tmp_path):
    done = topotune(cwd=tmp_path)
    said = done.stdout + done.stderr
    assert all(f"  {verb}" in said for verb in VERBS)


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

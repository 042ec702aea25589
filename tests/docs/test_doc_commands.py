"""What the documentation tells its readers to type is run; what cannot be run here is parsed."""

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from command_line import environment
from doc_files import GIVEN, give
from pages import FOREIGN, NOT_RUN, PAGES, REPOSITORY, SHELL, Command, commands, inline_commands
from typer.exceptions import TyperException

import topotune.cli as command_line
from topotune.cli.app import app

ROOT = typer.main.get_command(app)
OUTPUTS = ("-o", "--output", "--emit", "--topology")
QUICK = {
    "tune": "--budget 5s --sizes 1K,64K",
    "compare": "--budget 4s --sizes 1K,64K",
    "measure": "--budget 2s",
    "check": "--budget 2s",
}
"""What a page's run takes instead of its own budget: only that it works is at stake."""


def ids(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


ALL = [command for page in PAGES for command in commands(page)]
QUICK_PAGES = [
    page for page in PAGES if any(not one.is_slow and one.why_not_run is None for one in commands(page))
]
SLOW_PAGES = [
    page for page in PAGES if any(one.is_slow and one.why_not_run is None for one in commands(page))
]


def verb_of(words: list[str]):
    """The verb that the words name, and the words behind it."""
    root = ROOT.make_context("topotune", [], resilient_parsing=True)
    found = ROOT.get_command(root, words[0])
    assert found is not None, f"there is no verb {words[0]!r}"
    return found, words[1:]


def options_of(verb) -> set[str]:
    return {"--help", "-h", *(name for one in verb.params for name in (*one.opts, *one.secondary_opts))}


def without_everywhere(words: list[str]) -> list[str]:
    return [word for word in words if word not in command_line.EVERYWHERE]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_is_one_that_the_command_line_takes(page):
    for command in commands(page):
        for words in map(without_everywhere, command.topotunes):
            words = [word for word in words if "…" not in word]
            if not words or words[0].startswith("-"):
                continue
            verb, arguments = verb_of(words)
            try:
                if "…" not in command.text:
                    job = ["job"] if words[-1] == "--" else []
                    verb.make_context(words[0], [*arguments, *job])
            except TyperException as problem:
                pytest.fail(f"{ids(page)}: {command.text}: {problem.format_message()}")
            except typer.Exit:
                pass
            unknown = (
                {one.split("=")[0] for one in arguments if one.startswith("--")} - options_of(verb) - {"--"}
            )
            assert not unknown, command.text


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_running_text_and_tables_name_verbs_and_options_that_exist(page):
    for text in inline_commands(page):
        words = without_everywhere(text.split()[text.split().index("topotune") + 1 :])
        if not words or not re.fullmatch(r"[a-z]+", words[0]):
            continue
        verb, arguments = verb_of(words)
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        named = {
            re.sub(r"[=\]].*", "", word.strip("[]|,")) for word in own if word.lstrip("[").startswith("-")
        }
        assert named <= options_of(verb), text


def test_every_program_of_the_pages_is_run_or_has_a_reason():
    known = {"topotune", *SHELL, *FOREIGN}
    assert {one.program for one in ALL} <= known
    assert {one.program for one in ALL} >= set(FOREIGN), "a program that no page names"
    for pattern in NOT_RUN:
        assert any(re.search(pattern, one.text) for one in ALL), f"no page has {pattern}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a reader types: what the repository has lies there, too."""
    for name in ("benchmarks", "examples", "profiles"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def give_inputs(text: str, folder: Path) -> None:
    """Make the files that a command reads and nothing before it has made, and room for those that it writes.

    Pages show one command with several options; a reader who tries them all says --force.
    """
    words = shlex.split(text, comments=True)
    for index, word in enumerate(words):
        name = word.rpartition("=")[2]
        if words[index - 1] in OUTPUTS and "tune" not in words:
            (folder / word).unlink(missing_ok=True)
        elif name in GIVEN and words[index - 1] not in OUTPUTS and not (folder / name).exists():
            give(name, folder, text)


@pytest.mark.parametrize("page", QUICK_PAGES, ids=ids)
def test_what_is_quick_runs(page, folder, monkeypatch, capsys):
    for command in commands(page):
        if command.is_slow or command.why_not_run is not None:
            continue
        run_here(command, folder, monkeypatch, capsys)


def run_here(command: Command, folder: Path, monkeypatch, capsys) -> None:
    """Run a topotune of one process in this one: what it does is the same, and it need not be started."""
    give_inputs(command.text, folder)
    [words] = command.topotunes
    monkeypatch.setattr(sys, "argv", ["topotune", *words])
    with pytest.raises(SystemExit) as left:
        command_line.main()
    said = capsys.readouterr()
    assert left.value.code in (0, 3), f"{command.text}\n{said.err}"


@pytest.fixture(scope="session")
def shims(tmp_path_factory):
    """A folder for PATH with topotune, torchrun and python as the tests have them."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module in (("topotune", "topotune"), ("torchrun", "torch.distributed.run"), ("python", None)):
        run = [sys.executable, *(["-m", module] if module else [])]
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(run)} "$@"\n')
        (folder / name).chmod(0o755 | stat.S_IXUSR)
    return folder


def quickly(text: str) -> str:
    """A command with a small budget, and two ranks where it says more."""
    verbs = "|".join(QUICK)
    match = re.search(rf"\btopotune (?:-v )?({verbs})\b", text)
    if match is None or "--no-measure" in text or re.search(r"check \S+\.json", text):
        return re.sub(r"--nproc-per-node[ =]\d+", "--nproc-per-node 2", text)
    text = re.sub(r" --(budget|sizes) \S+", "", text)
    text = text[: match.end()] + f" {QUICK[match[1]]}" + text[match.end() :]
    if "--groups" in text:  # of so many ranks
        return text
    return re.sub(r"--nproc-per-node[ =]\d+", "--nproc-per-node 2", text)


@pytest.mark.slow
@pytest.mark.gloo
@pytest.mark.timeout(1200)  # a page has up to ten commands, each of which starts torch
@pytest.mark.parametrize("page", SLOW_PAGES, ids=ids)
def test_a_page_runs_from_its_beginning_to_its_end(page, folder, shims, monkeypatch, capsys):
    variables = environment() | {"PATH": f"{shims}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    for command in commands(page):
        if command.why_not_run is not None:
            continue
        if not command.needs_processes:
            run_here(command, folder, monkeypatch, capsys)
            continue
        give_inputs(command.text, folder)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", quickly(command.text)],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode in (0, 3), f"{command.text}\n{done.stdout}\n{done.stderr}"

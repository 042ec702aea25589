"""What the parser refuses is said like every other error: which, with its value, and where to read on."""

import re

import pytest
from command_line import topotune

import topotune.cli as command_line
from topotune import __main__, errors
from topotune.cli.app import INTERRUPTED


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("tune --seed x", "--seed x: is no whole number", "topotune tune --help"),
        ("tune --seed=-1", "--seed -1: is less than 0", "topotune tune --help"),
        ("tune --min-gain much", "--min-gain much: is no number", "topotune tune --help"),
        ("record --steps 0 -- true", "--steps 0: is less than 1", "topotune record --help"),
        ("tune more", "Got unexpected extra argument(s) (more)", "topotune tune --help"),
        ("compare", "Missing argument 'PLAN'", "topotune compare --help"),
        (
            "lab --down --keep",
            "lab --down removes every lab whose owner is gone, and takes no --keep",
            "topotune lab --down",
        ),
        (
            "lab 2x4 --down",
            "lab --down removes every lab whose owner is gone, and takes no profile",
            "topotune lab --down",
        ),
        (
            "lab --once",
            "lab --once: no profile and no command were given",
            "topotune lab --once 2x4 -- hostname; `topotune lab` lists the profiles",
        ),
        ("prob", "No such command 'prob'. Did you mean 'probe'?", "topotune alone says what there is"),
        ("tune --budget 8000h", "'8000h' is more than 7 days", "write 60s, 2m, 1.5h"),
        ("schema plam", "'plam': no such kind of document", "did you mean plan?"),
        ("show plan.jsn", "plan.jsn: no such file", "did you mean plan.json?"),
        ("show folder", "folder: is a folder, not a file", "name a file in it"),
        ("show no/plan.json", "no/plan.json: no such file", "there is no folder no"),
        (
            "show list.json",
            "list.json: is a list of 0, not a document of topotune",
            "topotune import reads other tools' files",
        ),
        (
            "tune --gradients plan.json",
            "{folder}/plan.json: is a topotune/plan, not a topotune/gradients",
            "topotune record -- CMD makes one",
        ),
        (
            "import plan.json",
            "plan.json: is in no format that topotune reads",
            "it looks like a document of topotune's own: topotune show takes it, or says what does",
        ),
        (
            "export plan.json --to openmpi",
            "--to openmpi: a plan cannot be exported to that",
            "did you mean openmpi-han or openmpi-tuned?",
        ),
        (
            "show list.json --nodes 2",
            "--nodes 2: counts known machines, and list.json is a file",
            "topotune show --profile NAME --nodes 2",
        ),
    ],
)
def test_a_refusal_names_the_option_its_value_and_what_to_do(
    tmp_path, monkeypatch, capsys, words, error, hint
):
    (tmp_path / "plan.json").write_text('{"schema": "topotune/plan"}')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["topotune", *words.split()])
    with pytest.raises(SystemExit) as left:
        command_line.main()
    assert left.value.code == 2
    said = error.replace("{folder}", str(tmp_path))
    assert capsys.readouterr() == ("", f"error: {said}\nhint: {hint}\n")


def test_a_missing_file_without_a_like_one_says_where_it_was_looked_for(tmp_path):
    done = topotune("show", "nowhere.json", cwd=tmp_path)
    assert done.stderr == f"error: nowhere.json: no such file\nhint: it was looked for in {tmp_path}\n"


def every_kind_of_error():
    """One of each class of the tree, none with a hint of its own."""
    kinds = {errors.TopotuneError}
    while (more := kinds | {one for kind in kinds for one in kind.__subclasses__()}) != kinds:
        kinds = more
    made = {
        errors.InputFileError: errors.InputFileError("links.json", "is cut off", place="pairs[3]"),
        errors.PlanError: errors.PlanError("plan.json", "is cut off"),
        errors.RankFailedError: errors.RankFailedError(1, "killed by SIGKILL"),
    }
    own = (kind for kind in kinds if kind.__module__ == errors.__name__)
    return [made[kind] if kind in made else kind("it failed") for kind in own]


@pytest.mark.parametrize("error", every_kind_of_error(), ids=lambda error: type(error).__name__)
def test_every_error_has_a_hint_also_where_it_brings_none(monkeypatch, capsys, error):
    def fail(*_, **__):
        raise error

    left_at = []
    monkeypatch.setattr(command_line, "app", fail)
    monkeypatch.setattr(command_line, "_leave_at_once", left_at.append)  # it ends this very process
    monkeypatch.setattr("sys.argv", ["topotune", "measure"])
    with pytest.raises(SystemExit) as left:
        command_line.main()
    said, hint = capsys.readouterr().err.splitlines()
    assert said == f"error: {error.message}"
    assert re.fullmatch(r"hint: \S.*", hint)
    assert left.value.code == error.exit_code


def test_a_capture_that_cannot_be_taken_says_what_it_was_read_as(tmp_path):
    (tmp_path / "cut.xml").write_text('<system version="1"><cpu numaid="0"')
    done = topotune("import", "cut.xml", cwd=tmp_path)
    assert done.returncode == 2
    _, hint = done.stderr.splitlines()
    assert hint.startswith("hint: it was read as nccl-xml (")
    assert hint.endswith("); capture it anew and whole, or say what it is by --format")


@pytest.mark.parametrize("debug", [False, True])
def test_what_should_not_have_happened_is_one_line_and_with_debug_a_traceback(monkeypatch, capsys, debug):
    monkeypatch.setattr(command_line, "app", lambda *_, **__: 1 // 0)
    monkeypatch.setattr("sys.argv", ["topotune", "show", *(["--debug"] if debug else [])])
    with pytest.raises(ZeroDivisionError if debug else SystemExit):
        command_line.main()
    if not debug:
        assert capsys.readouterr().err.splitlines() == [
            "error: this should not have happened, ZeroDivisionError: integer division or modulo by zero",
            "hint: topotune … --debug prints where; please report it with that",
        ]


@pytest.mark.parametrize("words", [("-v", "import"), ("import", "--verbose")])
def test_verbose_says_what_is_read_taken_for_and_written(tmp_path, words):
    (tmp_path / "topology.conf").write_text("SwitchName=s0 Nodes=a,b\n")
    done = topotune(*words, "topology.conf", "-o", "cluster.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("- ")]
    assert said[-3:-1] == ["- read topology.conf, 24 bytes", "- took topology.conf for slurm-topology"]
    assert said[-1].startswith(f"- wrote {tmp_path}/cluster.json, ")
    assert "- " not in topotune("import", "topology.conf", cwd=tmp_path).stderr


def test_an_interrupt_that_nothing_else_has_caught_is_one_line(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "main", interrupted)
    with pytest.raises(SystemExit) as left:
        __main__.main()
    assert left.value.code == INTERRUPTED
    assert capsys.readouterr() == ("", "interrupted\n")

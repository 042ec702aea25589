"""What verbs print on a terminal of 80 columns, and in a pipe."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import topotune
from plan_example import example as plan_document
from screen import Screen

LINKS = Path(__file__).parents[2] / "notebooks" / "data" / "links-4x2-degraded.json"


@pytest.fixture
def folder(tmp_path):
    shutil.copyfile(LINKS, tmp_path / "links.json")
    (tmp_path / "plan.json").write_text(json.dumps(plan_document()))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "show links.json",
        "show plan.json",
        "export",
        pytest.param("simulate links.json --sizes 1M", marks=pytest.mark.slow),
    ],
)
def test_no_line_is_wider_than_the_terminal(folder, words):
    screen = Screen(*words.split(), cwd=folder, columns=80)
    assert screen.until_end() == 0
    lines = re.sub(rb"\x1b\[[0-9;]*m", b"", screen.raw).decode().splitlines()
    assert max(map(len, lines)) <= 80, str(screen)


def test_in_a_pipe_lines_stay_whole_and_uncoloured(folder):
    done = topotune("show", "links.json", cwd=folder)
    assert "\x1b" not in done.stdout
    assert re.search(
        r"links +pairs +latency +95 % interval +bandwidth +95 % interval +fit error\n", done.stdout
    )

"""What `tune` shows on a terminal while it works, looked at on the screen of an emulated terminal."""

import os
import re
import termios

import psutil
import pytest
from screen import Screen, shown

from topotune.cli.live import LiveLines, is_live
from topotune.cli.progress import drawing, progress
from topotune.tune.progress import BestSoFar, Measuring, Progress

QUICK = ("tune", "--nproc-per-node", "2", "--budget", "3s", "--sizes", "1K,64K", "-o", "plan.json")
SHM = BestSoFar(algorithm="shm", ratio=2.5, default_s=5e-3, optimum_s=1e-3)
MANY = {2**power: SHM for power in range(10, 30)}


def report(**changes):
    given = {
        "phase": "search",
        "done": 0.4,
        "seconds_left": 36.0,
        "best": {1024: SHM},
        "measuring": Measuring(message_bytes=1024, arms=("ring channels=2", "shm")),
    }
    return Progress(**{**given, **changes})


def plain(now, columns, rows):
    """A drawing without its styles."""
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in drawing(now, columns, rows)]


def test_a_drawing_says_what_is_timed_and_how_the_best_stands_against_default_and_optimum():
    assert plain(report(), 79, 23) == [
        "━━━━━━━━╺━━━━━━━━━━━    36 s left  searching",
        "now  1 KiB: ring channels=2, shm",
        "",
        "message  default  best so far  ratio  of optimum  algorithm",
        "  1 KiB     5 ms         2 ms   2.50        50 %  shm",
        "not confirmed yet: a plan takes what fresh samples prove",
    ]


@pytest.mark.parametrize("columns", [20, 43, 44, 59, 60, 79, 200])
@pytest.mark.parametrize("rows", [1, 5, 8, 23, 60])
def test_a_drawing_fits_whatever_the_terminal_is(columns, rows):
    long = BestSoFar(algorithm="hierarchical " + "group=4 " * 30, ratio=1.0, default_s=1.2345e-3)
    lines = plain(
        report(best=MANY | {1024: long}, measuring=Measuring(message_bytes=2**20, arms=("ring",) * 90)),
        columns,
        rows,
    )
    assert len(lines) <= rows
    assert max(map(len, lines)) <= columns


def test_of_many_sizes_those_around_the_one_that_is_timed_are_shown():
    lines = plain(report(best=MANY, measuring=Measuring(message_bytes=2**29, arms=("ring",))), 79, 12)
    assert [line.split("  ")[0].strip() for line in lines[4:-1]] == [
        "16 MiB", "32 MiB", "64 MiB", "128 MiB", "256 MiB", "512 MiB", "14 more",
    ]  # fmt: skip


def test_colours_are_the_users_to_refuse(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert any("\x1b[32m" in line for line in drawing(report(), 79, 23))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("\x1b[3" in line for line in drawing(report(), 79, 23))


@pytest.mark.parametrize("term", ["dumb", "unknown", None])
def test_a_terminal_without_cursor_movements_is_not_drawn_on(monkeypatch, term):
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)
    master, terminal = os.openpty()
    with os.fdopen(master), os.fdopen(terminal, "w") as stream:
        assert not is_live(stream)
        monkeypatch.setenv("TERM", "xterm")
        assert is_live(stream)


def test_lines_follow_the_terminals_width_and_go_up_over_those_that_it_has_folded():
    master, terminal = os.openpty()
    with os.fdopen(master, "rb", buffering=0) as seen, os.fdopen(terminal, "w") as stream:
        lines = LiveLines(stream)
        termios.tcsetwinsize(terminal, (24, 80))
        lines.draw(["a" * 60, "b" * 100, "c"])
        assert seen.read(4096).decode() == f"{'a' * 60}\x1b[K\r\n{'b' * 79}\x1b[K\r\nc\x1b[K\r\n\x1b[J"
        termios.tcsetwinsize(terminal, (3, 40))
        lines.draw(["a" * 60, "b", "c"])  # the former take 2 rows, 2 rows, and 1
        assert seen.read(4096).decode() == f"\x1b[5A\r{'a' * 39}\x1b[K\r\nb\x1b[K\r\n\x1b[J"
        lines.note("said")
        assert seen.read(4096).decode() == "\x1b[2A\r\x1b[Jsaid\r\n"
        lines.clear()
        lines.draw(["d"])
        assert seen.read(4096).decode() == "d\x1b[K\r\n\x1b[J"


def test_a_terminal_that_is_gone_ends_nothing():
    master, terminal = os.openpty()
    stream = os.fdopen(terminal, "w")
    os.close(master)
    lines = LiveLines(stream)
    lines.draw(["first"])
    lines.note("second")
    lines.clear()
    with pytest.raises(OSError, match="Input/output"):
        stream.close()  # so it was gone


@pytest.mark.gloo
def test_on_a_terminal_tune_shows_the_run_and_leaves_the_plan_alone_on_it_in_place_of_the_former(
    tmp_path, tuned
):
    before = (tuned[0] / "plan.json").read_bytes()
    (tmp_path / "plan.json").write_bytes(before)
    screen = Screen(*QUICK, cwd=tmp_path, columns=100, rows=30)
    screen.until(shown(r"^[━╺╸]+ +\d+ s left  \w"))
    screen.until(shown(r"^message +default +best so far +ratio +algorithm"))
    screen.until(shown(r"^now  (1|64) KiB: "))
    assert screen.until_end() == 0
    said = str(screen)
    assert said.endswith("written to plan.json")
    for words in ("allreduce, 2 ranks on 1 node", "message size", "use it", "topotune run --plan plan.json"):
        assert words in said
    assert (tmp_path / "plan.json").read_bytes() != before
    assert "s left" not in "\n".join(screen.lines)
    assert b"\x1b[?" not in screen.raw  # no mode of the terminal was changed: the cursor is never hidden


@pytest.mark.gloo
def test_ctrl_c_leaves_a_clean_terminal_and_no_process(tmp_path):
    words = ("tune", "--nproc-per-node", "2", "--budget", "5m", "-o", "plan.json")
    screen = Screen(*words, cwd=tmp_path, columns=120)
    screen.until(shown(r"^now  "))
    ranks = psutil.Process(screen.process.pid).children(recursive=True)
    assert ranks
    screen.process.sendintr()
    assert screen.until_end() == 130
    said = [line for line in screen.lines if line not in ("", "^C")]  # a terminal may echo what is typed
    assert said[-2:] == [
        "interrupted",
        "hint: topotune tune --resume --nproc-per-node 2 --budget 5m -o plan.json goes on from what was "
        "measured so far",
    ]
    assert "Traceback" not in str(screen)
    _, alive = psutil.wait_procs(ranks, timeout=60)
    assert alive == []


def test_in_a_log_each_phase_is_a_line(capsys):
    with progress({"shows_lines": True}, "tune") as show:
        for phase, left_s in [("links", 59.6), ("links", 57), ("search", 40), ("done", 0)]:
            show(report(phase=phase, seconds_left=left_s))
    assert capsys.readouterr() == ("", "tune: timing the links, 60 s left\ntune: searching, 40 s left\n")


def test_beside_json_nothing_is_said(capsys):
    payload = {"shows_lines": False, "budget_s": 1.0}
    with progress(payload, "tune") as show:
        show(report())
    assert capsys.readouterr() == ("", "")
    assert payload == {"budget_s": 1.0}

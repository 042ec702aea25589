"""The journal outlives a kill at any byte, and keeps what it was told."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from topotune.errors import InputFileError, OutputFileError
from topotune.tune.journal import Journal, encode_line, parse_journal, read_journal

HEADER = {"topotune_version": "0.1.0", "options": {"budget_s": 60.0}, "seed": 3}


def write_three(path):
    with Journal(path, HEADER) as journal:
        for number in range(3):
            assert journal.begin({"kind": "search", "message_bytes": 1024 << number}) == number
            journal.end(number, {"times_s": [[1e-3, None]], "num_missed": 1})
        journal.note("told", {"message_bytes": 1024})
        journal.begin({"kind": "confirm"})
    return path.read_bytes()


def test_a_journal_gives_back_what_was_recorded(tmp_path):
    path = tmp_path / "journal.jsonl"
    write_three(path)
    contents = read_journal(path)
    assert contents.header == {
        "kind": "header",
        "schema": "topotune/journal",
        "schema_version": 1,
        **HEADER,
    }
    assert [(one.number, one.trial["message_bytes"]) for one in contents.finished] == [
        (0, 1024),
        (1, 2048),
        (2, 4096),
    ]
    assert contents.finished[0].outcome == {"times_s": [[1e-3, None]], "num_missed": 1}
    assert contents.notes == ({"kind": "told", "message_bytes": 1024},)
    assert contents.unfinished == {3: {"kind": "confirm"}}
    assert contents.problems == ()
    assert contents.torn_tail_bytes == 0


def test_torn_at_any_byte_it_keeps_every_whole_line(tmp_path):
    data = write_three(tmp_path / "journal.jsonl")
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    for length in range(len(data)):
        cut = data[:length]
        whole = sum(end <= length for end in ends)
        if whole == 0:
            with pytest.raises(InputFileError, match="no whole line"):
                parse_journal(cut, Path("j"))
            continue
        contents = parse_journal(cut, Path("j"))
        num_records = 2 * len(contents.finished) + len(contents.unfinished) + len(contents.notes) + 1
        assert num_records == whole
        assert contents.problems == ()
        assert contents.torn_tail_bytes == length - ends[whole - 1]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda line: line.replace(b"1024", b"1025"), "its checksum does not fit"),
        (lambda line: line[:20], "is no JSON"),
        (lambda line: b"[" * 200_000, "is no JSON"),
        (lambda line: b'{"crc32":0,"record":{"x":NaN}}', "is no JSON"),
        (lambda line: b'{"record":3}', "is no line of a journal"),
        (lambda line: b"", "is no JSON"),
    ],
    ids=["changed", "cut", "deep", "NaN", "foreign", "empty"],
)
def test_a_line_spoilt_in_the_middle_costs_its_own_trial_only(tmp_path, spoil, problem):
    lines = write_three(tmp_path / "journal.jsonl").split(b"\n")
    lines[1] = spoil(lines[1])
    contents = parse_journal(b"\n".join(lines), Path("j"))
    assert contents.problems == (
        f"line 2: {problem}",
        "line 3: trial 0 ends, but its beginning is lost",
    )
    assert [one.number for one in contents.finished] == [1, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "j: holds no whole line, so it is no journal"),
        (b"hello\n", "j: line 1: no journal: is no JSON"),
        (encode_line({"schema": "topotune/plan"}), "j: line 1: no journal: schema is 'topotune/plan', "),
        (
            encode_line({"schema": "topotune/journal", "schema_version": 2}),
            "j: is of schema_version 2; this topotune reads 1",
        ),
    ],
    ids=["empty", "text", "plan", "newer"],
)
def test_what_is_no_journal_of_this_version_is_refused(data, message):
    with pytest.raises(InputFileError) as error:
        parse_journal(data, Path("j"))
    assert error.value.message.startswith(message)


def test_a_journal_replaces_a_journal_and_nothing_else(tmp_path):
    path = tmp_path / "journal.jsonl"
    write_three(path)
    with Journal(path, HEADER):
        pass
    assert read_journal(path).finished == ()
    path.write_text("my thesis")
    with pytest.raises(OutputFileError, match="is there and is no journal of topotune"):
        Journal(path, HEADER)
    assert path.read_text() == "my thesis"
    with pytest.raises(OutputFileError, match="cannot be written: No such file or directory"):
        Journal(tmp_path / "none" / "journal.jsonl", HEADER)


def test_a_journal_cut_off_in_its_first_line_is_replaced(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(write_three(path)[:5])
    with Journal(path, HEADER):
        pass
    assert read_journal(path).header["seed"] == 3


WRITER = """
import sys
from pathlib import Path
from topotune.tune.journal import Journal
journal = Journal(Path(sys.argv[1]), {"seed": 0})
while True:
    number = journal.begin({"kind": "search", "filler": "x" * 300})
    journal.end(number, {"times_s": [[0.5] * 20]})
    print(number, flush=True)
"""


def test_what_was_said_to_be_written_survives_kill_9(tmp_path):
    path = tmp_path / "journal.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env={**os.environ}
    ) as writer:
        said = [int(writer.stdout.readline()) for _ in range(50)]
        writer.send_signal(signal.SIGKILL)
        said += [int(line) for line in writer.stdout]
    contents = read_journal(path)
    assert [one.number for one in contents.finished][: len(said)] == said
    assert contents.problems == ()


def test_the_journal_needs_no_torch():
    code = "import sys, topotune.tune.journal; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

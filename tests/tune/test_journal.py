"""The journal outlives a kill at any byte, and keeps what it was told."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from topotune.errors import InputFileError, OutputFileError
from topotune.tune.journal import (
    ENDED,
    Journal,
    TableJournal,
    TableName,
    encode_line,
    kept_path,
    num_unfinished,
    parse_journal,
    read_journal,
)

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
        "schema_version": 2,
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
            encode_line({"schema": "topotune/journal", "schema_version": 3}),
            "j: is of schema_version 3; this topotune reads 1 to 2",
        ),
    ],
    ids=["empty", "text", "plan", "newer"],
)
def test_what_is_no_journal_of_this_version_is_refused(data, message):
    with pytest.raises(InputFileError) as error:
        parse_journal(data, Path("j"))
    assert error.value.message.startswith(message)


def test_a_journal_of_the_first_version_is_read(tmp_path):
    header = encode_line({"kind": "header", "schema": "topotune/journal", "schema_version": 1})
    lines = write_three(tmp_path / "journal.jsonl").split(b"\n")
    contents = parse_journal(header + b"\n".join(lines[1:]), Path("j"))
    assert contents.schema_version == 1
    assert [one.number for one in contents.finished] == [0, 1, 2]


def test_a_record_of_a_table_says_whose_it_is_and_shares_the_count_of_trials(tmp_path):
    path = tmp_path / "journal.jsonl"
    name = TableName(number=2, collective="allgather", group="shard")
    with Journal(path, HEADER) as journal:
        own = TableJournal(journal, name)
        assert journal.begin({"kind": "search"}) == 0
        assert own.begin({"kind": "search"}) == 1
        own.end(1, {"times_s": []})
        own.note("told", {"message_bytes": 1024})
    contents = read_journal(path)
    assert contents.unfinished == {0: {"kind": "search"}}
    assert contents.finished[0].trial == {"kind": "search", "table": name.to_json()}
    assert contents.notes[0]["table"] == {"number": 2, "collective": "allgather", "group": "shard"}


def test_a_new_run_replaces_the_journal_of_one_that_ended(tmp_path):
    path = tmp_path / "journal.jsonl"
    write_three(path)
    with Journal.resume(path)[0] as journal:
        journal.note(ENDED, {"plan": {}})
    assert num_unfinished(path) == 0
    with Journal(path, HEADER):
        assert not kept_path(path).exists()
    assert read_journal(path).finished == ()


def test_a_new_run_keeps_what_one_that_was_cut_short_had_finished(tmp_path):
    path = tmp_path / "plan.journal.jsonl"
    data = write_three(path)
    assert num_unfinished(path) == 3
    with Journal(path, HEADER):
        pass
    assert read_journal(path).finished == ()
    assert (tmp_path / "plan.journal.1.jsonl").read_bytes() == data
    kept_path(path).write_text("my thesis")
    write_three(path)
    with pytest.raises(OutputFileError, match=r"plan\.journal\.1\.jsonl: is there and is no journal"):
        Journal(path, HEADER)
    assert kept_path(path).read_text() == "my thesis"
    assert num_unfinished(path) == 3


def test_a_resumed_journal_goes_on_behind_its_last_whole_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    data = write_three(path)
    for torn in (b"", b'{"crc32":12', data.splitlines()[-1][:-1]):
        path.write_bytes(data + torn)
        journal, contents = Journal.resume(path)
        with journal:
            assert contents.torn_tail_bytes == len(torn)
            assert journal.begin({"kind": "search"}) == 4
            journal.end(4, {"times_s": []})
        read = read_journal(path)
        assert read.problems == ()
        assert [one.number for one in read.finished] == [0, 1, 2, 4]
        assert list(read.unfinished) == [3]


def test_one_process_at_a_time_writes_a_journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEADER) as journal:
        journal.end(journal.begin({}), {})
        for other in (lambda: Journal(path, HEADER), lambda: Journal.resume(path)):
            with pytest.raises(OutputFileError, match="another run is writing this journal"):
                other()
    assert len(Journal.resume(path)[1].finished) == 1


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(InputFileError, match="is not there: there is no run to resume"):
        Journal.resume(tmp_path / "journal.jsonl")
    (tmp_path / "journal.jsonl").write_text("my thesis\n")
    with pytest.raises(InputFileError, match="line 1: no journal"):
        Journal.resume(tmp_path / "journal.jsonl")


def test_what_is_noted_after_the_end_is_lost_without_harm(tmp_path):
    with Journal(tmp_path / "journal.jsonl", HEADER) as journal:
        pass
    journal.note("lost", {"rank": 1})
    assert read_journal(tmp_path / "journal.jsonl").notes == ()


def test_a_journal_replaces_a_journal_and_nothing_else(tmp_path):
    path = tmp_path / "journal.jsonl"
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
path = Path(sys.argv[1])
journal = Journal.resume(path)[0] if path.exists() else Journal(path, {"seed": 0})
assert "torch" not in sys.modules
while True:
    number = journal.begin({"kind": "search", "filler": "x" * 300})
    journal.end(number, {"times_s": [[0.5] * 20]})
    print(number, flush=True)
"""


def killed_after(path, seconds):
    """The trials that a writer said it had written, until it was killed so long after its first."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        said = [int(writer.stdout.readline())]
        # What it says is read only after the kill: the pipe holds some ten thousand lines.
        time.sleep(seconds)
        writer.send_signal(signal.SIGKILL)
        # A line that it had no time to end may be torn.
        return said + [int(line) for line in writer.stdout if line.endswith(b"\n")]


@pytest.mark.parametrize("series", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 5))])
def test_killed_at_50_random_moments_each_trial_that_was_acknowledged_is_found(tmp_path, series):
    path = tmp_path / "plan.journal.jsonl"
    moments = random.Random(series)
    said = []
    for kills in range(1, 11):
        said += killed_after(path, moments.uniform(0.0, 0.01))
        contents = read_journal(path)
        assert contents.problems == ()
        finished = [one.number for one in contents.finished]
        assert finished == sorted(set(finished))
        assert set(said) <= set(finished)
        # Every writer may have written one trial, and begun one, that it could not speak of any more.
        assert len(set(finished) - set(said)) + len(contents.unfinished) <= 2 * kills
    assert len(said) == len(set(said)) >= 10
    assert os.listdir(tmp_path) == [path.name]


def test_the_journal_needs_no_torch():
    code = "import sys, topotune.tune.journal; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

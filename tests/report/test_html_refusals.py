import json

import pytest
from result_files import comparison, optimum, plan, prediction, write_all, write_journal

from topotune.errors import InputFileError
from topotune.results import read_result


def refusal(path, document):
    path.write_text(json.dumps(document))
    with pytest.raises(InputFileError) as caught:
        read_result(path)
    return caught.value


def test_a_document_of_another_program_is_refused(tmp_path):
    error = refusal(tmp_path / "x.json", {"schema": "other/thing"})
    assert error.message.endswith("is a other/thing, which this topotune does not know")
    assert "journal" in error.hint


def test_a_lab_profile_is_refused_with_what_to_do(tmp_path):
    error = refusal(tmp_path / "lab.json", {"schema": "topotune/lab", "nodes": []})
    assert "of which there is no picture" in error.message
    assert "topotune simulate" in error.hint


@pytest.mark.parametrize(
    ("document", "place", "problem"),
    [
        (comparison("a") | {"schema_version": 2}, "", "made by a newer topotune"),
        (comparison("a") | {"rows": [{}]}, "rows[0]", "lacks the key 'message_bytes'"),
        (comparison("a") | {"num_ranks": -1}, "num_ranks", "is -1"),
        (optimum("a") | {"num_ranks": 1}, "num_ranks", "is 1"),
        (optimum("a") | {"allreduce": {}}, "allreduce", "lacks the key 'bottleneck'"),
        (prediction("a") | {"sizes": [3]}, "sizes[0]", "is the number 3, not an object"),
        (plan("a") | {"surprise": 1}, "", "has the unknown key 'surprise'"),
    ],
    ids=["newer", "no size", "negative", "one rank", "no bottleneck", "no object", "plan"],
)
def test_a_broken_document_is_refused_at_its_place(tmp_path, document, place, problem):
    error = refusal(tmp_path / "x.json", document)
    assert (error.place or "") == place
    assert problem in error.problem


def test_parameters_that_no_algorithm_has_are_refused(tmp_path):
    document = prediction("a")
    document["sizes"][0]["predictions"][0]["params"] = {"groups": 7}
    assert "no parameters" in refusal(tmp_path / "x.json", document).message


def test_a_key_that_is_not_known_is_passed_over_where_only_pictures_are_made(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(comparison("a") | {"later": {"ratio": 1.1}}))
    assert read_result(tmp_path / "x.json").value.num_ranks == 4


def test_a_journal_with_a_trial_of_another_form_is_refused(tmp_path):
    from topotune.tune.journal import Journal

    with Journal(tmp_path / "j.jsonl", {}) as journal:
        journal.begin({"kind": "search", "message_bytes": 4, "arms": "many", "at_s": 0.0})
    with pytest.raises(InputFileError, match=r"trial 0\.arms: is the text 'many', not a list"):
        read_result(tmp_path / "j.jsonl")


def test_a_journal_cut_off_anywhere_is_read_or_refused(tmp_path):
    path = tmp_path / "j.jsonl"
    write_journal(path, "a")
    data = path.read_bytes()
    for end in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(data[:end])
        try:
            read_result(path)
        except InputFileError:
            continue


def test_a_pipe_is_refused_at_once(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputFileError, match="pipe or device"):
        read_result(tmp_path / "pipe")


def test_every_kind_survives_its_own_truncation(tmp_path):
    for kind, path in write_all(tmp_path).items():
        if kind != "journal":
            path.write_bytes(path.read_bytes()[:-20])
            with pytest.raises(InputFileError):
                read_result(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"backward_s": -1}, r"step\.default_timeline\.backward_s: is -1"),
        ({"buckets": []}, r"step\.default_timeline\.buckets"),
        (
            {"buckets": [{"num_bytes": 4, "complete_s": 0, "start_s": 2, "end_s": 1}]},
            r"before it starts at 2 s",
        ),
        ({"buckets": [{"num_bytes": 4, "complete_s": 0, "start_s": 0}]}, "lacks the key 'end_s'"),
    ],
)
def test_a_timeline_that_cannot_be_is_refused(tmp_path, change, says):
    document = comparison("a")
    document["step"]["default_timeline"] |= change
    (tmp_path / "x.json").write_text(json.dumps(document))
    with pytest.raises(InputFileError, match=says):
        read_result(tmp_path / "x.json")

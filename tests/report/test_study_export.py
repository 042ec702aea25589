"""A journal's search opens in Optuna as it was, one study a size."""

import json
import math
import sys

import optuna
import pytest
from optuna.trial import TrialState

from topotune import frames
from topotune.__main__ import main
from topotune.errors import InputFileError, OutputFileError
from topotune.results.study import study_name, write_studies
from topotune.results.tuning import tuning_run_of
from topotune.tune.journal import Journal, TableJournal, TableName, read_journal

TOLD = [
    (1024, "ring", {"channels": 2}, "COMPLETE", -math.log(2.0), 10, None),
    (1024, "ring", {"channels": 1}, "PRUNED", 0.7, 2, None),
    (1024, "double_binary_tree", {"pieces": 2}, "FAIL", None, 0, "rank 1 got 3, not 6"),
    (5796, "recursive_doubling", {}, "COMPLETE", -0.1, 10, None),
]


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "plan.journal.jsonl"
    with Journal(path, {"topotune_version": "0.1.0", "options": {"budget_s": 60.0}}) as writing:
        for size, algorithm, params, state, log_ratio, num_rounds, problem in TOLD:
            writing.note(
                "told",
                {
                    "message_bytes": size,
                    "algorithm": algorithm,
                    "params": params,
                    "state": state,
                    "log_ratio": log_ratio,
                    "num_rounds": num_rounds,
                    "problem": problem,
                },
            )
    return path


def show(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["topotune", "show", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def test_optuna_reads_studies_trials_values_states_and_attributes(journal, tmp_path, capsys, monkeypatch):
    database = tmp_path / "study.db"
    assert show(monkeypatch, journal, "--export", database) == 0
    shown = capsys.readouterr()
    assert "2 studies written to" in shown.err
    assert "ring channels=2" in shown.out
    url = f"sqlite:///{database}"
    assert optuna.study.get_all_study_names(url) == ["allreduce of 1 KiB", "allreduce of 5796 bytes"]
    study = optuna.load_study(study_name="allreduce of 1 KiB", storage=url)
    assert study.user_attrs["message_bytes"] == 1024
    assert study.best_params == {"algorithm": "ring", "ring": '{"channels":2}'}
    assert study.best_value == pytest.approx(-math.log(2.0))
    complete, pruned, failed = study.trials
    assert [one.state for one in study.trials] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]
    assert complete.user_attrs["default_over_candidate"] == pytest.approx(2.0)
    assert complete.user_attrs["num_rounds"] == 10
    assert pruned.intermediate_values == {2: 0.7}
    assert failed.user_attrs["problem"] == "rank 1 got 3, not 6"
    assert failed.params["double_binary_tree"] == '{"pieces":2}'


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A journal with the world's allreduce and three tables beside it, two of which share a name."""
    path = tmp_path_factory.mktemp("run") / "plan.journal.jsonl"
    told = {"message_bytes": 1024, "state": "COMPLETE", "num_rounds": 6, "problem": None}
    trial = {"kind": "search", "message_bytes": 1024, "num_rounds": 1, "condition": "idle", "at_s": 1.0}
    with Journal(path, {"topotune_version": "0.1.0", "options": {"budget_s": 60.0}}) as writing:
        writing.note("told", {**told, "algorithm": "ring", "params": {}, "log_ratio": -0.5})
        for number, (collective, group) in enumerate(
            [("allgather", "shard"), ("allgather", "shard"), ("reduce_scatter", "shard")], start=1
        ):
            own = TableJournal(writing, TableName(number=number, collective=collective, group=group))
            arms = [{"algorithm": name, "params": {}} for name in ("default", "halving_doubling")]
            own.end(own.begin({**trial, "arms": arms}), {"times_s": [[0.004, 0.002]], "at_s": 2.0})
            own.note("told", {**told, **arms[1], "log_ratio": -0.1 * number})
            own.note("finalists", {"finalists": [{"message_bytes": 1024, **arms[1]}]})
        own.begin({**trial, "kind": "confirm", "arms": arms})
    return path


def test_each_table_has_studies_of_its_own(tables, tmp_path, capsys, monkeypatch):
    database = tmp_path / "study.db"
    assert show(monkeypatch, tables, "--export", database) == 0
    assert "4 studies written to" in capsys.readouterr().err
    url = f"sqlite:///{database}"
    assert optuna.study.get_all_study_names(url) == [
        "allreduce of 1 KiB",
        "allgather of 1 KiB, shard (table 1)",
        "allgather of 1 KiB, shard (table 2)",
        "reduce_scatter of 1 KiB, shard",
    ]
    study = optuna.load_study(study_name="reduce_scatter of 1 KiB, shard", storage=url)
    assert study.best_value == pytest.approx(-0.3)
    assert (study.user_attrs["collective"], study.user_attrs["group"]) == ("reduce_scatter", "shard")


def test_tables_are_shown_with_their_trials_and_their_best(tables, capsys, monkeypatch):
    assert show(monkeypatch, tables) == 0
    world, first, _, last = capsys.readouterr().out.split("\n\n")
    assert "trials: none" in world
    assert "ring" in world
    assert first.splitlines()[:2] == [
        "allgather, shard: its rows were not chosen yet",
        "trials: 1 search",
    ]
    assert "halving_doubling" in last
    assert show(monkeypatch, tables, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["num_trials"] == {}
    assert document["tables"][2] == {
        "collective": "reduce_scatter",
        "group": "shard",
        "num_trials": {"confirm": 1, "search": 1},
        "num_unfinished": 1,
        "best": [
            {
                "message_bytes": 1024,
                "algorithm": "halving_doubling",
                "ratio": pytest.approx(math.exp(0.3)),
                "num_rounds": 6,
            }
        ],
        "chosen": False,
    }


def test_frames_say_of_each_trial_whose_it_is(tables):
    run = tuning_run_of(read_journal(tables), str(tables))
    trials = frames.trials(run)
    assert list(trials["number"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert set(trials["collective"]) == {"allgather", "reduce_scatter"}
    verdicts = frames.verdicts(run)
    assert list(verdicts["group"]) == ["world", "shard", "shard", "shard"]
    assert list(verdicts["finalist"]) == [False, True, True, True]
    assert set(frames.candidates(run)["collective"]) == {"allgather", "reduce_scatter"}
    assert len(frames.decisions(run)) == 0, "the world's allreduce had no trial"


def test_a_file_that_is_there_is_not_overwritten_unasked(journal, tmp_path):
    run = tuning_run_of(read_journal(journal), str(journal))
    (tmp_path / "study.db").write_text("mine")
    with pytest.raises(OutputFileError, match="exists already"):
        write_studies(run, "journal", tmp_path / "study.db")
    assert (tmp_path / "study.db").read_text() == "mine"


@pytest.mark.parametrize(("state", "log_ratio"), [("RUNNING", 0.1), ("COMPLETE", None)])
def test_a_verdict_that_optuna_cannot_hold_is_refused(tmp_path, state, log_ratio):
    note = {"message_bytes": 8, "algorithm": "ring", "params": {}, "state": state, "log_ratio": log_ratio}
    with Journal(tmp_path / "journal", {}) as writing:
        writing.note("told", note)
    run = tuning_run_of(read_journal(tmp_path / "journal"), "journal")
    with pytest.raises(InputFileError, match="a verdict is"):
        write_studies(run, "journal", tmp_path / "study.db")


def test_a_run_without_a_search_has_nothing_to_export(tmp_path):
    with Journal(tmp_path / "journal", {}):
        pass
    run = tuning_run_of(read_journal(tmp_path / "journal"), "journal")
    with pytest.raises(InputFileError, match="tells of no verdict of a search"):
        write_studies(run, "journal", tmp_path / "study.db")
    assert not (tmp_path / "study.db").exists()


def test_only_a_journal_is_exported(tmp_path, capsys, monkeypatch):
    plan = tmp_path / "gradients.json"
    plan.write_text(json.dumps({"schema": "topotune/gradients", "schema_version": 1}))
    assert show(monkeypatch, plan, "--export", tmp_path / "study.db") == 2
    assert "what can be exported so is a tuning run's journal" in capsys.readouterr().err


def test_studies_are_named_by_their_size():
    assert study_name(1 << 20) == "allreduce of 1 MiB"
    assert study_name((1 << 20) + 4) == f"allreduce of {(1 << 20) + 4} bytes"

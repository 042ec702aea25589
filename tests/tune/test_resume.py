"""A run that dies goes on where it stopped: nothing is measured twice, and what kills it is left out."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from fake_bench import FAST, RECURSIVE, SLOW, TREE, FakeBench, factors

from topotune.errors import InputFileError
from topotune.tune.decide import Limit
from topotune.tune.journal import Journal, TableJournal, TableName, encode_line, parse_journal, read_journal
from topotune.tune.options import TuneOptions
from topotune.tune.pipeline import choose_rows
from topotune.tune.resume import Past, check_same_run, check_same_tables, check_version, read_past
from topotune.tune.sampling import BUSY_PATIENCE, Sampling
from topotune.tune.trial import DEFAULT, Candidate

SIZES = (1024, 16384, 262144)
CANDIDATES = (FAST, SLOW, TREE, RECURSIVE)
TIMES = factors({FAST: 3.0, SLOW: 0.5, TREE: 1.4, RECURSIVE: 0.9})


class Killed(BaseException):
    """The rank that chooses is killed."""


class MortalBench(FakeBench):
    """Dies in command number ``dies_at``, or whenever a fatal candidate runs alone or is the last arm."""

    def __init__(self, *args, dies_at=None, fatal=lambda candidates, message_bytes, kind: False, **kwargs):
        super().__init__(*args, **kwargs)
        self.dies_at = dies_at
        self.fatal = fatal
        self.commands = 0

    def _live(self, candidates, message_bytes, kind):
        self.commands += 1
        if self.commands == self.dies_at or self.fatal(candidates, message_bytes, kind):
            raise Killed

    def check(self, candidate, message_bytes, *, limit_s):
        self._live((candidate,), message_bytes, "check")
        return super().check(candidate, message_bytes, limit_s=limit_s)

    def run(self, block):
        self._live(block.arms, block.message_bytes, "run")
        return super().run(block)


def launch(path, bench, *, budget_s=30.0, seed=0, table=None):
    """One launch of a run, or of one table of it, new or resumed; its choice, or None where it was killed."""
    if path.exists():
        journal, contents = Journal.resume(path)
        past = read_past(contents, path)
    else:
        journal, past = Journal(path, {"seed": seed}), Past()
    with journal:
        own = journal
        if table is not None:
            past, own = past.tables.get(table.number, Past()), TableJournal(journal, table)
        bench.clock_s = past.elapsed_s
        sampling = Sampling(bench=bench, rng=np.random.default_rng(seed), journal=own, past=past)
        try:
            return choose_rows(
                sampling,
                TuneOptions(budget_s=budget_s, sizes=SIZES, seed=seed),
                CANDIDATES,
                predicted_s=lambda candidate, size: len(candidate.algorithm) * 1e-3,
                limit=Limit(no_bound_reason="made up"),
            )
        except Killed:
            return None


def trials(path, *kinds):
    return [one for one in read_journal(path).finished if one.trial["kind"] in kinds]


def algorithms(choice):
    return {row.algorithm for row in choice.rows}


@pytest.mark.parametrize(
    "dies_at",
    [3, 25, 60, 100, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 7, 12, 45, 80, 104))],
)
def test_killed_anywhere_a_run_ends_as_if_it_had_not_been(tmp_path, dies_at):
    path = tmp_path / "plan.journal.jsonl"
    assert launch(path, MortalBench(TIMES, dies_at=dies_at)) is None
    before = read_journal(path)
    bench = MortalBench(TIMES, seed=1)
    choice = launch(path, bench)
    assert algorithms(choice) == {"default", FAST.algorithm}
    assert choice.certificate.num_comparisons > 0
    after = read_journal(path)
    assert after.problems == ()
    assert after.finished[: len(before.finished)] == before.finished
    # No check, no pilot and no candidate of the search is measured a second time.
    checks = [(one.trial["message_bytes"], str(one.trial["arms"])) for one in trials(path, "check")]
    assert len(checks) == len(set(checks))
    pilot_rounds = Counter()
    for one in trials(path, "pilot"):
        pilot_rounds[one.trial["message_bytes"]] += len(one.outcome["times_s"])
    assert set(pilot_rounds.values()) == {9}
    told = Counter(
        (note["message_bytes"], str(note["params"]), note["algorithm"])
        for note in after.notes
        if note["kind"] == "told"
    )
    assert set(told.values()) == {1}


def test_the_time_that_earlier_launches_took_is_taken_off_the_budget(tmp_path):
    path = tmp_path / "plan.journal.jsonl"
    launch(path, MortalBench(TIMES, dies_at=60))
    used_s = read_past(read_journal(path), path).elapsed_s
    assert used_s > 1
    bench = MortalBench(TIMES)
    launch(path, bench, budget_s=20.0)
    assert bench.clock_s <= 20.0


def dies_in_confirmation(path):
    bench = MortalBench(TIMES)
    bench.fatal = lambda arms, size, kind: kind == "run" and len(confirmed(path)) > 3
    assert launch(path, bench) is None
    return bench


def confirmed(path):
    return trials(path, "confirm")


def test_what_confirms_a_row_is_of_one_launch(tmp_path):
    path = tmp_path / "plan.journal.jsonl"
    dies_in_confirmation(path)
    before = len(confirmed(path))
    assert before > 3
    choice = launch(path, MortalBench(TIMES))
    fresh = confirmed(path)[before:]
    rounds = Counter()
    for one in fresh:
        rounds[one.trial["message_bytes"]] += len(one.outcome["times_s"])
    for row in choice.rows:
        if row.algorithm != DEFAULT.algorithm:
            assert row.evidence.num_samples == rounds[row.evidence.measured_bytes]


def test_a_candidate_that_kills_the_run_twice_is_left_out_and_named(tmp_path):
    path = tmp_path / "plan.journal.jsonl"

    def fatal(arms, message_bytes, kind):
        return FAST in arms

    assert launch(path, MortalBench(TIMES, fatal=fatal)) is None
    assert launch(path, MortalBench(TIMES, fatal=fatal)) is None
    choice = launch(path, MortalBench(TIMES, fatal=fatal))
    assert algorithms(choice) == {"default", TREE.algorithm}
    assert (
        "ring channels=2 was left out: it was running 2 times when it had to be cut off or the run died"
        in choice.warnings
    )


def test_of_several_that_ran_when_the_run_died_the_guilty_one_alone_is_left_out(tmp_path):
    path = tmp_path / "plan.journal.jsonl"

    def fatal(arms, message_bytes, kind):
        return kind == "run" and TREE in arms

    assert launch(path, MortalBench(TIMES, fatal=fatal)) is None
    assert read_past(read_journal(path), path).deaths[FAST] == 1
    assert launch(path, MortalBench(TIMES, fatal=fatal)) is None
    choice = launch(path, MortalBench(TIMES, fatal=fatal))
    assert algorithms(choice) == {"default", FAST.algorithm}
    assert [warning for warning in choice.warnings if "left out" in warning] == [
        "double_binary_tree pieces=2 was left out: "
        "it was running 2 times when it had to be cut off or the run died"
    ]


SHARD = TableName(number=2, collective="allgather", group="shard")


def of_table(records, table):
    name = None if table is None else table.to_json()
    return [one for one in records if one.get("table") == name]


def test_a_table_of_a_run_goes_on_from_its_own_trials_alone(tmp_path):
    path = tmp_path / "plan.journal.jsonl"
    launch(path, MortalBench(TIMES))
    world = len(read_journal(path).finished)
    assert launch(path, MortalBench(TIMES, dies_at=60), table=SHARD) is None
    choice = launch(path, MortalBench(TIMES, seed=1), table=SHARD)
    assert algorithms(choice) == {"default", FAST.algorithm}
    contents = read_journal(path)
    ours = of_table([one.trial for one in contents.finished], SHARD)
    assert len(of_table([one.trial for one in contents.finished], None)) == world
    checks = [(one["message_bytes"], str(one["arms"])) for one in ours if one["kind"] == "check"]
    assert checks
    assert len(checks) == len(set(checks))
    pilot_rounds = Counter()
    for one in contents.finished:
        if one.trial["kind"] == "pilot" and one.trial.get("table") is not None:
            pilot_rounds[one.trial["message_bytes"]] += len(one.outcome["times_s"])
    assert set(pilot_rounds.values()) == {9}
    past = read_past(contents, path)
    assert past.tables[2].checks.keys() == {
        (one["message_bytes"], Candidate.of(**one["arms"][0])) for one in ours if one["kind"] == "check"
    }
    told = of_table([note for note in contents.notes if note["kind"] == "told"], SHARD)
    assert told
    assert len({(one["message_bytes"], one["algorithm"], str(one["params"])) for one in told}) == len(told)


def test_a_candidate_that_kills_a_table_twice_is_left_out_of_that_table_alone(tmp_path):
    path = tmp_path / "plan.journal.jsonl"

    def fatal(arms, message_bytes, kind):
        return FAST in arms

    for _ in range(2):
        assert launch(path, MortalBench(TIMES, fatal=fatal), table=SHARD) is None
    choice = launch(path, MortalBench(TIMES, fatal=fatal), table=SHARD)
    assert algorithms(choice) == {"default", TREE.algorithm}
    assert (
        "ring channels=2 was left out: it was running 2 times when it had to be cut off or the run died"
        in choice.warnings
    )
    past = read_past(read_journal(path), path)
    assert past.tables[2].deaths[FAST] == 2
    assert past.deaths[FAST] == 0
    assert FAST.algorithm in algorithms(launch(path, MortalBench(TIMES)))


def test_a_journal_of_the_first_version_is_read_and_not_gone_on_with(tmp_path):
    path = tmp_path / "plan.journal.jsonl"
    launch(path, MortalBench(TIMES, dies_at=25))
    first, rest = path.read_bytes().split(b"\n", 1)
    record = json.loads(first)["record"]
    contents = parse_journal(encode_line({**record, "schema_version": 1}) + rest, path)
    assert read_past(contents, path).num_finished > 0
    with pytest.raises(InputFileError, match="is of schema_version 1; what can be gone on with is 2"):
        check_version(contents, path)
    check_version(read_journal(path), path)


def test_a_run_whose_ranks_lie_otherwise_has_other_tables(tmp_path):
    names = [{"number": 1, "collective": "allgather", "group": "dp", "ranks": [[0, 1], [2, 3]]}]
    past = Past(table_names=names)
    check_same_tables(past, ({**names[0], "ranks": ((0, 1), (2, 3))},), "j")
    check_same_tables(Past(), names, "j")
    with pytest.raises(InputFileError, match=r"j: is of another run: a table is \{.* there and null here"):
        check_same_tables(past, (), "j")


def test_a_candidate_that_hangs_everywhere_costs_two_limits_and_is_named():
    bench = FakeBench(TIMES, hangs=lambda candidate, size, condition: candidate == FAST)
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    choice = choose_rows(
        sampling,
        TuneOptions(budget_s=30.0, sizes=SIZES),
        CANDIDATES,
        predicted_s=lambda candidate, size: 1e-3,
        limit=Limit(),
    )
    assert algorithms(choice) == {"default", TREE.algorithm}
    assert sampling.deaths[FAST] == 2
    (warning,) = choice.warnings
    assert re.fullmatch(
        "ring channels=2 was left out: it was running 2 times when it had to be cut off or the run died "
        r"\(at (16|256) KiB: a call had not ended after 2.0 s\)",
        warning,
    )
    assert bench.clock_s <= 30.0


@pytest.mark.parametrize(("condition", "hangs"), [("idle", 16384), ("backward", 16384), ("busy", 1024)])
def test_a_candidate_that_hangs_at_one_size_is_given_up_there_alone(condition, hangs):
    bench = FakeBench(
        TIMES,
        hangs=lambda candidate, size, now: candidate == FAST and size == hangs and now == condition,
    )
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    choice = choose_rows(
        sampling,
        TuneOptions(budget_s=30.0, sizes=SIZES),
        CANDIDATES,
        predicted_s=lambda candidate, size: 1e-3,
        limit=Limit(),
    )
    limit_s = BUSY_PATIENCE * 2.0 if condition == "busy" else 2.0
    assert [warning for warning in choice.warnings if "had not ended" in warning] == [
        f"ring channels=2 was given up at {hangs >> 10} KiB: a call had not ended after {limit_s} s"
    ]
    rows_of_it = [row for row in choice.rows if row.algorithm == FAST.algorithm]
    assert rows_of_it
    assert not any(row.min_bytes <= hangs < row.max_bytes for row in rows_of_it)


def test_a_candidate_that_is_a_hundred_times_slower_costs_the_search_two_calls_a_size():
    slow = Candidate.of("hierarchical", {})
    bench = FakeBench(lambda candidate, size: TIMES(FAST, size) * (300 if candidate == slow else 1))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    choose_rows(
        sampling,
        TuneOptions(budget_s=30.0, sizes=SIZES),
        (slow, FAST),
        predicted_s=lambda candidate, size: 1e-3,
        limit=Limit(),
    )
    checked = [size for candidate, size in bench.checks if candidate == slow]
    assert checked
    assert len(checked) == len(set(checked))
    assert all(slow not in block.arms for block in bench.blocks)


HEADER = {
    "topotune_version": "0.1.0",
    "options": {"seed": 3, "sizes": [1024], "budget_s": 60.0, "journal_path": "x", "resume": False},
    "fingerprint": {"hard": {"world_size": 4}},
}


def test_the_same_run_may_have_another_budget(tmp_path):
    now = {**HEADER, "options": {**HEADER["options"], "sizes": (1024,), "budget_s": 9.0, "resume": True}}
    check_same_run(HEADER, now, tmp_path)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"options": {**HEADER["options"], "seed": 4}}, "seed is 3 there and 4 here"),
        (
            {"options": {**HEADER["options"], "sizes": [1024, 2048]}},
            "sizes is [1024] there and [1024, 2048] here",
        ),
        (
            {"fingerprint": {"hard": {"world_size": 8}}},
            "fingerprint.hard.world_size is 4 there and 8 here",
        ),
        ({"topotune_version": "9"}, 'topotune_version is "0.1.0" there and "9" here'),
    ],
)
def test_a_journal_of_another_run_is_refused_with_both_values(tmp_path, now, words):
    path = tmp_path / "j"
    with pytest.raises(InputFileError) as error:
        check_same_run(HEADER, {**HEADER, **now}, path)
    assert error.value.message == f"{path}: is of another run: {words}"
    assert error.value.exit_code == 2


TRIAL = {
    "kind": "search",
    "message_bytes": 1024,
    "arms": [DEFAULT.to_json(), FAST.to_json()],
    "condition": "idle",
    "at_s": 1.0,
}
OUTCOME = {"times_s": [[1e-3, 2e-3]], "at_s": 2.0}


@pytest.mark.parametrize(
    ("trial", "outcome", "words"),
    [
        ({**TRIAL, "message_bytes": "many"}, OUTCOME, "trial 0: message_bytes: "),
        ({**TRIAL, "arms": [{"algorithm": "ring"}]}, OUTCOME, "trial 0: arms.0.params: "),
        ({**TRIAL, "table": {"number": 0}}, OUTCOME, "trial 0: table.number: "),
        (TRIAL, {"at_s": 2.0}, "trial 0: times_s: "),
        (TRIAL, {**OUTCOME, "times_s": [[1e-3]]}, "trial 0: times_s: a round has other than 2 times"),
        (TRIAL, {**OUTCOME, "broken": {"arm": 7, "why": ""}}, "trial 0: broken.arm: 7 is none of 2"),
    ],
)
def test_a_record_of_another_form_is_refused_by_its_place(tmp_path, trial, outcome, words):
    path = tmp_path / "j"
    with Journal(path, {}) as journal:
        journal.end(journal.begin(trial), outcome)
    with pytest.raises(InputFileError, match=r"j: " + words):
        read_past(read_journal(path), path)


def test_what_was_told_in_another_form_is_refused(tmp_path):
    path = tmp_path / "j"
    with Journal(path, {}) as journal:
        journal.note("told", {"message_bytes": 1024, "algorithm": "ring"})
    with pytest.raises(InputFileError, match=r"j: note 1: params: "):
        read_past(read_journal(path), path)
    path.write_bytes(path.read_bytes() + encode_line({"number": 3}))
    assert read_journal(path).problems == ("line 3: is of no kind",)

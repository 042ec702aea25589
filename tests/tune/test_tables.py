"""Tables for groups and for other collectives, tuned on real ranks, recorded, and resumed."""

import os
import signal
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from fake_bench import FAST, FakeBench, factors
from gloo_world import RankError, run_world
from plan_example import example

from topotune.errors import UsageError
from topotune.links import LinkCost, LinkModel, SharedCapacity
from topotune.links.model import PairsAcross
from topotune.plan import GroupShape, Row, plan_from_document
from topotune.plan.document import part_to_json, plan_to_document
from topotune.results.tuning import tuning_run_of
from topotune.tune.across_tables import violations_across
from topotune.tune.arrangement import Arrangement
from topotune.tune.consistency import Timed
from topotune.tune.journal import read_journal
from topotune.tune.mesh import read_groups
from topotune.tune.options import TuneOptions, collectives_of
from topotune.tune.pipeline import Choice, choose_rows
from topotune.tune.sampling import Sampling
from topotune.tune.table_rows import limit_of, timed_tables, with_tables
from topotune.tune.tables import Table, TableStation, world_set
from topotune.tune.trial import DEFAULT, DISPATCHED, Candidate

pytestmark = pytest.mark.gloo


def tune_rank(rank, num_ranks, store, payload):
    from topotune.tune.session import tune_worker

    reports = []
    document = tune_worker(payload, reports.append)
    return document, [report.done for report in reports]


def pair(stride):
    return GroupShape(num_ranks=2, num_nodes=1, ranks_per_node=2, stride=stride)


@pytest.mark.slow
def test_a_mesh_gets_a_table_for_each_shape_and_each_collective_and_the_journal_has_them(tmp_path):
    path = tmp_path / "plan.journal.jsonl"
    payload = {"budget_s": 9.0, "sizes": [4096, 65536], "groups": "replicate=2,shard=2", "seed": 3}
    payload["journal_path"] = str(path)
    (document, done), *others = run_world(4, tune_rank, payload)
    assert others == [(None, [])] * 3
    plan = plan_from_document(document, "tuned")
    assert [group.shape.num_ranks for group in plan.groups] == [4, 2, 2]
    assert {group.shape for group in plan.groups[1:]} == {pair(1), pair(2)}
    for group in plan.groups:
        assert None not in (group.allreduce, group.reduce_scatter, group.allgather)
    assert "9 tables" in plan.certificate.method
    assert done == sorted(done)
    journal = read_journal(path)
    assert journal.unfinished == {}
    (listed,) = [note["tables"] for note in journal.notes if note["kind"] == "tables"]
    assert [one["ranks"] for one in listed[-1:]] == [[[0, 1], [2, 3]]]
    tables = tuning_run_of(journal, str(path)).tables
    titles = [
        f"{collective}, {group}"
        for group in ("world", "replicate", "shard")
        for collective in ("allreduce", "reduce_scatter", "allgather")
    ]
    assert [one.title for one in tables] == titles[1:]
    assert all(one.chosen and one.trials for one in tables)


@pytest.mark.slow
def test_collectives_of_the_world_are_tuned_without_groups():
    payload = {"budget_s": 6.0, "sizes": [65536], "collectives": ["allgather"], "seed": 3}
    (document, _), _ = run_world(2, tune_rank, payload)
    (world,) = plan_from_document(document, "tuned").groups
    assert world.allgather is not None
    assert world.allreduce is not None
    assert world.reduce_scatter is None


def tune_mortal_rank(rank, num_ranks, store, payload, dies):
    """Rank 0, which chooses and writes the journal, is killed in trial number ``dies`` of the all-gathers."""
    from topotune.errors import TopotuneError
    from topotune.tune.journal import TableJournal
    from topotune.tune.session import tune_worker
    from topotune.tune.tables import TableStation

    begin, run, begun, blocks = TableJournal.begin, TableStation._run, [], []

    def begin_counted(self, trial):
        begun.append(self._table["table"]["collective"])
        return begin(self, trial)

    def run_mortal(self, *arguments):
        blocks.append(self._collective)
        if begun.count("allgather") == dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(self, *arguments)

    TableJournal.begin, TableStation._run = begin_counted, run_mortal
    try:
        return tune_worker(payload), blocks
    except TopotuneError as error:
        return type(error).__name__, blocks


def of_table(contents, number):
    """Finished trials of a table, by what they measured."""
    return [one for one in contents.finished if one.trial.get("table", {}).get("number") == number]


@pytest.mark.slow
def test_killed_within_a_table_a_run_goes_on_there_and_measures_no_other_table_again(tmp_path):
    path = tmp_path / "plan.journal.jsonl"
    payload = {
        "budget_s": 6.0,
        "sizes": [4096, 65536],
        "collectives": ["reduce_scatter", "allgather"],
        "seed": 3,
        "journal_path": str(path),
    }
    killed = run_world(2, tune_mortal_rank, payload, 2, deaths=[0])
    assert killed[0] is None
    assert killed[1][0] == "RankFailedError"
    before = read_journal(path)
    assert before.problems == ()
    (unfinished,) = before.unfinished.values()
    assert unfinished["table"] == {"number": 2, "collective": "allgather", "group": "world"}
    assert of_table(before, 1)
    (chosen,) = [note for note in before.notes if note["kind"] == "chosen"]
    assert chosen["table"]["collective"] == "reduce_scatter"

    (document, blocks), _ = run_world(2, tune_mortal_rank, {**payload, "resume": True}, None)
    assert set(blocks) == {"allgather"}, "the reduce-scatters had their rows"
    after = read_journal(path)
    assert after.ended
    assert after.finished[: len(before.finished)] == before.finished
    assert of_table(after, 1) == of_table(before, 1)
    world = plan_from_document(document, "tuned").groups[0]
    assert [row["min_bytes"] for row in chosen["group"]["reduce_scatter"]] == [
        row.min_bytes for row in world.reduce_scatter
    ]
    assert part_to_json(world)["reduce_scatter"] == chosen["group"]["reduce_scatter"]
    assert any(
        warning.endswith("in this launch alone, but for tables that were done before: reduce_scatter, world")
        for warning in document["warnings"]
    )
    # Of the all-gathers nothing is taken twice that the choice goes on from.
    pilot_rounds = Counter()
    for one in of_table(after, 2):
        if one.trial["kind"] == "pilot":
            whole = [row for row in one.outcome["times_s"] if None not in row]
            pilot_rounds[one.trial["message_bytes"]] += len(whole)
    assert of_table(before, 2)
    assert max(pilot_rounds.values()) <= 9
    run = tuning_run_of(after, str(path))
    assert [(one.title, one.chosen) for one in run.tables] == [
        ("reduce_scatter, world", True),
        ("allgather, world", True),
    ]
    assert all(trial.end_s is not None for trial in run.tables[0].trials)


def time_beside_busy_python(rank, num_ranks, store):
    """A block of reduce-scatters while main threads run Python; whether each sample was taken."""
    import time

    from topotune.tune.tables import TableBench, make_tables
    from topotune.tune.timing import Station, TorchBench
    from topotune.tune.trial import DEFAULT, Block, Candidate
    from topotune.tune.world import joined_world

    with joined_world(None) as world:
        station = Station(world.planned, world.raw, world.private, world.nodes.node_of_rank)
        (table,) = make_tables(world, station, None, ("reduce_scatter",))
        if rank != 0:
            station.follow()
            return None
        main = TorchBench(station, started_s=time.perf_counter())
        block = Block(
            message_bytes=4096,
            arms=(DEFAULT, Candidate.of("ring", {})),
            orders=((0, 1), (1, 0)),
            expected_s=(0.05, 0.05),
            warmups=(1, 1),
            limits_s=(None, 20.0),
            condition="busy",
            scheme="barrier",
        )
        times = TableBench(main, table).run(block)
        main.end()
        return times.broken, bool(np.isfinite(times.times_s).all())


def test_a_reduce_scatter_beside_busy_python_comes_to_an_end():
    """Gloo's never says so before it is waited for."""
    assert run_world(2, time_beside_busy_python) == [(None, True), None]


def two_nodes():
    """Four ranks on two nodes, whose links carry 25 MB/s each way."""
    shared = [
        SharedCapacity(
            name=f"link of node {name}, {way}",
            capacity_bytes_per_s=25e6,
            pairs=PairsAcross(frozenset(members), 4, leaving=way == "sending"),
            is_limit=True,
        )
        for name, members in (("a", (0, 1)), ("b", (2, 3)))
        for way in ("sending", "receiving")
    ]
    return LinkModel(
        num_ranks=4,
        classes=(LinkCost(from_bytes=(0,), alpha_s=(0.0,), beta_s_per_byte=(1e-9,)),),
        pair_class=tuple(tuple(-1 if a == b else 0 for b in range(4)) for a in range(4)),
        class_names=("between nodes",),
        node_of_rank=(0, 0, 1, 1),
        shared=tuple(shared),
    )


@pytest.mark.parametrize(
    ("groups", "collective", "optimum_s"),
    [
        # Two pairs across the nodes: each node sends both their messages, or the halves of both.
        ("0,2;1,3", "allreduce", 2 * 65536 / 25e6),
        ("0,2;1,3", "allgather", 2 * 32768 / 25e6),
        # All four ranks: for each of the two parts that a node wants, one sum enters it.
        ("0-3", "reduce_scatter", 32768 / 25e6),
    ],
)
def test_rows_are_held_against_the_bound_of_all_groups_at_once(groups, collective, optimum_s):
    (one,) = read_groups(groups, 4)
    limit = limit_of(collective, one, two_nodes())
    choice = choose_rows(
        Sampling(bench=FakeBench(factors({FAST: 1.5})), rng=np.random.default_rng(0)),
        TuneOptions(budget_s=20.0, sizes=(65536,)),
        [FAST],
        predicted_s=lambda candidate, size: 1e-3,
        limit=limit,
    )
    held = [row for row in choice.rows if row.evidence is not None]
    assert held
    for row in held:
        assert row.percent_of_optimum == pytest.approx(
            100 * limit.time_s(row.evidence.measured_bytes) / row.evidence.median_s
        )
        assert row.bottleneck.text.startswith("link of ")
        assert row.no_bound_reason is None
    assert limit.time_s(65536) == pytest.approx(optimum_s)
    if collective != "allreduce":
        whole = len(one.groups[0]) * 4
        assert limit.time_s(65536 + whole - 4) == limit.time_s(65536), "only whole parts are sent"


def test_groups_within_machines_have_no_bound_and_say_so():
    (one,) = read_groups("0-1;2-3", 4)
    limit = limit_of("allgather", one, two_nodes())
    reason = limit.no_bound_reason
    assert reason == "all ranks of each group share one machine's memory, where no link bounds them"
    assert limit.latency_s is None


def test_groups_across_machines_wait_for_a_message_between_them():
    cost = LinkCost(from_bytes=(0,), alpha_s=(3e-4,), beta_s_per_byte=(1e-9,), alpha_ci_s=(2e-4, 4e-4))
    model = replace(two_nodes(), classes=(cost,))
    (across,) = read_groups("0,2;1,3", 4)
    assert limit_of("allreduce", across, model).latency_s == 2e-4
    unsure = replace(model, classes=(replace(cost, alpha_ci_s=None),))
    assert limit_of("allreduce", across, unsure).latency_s == 3e-4


def test_what_a_run_has_timed_of_its_tables_is_held_against_each_other():
    def choice(time_s):
        timed = {65536: Timed(message_bytes=65536, median_s=time_s, error=0.01)}
        plan = plan_from_document(example(), "plan.json")
        rows = (Row(min_bytes=0, max_bytes=None, algorithm="default"),)
        return Choice(
            rows=rows,
            certificate=plan.certificate,
            warnings=(),
            timed={"the default": timed, "the plan": timed},
        )

    shape = GroupShape(num_ranks=4, num_nodes=2, ranks_per_node=2, stride=1)
    tables = [
        Table(number=number, collective=collective, group_set=world_set(4), shapes=(shape,), station=None)
        for number, collective in enumerate(("reduce_scatter", "allgather"), start=1)
    ]
    held = timed_tables(choice(9e-3), tables, [choice(2e-3), choice(3e-3)])
    (line,) = violations_across(held)
    assert line.startswith("an allreduce is slower than reduce-scatter and all-gather")
    # Rows that another launch has chosen come without their times.
    taken = replace(choice(2e-3), timed={})
    assert violations_across(timed_tables(choice(9e-3), tables, [taken, choice(3e-3)])) == []


def test_a_plan_of_many_tables_with_many_warnings_can_be_read_again():
    plan = plan_from_document(example(), "plan.json")
    world = plan.groups[0]
    (one,) = read_groups(f"all={world.shape.num_ranks}", world.shape.num_ranks)
    table = Table(number=1, collective="allgather", group_set=one, shapes=(world.shape,), station=None)
    lines = tuple(f"candidate {number} was left out" for number in range(300))
    rows = (Row(min_bytes=0, max_bytes=None, algorithm="default"),)
    choice = Choice(rows=rows, certificate=plan.certificate, warnings=lines)
    found = with_tables(plan, [table], [choice], Arrangement.of(None))
    assert plan_from_document(plan_to_document(found), "plan.json") == found
    num_more = len(plan.warnings) + len(lines) - (len(found.warnings) - 1)
    assert found.warnings[-1] == f"{num_more} more warnings were left out"


def test_groups_of_other_ranks_are_refused_on_all_ranks():
    with pytest.raises(RankError, match="--groups dp=3: a mesh of 3 ranks, but there are 2"):
        run_world(2, tune_rank, {"budget_s": 1.0, "sizes": [4096], "groups": "dp=3"})


def test_all_three_collectives_are_tuned_where_groups_are_given():
    assert collectives_of(None, None) == ("allreduce",)
    assert collectives_of("dp=2", None) == ("allreduce", "reduce_scatter", "allgather")
    assert collectives_of("dp=2", ("allgather", "allreduce")) == ("allreduce", "allgather")
    with pytest.raises(UsageError, match="--collectives: 'gather' is none of allreduce, reduce_scatter"):
        TuneOptions(collectives=("gather",))


@pytest.mark.parametrize("collective", ["allreduce", "reduce_scatter"])
def test_what_dispatch_costs_is_never_timed_on_the_candidate_before(collective):
    overrides = []
    station = object.__new__(TableStation)
    station._collective = collective
    station._planned = SimpleNamespace(
        set_override=lambda *chosen: overrides.append(chosen), call_limit=timedelta(seconds=1)
    )
    for arm in (Candidate.of("ring", {"channels": 2}), DISPATCHED, DEFAULT):
        station._choose(arm, None)
    assert overrides == [
        (collective, ("ring", {"channels": 2})),
        (collective, ("default", {})),
    ], "the default is called past the group that has overrides"

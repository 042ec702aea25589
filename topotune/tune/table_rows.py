"""Choosing the rows of the tables beside the world's allreduce, and putting them into the plan.

Each table has a share of the run's budget, one after the other, and writes its trials into the run's journal,
under its name. In a run that was resumed a table goes on from what it had recorded. One whose rows an earlier
launch had chosen is not measured again: they were confirmed within that launch, and nothing but its own
measurements stands behind them. That is not so of the world's allreduce, which the whole run hangs on: the
false-win rate of the certificate is its own, and the launch that ends the run measures it.

Rows are held against the bound of all groups of the set at once (`topotune.bounds.concurrent_bound`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from topotune.bounds import NoBound, concurrent_bound
from topotune.documents import Value
from topotune.errors import InputFileError
from topotune.links.model import LinkModel
from topotune.links.placement import placement_of
from topotune.plan import Bottleneck, Certificate, Group, GroupShape, Plan, Row
from topotune.plan.document import part_to_json
from topotune.plan.load import MAX_WARNINGS, take_certificate, take_group
from topotune.plan.model import Collective
from topotune.schedule.candidates import candidates
from topotune.schedule.part_candidates import part_candidates
from topotune.simulate.parts import predict_parts
from topotune.tune.across_tables import TimedTable
from topotune.tune.arrangement import Arrangement
from topotune.tune.decide import Limit
from topotune.tune.journal import CHOSEN, TABLES, Journal, TableJournal
from topotune.tune.mesh import GroupSet
from topotune.tune.options import TuneOptions
from topotune.tune.pipeline import Choice, choose_rows
from topotune.tune.points import ELEMENT_BYTES
from topotune.tune.progress import OnProgress
from topotune.tune.resume import Past, check_same_tables
from topotune.tune.sampling import Sampling
from topotune.tune.tables import Table, TableBench, part_elements, world_set
from topotune.tune.timing import TorchBench
from topotune.tune.trial import DEFAULT, Candidate

_MOST_WARNINGS: Final = MAX_WARNINGS - 64
"""Of all tables together, each of which may name every candidate; a training step has some of its own."""

_MOST_MEMBERS: Final = 64
"""Of a note in a journal."""

_UNMEASURED: Final = Limit(no_bound_reason="the links between the ranks were not measured by this run")


def note_tables(tables: Sequence[Table], journal: Journal | None, past: Past, source: str) -> None:
    """Write down which tables a run has, unless an earlier launch did; on rank 0, before the first trial.

    Args:
        tables: as `make_tables` gives them.
        journal: of the run; None in runs that keep no record.
        past: of the run.
        source: the journal's file, for errors.

    Raises:
        InputFileError: the journal is of a run with other tables.
    """
    names = [table.to_json() for table in tables]
    check_same_tables(past, names, source)
    if tables and journal is not None and past.table_names is None:
        journal.note(TABLES, {"tables": names})


def tune_tables(
    tables: Sequence[Table],
    bench: TorchBench,
    options: TuneOptions,
    arrangement: Arrangement,
    report: Callable[[int], OnProgress],
    journal: Journal | None,
    past: Past,
) -> tuple[list[Choice], tuple[str, ...]]:
    """The rows of each table, one after the other. On rank 0 alone, while the others follow.

    Args:
        tables: as `make_tables` gives them.
        bench: of the world.
        options: of one table: with its share of the budget.
        arrangement: of the world's ranks.
        report: gets the index of a table, and gives what is to be told of its progress.
        journal: where trials are recorded; None in runs that keep no record.
        past: of the run.

    Returns:
        what was chosen for each table, and the titles of those that an earlier launch had chosen.

    Raises:
        InputFileError: what the journal has of a table's rows cannot be read.
    """
    source = str(options.journal_path)
    choices: list[Choice] = []
    taken: list[str] = []
    for index, table in enumerate(tables):
        own = past.tables.get(table.number, Past())
        if own.chosen is not None and own.chosen.get("rank_order") == _order_of(arrangement):
            choice = _recorded_choice(table, own.chosen, source)
            # Its trials were of that launch alone: what it took is known as a whole.
            bench.charge(float(own.chosen["elapsed_s"]))
            taken.append(table.title)
        else:
            bench.charge(own.elapsed_s)
            choice = _chosen(table, bench, options, arrangement, report(index), journal, own)
        choices.append(choice)
    return choices, tuple(taken)


def _chosen(
    table: Table,
    main: TorchBench,
    options: TuneOptions,
    arrangement: Arrangement,
    on_progress: OnProgress,
    journal: Journal | None,
    past: Past,
) -> Choice:
    """The rows of a table, measured, and written down."""
    own_journal = None if journal is None else TableJournal(journal, table.record_name)
    bench = TableBench(main, table, passed_s=past.elapsed_s)
    choice = choose_rows(
        Sampling(
            bench=bench,
            rng=np.random.default_rng([options.seed, table.number - 1]),
            journal=own_journal,
            past=past,
        ),
        options,
        _candidates(table, arrangement),
        predicted_s=_predictor(table, arrangement, options.sizes),
        limit=limit_of(table.collective, table.group_set, arrangement.as_numbered),
        on_progress=on_progress,
    )
    if own_journal is not None:
        own_journal.note(
            CHOSEN,
            {
                "group": part_to_json(_group_with(table, table.shapes[0], choice.rows)),
                "certificate": part_to_json(choice.certificate),
                "warnings": list(_that_fit(choice.warnings)),
                "rank_order": _order_of(arrangement),
                "elapsed_s": bench.now_s(),
            },
        )
    return choice


def _recorded_choice(table: Table, note: Mapping[str, Any], source: str) -> Choice:
    """The rows of a table as an earlier launch chose them; on the same arrangement of the ranks.

    Raises:
        InputFileError: the note is of another form, or of another table.
    """
    value = Value(dict(note), f"rows of table {table.number}", source, InputFileError)
    members = value.mapping(_MOST_MEMBERS)
    missing = [name for name in ("group", "certificate", "warnings") if name not in members]
    if missing:
        value.fail(f"lacks the key {missing[0]!r}")
    group = take_group(members["group"])
    rows: tuple[Row, ...] | None = getattr(group, table.collective)
    if group.shape != table.shapes[0] or rows is None:
        members["group"].fail(f"holds no rows of {table.title}")
    return Choice(
        rows=rows,
        certificate=take_certificate(members["certificate"]),
        warnings=tuple(one.text() for one in members["warnings"].items(MAX_WARNINGS, what="warnings")),
    )


def _order_of(arrangement: Arrangement) -> list[int] | None:
    return None if arrangement.rank_order is None else list(arrangement.rank_order)


def limit_of(collective: Collective, group_set: GroupSet, model: LinkModel | None) -> Limit:
    """The bound of a collective that all groups of a set run at the same time.

    Args:
        collective: which.
        group_set: the groups.
        model: what the links cost between all ranks; None where that is not known.
    """
    if model is None:
        return _UNMEASURED
    bound = concurrent_bound(model, group_set.groups, collective)
    latencies_s = [model.least_latency_s(group) for group in group_set.groups]
    latency_s = max((one for one in latencies_s if one is not None), default=None)
    if isinstance(bound, NoBound):
        return Limit(no_bound_reason=bound.reason, latency_s=latency_s)
    num_ranks = len(group_set.groups[0])

    def time_s(message_bytes: int) -> float:
        if collective != "allreduce":
            message_bytes = part_elements(message_bytes, num_ranks) * num_ranks * ELEMENT_BYTES
        return bound.time_s(message_bytes)

    bottleneck = Bottleneck(text=bound.text, cut=bound.cut)
    return Limit(time_s=time_s, bottleneck=bottleneck, latency_s=latency_s)


def timed_tables(choice: Choice, tables: Sequence[Table], choices: Sequence[Choice]) -> list[TimedTable]:
    """What a run has timed, to be held against each other.

    Args:
        choice: of the world's allreduce.
        tables: beside it; one at least.
        choices: of these.
    """
    everyone = world_set(sum(map(len, tables[0].group_set.groups)))
    return [
        TimedTable(collective="allreduce", group_set=everyone, timed=choice.timed),
        *(
            TimedTable(collective=table.collective, group_set=table.group_set, timed=own.timed)
            for table, own in zip(tables, choices, strict=True)
        ),
    ]


def with_tables(
    plan: Plan,
    tables: Sequence[Table],
    choices: Sequence[Choice],
    arrangement: Arrangement,
    *,
    across: Sequence[str] = (),
) -> Plan:
    """The plan with these tables beside the world's allreduce.

    Args:
        plan: with the world's allreduce.
        tables: one at least.
        choices: of these.
        arrangement: of the world's ranks.
        across: warnings that are of several tables.
    """
    groups = {group.shape: group for group in plan.groups}
    warnings, order = list(plan.warnings), plan.rank_order
    certificates = [plan.certificate]
    for table, choice in zip(tables, choices, strict=True):
        for shape in table.shapes:
            groups[shape] = _group_with(table, shape, choice.rows, groups.get(shape))
        certificates.append(choice.certificate)
        warnings += [f"{table.title}: {warning}" for warning in choice.warnings]
        if table.is_of_world and any(row.algorithm != DEFAULT.algorithm for row in choice.rows):
            order = arrangement.rank_order
    return replace(
        plan,
        groups=tuple(groups.values()),
        certificate=_joined(certificates),
        rank_order=order,
        warnings=_that_fit([*warnings, *across]),
    )


def _that_fit(warnings: Sequence[str]) -> tuple[str, ...]:
    """As many as a plan can hold, and how many more there were."""
    if len(warnings) <= _MOST_WARNINGS:
        return tuple(warnings)
    kept = warnings[: _MOST_WARNINGS - 1]
    return (*kept, f"{len(warnings) - len(kept)} more warnings were left out")


def _group_with(table: Table, shape: GroupShape, rows: tuple[Row, ...], group: Group | None = None) -> Group:
    """The tables of a shape, with the rows of one of them."""
    table_rows: dict[str, Any] = {table.collective: rows}
    return replace(group or Group(shape=shape), **table_rows)


def _joined(certificates: Sequence[Certificate]) -> Certificate:
    """One for all tables: comparisons add up; the false wins are those of the world's allreduce."""
    first = certificates[0]
    return replace(
        first,
        method=f"{first.method}; {len(certificates)} tables, each corrected for its own comparisons; the "
        "false-win rate is that of the world's allreduce",
        num_comparisons=sum(one.num_comparisons for one in certificates),
    )


def _model(table: Table, arrangement: Arrangement) -> LinkModel | None:
    """What links cost inside the group that rank 0 is in, with what the others of its set take."""
    if table.is_of_world:
        return arrangement.by_position
    whole = arrangement.as_numbered
    groups = table.group_set.groups
    return None if whole is None else whole.among(groups[0], num_alike=len(groups))


def _candidates(table: Table, arrangement: Arrangement) -> list[Candidate]:
    model = _model(table, arrangement)
    if model is None:
        return []
    placement = arrangement.placement if table.is_of_world else placement_of(model)
    if table.collective == "allreduce":
        named = candidates(placement)
    else:
        named = part_candidates(placement, table.collective)
    return [Candidate.of(algorithm, params) for algorithm, params in named]


def _predictor(
    table: Table, arrangement: Arrangement, sizes: Sequence[int]
) -> Callable[[Candidate, int], float]:
    collective = table.collective
    by_position = _model(table, arrangement)
    as_numbered = arrangement.as_numbered if table.is_of_world else by_position
    if collective == "allreduce":
        return replace(arrangement, as_numbered=as_numbered, by_position=by_position).predictor(sizes)
    curves: dict[Candidate, dict[int, float]] = {}

    def predicted_s(candidate: Candidate, message_bytes: int) -> float:
        model = as_numbered if candidate == DEFAULT else by_position
        if model is None:
            return 0.0
        curve = curves.setdefault(candidate, {})
        if message_bytes not in curve:
            asked = sorted({*sizes, message_bytes})
            times_s = predict_parts(collective, candidate.algorithm, candidate.params, model, asked)
            curve.update(zip(asked, times_s.tolist(), strict=True))
        return curve[message_bytes]

    return predicted_s

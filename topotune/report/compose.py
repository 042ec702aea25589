"""Result files → the report's sections, in the order in which a reader asks: is it well, what is won, how."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from topotune.links.check import Check
from topotune.links.measurement import Measurement
from topotune.plan.model import COLLECTIVES, Plan
from topotune.report.content import Chart, Drawing, Remark, Report, Section
from topotune.report.pictures import curves as drawn
from topotune.report.pictures.cluster import cluster_drawing
from topotune.report.pictures.matrices import matrix_chart, outliers_in_words, pair_matrices
from topotune.report.pictures.schedules import sending_chart
from topotune.report.pictures.tuning import ratios_chart, trials_chart
from topotune.report.tables import Names, table_of, tables_of
from topotune.report.text import describe_shape
from topotune.report.training import compared_step, gradients_section, plan_step, step_sections
from topotune.report.words import certificate_in_words, conditions_in_words, gains_in_words, plan_commands
from topotune.results.comparison import ComparedSize, Comparison
from topotune.results.optimum import OptimumResult
from topotune.results.reading import Result, ResultFile
from topotune.results.tuning import TuningRun
from topotune.schedule.model import Schedule
from topotune.simulate.document import Prediction
from topotune.step.gradients import Gradients
from topotune.topology.model import Topology
from topotune.units import format_rate, format_seconds

_TableCurves = tuple[str, Sequence[drawn.Curve], Sequence[drawn.Mark]]
"""Another collective's or group's name, curves and marks."""


def compose(files: Sequence[ResultFile]) -> Report:
    """The report of some result files, in the given order within each kind of section."""
    curves_of: list[drawn.Curve] = []
    sections: list[tuple[int, Section]] = []
    names = Names()
    for file in files:
        order, compose_one = _COMPOSERS[type(file.value)]
        sections.append((order, compose_one(file, file.value, names.of(file))))
    for file in files:
        curves_of.extend(_curves(file))
    sizes = sorted({point.message_bytes for curve in curves_of for point in curve.points})
    for file in files:
        if isinstance(file.value, OptimumResult):
            curves_of.extend(drawn.optimum_curves(file.value, file.name, sizes))
    marks = sorted(
        {mark for file in files if isinstance(file.value, Plan) for mark in drawn.crossovers(file.value)}
    )
    sections.extend((_CURVES, section) for section in _curve_sections(curves_of, marks, names))
    sections.extend((_STEPS, section) for section in step_sections(files, names))
    sections.sort(key=lambda one: one[0])
    shown = ", ".join(dict.fromkeys(file.name for file in files))
    return Report(title=f"topotune report: {shown}", sections=tuple(section for _, section in sections))


def _topology(file: ResultFile, topology: Topology, prefix: str) -> Section:
    kinds = pd.Series([vertex.kind for vertex in topology.vertices]).value_counts(sort=False)
    nodes = {vertex.node for vertex in topology.vertices} - {None}
    drawing = cluster_drawing(topology)
    return Section(
        title="Cluster" if len(nodes) != 1 else "Machine",
        source=file.path,
        facts=(
            ("nodes", str(len(nodes))),
            *((f"vertices: {kind}", str(count)) for kind, count in kinds.items()),
            ("directed links", str(len(topology.links))),
            *((("ranks", str(len(topology.ranks))),) if topology.ranks else ()),
            ("source", topology.source.kind),
        ),
        pictures=() if drawing is None else (drawing,),
        tables=tables_of(file, prefix),
        warnings=topology.warnings,
    )


def _measurement(file: ResultFile, measurement: Measurement, prefix: str) -> Section:
    matrices = pair_matrices(measurement)
    charts: list[Chart | Drawing] = [matrix_chart(matrix) for matrix in matrices]
    of_others = [
        curve for curve in drawn.benchmark_curves(measurement, file.name) if curve.collective != "allreduce"
    ][: drawn.MAX_CURVES]
    if of_others:
        charts.extend(_charts(of_others, ()))
    elapsed = measurement.elapsed_s
    return Section(
        title="Measured links" if matrices else "Benchmarks",
        source=file.path,
        facts=(
            ("ranks", str(measurement.num_ranks) if measurement.num_ranks else "not said"),
            ("nodes", str(len(measurement.node_names)) if measurement.node_names else "not said"),
            *((("measured in", format_seconds(elapsed)),) if elapsed else ()),
            *((("created", measurement.created),) if measurement.created else ()),
        ),
        paragraphs=tuple(outliers_in_words(matrix) for matrix in matrices),
        pictures=tuple(charts),
        tables=tables_of(file, prefix),
        warnings=measurement.warnings,
    )


def _check(file: ResultFile, check: Check, prefix: str) -> Section:
    remarks = tuple(
        Remark(
            severity=finding.severity,
            head=f"{finding.code}, {finding.where}",
            lines=(
                finding.evidence,
                *(
                    ()
                    if finding.cost_percent is None
                    else (
                        f"The best allreduce would take {finding.cost_percent:.0f} % less time without it.",
                    )
                ),
                f"What to do: {finding.advice}",
            ),
        )
        for finding in check.findings[:_MAX_REMARKS]
    )
    said = []
    if not check.findings:
        said.append("Nothing was found.")
    if len(check.findings) > _MAX_REMARKS:
        said.append(f"{len(check.findings) - _MAX_REMARKS} more stand in the table.")
    return Section(
        title="Findings",
        source=file.path,
        facts=(
            ("nodes", str(len(check.node_names))),
            ("ranks", "nothing was measured" if check.num_ranks is None else str(check.num_ranks)),
            *((("profile", check.profile),) if check.profile else ()),
            *((("created", check.created),) if check.created else ()),
        ),
        paragraphs=tuple(said),
        remarks=remarks,
        tables=tables_of(file, prefix),
        warnings=check.warnings,
    )


def _plan(file: ResultFile, plan: Plan, prefix: str) -> Section:
    context = plan.context
    return Section(
        title="Plan",
        source=file.path,
        facts=(
            ("made", f"{context.created} in {format_seconds(context.elapsed_s)}"),
            ("topotune", context.topotune_version),
            ("hosts", ", ".join(plan.fingerprint.soft.hosts[:16])),
            *((("network", context.network),) if context.network else ()),
            *((("bottleneck", text),) if (text := _bottleneck(plan)) else ()),
            *(
                (
                    (
                        "rank order",
                        " ".join(map(str, plan.rank_order[:64])) + " …" * (len(plan.rank_order) > 64),
                    ),
                )
                if plan.rank_order
                else ()
            ),
        ),
        paragraphs=(
            gains_in_words(plan),
            *plan_step(plan),
            conditions_in_words(plan),
            *certificate_in_words(plan),
        ),
        pictures=_table_charts(_other_tables(plan, file.name)),
        commands=plan_commands(plan, file.path),
        tables=tables_of(file, prefix),
        warnings=plan.warnings,
    )


def _other_tables(plan: Plan, source: str) -> Iterator[_TableCurves]:
    """All but the world's allreduce, whose curves stand beside those of other files."""
    for group in plan.groups:
        for collective in COLLECTIVES:
            rows = getattr(group, collective)
            if rows and not (group is plan.groups[0] and collective == "allreduce"):
                name = f"{collective}, {describe_shape(group.shape)}"
                yield name, drawn.group_curves(group, collective, source), drawn.table_crossovers(rows)


def _bottleneck(plan: Plan) -> str:
    rows = plan.groups[0].allreduce or ()
    return "; ".join(dict.fromkeys(row.bottleneck.text for row in rows if row.bottleneck is not None))


def _tuning(file: ResultFile, run: TuningRun, prefix: str) -> Section:
    ratios = ratios_chart(run) if run.trials else None
    unfinished = [trial for trial in run.trials if trial.end_s is None]
    failed = len([one for one in run.told if one.state == "FAIL"])
    pruned = len([one for one in run.told if one.state == "PRUNED"])
    said = [
        f"{len(run.trials)} trials; the search was done with {len(run.told)} candidates: {failed} failed, "
        f"{pruned} were given up as hopeless, {len(run.told) - failed - pruned} were measured in full."
    ]
    if run.finalists:
        said.append(f"{len(run.finalists)} sizes had a finalist to confirm on fresh samples.")
    if run.tables:
        count = sum(len(table.trials) for table in run.tables)
        said.append(
            f"That was the allreduce over all ranks. {len(run.tables)} tables beside it took {count} trials: "
            f"{'; '.join(table.title for table in run.tables)}."
        )
    said.append(
        "The run came to its end."
        if run.plan is not None
        else "The run did not come to its end: topotune tune --resume."
    )
    if unfinished:
        said.append(f"{len(unfinished)} trials began and never ended.")
    return Section(
        title="Tuning over time",
        source=file.path,
        facts=(
            *((("topotune", run.topotune_version),) if run.topotune_version else ()),
            *((("budget", format_seconds(run.budget_s)),) if run.budget_s else ()),
            *((("resumed", f"{run.num_resumed} times"),) if run.num_resumed else ()),
        ),
        paragraphs=tuple(said),
        pictures=tuple(
            chart for chart in (trials_chart(run) if run.trials else None, ratios) if chart is not None
        ),
        tables=tables_of(file, prefix),
        warnings=run.problems,
    )


def _schedule(file: ResultFile, schedule: Schedule, prefix: str) -> Section:
    return Section(
        title="Schedule",
        source=file.path,
        facts=(
            ("algorithm", schedule.algorithm),
            ("ranks", str(schedule.num_ranks)),
            ("steps", str(int(schedule.step.max()) + 1 if schedule.num_transfers else 0)),
            ("transfers", str(schedule.num_transfers)),
            ("channels", str(len(set(schedule.channel.tolist())))),
            ("chunks", str(schedule.num_chunks)),
        ),
        paragraphs=("It was verified: every rank ends with each rank's part exactly once.",),
        pictures=(sending_chart(schedule),) if schedule.num_transfers else (),
        tables=tables_of(file, prefix),
    )


def _comparison(file: ResultFile, comparison: Comparison, prefix: str) -> Section:
    said, pictures = compared_step(comparison)
    counted = [
        f"Of {_counted(comparison.sizes)}; all intervals hold together with "
        f"{100 * comparison.confidence:g} % confidence."
    ]
    tables: list[_TableCurves] = []
    for table in comparison.tables:
        name = (
            f"{table.collective}, {table.group} ({table.num_ranks} ranks{' each' * (table.group != 'world')})"
        )
        counted.append(f"{name}: of {_counted(table.sizes)}.")
        if table.sizes:
            tables.append((name, drawn.table_curves(table, file.name), ()))
    return Section(
        title="The plan against the default",
        source=file.path,
        facts=(("plan", comparison.plan), ("ranks", str(comparison.num_ranks))),
        paragraphs=(*counted, *said),
        pictures=(*_table_charts(tables), *pictures),
        tables=tables_of(file, prefix),
        warnings=comparison.warnings,
    )


def _counted(sizes: Sequence[ComparedSize]) -> str:
    counts = Counter(one.verdict for one in sizes)
    return (
        f"{len(sizes)} size{'s' * (len(sizes) != 1)} the plan is faster at {counts['faster']}, slower at "
        f"{counts['slower']}, and no difference was shown at {counts['same']}"
    )


def _prediction(file: ResultFile, prediction: Prediction, prefix: str) -> Section:
    network = (("network", prediction.network),) if prediction.network else ()
    bound = prediction.bottleneck.text if prediction.bottleneck else prediction.no_bound_reason
    return Section(
        title="Prediction",
        source=file.path,
        facts=(
            ("ranks", str(prediction.num_ranks)),
            *network,
            *((("bottleneck" if prediction.bottleneck else "no optimum", bound),) if bound else ()),
        ),
        tables=tables_of(file, prefix),
        warnings=tuple(prediction.warnings),
    )


def _optimum(file: ResultFile, result: OptimumResult, prefix: str) -> Section:
    allreduce = result.optima.allreduce
    at_most = "" if allreduce.exact else "at most "
    said = [
        f"An allreduce reaches {at_most}{format_rate(allreduce.algbw_bytes_per_s)} "
        f"(bus bandwidth {format_rate(allreduce.busbw_bytes_per_s)}); what holds it back: {allreduce.text}."
    ]
    if (ring := result.optima.ring_algbw_bytes_per_s) is not None:
        said.append(f"Flat rings reach {100 * ring / allreduce.algbw_bytes_per_s:.0f} % of that at best.")
    return Section(
        title="The optimum",
        source=file.path,
        facts=(("ranks", str(result.optima.num_ranks)),),
        paragraphs=tuple(said),
        tables=tables_of(file, prefix),
        warnings=result.warnings,
    )


_MAX_REMARKS: Final = 200
_MAX_TABLE_CHARTS: Final = 24
"""Of a file's other collectives and groups; what has no picture stands in the table."""
_MAX_RANK_COUNTS: Final = 12
_CURVES: Final = 3
_STEPS: Final = 4
_COMPOSERS: Final[Mapping[type, tuple[int, Callable[[ResultFile, Any, str], Section]]]] = {
    Check: (0, _check),
    Plan: (1, _plan),
    Comparison: (2, _comparison),
    Topology: (5, _topology),
    Measurement: (6, _measurement),
    TuningRun: (7, _tuning),
    OptimumResult: (8, _optimum),
    Prediction: (9, _prediction),
    Schedule: (10, _schedule),
    Gradients: (11, gradients_section),
}


def _curves(file: ResultFile) -> list[drawn.Curve]:
    """Curves of a file, but those of an optimum, which stand at the others' sizes."""
    value: Result = file.value
    match value:
        case Plan():
            return drawn.plan_curves(value, file.name)
        case Comparison():
            return drawn.comparison_curves(value, file.name)
        case TuningRun():
            return drawn.tuning_curves(value, file.name)
        case Prediction():
            return drawn.prediction_curves(value, file.name)
        case Measurement():
            return [one for one in drawn.benchmark_curves(value, file.name) if one.collective == "allreduce"]
        case _:
            return []


def _curve_sections(
    curves: Sequence[drawn.Curve], marks: Sequence[drawn.Mark], names: Names
) -> list[Section]:
    """One section for each number of ranks; times of different numbers are not to be compared."""
    sections = []
    counts = sorted({curve.num_ranks for curve in curves}, key=lambda one: (one is None, one or 0))
    for num_ranks in counts[:_MAX_RANK_COUNTS]:
        own = [curve for curve in curves if curve.num_ranks == num_ranks]
        said = []
        points = drawn.curve_points(own)
        name = names.take(f"allreduce-{num_ranks or 'unknown'}-ranks") + "_curves"
        table = table_of(name, "Curves", points, repeats=True)
        if len(own) > drawn.MAX_CURVES:
            said.append(
                f"{len(own) - drawn.MAX_CURVES} of {len(own)} curves are left out; the table has them."
            )
            kept = [curve for curve in own if curve.role not in ("candidate", "prediction")]
            rest = [curve for curve in own if curve.role in ("candidate", "prediction")]
            own = [*kept, *rest][: drawn.MAX_CURVES]
        if num_ranks == counts[:_MAX_RANK_COUNTS][-1] and len(counts) > _MAX_RANK_COUNTS:
            said.append(f"{len(counts) - _MAX_RANK_COUNTS} more numbers of ranks are in the tables alone.")
        who = "ranks of unknown number" if num_ranks is None else f"{num_ranks} ranks"
        sections.append(
            Section(
                title=f"Allreduce, {who}",
                paragraphs=tuple(said),
                pictures=tuple(_charts(own, marks)),
                tables=(table,),
            )
        )
    return sections


def _charts(curves: Sequence[drawn.Curve], marks: Sequence[drawn.Mark]) -> list[Chart]:
    charts = (drawn.time_chart(curves, marks), drawn.busbw_chart(curves, marks))
    return [chart for chart in charts if chart is not None]


def _table_charts(tables: Iterable[_TableCurves]) -> tuple[Chart, ...]:
    """Pictures of other collectives and groups, each under the name of its table."""
    charts: list[Chart] = []
    for name, curves, marks in tables:
        if curves and len(charts) < _MAX_TABLE_CHARTS:
            charts += [
                replace(chart, title=f"{name}: {chart.title[0].lower()}{chart.title[1:]}")
                for chart in _charts(curves, marks)
            ]
    return tuple(charts)

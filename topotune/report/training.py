"""The report's parts about a training step: what was compared, what a job exchanges, what a plan gains."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from topotune import frames
from topotune.plan.model import Plan
from topotune.report.content import Chart, Section
from topotune.report.pictures.steps import Way, in_words, ready_chart, step_chart, where_from
from topotune.report.step import describe_buckets
from topotune.report.tables import TITLES, Names, table_of, tables_of
from topotune.results.comparison import Comparison
from topotune.results.reading import ResultFile
from topotune.step.buckets import ddp_buckets, layout_of, limits_of
from topotune.step.curve import Curve, curves_of_rows
from topotune.step.gradients import Gradients
from topotune.step.timeline import timeline_of
from topotune.units import format_bytes, format_seconds

_MAX_STEPS: Final = 4
"""Of plans, and of recorded models, whose steps are drawn."""


def plan_step(plan: Plan) -> tuple[str, ...]:
    """What a plan says of DDP's buckets, and on what evidence."""
    return () if plan.ddp is None else tuple(line.strip() for line in describe_buckets(plan.ddp).splitlines())


def compared_step(comparison: Comparison) -> tuple[tuple[str, ...], tuple[Chart, ...]]:
    """What is said of a compared training step, and its picture, where there is one."""
    step = comparison.step
    if step is None:
        return (), ()
    low, high = step.ratio_ci
    said = [
        f"A training step takes {format_seconds(step.plan_median_s)} under the plan and "
        f"{format_seconds(step.default_median_s)} without: {step.ratio:.2f} times as fast "
        f"({low:.2f} … {high:.2f}), {step.verdict}. The model: {step.gradients}."
    ]
    if step.bound is not None:
        said.append(f"Without the plan it is {step.bound}.")
    ways = [
        Way(name=name, timeline=timeline, measured_s=measured_s)
        for name, timeline, measured_s in (
            ("default", step.default_timeline, step.default_median_s),
            ("plan", step.plan_timeline, step.plan_median_s),
        )
        if timeline is not None
    ]
    if not ways:
        return tuple(said), ()
    return (*said, *map(in_words, ways), where_from(ways)), (step_chart(ways),)


def gradients_section(file: ResultFile, gradients: Gradients, prefix: str) -> Section:
    """What a job exchanges, and when it is ready."""
    return Section(
        title="Gradients of the job",
        source=file.path,
        facts=(
            ("recorded", gradients.source),
            ("gradients", str(len(gradients.gradients))),
            ("bytes", format_bytes(gradients.total_bytes)),
            ("backward", format_seconds(gradients.backward_s) if gradients.timed else "not timed"),
        ),
        pictures=(ready_chart(gradients),),
        tables=tables_of(file, prefix),
        warnings=gradients.warnings,
    )


def step_sections(files: Sequence[ResultFile], names: Names) -> list[Section]:
    """A section for each plan and each recorded model: the step with torch's own buckets, and the plan's."""
    plans = [(file, file.value) for file in files if isinstance(file.value, Plan)]
    models = [(file, file.value) for file in files if isinstance(file.value, Gradients)]
    sections = []
    for plan_file, plan in plans[:_MAX_STEPS]:
        curves = curves_of_rows(plan.groups[0].allreduce or ())
        for model_file, gradients in models[:_MAX_STEPS]:
            if curves is not None:
                source = f"{plan_file.path}, {model_file.path}"
                prefix = names.take(f"step-{Path(plan_file.name).stem}-{Path(model_file.name).stem}")
                sections.append(_step(plan, gradients, curves, source, prefix))
    return sections


def _step(plan: Plan, gradients: Gradients, curves: tuple[Curve, Curve], source: str, prefix: str) -> Section:
    curve, default_curve = curves
    caps_mb = None if plan.ddp is None else plan.ddp.bucket_caps_mb
    own = ddp_buckets(gradients, limits_of(None))
    said = []
    if not gradients.timed:
        sizes = layout_of(gradients.gradients, own)
        gradients = gradients.with_backward(sum(default_curve.time_s(size) for size in sizes))
        said.append(
            "Nobody timed the backward: it is taken to be as long as the default's exchange, where buckets "
            "matter most."
        )
    planned = ddp_buckets(gradients, limits_of(caps_mb))
    ways = [
        Way(name="default", timeline=timeline_of(gradients, own, default_curve.time_s)),
        Way(name="plan", timeline=timeline_of(gradients, planned, curve.time_s)),
    ]
    if caps_mb is None:
        said.append("The plan leaves torch's own buckets; what differs is the algorithm.")
    buckets = frames.timeline_buckets({way.name: way.timeline for way in ways})
    return Section(
        title="The training step",
        source=source,
        paragraphs=(*said, *map(in_words, ways), where_from(ways)),
        pictures=(step_chart(ways),),
        tables=(table_of(f"{prefix}_step_buckets", TITLES["step_buckets"], buckets),),
    )

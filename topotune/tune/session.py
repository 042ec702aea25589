"""The two jobs as every rank runs them: ``tune_worker`` and ``compare_worker``.

All ranks call the same function, in the environment that torchrun gives. They join, and measure together;
rank 0 alone decides, and tells the others what to run. Payloads and results are JSON.
"""

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import optuna
import torch

from topotune import __version__
from topotune.bounds import NoBound, allreduce_bound
from topotune.errors import TopotuneError, UsageError
from topotune.execute.fingerprint import RankFacts, combine_facts, local_facts
from topotune.links import (
    fit_links,
    link_classes,
    measure_links,
    measurement_from_document,
    measurement_to_document,
)
from topotune.links.flow_plan import FlowTime
from topotune.links.messages import Messages
from topotune.links.model import LinkModel
from topotune.plan import (
    Bottleneck,
    Context,
    Fingerprint,
    Group,
    Plan,
    find_group,
    find_row,
    plan_to_document,
)
from topotune.probe.numa import own_numa_node
from topotune.step.buckets import ddp_buckets, layout_of, limits_of
from topotune.train.agreement import shape_of
from topotune.tune.across_tables import TimedTable, violations_across
from topotune.tune.arrangement import Arrangement
from topotune.tune.blocks import Block
from topotune.tune.compare import (
    WORLD_TABLE,
    OnCompared,
    arm_of,
    compare_plan,
    comparison_to_document,
)
from topotune.tune.consistency import PLAN, Times, times_of
from topotune.tune.decide import Limit
from topotune.tune.gpu_station import GpuStation, NcclEngine
from topotune.tune.journal import ENDED
from topotune.tune.judge import Confirmation
from topotune.tune.known import Known, find_known, keep, kept_plan, known_path, recheck
from topotune.tune.nccl_log import log_to
from topotune.tune.nccl_place import combined_place, nccl_candidates, nccl_facts
from topotune.tune.nccl_settings import NcclPlace, why_no_settings
from topotune.tune.opening import Record
from topotune.tune.options import CompareOptions, TuneOptions, collectives_of
from topotune.tune.pipeline import Choice, choose_rows
from topotune.tune.progress import Measuring, OnProgress, share_of, share_of_budget
from topotune.tune.sampling import Sampling
from topotune.tune.spin import CudaSpinner
from topotune.tune.step_ranks import StepRanks
from topotune.tune.step_session import ROWS_SHARE, compared_step, rows_progress, with_buckets
from topotune.tune.table_rows import note_tables, timed_tables, tune_tables, with_tables
from topotune.tune.tables import compare_tables, make_tables, table_budget_s, world_set
from topotune.tune.timing import Station, TorchBench
from topotune.tune.trial import DEFAULT, PLANNED, Candidate
from topotune.tune.world import World, joined_world

_LINKS_SHARE, _LINKS_MOST_S = 0.07, 4.0
"""Of the budget: what the links may take."""
_FLOWS_SHARE, _FLOWS_MOST_S = 0.05, 6.0
_FRESH_SHARE, _FRESH_MOST_S = 0.12, 8.0
"""The same for flows between three nodes or more; fresh ones run only where the first ones look odd."""

_NO_BOUND_ON_GPUS: Final = Limit(no_bound_reason="the links between GPUs were not measured by this run")
_ONE_RANK: Final = Limit(no_bound_reason="a single rank exchanges nothing")


def tune_worker(
    payload: Mapping[str, Any],
    on_progress: OnProgress = lambda _progress: None,
    on_network: Callable[[str], None] = lambda line: None,
    say: Callable[[TopotuneError], None] = lambda _error: None,
    on_note: Callable[[str], None] = lambda line: None,
    *,
    on_confirmed: Callable[[Sequence[Confirmation]], None] = lambda _found: None,
    keeps: bool = True,
) -> dict[str, Any] | None:
    """Tune on this rank, together with all others.

    Args:
        payload: ``budget_s``, ``sizes`` (or None), ``min_gain``, ``seed``, ``backend``, ``journal_path``,
            ``resume``; each may be left out (`TuneOptions`).
        on_progress: called on rank 0, after each step.
        on_network: called on rank 0 with each line about the network interfaces that the nodes use.
        say: as for `joined_world`.
        on_note: called on rank 0 with each line about how the run went.
        on_confirmed: called on rank 0 with what confirmed rows, and its samples.
        keeps: whether the plan is kept for later runs on this cluster.

    Returns:
        the plan's document on rank 0, None on the others.

    Raises:
        UsageError: an option out of its range; an interface that a node does not have.
        InputFileError: a run shall be resumed whose journal is none, or is of another run.
        OutputFileError: the journal cannot be written.
        RankFailedError: a rank or node was lost.
        RunError: ranks could not be timed.
    """
    options = TuneOptions.from_payload(payload)
    # The journal is closed last: what was lost is noted in it while the world is left.
    with (
        ExitStack() as stack,
        nccl_log(options.backend) as log,
        joined_world(None, on_network, say, options.backend) as world,
        closing(step_ranks_of(world)) as steps,
    ):
        started_s = time.perf_counter()
        plan = _tune(world, steps, options, started_s, on_progress, on_note, stack, log, on_confirmed, keeps)
    return None if plan is None else plan_to_document(plan)


def compare_worker(
    payload: Mapping[str, Any],
    on_network: Callable[[str], None] = lambda line: None,
    say: Callable[[TopotuneError], None] = lambda _error: None,
    on_progress: OnProgress = lambda _progress: None,
    *,
    on_compared: OnCompared = lambda _name, _found: None,
    on_step: Callable[[Block], None] = lambda _samples: None,
) -> dict[str, Any] | None:
    """Compare a plan with the default on this rank, together with all others.

    Args:
        payload: ``plan_path``, and ``sizes`` (or None), ``budget_s``, ``seed``, ``backend`` (the
            plan's), which may be left out (`CompareOptions`).
        on_progress: called on rank 0, before each block of calls.
        on_network: called on rank 0 with each line about the network interfaces that the nodes use.
        say: as for `joined_world`.
        on_compared: called on rank 0 with what was measured of each table, and its samples.
        on_step: called on rank 0 with the samples of the training step, where one was compared.

    Returns:
        the document ``topotune/comparison`` on rank 0, None on the others.

    Raises:
        UsageError: an option out of its range, or a plan that does not fit these ranks.
        RankFailedError: a rank or node was lost.
        RunError: ranks could not be timed, or the plan computes something else.
    """
    options = CompareOptions.from_payload(payload)
    with (
        nccl_log(options.backend) as log,
        joined_world(options.plan_path, on_network, say, options.backend) as world,
        closing(step_ranks_of(world)) as steps,
        ExitStack() as stack,
    ):
        started_s = time.perf_counter()
        agreement = world.planned.agreement
        assert agreement is not None
        if agreement.plan is None:
            raise UsageError(
                agreement.outcome, hint="topotune tune makes a plan for the cluster as it is now"
            )
        if agreement.plan.fingerprint.hard.backend != options.backend:
            raise UsageError(
                f"{options.plan_path} is for {agreement.plan.fingerprint.hard.backend} on rank 0, and for "
                f"{options.backend} where the comparison was started",
                hint="give all nodes the same plan",
            )
        table = find_group(agreement.plan, agreement.shape())
        rows = () if table is None or table.allreduce is None else table.allreduce
        station, _ = station_of(world, steps, log, stack)
        collectives = collectives_of(options.groups, options.collectives)
        tables = make_tables(world, station, options.groups, collectives)
        if world.rank != 0:
            followed(world, station)
            return None
        bench = TorchBench(station, started_s=started_s)
        sampling = Sampling(bench=bench, rng=np.random.default_rng(options.seed))

        def arm_at(message_bytes: int) -> Candidate:
            return arm_of(find_row(rows, message_bytes)) if rows else PLANNED

        def on_trial(_purpose: str, message_bytes: int, _arms: object) -> None:
            measuring = Measuring(message_bytes=message_bytes, arms=(arm_at(message_bytes).label,))
            on_progress(share_of_budget("compare", bench.now_s(), options.budget_s, measuring))

        sampling.on_trial = on_trial
        timed: dict[str, Times] = {}

        def on_table(name: str, table_found: Sequence[Confirmation]) -> None:
            timed[name] = times_of(table_found, lambda _one: PLAN)
            on_compared(name, table_found)

        with told_to_all(world, bench):
            gradients = None if options.step is None else options.step.gradients()
            rows_s = options.budget_s if options.step is None else ROWS_SHARE * options.budget_s
            of_table = replace(options, budget_s=table_budget_s(rows_s, len(tables)))
            found, warnings = compare_plan(
                sampling,
                rows,
                of_table,
                algorithm_at=lambda size: find_row(rows, size).algorithm if rows else "default",
                arm_at=arm_at,
                on_compared=partial(on_table, WORLD_TABLE),
            )
            compared, table_warnings = compare_tables(
                tables, bench, agreement.plan, of_table, on_compared=on_table
            )
            everyone = TimedTable(
                collective="allreduce", group_set=world_set(world.num_ranks), timed=timed[WORLD_TABLE]
            )
            others = [
                TimedTable(
                    collective=one.collective,
                    group_set=one.group_set,
                    timed=timed.get(str(one.number), {}),
                )
                for one in tables
            ]
            warnings += [*table_warnings, *violations_across([everyone, *others])]
            step = None
            if gradients is not None:
                step, step_warnings = compared_step(
                    agreement.plan, rows, gradients, options, bench, on_step=on_step
                )
                warnings += step_warnings
        bench.end()
        warnings = [*([agreement.warning] if agreement.warning else []), *warnings]
        return comparison_to_document(
            found,
            num_ranks=world.num_ranks,
            plan=options.plan_path,
            warnings=warnings,
            num_dropped=sampling.dropped,
            step=step,
            tables=compared,
        )


def _tune(
    world: World,
    steps: StepRanks,
    options: TuneOptions,
    started_s: float,
    on_progress: OnProgress,
    on_note: Callable[[str], None],
    stack: ExitStack,
    log: Path | None,
    on_confirmed: Callable[[Sequence[Confirmation]], None],
    keeps: bool,
) -> Plan | None:
    report = on_progress if world.rank == 0 else lambda _progress: None
    messages = Messages(world.private.group)
    device_type = "cpu" if log is None else "cuda"
    facts = messages.gather(asdict(local_facts(options.backend, device_type)))
    fingerprint = combine_facts([RankFacts(**fact) for fact in facts], world.nodes.node_of_rank)
    numa_of_rank = messages.gather(own_numa_node())
    header = {
        "topotune_version": __version__,
        "options": asdict(options),
        "seed": options.seed,
        "fingerprint": asdict(fingerprint),
    }
    record = Record.open(options, header, messages, stack)
    journal, past = record.journal, record.past
    if record.ended:
        return record.plan
    if journal is not None:
        world.watch.on_loss(lambda loss: journal.note("lost", loss.to_json()))
    model = None
    station, place = station_of(world, steps, log, stack)
    kept_at, known = _known_plan(world, station, options, fingerprint, started_s, on_note, messages)
    if known.holds:
        if journal is not None and known.plan is not None:
            journal.note(ENDED, {"plan": plan_to_document(known.plan)})
        return known.plan
    if place is None:
        model, warnings = _link_model(world, options, started_s, report, record)
    else:
        warnings = _warnings_of(place)
    tables = make_tables(world, station, options.groups, collectives_of(options.groups, options.collectives))
    if world.rank != 0:
        followed(world, station)
        return None
    bench = TorchBench(station, started_s=started_s - past.elapsed_s)
    with told_to_all(world, bench):
        gradients = None if options.step is None else options.step.gradients()
        arrangement = Arrangement.of(model, numa_of_rank)
        bench.arrange(arrangement.rank_order)
        if journal is not None:
            journal.note("arrangement", {"rank_order": arrangement.rank_order})
        note_tables(tables, journal, past, str(options.journal_path))
        num_finished = past.num_finished
        sampling = Sampling(bench=bench, rng=np.random.default_rng(options.seed), journal=journal, past=past)
        of_rows = options if gradients is None else replace(options, budget_s=ROWS_SHARE * options.budget_s)
        of_table = replace(of_rows, budget_s=table_budget_s(of_rows.budget_s, len(tables)))
        rows_report = report if gradients is None else rows_progress(report, options.budget_s)
        choice = choose_rows(
            sampling,
            of_table,
            arrangement.candidates() if place is None else nccl_candidates(place, world.nodes.node_of_rank),
            predicted_s=arrangement.predictor(options.sizes),
            limit=_limit(model) if place is None or world.num_ranks == 1 else _NO_BOUND_ON_GPUS,
            job_bytes=()
            if gradients is None
            else layout_of(gradients.gradients, ddp_buckets(gradients, limits_of(None))),
            on_progress=share_of(rows_report, 0, len(tables) + 1),
        )
        choices, taken = tune_tables(
            tables,
            bench,
            of_table,
            arrangement,
            lambda index: share_of(rows_report, index + 1, len(tables) + 1),
            journal,
            past,
        )
        on_confirmed(choice.confirmations)
        if num_finished:
            warnings += (_resumed_in_words(num_finished, taken),)
        plan = _plan(world, options, arrangement, fingerprint, choice, warnings, bench.now_s())
        if tables:
            across = violations_across(timed_tables(choice, tables, choices))
            plan = with_tables(plan, tables, choices, arrangement, across=across)
        if gradients is not None:
            report(share_of_budget("step", bench.now_s(), options.budget_s))
            plan = with_buckets(plan, gradients, options, bench)
            report(share_of_budget("done", bench.now_s(), options.budget_s))
        if journal is not None:
            journal.note(ENDED, {"plan": plan_to_document(plan)})
    bench.end()
    if keeps and kept_at is not None and (problem := keep(kept_at, plan)) is not None:
        on_note(problem)
    return plan


def _resumed_in_words(num_finished: int, taken: Sequence[str]) -> str:
    """That a plan is of several launches, and which of its evidence is.

    Args:
        num_finished: trials of earlier launches.
        taken: tables whose rows an earlier launch had chosen.
    """
    said = (
        f"resumed from {num_finished} finished trials of earlier launches; "
        "what confirms the rows was measured in this launch alone"
    )
    return f"{said}, but for tables that were done before: {'; '.join(taken)}" if taken else said


@dataclass(frozen=True, kw_only=True, slots=True)
class _KnownPlan:
    """Whether a plan that was kept holds, on all ranks; and the plan, on rank 0."""

    holds: bool = False
    plan: Plan | None = None


def _known_plan(
    world: World,
    station: Station,
    options: TuneOptions,
    fingerprint: Fingerprint,
    started_s: float,
    on_note: Callable[[str], None],
    messages: Messages,
) -> tuple[Path | None, _KnownPlan]:
    """Look for a plan that is kept of this cluster, and check it again. Collective.

    Returns:
        where rank 0 keeps the plan of this run, and what holds already.
    """
    path, known = None, Known()
    if world.rank == 0:
        # Gradients that cannot be read end the run where all ranks hear of it; here nothing is known then.
        with suppress(TopotuneError):
            gradients = None if options.step is None else options.step.gradients()
            path = known_path(os.environ, fingerprint, options, gradients)
        if path is not None and not options.fresh and not options.resume:
            shape = shape_of(range(world.num_ranks), world.nodes.node_of_rank)
            known = find_known(path, fingerprint, shape, options)
            if known.note is not None:
                on_note(known.note)
    if not messages.gather(known.plan is not None)[0]:
        return path, _KnownPlan()
    if world.rank != 0:
        followed(world, station)
        return path, _KnownPlan(holds=bool(messages.gather(None)[0]))
    assert known.plan is not None
    bench = TorchBench(station, started_s=started_s)
    table = known.plan.groups[0].allreduce
    assert table is not None, "it was found for this shape"
    with told_to_all(world, bench):
        bench.arrange(known.plan.rank_order)
        sampling = Sampling(bench=bench, rng=np.random.default_rng(options.seed))
        checked = recheck(known.plan, table, sampling, options)
        if checked.problem is not None:
            bench.renew()  # an order of ranks is set before the first call of a candidate
    bench.end()
    messages.gather(checked.problem is None)
    if checked.problem is not None:
        on_note(f"this cluster is known, but its plan no longer holds ({checked.problem}): it is tuned anew")
        return path, _KnownPlan()
    plan, said = kept_plan(known.plan, checked)
    on_note(said)
    return path, _KnownPlan(holds=True, plan=plan)


@contextmanager
def told_to_all(world: World, bench: TorchBench) -> Iterator[None]:
    """Have all ranks raise what rank 0 gives up with while the others wait for its next command."""
    try:
        yield
    except TopotuneError as error:
        if bench.fail(error):
            world.watch.agree(error)
        raise


def followed(world: World, station: Station) -> None:
    """Do what rank 0 says.

    Raises:
        TopotuneError: it gave up with this error.
    """
    error = station.follow()
    if error is not None:
        world.watch.agree(error)
        raise error


def station_of(
    world: World, steps: StepRanks, log: Path | None, stack: ExitStack
) -> tuple[Station, NcclPlace | None]:
    """This rank's part in every measurement, and on NCCL what that would run on. Collective.

    Args:
        world: all ranks.
        steps: this rank's part in measuring training steps.
        log: NCCL's log of this process; None on gloo.
        stack: closes what is made here.
    """
    nodes = world.nodes.node_of_rank
    if log is None:
        station = Station(world.planned, world.raw, world.private, nodes, fresh_raw=world.fresh_raw)
        station.serve("step", steps.do)
        return station, None
    facts = Messages(world.private.group).gather(nccl_facts(world.private, log))
    place = combined_place(facts, nodes)
    engine = NcclEngine(world.private, place, log)
    on_gpu = GpuStation(world.planned, world.raw, world.private, nodes, world.fresh_raw, engine=engine)
    on_gpu.serve("step", steps.do)
    return stack.enter_context(closing(on_gpu)), place


@contextmanager
def nccl_log(backend: str) -> Iterator[Path | None]:
    """Have NCCL log what it runs into a file of this rank's, which is gone afterwards; None for gloo."""
    if backend != "nccl":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="topotune-nccl-") as folder:
        path = Path(folder) / "log"
        log_to(path)
        yield path


def _warnings_of(place: NcclPlace) -> tuple[str, ...]:
    """Why none of NCCL's settings is tried, where that is so."""
    why = why_no_settings(place)
    return () if why is None or place.num_nodes * place.ranks_per_node == 1 else (why,)


def step_ranks_of(world: World) -> StepRanks:
    """This rank's part in measuring training steps."""
    return StepRanks(
        world.planned,
        world.raw,
        Messages(world.private.group),
        world.nodes.node_of_rank,
        lambda: (world.fresh_planned(), world.fresh_raw()),
        spinner=CudaSpinner() if world.backend == "nccl" else None,
    )


def _link_model(
    world: World, options: TuneOptions, started_s: float, report: OnProgress, record: Record
) -> tuple[LinkModel | None, tuple[str, ...]]:
    """What the links cost, measured now or by an earlier launch; None for a single rank, which has none."""
    if world.num_ranks == 1:
        return None, ()
    if record.has_links:
        return _recorded_link_model(record, options)

    def share(done: float) -> None:
        passed_s = time.perf_counter() - started_s
        report(share_of_budget("links", passed_s, options.budget_s))

    measurement = measure_links(
        world.private.group,
        budget_s=min(_LINKS_MOST_S, _LINKS_SHARE * options.budget_s),
        flow_time=_flow_time(world, options),
        seed=options.seed,
        nodes=world.nodes,
        progress=share,
    )
    if record.journal is not None:
        record.journal.note("links", {"measurement": measurement_to_document(measurement)})
    if world.rank != 0:  # which alone needs more than the measuring; and ranks may outnumber cores
        return None, ()
    return fit_links(measurement, seed=options.seed), measurement.warnings


def _flow_time(world: World, options: TuneOptions) -> FlowTime | None:
    """What flows between the nodes may take; two nodes have no structure."""
    if max(world.nodes.node_of_rank) < 2:
        return None
    return FlowTime(
        first_s=min(_FLOWS_MOST_S, _FLOWS_SHARE * options.budget_s),
        fresh_s=min(_FRESH_MOST_S, _FRESH_SHARE * options.budget_s),
    )


def _recorded_link_model(record: Record, options: TuneOptions) -> tuple[LinkModel | None, tuple[str, ...]]:
    """Rank 0 alone needs it from here on."""
    if record.past.measurement is None:
        return None, ()
    measurement = measurement_from_document(record.past.measurement, str(options.journal_path))
    return fit_links(measurement, seed=options.seed), measurement.warnings


def _limit(model: LinkModel | None) -> Limit:
    if model is None:
        return _ONE_RANK
    bound = allreduce_bound(model)
    latency_s = model.least_latency_s(range(model.num_ranks))
    if isinstance(bound, NoBound):
        return Limit(no_bound_reason=bound.reason, latency_s=latency_s)
    return Limit(
        time_s=lambda message_bytes: float(bound.time_s(message_bytes)),
        bottleneck=Bottleneck(text=bound.text, cut=tuple(bound.cut)),
        latency_s=latency_s,
    )


def _plan(
    world: World,
    options: TuneOptions,
    arrangement: Arrangement,
    fingerprint: Fingerprint,
    choice: Choice,
    warnings: tuple[str, ...],
    elapsed_s: float,
) -> Plan:
    shape = shape_of(range(world.num_ranks), world.nodes.node_of_rank)
    return Plan(
        groups=(Group(shape=shape, allreduce=choice.rows),),
        fingerprint=fingerprint,
        certificate=choice.certificate,
        context=Context(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            topotune_version=__version__,
            seed=options.seed,
            budget_s=options.budget_s,
            elapsed_s=elapsed_s,
            versions={
                "numpy": np.__version__,
                "optuna": optuna.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
            },
            network=world.network.facts.get("interface"),
            interface=world.network.common if world.network.differs else None,
        ),
        links=() if arrangement.as_numbered is None else link_classes(arrangement.as_numbered),
        # Where the default is left everywhere nothing runs in the order.
        rank_order=arrangement.rank_order
        if any(row.algorithm != DEFAULT.algorithm for row in choice.rows)
        else None,
        warnings=(*world.nodes.warnings, *warnings, *choice.warnings),
    )

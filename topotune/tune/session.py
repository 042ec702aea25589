"""The two jobs as every rank runs them: ``tune_worker`` and ``compare_worker``.

All ranks call the same function, in the environment that torchrun gives. They join, and measure together;
rank 0 alone decides, and tells the others what to run. Payloads and results are JSON.
"""

import platform
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import optuna
import torch

from topotune import __version__
from topotune.bounds import NoBound, allreduce_bound
from topotune.errors import UsageError
from topotune.execute.fingerprint import RankFacts, combine_facts, local_facts
from topotune.execute.native import ALLGATHER_REDUCE_SCRATCH_BYTES
from topotune.links import fit_links, link_classes, measure_links
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
from topotune.schedule.candidates import candidates
from topotune.simulate import predict_candidate
from topotune.train.agreement import shape_of
from topotune.tune.compare import compare_plan, comparison_to_document
from topotune.tune.decide import Limit
from topotune.tune.journal import Journal
from topotune.tune.options import CompareOptions, TuneOptions
from topotune.tune.pipeline import Choice, choose_rows
from topotune.tune.progress import OnProgress, Progress
from topotune.tune.sampling import Sampling
from topotune.tune.timing import Station, TorchBench
from topotune.tune.trial import Candidate
from topotune.tune.world import World, joined_world

_LINKS_SHARE, _LINKS_MOST_S = 0.07, 4.0
"""Of the budget: what the links may take."""

_ONE_RANK: Final = Limit(no_bound_reason="a single rank exchanges nothing")


def tune_worker(
    payload: Mapping[str, Any], on_progress: OnProgress = lambda _progress: None
) -> dict[str, Any] | None:
    """Tune on this rank, together with all others.

    Args:
        payload: ``budget_s``, ``sizes`` (or None), ``min_gain``, ``seed``, ``backend``, ``journal_path``;
            each may be left out (`TuneOptions`).
        on_progress: called on rank 0, after each step.

    Returns:
        the plan's document on rank 0, None on the others.

    Raises:
        UsageError: an option out of its range.
        OutputFileError: the journal cannot be written.
        RunError: a rank was lost, or ranks could not be timed.
    """
    options = TuneOptions.from_payload(payload)
    with joined_world(None) as world:
        started_s = time.perf_counter()
        plan = _tune(world, options, started_s, on_progress)
    return None if plan is None else plan_to_document(plan)


def compare_worker(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """Compare a plan with the default on this rank, together with all others.

    Args:
        payload: ``plan_path``, and ``sizes`` (or None), ``budget_s``, ``seed``, which may be left out
            (`CompareOptions`).

    Returns:
        the document ``topotune/comparison`` on rank 0, None on the others.

    Raises:
        UsageError: an option out of its range, or a plan that does not fit these ranks.
        RunError: a rank was lost, or ranks could not be timed.
    """
    options = CompareOptions.from_payload(payload)
    with joined_world(options.plan_path) as world:
        started_s = time.perf_counter()
        agreement = world.planned.agreement
        assert agreement is not None
        if agreement.plan is None:
            raise UsageError(
                agreement.outcome, hint="topotune tune makes a plan for the cluster as it is now"
            )
        table = find_group(agreement.plan, agreement.shape())
        rows = () if table is None or table.allreduce is None else table.allreduce
        station = _station(world)
        if world.rank != 0:
            station.follow()
            return None
        bench = TorchBench(station, started_s=started_s)
        sampling = Sampling(bench=bench, rng=np.random.default_rng(options.seed))
        found, warnings = compare_plan(
            sampling,
            rows,
            options,
            algorithm_at=lambda size: find_row(rows, size).algorithm if rows else "default",
        )
        bench.end()
        warnings = [*([agreement.warning] if agreement.warning else []), *warnings]
        return comparison_to_document(
            found, num_ranks=world.num_ranks, plan=options.plan_path, warnings=warnings
        )


def _tune(world: World, options: TuneOptions, started_s: float, on_progress: OnProgress) -> Plan | None:
    report = on_progress if world.rank == 0 else lambda _progress: None
    facts = Messages(world.private.group).gather(asdict(local_facts(options.backend)))
    fingerprint = combine_facts([RankFacts(**fact) for fact in facts], world.nodes.node_of_rank)
    model, warnings = _link_model(world, options, started_s, report)
    station = _station(world)
    if world.rank != 0:
        station.follow()
        return None
    bench = TorchBench(station, started_s=started_s)
    with ExitStack() as stack:
        journal = None
        if options.journal_path is not None:
            header = {
                "topotune_version": __version__,
                "options": asdict(options),
                "seed": options.seed,
                "fingerprint": asdict(fingerprint),
            }
            journal = stack.enter_context(Journal(Path(options.journal_path), header))
        sampling = Sampling(bench=bench, rng=np.random.default_rng(options.seed), journal=journal)
        choice = choose_rows(
            sampling,
            options,
            _candidates(world),
            predicted_s=_predictor(model, options),
            limit=_limit(model),
            on_progress=report,
        )
    bench.end()
    return _plan(world, options, model, fingerprint, choice, warnings, bench.now_s())


def _station(world: World) -> Station:
    return Station(world.planned, world.raw, world.private, world.nodes.node_of_rank)


def _link_model(
    world: World, options: TuneOptions, started_s: float, report: OnProgress
) -> tuple[LinkModel | None, tuple[str, ...]]:
    """What the links cost; None for a single rank, which has none."""
    if world.num_ranks == 1:
        return None, ()

    def share(done: float) -> None:
        passed_s = time.perf_counter() - started_s
        report(
            Progress(
                phase="links",
                done=min(1.0, passed_s / options.budget_s),
                seconds_left=max(0.0, options.budget_s - passed_s),
            )
        )

    measurement = measure_links(
        world.private.group,
        budget_s=min(_LINKS_MOST_S, _LINKS_SHARE * options.budget_s),
        nodes=world.nodes,
        progress=share,
    )
    return fit_links(measurement, seed=options.seed), measurement.warnings


def _candidates(world: World) -> list[Candidate]:
    found = candidates(world.num_ranks, world.nodes.node_of_rank)
    return [Candidate.of(algorithm, params) for algorithm, params in found]


def _predictor(model: LinkModel | None, options: TuneOptions) -> Callable[[Candidate, int], float]:
    """The simulator's time of a candidate at a size; infinite where it does not take the size."""
    curves: dict[Candidate, dict[int, float]] = {}

    def predicted_s(candidate: Candidate, message_bytes: int) -> float:
        if model is None:
            return 0.0  # a single rank has the default alone, which exchanges nothing
        if candidate.algorithm == "native_allgather_reduce" and (
            message_bytes * model.num_ranks > ALLGATHER_REDUCE_SCRATCH_BYTES
        ):
            return float("inf")
        curve = curves.setdefault(candidate, {})
        if message_bytes not in curve:
            sizes = sorted({*options.sizes, message_bytes})
            times_s = predict_candidate(candidate.algorithm, candidate.params, model, sizes)
            curve.update(zip(sizes, times_s.tolist(), strict=True))
        return curve[message_bytes]

    return predicted_s


def _limit(model: LinkModel | None) -> Limit:
    if model is None:
        return _ONE_RANK
    bound = allreduce_bound(model)
    if isinstance(bound, NoBound):
        return Limit(no_bound_reason=bound.reason)
    return Limit(
        time_s=lambda message_bytes: float(bound.time_s(message_bytes)),
        bottleneck=Bottleneck(text=bound.text, cut=tuple(bound.cut)),
    )


def _plan(
    world: World,
    options: TuneOptions,
    model: LinkModel | None,
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
        ),
        links=() if model is None else link_classes(model),
        warnings=(*world.nodes.warnings, *warnings, *choice.warnings),
    )

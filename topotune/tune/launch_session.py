"""``tune`` and ``compare`` over several launches: what each does on its ranks, and how they are joined.

The first launch does the whole job in its share of the time. Each further one measures the same points again
on fresh processes. Rank 0's part between the launches is pure: payloads from results, and the document.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, Final

import numpy as np

from topotune.errors import TopotuneError
from topotune.plan import Plan, plan_from_document, plan_to_document
from topotune.tune.compare import joined_document
from topotune.tune.confirm import confirm
from topotune.tune.judge import Confirmation, Point
from topotune.tune.known import keep, known_path
from topotune.tune.launches import compared_samples, launch_warnings, points_of, settled
from topotune.tune.launches import samples_to_json as to_json
from topotune.tune.options import TuneOptions
from topotune.tune.progress import OnProgress
from topotune.tune.sampling import Sampling
from topotune.tune.session import (
    compare_worker,
    followed,
    nccl_log,
    station_of,
    step_ranks_of,
    told_to_all,
    tune_worker,
)
from topotune.tune.step_compare import joined_steps
from topotune.tune.timing import TorchBench
from topotune.tune.trial import Candidate
from topotune.tune.world import joined_world

_FURTHER_SHARE: Final = 0.3
"""Of a tuning run's budget: what all launches after the first may take together."""

_OVERHEAD: Final = 1.5
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 60
"""Of a point in a further launch: a launch counts as one block, whose middle a few rounds tell."""


def tune_payload(
    payload: Mapping[str, Any], num_launches: int, number: int, results: Sequence[Any]
) -> dict[str, Any] | None:
    """What a launch of ``tune`` is called with; None where there is nothing to measure again.

    Args:
        payload: of the verb.
        num_launches: in all.
        number: of the launch.
        results: of those before; None on ranks other than 0.
    """
    budget_s = float(payload["budget_s"])
    if number == 0:
        # A plan that is known was not confirmed over launches, or over fewer.
        return {**payload, "launch": 0, "fresh": True, "budget_s": (1 - _FURTHER_SHARE) * budget_s}
    share_s = _FURTHER_SHARE * budget_s / (num_launches - 1)
    first = results[0]
    if first is None:
        return {"launch": number, "budget_s": share_s, "backend": payload["backend"]}
    plan = plan_from_document(first["plan"], "the first launch's plan")
    rows = plan.groups[0].allreduce or ()
    wanted = set(points_of(rows))
    points = [
        {
            **{name: one[name] for name in ("message_bytes", "candidate", "searched")},
            "call_s": max(float(np.median(one["default_s"])), float(np.median(one["other_s"]))),
        }
        for one in first["samples"]
        if (
            one["message_bytes"],
            Candidate.of(one["candidate"]["algorithm"], one["candidate"]["params"]),
        )
        in wanted
    ]
    if not points:
        return None
    return {
        "launch": number,
        "budget_s": share_s,
        "backend": payload["backend"],
        "points": points,
        "rank_order": plan.rank_order,
        "min_gain": payload["min_gain"],
        "seed": int(payload["seed"]) + number,
    }


def tune_launch(
    payload: Mapping[str, Any],
    on_progress: OnProgress,
    on_network: Callable[[str], None],
    say: Callable[[TopotuneError], None],
    on_note: Callable[[str], None],
) -> dict[str, Any] | None:
    """One launch of ``tune`` on this rank: ``plan`` (of the first alone) and ``samples`` on rank 0."""
    given = dict(payload)
    if given.pop("launch") == 0:
        taken: list[list[dict[str, Any]]] = [[]]
        document = tune_worker(
            given,
            on_progress,
            on_network,
            say,
            on_note,
            on_confirmed=lambda found: taken.append(to_json(found)),
            keeps=False,
        )
        return None if document is None else {"plan": document, "samples": taken[-1]}
    with (
        nccl_log(payload["backend"]) as log,
        joined_world(None, on_network, say, payload["backend"]) as world,
        closing(step_ranks_of(world)) as steps,
        ExitStack() as stack,
    ):
        started_s = time.perf_counter()
        station, _ = station_of(world, steps, log, stack)
        if world.rank != 0:
            followed(world, station)
            return None
        bench = TorchBench(station, started_s=started_s)
        order = payload["rank_order"]
        bench.arrange(None if order is None else tuple(order))
        sampling = Sampling(bench=bench, rng=np.random.default_rng(payload["seed"]))
        with told_to_all(world, bench):
            found = confirm(
                _points(payload["points"], payload["budget_s"]),
                sampling,
                min_gain=payload["min_gain"],
                seed=payload["seed"],
                deadline_s=payload["budget_s"],
            )
        bench.end()
        return {"samples": to_json(found)}


def _points(points: Sequence[Mapping[str, Any]], budget_s: float) -> list[Point]:
    """Points with as many rounds as the time of this launch holds; at least a few."""
    round_s = [_OVERHEAD * 2 * one["call_s"] for one in points]
    affordable = int(budget_s / max(1e-9, sum(round_s)))
    return [
        Point(
            message_bytes=one["message_bytes"],
            candidates=(Candidate.of(one["candidate"]["algorithm"], one["candidate"]["params"]),),
            searched=one["searched"],
            num_rounds=max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, affordable)),
            round_s=own_s,
            call_s=one["call_s"],
        )
        for one, own_s in zip(points, round_s, strict=True)
    ]


def tuned_document(
    payload: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """The plan that all launches together give, and what is to be said; the plan is kept, too."""
    plan = plan_from_document(results[0]["plan"], "the first launch's plan")
    plan = replace(plan, context=replace(plan.context, budget_s=float(payload["budget_s"])))
    notes: list[str] = []
    if len(results) > 1:
        before = len(plan.warnings)
        plan = settled(
            plan,
            [one["samples"] for one in results],
            min_gain=payload["min_gain"],
            seed=int(payload["seed"]),
        )
        lost = len(plan.warnings) - before
        notes.append(
            f"{len(results)} launches: "
            + ("all rows hold" if lost == 0 else f"{lost} rows went back to the default")
        )
        notes += launch_warnings(len(results))
    if (problem := _keep(plan, payload)) is not None:
        notes.append(problem)
    return plan_to_document(plan), notes


def _keep(plan: Plan, payload: Mapping[str, Any]) -> str | None:
    options = TuneOptions.from_payload(payload)
    gradients = None if options.step is None else options.step.gradients()
    path = known_path(os.environ, plan.fingerprint, options, gradients)
    return None if path is None else keep(path, plan)


def compare_payload(payload: Mapping[str, Any], num_launches: int, number: int) -> dict[str, Any]:
    """What a launch of ``compare`` is called with: its share of the time."""
    return {
        **payload,
        "budget_s": float(payload["budget_s"]) / num_launches,
        "seed": int(payload["seed"]) + number,
    }


def compare_launch(
    payload: Mapping[str, Any],
    on_progress: OnProgress,
    on_network: Callable[[str], None],
    say: Callable[[TopotuneError], None],
) -> dict[str, Any] | None:
    """One launch of ``compare`` on this rank: ``document``, ``samples`` by table and ``step_s`` on rank 0."""
    samples: dict[str, list[dict[str, Any]]] = {}
    step_s: list[list[float]] = []

    def on_compared(name: str, found: Sequence[Confirmation]) -> None:
        samples[name] = to_json(found)

    document = compare_worker(
        payload,
        on_network,
        say,
        on_progress,
        on_compared=on_compared,
        on_step=lambda block: step_s.extend(side_s.tolist() for side_s in block),
    )
    return None if document is None else {"document": document, "samples": samples, "step_s": step_s}


def compared_document(payload: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The comparison that all launches together give."""
    seed = int(payload["seed"])
    names = results[0]["samples"]
    found = {name: compared_samples([one["samples"][name] for one in results], seed=seed) for name in names}
    with_step = [one for one in results if one["step_s"]]
    step = joined_steps(
        [one["document"]["step"] for one in with_step],
        [(np.array(one["step_s"][0]), np.array(one["step_s"][1])) for one in with_step],
        seed=seed,
    )
    document = joined_document([one["document"] for one in results], found, step)
    return {**document, "warnings": [*document["warnings"], *launch_warnings(len(results))]}

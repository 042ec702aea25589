"""Clusters that were tuned before: their plans, kept under ``TOPOTUNE_HOME``, and whether they still hold.

Theory of operation. Where TOPOTUNE_HOME names a folder, a run leaves its plan there, under a name made of
what the plan is for: the whole fingerprint, sizes, margin, gradients, and the version of topotune. The next
run on that cluster that asks for the same, in no more time, finds it and checks it again instead of tuning:
on fresh samples every row that is not the default must win again by the rule of confirmation, and the default
must take about as long as it did. Whatever does not hold is told, and the run tunes as if nothing were known.

Nothing in the folder is trusted: a plan there is read as any other, must be of this very cluster, and what is
wrong with it is one line of a run that goes on. Rank 0 alone looks; what it found, all ranks are told.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from topotune import __version__
from topotune.errors import PlanError, TopotuneError
from topotune.files import write_whole
from topotune.plan import (
    SCHEMA,
    Fingerprint,
    GroupShape,
    Plan,
    Row,
    compare_fingerprints,
    find_group,
    load_plan,
)
from topotune.plan.document import file_bytes
from topotune.step.gradients import Gradients, gradients_to_document
from topotune.tune.confirm import confirm
from topotune.tune.judge import CONFIDENCE, PASSES, Confirmation, Point
from topotune.tune.options import TuneOptions, collectives_of
from topotune.tune.plan_rounds import interpolated
from topotune.tune.sampling import Sampling
from topotune.tune.statistics import corrected, minimum_rounds
from topotune.tune.trial import DEFAULT, Candidate
from topotune.units import format_bytes, format_seconds

HOME: Final = "TOPOTUNE_HOME"
_FOLDER: Final = "plans"

_LONGEST_S, _LONGEST_SHARE = 10.0, 0.15
"""What checking again may take, in seconds and of the budget: the smaller one."""

_OVERHEAD: Final = 1.5
_MORE_ROUNDS: Final = 4
"""Beyond the fewest that can bound an interval."""

_AS_BEFORE: Final = 1.5
"""The default must take between a this-th and this many times what it took when the plan was made …"""

_DEFAULT_ROUNDS: Final = 5
"""… by the median of so many calls, or of as many more."""

_LEAST_LIMIT_S, _PATIENCE = 2.0, 10.0
"""A candidate's call is cut off after this many times what it took then, but not before so many seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What a folder knows of a cluster.

    Attributes:
        plan: None where there is none that could hold.
        note: why a plan that is there is not used, one line; None where there is nothing to say.
    """

    plan: Plan | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Recheck:
    """What came of checking a plan again.

    Attributes:
        problem: why it does not hold, one line; None where it does.
        num_rows, num_checked: rows that are not the default, and how many of them were measured again.
        took_s: how long that took.
    """

    problem: str | None
    num_rows: int
    num_checked: int
    took_s: float


def known_path(
    environment: Mapping[str, str],
    fingerprint: Fingerprint,
    options: TuneOptions,
    gradients: Gradients | None,
) -> Path | None:
    """Where the plan for this cluster and these options is kept; None where TOPOTUNE_HOME is not set.

    Also None where tables beside the world's allreduce are asked for: only that one is checked again.
    """
    home = environment.get(HOME)
    if not home or collectives_of(options.groups, options.collectives) != ("allreduce",):
        return None
    asked = {
        "fingerprint": asdict(fingerprint),
        "sizes": options.sizes,
        "min_gain": options.min_gain,
        "gradients": None if gradients is None else gradients_to_document(gradients),
        "compute": None if options.step is None else options.step.compute_on(options.backend),
        "topotune_version": __version__,
    }
    name = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]
    return Path(os.path.expanduser(home), _FOLDER, f"{name}.json")


def find_known(path: Path, fingerprint: Fingerprint, shape: GroupShape, options: TuneOptions) -> Known:
    """The plan that is kept there, if it could hold here.

    Args:
        path: from `known_path`.
        fingerprint: of the cluster as it is now.
        shape: of the group of all ranks.
        options: of this run.
    """
    if not os.path.exists(path):
        return Known()
    try:
        plan = load_plan(path)
    except PlanError as error:
        return Known(note=f"what is kept of this cluster cannot be used: {error.message}")
    verdict = compare_fingerprints(plan.fingerprint, fingerprint)
    differences = [*verdict.hard, *verdict.soft]
    if differences:
        return Known(note=f"{path} is of another cluster ({differences[0]}) and is not used")
    table = find_group(plan, shape)
    if table is None or table.allreduce is None:
        return Known(note=f"{path} has no table for these ranks and is not used")
    if plan.context.budget_s < options.budget_s:
        return Known(
            note=f"this cluster is known, by a plan that had {format_seconds(plan.context.budget_s)}; "
            f"--budget {format_seconds(options.budget_s)} asks for more, so it is tuned anew"
        )
    return Known(plan=plan)


def keep(path: Path, plan: Plan) -> str | None:
    """Keep a plan for later runs; why that was not possible, one line, or None."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            return f"the plan was not kept: {path} is a symbolic link"
        write_whole(path, file_bytes(plan), force=True, renews=SCHEMA)
    except (OSError, TopotuneError) as error:
        return f"the plan was not kept in {HOME}: {error}"
    return None


def recheck(plan: Plan, rows: Sequence[Row], sampling: Sampling, options: TuneOptions) -> Recheck:
    """Measure again, on fresh samples, whether a plan still holds.

    Args:
        plan: of this very cluster.
        rows: its table for these ranks.
        sampling: where samples come from; ranks stand in the plan's order.
        options: of this run.
    """
    began_s = sampling.now_s()
    measured = [row for row in rows if row.evidence is not None and not row.evidence.extrapolated]
    default_s = {
        row.evidence.measured_bytes: row.evidence.default_median_s for row in measured if row.evidence
    }
    departing = [row for row in rows if row.algorithm != DEFAULT.algorithm]
    # What a call took then, or the default's time.
    sampling.limit_s = lambda _candidate, size: max(
        _LEAST_LIMIT_S, _PATIENCE * (interpolated(default_s, size) if default_s else 0.0)
    )
    limit_s = min(_LONGEST_S, _LONGEST_SHARE * options.budget_s)
    points = _points([row for row in measured if row.algorithm != DEFAULT.algorithm], limit_s)
    problem = None
    if len(points) < min(1, len(departing)):
        problem = f"checking any row again would take more than {format_seconds(limit_s)}"
    else:
        sizes = _affordable(default_s, limit_s)
        problem = _changed_default(sizes, default_s, sampling)
    if problem is None and points:
        found = confirm(points, sampling, min_gain=options.min_gain, seed=options.seed, deadline_s=math.inf)
        problem = _lost(points, found)
    return Recheck(
        problem=problem,
        num_rows=len(departing),
        num_checked=len(points),
        took_s=sampling.now_s() - began_s,
    )


def kept_plan(plan: Plan, checked: Recheck) -> tuple[Plan, str]:
    """The plan that a run gives out in place of a new one; and what it says of that."""
    rows = f"{checked.num_checked} of {checked.num_rows} rows" if checked.num_rows else "the default"
    said = (
        f"this cluster is known: the plan of {plan.context.created} was checked again ({rows}) in "
        f"{format_seconds(checked.took_s)} and holds; --fresh tunes anew"
    )
    former = tuple(line for line in plan.warnings if not line.startswith("this cluster is known: "))
    return replace(plan, warnings=(*former, said)), said


def _points(rows: Sequence[Row], limit_s: float) -> list[Point]:
    """One point a row, at the size of its evidence; the cheapest, as many as fit."""
    rounds = minimum_rounds(corrected(CONFIDENCE, len(rows))) + _MORE_ROUNDS
    points = []
    for row in rows:
        assert row.evidence is not None
        calls_s = row.evidence.default_median_s + row.evidence.median_s
        points.append(
            Point(
                message_bytes=row.evidence.measured_bytes,
                candidates=(Candidate.of(row.algorithm, row.params),),
                searched=True,
                num_rounds=rounds,
                round_s=_OVERHEAD * calls_s,
                call_s=max(row.evidence.default_median_s, row.evidence.median_s),
            )
        )
    taken: list[Point] = []
    for point in sorted(points, key=lambda one: one.round_s):
        limit_s -= (rounds + PASSES) * point.round_s
        if limit_s < 0:
            break
        taken.append(point)
    return sorted(taken, key=lambda one: one.message_bytes)


def _affordable(default_s: Mapping[int, float], limit_s: float) -> list[int]:
    """Sizes at which the default is timed again, ascending: those of which ten calls are short."""
    return [size for size, time_s in sorted(default_s.items()) if 10 * time_s * len(default_s) <= limit_s]


def _changed_default(sizes: Sequence[int], default_s: Mapping[int, float], sampling: Sampling) -> str | None:
    for size in sizes:
        then_s = default_s[size]
        taken: list[float] = []
        for _ in range(2):
            times_s = sampling.rounds("pilot", size, (DEFAULT,), _DEFAULT_ROUNDS, first_guess_s=then_s)
            taken.extend(times_s[:, 0].tolist())
            now_s = float(np.median(taken))
            if then_s / _AS_BEFORE <= now_s <= then_s * _AS_BEFORE:
                break
        else:
            return (
                f"the default takes {format_seconds(now_s)} at {format_bytes(size)}, "
                f"and took {format_seconds(then_s)} then"
            )
    return None


def _lost(points: Sequence[Point], found: Sequence[Confirmation]) -> str | None:
    """The first row that did not win again, in words."""
    passed = {one.message_bytes for one in found if one.passed}
    seen: dict[int, Any] = {one.message_bytes: one.comparison for one in found}
    for point in points:
        if point.message_bytes in passed:
            continue
        what = f"{point.candidates[0].label} at {format_bytes(point.message_bytes)}"
        if point.message_bytes not in seen:
            return f"{what} could not be measured again"
        ratio = seen[point.message_bytes]
        return f"{what} is {ratio.ratio:.2f} times as fast as the default, {ratio.low:.2f} at least"
    return None

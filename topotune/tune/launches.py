"""Several launches of the ranks, each on fresh processes: their samples together, a launch as a block.

Theory of operation. Launches of the same job differ by more than rounds of one launch do (Hunold and
Carpen-Amarie 2014), and no number of rounds tells by how much. So each further launch measures the same
points again, and the samples of a launch make one block: a launch is the unit, and a point's interval is
widened by what its own launches scatter, moderated by what those of all points do (`compare_launches`). A row
of a plan that does not clear the margin over all launches goes back to the default, and so does one that is
left without the support that `topotune.tune.smoothing` asks for. Its first launch chose it, so that its
samples are high by choice; the intervals pay for all that it was chosen from.

Samples travel between processes as JSON: by size and candidate, the default's times and the other's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from topotune.plan import Plan, Row
from topotune.tune.blocks import Block
from topotune.tune.dispatch_cost import COSTS_MORE
from topotune.tune.judge import Confirmation, Point, PointSamples, judge, margin_twice_over
from topotune.tune.smoothing import smoothed
from topotune.tune.trial import DEFAULT, Candidate
from topotune.units import format_bytes

_TELLING: Final = 3
"""So many tell how far launches differ, also where rows are not alike (`topotune.tune.blocks`)."""

_METHOD: Final = (
    "; all of this is of the first launch; confirmed over {} launches, each on fresh processes, "
    "a launch as a block"
)


def launch_warnings(num_launches: int) -> list[str]:
    """What is to be said of how many there were."""
    if num_launches >= _TELLING:
        return []
    return [f"{num_launches} launches hardly tell how far launches differ: --launches {_TELLING} does"]


def samples_to_json(confirmations: Sequence[Confirmation]) -> list[dict[str, Any]]:
    """What a launch measured."""
    return [
        {
            "message_bytes": one.message_bytes,
            "candidate": one.candidate.to_json(),
            "searched": one.searched,
            "default_s": np.concatenate([default for default, _ in one.blocks]).tolist(),
            "other_s": np.concatenate([other for _, other in one.blocks]).tolist(),
        }
        for one in confirmations
        if one.blocks
    ]


def points_of(rows: Sequence[Row]) -> list[tuple[int, Candidate]]:
    """Where the rows of a plan that are not the default were confirmed; ascending."""
    found: dict[tuple[int, Candidate], None] = {}
    for row in rows:
        if row.algorithm == DEFAULT.algorithm or row.evidence is None:
            continue
        candidate = Candidate.of(row.algorithm, row.params)
        for size in row.evidence.confirmed_bytes or (row.evidence.measured_bytes,):
            found[size, candidate] = None
    return sorted(found, key=lambda key: key[0])


def joined_samples(launches: Sequence[Sequence[Mapping[str, Any]]]) -> list[PointSamples]:
    """All launches together: of each point that every launch measured, a block a launch."""
    blocks: dict[tuple[int, Candidate], list[Block]] = {}
    searched: dict[tuple[int, Candidate], bool] = {}
    for launch in launches:
        for one in launch:
            candidate = Candidate.of(one["candidate"]["algorithm"], one["candidate"]["params"])
            key = (int(one["message_bytes"]), candidate)
            default_s, other_s = (np.array(one[name], dtype=np.float64) for name in ("default_s", "other_s"))
            blocks.setdefault(key, []).append((default_s, other_s))
            searched.setdefault(key, bool(one["searched"]))
    return [
        PointSamples(
            point=Point(message_bytes=key[0], candidates=(key[1],), searched=searched[key]),
            candidate=key[1],
            blocks=tuple(own),
        )
        for key, own in sorted(blocks.items(), key=lambda item: item[0][0])
        if len(own) == len(launches)
    ]


def settled(
    plan: Plan, launches: Sequence[Sequence[Mapping[str, Any]]], *, min_gain: float, seed: int
) -> Plan:
    """The plan with what holds over all launches.

    Args:
        plan: of the first launch; its world group's allreduce table is settled.
        launches: samples of each launch, the first first, with all that it confirmed or tried to.
        min_gain: the margin.
        seed: of the bootstrap.
    """
    rows = plan.groups[0].allreduce
    assert rows is not None
    wanted = points_of(rows)
    known = set(wanted)
    samples = [one for one in joined_samples(launches) if (one.point.message_bytes, one.candidate) in known]
    judged, lone = smoothed(
        judge(
            samples,
            # Rows that did not win in the first launch were chances to win by luck, too.
            num_comparisons=max(len(wanted), len(launches[0])),
            min_gain=min_gain,
            seed=seed,
            of_launches=True,
        ),
        # Where the default begins, something did not hold in the first launch.
        tested_bytes=[
            *(size for size, _ in wanted),
            *(row.min_bytes for row in rows if row.algorithm == DEFAULT.algorithm),
        ],
        searched_bytes=_searched_bytes(rows, samples),
        min_gain=min_gain,
    )
    found = {(one.message_bytes, one.candidate): one for one in judged}
    alone = {(one.message_bytes, one.candidate) for each in lone for one in each.confirmed}
    warnings = []
    kept_rows = []
    for row in rows:
        candidate = Candidate.of(row.algorithm, row.params)
        if row.algorithm == DEFAULT.algorithm or row.evidence is None:
            kept_rows.append(row)
            continue
        sizes = row.evidence.confirmed_bytes or (row.evidence.measured_bytes,)
        # What is taken over at larger sizes has to clear the margin twice over (`topotune.tune.inherit`).
        least = margin_twice_over(min_gain) if row.evidence.extrapolated else 1 + min_gain
        lost = [
            size
            for size in sizes
            if (one := found.get((size, candidate))) is None or not one.passed or one.comparison.low < least
        ]
        if lost:
            where = f"not at {format_bytes(lost[0])}"
            if (lost[0], candidate) in alone:
                where = "at no two neighbouring sizes, nor by the margin twice over"
            warnings.append(
                f"{candidate.label} from {format_bytes(row.min_bytes)} on won in the first launch, but over "
                f"{len(launches)} launches {where}: the default stays there"
            )
            kept_rows.append(_as_default(row))
            continue
        shown = found[row.evidence.measured_bytes, candidate].comparison
        evidence = replace(
            row.evidence,
            median_s=shown.median_s,
            default_median_s=shown.default_median_s,
            ratio=shown.ratio,
            ratio_ci=(shown.low, shown.high),
            num_samples=shown.num_rounds,
        )
        share = row.percent_of_optimum
        if share is not None:
            share *= row.evidence.median_s / shown.median_s
        kept_rows.append(replace(row, evidence=evidence, percent_of_optimum=share))
    said = plan.warnings
    if warnings:
        # From which size on the backend is worth using, it said by rows that are lost.
        said = tuple(line for line in said if not line.startswith(COSTS_MORE))
        if plan.ddp is not None and plan.ddp.bucket_caps_mb is not None:
            warnings.append(
                "DDP's buckets were chosen with rows of the first launch that did not hold: "
                "topotune compare --step tries them under the rows that are left"
            )
    world = replace(plan.groups[0], allreduce=tuple(kept_rows))
    has_departures = any(row.algorithm != DEFAULT.algorithm for row in kept_rows)
    return replace(
        plan,
        groups=(world, *plan.groups[1:]),
        rank_order=plan.rank_order if has_departures else None,
        certificate=replace(plan.certificate, method=plan.certificate.method + _METHOD.format(len(launches))),
        warnings=(*said, *warnings),
    )


def _searched_bytes(rows: Sequence[Row], samples: Sequence[PointSamples]) -> set[int]:
    """Sizes of the search: those that the rows were measured at, and those inside of their ranges."""
    measured = {row.evidence.measured_bytes for row in rows if row.evidence is not None}
    return measured | {one.point.message_bytes for one in samples if one.point.searched}


def _as_default(row: Row) -> Row:
    """The default in the range of a row, with what it took there."""
    assert row.evidence is not None
    share = row.percent_of_optimum
    if share is not None:
        share *= row.evidence.median_s / row.evidence.default_median_s
    return replace(
        row,
        algorithm=DEFAULT.algorithm,
        params={},
        percent_of_optimum=share,
        evidence=replace(
            row.evidence,
            median_s=row.evidence.default_median_s,
            ratio=1.0,
            ratio_ci=(1.0, 1.0),
            predicted_s=None,
            confirmed_bytes=(),
            backward_ratio_ci=None,
            busy_ratio=None,
        ),
    )


def compared_samples(launches: Sequence[Sequence[Mapping[str, Any]]], *, seed: int) -> list[Confirmation]:
    """A plan against the default over all launches; intervals hold all at once."""
    samples = joined_samples(launches)
    return judge(
        samples,
        num_comparisons=max(1, len(samples)),
        min_gain=0.0,
        seed=seed,
        correction="bonferroni",
        of_launches=True,
    )

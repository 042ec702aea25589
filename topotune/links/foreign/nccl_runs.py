"""Runs of nccl-tests, as text or JSON tells them → figures; how many ranks took part, and what cannot be.

Theory of operation. nccl-tests prints algorithm and bus bandwidth, and their ratio depends on the number of
ranks alone. So a table proves that number, even where the list of ranks is cut or was left out; and where
both are there, one checks the other. Each bandwidth is known to half a unit of its last digit, which makes an
interval of numbers of ranks of every row; the rows' intersection mostly holds one whole number.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from topotune.errors import InputFileError
from topotune.links.figures import Collective, CollectiveFigure, busbw_factor
from topotune.links.foreign.reading import MAX_FIGURES, MAX_RANKS, Figure, FigureReading
from topotune.probe.faults import Faults

COLLECTIVE_OF_PROGRAM: Final[dict[str, Collective]] = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "alltoall",
    "alltoallv": "alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "sendrecv",
    "hypercube": "hypercube",
}
"""``all_reduce_perf`` and its like, without ``_perf``."""

_BUFFER_IS_MESSAGE = ("allreduce", "broadcast", "reduce")
_SLACK = 1e-6
_ABOUT_ONE = 0.98  # no gather or scatter of fewer than 50 ranks has a ratio above, of more none reaches 1


@dataclass(kw_only=True, slots=True)
class Half:
    """One side of a row: out of place, or in place. Rates are in bytes/s, times in s."""

    in_place: bool
    time: Figure
    algbw: Figure | None = None
    busbw: Figure | None = None
    num_wrong: int | None = None
    max_error: float | None = None
    min_s: float | None = None
    max_s: float | None = None
    samples_s: tuple[float, ...] = ()


@dataclass(kw_only=True, slots=True)
class Row:
    """One size, and where it stands."""

    place: str
    message_bytes: int
    dtype: str | None
    op: str | None
    root: int | None
    halves: list[Half]


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRank:
    """A line of the list of devices."""

    rank: int
    group: int
    host: str | None
    model: str | None


@dataclass(kw_only=True, slots=True)
class Run:
    """What belongs together: one start of a benchmark.

    Attributes:
        program: ``all_reduce``, where it is named.
        options: as printed at its start.
        num_iterations: of each size.
        max_bytes: largest size that was asked for.
        average: bus bandwidth over all rows and both halves, as stated.
        concluded: whether what follows the last row is there.
    """

    program: str | None = None
    options: str | None = None
    num_iterations: int | None = None
    max_bytes: int | None = None
    ranks: dict[int, ListedRank] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    average: Figure | None = None
    concluded: bool = False

    @property
    def hosts(self) -> tuple[str, ...]:
        """By rank, where all ranks from 0 are listed with their hosts; else empty."""
        listed = [self.ranks[rank].host for rank in sorted(self.ranks)]
        hosts = tuple(host for host in listed if host is not None)
        return hosts if len(hosts) == self.num_listed else ()

    @property
    def num_listed(self) -> int:
        """How many there are at least: the highest listed rank and those below."""
        return max(self.ranks, default=-1) + 1


def reading_of(runs: Iterable[Run], facts: dict[str, str], source: str, faults: Faults) -> FigureReading:
    """All runs of one file → what it proves.

    Raises:
        InputFileError: no run has rows, none says which collective it is, or there are too many rows.
    """
    runs = [run for run in runs if run.rows]
    if not runs:
        raise InputFileError(
            source,
            "has the heading of nccl-tests' table and no row below it",
            hint="the run ended before its first size; its error message says why",
        )
    if sum(len(run.rows) for run in runs) > MAX_FIGURES // 2:
        raise InputFileError(source, f"has more than {MAX_FIGURES // 2} rows")
    figures: list[CollectiveFigure] = []
    groups: set[int] = set()
    for number, run in enumerate(runs):
        collective = _collective(run)
        if collective is None:
            faults.add(
                "left out, runs that do not say which collective they are of (--format does not help; the "
                "line “Collective test starting” or the program's name would)",
                run.rows[0].place,
            )
            continue
        num_ranks = _num_ranks(run, collective, faults)
        groups.add(num_ranks or 0)
        _check(run, collective, faults)
        figures += _figures(run, number, collective, num_ranks)
    if not figures:
        raise InputFileError(
            source,
            "does not say which collective its times are of",
            place=runs[0].rows[0].place,
            hint="keep the line “Collective test starting: all_reduce_perf”, or the command, in the file",
        )
    if len(runs) > 1:
        facts = {**facts, "num_runs": str(len(runs))}
    num_ranks_of_all = groups.pop() if len(groups) == 1 else 0
    if groups:
        faults.add("runs of different numbers of ranks; each figure says its own")
    hosts = runs[0].hosts
    placed = num_ranks_of_all == len(hosts) > 0 and all(run.hosts == hosts for run in runs)
    names = tuple(dict.fromkeys(hosts)) if placed else ()
    node_of = {name: node for node, name in enumerate(names)}
    return FigureReading(
        num_ranks=num_ranks_of_all,
        node_of_rank=tuple(node_of[host] for host in hosts) if placed else (),
        node_names=names,
        collectives=tuple(figures),
        facts=facts,
        warnings=faults.warnings(),
    )


def _figures(
    run: Run, number: int, collective: Collective, num_ranks: int | None
) -> Iterable[CollectiveFigure]:
    num_nodes = len(set(run.hosts)) if run.hosts and num_ranks == len(run.hosts) else None
    for row in run.rows:
        for half in row.halves:
            yield CollectiveFigure(
                collective=collective,
                message_bytes=row.message_bytes,
                time_s=half.time.value,
                in_place=half.in_place,
                num_ranks=num_ranks,
                num_nodes=num_nodes,
                algbw_bytes_per_s=None if half.algbw is None else half.algbw.value,
                busbw_bytes_per_s=None if half.busbw is None else half.busbw.value,
                num_wrong=half.num_wrong,
                max_error=half.max_error,
                dtype=row.dtype,
                op=row.op,
                root=row.root,
                num_iterations=run.num_iterations,
                min_s=half.min_s,
                max_s=half.max_s,
                samples_s=half.samples_s,
                run=number,
            )


# -- which collective, and how many ranks


def _collective(run: Run) -> Collective | None:
    """By its program's name; else by what the table can be of alone.

    The ratio of bandwidths is above 1 for allreduce alone, and 1 for reduce and broadcast, which have a root;
    a reduction below 1 is a reduce_scatter. Two ranks' allreduce has the ratio 1 of sendrecv, without a root
    either; the others below 1 cannot be told apart.
    """
    if run.program is not None:
        return COLLECTIVE_OF_PROGRAM.get(run.program)
    ratios = _ratios(run)
    lowest = max((ratio[0] for ratio in ratios), default=0.0)
    highest = min((ratio[1] for ratio in ratios), default=math.inf)
    reduces = {row.op not in (None, "none") for row in run.rows}
    rooted = {row.root is not None for row in run.rows}
    if reduces == {True} and rooted == {False}:
        return "allreduce" if lowest > 1 else "reduce_scatter" if highest < 1 else None
    if rooted == {True} and len(reduces) == 1 and lowest > _ABOUT_ONE and highest >= 1:
        return "reduce" if reduces == {True} else "broadcast"
    return None


def _ratios(run: Run) -> list[tuple[float, float, str]]:
    """Least and greatest bus over algorithm bandwidth of every half that shows it, and its place."""
    ratios = []
    for row in run.rows:
        for half in row.halves:
            bus, algorithm = half.busbw, half.algbw
            if bus is None or algorithm is None or not algorithm.value > 2 * algorithm.error:
                continue
            least = max(0.0, bus.value - bus.error) / (algorithm.value + algorithm.error)
            ratios.append((least, (bus.value + bus.error) / (algorithm.value - algorithm.error), row.place))
    return ratios


def _num_ranks(run: Run, collective: Collective, faults: Faults) -> int | None:
    """By the list of ranks and by the bandwidths, which must agree; None where neither or both tell."""
    ratios = _ratios(run)
    implied, odd = _implied(ratios, collective)
    if odd:
        faults.add(
            f"busbw is not algbw × the factor of {collective} on one number of ranks", ", ".join(odd[:3])
        )
    listed = run.num_listed
    per_group = _ranks_per_group(run)
    if per_group is not None:
        faults.add(
            f"ranks were split into groups of {per_group}, which ran at once: figures are of one group"
        )
    if not listed:
        return implied
    whole = len(run.ranks) == listed
    if implied is None:
        if ratios and not odd and not _fits(ratios, collective, per_group or listed):
            faults.add(
                f"busbw / algbw is {_shown(ratios)}, which on the {listed} ranks listed it cannot be",
                run.rows[0].place,
            )
            return None
        if not whole:
            faults.add(f"the list of ranks has gaps: {len(run.ranks)} of at least {listed}")
        return per_group or (listed if whole else None)
    if implied in (listed, per_group):
        return implied
    if implied > listed and not whole:
        faults.add(f"the list of ranks is cut: {len(run.ranks)} of {implied}, by busbw / algbw")
        return implied
    faults.add(
        f"the list has {listed} ranks, and busbw / algbw = {_shown(ratios)} is that of {implied}: "
        "the number of ranks is left open"
    )
    return None


def _ranks_per_group(run: Run) -> int | None:
    """Where the ranks were split into several groups of one size: that size."""
    sizes = Counter(rank.group for rank in run.ranks.values())
    alike = len(sizes) > 1 and len(set(sizes.values())) == 1
    return next(iter(sizes.values())) if alike else None


def _implied(
    ratios: Sequence[tuple[float, float, str]], collective: Collective
) -> tuple[int | None, list[str]]:
    """The only number of ranks that the bandwidths allow, if there is one; places of rows that differ."""
    if busbw_factor(collective, 2) == busbw_factor(collective, 3):
        return None, [place for least, most, place in ratios if not least - _SLACK <= 1.0 <= most + _SLACK]
    ranges = [
        (_ranks_of(least, collective), _ranks_of(most, collective), place) for least, most, place in ratios
    ]
    if not ranges:
        return None, []
    low, high = max(low for low, _, _ in ranges), min(high for _, high, _ in ranges)
    if low < math.inf and math.ceil(low - _SLACK) <= math.floor(min(high, 2.0 * MAX_RANKS) + _SLACK):
        only = math.ceil(low - _SLACK) == math.floor(min(high, 2.0 * MAX_RANKS) + _SLACK)
        return (math.ceil(low - _SLACK) if only and high < math.inf else None), []
    votes = Counter(
        math.ceil(low - _SLACK)
        for low, high, _ in ranges
        if high < math.inf and math.ceil(low - _SLACK) == math.floor(high + _SLACK)
    )
    most, number = votes.most_common(1)[0] if votes else (0, 0)
    agreed = most if 2 * number > len(ranges) / 2 and number > 1 else None
    odd = [
        place for low, high, place in ranges if agreed is None or not low - _SLACK <= agreed <= high + _SLACK
    ]
    return agreed, list(dict.fromkeys(odd))


def _ranks_of(ratio: float, collective: Collective) -> float:
    """The number of ranks, whole or not, that has this ratio of bandwidths."""
    share = ratio / 2 if collective == "allreduce" else ratio
    return 1 / (1 - share) if share < 1 else math.inf


def _fits(ratios: Iterable[tuple[float, float, str]], collective: Collective, num_ranks: int) -> bool:
    factor = busbw_factor(collective, num_ranks)
    return all(least - _SLACK <= factor <= most + _SLACK for least, most, _ in ratios)


def _shown(ratios: Sequence[tuple[float, float, str]]) -> str:
    """The ratio as the row that shows it best has it."""
    least, most, _ = min(ratios, key=lambda ratio: ratio[1] - ratio[0])
    return f"{(least + most) / 2:.4g}"


# -- what does not fit together


def _check(run: Run, collective: Collective, faults: Faults) -> None:
    for row in run.rows:
        for half in row.halves:
            if half.num_wrong:
                faults.add("WRONG RESULTS, values counted", f"{half.num_wrong} ({row.place})")
            if collective in _BUFFER_IS_MESSAGE and not _rate_fits(row.message_bytes, half):
                faults.add("algbw is not size / time", row.place)
    last = run.rows[-1]
    if not run.concluded:
        what = f"the last row is that of {last.message_bytes} bytes"
        if run.max_bytes is not None:
            what += f", and {run.max_bytes} were asked for"
        faults.add(f"lacks nccl-tests' last lines, as if it were cut: {what}", last.place)
    stated = run.average
    rates = [half.busbw for row in run.rows for half in row.halves if half.busbw is not None]
    if stated is None or not rates:
        return
    mean = sum(rate.value for rate in rates) / len(rates)
    if abs(mean - stated.value) > stated.error + max(rate.error for rate in rates):
        faults.add(
            f"the average bus bandwidth is stated as {stated.value / 1e9:g} GB/s, and that of the rows here "
            f"is {mean / 1e9:.6g}: rows or columns are missing, or were changed"
        )


def _rate_fits(message_bytes: int, half: Half) -> bool:
    if half.algbw is None:
        return True
    fastest = message_bytes / max(half.time.value - half.time.error, 1e-12)
    slowest = message_bytes / (half.time.value + half.time.error)
    return slowest * (
        1 - _SLACK
    ) <= half.algbw.value + half.algbw.error and half.algbw.value - half.algbw.error <= fastest * (1 + _SLACK)

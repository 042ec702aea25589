"""What other tools' figures say unasked: wrong results, rates that cannot be, times that jump. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from topotune.links.figures import CollectiveFigure, LinkFigure
from topotune.links.finding import Finding
from topotune.links.measurement import Measurement
from topotune.units import format_bytes, format_rate, format_seconds

_ERRATIC: Final = 1.5  # so many times as long as a larger message of the same run
_JUMP: Final = 4.0  # so many times as much longer than the size before as the message is larger
_FEW: Final = 3


def figure_findings(measurement: Measurement) -> tuple[Finding, ...]:
    """All findings of a measurement's figures."""
    return (
        *_wrong_results(measurement.collectives),
        *_single_ranks(measurement.collectives),
        *_erratic(measurement.collectives),
        *_two_nodes(measurement.collectives),
        *_no_peer_access(measurement.link_figures),
    )


def _wrong_results(figures: Iterable[CollectiveFigure]) -> list[Finding]:
    wrong = [figure for figure in figures if figure.num_wrong]
    if not wrong:
        return []
    shown = ", ".join(
        f"{figure.num_wrong} at {format_bytes(figure.message_bytes)}" for figure in wrong[:_FEW]
    )
    more = f" and {len(wrong) - _FEW} sizes more" if len(wrong) > _FEW else ""
    return [
        Finding(
            code="wrong-results",
            severity="error",
            where=wrong[0].collective,
            evidence=f"the benchmark counted wrong values in the result: {shown}{more}",
            advice="a device, a cable or the library corrupts data: do not train on it; run it node by node",
        )
    ]


def _single_ranks(figures: Sequence[CollectiveFigure]) -> list[Finding]:
    if not figures or any(figure.num_ranks != 1 for figure in figures):
        return []
    return [
        Finding(
            code="single-ranks",
            severity="warning",
            where=figures[0].collective,
            evidence="each run had one rank: what was timed are copies within a device, no communication",
            advice="build nccl-tests with MPI=1, or run it with -g for the GPUs of one process",
        )
    ]


def _erratic(figures: Iterable[CollectiveFigure]) -> list[Finding]:
    """Sizes that take far longer than their neighbours: outliers of warming up, or an uneasy network."""
    found = [
        odd
        for of_run in _series(figures)
        for odd in (*_slower_than_larger(of_run), *_slower_than_smaller(of_run))
    ]
    if not found:
        return []
    found.sort(key=lambda odd: -odd[0])
    shown = "; ".join(
        f"{_timed(slow)} and {_timed(other)}"
        + {None: "", True: " (in place)", False: " (out of place)"}[slow.in_place]
        for _, slow, other in found[:_FEW]
    )
    more = f"; and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return [
        Finding(
            code="times-erratic",
            severity="info",
            where=found[0][1].collective,
            evidence=f"times do not grow with the message: {shown}{more}",
            advice="do not rest on these sizes: repeat the run with more warm-up and iterations",
        )
    ]


def _timed(figure: CollectiveFigure) -> str:
    return f"{format_bytes(figure.message_bytes)} takes {format_seconds(figure.time_s)}"


def _series(figures: Iterable[CollectiveFigure]) -> list[list[CollectiveFigure]]:
    """Figures of one run and kind, by size."""
    series: dict[tuple[int, str, bool | None, int | None], list[CollectiveFigure]] = defaultdict(list)
    for figure in figures:
        series[figure.run, figure.collective, figure.in_place, figure.root].append(figure)
    return [sorted(of_run, key=lambda figure: figure.message_bytes) for of_run in series.values()]


_Odd = tuple[float, CollectiveFigure, CollectiveFigure]
"""By how much it is odd, the figure, and that which shows it."""


def _slower_than_larger(of_run: Sequence[CollectiveFigure]) -> list[_Odd]:
    found: list[_Odd] = []
    fastest: CollectiveFigure | None = None
    for figure in reversed(of_run):
        larger = fastest is not None and fastest.message_bytes > figure.message_bytes
        if fastest is not None and larger and figure.time_s > _ERRATIC * fastest.time_s:
            found.append((figure.time_s / fastest.time_s, figure, fastest))
        if fastest is None or figure.time_s < fastest.time_s:
            fastest = figure
    return found


def _slower_than_smaller(of_run: Sequence[CollectiveFigure]) -> list[_Odd]:
    found: list[_Odd] = []
    for before, figure in pairwise(of_run):
        if before.message_bytes > 0:
            jump = figure.time_s / before.time_s / (figure.message_bytes / before.message_bytes)
            if jump > _JUMP:
                found.append((jump, figure, before))
    return found


def _two_nodes(figures: Iterable[CollectiveFigure]) -> list[Finding]:
    """Two nodes are a special case: a tree passes each byte once, and the bus bandwidth counts it twice."""
    of_two = [
        figure.busbw_bytes_per_s
        for figure in figures
        if figure.num_nodes == 2 and figure.collective == "allreduce" and figure.busbw_bytes_per_s
    ]
    if not of_two:
        return []
    return [
        Finding(
            code="two-nodes",
            severity="info",
            where="allreduce",
            evidence=f"the best bus bandwidth, {format_rate(max(of_two))}, is that of two nodes, between "
            "which a tree can reach more than their network adapters carry",
            advice="do not extrapolate to more nodes: measure on three or more",
        )
    ]


def _no_peer_access(figures: Iterable[LinkFigure]) -> list[Finding]:
    """GPU pairs that cannot reach each other's memory, beside others that can, or none that can."""
    refused = sorted(
        {
            (min(figure.src, figure.dst), max(figure.src, figure.dst))
            for figure in figures
            if figure.peer_access is False and figure.src is not None and figure.dst is not None
        }
    )
    if not refused:
        return []
    shown = ", ".join(f"{a}-{b}" for a, b in refused[:6])
    rates = [
        figure.bandwidth_bytes_per_s
        for figure in figures
        if figure.peer_access is False and figure.bandwidth_bytes_per_s is not None and figure.duplex is None
    ]
    evidence = (
        f"{len(refused)} pairs cannot reach each other's memory ({shown}{', …' if len(refused) > 6 else ''})"
    )
    if rates:
        evidence += f"; copies between them go through the host, at {format_rate(max(rates))} at most"
    return [
        Finding(
            code="no-peer-access",
            severity="info",
            where="pairs of GPUs",
            evidence=evidence,
            advice="where the board should allow it, look at ACS, the IOMMU and the driver's P2P support",
        )
    ]

"""Other tools' figures as aligned text."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from topotune.links.figures import CollectiveFigure, LinkFigure
from topotune.links.measurement import Measurement
from topotune.report.columns import align
from topotune.units import format_bytes, format_rate, format_seconds


def describe_figures(measurement: Measurement) -> list[str]:
    """Who took part, by which tool, and the tables; nothing of measurements that are our own."""
    if not measurement.link_figures and not measurement.collectives:
        return []
    tool = measurement.facts.get("tool", "figures")
    version = measurement.facts.get("tool_version")
    parts = [f"{tool}{f' {version}' if version else ''}: {_ranks(measurement)}"]
    if measurement.link_figures:
        parts.append(_links(measurement.link_figures))
    return [*parts, *map(_collectives, _runs(measurement.collectives))]


def _ranks(measurement: Measurement) -> str:
    numbers = {figure.num_ranks for figure in measurement.collectives}
    if measurement.num_ranks:
        what = f"{measurement.num_ranks} rank{'s' if measurement.num_ranks > 1 else ''}"
    elif len(numbers) > 1:
        what = "runs of several numbers of ranks"
    else:
        what = "ranks of unknown number"
    num_nodes = len(measurement.node_names)
    where = f"{num_nodes} node{'s' if num_nodes > 1 else ''}" if num_nodes else "nodes that are not named"
    return f"{what} on {where}"


def _links(figures: Sequence[LinkFigure]) -> str:
    """Each method, and below it a line for its ends and message sizes: how many ways, how they spread."""
    groups: dict[tuple[str, str, int | None, bool], list[float]] = defaultdict(list)
    for figure in figures:
        value = figure.bandwidth_bytes_per_s or figure.latency_s or 0.0
        is_rate = figure.bandwidth_bytes_per_s is not None
        groups[figure.method, _ways(figure), figure.message_bytes, is_rate].append(value)
    rows = []
    for (_, ways, size, is_rate), values in groups.items():
        form = format_rate if is_rate else format_seconds
        rows.append(
            [
                ways,
                "–" if size is None else format_bytes(size),
                str(len(values)),
                form(min(values)),
                form(median(values)),
                form(max(values)),
            ]
        )
    heading, *lines = align(["", "message", "number", "least", "median", "most"], rows).split("\n")
    parts = [f"  {heading}"]
    before = None
    for (method, *_), line in zip(groups, lines, strict=True):
        parts += [f"  {method}"] if method != before else []
        parts.append(f"  {line}")
        before = method
    return "\n".join(parts)


def _ways(figure: LinkFigure) -> str:
    if figure.src == figure.dst:
        return "in a device"
    src, dst = ("host" if end is None else "rank" for end in (figure.src, figure.dst))
    beside = "" if figure.num_concurrent == 1 else f", mean of {figure.num_concurrent} at once"
    return f"{src} {'→' if figure.duplex is None else '↔'} {dst}{beside}"


def _runs(figures: Iterable[CollectiveFigure]) -> list[list[CollectiveFigure]]:
    runs: dict[tuple[int, str, int | None, bool], list[CollectiveFigure]] = defaultdict(list)
    for figure in figures:
        runs[figure.run, figure.collective, figure.num_ranks, figure.of_part].append(figure)
    return list(runs.values())


def _collectives(figures: Sequence[CollectiveFigure]) -> str:
    """One line a size and kind of call, as the tool has them."""
    first = figures[0]
    who = "" if first.num_ranks is None else f", {first.num_ranks} ranks"
    nodes = "" if first.num_nodes is None else f" on {first.num_nodes} node{'s' * (first.num_nodes != 1)}"
    origin = "" if first.origin is None else f", from {first.origin}"
    rows = [
        [
            format_bytes(figure.message_bytes),
            {None: "–", True: "in place", False: "out of place"}[figure.in_place],
            format_seconds(figure.time_s),
            "–" if figure.algbw_bytes_per_s is None else format_rate(figure.algbw_bytes_per_s),
            "–" if figure.busbw is None else format_rate(figure.busbw),
            "–" if figure.num_wrong is None else str(figure.num_wrong),
        ]
        for figure in figures
    ]
    table = align([first.collective, "buffers", "time", "algbw", "busbw", "wrong"], rows, left=(1,))
    sizes = ", sizes are those of one rank's part" if first.of_part else ""
    return f"{first.collective}{who}{nodes}{sizes}{origin}\n{table}"

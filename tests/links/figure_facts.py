"""What a benchmark's output says, in the words in which fixtures and captures state what a reader finds."""

from collections import defaultdict

from topotune.links import Measurement, fit_links
from topotune.links.figure_findings import figure_findings


def figure_facts_of(measurement: Measurement) -> dict[str, object]:
    collectives = measurement.collectives
    sizes = [figure.message_bytes for figure in collectives if figure.in_place is not True]
    return {
        "num_ranks": measurement.num_ranks,
        "nodes": list(measurement.node_names),
        "node_of_rank": list(measurement.node_of_rank),
        "collectives": sorted({figure.collective for figure in collectives}),
        "ranks_of_runs": [[run, n] for run, n in sorted({(each.run, each.num_ranks) for each in collectives},
                                                        key=str)],
        "nodes_of_runs": sorted({str(figure.num_nodes) for figure in collectives}),
        "sizes": [len(sizes), min(sizes, default=0), max(sizes, default=0)],
        "parts": sorted([each.collective, each.message_bytes] for each in collectives if each.of_part),
        "halves": sorted({str(figure.in_place) for figure in collectives}),
        "last": last_of(measurement, in_place=False),
        "last_in_place": last_of(measurement, in_place=True),
        "best_busbw": best_busbw(measurement),
        "roots": sorted({str(figure.root) for figure in collectives}),
        "ops": sorted({str(figure.op) for figure in collectives}),
        "dtypes": sorted({str(figure.dtype) for figure in collectives}),
        "wrong": sorted({str(figure.num_wrong) for figure in collectives}),
        "errors": sorted({str(figure.max_error) for figure in collectives}),
        "iterations": sorted({str(figure.num_iterations)
                              for figure in (*collectives, *measurement.link_figures)}),
        "spread_us": [[microseconds(figure.min_s), microseconds(figure.max_s)]
                      for figure in (*collectives, *measurement.link_figures) if figure.min_s][-1:],
        "samples": [len(figure.samples_s) for figure in collectives],
        "links": links_of(measurement),
        "peak_gb_per_s": [round(figure.peak_bytes_per_s / 1e9, 4) for figure in measurement.link_figures
                          if figure.peak_bytes_per_s],
        "no_peer_access": sorted([figure.src, figure.dst] for figure in measurement.link_figures
                                 if figure.peer_access is False and figure.method.startswith("Uni")
                                 and figure.direct),
        "facts": {key: value for key, value in measurement.facts.items() if key != "file"},
        "findings": [finding.code for finding in figure_findings(measurement)],
        "fits": fits_of(measurement),
    }  # fmt: skip


def microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6, 3)


def last_of(measurement: Measurement, *, in_place: bool) -> list[float | None] | None:
    """Time in us, algbw and busbw in GB/s of the last row."""
    half = [figure for figure in measurement.collectives if bool(figure.in_place) == in_place]
    if not half:
        return None
    rates = half[-1].algbw_bytes_per_s, half[-1].busbw_bytes_per_s
    return [
        microseconds(half[-1].time_s),
        *(None if rate is None else round(rate / 1e9, 4) for rate in rates),
    ]


def best_busbw(measurement: Measurement) -> list[float] | None:
    """The greatest out-of-place busbw in GB/s, and the size that has it."""
    rates = [
        (figure.busbw_bytes_per_s, figure.message_bytes)
        for figure in measurement.collectives
        if figure.busbw_bytes_per_s is not None and not figure.in_place
    ]
    return [round(max(rates)[0] / 1e9, 4), max(rates)[1]] if rates else None


def links_of(measurement: Measurement) -> dict[str, list[object]]:
    """Method, ways and message → how many figures, the least and the greatest, in GB/s or us."""
    groups: dict[str, list[float]] = defaultdict(list)
    for figure in measurement.link_figures:
        ends = (
            "="
            if figure.src == figure.dst
            else f"{'h' if figure.src is None else 'r'}{'h' if figure.dst is None else 'r'}"
        )
        words = [figure.method, ends, figure.duplex or "", "" if figure.direct else "host"]
        words += [f"x{figure.num_concurrent}"] if figure.num_concurrent > 1 else []
        if figure.message_bytes is not None:
            words.append(str(figure.message_bytes))
        value = (figure.bandwidth_bytes_per_s or 0) / 1e9 or (figure.latency_s or 0) * 1e6
        groups[" ".join(word for word in words if word)].append(round(value, 5))
    return {name: [len(values), min(values), max(values)] for name, values in groups.items()}


def fits_of(measurement: Measurement) -> list[list[object]]:
    """Name, number of pairs, latency in us, bandwidth in GB/s of each class; none where none is fitted."""
    if not measurement.times_links:
        return []
    model = fit_links(measurement)
    return [
        [name, sum(list(row).count(index) for row in model.pair_class), round(cost.latency_s * 1e6, 4),
         round(cost.bandwidth_bytes_per_s / 1e9, 3)]
        for index, (name, cost) in enumerate(zip(model.class_names, model.classes, strict=True))
    ]  # fmt: skip

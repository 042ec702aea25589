"""What a measurement says unasked: structure, slow classes, pairs that contend, times that never settled."""

import statistics
from collections import defaultdict

import numpy as np

from topotune.links.figure_findings import figure_findings
from topotune.links.finding import Finding
from topotune.links.inference import Structure, infer_structure
from topotune.links.measurement import ExchangeTiming, Measurement
from topotune.links.model import LinkModel
from topotune.links.network_findings import is_explained, network_findings
from topotune.units import format_bytes, format_rate, format_seconds

_CONTENTION = 1.33  # two flows that share a bottleneck slow each other down 2 times; noise rarely by a third


def find(
    measurement: Measurement, model: LinkModel | None, structure: Structure | None = None
) -> tuple[Finding, ...]:
    """All findings of a measurement, the costs fitted to it and the structure inferred from it. Pure.

    Figures of other tools have neither the samples nor the flows that costs are compared by; a model of them,
    or none, adds nothing.
    """
    figures = figure_findings(measurement)
    if model is None or measurement.has_only_figures:
        return figures
    structure = structure or infer_structure(measurement)
    return (
        *network_findings(measurement, model, structure),
        *_slow_classes(measurement, model, structure),
        *_contention(measurement),
        *_unsettled(measurement),
        *figures,
    )


def _slow_classes(measurement: Measurement, model: LinkModel, structure: Structure) -> list[Finding]:
    """Classes that split off from the fastest of their kind, and that nothing found by itself explains."""
    findings = []
    fastest = None
    for index, (name, cost) in enumerate(zip(model.class_names, model.classes, strict=True)):
        kind = name.split(",")[0]
        if fastest is None or fastest[0] != kind:
            fastest = (kind, cost)
            continue
        pairs = [
            (src, int(dst))
            for src, row in enumerate(model.pair_class)
            for dst in np.flatnonzero(np.equal(row, index))
        ]
        if not measurement.is_within_node(*pairs[0]) and is_explained(pairs, measurement, structure):
            continue
        findings.append(
            Finding(
                code="slow-links",
                severity="warning",
                where=name,
                evidence=(
                    f"{format_rate(cost.bandwidth_bytes_per_s)} and "
                    f"{format_seconds(cost.latency_s)} where the fastest "
                    f"{kind} have {format_rate(fastest[1].bandwidth_bytes_per_s)} and "
                    f"{format_seconds(fastest[1].latency_s)}; the 95 % intervals lie apart"
                ),
                advice="look at the network device, its negotiated rate and what else uses it",
            )
        )
    return findings


def _contention(measurement: Measurement) -> list[Finding]:
    """How much longer exchanges take when the other pairs of a round exchange as well."""
    alone: dict[tuple[bool, int], list[float]] = defaultdict(list)
    together: dict[tuple[bool, int], list[float]] = defaultdict(list)
    for exchange in measurement.exchanges:
        key = (measurement.is_within_node(exchange.a, exchange.b), exchange.message_bytes)
        if exchange.num_concurrent == 1:
            alone[key].append(exchange.median_s)
        elif _is_round(measurement, exchange):
            together[key].append(exchange.median_s)
    findings = []
    for key in sorted(set(alone) & set(together)):
        within, message_bytes = key
        alone_s, together_s = statistics.median(alone[key]), statistics.median(together[key])
        if together_s >= _CONTENTION * alone_s:
            evidence = (
                f"an exchange of {format_bytes(message_bytes)} takes {format_seconds(alone_s)} alone and "
                f"{format_seconds(together_s)} while all pairs exchange: "
                f"{together_s / alone_s:.1f} times as long"
            )
            findings.append(
                Finding(
                    code="pairs-contend",
                    severity="info",
                    where="pairs within a node" if within else "pairs between nodes",
                    evidence=evidence,
                    advice="predictions count what is shared; algorithms that send less at once gain here",
                )
            )
    return findings


def _is_round(measurement: Measurement, exchange: ExchangeTiming) -> bool:
    """Whether the pairs of its group are disjoint, as in a round; in a fan they meet in one rank."""
    group = [other for other in measurement.exchanges if other.group == exchange.group]
    ranks = [rank for other in group for rank in (other.a, other.b)]
    return len(set(ranks)) == len(ranks)


def _unsettled(measurement: Measurement) -> list[Finding]:
    """Pairs whose times still rose or fell when the time was up."""
    unsettled = [pair for pair in measurement.pairs if not pair.steady]
    if len(unsettled) <= 0.05 * len(measurement.pairs):
        return []
    return [
        Finding(
            code="not-steady",
            severity="info",
            where=f"{len(unsettled)} of {len(measurement.pairs)} timings",
            evidence="times still rose or fell after warming up",
            advice="something else uses the machines: measure again when they are idle, or for longer",
        )
    ]
